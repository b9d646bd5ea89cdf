"""Batches: up to 1,000 operations of any kind over any holders in one request and one transaction."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse

from ledger import services
from ledger.api import bodies, examples, shapes
from ledger.api.kit.authentication import LEDGER_GRANT, LEDGER_SPEND, Key
from ledger.api.kit.endpoint import Endpoint, exception_handler
from ledger.api.kit.etags import refuse_condition
from ledger.api.kit.idempotency import idempotency_key, preview_key, shown_key
from ledger.api.kit.inputs import MAX_SEQUENCE, StrictSerializer, read_query
from ledger.api.kit.parsing import BATCH_LIMIT_BYTES
from ledger.api.kit.rendering import recorded_answer
from ledger.api.kit.request_errors import Flaw, InvalidRequest, NotFound, ScopeMissing
from ledger.api.kit.request_ids import request_id
from ledger.api.kit.schema import Answer, Taken, operation
from ledger.errors import BatchRejected, Invalid, LedgerError
from ledger.rules import (
    CaptureRequest,
    ExtendRequest,
    GrantRequest,
    HoldRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from ledger.services import Answered, Mode, Outcome, TurnedAway

KEY_LIMIT = 255
GIVEN_UP = {"status": 424}
"""What is said of the operations of an atomic batch that were not at fault."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How an operation is read, what it becomes, and which scope it needs. `names` is the field that names an entry."""

    shape: type[StrictSerializer]
    request: type[Request]
    scope: str
    names: str = ""


KINDS = {
    "grant": Kind(bodies.GrantOperationSerializer, GrantRequest, LEDGER_GRANT),
    "spend": Kind(bodies.SpendOperationSerializer, SpendRequest, LEDGER_SPEND),
    "refund": Kind(bodies.RefundOperationSerializer, RefundRequest, LEDGER_SPEND, "spend"),
    "revoke": Kind(bodies.RevocationOperationSerializer, RevokeRequest, LEDGER_GRANT, "grant"),
    "hold": Kind(bodies.HoldOperationSerializer, HoldRequest, LEDGER_SPEND),
    "capture": Kind(bodies.CaptureOperationSerializer, CaptureRequest, LEDGER_SPEND, "hold"),
    "release": Kind(bodies.ReleaseOperationSerializer, ReleaseRequest, LEDGER_SPEND, "hold"),
    "extend": Kind(bodies.ExtensionOperationSerializer, ExtendRequest, LEDGER_SPEND, "hold"),
    "transfer": Kind(bodies.TransferOperationSerializer, TransferRequest, LEDGER_SPEND),
}


class Batches(Endpoint):
    """Many operations at once."""

    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "runBatch",
        "Run a batch",
        "Executes up to 1,000 operations of any kind on any holders, in order, in one transaction; later operations see earlier "
        "ones. Mode `atomic` executes all or nothing; with `each`, a failed operation does not stop the others. "
        "Each operation takes what its own call takes, with `operation`, `holder` and, for what is about a hold, `hold`, and "
        "needs the scope of its own call; its `idempotency_key` is by default that of the batch, `/` and the index. At most 4 "
        "MiB.",
        tag="Batches",
        scope="",
        takes=Taken(bodies.BatchSerializer, {"atomic": examples.BATCH_BODY, "each": {**examples.BATCH_BODY, "mode": "each"}}),
        answers={200: Answer(shapes.BatchBodySerializer, examples.BATCH, "The outcome of each operation.")},
        problems=[
            ScopeMissing(scope=LEDGER_SPEND),
            BatchRejected(index=1, problem=examples.REFUSAL["problem"], results=examples.REJECTED_RESULTS),
        ],
        keyed=True,
        previewed=True,
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        """Run a batch."""
        dry_run = read_query(bodies.WriteQuery, request)["dry_run"]
        key = preview_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        batch = self.body(request, bodies.BatchSerializer)
        reader = Reader(self.key, key, request_id(request))
        asked = [reader.read(value, index) for index, value in enumerate(batch["operations"])]
        mode: Mode = batch["mode"]
        if mode == "atomic":
            _ensure_all_can_be_asked(asked)
        answered = services.batch(
            [self._turned_away(each, value) for each, value in zip(asked, batch["operations"], strict=True)],
            mode=mode,
            idempotency_key=key,
            actor=self.key.actor,
            request_id=request_id(request),
            confined_to=self.key.holder_id or "",
            dry_run=dry_run,
        )
        return self._answer_with(answered, dry_run=dry_run)

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        """Let any good key in: scopes and confines are looked at per operation."""
        self.key = key

    def _turned_away(self, asked: Request | LedgerError, value: Any) -> Request | TurnedAway:
        if isinstance(asked, Request):
            return asked
        text = json.dumps(value, sort_keys=True)
        told = orjson.dumps(self._refused(asked)).decode()
        return TurnedAway(asked=hashlib.sha256(text.encode()).hexdigest(), told=told)

    def _answer_with(self, answered: Answered, *, dry_run: bool) -> HttpResponse:
        outcomes = [_as_previewed(each) for each in answered.outcomes] if dry_run else answered.outcomes
        results = [self._result(outcome, index, answered) for index, outcome in enumerate(outcomes)]
        if answered.is_rejected:
            index = next(index for index, outcome in enumerate(answered.outcomes) if outcome.error is not None)
            # As fragments, so that members keep their order.
            problem = orjson.Fragment(orjson.dumps(results[index]["problem"]))
            rejected = BatchRejected(index=index, problem=problem, results=orjson.Fragment(orjson.dumps(results)))
            rejected.request_id, rejected.replayed = answered.request_id, answered.replayed
            raise rejected
        failed = sum(1 for outcome in answered.outcomes if outcome.entry is None)
        return recorded_answer({"failed": failed, "results": results}, replayed=answered.replayed, status=200)

    def _result(self, outcome: Outcome, index: int, answered: Answered) -> Any:
        entry, error = outcome.entry, outcome.error
        if entry is not None:
            body = shapes.entry_body(entry)
            return {"status": 201, "replayed": True, "body": body} if entry.replayed else {"status": 201, "body": body}
        if outcome.told is not None:
            return orjson.Fragment(outcome.told)
        if error is None:
            return GIVEN_UP
        if isinstance(error, Invalid):
            error = Invalid(**{**error.facts, "pointer": f"/operations/{index}{error.facts['pointer']}"})
        result = self._refused(error, getattr(error, "request_id", "") or answered.request_id)
        return {**result, "replayed": True} if getattr(error, "replayed", False) else result

    def _refused(self, error: LedgerError, asked_first: str = "") -> dict[str, Any]:
        """Return the result of an operation that has a problem; problems are made where all problems are made."""
        problem = exception_handler()(error, {"view": self, "request": self.request}).problem
        return {"status": problem["status"], "problem": {**problem, "request_id": asked_first or problem["request_id"]}}


