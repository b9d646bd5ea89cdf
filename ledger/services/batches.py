"""Batches: up to 1,000 operations of any kind over any holders, in one transaction and in few statements."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import orjson
from django.db import transaction
from django.utils import timezone

from ledger import journal
from ledger.database.batch_slots import take_slots
from ledger.database.lock_names import BATCH
from ledger.database.locks import Lock, advisory_lock, holder_key
from ledger.database.transactions import in_transaction
from ledger.errors import AccountMovedOn, IdempotencyKeyReused, Invalid, LedgerError, Refused
from ledger.models import Batch
from ledger.rules import Entry, Request, TransferRequest
from ledger.services.answering import decide
from ledger.services.transferring import decide_transfer

MAX_OPERATIONS = 1_000

Mode = Literal["atomic", "each"]
"""`atomic`: all operations or none. `each`: every operation by itself, refusals do not stop the others."""


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """An operation that the caller turned away itself, in a batch of mode `each`: it keeps its place and what it was told."""

    asked: Any
    """What was asked, as plain JSON: part of what makes two batches the same one."""
    told: str
    """What the caller answered."""


class Outcome(NamedTuple):
    """What came of one operation: its entry, the error, or what the caller told it; nothing when the batch was given up."""

    entry: Entry | None = None
    error: LedgerError | None = None
    told: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """A batch's outcomes, in the order of its operations, and the request that was answered so first."""

    outcomes: tuple[Outcome, ...]
    mode: Mode
    request_id: str
    replayed: bool = False

    @property
    def is_rejected(self) -> bool:
        """Whether an atomic batch was given up: then nothing of it was written but its outcomes."""
        return self.mode == "atomic" and any(outcome.entry is None for outcome in self.outcomes)


class _GivenUp(Exception):
    """Ends the savepoint of an atomic batch."""


def batch(
    requests: Sequence[Request | TurnedAway],
    *,
    mode: Mode,
    idempotency_key: str,
    actor: str = "",
    request_id: str = "",
    confined_to: str = "",
    dry_run: bool = False,
) -> Answered:
    """Answer all requests in one transaction, or raise and write nothing.

    All holders are locked first, in the order of the numbers; later operations see what earlier ones did.

    Args:
        requests: 1 .. 1,000, each with its own idempotency key.
        mode: see Mode.
        idempotency_key: of the batch as a whole; the same batch again gets the same outcomes.
        confined_to: the one holder that the caller is confined to, empty for none; others have batch keys of their own.
        dry_run: do it all, tell what came of it, and undo it.

    Raises:
        IdempotencyKeyReused: the key belongs to another batch.
        Invalid: there are too many operations, or none; or one of an atomic batch is not what it may be, by the clock.
        HolderBusy, SequenceTaken: nothing was written; repeat it with the same key. HolderBusy also when the server's lock table
            has no room for another large batch.
        OutcomeUnknown: the connection was lost during COMMIT.
    """
    if not 1 <= len(requests) <= MAX_OPERATIONS:
        raise Invalid(pointer="/operations", rule="length", detail=f"must be 1 .. {MAX_OPERATIONS} operations")
    digest = _digest(requests, mode)
    names = {BATCH(confined_to, idempotency_key)}
    for request in requests:
        if not isinstance(request, TurnedAway):
            names |= _lock_names(request)

    def once() -> Answered:
        take_slots(len(names))
        with advisory_lock(*names) as lock:
            stored = Batch.objects.filter(pk=(idempotency_key, confined_to)).first()
            if stored is not None:
                return _replay(stored, digest, requests, lock)
            answered = Answered(tuple(_answer_all(lock, requests, mode)), mode, request_id)
            outcomes = orjson.dumps([_stored(each) for each in answered.outcomes]).decode()
            journal.record_batch((idempotency_key, confined_to, digest, mode, outcomes, timezone.now(), actor, request_id))
            if dry_run:
                transaction.set_rollback(True)
            return answered

    return in_transaction(once, batch=idempotency_key)


def _digest(requests: Sequence[Request | TurnedAway], mode: Mode) -> bytes:
    asked = [
        ["", request.asked] if isinstance(request, TurnedAway) else [request.idempotency_key, request.digest().hex()]
        for request in requests
    ]
    return hashlib.sha256(orjson.dumps([mode, asked])).digest()[:16]


