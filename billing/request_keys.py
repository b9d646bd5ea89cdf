"""A write over REST takes effect at most once: its key, and the answer that it got, refusals included."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from billing.models import RequestKey
from ledger.database.lock_names import BILLING_REQUEST
from ledger.database.locks import advisory_lock, waits_bounded
from ledger.errors import IdempotencyKeyReused, Refused


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered: a status and a body of JSON."""

    status: int
    body: Any
    replayed: bool = False


def answer_once(
    *,
    collection: str,
    idempotency_key: str,
    request_digest: bytes,
    act: Callable[[], Answer],
    on_refusal: Callable[[Refused], None] | None = None,
) -> Answer:
    """Do what a request asks for and remember the answer with it, or give the answer that its key got before.

    The key is remembered in the transaction of the act, so either both happen or neither. A refusal undoes the act and
    is remembered all the same. Anything else that `act` raises leaves nothing behind, and the same key may be sent again.
    All that it waits for locks takes at most `locks.WAIT_SECONDS`.

    Args:
        collection: the resource collection that keys are unique in, e.g. `plans`.
        request_digest: SHA-256 of route and body.
        act: runs inside the transaction; may take further locks.
        on_refusal: what is to be written with a refusal although the act is undone; not called for a replay.

    Raises:
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy: the same key is being answered, for longer than lock_timeout.
        Refused: whatever `act` raised, now or the first time; then `replayed` is True.
    """
    refusal: Refused | None = None
    with waits_bounded(), transaction.atomic(durable=True), advisory_lock(BILLING_REQUEST(collection, idempotency_key)):
        known = RequestKey.objects.filter(collection=collection, idempotency_key=idempotency_key).first()
        if known is not None:
            return _replay(known, request_digest)
        answer: Answer | None = None
        try:
            with transaction.atomic():
                answer = act()
        except Refused as error:
            refusal = error
            if on_refusal is not None:
                on_refusal(error)
        RequestKey.objects.create(
            collection=collection,
            idempotency_key=idempotency_key,
            request_digest=request_digest,
            status=answer.status if answer else None,
            body=answer.body if answer else None,
            refusal=refusal.code if refusal else "",
            facts=refusal.facts if refusal else None,
        )
    if refusal is not None:
        raise refusal
    assert answer is not None
    return answer


def _replay(known: RequestKey, request_digest: bytes) -> Answer:
    if bytes(known.request_digest) != request_digest:
        raise IdempotencyKeyReused(idempotency_key=known.idempotency_key)
    if known.status is None:
        refusal = _refusal_class(known.refusal)(**(known.facts or {}))
        refusal.replayed = True
        raise refusal
    return Answer(known.status, known.body, replayed=True)


def _refusal_class(code: str) -> type[Refused]:
    return next((one for one in _subclasses(Refused) if one.code == code), Refused)


def _subclasses(base: type[Refused]) -> Iterator[type[Refused]]:
    for one in base.__subclasses__():
        yield one
        yield from _subclasses(one)
