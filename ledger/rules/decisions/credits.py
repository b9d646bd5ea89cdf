"""Grants, spends, revocations and overdrafts: from an account's state and a request to the next entries, or a raised refusal.

Each function returns the entries in order; the entry with the request's key is the result. Due expiries and repayments are booked
first, so that `balance` and `available` agree on every entry that a request makes.
"""

from typing import Any

from ledger.errors import (
    BalanceLimit,
    EntryNotFound,
    InsufficientCredits,
    Invalid,
    LotLimit,
    NotRevocable,
    RevocationExceedsGrant,
)
from ledger.rules.accounts import Account
from ledger.rules.decisions import insufficient
from ledger.rules.decisions.settlement import Entries, repay, settle_due
from ledger.rules.entries import Entry
from ledger.rules.instants import to_us
from ledger.rules.lots import (
    MAX_OPEN_LOTS,
    MAX_RECEIVED_LOTS,
    Lot,
    Lots,
    effective_from,
    put_back,
    remove,
    take,
    total,
)
from ledger.rules.requests import MAX_RECEIVED, GrantRequest, OverdraftRequest, RevokeRequest, SpendRequest


def grant(account: Account, request: GrantRequest) -> Entries:
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
    )
    lots = put_back(account.lots, [lot])
    check_room(account, lots)
    entry = account.next_entry("grant", request.amount, lots=lots, effective_us=effective_us, request=request)
    return [*booked, entry, *repay(account.after(entry))]


def spend(account: Account, request: SpendRequest, *, amount: int | None = None, rating: dict[str, Any] | None = None) -> Entries:
    """Take credits out, lot by lot in burn order, then on the overdraft if the account has one.

    Args:
        amount: the cost of the request's rate and quantity; by default the request's amount.
        rating: rate, version and quantity, if a rate gave the amount.

    Raises:
        InsufficientCredits: fewer credits are available now.
    """
    amount = request.amount if amount is None else amount
    assert amount is not None
    check_available(account, amount, account.available, overdraft=account.overdraft or 0)
    booked, account = settle_due(account)
    lots, drawn = take(account.lots, amount, account.now_us)
    return [*booked, account.next_entry("spend", -amount, lots=lots, drawn=drawn, request=request, rating=rating)]


def check_available(account: Account, amount: int, available: int, *, overdraft: int = 0, until_us: int | None = None) -> None:
    """Return, or raise InsufficientCredits with the facts that explain it.

    Args:
        overdraft: how much of one is counted in `available`. until_us: as for `insufficient.facts`.
    """
    if amount > available:
        raise InsufficientCredits(**insufficient.facts(account, amount, available, overdraft=overdraft, until_us=until_us))


def revoke(account: Account, request: RevokeRequest, *, grant: Entry | None) -> Entries:
    """Take back the unspent rest of a grant, or a part of it.

    Raises:
        EntryNotFound, NotRevocable: there is no such grant.
        RevocationExceedsGrant: less of the grant, or nothing, is unspent and unexpired.
    """
    if grant is None:
        raise EntryNotFound(sequence=request.grant, credit_type=account.credit_type)
    if grant.kind != "grant":
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


def set_overdraft(account: Account, request: OverdraftRequest) -> Entries:
    """Set how far below 0 spends may take the balance from now on; an existing debt remains."""
    booked, account = settle_due(account)
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, overdraft=request.limit, request=request)]


def check_room(account: Account, lots: Lots, *, is_from_others: bool = False) -> None:
    """Return, or raise if the account would have too many lots, or too many credits from others.

    Lots that are held in full count too: they open again when their hold is released. Received lots have a room beside that of
    the account's own lots, so that others cannot use that up. Those beyond their room, which only refunds open again, count as
    own lots. Own lots need no other limit, as each is at most MAX_AMOUNT; a received lot grows, so there is one.

    Args:
        lots: the open lots that it would have.
        is_from_others: a transfer puts them in: then the room for received lots is the limit.

    Raises:
        LotLimit, BalanceLimit: as said.
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
    """Return how many of them are the account's own, and how many are received; parts of one lot count once."""
    received = {lot.grant for lot in lots if lot.received}
    return len({lot.grant for lot in lots}) - len(received), len(received)
