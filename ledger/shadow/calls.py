"""Calls about observations, and about holders that move into the ledger or back."""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest

from ledger.database.pacing import with_pauses
from ledger.errors import Invalid
from ledger.records import shape_of
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import LEDGER_ADMIN, LEDGER_OBSERVE, LEDGER_READ, Key
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.parsing import BATCH_LIMIT_BYTES, read
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import InvalidRequest, NotFound
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response
from ledger.shadow import examples, promoting, reads, schemas
from ledger.shadow.observing import INVALID, ObservationResult, observe_all
from ledger.shadow.promoting import Move, MoveResult
from ledger.shadow.requests import ObservationRequest

SHADOW: Final = "Shadow"


class ShadowEndpoint(Endpoint):
    """Another system's balances are of the ledger as a whole: a key for one holder sees none of them."""

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        super().admit(key, path)
        if key.holder_id is not None:
            raise NotFound


class Observations(ShadowEndpoint):
    """Observations are recorded, and listed."""

    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "observe",
        "Record what another system decided",
        "Up to 1,000 decisions of another system of balances, those of a holder in its order, each with what the ledger would "
        "have decided. It changes no credits and enforces nothing. After a difference, the ledger goes on from the other "
        "system's balance. Each observation has its own key, so the call needs no Idempotency-Key.",
        tag=SHADOW,
        scope=LEDGER_OBSERVE,
        takes=RequestBody(shape_of(schemas.ObservationBatch), {"a spend": examples.OBSERVATIONS_BODY}),
        responses={200: ResponseBody(schemas.ObservationResultsSerializer, examples.RESULTS, "A result for each.")},
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        sent = self.body(request, shape_of(schemas.ObservationBatch))["observations"]
        made = [self._make_request(raw) for raw in with_pauses(sent)]
        recorded = iter(observe_all([each for each in made if isinstance(each, ObservationRequest)], dry_run=dry_run))
        results = [next(recorded) if isinstance(each, ObservationRequest) else each for each in made]
        return json_response({"results": [_result(each) for each in results]})

    def _make_request(self, raw: Any) -> ObservationRequest | ObservationResult:
        try:
            fields = read(schemas.OBSERVATION, raw)
            made: ObservationRequest = schemas.OBSERVATION.make(fields | {"actor": self.key.actor, "request_id": self.request_id})
            return made
        except InvalidRequest as error:
            detail = "; ".join(f"{each.pointer}: {each.detail}" for each in error.field_errors)[:1000]
        except Invalid as error:
            detail = f"{error.facts['pointer']}: {error.facts['detail']}"
        key = raw.get("idempotency_key") if isinstance(raw, dict) else None
        return ObservationResult(key if isinstance(key, str) else None, INVALID, detail=detail)

    @operation(
        "listObservations",
        "List observations",
        "Newest first.",
        tag=SHADOW,
        scope=LEDGER_READ,
        query=schemas.ObservationsQuery,
        responses=page_response(schemas.ObservationSerializer, examples.OBSERVATION, path="/v1/observations", text="A page."),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(schemas.ObservationsQuery, request)
        page = cursors.requested_page(request, filters)
        observations = reads.observations(**filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(observations, keyset=lambda each: (each.id,), body=reads.Observed.shown))


class ObservedAccounts(ShadowEndpoint):
    """The observed accounts, with their first differences."""

    @operation(
        "listObservedHolders",
        "List observed holders",
        "Each account that was observed, by holder, with how many decisions differ and the first one that does.",
        tag=SHADOW,
        scope=LEDGER_READ,
        query=schemas.ObservedAccountsQuery,
        responses=page_response(
            schemas.ObservedAccountSerializer, examples.OBSERVED_ACCOUNT, path="/v1/observations/holders", text="A page."
        ),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(schemas.ObservedAccountsQuery, request)
        page = cursors.requested_page(request, filters)
        accounts = reads.accounts(**filters, **page.ascending(), limit=page.rows_wanted)
        return json_response(page.response_body(accounts, keyset=lambda each: each.keyset, body=reads.ObservedAccount.shown))


class HolderPromotions(ShadowEndpoint):
    """Holders whose credits move into the ledger."""

    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "promoteHolders",
        "Move holders into the ledger",
        "The accounts of up to 500 observed holders begin with what the other system has, with the terms of its lots, each "
        "once: a repeated call moves nobody again, so it needs no Idempotency-Key. A holder with open differences moves only "
        "with a `reason`. The other system must decide nothing about them any more.",
        tag=SHADOW,
        scope=LEDGER_ADMIN,
        takes=RequestBody(shape_of(schemas.Promotions), {"a holder": examples.PROMOTIONS_BODY}),
        responses={200: ResponseBody(schemas.MoveResultsSerializer, examples.PROMOTIONS, "A result for each.")},
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        body = shape_of(schemas.Promotions).make(self.body(request, shape_of(schemas.Promotions)))
        moves = [Move(holder_id=each.holder, balances=each.balances or {}) for each in body.holders]
        done = promoting.promote(moves, reason=body.reason, actor=self.key.actor, request_id=self.request_id, dry_run=dry_run)
        return json_response({"results": [_moved_body(each) for each in done]})


class HolderReturns(ShadowEndpoint):
    """Holders whose credits go back."""

    @operation(
        "returnHolders",
        "Move holders back",
        "Takes all credits of up to 500 promoted holders out of the ledger, and says how many there were. A repeated call gets "
        "the same numbers, so it needs no Idempotency-Key. From then on they are observed again.",
        tag=SHADOW,
        scope=LEDGER_ADMIN,
        takes=RequestBody(shape_of(schemas.Returns), {"a holder": examples.RETURNS_BODY}),
        responses={200: ResponseBody(schemas.MoveResultsSerializer, examples.RETURNS, "A result for each.")},
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        body = self.body(request, shape_of(schemas.Returns))
        done = promoting.bring_back(
            body["holders"], reason=body["reason"], actor=self.key.actor, request_id=self.request_id, dry_run=dry_run
        )
        return json_response({"results": [_moved_body(each) for each in done]})


def _result(result: ObservationResult) -> dict[str, Any]:
    return {
        "idempotency_key": result.idempotency_key,
        "result": result.result,
        "id": result.id,
        "ledger_allows": result.ledger_allows,
        "ledger_balance": result.ledger_balance,
        "difference": result.difference,
        "detail": result.detail,
    }


def _moved_body(result: MoveResult) -> dict[str, Any]:
    return {"holder_id": result.holder_id, "result": result.result, "accounts": result.accounts, "detail": result.detail}
