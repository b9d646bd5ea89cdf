"""What the account of the model grants: spends, holds, captures and releases, of credits that expire.

It says the rules over again, shortly, and shares nothing with `ledger.rules`.
"""

from typing import Final

from tests.convince.lock_argument import Entry, Request

GRANTED: Final = 10
"""Credits of the account at the beginning."""
HOLD: Final = "hold"
LOT_EXPIRES: Final = 2
"""The instant from which on the granted credits cannot be taken."""
HOLD_EXPIRES: Final = 1
"""The instant from which on a hold keeps nothing back any more."""


def decide_spend(request: Request, entries: tuple[Entry, ...], now: int) -> bool:
    """Return whether the credits suffice for a spend; there are neither holds nor expiries."""
    return GRANTED - _sum(entries, "spend") >= request.amount


def decide(request: Request, entries: tuple[Entry, ...], now: int) -> bool:
    """Return whether a spend, a hold, or a capture or release of the account's hold is granted."""
    is_held = _is_held(entries, now)
    if request.kind in ("capture", "release"):
        return is_held
    held = _sum(entries, HOLD) if is_held else 0
    return now < LOT_EXPIRES and GRANTED - _sum(entries, "spend") - _sum(entries, "capture") - held >= request.amount


def _is_held(entries: tuple[Entry, ...], now: int) -> bool:
    """Return whether there is a hold that is not ended yet: by a capture, a release, or its time."""
    kinds = [entry.request.kind for entry in entries if entry.is_granted]
    return HOLD in kinds and "capture" not in kinds and "release" not in kinds and now < HOLD_EXPIRES


def _sum(entries: tuple[Entry, ...], kind: str) -> int:
    return sum(entry.request.amount for entry in entries if entry.is_granted and entry.request.kind == kind)
