"""Decisions: from an account's state and a request to the next entries, or a refusal that is raised.

Each function returns the entries in order; the one that bears the request's key is the answer. What has come
due is booked first, by the same writer, so that `balance` and `available` agree on every entry that somebody asked for.
"""

from collections.abc import Mapping
from typing import Any, Literal

from ledger.errors import (
    BalanceLimit,
    EntryNotFound,
    InsufficientCredits,
    Invalid,
    LotLimit,
    NotRefundable,
    NotRevocable,
    RefundExceedsSpend,
    RevocationExceedsGrant,
)
from ledger.rules import shortfalls
from ledger.rules.accounts import Account
from ledger.rules.dues import Entries, dues, repayment
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, to_us
from ledger.rules.lots import (
    MAX_OPEN_LOTS,
    SINCE_ITS_GRANT,
    Drawn,
    Lot,
    Lots,
    as_drawn,
    effective_from,
    put_back,
    remove,
    take,
)
from ledger.rules.requests import MAX_BALANCE, GrantRequest, OverdraftRequest, RefundRequest, RevokeRequest, SpendRequest

ExpiredLotPolicy = Literal["new-lot", "gone"]

ON_OVERDRAFT = 0
"""Stands in place of a grant for what a spend took on the overdraft."""


def grant(account: Account, request: GrantRequest) -> Entries:
    """Put credits in as a new lot.

    Raises:
        Invalid: the lot would have expired before it is effective, or already now.
        BalanceLimit, LotLimit: the account cannot take it.
    """
    effective_us = account.now_us if request.effective_at is None else to_us(request.effective_at)
    expires_us = None if request.expires_at is None else to_us(request.expires_at)
    if expires_us is not None and expires_us <= effective_us:
        raise Invalid(pointer="/expires_at", rule="order", detail="must be after effective_at")
    if expires_us is not None and expires_us <= account.now_us:
        raise Invalid(pointer="/expires_at", rule="past", detail="must be in the future")
    booked = dues(account)
    account = account.after_all(booked)
    lot = Lot(
        account.sequence + 1,
        request.amount,
        effective_from(effective_us, account.now_us),
        expires_us,
        request.priority,
        request.source,
    )
    lots = put_back(account.lots, [lot])
    check_room(account, lots, request.amount)
    entry = account.next_entry("grant", request.amount, lots=lots, effective_us=effective_us, request=request)
    return [*booked, entry, *repayment(account.after(entry))]


def spend(account: Account, request: SpendRequest, *, amount: int | None = None, rating: dict[str, Any] | None = None) -> Entries:
    """Take credits out, lot by lot in burn order, then on the overdraft where there is one.

    Args:
        amount: what the request's rate and quantity come to; the request's own amount by default.
        rating: rate, version and quantity, when the amount came from a rate card.

    Raises:
        InsufficientCredits: less is available at this instant.
    """
    amount = request.amount if amount is None else amount
    assert amount is not None
    check_available(account, amount, account.available, overdraft=account.overdraft or 0)
    booked = dues(account)
    account = account.after_all(booked)
    lots, drawn = take(account.lots, amount, account.now_us)
    return [*booked, account.next_entry("spend", -amount, lots=lots, drawn=drawn, request=request, rating=rating)]


def check_available(account: Account, amount: int, available: int, *, overdraft: int = 0, until_us: int | None = None) -> None:
    """Pass, or raise InsufficientCredits with what made it so.

    Args:
        overdraft: how much of one is counted in `available`. until_us: as `shortfalls.facts`.
    """
    if amount > available:
        raise InsufficientCredits(**shortfalls.facts(account, amount, available, overdraft=overdraft, until_us=until_us))


