"""Use-cases: open the transaction, lock the holder, decide by the rules, append.

What takes `holder_id` owns its transaction: it returns when the entry is committed, or raises. What takes `lock` runs inside the
transaction of a caller who holds the holder's lock, such as an invoice's finalisation.

A refusal is decided inside the transaction, stored there like an entry, and raised only after COMMIT: raised inside, it would
roll its
own record back.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from django.db import Error, IntegrityError, transaction
from django.utils import timezone

from ledger import journal, rules
from ledger.errors import Invalid, OutcomeUnknown, SequenceTaken
from ledger.locks import Lock, sqlstate
from ledger.models import SCOPES, ApiKey
from ledger.rules import Entry, GrantRequest, RefundRequest, Request, RevokeRequest, SpendRequest
from ledger.rules.requests import check_credit_type, check_holder_id

TRIES = 3
UNIQUE_VIOLATION = "23505"
DOES_NOT_FOLLOW = "LG002"
DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
SESSION_ENDED = {"57P01", "57P02", "57P03"}
WORTH_ANOTHER_TRY = {UNIQUE_VIOLATION, DOES_NOT_FOLLOW, DEADLOCK, SERIALIZATION_FAILURE}

Result = TypeVar("Result")
Decide = Callable[[journal.OpenAccount], Sequence[Entry]]


# Credits ---------------------------------------------------------------------------------------------


def grant(
    *,
    holder_id: str,
    amount: int,
    idempotency_key: str,
    credit_type: str = "credits",
    source: str = "purchased",
    effective_at: datetime | None = None,
    expires_at: datetime | None = None,
    priority: int = 100,
    reason: str = "",
    reference: str = "",
    metadata: dict[str, Any] | None = None,
    actor: str = "",
    request_id: str = "",
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
        Refused: BalanceLimit, LotLimit.
        Invalid, IdempotencyKeyReused: the request is wrong; nothing was written.
        HolderBusy, SequenceTaken: nothing was written; repeat it with the same key.
        OutcomeUnknown: the connection was lost during COMMIT; repeat it with the same key.
    """
    request = GrantRequest(
        holder_id=holder_id,
        amount=amount,
        idempotency_key=idempotency_key,
        credit_type=credit_type,
        source=source,
        effective_at=effective_at,
        expires_at=expires_at,
        priority=priority,
        reason=reason,
        reference=reference,
        metadata=metadata or {},
        actor=actor,
        request_id=request_id,
    )
    return _answer(request, partial(_decide_grant, request))


def spend(
    *,
    holder_id: str,
    amount: int,
    idempotency_key: str,
    credit_type: str = "credits",
    reason: str = "",
    reference: str = "",
    metadata: dict[str, Any] | None = None,
    actor: str = "",
    request_id: str = "",
) -> Entry:
    """Take credits from a holder, or raise and leave only the refusal on record.

    Args: as `grant`.

    Returns:
        The entry, amount below zero.

    Raises:
        Refused: InsufficientCredits, when less than `amount` is available at this instant.
        Others as `grant`.
    """
    request = SpendRequest(
        holder_id=holder_id,
        amount=amount,
        idempotency_key=idempotency_key,
        credit_type=credit_type,
        reason=reason,
        reference=reference,
        metadata=metadata or {},
        actor=actor,
        request_id=request_id,
    )
    return _answer(request, partial(_decide_spend, request))


