"""Batches: up to 1,000 operations of any kind over any holders, in one transaction and in few statements."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson
from django.db import transaction
from django.utils import timezone

from ledger import journal
from ledger.database.batch_slots import take_slots
from ledger.database.lock_names import BATCH
from ledger.database.locks import Lock, holder_key, wait_seconds, waits_bounded
from ledger.database.pacing import with_pauses
from ledger.database.statements import Statement, boolean, parameter
from ledger.database.transactions import after_commit, in_transaction
from ledger.errors import IdempotencyKeyReused, Invalid, LedgerError, Refused
from ledger.journal import LockedAccounts, Result
from ledger.models import Batch
from ledger.rules.entries import Entry
from ledger.rules.requests import Request
from ledger.services import earlier_entries
from ledger.services.coming_credits import start_what_is_due
from ledger.services.execute import execute, execute_one, log_refusals
from ledger.services.group_commit import ResultOrError
from ledger.services.operation_counts import count_operations

MAX_OPERATIONS = 1_000

IS_STORED = Statement(
    "batch_is_stored", "SELECT true FROM ledger_batch WHERE idempotency_key = %s AND confined_to = %s", [boolean]
)

Mode = Literal["atomic", "each"]
"""`atomic`: all operations or none. `each`: every operation by itself, refusals do not stop the others."""


@dataclass(frozen=True, slots=True)
class RejectedOperation:
    """An operation that the caller has already rejected, in a batch of mode `each`: it keeps its place and its result."""

    content: Any
    """The operation as plain JSON: a batch with other operations is another batch."""
    result: str
    """The caller's result for the operation."""


