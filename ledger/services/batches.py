"""Batches: up to 1,000 operations of any kind over any holders, in one transaction and in few statements."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone

from ledger import journal
from ledger.errors import AccountMovedOn, IdempotencyKeyReused, Invalid, LedgerError, Refused
from ledger.locks import Lock, advisory_lock, holder_key
from ledger.models import Batch
from ledger.rules import Entry, Request, TransferRequest
from ledger.rules.requests import encode_json
from ledger.services.answering import decide, in_transaction
from ledger.services.transferring import transfer_under

MAX_OPERATIONS = 1_000
BATCH_LOCK = "ledger_batch/{}"

Mode = Literal["atomic", "each"]
"""`atomic`: all operations or none. `each`: every operation by itself, refusals do not stop the others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one operation: its entry, or the error, or neither when another one made an atomic batch be given up."""

    entry: Entry | None = None
    error: LedgerError | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """A batch's outcomes, in the order of its operations."""

    outcomes: tuple[Outcome, ...]
    replayed: bool = False

    @property
    def is_rejected(self) -> bool:
        """Whether an atomic batch was given up: then nothing of it was written but the refusal."""
        return any(outcome.entry is None and outcome.error is None for outcome in self.outcomes) or (
            bool(self.outcomes) and all(outcome.entry is None for outcome in self.outcomes)
        )


class _GivenUp(Exception):
    """Ends the savepoint of an atomic batch."""


def batch(requests: Sequence[Request], *, mode: Mode, idempotency_key: str, actor: str = "", request_id: str = "") -> Answered:
    """Answer all requests in one transaction, or raise and write nothing.

    All holders are locked first, in the order of the numbers; later operations see what earlier ones did.

    Args:
        requests: 1 .. 1,000, each with its own idempotency key.
        mode: see Mode.
        idempotency_key: of the batch as a whole; the same batch again gets the same outcomes.

    Raises:
        IdempotencyKeyReused: the key belongs to another batch.
        Invalid: there are too many operations, or none.
        HolderBusy, SequenceTaken: nothing was written; repeat it with the same key.
        OutcomeUnknown: the connection was lost during COMMIT.
    """
    if not 1 <= len(requests) <= MAX_OPERATIONS:
        raise Invalid(pointer="/operations", rule="length", detail=f"must be 1 .. {MAX_OPERATIONS} operations")
    digest = _digest(requests, mode)
    names = {BATCH_LOCK.format(idempotency_key)}
    for request in requests:
        names |= _lock_names(request)

    def once() -> Answered:
        with advisory_lock(*names) as lock:
            stored = Batch.objects.filter(pk=idempotency_key).first()
            if stored is not None:
                return _replay(stored, digest, requests, lock)
            outcomes = _answer_all(lock, requests, mode)
            journal.record_batch(
                (
                    idempotency_key,
                    digest,
                    mode,
                    encode_json([_stored(each) for each in outcomes]),
                    timezone.now(),
                    actor,
                    request_id,
                )
            )
            return Answered(tuple(outcomes))

    return in_transaction(once, holder_id=requests[0].holder_id)


def _digest(requests: Sequence[Request], mode: Mode) -> bytes:
    asked = [[request.operation, request.idempotency_key, request.asked()] for request in requests]
    return hashlib.sha256(encode_json([mode, asked]).encode()).digest()[:16]


def _lock_names(request: Request) -> set[str]:
    names = {holder_key(request.holder_id)}
    if isinstance(request, TransferRequest):
        names.add(holder_key(request.to))
    return names


def _answer_all(lock: Lock, requests: Sequence[Request], mode: Mode) -> list[Outcome]:
    if mode == "each":
        room = journal.Room(lock, requests)
        outcomes = [_answer_one(room, request) for request in requests]
        room.store()
        return outcomes
    outcomes = []
    try:
        with transaction.atomic():
            room = journal.Room(lock, requests)
            for request in requests:
                outcomes.append(_answer_one(room, request))
                if outcomes[-1].error is not None:
                    raise _GivenUp
            room.store()
    except _GivenUp:
        return _given_up(lock, requests, outcomes[-1], len(outcomes) - 1)
    return outcomes


def _answer_one(room: journal.Room, request: Request) -> Outcome:
    try:
        if isinstance(request, TransferRequest):
            room.store()
            recorded = transfer_under(room.lock, request)
            room.forget(request.holder_id, request.credit_type)
            room.forget(request.to, request.credit_type)
        else:
            recorded = room.answer(request, partial(decide, request))
    except (Invalid, IdempotencyKeyReused, AccountMovedOn) as error:
        return Outcome(error=error)
    return Outcome(entry=recorded.entry, error=recorded.refusal)


def _given_up(lock: Lock, requests: Sequence[Request], failed: Outcome, index: int) -> list[Outcome]:
    """Put the no that ended an atomic batch on record, outside the savepoint that was rolled back."""
    request = requests[index]
    if isinstance(failed.error, Refused) and not failed.error.replayed:
        account = journal.read(lock, request.holder_id, request.credit_type, request.idempotency_key)
        if account.answered_by is None:
            journal.record_refusal(account, request, failed.error)
    return [failed if position == index else Outcome() for position in range(len(requests))]


def _stored(outcome: Outcome) -> dict[str, Any]:
    if outcome.entry is not None:
        return {"sequence": outcome.entry.sequence}
    if outcome.error is not None:
        return {"code": outcome.error.code, "facts": outcome.error.facts}
    return {}


def _replay(stored: Batch, digest: bytes, requests: Sequence[Request], lock: Lock) -> Answered:
    if bytes(stored.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=stored.idempotency_key)
    wanted = [
        (request.holder_id, request.credit_type, outcome["sequence"])
        for request, outcome in zip(requests, stored.outcomes, strict=True)
        if "sequence" in outcome
    ]
    entries = iter(journal.entries(lock, wanted))
    outcomes = [
        Outcome(entry=next(entries)._replace(replayed=True)) if "sequence" in outcome else Outcome(error=_error(outcome))
        for outcome in stored.outcomes
    ]
    return Answered(tuple(outcomes), replayed=True)


def _error(outcome: dict[str, Any]) -> LedgerError | None:
    if not outcome:
        return None
    error = journal.error_from_record(outcome["code"], outcome["facts"])
    if isinstance(error, Refused):
        error.replayed = True
    return error