def _lock_names(request: Request) -> set[str]:
    names = {holder_key(request.holder_id)}
    if isinstance(request, TransferRequest):
        names.add(holder_key(request.to))
    return names


def _answer_all(lock: Lock, requests: Sequence[Request | TurnedAway], mode: Mode) -> list[Outcome]:
    asked = [request for request in requests if not isinstance(request, TurnedAway)]
    if mode == "each":
        with journal.Room.opened(lock, asked) as room:
            return [
                Outcome(told=request.told) if isinstance(request, TurnedAway) else _answer_one(room, request)
                for request in requests
            ]
    outcomes = []
    try:
        with transaction.atomic(), journal.Room.opened(lock, asked) as room:
            for request in asked:
                outcomes.append(_answer_one(room, request))
                if outcomes[-1].error is not None:
                    raise _GivenUp
    except _GivenUp:
        return _given_up(asked, outcomes[-1], len(outcomes) - 1)
    return outcomes


def _answer_one(room: journal.Room, request: Request) -> Outcome:
    try:
        if isinstance(request, TransferRequest):
            target = room.state(request.to, request.credit_type)
            recorded = room.answer(request, partial(decide_transfer, request, target))
        else:
            recorded = room.answer(request, partial(decide, request))
    except (Invalid, IdempotencyKeyReused, AccountMovedOn) as error:
        return Outcome(error=error)
    return Outcome(entry=recorded.entry, error=recorded.refusal)


def _given_up(requests: Sequence[Request], failed: Outcome, index: int) -> list[Outcome]:
    """The outcomes of an atomic batch that was undone: the error that ended it, and nothing of the other operations.

    That error came of a state which the batch made and which is undone: so it is part of the batch's own outcome alone, and no
    refusal of the operation's key is recorded.

    Raises:
        Invalid: the request is wrong, and nothing of the batch is recorded.
    """
    if isinstance(failed.error, Invalid):
        raise Invalid(**{**failed.error.facts, "pointer": f"/operations/{index}{failed.error.facts['pointer']}"})
    return [failed if position == index else Outcome() for position in range(len(requests))]


def _stored(outcome: Outcome) -> dict[str, Any]:
    """What it takes to tell the outcome again, also that it was a replay itself; and whose entry it is, for whoever looks."""
    entry = outcome.entry
    if entry is not None:
        told = {"sequence": entry.sequence, "holder_id": entry.holder_id, "credit_type": entry.credit_type}
        return {**told, "replayed": True} if entry.replayed else told
    if isinstance(outcome.error, Refused):
        error = outcome.error
        return {"code": error.code, "facts": error.facts, "request_id": error.request_id, "replayed": error.replayed}
    if outcome.error is not None:
        return {"code": outcome.error.code, "facts": outcome.error.facts}
    return {} if outcome.told is None else {"told": outcome.told}


def _replay(stored: Batch, digest: bytes, requests: Sequence[Request | TurnedAway], lock: Lock) -> Answered:
    if bytes(stored.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=stored.idempotency_key)
    wanted = [
        (request.holder_id, request.credit_type, outcome["sequence"])
        for request, outcome in zip(requests, stored.outcomes, strict=True)
        if "sequence" in outcome and not isinstance(request, TurnedAway)
    ]
    entries = iter(journal.entries(lock, wanted))
    outcomes = [
        Outcome(entry=next(entries)._replace(replayed=outcome.get("replayed", False)))
        if "sequence" in outcome
        else Outcome(error=_error(outcome), told=outcome.get("told"))
        for outcome in stored.outcomes
    ]
    return Answered(tuple(outcomes), "atomic" if stored.mode == "atomic" else "each", stored.request_id, replayed=True)


def _error(outcome: dict[str, Any]) -> LedgerError | None:
    if "code" not in outcome:
        return None
    error = journal.error_from_record(outcome["code"], outcome["facts"])
    if isinstance(error, Refused):
        error.request_id, error.replayed = outcome["request_id"], outcome["replayed"]
    return error
