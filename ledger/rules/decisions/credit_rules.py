"""Grants, spends, revocations and overdrafts: from an account's state and a request to the next entries, or a raised refusal.

Each function returns the entries in order; the entry with the request's key is the result. Due expiries and repayments are booked
first, so that `balance` and `available` agree on every entry that a request makes.
"""

from datetime import UTC, datetime
from typing import Any

from ledger.errors import (
    BalanceLimit,
    EntryNotFound,
    HolderFrozen,
    InsufficientCredits,
    Invalid,
    LotClosed,
    LotLimit,
    NothingToVoid,
    NotRevocable,
    RevocationExceedsGrant,
)
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import UNCOUNTED_ACTORS, Counts
from ledger.rules.decisions import budget_rules, insufficient, overage_rules
from ledger.rules.decisions.settlement import Entries, repay, settle_due
from ledger.rules.entries import FROZEN, THAWED, Entry
from ledger.rules.instants import DAY_US, to_text, to_us
from ledger.rules.kinds import KINDS
from ledger.rules.lots import (
    MAX_OPEN_LOTS,
    MAX_RECEIVED_LOTS,
    POSTPAID,
    Lot,
    Lots,
    as_drawn,
    effective_from,
    put_back,
    remove,
    split,
    take,
    total,
)
from ledger.rules.purposes import Use, purpose_of
from ledger.rules.requests import (
    MAX_RECEIVED,
    ClockRequest,
    FreezeRequest,
    GrantRequest,
    OverdraftRequest,
    ReissueRequest,
    RevokeRequest,
    SpendRequest,
    VoidRequest,
    decides,
)
from ledger.values import MAX_AMOUNT

MAX_CLOCK_MOVE_US = 3_653 * DAY_US
"""How far one call moves a test clock: a daily grant that recurs has as many periods to make."""
CLOCK_END_US = to_us(datetime(2150, 1, 1, tzinfo=UTC))
"""A test clock stays before this, so that what follows it has times that can be read."""


@decides(GrantRequest)
def grant(account: AccountState, request: GrantRequest) -> Entries:
    """Put credits in as a new lot.

    Raises:
        Invalid: the lot would expire before it is effective, or has already expired.
        LotLimit: the account has too many open lots.
    """
    effective_us = account.now_us if request.effective_at is None else to_us(request.effective_at)
    expires_us = None if request.expires_at is None else to_us(request.expires_at)
    if expires_us is not None and expires_us <= effective_us:
        raise Invalid(pointer="/expires_at", rule="order", detail="must be after effective_at")
    if expires_us is not None and expires_us <= account.now_us:
        raise Invalid(pointer="/expires_at", rule="past", detail="must be in the future")
    booked, account = settle_due(account)
    lot = Lot(
        account.sequence + 1,
        request.amount,
        effective_from(effective_us, account.now_us),
        expires_us,
        request.priority,
        request.source,
        applies_to=purpose_of(request.applies_to),
    )
    lots = put_back(account.lots, [lot])
    check_room(account, lots)
    cost = request.cost
    entry = account.next_entry(
        "grant",
        request.amount,
        lots=lots,
        effective_us=effective_us,
        request=request,
        sale=request.sale,
        brought=None if cost is None else {lot.grant: cost},
    )
    return [*booked, entry, *repay(account.after(entry))]


@decides(SpendRequest)
def spend(
    account: AccountState, request: SpendRequest, *, amount: int | None = None, rating: dict[str, Any] | None = None
) -> Entries:
    """Take credits out, lot by lot in burn order, then on overage, then on the overdraft, if the account has them.

    Lots whose credits cannot pay for this rate and these labels are passed over.

    A partial spend takes what can be used, if that is less than it asks for.

    Args:
        amount: the cost of the request's rate and quantity; by default the request's amount.
        rating: rate, version and quantity, if a rate gave the amount.

    Raises:
        HolderFrozen: nothing can be spent.
        InsufficientCredits: fewer credits are available now; for a partial spend, none are.
        BudgetExceeded: a hard budget has less left; for a partial spend, nothing.
    """
    amount = request.amount if amount is None else amount
    assert amount is not None
    if account.is_frozen:
        raise HolderFrozen(holder_id=account.holder_id)
    # What pays invoices, or usage that has happened already, is for no certain thing.
    use = None if request.actor in UNCOUNTED_ACTORS else Use(request.rate, request.metadata)
    available, overdraft, requested = account.available_for(use), account.overdraft or 0, None
    on_overage = overage_rules.left_for(account, request) if amount > available - overdraft else 0
    if request.partial:
        requested, amount = amount, min(amount, available + on_overage) or amount
    check_available(account, amount, available + on_overage, use=use, overdraft=overdraft, on_overage=on_overage)
    booked, account = settle_due(account)
    counts: Counts = ()
    if account.budgets:
        if requested is not None:
            amount = budget_rules.room(account, request, amount) or amount
        counts = budget_rules.counted(account, request, amount, requested=requested)
    granted, account, postpaid = overage_rules.grant_missing(account, amount, on_overage, use)
    lots, drawn = take(account.lots, amount, account.now_us, use)
    entry = account.next_entry(
        "spend",
        -amount,
        lots=lots,
        drawn=drawn,
        request=request,
        rating=rating,
        requested=requested,
        counts=counts,
        postpaid=postpaid,
    )
    return [*booked, *granted, entry]


