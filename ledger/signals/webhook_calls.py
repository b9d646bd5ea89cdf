"""Webhooks: the destinations of signals, the signals sent to them, and the results."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from ledger.json_values import in_key_order
from ledger.records import Shape
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import SIGNALS_READ, SIGNALS_WRITE, Key
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.parsing import read, read_body
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response, write_response
from ledger.rest.kit.request_errors import NotFound
from ledger.rest.kit.requests import dry_run_key, idempotency_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response
from ledger.signals import examples, reads, schemas
from ledger.signals import webhooks as use_cases
from ledger.signals.errors import WebhookNotFound, WebhookRotating
from ledger.signals.models import Webhook
from ledger.signals.reads import time_or_none
from ledger.signals.schemas import (
    SIGNAL_PATH,
    WEBHOOK_PATH,
    DeliveryBodySerializer,
    DeliveryDetailsSerializer,
    WebhookBodySerializer,
)
from ledger.signals.webhooks import WebhookWrite, Written

SIGNALS = "Signals"
NO_WEBHOOK = WebhookNotFound(webhook=1)
NOTHING = schemas.WEBHOOK_NOTHING


class SignalsEndpoint(Endpoint):
    """Webhooks are of the ledger as a whole: a key for one holder sees none of them."""

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        super().admit(key, path)
        if key.holder_id is not None:
            raise NotFound

    def once(
        self, request: HttpRequest, body: Shape[Any], execute: Callable[[Any], Written], *, status: int = 200, **named: Any
    ) -> Response:
        """Read the body, execute it at most once for its key, and respond.

        Args:
            named: what the path gives.
        """
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        is_empty = self.takes_nothing and request.META.get("CONTENT_LENGTH") in (None, "", "0")
        fields = read(body, {} if is_empty else read_body(request))
        options = {"actor": self.key.actor, "request_id": self.request_id, "idempotency_key": key, "dry_run": dry_run}
        made: WebhookWrite = body.declared(**fields, **named, **options) if named else body.make(fields | options)
        written = execute(made)
        shown = in_key_order(written.body)
        return write_response(shown, replayed=written.replayed, status=200 if dry_run else status, location=self.location)


class Webhooks(SignalsEndpoint):
    """Webhooks are made, and listed."""

    location = "/v1/webhooks/{id}"

    @operation(
        "createWebhook",
        "Create a webhook",
        "From now on, the ledger sends signals of the chosen types to the URL, signed as Standard Webhooks says, at least once, "
        "and in order for each holder. The response has the secret, which no later response except a rotation shows.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        takes=RequestBody(schemas.WEBHOOK, {"a webhook": examples.WEBHOOK_BODY}),
        responses={201: ResponseBody(WebhookBodySerializer, examples.NEW_WEBHOOK, "The webhook.")},
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        return self.once(request, schemas.WEBHOOK, use_cases.create_webhook, status=201)

    @operation(
        "listWebhooks",
        "List webhooks",
        "Newest first, without those that were removed.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        query=schemas.WebhooksQuery,
        responses=page_response(WebhookBodySerializer, examples.LISTED_WEBHOOK, path="/v1/webhooks", text="A page of webhooks."),
    )
    def get(self, request: HttpRequest) -> Response:
        page = cursors.requested_page(request, read_query(schemas.WebhooksQuery, request))
        webhooks = reads.webhooks(**page.newest_first(), limit=page.rows_wanted)
        failing = reads.failing_since([webhook.pk for webhook in webhooks])
        return json_response(
            page.response_body(webhooks, keyset=lambda webhook: (webhook.pk,), body=lambda webhook: _list_item(webhook, failing))
        )


def _list_item(webhook: Webhook, failing: Mapping[int, Any]) -> dict[str, Any]:
    return use_cases.shown(webhook) | {"failing_since": time_or_none(failing.get(webhook.pk))}


class OneWebhook(SignalsEndpoint):
    """One webhook."""

    @operation(
        "readWebhook",
        "Read a webhook",
        "Also shows since when its attempts have failed.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        parameters=[WEBHOOK_PATH],
        responses={200: ResponseBody(WebhookBodySerializer, examples.LISTED_WEBHOOK, "The webhook.")},
        problems=[NO_WEBHOOK],
    )
    def get(self, request: HttpRequest, webhook: int) -> Response:
        return json_response(_list_item(use_cases.present(webhook), reads.failing_since([webhook])))

    @operation(
        "changeWebhook",
        "Change a webhook",
        "Fields that are left out do not change. `enabled: true` sends the signals that were kept while it was disabled.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[WEBHOOK_PATH],
        takes=RequestBody(schemas.WEBHOOK_CHANGE, {"enabled again": {"enabled": True}}),
        responses={200: ResponseBody(WebhookBodySerializer, examples.WEBHOOK, "The webhook after the change.")},
        problems=[NO_WEBHOOK],
        idempotent=True,
        dry_run=True,
    )
    def patch(self, request: HttpRequest, webhook: int) -> Response:
        return self.once(request, schemas.WEBHOOK_CHANGE, use_cases.change_webhook, webhook=webhook)

    takes_nothing = True

    @operation(
        "removeWebhook",
        "Remove a webhook",
        "The webhook gets no more signals, not even pending ones.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[WEBHOOK_PATH],
        responses={200: ResponseBody(WebhookBodySerializer, {**examples.WEBHOOK, "state": "removed"}, "The webhook as it was.")},
        problems=[NO_WEBHOOK],
        idempotent=True,
        dry_run=True,
    )
    def delete(self, request: HttpRequest, webhook: int) -> Response:
        return self.once(request, REMOVAL, use_cases.remove_webhook, webhook=webhook)


def _without_fields(declared: type[WebhookWrite]) -> Shape[Any]:
    return Shape(declared, name=NOTHING.name, without=use_cases.REQUEST_OPTIONS | {"webhook"})


REMOVAL, PING, RESENDING = map(_without_fields, (use_cases.WebhookRemovalRequest, use_cases.PingRequest, use_cases.ResendRequest))


class Rotation(SignalsEndpoint):
    """A webhook's secret."""

    @operation(
        "rotateWebhookSecret",
        "Rotate the secret of a webhook",
        "The response has the new secret. Until `former_until`, both secrets sign each request, so that receivers can switch "
        "without losing a signal.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[WEBHOOK_PATH],
        takes=RequestBody(schemas.WEBHOOK_ROTATION, {"with a day for both": {"former_until": "2027-01-31T00:00:00Z"}}),
        responses={
            200: ResponseBody(
                WebhookBodySerializer,
                {**examples.NEW_WEBHOOK, "rotated_at": examples.RECORDED_AT, "former_until": "2027-01-31T00:00:00.000000Z"},
                "The webhook with its new secret.",
            )
        },
        problems=[NO_WEBHOOK, WebhookRotating(former_until="2027-01-31T00:00:00.000000Z")],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest, webhook: int) -> Response:
        return self.once(request, schemas.WEBHOOK_ROTATION, use_cases.rotate_secret, webhook=webhook)


