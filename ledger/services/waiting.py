"""A spend or hold that waits for credits that are coming: without a lock, a transaction or a record, until it is decided.

Note [No entry is missed]
    A request that was tried knows the last entry of its account, which was read under the holder's lock. It is tried again when
    the account has another last entry. So credits that are added between the refusal and the first look are found by that look.
    What is under way is asked before the last entry is read: the credits of a top-up that is over are found.
"""

import math
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from ledger.database.statements import Statement, integer, parameter
from ledger.errors import InsufficientCredits
from ledger.rules.requests import PricedRequest
from ledger.services.coming_credits import RequestT, UnderWay, decided, lacks_credits, tried, under_way

LOOK_EVERY_S: Final = 0.1
ASK_EVERY_S: Final = 1.0
"""How often to ask what is under way while no entry appears."""
COMES_BY_ITSELF: Final = ("due", "requested", "processing", "granting")
"""The states that are worth waiting for: nobody has to act."""

LAST_SEQUENCE: Final = Statement(
    "last_sequence",
    "SELECT COALESCE(max(sequence), 0) FROM ledger_entry WHERE holder_id = %s AND credit_type = %s",
    [integer],
    row=lambda row: row[0],
)


class Next(Enum):
    """What a request that lacks credits does next."""

    WAIT = auto()
    TRY = auto()
    DECIDE = auto()


class Wait:
    """The wait of one request. One thread at a time uses it."""

    def __init__(self, request: PricedRequest) -> None:
        self.found: UnderWay | None = None
        """What was under way when it was asked last."""
        self._request = request
        self._wait_s = 0.0 if request.dry_run else request.wait_s
        self._deadline = time.monotonic() + self._wait_s
        self._asked_at = -math.inf
        self._refusal: Any = None

    @property
    def left_s(self) -> float:
        """How long it may still wait."""
        return max(0.0, self._deadline - time.monotonic())

    def begin(self, refusal: InsufficientCredits) -> None:
        """Wait from this refusal on, of a request that was tried."""
        self._refusal = refusal

    def look(self) -> Next:
        """Return what comes next; see the note. After the time, the request is decided whatever has come."""
        if (now := time.monotonic()) - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            self.found = under_way(self._request, self._refusal.facts)
        if not self.left_s:
            return Next.DECIDE
        if self._has_new_entry():
            return Next.TRY
        comes = self.found is not None and self.found.top_up["state"] in COMES_BY_ITSELF
        return Next.WAIT if comes else Next.DECIDE

    def _has_new_entry(self) -> bool:
        last: int = LAST_SEQUENCE.first([parameter(self._request.holder_id), parameter(self._request.credit_type)])
        return last != self._refusal.last_sequence


def executed_in_steps(request: RequestT, execute: Callable[[RequestT], Any]) -> Any:
    """Return the result of the request. If it lacks credits: after waiting as it says, and with what is under way."""
    result = execute(first := tried(request))
    if not lacks_credits(result):
        return result
    assert isinstance(first, PricedRequest)
    wait = Wait(first)
    while lacks_credits(result):
        wait.begin(result.refusal)
        while (following := wait.look()) is Next.WAIT:
            pause(min(LOOK_EVERY_S, wait.left_s))
        result = execute(first if following is Next.TRY else decided(first, wait.found))
    return result


def pause(seconds: float) -> None:
    """Let the caller's thread wait."""
    time.sleep(seconds)
