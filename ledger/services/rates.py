"""Rates: named, versioned prices of things in credits. An entry keeps the version that gave its amount."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from ledger.database.lock_names import RATE, RATE_KEY
from ledger.database.locks import advisory_lock
from ledger.database.transactions import in_transaction
from ledger.errors import AmountLimit, IdempotencyKeyReused, UnknownRate
from ledger.models import Rate
from ledger.rules import MAX_AMOUNT, PricedRequest
from ledger.rules.requests import (
    IDEMPOTENCY_KEY,
    MAX_REASON_CHARACTERS,
    RATE_CODE,
    RATE_CODE_RULE,
    check_amount,
    check_credit_type,
    check_pattern,
    check_text,
    encode_json,
)


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """A version of a rate; `replayed` is True if an earlier request with the key published it."""

    rate: Rate
    replayed: bool = False


def publish_rate(
    *,
    code: str,
    price: int,
    per: int,
    credit_type: str = "credits",
    reason: str = "",
    actor: str = "",
    idempotency_key: str | None = None,
    dry_run: bool = False,
) -> PublishedRate:
    """Publish the next version of a rate, which counts from now on, or raise and write nothing.

    Args:
        code: 1 to 64 characters of a-z 0-9 . _ : -.
        price: 1 .. 2^53-1 credits for `per` units: 3 credits per 1,000 tokens.
        per: 1 .. 2^53-1.
        reason: why the price changes, at most 500 characters.
        idempotency_key: the request takes effect at most once per key, over all rates; without a key each call makes a version.
        dry_run: return the version that would be published, and write nothing.

    Raises:
        Invalid: a value is invalid.
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy, SequenceTaken, OutcomeUnknown: as for `transactions.in_transaction`; repeat the request with the same key.
    """
    check_pattern("/code", code, RATE_CODE, RATE_CODE_RULE)
    check_amount("/price", price)
    check_amount("/per", per)
    check_credit_type(credit_type)
    check_text("/reason", reason, MAX_REASON_CHARACTERS)
    if idempotency_key is not None:
        check_pattern("/idempotency_key", idempotency_key, IDEMPOTENCY_KEY, "1 to 255 printable ASCII characters")
    digest = hashlib.sha256(encode_json([code, credit_type, price, per, reason]).encode()).digest()[:16]

    def once() -> PublishedRate:
        names = [RATE(credit_type, code)] + ([] if idempotency_key is None else [RATE_KEY(idempotency_key)])
        with advisory_lock(*names):
            known = None if idempotency_key is None else Rate.objects.filter(idempotency_key=idempotency_key).first()
            if known is not None:
                return _replayed(known, digest)
            last = current_rate(code, credit_type)
            rate = Rate(
                code=code,
                credit_type=credit_type,
                version=1 if last is None else last.version + 1,
                price=price,
                per=per,
                published_at=timezone.now(),
                published_by=actor,
                published_because=reason,
                idempotency_key=idempotency_key,
                request_digest=None if idempotency_key is None else digest,
            )
            if not dry_run:
                rate.save(force_insert=True)
            return PublishedRate(rate)

    return in_transaction(once, rate=code)


def _replayed(known: Rate, digest: bytes) -> PublishedRate:
    if known.request_digest is None or bytes(known.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key)
    return PublishedRate(known, replayed=True)


def current_rate(code: str, credit_type: str = "credits") -> Rate | None:
    """Return the newest version of the rate."""
    return Rate.objects.filter(credit_type=credit_type, code=code).order_by("-version").first()


def quote(*, rate: str, quantity: int, credit_type: str = "credits") -> tuple[int, dict[str, Any]]:
    """Return what a quantity costs now, rounded up to whole credits, and the rating that an entry would keep. Writes nothing.

    Raises:
        UnknownRate: the rate does not exist.
        AmountLimit: the cost is more than 2^53-1.
    """
    found = current_rate(rate, credit_type)
    if found is None:
        raise UnknownRate(rate=rate, credit_type=credit_type)
    amount = -(-quantity * found.price // found.per)
    if amount > MAX_AMOUNT:
        raise AmountLimit(rate=rate, quantity=quantity, limit=MAX_AMOUNT)
    return amount, {"rate": rate, "version": found.version, "quantity": quantity}


def priced(request: PricedRequest) -> tuple[int, dict[str, Any] | None]:
    """Return the amount of a request, and the rating if a rate gives the amount.

    Raises: as for `quote`.
    """
    if request.amount is not None:
        return request.amount, None
    assert request.rate is not None
    assert request.quantity is not None
    return quote(rate=request.rate, quantity=request.quantity, credit_type=request.credit_type)