class Ping(SignalsEndpoint):
    """A test of a webhook."""

    takes_nothing = True

    @operation(
        "pingWebhook",
        "Test a webhook",
        "Sends a signal of type `webhook.ping` to this webhook only, in the next round of a worker.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[WEBHOOK_PATH],
        responses={200: ResponseBody(DeliveryDetailsSerializer, examples.DELIVERY_DETAILS, "The delivery.")},
        problems=[NO_WEBHOOK],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest, webhook: int) -> Response:
        return self.once(request, PING, use_cases.ping, webhook=webhook)


class Deliveries(SignalsEndpoint):
    """The signals that a webhook got or will get."""

    @operation(
        "listDeliveries",
        "List the deliveries of a webhook",
        "Newest first. Deliveries are kept for LEDGER_SIGNAL_KEPT_DAYS.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        parameters=[WEBHOOK_PATH],
        query=schemas.DeliveriesQuery,
        responses=page_response(
            DeliveryBodySerializer, examples.DELIVERY, path="/v1/webhooks/1/deliveries", text="A page of deliveries."
        ),
        problems=[NO_WEBHOOK],
    )
    def get(self, request: HttpRequest, webhook: int) -> Response:
        filters = read_query(schemas.DeliveriesQuery, request)
        page = cursors.requested_page(request, filters)
        use_cases.present(webhook)
        deliveries = reads.deliveries(webhook, **filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(deliveries, keyset=lambda row: (row["number"],), body=dict))


class OneDelivery(SignalsEndpoint):
    """One delivery."""

    @operation(
        "readDelivery",
        "Read a delivery",
        "The signal as it is sent, and the result of each attempt.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        parameters=[WEBHOOK_PATH, SIGNAL_PATH],
        responses={200: ResponseBody(DeliveryDetailsSerializer, examples.DELIVERY_DETAILS, "The delivery.")},
        problems=[NO_WEBHOOK],
    )
    def get(self, request: HttpRequest, webhook: int, signal: UUID) -> Response:
        use_cases.present(webhook)
        return json_response(reads.delivery(webhook, signal))


class Resending(SignalsEndpoint):
    """A delivery once more."""

    takes_nothing = True

    @operation(
        "resendDelivery",
        "Send a signal again",
        "Works for a delivered signal and for one that was given up. The signal keeps its id, and comes before the pending "
        "signals of its holder.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[WEBHOOK_PATH, SIGNAL_PATH],
        responses={
            200: ResponseBody(DeliveryDetailsSerializer, {**examples.DELIVERY_DETAILS, "state": "pending"}, "The delivery.")
        },
        problems=[NO_WEBHOOK],
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest, webhook: int, signal: UUID) -> Response:
        return self.once(request, RESENDING, use_cases.resend, webhook=webhook, signal=signal)
