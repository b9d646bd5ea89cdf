"""Why less is available than was asked for, and when it would be enough: the facts of a refusal.

Nothing of it costs anything where enough is available.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ledger.rules.accounts import Account
from ledger.rules.instants import to_text
from ledger.rules.lots import SINCE_ITS_GRANT, Lot, total

MAX_DETAILS = 10
"""Lots, and holds, that a refusal lists: its record stays small whatever the account has."""


def facts(account: Account, amount: int, available: int, *, overdraft: int, until_us: int | None) -> dict[str, Any]:
    """The facts of InsufficientCredits; `effective_at` is None for lots that do not bear it, for the journal to fill in.

    Args:
        amount: what was asked for; available: what could be had, less than that.
        overdraft: how much of an overdraft may be drawn upon, 0 or more.
        until_us: from this instant on, what was asked for could not be had anyhow.
    """
    now_us = account.now_us
    sufficient_us = _sufficient_from(account, amount, available, overdraft, until_us)
    # What could not be spent first: that is what a reader looks for.
    lots = sorted(account.lots, key=lambda lot: lot.is_spendable(now_us))
    return {
        "available": available,
        "balance": account.balance,
        "requested": amount,
        "shortfall": amount - available,
        "held": account.held,
        "expired": total(lot for lot in account.lots if lot.is_expired(now_us)),
        "not_yet_effective": total(lot for lot in account.lots if lot.effective_us > now_us),
        "lots": [_lot(lot, now_us) for lot in lots[:MAX_DETAILS]],
        "holds": [
            {"hold": hold.sequence, "amount": hold.amount, "expires_at": to_text(hold.expires_us)}
            for hold in account.holds
            if not hold.is_expired(now_us)
        ][:MAX_DETAILS],
        "earliest_sufficient_at": None if sufficient_us is None else to_text(sufficient_us),
    }


def _lot(lot: Lot, now_us: int) -> dict[str, Any]:
    return {
        "grant": lot.grant,
        "remaining": lot.remaining,
        "state": "expired" if lot.is_expired(now_us) else "spendable" if lot.is_spendable(now_us) else "not_yet_effective",
        "effective_at": None if lot.effective_us == SINCE_ITS_GRANT else to_text(lot.effective_us),
        "expires_at": None if lot.expires_us is None else to_text(lot.expires_us),
    }


def _sufficient_from(account: Account, amount: int, available: int, overdraft: int, until_us: int | None) -> int | None:
    """The first instant at which enough will be available if nobody does anything: lots become effective, holds expire."""
    changes: defaultdict[int, int] = defaultdict(int)
    for lot, from_us in _coming(account):
        begins_us = max(from_us, lot.effective_us, account.now_us)
        if lot.expires_us is not None and lot.expires_us <= begins_us:
            continue
        changes[begins_us] += lot.remaining
        if lot.expires_us is not None:
            changes[lot.expires_us] -= lot.remaining
    usable = changes.pop(account.now_us, 0) + overdraft - account.owed
    beside = available - max(0, usable)
    for instant_us in sorted(changes):
        if until_us is not None and instant_us >= until_us:
            return None
        usable += changes[instant_us]
        if beside + max(0, usable) >= amount:
            return instant_us
    return None


def _coming(account: Account) -> Iterable[tuple[Lot, int]]:
    """Every lot, and every part that is held, with the instant from which it is not held."""
    for lot in account.lots:
        yield lot, account.now_us
    for hold in account.holds:
        for part in hold.parts:
            yield part, hold.expires_us
