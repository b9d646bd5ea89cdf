"""Calls about automatic top-ups."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import NO_CUSTOMER, PAYMENTS, BillingEndpoint, WriteEndpoint, list_operation
from billing.payments import topup_reads
from billing.payments.api import intent_schemas as schemas
from billing.payments.api.paths import TOP_UP_PATH
from billing.payments.errors import TopUpEnded
from billing.payments.topup_declarations import end_top_up, resume_top_up, set_top_up
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class TopUps(WriteEndpoint):
    """Automatic top-ups."""

    collection = "top-ups"
    location = "/v1/top-ups/{id}"
    get = list_operation(
        "listTopUps", "List automatic top-ups", "Newest first; also those that have ended.", tag=PAYMENTS, path="/v1/top-ups",
        query=schemas.TopUpsQuery, shape=schemas.TopUpSerializer, example=schemas.TOP_UP, rows=topup_reads.top_ups,
        problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "setTopUp", "Top an account up automatically",
        "When fewer credits than the `threshold` are available, the saved method is charged for `packs`, or for as many as it "
        "takes to have `up_to`. It replaces the top-up that the account had. Workers look every five seconds.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(schemas.TOP_UP_BODY, {"a top-up": schemas.TOP_UP_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.TopUpSerializer, schemas.TOP_UP, "The top-up.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            top_up = set_top_up.execute(schemas.TOP_UP_BODY.make(fields | {"actor": self.key.actor}))
            return 201, schemas.TopUpSerializer.body(topup_reads.top_up(top_up.pk))

        return self.once(request, schemas.TOP_UP_BODY, act)


class OneTopUp(BillingEndpoint):
    """One top-up."""

    @operation(
        "readTopUp", "Read an automatic top-up", "With the payment that is under way.",
        tag=PAYMENTS, scope=BILLING_READ, parameters=[TOP_UP_PATH],
        responses={200: ResponseBody(schemas.TopUpSerializer, schemas.TOP_UP, "The top-up.")},
        problems=[TOP_UP_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, top_up_id: int) -> Response:
        return json_response(schemas.TopUpSerializer.body(topup_reads.top_up(top_up_id)))


class _TopUpChange(WriteEndpoint):
    takes_nothing = True

    def _change(self, request: HttpRequest, top_up_id: int, change: Callable[..., Any]) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, schemas.TopUpSerializer.body(topup_reads.top_up(change(top_up=top_up_id).pk))

        return self.once(request, schemas.TOP_UP_CHANGE_BODY, act)


class ResumeTopUp(_TopUpChange):
    """Lets a paused top-up go on."""

    collection = "top-up-resumptions"

    @operation(
        "resumeTopUp", "Resume an automatic top-up", "Declines before now no longer count.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[TOP_UP_PATH],
        responses={200: ResponseBody(schemas.TopUpSerializer, schemas.TOP_UP, "The top-up.")},
        problems=[TOP_UP_PATH.missing, TopUpEnded(top_up=1)],
    )  # fmt: skip
    def post(self, request: HttpRequest, top_up_id: int) -> Response:
        return self._change(request, top_up_id, resume_top_up)


class EndTopUp(_TopUpChange):
    """Ends a top-up."""

    collection = "top-up-ends"

    @operation(
        "endTopUp", "End an automatic top-up", "A payment that is under way goes on.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[TOP_UP_PATH],
        responses={200: ResponseBody(schemas.TopUpSerializer, schemas.TOP_UP, "The top-up.")},
        problems=[TOP_UP_PATH.missing, TopUpEnded(top_up=1)],
    )  # fmt: skip
    def post(self, request: HttpRequest, top_up_id: int) -> Response:
        return self._change(request, top_up_id, end_top_up)