class OperationOutcome(NamedTuple):
    """The outcome of one operation: its entry, its error, or the caller's result; empty if another operation ended the batch."""

    entry: Entry | None = None
    error: LedgerError | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcomes of a batch, in the order of its operations, and the id of the request that executed it."""

    outcomes: tuple[OperationOutcome, ...]
    mode: Mode
    request_id: str
    replayed: bool = False

    @property
    def is_rejected(self) -> bool:
        """True if an atomic batch was rolled back: then only its outcomes were written."""
        return self.mode == "atomic" and any(outcome.entry is None for outcome in self.outcomes)


class _BatchRejected(Exception):
    """Ends the savepoint of an atomic batch."""


def batch(
    requests: Sequence[Request | RejectedOperation],
    *,
    mode: Mode,
    idempotency_key: str,
    actor: str = "",
    request_id: str = "",
    confined_to: str = "",
    dry_run: bool = False,
) -> BatchResult:
    """Execute all requests in one transaction, or raise and write nothing.

    All holders are locked first, in the order of the numbers; later operations see what earlier ones did.

    Args:
        requests: 1 .. 1,000, each with its own idempotency key.
        mode: see Mode.
        idempotency_key: of the batch as a whole. The same batch with the same key gets the same outcomes.
        confined_to: the only holder that the caller may act for, or empty. Each such holder has separate batch keys.
        dry_run: execute the batch, return the outcomes, and roll back.

    Raises:
        IdempotencyKeyReused: the key belongs to another batch.
        Invalid: the batch has no operation or too many, or an operation of an atomic batch is invalid at this time.
        HolderBusy, SequenceTaken: nothing was written; repeat the batch with the same key. HolderBusy also if the server's lock
            table cannot take the locks of another large batch.
        OutcomeUnknown: the connection was lost during COMMIT.
    """
    if not 1 <= len(requests) <= MAX_OPERATIONS:
        raise Invalid(pointer="/operations", rule="length", detail=f"must be 1 .. {MAX_OPERATIONS} operations")
    digest = _digest(requests, mode)
    executable = [request for request in requests if not isinstance(request, RejectedOperation)]
    opened = [account for request in executable for account in journal.accounts_of(request)]
    holders = {holder_id for holder_id, _ in opened}

    def once() -> BatchResult:
        take_slots(len(holders) + 1)
        with journal.open(executable, names=[BATCH(confined_to, idempotency_key)]) as accounts:
            if IS_STORED.execute([parameter(idempotency_key), parameter(confined_to)]):
                stored = Batch.objects.get(pk=(idempotency_key, confined_to))
                return _replay(stored, digest, requests, accounts.lock)
            executed = _execute_each(accounts, requests) if mode == "each" else _execute_or_give_up(accounts, executable)
            batch_result = BatchResult(tuple(executed), mode, request_id)
            outcomes = orjson.dumps(_all_stored(requests, batch_result.outcomes)).decode()
            journal.record_batch((idempotency_key, confined_to, digest, mode, outcomes, timezone.now(), actor, request_id))
            if dry_run:
                transaction.set_rollback(True)
            return batch_result

    with waits_bounded(wait_seconds(len(opened))):
        batch_result = in_transaction(once, locks=map(holder_key, holders), batch=idempotency_key)
    if not (dry_run or batch_result.replayed):
        log_refusals(_list_refused(requests, batch_result), batch=idempotency_key)
        after_commit(count_operations, list(_list_executed(requests, batch_result)))
        start_what_is_due(_list_refused(requests, batch_result))
    return batch_result


def _list_refused(
    requests: Sequence[Request | RejectedOperation], batch_result: BatchResult
) -> Iterator[tuple[Request, LedgerError]]:
    for request, outcome in zip(requests, batch_result.outcomes, strict=True):
        if outcome.error is not None and not isinstance(request, RejectedOperation):
            yield request, outcome.error


def _list_executed(
    requests: Sequence[Request | RejectedOperation], batch_result: BatchResult
) -> Iterator[tuple[Request, ResultOrError]]:
    is_rejected = batch_result.is_rejected
    for request, outcome in zip(requests, batch_result.outcomes, strict=True):
        if isinstance(request, RejectedOperation):
            continue
        if isinstance(outcome.error, Refused):
            yield request, Result(refusal=outcome.error)
        elif outcome.error is not None or (outcome.entry is not None and not is_rejected):
            yield request, outcome.error or Result(entry=outcome.entry)


def _digest(requests: Sequence[Request | RejectedOperation], mode: Mode) -> bytes:
    contents = [
        ["", request.content] if isinstance(request, RejectedOperation) else [request.idempotency_key, request.digest().hex()]
        for request in with_pauses(requests)
    ]
    return hashlib.sha256(orjson.dumps([mode, contents])).digest()[:16]


def _execute_each(accounts: LockedAccounts, requests: Sequence[Request | RejectedOperation]) -> list[OperationOutcome]:
    executable = [request for request in requests if not isinstance(request, RejectedOperation)]
    executed = iter(execute(accounts, with_pauses(executable)))
    outcomes = []
    for request in requests:
        if isinstance(request, RejectedOperation):
            outcomes.append(OperationOutcome(result=request.result))
        else:
            outcomes.append(_outcome(next(executed)))
    return outcomes


def _execute_or_give_up(accounts: LockedAccounts, requests: Sequence[Request]) -> list[OperationOutcome]:
    outcomes: list[OperationOutcome] = []
    try:
        with transaction.atomic():
            for request in with_pauses(requests):
                outcomes.append(_outcome(execute_one(accounts, request)))
                if outcomes[-1].error is not None:
                    raise _BatchRejected
            accounts.append()
    except _BatchRejected:
        return _rejected_whole(requests, outcomes[-1], len(outcomes) - 1)
    return outcomes


def _outcome(executed: ResultOrError) -> OperationOutcome:
    if isinstance(executed, LedgerError):
        return OperationOutcome(error=executed)
    assert executed is not None, "a batch waits for all its locks"
    return OperationOutcome(entry=executed.entry, error=executed.refusal)


def _rejected_whole(requests: Sequence[Request], failed: OperationOutcome, index: int) -> list[OperationOutcome]:
    """Return the outcomes of an atomic batch that was rolled back: the error that ended it, and nothing for other operations.

    The error depends on a state that was rolled back with the batch. So only the batch's outcome has it, and no refusal is
    recorded under the operation's key.

    Raises:
        Invalid: the request is wrong; nothing of the batch is recorded.
    """
    if isinstance(failed.error, Invalid):
        raise Invalid(**{**failed.error.facts, "pointer": f"/operations/{index}{failed.error.facts['pointer']}"})
    return [failed if position == index else OperationOutcome() for position in range(len(requests))]


def _all_stored(requests: Sequence[Request | RejectedOperation], outcomes: Sequence[OperationOutcome]) -> list[dict[str, Any]]:
    """Return the data to repeat the outcomes. The account of each is stored for people who read it."""
    stored_outcomes = [_store_outcome(outcome) for outcome in outcomes]
    for request, stored in zip(requests, stored_outcomes, strict=True):
        if "code" in stored and not isinstance(request, RejectedOperation):
            stored |= {"holder_id": request.holder_id, "credit_type": request.credit_type}
    return stored_outcomes


def _store_outcome(outcome: OperationOutcome) -> dict[str, Any]:
    """Return the data to repeat the outcome, including whether it was a replay."""
    entry = outcome.entry
    if entry is not None:
        stored = {"sequence": entry.sequence, "holder_id": entry.holder_id, "credit_type": entry.credit_type}
        return {**stored, "replayed": True} if entry.replayed else stored
    if isinstance(outcome.error, Refused):
        error = outcome.error
        return {"code": error.code, "facts": error.facts, "request_id": error.request_id, "replayed": error.replayed}
    if outcome.error is not None:
        return {"code": outcome.error.code, "facts": outcome.error.facts}
    return {} if outcome.result is None else {"result": outcome.result}


def _replay(stored: Batch, digest: bytes, requests: Sequence[Request | RejectedOperation], lock: Lock) -> BatchResult:
    if bytes(stored.request_digest) != digest:
        raise IdempotencyKeyReused(idempotency_key=stored.idempotency_key)
    entry_keys = [
        (request.holder_id, request.credit_type, outcome["sequence"])
        for request, outcome in zip(requests, stored.outcomes, strict=True)
        if "sequence" in outcome and not isinstance(request, RejectedOperation)
    ]
    entries = iter(earlier_entries.entries(lock, entry_keys))
    outcomes = [
        OperationOutcome(entry=next(entries)._replace(replayed=outcome.get("replayed", False)))
        if "sequence" in outcome
        else OperationOutcome(error=_error(outcome), result=outcome.get("result"))
        for outcome in stored.outcomes
    ]
    return BatchResult(tuple(outcomes), "atomic" if stored.mode == "atomic" else "each", stored.request_id, replayed=True)


def _error(outcome: dict[str, Any]) -> LedgerError | None:
    if "code" not in outcome:
        return None
    error = journal.error_from_record(outcome["code"], outcome["facts"])
    if isinstance(error, Refused):
        error.request_id, error.replayed = outcome["request_id"], outcome["replayed"]
    return error
