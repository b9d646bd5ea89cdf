"""Requests that arrive while another one is being answered are answered together, in one transaction.

A transaction costs the server more than the entry in it: BEGIN, COMMIT, and a sync of the log, for which the spends of one holder
would wait one after the other under the lock. So each process answers at once what has come in meanwhile: every thread brings its
request, one of them leads, and the others wait for what it tells them ("flat combining": Hendler, Incze, Shavit and Tzafrir, SPAA
2010). ADR 0014 has the numbers.

Nothing else changes: each request is decided under its holder's lock, read after it was taken, and answered when it is committed.
Whoever leads waits for nobody's lock: requests whose holder somebody else has locked are handed to one of themselves, which waits
for that lock and then takes all that have come in for the holder.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from ledger.errors import HolderBusy, LedgerError, OutcomeUnknown
from ledger.journal import Recorded
from ledger.rules import Request

Outcome = Recorded | LedgerError | None
"""What came of a request: what is on record, an error that left nothing; None where its holder's lock was not to be had."""


class Ways(Protocol):
    """How requests are answered, each way in a transaction of its own. See `answering`."""

    def alone(self, request: Request) -> Recorded:
        """Answer one request, waiting for its holder's lock."""

    def together(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        """Answer those whose holders' locks are free."""

    def after_waiting(self, holder_id: str, arrived: Callable[[], Sequence[Request]]) -> Sequence[Outcome]:
        """Wait for the holder's lock, then answer all that have arrived."""


class _Role(Enum):
    SERVED = "its outcome is known"
    LEADER = "answers what is in the queue"
    LOOKOUT = "waits for its holder's lock, for all who want that holder"
    SINGLE = "is answered alone"


class _Seat:
    """A request, its thread that waits for a role, and what came of it."""

    __slots__ = ("_called", "outcome", "request", "role")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.role: _Role | None = None
        self.outcome: Outcome = None
        self._called = threading.Lock()
        self._called.acquire()

    def call(self, role: _Role) -> None:
        self.role = role
        self._called.release()

    def wait(self) -> _Role:
        self._called.acquire()
        assert self.role is not None
        return self.role


class Combiner:
    """The queue of one process."""

    def __init__(self, ways: Ways, *, most: Callable[[], int]) -> None:
        """Describe it.

        Args:
            most: how many requests a leader takes; below 2, every request is answered alone.
        """
        self._ways = ways
        self._most = most
        self._guard = threading.Lock()
        self._queue: deque[_Seat] = deque()
        self._wanted: dict[str, list[_Seat]] = {}
        """Who waits for a holder whose lock somebody else had; the first one is, or will be, the lookout."""
        self._is_led = False

    def answer(self, request: Request) -> Recorded:
        """What is on record of the request, whoever wrote it.

        Raises:
            LedgerError: nothing of it was written, or OutcomeUnknown.
            Whatever else an answer alone raises.
        """
        if self._most() < 2:
            return self._ways.alone(request)
        seat = _Seat(request)
        self._seat(seat)
        while True:
            match seat.wait():
                case _Role.SERVED:
                    return _told(seat.outcome)
                case _Role.SINGLE:
                    return self._ways.alone(request)
                case _Role.LEADER:
                    self._lead()
                case _Role.LOOKOUT:
                    self._look_out(request.holder_id)

    def _seat(self, seat: _Seat) -> None:
        with self._guard:
            wanted = self._wanted.get(seat.request.holder_id)
            if wanted is not None:
                wanted.append(seat)
            else:
                self._queue.append(seat)
                self._appoint_leader()

    def _appoint_leader(self) -> None:
        if self._queue and not self._is_led:
            self._is_led = True
            self._queue[0].call(_Role.LEADER)

    def _lead(self) -> None:
        with self._guard:
            group = [self._queue.popleft() for _ in range(min(self._most(), len(self._queue)))]
        outcomes: Sequence[Outcome] | None = None
        try:
            outcomes = self._ways.together([seat.request for seat in group])
        except OutcomeUnknown as error:
            outcomes = [OutcomeUnknown(**error.facts) for _ in group]
        except Exception:
            # Whatever it was, each meets it again by itself, on its own connection, if it was its own.
            outcomes = None
        finally:
            with self._guard:
                self._is_led = False
                self._appoint_leader()
                self._dismiss(group, outcomes)

    def _dismiss(self, group: Sequence[_Seat], outcomes: Sequence[Outcome] | None) -> None:
        for number, seat in enumerate(group):
            if outcomes is None:
                seat.call(_Role.SINGLE)
            elif outcomes[number] is None:
                self._want(seat)
            else:
                seat.outcome = outcomes[number]
                seat.call(_Role.SERVED)

    def _want(self, seat: _Seat) -> None:
        wanted = self._wanted.setdefault(seat.request.holder_id, [])
        wanted.append(seat)
        if len(wanted) == 1:
            seat.call(_Role.LOOKOUT)

    def _look_out(self, holder_id: str) -> None:
        group: list[_Seat] = []

        def arrived() -> list[Request]:
            with self._guard:
                group.extend(self._wanted.pop(holder_id, []))
            return [seat.request for seat in group]

        outcomes: Sequence[Outcome] | None = None
        try:
            outcomes = self._ways.after_waiting(holder_id, arrived)
        except (HolderBusy, OutcomeUnknown) as error:
            arrived()
            outcomes = [type(error)(**error.facts) for _ in group]
        except Exception:
            arrived()
        finally:
            with self._guard:
                self._dismiss(group, outcomes)


def _told(outcome: Outcome) -> Recorded:
    if isinstance(outcome, LedgerError):
        raise outcome
    assert outcome is not None
    return outcome
