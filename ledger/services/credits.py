"""Grant, spend, refund, revoke, book what has come due, agree an overdraft."""

from datetime import datetime
from typing import Any, Unpack

from ledger import journal, rules
from ledger.database.locks import Lock, holder_key, try_advisory_lock
from ledger.database.transactions import in_transaction
from ledger.rules import Entry, GrantRequest, OverdraftRequest, RefundRequest, RevokeRequest, SpendRequest
from ledger.rules.requests import check_credit_type, check_holder_id
from ledger.services.answering import Circumstances, answer, answer_under, given


def grant(
    *,
    holder_id: str,
    amount: int,
    idempotency_key: str,
    source: str = "purchased",
    effective_at: datetime | None = None,
    expires_at: datetime | None = None,
    priority: int = 100,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Give credits to a holder as a new lot, or raise and leave only the refusal on record.

    Args:
        holder_id: an opaque external id, 1 to 64 characters.
        amount: 1 .. 2^53-1, in the smallest unit of the credit type.
        idempotency_key: the request takes effect at most once per holder and key.
        source: "purchased" or "promotional"; promotional lots are used first among equals.
        effective_at: from when on it can be spent; now by default, may lie in the past.
        expires_at: the first instant at which it can no longer be spent; never by default.
        priority: 0 .. 32767; lower is used first.

    Returns:
        The entry, amount above zero; `replayed` when it was made by an earlier request with the key.

    Raises:
        Refused: LotLimit. Others as `answering.answer`.
    """
    request = GrantRequest(
        holder_id=holder_id,
        amount=amount,
        idempotency_key=idempotency_key,
        source=source,
        effective_at=effective_at,
        expires_at=expires_at,
        priority=priority,
        **given(circumstances),
    )
    return answer(request)


def spend(
    *,
    holder_id: str,
    idempotency_key: str,
    amount: int | None = None,
    rate: str | None = None,
    quantity: int | None = None,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Take credits from a holder, or raise and leave only the refusal on record.

    Args:
        amount: 1 .. 2^53-1; or instead of it
        rate, quantity: the name of a rate, and how much of it was used.

    Returns:
        The entry, amount below zero; with rate, version and quantity in `rating`.

    Raises:
        Refused: InsufficientCredits, when less than that is available at this instant; UnknownRate, AmountLimit. Others as
            `answering.answer`.
    """
    request = SpendRequest(
        holder_id=holder_id,
        idempotency_key=idempotency_key,
        amount=amount,
        rate=rate,
        quantity=quantity,
        **given(circumstances),
    )
    return answer(request)


def refund(
    *,
    holder_id: str,
    spend: int,
    idempotency_key: str,
    amount: int | None = None,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Give credits of a spend back to the lots that they came from, or raise and leave only the refusal on record.

    Credits whose lot has expired form a lot of their own for settings.LEDGER["REFUND_LOT_DAYS"], or are gone at once, as
    settings.LEDGER["REFUND_TO_EXPIRED_LOT"] says. Lots with different terms are opened by an entry each.

    Args:
        spend: the sequence of the spend or capture.
        amount: 1 .. what is left of it; all that is left by default.

    Returns:
        The entry, amount above zero; the last one, where there are several. Its `refunded_total` covers all of them.

    Raises:
        Refused: EntryNotFound, NotRefundable, RefundExceedsSpend, LotLimit. Others as `answering.answer`.
    """
    request = RefundRequest(
        holder_id=holder_id, spend=spend, idempotency_key=idempotency_key, amount=amount, **given(circumstances)
    )
    return answer(request)


def revoke(
    *,
    holder_id: str,
    grant: int,
    idempotency_key: str,
    amount: int | None = None,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Take back the unspent rest of a grant, or raise and leave only the refusal on record.

    Args:
        grant: the sequence of the grant.
        amount: 1 .. what is unspent and unexpired of it; all of that by default.

    Returns:
        The entry, amount below zero.

    Raises:
        Refused: EntryNotFound, NotRevocable, RevocationExceedsGrant. Others as `answering.answer`.
    """
    request = RevokeRequest(
        holder_id=holder_id, grant=grant, idempotency_key=idempotency_key, amount=amount, **given(circumstances)
    )
    return answer(request)


def set_overdraft(*, holder_id: str, limit: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Agree how far below 0 spends may take the balance from now on, or raise and write nothing.

    Args:
        limit: 0 .. 2^53-1. What is owed already stays owed when it is lowered; later grants repay first.

    Returns:
        The `adjust` entry, amount 0, with `overdraft` as it is now.

    Raises: as `answering.answer`.
    """
    return answer(OverdraftRequest(holder_id=holder_id, limit=limit, idempotency_key=idempotency_key, **given(circumstances)))


def book_expirations(*, holder_id: str, credit_type: str = "credits", wait: bool = True) -> list[Entry]:
    """Book what the clock has brought about: expired holds and lots; what can be spent does not change by it.

    Args:
        wait: for the holder's lock, as long as lock_timeout says; else give up at once where somebody else has it.

    Returns:
        The entries; an empty list when there was nothing to book.

    Raises:
        HolderBusy, LockBusy, SequenceTaken: nothing was written.
    """
    check_holder_id(holder_id)
    check_credit_type(credit_type)

    def book() -> list[Entry]:
        if wait:
            with journal.enter(holder_id, credit_type) as account:
                return _book_dues(account)
        with try_advisory_lock(holder_key(holder_id)) as lock:
            return _book_dues(journal.read(lock, holder_id, credit_type))

    return in_transaction(book, holder_id=holder_id)


def _book_dues(account: journal.OpenAccount) -> list[Entry]:
    entries = rules.settle_due(account.state)
    journal.append(account.lock, entries)
    return entries


# Inside a transaction that the caller owns -----------------------------------------------------------


def grant_under(lock: Lock, **arguments: Any) -> Entry:
    """As `grant`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    return answer_under(lock, GrantRequest(**arguments))


def spend_under(lock: Lock, **arguments: Any) -> Entry:
    """As `spend`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    return answer_under(lock, SpendRequest(**arguments))


def revoke_under(lock: Lock, **arguments: Any) -> Entry:
    """As `revoke`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    return answer_under(lock, RevokeRequest(**arguments))


def refund_under(lock: Lock, **arguments: Any) -> Entry:
    """As `refund`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    return answer_under(lock, RefundRequest(**arguments))


def available_under(lock: Lock, *, holder_id: str, credit_type: str = "credits") -> int:
    """What the holder can spend now: 0 or more, and true until the lock's transaction ends."""
    return journal.read(lock, holder_id, credit_type).state.available