def check_available(
    account: AccountState,
    amount: int,
    available: int,
    *,
    use: Use | None = None,
    overdraft: int = 0,
    on_overage: int | None = None,
    until_us: int | None = None,
) -> None:
    """Return, or raise InsufficientCredits with the facts that explain it.

    Args:
        overdraft: how much of one is counted in `available`. use, on_overage, until_us: as for `insufficient.facts`.
    """
    if amount > available:
        facts = insufficient.facts(
            account, amount, available, use=use, overdraft=overdraft, on_overage=on_overage, until_us=until_us
        )
        raise InsufficientCredits(**facts)


@decides(RevokeRequest, grant="grant")
def revoke(account: AccountState, request: RevokeRequest, *, grant: Entry | None) -> Entries:
    """Take back the unspent rest of a grant, or a part of it.

    Raises:
        EntryNotFound, NotRevocable: there is no such grant.
        RevocationExceedsGrant: less of the grant, or nothing, is unspent and unexpired.
    """
    if grant is None:
        raise EntryNotFound(sequence=request.grant, credit_type=account.credit_type)
    if grant.kind not in KINDS["revoke"].refers_to:
        raise NotRevocable(sequence=grant.sequence, kind=grant.kind)
    # Due entries first: they may have used the lot to repay a debt, or given held credits back to it.
    booked, account = settle_due(account)
    lot = account.lot(grant.sequence)
    revocable = 0 if lot is None else lot.remaining
    amount = revocable if request.amount is None else request.amount
    if revocable == 0 or amount > revocable:
        raise RevocationExceedsGrant(sequence=grant.sequence, revocable=revocable, requested=request.amount)
    lots = remove(account.lots, grant.sequence, amount)
    drawn = ((grant.sequence, amount),)
    return [*booked, account.next_entry("revoke", -amount, lots=lots, drawn=drawn, refers_to=grant.sequence, request=request)]


@decides(VoidRequest)
def void(account: AccountState, request: VoidRequest) -> Entries:
    """Take back all unspent credits, lot by lot in burn order, up to the largest amount of one entry.

    Raises:
        NothingToVoid: no lot is open.
    """
    booked, account = settle_due(account)
    taken, rest = split(account.lots, MAX_AMOUNT)
    if not taken:
        raise NothingToVoid(held=account.held)
    return [*booked, account.next_entry("revoke", -total(taken), lots=rest, drawn=as_drawn(taken), request=request)]


@decides(ReissueRequest, opening="lot")
def reissue(account: AccountState, request: ReissueRequest, *, opening: Entry | None) -> Entries:
    """Close a lot, and open one with its credits and other terms, by one entry of 0.

    The new lot is one of the account's own, also where a transfer brought the credits.

    Args:
        opening: the entry that the request names, or None if it does not exist.

    Raises:
        EntryNotFound: there is no such entry.
        LotClosed: it opened no lot, or the lot has no credits left outside holds.
        Invalid: the lot would expire in the past, or before it is effective, or the terms are those that it has; or transfers
            have brought more credits into it than a lot of the account's own may have.
        LotLimit: the account has too many lots, not counting received lots.
    """
    if opening is None:
        raise EntryNotFound(sequence=request.lot, credit_type=account.credit_type)
    booked, account = settle_due(account)
    lot = account.lot(opening.sequence)
    if lot is None:
        raise LotClosed(sequence=opening.sequence)
    if lot.remaining > MAX_AMOUNT:
        raise Invalid(pointer="/lot", rule="too-large", detail=f"must be a lot of at most {MAX_AMOUNT} credits")
    renewed = lot._replace(
        grant=account.sequence + 1,
        effective_us=effective_from(lot.effective_us, account.now_us),
        expires_us=_new_expiry(account, lot, request),
        priority=lot.priority if request.priority is None else request.priority,
        received=False,
    )
    if (renewed.expires_us, renewed.priority) == (lot.expires_us, lot.priority):
        raise Invalid(pointer="/expires_at", rule="same", detail="must be other terms than the lot has")
    lots = put_back(remove(account.lots, lot.grant, lot.remaining), [renewed])
    check_room(account, lots)
    drawn = ((lot.grant, lot.remaining),)
    return [*booked, account.next_entry("reissue", 0, lots=lots, drawn=drawn, refers_to=lot.grant, request=request)]


