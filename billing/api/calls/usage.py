"""Calls about usage events."""

from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import EVENT_PATH, NO_CUSTOMER, NO_SUBSCRIPTION, USAGE, BillingEndpoint, WriteEndpoint
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import NotFound
from billing.metering import usage
from billing.metering.corrections import Correction, take_in_all
from ledger.api.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.api.kit.reading import cursors
from ledger.api.kit.reading.parsing import BATCH_LIMIT_BYTES, read
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.request_errors import InvalidRequest
from ledger.api.kit.schema import RequestBody, ResponseBody, operation, page_example, page_of
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.database.load.pacing import with_pauses
from ledger.records import choice_errors, shape_of


class OneUsageEvent(BillingEndpoint):
    """One usage event."""

    @operation(
        "readUsageEvent", "Read a usage event", tag=USAGE, scope=BILLING_READ, parameters=[EVENT_PATH],
        responses={200: ResponseBody(response_schemas.UsageEventSerializer, examples.USAGE_EVENT, "The event.")},
        problems=[NotFound(resource="usage event", ref="call-8812")],
    )  # fmt: skip
    def get(self, request: HttpRequest, key: str) -> Response:
        return json_response(response_schemas.UsageEventSerializer.body(reads.usage_event(key)))


class UsageEvents(WriteEndpoint):
    """Usage events of meters."""

    collection = "usage-events"
    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "listUsageEvents", "List usage events",
        "All events, the latest use first; or only those of a subscription or of all subscriptions of a customer, and of a "
        "meter. Events that were billed long ago may have been removed.",
        tag=USAGE, scope=BILLING_READ, query=request_schemas.UsageEventsQuery, problems=[NO_CUSTOMER, NO_SUBSCRIPTION],
        responses={
            200: ResponseBody(
                page_of(response_schemas.UsageEventSerializer), page_example(examples.USAGE_EVENT, path="/v1/usage-events"),
                "A page of the list."
            )
        },
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(request_schemas.UsageEventsQuery, request)
        if {"subscription", "customer"} <= filters.keys():
            raise InvalidRequest(choice_errors(filters, (("subscription",), ("customer",)), ""))
        page = cursors.requested_page(request, filters)
        events = reads.usage_events(**filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(
            page.response_body(events, keyset=lambda event: event.keyset, body=response_schemas.UsageEventSerializer.body)
        )

    @operation(
        "takeInUsage", "Send usage events",
        "Up to 1,000 events, corrections and cancellations, each with a result. A key is permanently unique.",
        tag=USAGE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            shape_of(request_schemas.Usage),
            {"one event": examples.USAGE_BODY, "a correction and a cancellation": examples.CORRECTIONS_BODY},
        ),
        responses={200: ResponseBody(response_schemas.UsageResultsSerializer, examples.USAGE,
        "accepted, duplicate, conflict or invalid, for each.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        return self.once(request, request_schemas.Usage, lambda fields: (200, {"results": _taken_in(fields["events"])}))


def _taken_in(raw_events: list[Any]) -> list[dict[str, Any]]:
    good: list[usage.NewEvent | Correction] = []
    results: list[dict[str, Any] | None] = []
    for raw in with_pauses(raw_events):
        try:
            shape = request_schemas.event_shape(raw)
            good.append(shape.make(read(shape, raw)))
        except InvalidRequest as invalid:
            results.append(_invalid(raw, invalid))
            continue
        results.append(None)
    taken_in = map(response_schemas.UsageResultSerializer.body, take_in_all(good))
    return [result if result is not None else next(taken_in) for result in results]


def _invalid(raw: Any, invalid: InvalidRequest) -> dict[str, Any]:
    key = raw.get("idempotency_key") if isinstance(raw, dict) else None
    detail = "; ".join(f"{field_error.pointer}: {field_error.detail}" for field_error in invalid.field_errors)[:1000]
    result = usage.EventResult(key if isinstance(key, str) else None, usage.EventStatus.INVALID, detail)
    return response_schemas.UsageResultSerializer.body(result)
