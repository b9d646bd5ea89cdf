"""Decides after each attempt of a call: return, wait and send the same request again, or raise. Pure: no I/O, no clock.

A write is *unsettled* once an attempt may have been stored without an answer that says so. Only an answer that was decided after
that attempt settles it (docs/reference/api.md, "What does the outcome `unknown` mean?").
"""

import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

from credit_ledger.call import Answer, Call
from credit_ledger.problem import OutcomeUnknown, Problem, Unreachable
from credit_ledger.problems import problem_of

T = TypeVar("T")

SETTLING_STATUSES: Final = frozenset({402, 404, 409, 412})
"""Refusals that were decided under the lock, which an unfinished attempt would still hold."""
UNDECIDED: Final = frozenset({"lock-busy", "invoice-generation-busy"})
"""409 without the lock."""
RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Retries:
    """How long a call is repeated.

    Args:
        total_s: no attempt begins later, and no wait ends later.
        attempt_s: how long one attempt may wait for its answer, or for a connection.
        first_wait_s: the wait before the second attempt if the server names no time; then doubled. Half of each wait is random.
        longest_wait_s: the longest of these waits.
    """

    total_s: float = 30.0
    attempt_s: float = 10.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0


@dataclass(frozen=True)
class Lost:
    """An attempt without an answer.

    Args:
        may_be_stored: False if the request cannot have reached the server.
    """

    reason: str
    may_be_stored: bool


@dataclass(frozen=True)
class Done(Generic[T]):
    """The answer of the call."""

    value: T


@dataclass(frozen=True)
class Again:
    """Send the same request after this time."""

    after_s: float


class Attempts(Generic[T]):
    """All attempts of one call."""

    def __init__(self, call: Call[T], retries: Retries) -> None:
        self._call = call
        self._retries = retries
        self._count = 0
        self._is_unsettled = False

    def time_of_attempt_s(self, elapsed_s: float) -> float:
        """Return how long the attempt that begins now may take."""
        return max(0.0, min(self._retries.attempt_s, self._retries.total_s - elapsed_s))

    def judge(self, outcome: Answer | Lost, elapsed_s: float, chance: float) -> Done[T] | Again:
        """Decide what follows an attempt.

        Args:
            elapsed_s: since the first attempt began.
            chance: 0 to 1, new each time, so that clients that failed together do not return together.

        Raises:
            Problem: the server refused the request: it has no effect, or the first answer to it was this refusal.
            OutcomeUnknown: an earlier attempt may be stored, and no time is left or no repetition would settle it.
            Unreachable: no attempt reached the server within the time.
        """
        self._count += 1
        if isinstance(outcome, Lost):
            return self._lost(outcome, elapsed_s, chance)
        if outcome.status < 300:
            try:
                return Done(self._call.read(outcome))
            except ValueError:
                return self._lost(Lost("the answer was not complete", may_be_stored=True), elapsed_s, chance)
        return self._problem(problem_of(outcome.status, _json_of(outcome)), _retry_after_s(outcome), elapsed_s, chance)

    def _lost(self, lost: Lost, elapsed_s: float, chance: float) -> Again:
        self._is_unsettled |= lost.may_be_stored and self._call.is_write
        again = self._again(None, elapsed_s, chance)
        if again is None:
            raise self._unknown(None, lost.reason) if self._is_unsettled else Unreachable(lost.reason)
        return again

    def _problem(self, problem: Problem, retry_after_s: float | None, elapsed_s: float, chance: float) -> Again:
        is_unknown = problem.outcome != "not_executed" and problem.status >= 500 and self._call.is_write
        self._is_unsettled |= is_unknown
        if self._is_unsettled and problem.status in SETTLING_STATUSES and problem.slug and problem.slug not in UNDECIDED:
            raise problem
        is_worth_repeating = (
            is_unknown or problem.status in RETRYABLE_STATUSES or (self._is_unsettled and problem.slug in UNDECIDED)
        )
        again = self._again(retry_after_s, elapsed_s, chance) if is_worth_repeating else None
        if again is None:
            raise self._unknown(problem, str(problem)) if self._is_unsettled else problem
        return again

    def _again(self, retry_after_s: float | None, elapsed_s: float, chance: float) -> Again | None:
        """Return the wait before the next attempt, or None if that would end after the time."""
        longest = min(self._retries.longest_wait_s, self._retries.first_wait_s * 2 ** min(self._count - 1, 30))
        # Without a time from the server, or with 0, the client still pauses.
        wait_s = retry_after_s or longest * (0.5 + chance / 2)
        return Again(wait_s) if elapsed_s + wait_s < self._retries.total_s else None

    def _unknown(self, last: Problem | None, reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(idempotency_key=self._call.idempotency_key or "", attempts=self._count, last=last, reason=reason)


def _json_of(answer: Answer) -> Any:
    try:
        return json.loads(answer.content)
    except ValueError:
        return None


def _retry_after_s(answer: Answer) -> float | None:
    """Return the time of Retry-After: seconds, or a date beside the server's own Date."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None
