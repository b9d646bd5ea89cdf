"""Rates: named prices in credits, with versions. An entry keeps the version that gave its amount."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from ledger.database.lock_names import RATE, RATE_KEY
from ledger.database.locks import advisory_lock
from ledger.database.transactions import in_transaction
from ledger.errors import AmountLimit, IdempotencyKeyReused, Invalid, UnknownRate
from ledger.models import Rate
from ledger.records import UseCase
from ledger.rules.entries import Entry
from ledger.rules.rates import WHOLE, Quantities, cost_of, quantities_of_all
from ledger.rules.requests import CaptureRequest, PricedRequest, QuoteRequest, RateComponent, RateRequest
from ledger.values import MAX_AMOUNT, encode_json

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
    components = _stored_components(request.components)
    content = [code, credit_type, request.price, request.per, request.reason, *([] if components is None else [components])]
    digest = hashlib.sha256(encode_json(content).encode()).digest()[:16]

    names = [RATE(credit_type, code)] + ([] if key is None else [RATE_KEY(key)])

    def once() -> PublishedRate:
        with advisory_lock(*names):
            known = None if key is None else Rate.objects.filter(idempotency_key=key).first()
            if known is not None:
                return _replay_rate(known, digest)
            last = current_rate(code, credit_type)
            rate = Rate(
                code=code,
                credit_type=credit_type,
                version=1 if last is None else last.version + 1,
                price=request.price,
                per=request.per,
                components=components,
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


def _replay_rate(known: Rate, digest: bytes) -> PublishedRate:
    if known.request_digest is None or bytes(known.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key or "")
    return PublishedRate(known, replayed=True)


def current_rate(code: str, credit_type: str = "credits") -> Rate | None:
    """Return the newest version of the rate."""
    return Rate.objects.filter(credit_type=credit_type, code=code).order_by("-version").first()


def _stored_components(components: Mapping[str, RateComponent] | None) -> dict[str, Any] | None:
    if components is None:
        return None
    return {name: {"price": each.price, "per": each.per} for name, each in sorted(components.items())}


def _quote(request: QuoteRequest) -> Quote:
    """Return the current cost of quantities, rounded up to whole credits, and the rating for an entry. Writes nothing.

    Raises:
        UnknownRate: the rate does not exist.
        Invalid: the rate does not have a component.
        AmountLimit: the cost exceeds 2^53-1.
    """
    return _priced_by(_existing(request.rate, request.credit_type), request)


quote = UseCase(QuoteRequest, _quote)


def priced(request: PricedRequest) -> tuple[int, dict[str, Any] | None]:
    """Return the amount of a request, and the rating if a rate gives the amount.

    Raises: as for `quote`.
    """
    if request.amount is not None:
        return request.amount, None
    assert request.rate is not None
    return _priced_by(_existing(request.rate, request.credit_type), request)


def priced_capture(request: CaptureRequest, hold: Entry | None) -> tuple[int | None, dict[str, Any] | None]:
    """Return the amount of a capture, and the rating if a rate gives the amount; None for all that is held.

    Args:
        hold: the entry that the request names, or None if it does not exist.

    Raises: as for `quote`; Invalid too if neither the request nor the hold names a rate.
    """
    if request.quantity is None and request.quantities is None:
        return request.amount, None
    of_hold = None if hold is None or hold.refers_to is not None else hold.rating
    code: str | None = request.rate or (None if of_hold is None else of_hold["rate"])
    if code is None:
        raise Invalid(pointer="/rate", rule="required", detail="No rate priced the hold, so the capture has to name one.")
    if of_hold is None or request.newest_version or code != of_hold["rate"]:
        return _priced_by(_existing(code, request.credit_type), request)
    rate = Rate.objects.filter(credit_type=request.credit_type, code=code, version=of_hold["version"]).first()
    if rate is None:
        raise UnknownRate(rate=code, credit_type=request.credit_type)
    return _priced_by(rate, request)


def _existing(code: str, credit_type: str) -> Rate:
    rate = current_rate(code, credit_type)
    if rate is None:
        raise UnknownRate(rate=code, credit_type=credit_type)
    return rate


def _priced_by(rate: Rate, request: PricedRequest | CaptureRequest | QuoteRequest) -> Quote:
    prices, quantity = rate.unit_prices, request.quantity
    if quantity is not None and WHOLE not in prices:
        detail = f"The rate has components; give quantities of {', '.join(prices)}."
        raise Invalid(pointer="/quantity", rule="unknown-component", detail=detail)
    used: Quantities = {WHOLE: quantity} if quantity is not None else request.quantities or {}
    of_all = quantities_of_all(prices, used)
    amount = cost_of(prices, used)
    if amount > MAX_AMOUNT:
        raise AmountLimit(rate=rate.code, quantity=quantity, limit=MAX_AMOUNT)
    named = {"quantities": of_all} if quantity is None or rate.components is not None else {"quantity": quantity}
    return amount, {"rate": rate.code, "version": rate.version, **named}
