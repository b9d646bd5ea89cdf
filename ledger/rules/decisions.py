"""Decisions: from an account's state and a request to the next entries, or a refusal that is raised.

Each function returns the entries in order; the one that bears the request's key is the answer. Lots that have expired are
booked first,
by the same writer, so that `balance` and `available` agree on every entry that somebody asked for.
"""

from collections.abc import Mapping
from typing import Literal

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
from ledger.rules.accounts import Account
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, to_us
from ledger.rules.lots import MAX_OPEN_LOTS, Drawn, Lot, Lots, put_back, remove, take
from ledger.rules.requests import MAX_BALANCE, GrantRequest, RefundRequest, RevokeRequest, SpendRequest

ExpiredLotPolicy = Literal["new-lot", "gone"]

Entries = list[Entry]


def expirations(account: Account) -> Entries:
    """One `expire` entry for each lot whose instant has come, soonest first; none when there is nothing to book."""
    entries: Entries = []
    expired = sorted((lot for lot in account.lots if lot.is_expired(account.now_us)), key=lambda lot: (lot.expires_us, lot.grant))
    for lot in expired:
        entry = account.next_entry(
            "expire",
            -lot.remaining,
            lots=remove(account.lots, lot.grant, lot.remaining),
            drawn=((lot.grant, lot.remaining),),
            closes=lot.grant,
            effective_us=lot.expires_us,
            reason="expired",
        )
        entries.append(entry)
        account = account.after(entry)
    return entries


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
    booked = expirations(account)
    account = account.after_all(booked)
    lot = Lot(account.sequence + 1, request.amount, effective_us, expires_us, request.priority, request.source)
    lots = put_back(account.lots, [lot])
    _check_room(account, lots, request.amount)
    return [*booked, account.next_entry("grant", request.amount, lots=lots, effective_us=effective_us, request=request)]


def spend(account: Account, request: SpendRequest) -> Entries:
    """Take credits out, lot by lot in burn order.

    Raises:
        InsufficientCredits: less is available at this instant.
    """
    available = account.available
    if request.amount > available:
        raise InsufficientCredits(
            available=available, balance=account.balance, requested=request.amount, shortfall=request.amount - available
        )
    booked = expirations(account)
    account = account.after_all(booked)
    lots, drawn = take(account.lots, request.amount, account.now_us)
    return [*booked, account.next_entry("spend", -request.amount, lots=lots, drawn=drawn, request=request)]


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
    """Give credits of a spend back to the lots that they came from, the last drawn first.

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
    if spend.kind != "spend":
        raise NotRefundable(sequence=spend.sequence, kind=spend.kind)
    refundable = -spend.amount - refunded
    amount = refundable if request.amount is None else request.amount
    if refundable == 0 or amount > refundable:
        raise RefundExceedsSpend(sequence=spend.sequence, refundable=refundable, requested=request.amount)
    booked = expirations(account)
    account = account.after_all(booked)
    given_back = last_drawn_first(spend.drawn, skip=refunded, amount=amount)
    reopened_until_us = account.now_us + new_lot_days * DAY_US if expired_lot_policy == "new-lot" else None
    lots = put_back(account.lots, _returned(account, given_back, terms, reopened_until_us))
    _check_room(account, lots, amount)
    entry = account.next_entry(
        "refund", amount, lots=lots, drawn=given_back, closes=spend.sequence, settled=refunded + amount, request=request
    )
    return [*booked, entry, *expirations(account.after(entry))]


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


def _returned(account: Account, given_back: Drawn, terms: Mapping[int, Lot], reopened_until_us: int | None) -> list[Lot]:
    returned = []
    for grant, part in given_back:
        lot = account.lot(grant) or terms[grant]
        if lot.is_expired(account.now_us) and reopened_until_us is not None:
            lot = lot._replace(expires_us=reopened_until_us)
        returned.append(lot._replace(remaining=part))
    return returned


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
    lot = account.lot(grant.sequence)
    revocable = 0 if lot is None or lot.is_expired(account.now_us) else lot.remaining
    amount = revocable if request.amount is None else request.amount
    if revocable == 0 or amount > revocable:
        raise RevocationExceedsGrant(sequence=grant.sequence, revocable=revocable, requested=request.amount)
    booked = expirations(account)
    account = account.after_all(booked)
    lots = remove(account.lots, grant.sequence, amount)
    drawn = ((grant.sequence, amount),)
    return [*booked, account.next_entry("revoke", -amount, lots=lots, drawn=drawn, closes=grant.sequence, request=request)]


def _check_room(account: Account, lots: Lots, amount: int) -> None:
    if account.balance + account.held + amount > MAX_BALANCE:
        raise BalanceLimit(balance=account.balance, requested=amount, limit=MAX_BALANCE)
    if len(lots) > MAX_OPEN_LOTS:
        raise LotLimit(open_lots=len(account.lots), limit=MAX_OPEN_LOTS)