def refund(
    account: Account,
    request: RefundRequest,
    *,
    spend: Entry | None,
    refunded: int,
    terms: Mapping[int, Lot],
    expired_lot_policy: ExpiredLotPolicy,
    new_lot_days: int,
) -> Entries:
    """Give credits of a spend or capture back to the lots that they came from, the last drawn first.

    What was spent on the overdraft lowers what is owed; beyond that it becomes a lot of its own.

    Args:
        spend: the entry that the request names, if there is one.
        refunded: how much of it was given back before, 0 or more.
        terms: for each lot that the spend drew from, the lot as its grant made it.
        expired_lot_policy: what becomes of credits whose lot has expired meanwhile: "new-lot" opens it again for `new_lot_days`
            from now, "gone" gives them back and lets them expire at once.

    Raises:
        EntryNotFound, NotRefundable: there is no such spend.
        RefundExceedsSpend: less of it is left, or nothing.
        BalanceLimit, LotLimit: the account cannot take it.
    """
    if spend is None:
        raise EntryNotFound(sequence=request.spend, credit_type=account.credit_type)
    if spend.kind not in ("spend", "capture"):
        raise NotRefundable(sequence=spend.sequence, kind=spend.kind)
    refundable = spend.taken - refunded
    amount = refundable if request.amount is None else request.amount
    if refundable == 0 or amount > refundable:
        raise RefundExceedsSpend(sequence=spend.sequence, refundable=refundable, requested=request.amount)
    booked = dues(account)
    account = account.after_all(booked)
    on_overdraft = spend.taken - sum(part for _, part in spend.drawn)
    parts = last_drawn_first((*spend.drawn, (ON_OVERDRAFT, on_overdraft)), skip=refunded, amount=amount)
    reopened_until_us = account.now_us + new_lot_days * DAY_US if expired_lot_policy == "new-lot" else None
    returned = _returned(account, parts, terms, reopened_until_us)
    lots = put_back(account.lots, returned)
    check_room(account, lots, amount)
    entry = account.next_entry(
        "refund",
        amount,
        lots=lots,
        drawn=as_drawn(returned),
        refers_to=spend.sequence,
        refunded_total=refunded + amount,
        request=request,
    )
    return [*booked, entry, *dues(account.after(entry))]


def last_drawn_first(drawn: Drawn, *, skip: int, amount: int) -> Drawn:
    """Which lots get `amount` back, after `skip` has been given back before: the reverse of the order of the taking."""
    parts: list[tuple[int, int]] = []
    for grant, taken in reversed(drawn):
        skipped = min(skip, taken)
        skip -= skipped
        part = min(amount, taken - skipped)
        amount -= part
        if part:
            parts.append((grant, part))
    return tuple(parts)


def _returned(account: Account, parts: Drawn, terms: Mapping[int, Lot], reopened_until_us: int | None) -> Lots:
    returned = []
    for grant, part in parts:
        if grant == ON_OVERDRAFT:
            beyond_the_debt = part - min(part, account.owed)
            if beyond_the_debt:
                returned.append(Lot(account.sequence + 1, beyond_the_debt, SINCE_ITS_GRANT))
            continue
        lot = account.lot(grant) or terms[grant]
        if lot.is_expired(account.now_us) and reopened_until_us is not None:
            lot = lot._replace(expires_us=reopened_until_us)
        returned.append(lot._replace(remaining=part))
    return tuple(returned)


def revoke(account: Account, request: RevokeRequest, *, grant: Entry | None) -> Entries:
    """Take back the unspent rest of a grant, or a part of it.

    Raises:
        EntryNotFound, NotRevocable: there is no such grant.
        RevocationExceedsGrant: less of it is unspent and unexpired, or nothing.
    """
    if grant is None:
        raise EntryNotFound(sequence=request.grant, credit_type=account.credit_type)
    if grant.kind != "grant":
        raise NotRevocable(sequence=grant.sequence, kind=grant.kind)
    # What has come due is looked at first: it may have used the lot to repay a debt, or given back what was held of it.
    booked = dues(account)
    account = account.after_all(booked)
    lot = account.lot(grant.sequence)
    revocable = 0 if lot is None else lot.remaining
    amount = revocable if request.amount is None else request.amount
    if revocable == 0 or amount > revocable:
        raise RevocationExceedsGrant(sequence=grant.sequence, revocable=revocable, requested=request.amount)
    lots = remove(account.lots, grant.sequence, amount)
    drawn = ((grant.sequence, amount),)
    return [*booked, account.next_entry("revoke", -amount, lots=lots, drawn=drawn, refers_to=grant.sequence, request=request)]


def set_overdraft(account: Account, request: OverdraftRequest) -> Entries:
    """Agree how far below 0 spends may take the balance from now on; what is owed already stays owed."""
    booked = dues(account)
    account = account.after_all(booked)
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, overdraft=request.limit, request=request)]


def check_room(account: Account, lots: Lots, amount: int) -> None:
    """Pass, or raise BalanceLimit or LotLimit: the account cannot take `amount` more, or not in so many lots.

    Lots that are held in whole count too: they are open again when their hold is released.
    """
    if account.balance + account.held + amount > MAX_BALANCE:
        raise BalanceLimit(balance=account.balance, requested=amount, limit=MAX_BALANCE)
    held = {part.grant for hold in account.holds for part in hold.parts}
    if len(lots) > MAX_OPEN_LOTS or (held and len(held.union(lot.grant for lot in lots)) > MAX_OPEN_LOTS):
        raise LotLimit(open_lots=len(held.union(lot.grant for lot in account.lots)), limit=MAX_OPEN_LOTS)
