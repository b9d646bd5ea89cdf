"""The facts of a refusal for lack of credits: why fewer are available than requested, and from when enough will be.

They are computed only for a refusal.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ledger.rules.accounts import AccountState
from ledger.rules.holds import Hold
from ledger.rules.instants import to_text
from ledger.rules.lots import POSTPAID, SINCE_ITS_GRANT, Lot, postpaid, restricted, total
from ledger.rules.lots import available as total_spendable
from ledger.rules.overage import Overage
from ledger.rules.pending import SettledState, settled
from ledger.rules.purposes import Purpose, Use

MAX_DETAILS = 10
"""How many lots, and how many holds, a refusal lists at most, so that it stays small."""


def facts(
    account: AccountState,
    amount: int,
    available: int,
    *,
    use: Use | None,
    overdraft: int,
    on_overage: int | None,
    until_us: int | None,
) -> dict[str, Any]:
    """Return the facts of InsufficientCredits. `effective_at` is None for lots that do not store it; the journal fills it in.

    Args:
        amount: how many credits were requested.
        available: how many could be used, fewer than that.
        use: what for; None: for no certain thing.
        overdraft: how much of the overdraft the request may use, 0 or more.
        on_overage: how many of `available` are beyond the lots, by the overage; None if the request cannot use it.
        until_us: from this time on the request is impossible anyway, such as a capture after its hold has expired.
    """
    now_us = account.now_us
    overage = account.present_overage if on_overage is not None else None
    sufficient_us = _sufficient_from(account, amount, available, use, overdraft, overage, until_us)
    elsewhere = _for_other_things(account, use)
    # Lots that cannot be spent come first: a reader looks for them.
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
        "holds": [_hold(hold, now_us) for hold in account.holds[:MAX_DETAILS]],
        "earliest_sufficient_at": None if sufficient_us is None else to_text(sufficient_us),
        **({} if overage is None else {"overage": shown_overage(overage)}),
        **({"for_other_things": elsewhere} if elsewhere else {}),
    }


def _for_other_things(account: AccountState, use: Use | None) -> list[dict[str, Any]]:
    """Return the credits that could be spent now on other things, by what they can pay for, in burn order."""
    amounts: dict[Purpose, int] = {}
    for lot in account.settled.lots:
        if lot.applies_to is not None and lot.is_spendable(account.now_us) and not lot.covers(use):
            amounts[lot.applies_to] = amounts.get(lot.applies_to, 0) + lot.remaining
    return [{"applies_to": purpose.shown(), "available": amount} for purpose, amount in list(amounts.items())[:MAX_DETAILS]]


def shown_overage(overage: Overage) -> dict[str, Any]:
    """Return the overage as refusals have it."""
    return {"limit": overage.limit, "used": overage.used, "until": to_text(overage.left_until_us)}


def _lot(lot: Lot, now_us: int) -> dict[str, Any]:
    return {
        "grant": lot.grant,
        "remaining": lot.remaining,
        "state": lot.state(now_us),
        "effective_at": None if lot.effective_us == SINCE_ITS_GRANT else to_text(lot.effective_us),
        "expires_at": None if lot.expires_us is None else to_text(lot.expires_us),
        **({} if lot.applies_to is None else {"applies_to": lot.applies_to.shown()}),
    }


def _hold(hold: Hold, now_us: int) -> dict[str, Any]:
    return {
        "hold": hold.sequence,
        "amount": hold.amount,
        "state": hold.state(now_us),
        "expires_at": to_text(hold.expires_us),
    }


def _sufficient_from(
    account: AccountState,
    amount: int,
    available: int,
    use: Use | None,
    overdraft: int,
    overage: Overage | None,
    until_us: int | None,
) -> int | None:
    """Return the first time at which enough credits will be available if no other request comes, or None.

    Until then lots become effective and expire, holds expire, credits that become spendable repay the debt first, and the next
    period of the overage begins.
    """
    state = account.settled
    usable_now = _usable(state, account.now_us, use)
    # Available beside the lots: the credits of the hold that is to be captured, and the overage.
    beside = available - usable_now.with_overdraft(overdraft)
    future = _also_at(_overage_changes(account, overage), _future(state, account.now_us, use), usable_now)
    for instant_us, usable in future:
        if until_us is not None and instant_us >= until_us:
            return None
        on_overage = 0 if overage is None else account._replace(now_us=instant_us).overage_left - overage.left
        if beside + usable.with_overdraft(overdraft) + on_overage >= amount:
            return instant_us
    return None


class _Usable(NamedTuple):
    """The credits of the lots at an instant that can pay for everything, less the debt, and those for the use alone."""

    general: int
    restricted: int

    def with_overdraft(self, overdraft: int) -> int:
        return max(0, self.general + overdraft) + self.restricted


def _usable(state: SettledState, now_us: int, use: Use | None) -> _Usable:
    return _Usable(total_spendable(state.lots, now_us) - state.owed, restricted(state.lots, now_us, use))


def _also_at(instants: Iterable[int], future: Iterable[tuple[int, _Usable]], usable: _Usable) -> Iterator[tuple[int, _Usable]]:
    """Yield the future with further instants, at which nothing changes of `usable`."""
    waiting = sorted(set(instants), reverse=True)
    for instant_us, usable_then in future:
        while waiting and waiting[-1] < instant_us:
            yield waiting.pop(), usable
        usable = usable_then
        yield instant_us, usable
    while waiting:
        yield waiting.pop(), usable


def _overage_changes(account: AccountState, overage: Overage | None) -> Iterator[int]:
    """Yield when more of the overage may be left: its next period begins, or a hold gives back what it took of it."""
    if overage is not None:
        yield overage.until_us
        yield from [hold.expires_us for hold in account.holds if hold.expires_us > account.now_us and postpaid(hold.parts)]


def _future(state: SettledState, now_us: int, use: Use | None) -> Iterator[tuple[int, _Usable]]:
    """Yield each time after `now_us` at which the spendable credits change, with their numbers."""
    coming = list(_coming(state, now_us))
    instants = {begins_us for begins_us, _ in coming} | {lot.expires_us for _, lot in coming if lot.expires_us is not None}
    instants.discard(now_us)
    for instant_us in sorted(instants):
        if not (state.owed or state.claims):
            break
        state = settled(*state, instant_us)
        yield instant_us, _usable(state, instant_us, use)
        now_us = instant_us
    if not (state.owed or state.claims):
        yield from _future_without_debt(state, now_us, use)


def _future_without_debt(state: SettledState, now_us: int, use: Use | None) -> Iterator[tuple[int, _Usable]]:
    """As `_future`, for an account without a debt or claims: no credits are used up, so adding and subtracting is enough."""
    differences: defaultdict[int, int] = defaultdict(int)
    for begins_us, lot in _coming(state, now_us):
        if lot.covers(use):
            differences[begins_us] += lot.remaining
            if lot.expires_us is not None:
                differences[lot.expires_us] -= lot.remaining
    usable = differences.pop(now_us, 0)
    for instant_us in sorted(differences):
        usable += differences[instant_us]
        yield instant_us, _Usable(usable, 0)


def _coming(state: SettledState, now_us: int) -> Iterator[tuple[int, Lot]]:
    """Yield each lot and each held part with the time from which it can be spent, except those that never can."""
    freed = [(now_us, lot) for lot in state.lots]
    freed += [(hold.expires_us, part) for hold in state.holds for part in hold.parts if part.source != POSTPAID]
    for freed_us, lot in freed:
        begins_us = max(freed_us, lot.effective_us, now_us)
        if lot.expires_us is None or begins_us < lot.expires_us:
            yield begins_us, lot
