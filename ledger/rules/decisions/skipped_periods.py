"""Which due periods of a recurring grant leave nothing in the account by now, so that one entry says so for all of them.

After a long pause, a write would grant each missed period and expire its credits at once, under the holder's lock. The balance
after it would be the same without these entries, so they are left out, if there are more than `MADE_ONE_BY_ONE`. The audit works
out again from the terms that each skipped period left nothing.
"""

from bisect import bisect_right
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Final, NamedTuple

from ledger.rules.accounts import AccountState
from ledger.rules.instants import from_us
from ledger.rules.recurring_terms import (
    AFTER_DAYS,
    EXPIRED,
    FILLED_EXPIRED,
    LOTS_FULL,
    MAX_PERIODS,
    NOT_KEPT,
    PERIOD_END,
    RecurringGrant,
    RecurringTerms,
)

MADE_ONE_BY_ONE: Final = 12
"""Up to this number, periods that leave nothing are granted one after the other, so that statements of their months list them."""


MOST_STILL_OPEN: Final = 200
"""Of how many lots an entry that skips periods can say that the next one still finds them."""


class SkippedPeriods(NamedTuple):
    """The periods from the next one up to `last`; `because` is one of SKIPPED.

    `still_open` is what they would have granted and the next one still finds: each with when it expires, and its credits.
    """

    last: int
    because: str
    still_open: tuple[tuple[int, int], ...] = ()


def skipped_periods(
    account: AccountState,
    recurring: RecurringGrant,
    *,
    now_us: int,
    lots: Collection[int],
    expired: Collection[tuple[int, int]] = (),
) -> SkippedPeriods | None:
    """Return the next periods to skip, or None if the next one is granted by itself.

    No request has come between the start of the next period and now, so what happens until now is known. While there is a debt,
    or a claim to credits that come back, grants change it, so no period is skipped.

    Args:
        account: after what was due when the next period began.
        now_us: the instant of the write.
        lots: the numbers of the open lots that the recurring grant opened.
        expired: what has been booked of its lots that expired since then: each with time and amount.
    """
    terms, first = recurring.terms, recurring.next_period
    assert terms is not None
    assert first is not None
    repays = bool(account.owed or account.claims)
    if repays and terms.applies_to is None:
        return None
    if terms.up_to is not None and terms.expiry == AFTER_DAYS:
        skipped = _filled_expired(account, recurring, now_us, frozenset(lots), expired)
    else:
        skipped = SkippedPeriods(*_last(account, recurring, terms, now_us, frozenset(lots), repays=repays))
    is_worth_it = skipped.last - first >= MADE_ONE_BY_ONE and len(skipped.still_open) <= MOST_STILL_OPEN
    return skipped if is_worth_it else None


def _last(
    account: AccountState, recurring: RecurringGrant, terms: RecurringTerms, now_us: int, lots: frozenset[int], *, repays: bool
) -> tuple[int, str]:
    due = terms.last_begun(now_us)
    if terms.up_to is None and terms.rollover_cap is not None:
        return (-1 if repays or account.holds else due - periods_kept(terms) - 1), NOT_KEPT
    if terms.expiry in (PERIOD_END, AFTER_DAYS):
        return _last_expired(recurring, due, now_us), EXPIRED
    if terms.up_to is None or repays:
        return -1, LOTS_FULL
    return _last_full(account, terms, lots, due), LOTS_FULL


def periods_kept(terms: RecurringTerms) -> int:
    """Return of how many periods the unspent credits are kept when the next one begins."""
    assert terms.amount is not None
    assert terms.rollover_cap is not None
    return ceil(terms.rollover_cap / terms.amount)


def _last_expired(recurring: RecurringGrant, due: int, now_us: int) -> int:
    """Return the last period whose credits have expired: those of a later one expire later."""
    assert recurring.next_period is not None
    periods = range(recurring.next_period, due + 1)
    return recurring.next_period + bisect_right(periods, now_us, key=lambda n: recurring.expires_us(n) or now_us + 1) - 1


def _last_full(account: AccountState, terms: RecurringTerms, lots: frozenset[int], due: int) -> int:
    """Return the last period that begins while the lots are as full as they may be; -1 if they are not."""
    assert terms.up_to is not None
    own = [lot for lot in account.lots_and_held_parts if lot.grant in lots and not lot.is_expired(account.now_us)]
    unspent = sum(lot.remaining for lot in own)
    if terms.rollover_cap is not None and unspent > terms.rollover_cap:
        return -1
    for lot in sorted(own, key=lambda lot: lot.expires_us or inf):
        if unspent < terms.up_to:
            break
        unspent -= lot.remaining
        if unspent < terms.up_to:
            return due if lot.expires_us is None else min(due, terms.schedule.index_at(from_us(lot.expires_us - 1)))
    return -1


def _filled_expired(
    account: AccountState, recurring: RecurringGrant, now_us: int, lots: frozenset[int], expired: Collection[tuple[int, int]]
) -> SkippedPeriods:
    """Return the periods before the first one whose credits are there now: filled in thought, from one expiry to the next."""
    terms, n = recurring.terms, recurring.next_period
    assert terms is not None
    assert terms.up_to is not None
    assert n is not None
    as_of_us, due = account.now_us, terms.last_begun(now_us)
    # Each with when it expires, its credits, and whether a skipped period grants it.
    there: list[tuple[float, int, bool]] = [
        (lot.expires_us or inf, lot.remaining, False) for lot in account.lots_and_held_parts if lot.grant in lots
    ]
    there += [(*each, False) for each in expired] + [(*each, True) for each in recurring.still_open]
    heapify(there)
    unspent = sum(amount for _, amount, _ in there)
    last = due
    while n <= due:
        at_us = max(recurring.part(n).start_us, as_of_us)
        while there and there[0][0] <= at_us:
            unspent -= heappop(there)[1]
        lacking, expires_us = terms.up_to - unspent, recurring.expires_us(n)
        assert expires_us is not None
        if lacking > 0 and expires_us > now_us:
            last = n - 1
            break
        if lacking > 0 and expires_us <= at_us:
            # It was over when the last request came.
            n += 1
            continue
        if lacking > 0:
            heappush(there, (expires_us, lacking, True))
            unspent += lacking
        n = _first_after_expiry(terms, n, there[0][0])
    next_us = terms.span(last + 1).start_us
    is_kept = sorted((int(expires_us), amount) for expires_us, amount, is_skipped in there if is_skipped and expires_us > next_us)
    return SkippedPeriods(last, FILLED_EXPIRED, tuple(is_kept))


def _first_after_expiry(terms: RecurringTerms, n: int, expires_us: float) -> int:
    """Return the first period behind n that begins at an instant or later."""
    if expires_us == inf:
        return MAX_PERIODS
    return max(n + 1, terms.schedule.index_at(from_us(int(expires_us) - 1)) + 1)