def refund(
    *,
    holder_id: str,
    spend: int,
    idempotency_key: str,
    credit_type: str = "credits",
    amount: int | None = None,
    reason: str = "",
    reference: str = "",
    metadata: dict[str, Any] | None = None,
    actor: str = "",
    request_id: str = "",
) -> Entry:
    """Give credits of a spend back to the lots that they came from, or raise and leave only the refusal on record.

    A lot that has expired meanwhile is opened again for settings.LEDGER["REFUND_LOT_DAYS"], or the credits are gone at once, as
    settings.LEDGER["REFUND_TO_EXPIRED_LOT"] says.

    Args:
        spend: the sequence of the spend.
        amount: 1 .. what is left of the spend; all that is left by default.

    Returns:
        The entry, amount above zero.

    Raises:
        Refused: EntryNotFound, NotRefundable, RefundExceedsSpend, BalanceLimit, LotLimit.
        Others as `grant`.
    """
    request = RefundRequest(
        holder_id=holder_id,
        spend=spend,
        idempotency_key=idempotency_key,
        credit_type=credit_type,
        amount=amount,
        reason=reason,
        reference=reference,
        metadata=metadata or {},
        actor=actor,
        request_id=request_id,
    )
    return _answer(request, partial(_decide_refund, request))


def revoke(
    *,
    holder_id: str,
    grant: int,
    idempotency_key: str,
    credit_type: str = "credits",
    amount: int | None = None,
    reason: str = "",
    reference: str = "",
    metadata: dict[str, Any] | None = None,
    actor: str = "",
    request_id: str = "",
) -> Entry:
    """Take back the unspent rest of a grant, or raise and leave only the refusal on record.

    Args:
        grant: the sequence of the grant.
        amount: 1 .. what is unspent and unexpired of it; all of that by default.

    Returns:
        The entry, amount below zero.

    Raises:
        Refused: EntryNotFound, NotRevocable, RevocationExceedsGrant.
        Others as `grant`.
    """
    request = RevokeRequest(
        holder_id=holder_id,
        grant=grant,
        idempotency_key=idempotency_key,
        credit_type=credit_type,
        amount=amount,
        reason=reason,
        reference=reference,
        metadata=metadata or {},
        actor=actor,
        request_id=request_id,
    )
    return _answer(request, partial(_decide_revoke, request))


def book_expirations(*, holder_id: str, credit_type: str = "credits") -> list[Entry]:
    """Take expired lots out of the balance, one `expire` entry each; what can be spent does not change by it.

    Returns:
        The entries, soonest expiry first; an empty list when there was nothing to book.

    Raises:
        HolderBusy, SequenceTaken: nothing was written.
    """
    check_holder_id(holder_id)
    check_credit_type(credit_type)

    def book() -> list[Entry]:
        with journal.enter(holder_id, credit_type) as account:
            entries = rules.expirations(account.state)
            journal.append(account.lock, entries)
        return entries

    return in_transaction(book, holder_id=holder_id)


# Inside a transaction that the caller owns -----------------------------------------------------------


def grant_under(lock: Lock, **arguments: Any) -> Entry:
    """As `grant`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    request = GrantRequest(**arguments)
    return _answer_under(lock, request, partial(_decide_grant, request))


def spend_under(lock: Lock, **arguments: Any) -> Entry:
    """As `spend`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    request = SpendRequest(**arguments)
    return _answer_under(lock, request, partial(_decide_spend, request))


def refund_under(lock: Lock, **arguments: Any) -> Entry:
    """As `refund`, inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    request = RefundRequest(**arguments)
    return _answer_under(lock, request, partial(_decide_refund, request))


def available_under(lock: Lock, *, holder_id: str, credit_type: str = "credits") -> int:
    """What the holder can spend now: 0 or more, and true until the lock's transaction ends."""
    return journal.read(lock, holder_id, credit_type).state.available


# How a request is answered ---------------------------------------------------------------------------


def _decide_grant(request: GrantRequest, account: journal.OpenAccount) -> Sequence[Entry]:
    return rules.grant(account.state, request)


def _decide_spend(request: SpendRequest, account: journal.OpenAccount) -> Sequence[Entry]:
    return rules.spend(account.state, request)


def _decide_refund(request: RefundRequest, account: journal.OpenAccount) -> Sequence[Entry]:
    spend = journal.entry(account, request.spend)
    is_spend = spend is not None and spend.kind == "spend"
    return rules.refund(
        account.state,
        request,
        spend=spend,
        refunded=journal.refunded(account, request.spend) if is_spend else 0,
        terms=journal.opening_lots(account, [grant for grant, _ in spend.drawn]) if spend is not None and is_spend else {},
        expired_lot_policy=settings.LEDGER["REFUND_TO_EXPIRED_LOT"],
        new_lot_days=settings.LEDGER["REFUND_LOT_DAYS"],
    )


