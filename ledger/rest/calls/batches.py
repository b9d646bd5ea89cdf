"""Batches: up to 1,000 operations of any kind over any holders in one request and one transaction."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from django.http import HttpRequest

from ledger import services
from ledger.database.pacing import with_pauses
from ledger.errors import Answer, Invalid, LedgerError
from ledger.records import Shape, shape_of
from ledger.rest.etags import refuse_condition
from ledger.rest.kit import problems
from ledger.rest.kit.authentication import LEDGER_SPEND, Key
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.parsing import BATCH_LIMIT_BYTES
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_bytes, write_response
from ledger.rest.kit.request_errors import InvalidRequest, LabelBound, NotFound, ScopeMissing
from ledger.rest.kit.requests import dry_run_key, idempotency_key, shown_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.request_schemas import OPERATIONS
from ledger.rest.writes import LABEL_BOUND, SCOPES, as_shown_to
from ledger.rules.requests import Request
from ledger.services import BatchResult, Mode, OperationOutcome, RejectedOperation
from ledger.values import AnyObject, Count, FieldError, ListOf

KEY_LIMIT = 255
BATCH = shape_of(request_schemas.Batch)
GIVEN_UP = {"status": 424}
"""The result of each operation of an atomic batch that another operation made fail."""


class BatchRejected(LedgerError):
    """One operation of an atomic batch failed; the ledger executed none."""

    code = "batch-rejected"
    title = "The ledger rejected the batch"
    answer = Answer(409, "Operation {index} failed, so the ledger executed no operation of the batch.")

    index: Annotated[int, Count("Which operation failed, from 0.")]
    problem: Annotated[Any, AnyObject("The problem of that operation.")]
    results: Annotated[Any, ListOf(AnyObject(), "As in the response to a batch.", most=1_000)]

    replayed = False
    request_id = ""


class Batches(Endpoint):
    """Executes many operations at once."""

    body_limit_bytes = BATCH_LIMIT_BYTES
    dry_run: bool

    @operation(
        "runBatch",
        "Run a batch",
        "Executes up to 1,000 operations of any kind on any holders, in order, in one transaction; later operations see earlier "
        "ones. Mode `atomic` executes all or nothing; with `each`, a failed operation does not stop the others. "
        "Each operation takes what its own call takes, with `operation`, `holder` and, for what is about a hold, `hold`, and "
        "needs the scope of that call; its `idempotency_key` is by default that of the batch, `/` and the index. "
        "At most 4 MiB.",
        tag="Batches",
        scope="",
        takes=RequestBody(BATCH, {"atomic": examples.BATCH_BODY, "each": {**examples.BATCH_BODY, "mode": "each"}}),
        responses={200: ResponseBody(response_schemas.BatchBodySerializer, examples.BATCH, "The outcome of each operation.")},
        problems=[
            ScopeMissing(scope=LEDGER_SPEND),
            LABEL_BOUND,
            BatchRejected(index=1, problem=examples.REFUSAL["problem"], results=examples.REJECTED_RESULTS),
        ],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        self.dry_run = dry_run = read_query(DryRunQuery, request)["dry_run"]
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        batch = self.body(request, BATCH)
        reader = Reader(self.key, key, self.request_id)
        requests = [reader.read(value, index) for index, value in with_pauses(enumerate(batch["operations"]))]
        mode: Mode = batch["mode"]
        if mode == "atomic":
            _ensure_all_can_be_executed(requests)
        executed = services.batch(
            [self._checked_or_rejected(each, value) for each, value in zip(requests, batch["operations"], strict=True)],
            mode=mode,
            idempotency_key=key,
            actor=self.key.actor,
            request_id=self.request_id,
            confined_to=self.key.holder_id or "",
            dry_run=dry_run,
        )
        return self._respond(executed, dry_run=dry_run)

    def _checked_or_rejected(self, request: Request | LedgerError, value: Any) -> Request | RejectedOperation:
        if isinstance(request, Request):
            return request
        text = json.dumps(value, sort_keys=True)
        result = json_bytes(self._refuse_operation(request)).decode()
        return RejectedOperation(content=hashlib.sha256(text.encode()).hexdigest(), result=result)

    def _respond(self, executed: BatchResult, *, dry_run: bool) -> Response:
        outcomes = [_as_dry_run(each) for each in executed.outcomes] if dry_run else executed.outcomes
        results = [self._result(outcome, index, executed) for index, outcome in with_pauses(enumerate(outcomes))]
        if executed.is_rejected:
            index = next(index for index, outcome in enumerate(executed.outcomes) if outcome.error is not None)
            # As fragments, so that members keep their order.
            problem = orjson.Fragment(json_bytes(results[index]["problem"]))
            rejected = BatchRejected(index=index, problem=problem, results=orjson.Fragment(json_bytes(results)))
            rejected.request_id, rejected.replayed = executed.request_id, executed.replayed
            raise rejected
        failed = sum(1 for outcome in executed.outcomes if outcome.entry is None)
        return write_response({"failed": failed, "results": results}, replayed=executed.replayed, status=200)

    def _result(self, outcome: OperationOutcome, index: int, executed: BatchResult) -> Any:
        entry, error = outcome.entry, outcome.error
        if entry is not None:
            body = response_schemas.EntrySerializer.body(entry)
            return {"status": 201, "replayed": True, "body": body} if entry.replayed else {"status": 201, "body": body}
        if outcome.result is not None:
            return orjson.Fragment(outcome.result)
        if error is None:
            return GIVEN_UP
        if isinstance(error, Invalid):
            error = Invalid(**{**error.facts, "pointer": f"/operations/{index}{error.facts['pointer']}"})
        result = self._refuse_operation(error, getattr(error, "request_id", "") or executed.request_id)
        return {**result, "replayed": True} if getattr(error, "replayed", False) else result

    def _refuse_operation(self, error: LedgerError, asked_first: str = "") -> dict[str, Any]:
        """Return the result of an operation that has a problem; `problems` makes the problem."""
        problem = problems.problem_response(as_shown_to(self.key, error, dry_run=self.dry_run), self.request).problem
        return {"status": problem["status"], "problem": {**problem, "request_id": asked_first or problem["request_id"]}}


def _as_dry_run(outcome: OperationOutcome) -> OperationOutcome:
    if outcome.entry is None:
        return outcome
    return OperationOutcome(entry=outcome.entry._replace(idempotency_key=shown_key(outcome.entry.idempotency_key)))


def _ensure_all_can_be_executed(requests: Sequence[Request | LedgerError]) -> None:
    """Return, or raise what rejects an atomic batch: missing scopes come before confinement, and that before all other faults."""
    errors = [each for each in requests if isinstance(each, LedgerError)]
    for kind in (ScopeMissing, NotFound, LabelBound):
        for error in errors:
            if isinstance(error, kind):
                raise error
    field_errors = [field_error for error in errors if isinstance(error, InvalidRequest) for field_error in error.field_errors]
    if field_errors:
        raise InvalidRequest(field_errors)


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes requests of a batch's operations, or the errors that their own calls would raise."""

    key: Key
    batch_key: str
    request_id: str

    def read(self, value: Any, index: int) -> Request | LedgerError:
        """Return the request of an operation, or the error that explains why it is invalid."""
        pointer = f"/operations/{index}"
        if type(value) is not dict:
            return InvalidRequest([FieldError(pointer, "not-an-object", "This must be an object.")])
        name = value.get("operation")
        if type(name) is not str or name not in OPERATIONS:
            code = "not-a-choice" if "operation" in value else "required"
            return InvalidRequest([FieldError(f"{pointer}/operation", code, f"This must be one of {', '.join(OPERATIONS)}.")])
        scope = SCOPES[name]
        if not self.key.may(scope):
            return ScopeMissing(scope=scope)
        return self._request(OPERATIONS[name], value, pointer, index)

    def _request(self, shape: Shape[Request], value: dict[str, Any], pointer: str, index: int) -> Request | LedgerError:
        field_errors: list[FieldError] = []
        fields = shape.take(value, pointer, field_errors)
        holder_id = fields.pop("holder", None)
        if holder_id is not None and not self.key.sees(holder_id):
            return NotFound()
        key = fields.get("idempotency_key") or f"{self.batch_key}/{index}"
        if len(key) > KEY_LIMIT:
            field_errors.append(
                FieldError(
                    "/Idempotency-Key",
                    "too-long",
                    f"The key with / and an operation's index must be at most {KEY_LIMIT} characters.",
                )
            )
        if field_errors:
            return InvalidRequest(field_errors)
        if request_schemas.names_no_entry(shape, fields):
            return NotFound()
        del fields["operation"]
        fields |= {"holder_id": holder_id, "idempotency_key": key, "actor": self.key.actor, "request_id": self.request_id}
        if self.key.labels:
            try:
                fields["metadata"] = self.key.with_labels(fields.get("metadata", {}), pointer)
            except (LabelBound, InvalidRequest) as error:
                return error
            fields["within_labels"] = self.key.labels
        try:
            return shape.make(fields)
        except Invalid as error:
            facts = error.facts
            return InvalidRequest([FieldError(pointer + facts["pointer"], facts["rule"], facts["detail"])])
