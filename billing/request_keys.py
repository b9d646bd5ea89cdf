"""Executes a write over REST at most once: its key is stored with its result, also if the result is a refusal."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from billing.models import RequestKey
from billing.tax_asking import asks_taxes
from ledger.database.lock_names import BILLING_REQUEST
from ledger.database.locks import waits_bounded
from ledger.database.transactions import locked_transaction
from ledger.errors import IdempotencyKeyReused, Refused
from ledger.services import preview


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: a status and a body of JSON."""

    status: int
    body: Any
    replayed: bool = False


def request_digest_of(facts: Mapping[str, Any]) -> bytes:
    """Return SHA-256 over a request's content, as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()


@asks_taxes
def execute_once(
    *,
    collection: str,
    idempotency_key: str,
    request_digest: bytes,
    act: Callable[[], WriteResult],
    request_id: str = "",
    on_refusal: Callable[[Refused], None] | None = None,
) -> WriteResult:
    """Execute a write and store its result under its key, or return the result that is stored there.

    The transaction of the act also stores the key: both take effect, or neither does. A refusal rolls the act back and is stored
        too, unless its limit `passes`. Any other exception of `act` leaves nothing behind, and the client can send the same key
        again. The call waits for locks for at most `locks.WAIT_SECONDS`.

    Args:
        collection: the resource collection within which keys are unique, such as `plans`.
        request_digest: SHA-256 of route and body.
        act: runs inside the transaction; may take further locks.
        request_id: stored with a refusal, so that a replay can name the first request.
        on_refusal: writes what must stay although the refusal rolls the act back; not called for a replay.

    Raises:
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy: another request with the same key takes longer than lock_timeout.
        OutcomeUnknown: the connection broke during COMMIT; a request with the same key finds out whether it took effect.
        Refused: raised by `act`, now or the first time; then `replayed` is True.
        TaxesUnavailable, TaxesRefused: the provider of taxes has no answer; nothing was written, also under the key.
    """
    refusal: Refused | None = None
    with waits_bounded(), locked_transaction(BILLING_REQUEST(collection, idempotency_key)):
        known = RequestKey.objects.filter(collection=collection, idempotency_key=idempotency_key).first()
        if known is not None:
            return _replay(known, request_digest)
        result: WriteResult | None = None
        try:
            with transaction.atomic():
                result = act()
        except Refused as error:
            if error.passes:
                raise
            refusal = error
            refusal.request_id = request_id
            if on_refusal is not None:
                on_refusal(error)
        RequestKey.objects.create(
            collection=collection,
            idempotency_key=idempotency_key,
            request_digest=request_digest,
            status=result.status if result else None,
            body=result.body if result else None,
            refusal=refusal.stored_as or refusal.code if refusal else "",
            facts=refusal.facts if refusal else None,
            refused_request=request_id if refusal else "",
        )
    if refusal is not None:
        raise refusal
    assert result is not None
    return result


def is_used(collection: str, idempotency_key: str) -> bool:
    """Return whether a result is stored under the key; read without a lock, to save work whose result would be thrown away."""
    return RequestKey.objects.filter(collection=collection, idempotency_key=idempotency_key).exists()


@asks_taxes
def dry_run_once(
    *, collection: str, idempotency_key: str, request_digest: bytes, act: Callable[[], WriteResult], replays: bool = True
) -> WriteResult:
    """Return the result that `execute_once` would return, or raise what it would raise; write nothing and take no holder's lock.

    Args:
        act: runs inside a preview.
        replays: False ignores stored results.
    """
    with waits_bounded(), preview():
        known = RequestKey.objects.filter(collection=collection, idempotency_key=idempotency_key).first()
        return act() if known is None or not replays else _replay(known, request_digest)


def _replay(known: RequestKey, request_digest: bytes) -> WriteResult:
    if bytes(known.request_digest) != request_digest:
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key)
    if known.status is None:
        refusal = _refusal_class(known.refusal)(**(known.facts or {}))
        refusal.request_id, refusal.replayed = known.refused_request, True
        raise refusal
    return WriteResult(known.status, known.body, replayed=True)


def _refusal_class(stored_as: str) -> type[Refused]:
    return next((one for one in _subclasses(Refused) if (one.stored_as or one.code) == stored_as), Refused)


def _subclasses(base: type[Refused]) -> Iterator[type[Refused]]:
    for one in base.__subclasses__():
        yield one
        yield from _subclasses(one)