def _decide_revoke(request: RevokeRequest, account: journal.OpenAccount) -> Sequence[Entry]:
    return rules.revoke(account.state, request, grant=journal.entry(account, request.grant))


def _answer(request: Request, decide: Decide) -> Entry:
    def once() -> journal.Recorded:
        with journal.enter(request.holder_id, request.credit_type, request.idempotency_key) as account:
            return journal.answer(account, request, decide)

    return in_transaction(once, holder_id=request.holder_id).unwrap()


def _answer_under(lock: Lock, request: Request, decide: Decide) -> Entry:
    account = journal.read(lock, request.holder_id, request.credit_type, request.idempotency_key)
    return journal.answer(account, request, decide).unwrap()


def in_transaction(once: Callable[[], Result], *, holder_id: str) -> Result:
    """Run `once` in an outermost transaction of its own and commit; up to three times when others wrote in between.

    Raises:
        SequenceTaken: three times somebody without the lock took the number, or the server chose this transaction as a victim.
        OutcomeUnknown: the connection was lost during COMMIT.
    """
    for _ in range(TRIES):
        committing = False
        try:
            with transaction.atomic(durable=True):
                result = once()
                committing = True
            return result
        except Error as error:
            if committing and is_connection_lost(error):
                raise OutcomeUnknown(holder_id=holder_id) from error
            if sqlstate(error) not in WORTH_ANOTHER_TRY:
                raise
            last_error = error
    raise SequenceTaken(holder_id=holder_id) from last_error


def is_connection_lost(error: Error) -> bool:
    """Whether the session is gone: no SQLSTATE came back, or one that ends the session."""
    state = sqlstate(error)
    return state is None or state.startswith("08") or state in SESSION_ENDED


# API keys --------------------------------------------------------------------------------------------


def create_api_key(
    *, name: str, scopes: Sequence[str], holder_id: str | None = None, key: str | None = None, actor: str = ""
) -> tuple[ApiKey, str]:
    """Make a key, or raise and write nothing.

    Args:
        name: unique; entries made with the key bear the actor `key:<name>`.
        scopes: some of SCOPES.
        holder_id: the one holder that it is confined to; none for all.
        key: the key itself, 20 characters or more; random by default.

    Returns:
        The stored key, and its text, which can never be read again.

    Raises:
        Invalid: a scope is unknown, the holder's id is not one, the name is taken or too long, or the given key is too short.
    """
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise Invalid(pointer="/scopes", rule="choice", detail=f"must be some of {', '.join(SCOPES)}")
    if holder_id is not None:
        check_holder_id(holder_id)
    if not 1 <= len(name) <= 100:
        raise Invalid(pointer="/name", rule="length", detail="must have 1 to 100 characters")
    text = secrets.token_urlsafe(32) if key is None else key
    if len(text) < 20:
        raise Invalid(pointer="/key", rule="min_length", detail="must have at least 20 characters")
    try:
        with transaction.atomic():
            stored = ApiKey.objects.create(
                name=name,
                prefix=text[:8],
                key_digest=_key_digest(text),
                scopes=list(scopes),
                holder_id=holder_id,
                created_by=actor,
            )
    except IntegrityError as error:
        raise Invalid(pointer="/name", rule="unique", detail="a key of this name, or this key, exists already") from error
    return stored, text


def find_api_key(text: str) -> ApiKey | None:
    """The key of that text, unless it was revoked."""
    return ApiKey.objects.filter(key_digest=_key_digest(text), revoked_at=None).first()


def revoke_api_key(key: ApiKey) -> None:
    """Make the key worthless from now on; harmless when it is already."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())


def _key_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