def _as_previewed(outcome: Outcome) -> Outcome:
    if outcome.entry is None:
        return outcome
    return Outcome(entry=outcome.entry._replace(idempotency_key=shown_key(outcome.entry.idempotency_key)))


def _ensure_all_can_be_asked(asked: Sequence[Request | LedgerError]) -> None:
    """Return, or raise what turns an atomic batch away: a scope before confines, confines before everything that is wrong."""
    errors = [each for each in asked if isinstance(each, LedgerError)]
    for kind in (ScopeMissing, NotFound):
        for error in errors:
            if isinstance(error, kind):
                raise error
    flaws = [flaw for error in errors if isinstance(error, InvalidRequest) for flaw in error.flaws]
    if flaws:
        raise InvalidRequest(flaws)


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes requests of a batch's operations, or the errors that their own calls would answer."""

    key: Key
    batch_key: str
    request_id: str

    def read(self, value: Any, index: int) -> Request | LedgerError:
        """Return what an operation asks, or why it cannot be asked."""
        pointer = f"/operations/{index}"
        if type(value) is not dict:
            return InvalidRequest([Flaw(pointer, "not-an-object", "This must be an object.")])
        name = value.get("operation")
        kind = KINDS.get(name) if type(name) is str else None
        if kind is None:
            code = "not-a-choice" if "operation" in value else "required"
            return InvalidRequest([Flaw(f"{pointer}/operation", code, f"This must be one of {', '.join(KINDS)}.")])
        if not self.key.may(kind.scope):
            return ScopeMissing(scope=kind.scope)
        return self._request(kind, value, pointer, index)

    def _request(self, kind: Kind, value: dict[str, Any], pointer: str, index: int) -> Request | LedgerError:
        flaws: list[Flaw] = []
        fields = kind.shape.take_fields(value, pointer, flaws)
        holder_id = fields.pop("holder", None)
        if holder_id is not None and not self.key.sees(holder_id):
            return NotFound()
        key = fields.pop("idempotency_key", None) or f"{self.batch_key}/{index}"
        if len(key) > KEY_LIMIT:
            flaws.append(
                Flaw(
                    "/Idempotency-Key",
                    "too-long",
                    f"The key with / and an operation's index must be at most {KEY_LIMIT} characters.",
                )
            )
        if flaws:
            return InvalidRequest(flaws)
        if kind.names and fields[kind.names] > MAX_SEQUENCE:
            return NotFound()
        del fields["operation"]
        try:
            return kind.request(
                holder_id=holder_id, idempotency_key=key, actor=self.key.actor, request_id=self.request_id, **fields
            )
        except Invalid as error:
            found = error.facts
            return InvalidRequest([Flaw(pointer + found["pointer"], found["rule"], found["detail"])])
