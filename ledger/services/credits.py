"""Grant, spend, refund, revoke, book expirations, set an overdraft."""

from datetime import datetime
from typing import Any, Unpack

from ledger import journal, rules
from ledger.database.locks import Lock, holder_key
from ledger.database.transactions import in_transaction
from ledger.errors import LockBusy
from ledger.rules import Entry, GrantRequest, OverdraftRequest, RefundRequest, RevokeRequest, SpendRequest
from ledger.rules.requests import check_credit_type, check_holder_id
from ledger.services.execute import Circumstances, execute_once, execute_under, plain


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
        source: "purchased" or "promotional". With equal priority and expiry, promotional lots are spent first.
        effective_at: from when the credits can be spent; now by default, may be in the past.
        expires_at: the first time at which the credits can no longer be spent; never by default.
        priority: 0 .. 32767; lots with a lower priority are spent first.

    Returns:
        The entry, amount above zero; `replayed` is True if an earlier request with the key made it.

    Raises:
        Refused: LotLimit. Other errors as for `execute_once`.
    """
    request = GrantRequest(
        holder_id=holder_id,
        amount=amount,
        idempotency_key=idempotency_key,
        source=source,
        effective_at=effective_at,
        expires_at=expires_at,
        priority=priority,
        **plain(circumstances),
    )
    return execute_once(request)


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
        Refused: InsufficientCredits if fewer credits are available now; UnknownRate, AmountLimit. Other errors as for
            `execute_once`.
    """
    request = SpendRequest(
        holder_id=holder_id,
        idempotency_key=idempotency_key,
        amount=amount,
        rate=rate,
        quantity=quantity,
        **plain(circumstances),
    )
    return execute_once(request)


def refund(
    *,
    holder_id: str,
    spend: int,
    idempotency_key: str,
    amount: int | None = None,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Give credits of a spend back to the lots that they came from, or raise and leave only the refusal on record.

    Credits of an expired lot form a new lot for settings.LEDGER["REFUND_LOT_DAYS"] days, or expire at once, as
    settings.LEDGER["REFUND_TO_EXPIRED_LOT"] says. New lots with different terms need one entry each.

    Args:
        spend: the sequence of the spend or capture.
        amount: 1 .. the unrefunded rest of the spend; the whole rest by default.

    Returns:
        The entry, amount above zero; the last entry if there are several. Its `refunded_total` covers all of them.

    Raises:
        Refused: EntryNotFound, NotRefundable, RefundExceedsSpend, LotLimit. Other errors as for `execute_once`.
    """
    request = RefundRequest(
        holder_id=holder_id, spend=spend, idempotency_key=idempotency_key, amount=amount, **plain(circumstances)
    )
    return execute_once(request)


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
        amount: 1 .. the unspent and unexpired rest of the grant; the whole rest by default.

    Returns:
        The entry, amount below zero.

    Raises:
        Refused: EntryNotFound, NotRevocable, RevocationExceedsGrant. Other errors as for `execute_once`.
    """
    request = RevokeRequest(
        holder_id=holder_id, grant=grant, idempotency_key=idempotency_key, amount=amount, **plain(circumstances)
    )
    return execute_once(request)


def set_overdraft(*, holder_id: str, limit: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Set how far below 0 spends may take the balance from now on, or raise and write nothing.

    Args:
        limit: 0 .. 2^53-1. A lower limit leaves an existing debt as it is; later grants repay it first.

    Returns:
        The `adjust` entry, amount 0, with the new `overdraft`.

    Raises: as for `execute_once`.
    """
    request = OverdraftRequest(holder_id=holder_id, limit=limit, idempotency_key=idempotency_key, **plain(circumstances))
    return execute_once(request)


def book_expirations(*, holder_id: str, credit_type: str = "credits", wait: bool = True) -> list[Entry]:
    """Book a holder's expired holds and lots; the available credits do not change.

    Args:
        wait: True waits for the holder's lock up to lock_timeout; False fails at once if another session holds it.

    Returns:
        The entries; an empty list if nothing was due.

    Raises:
        HolderBusy, LockBusy, SequenceTaken: nothing was written.
    """
    check_holder_id(holder_id)
    check_credit_type(credit_type)

    def book() -> list[Entry]:
        with journal.open(accounts=[(holder_id, credit_type)], wait=wait) as accounts:
            if not accounts.covers((holder_id, credit_type)):
                raise LockBusy(key=holder_key(holder_id))
            entries, _ = rules.settle_due(accounts.account(holder_id, credit_type).state)
            accounts.collect(entries)
            accounts.append()
            return entries

    return in_transaction(book, holders=[holder_id], holder_id=holder_id)


# Inside a transaction that the caller owns -----------------------------------------------------------


def grant_under(lock: Lock, **arguments: Any) -> Entry:
    """As `grant`, inside the caller's transaction and under `lock`, which also records a refusal before it is raised."""
    return execute_under(lock, GrantRequest(**arguments))


def spend_under(lock: Lock, **arguments: Any) -> Entry:
    """As `spend`, inside the caller's transaction and under `lock`, which also records a refusal before it is raised."""
    return execute_under(lock, SpendRequest(**arguments))


def revoke_under(lock: Lock, **arguments: Any) -> Entry:
    """As `revoke`, inside the caller's transaction and under `lock`, which also records a refusal before it is raised."""
    return execute_under(lock, RevokeRequest(**arguments))


def refund_under(lock: Lock, **arguments: Any) -> Entry:
    """As `refund`, inside the caller's transaction and under `lock`, which also records a refusal before it is raised."""
    return execute_under(lock, RefundRequest(**arguments))


def available_under(lock: Lock, *, holder_id: str, credit_type: str = "credits") -> int:
    """Return how many credits the holder can spend now: 0 or more. It stays true until the lock's transaction ends."""
    return journal.read(lock, holder_id, credit_type).state.available
