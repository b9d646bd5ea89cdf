"""Rates: named prices in credits, with versions. An entry keeps the version that gave its amount."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from ledger.database.lock_names import RATE, RATE_KEY
from ledger.database.locks import advisory_lock
from ledger.database.transactions import in_transaction
from ledger.errors import AmountLimit, IdempotencyKeyReused, UnknownRate
from ledger.models import Rate
from ledger.records import UseCase
from ledger.rules import MAX_AMOUNT, PricedRequest, QuoteRequest, RateRequest
from ledger.values import encode_json

Quote = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """A version of a rate; `replayed` is True if an earlier request with the key published it."""

    rate: Rate
    replayed: bool = False


def _publish(request: RateRequest) -> PublishedRate:
    """Publish the next version of a rate, which is effective from now on, or raise and write nothing.

    Raises:
        Invalid: a value is invalid.
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy, SequenceTaken, OutcomeUnknown: as for `transactions.in_transaction`; repeat the request with the same key.
    """
    code, credit_type, key = request.code, request.credit_type, request.idempotency_key
    digest = hashlib.sha256(encode_json([code, credit_type, request.price, request.per, request.reason]).encode()).digest()[:16]

    names = [RATE(credit_type, code)] + ([] if key is None else [RATE_KEY(key)])

    def once() -> PublishedRate:
        with advisory_lock(*names):
            known = None if key is None else Rate.objects.filter(idempotency_key=key).first()
            if known is not None:
                return _replayed(known, digest)
            last = current_rate(code, credit_type)
            rate = Rate(
                code=code,
                credit_type=credit_type,
                version=1 if last is None else last.version + 1,
                price=request.price,
                per=request.per,
                published_at=timezone.now(),
                published_by=request.actor,
                published_because=request.reason,
                idempotency_key=key,
                request_digest=None if key is None else digest,
            )
            if not request.dry_run:
                rate.save(force_insert=True)
            return PublishedRate(rate)

    return in_transaction(once, locks=names, rate=code)


publish_rate = UseCase(RateRequest, _publish)


def _replayed(known: Rate, digest: bytes) -> PublishedRate:
    if known.request_digest is None or bytes(known.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key or "")
    return PublishedRate(known, replayed=True)


def current_rate(code: str, credit_type: str = "credits") -> Rate | None:
    """Return the newest version of the rate."""
    return Rate.objects.filter(credit_type=credit_type, code=code).order_by("-version").first()


def _quote(request: QuoteRequest) -> Quote:
    """Return the current cost of a quantity, rounded up to whole credits, and the rating for an entry. Writes nothing.

    Raises:
        UnknownRate: the rate does not exist.
        AmountLimit: the cost exceeds 2^53-1.
    """
    return _quoted(request.rate, request.quantity, request.credit_type)


quote = UseCase(QuoteRequest, _quote)


def _quoted(rate: str, quantity: int, credit_type: str) -> Quote:
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
    return _quoted(request.rate, request.quantity, request.credit_type)