def _new_expiry(account: AccountState, lot: Lot, request: ReissueRequest) -> int | None:
    if request.expires_at is None:
        return None if request.never_expires else lot.expires_us
    expires_us = to_us(request.expires_at)
    if expires_us <= account.now_us:
        raise Invalid(pointer="/expires_at", rule="past", detail="must be in the future")
    if expires_us <= lot.effective_us:
        raise Invalid(pointer="/expires_at", rule="order", detail="must be after the lot's effective time")
    return expires_us


@decides(FreezeRequest)
def set_frozen(account: AccountState, request: FreezeRequest, *, changes: int) -> Entries:
    """Freeze the holder or end that, by an `adjust` entry of 0; no credits move.

    Args:
        changes: how many entries of the holder, in any credit type, did so before.
    """
    booked, account = settle_due(account)
    counterpart = {"change": changes + 1, "holder": FROZEN if request.frozen else THAWED}
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, counterpart=counterpart, request=request)]


@decides(ClockRequest)
def set_clock(account: AccountState, request: ClockRequest, *, moves: int) -> Entries:
    """Move the holder's test clock, by an `adjust` entry of 0; what is due at its present time is booked before.

    Args:
        moves: how many entries of the holder, in any credit type, did so before.

    Raises:
        Invalid: the time is not after the holder's present time, or too far ahead.
    """
    clock_us = to_us(request.now)
    if clock_us <= account.now_us:
        present = to_text(account.now_us)
        raise Invalid(pointer="/now", rule="past", detail=f"must be after the holder's present time, {present}")
    if clock_us > account.now_us + MAX_CLOCK_MOVE_US or clock_us >= CLOCK_END_US:
        raise Invalid(pointer="/now", rule="too-far", detail="must be at most 10 years after the present time, and before 2150")
    booked, account = settle_due(account)
    counterpart = {"clock": to_text(clock_us), "tick": moves + 1}
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, counterpart=counterpart, request=request)]


@decides(OverdraftRequest)
def set_overdraft(account: AccountState, request: OverdraftRequest) -> Entries:
    """Set how far below 0 spends may take the balance from now on; an existing debt remains."""
    booked, account = settle_due(account)
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, overdraft=request.limit, request=request)]


def check_room(account: AccountState, lots: Lots, *, is_from_others: bool = False) -> None:
    """Return, or raise if the account would have too many lots, or too many credits from others.

    Lots that are held in full count too: they open again when their hold is released. Received lots have a room beside that of
    the account's own lots, so that others cannot use that up. Those beyond their room, which only refunds open again, count as
    own lots. Own lots need no other limit, as each is at most MAX_AMOUNT; a received lot grows, so there is one.

    Args:
        lots: the open lots that it would have.
        is_from_others: a transfer adds them: then the limit of received lots applies.

    Raises:
        LotLimit: the account would have too many lots.
        BalanceLimit: it would have too many credits from others.
    """
    held = tuple([part for hold in account.holds for part in hold.parts])
    own, received = _numbers_of_lots((*lots, *held))
    if is_from_others and received > MAX_RECEIVED_LOTS:
        raise LotLimit(open_lots=MAX_RECEIVED_LOTS, limit=MAX_RECEIVED_LOTS)
    if own + max(0, received - MAX_RECEIVED_LOTS) > MAX_OPEN_LOTS:
        own, received = _numbers_of_lots((*account.lots, *held))
        raise LotLimit(open_lots=own + max(0, received - MAX_RECEIVED_LOTS), limit=MAX_OPEN_LOTS)
    if received and total(lot for lot in (*lots, *held) if lot.received) > MAX_RECEIVED:
        raise BalanceLimit(limit=MAX_RECEIVED)


def _numbers_of_lots(lots: Lots) -> tuple[int, int]:
    """Return how many of them are the account's own, and how many are received; parts of one lot count once.

    Postpaid ones need no room: they close again at once.
    """
    received = {lot.grant for lot in lots if lot.received}
    return len({lot.grant for lot in lots if lot.source != POSTPAID}) - len(received), len(received)
