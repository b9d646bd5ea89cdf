"""Calls about usage events."""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.http import HttpRequest

from billing import reads
from billing.api.calls import cloud_events
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
        "Up to 1,000 events, corrections and cancellations, each with a result. A key is permanently unique. The call also takes "
        "CloudEvents 1.0, one or a batch of them, and then needs no Idempotency-Key.",
        tag=USAGE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            shape_of(request_schemas.Usage),
            {"one event": examples.USAGE_BODY, "a correction and a cancellation": examples.CORRECTIONS_BODY},
            # A batch is a bare list, for which generated clients make code that they cannot check.
            {cloud_events.EVENT: (cloud_events.SCHEMA, examples.CLOUD_EVENT)},
        ),
        responses={200: ResponseBody(response_schemas.UsageResultsSerializer, examples.USAGE,
        "accepted, duplicate, conflict or invalid, for each.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        envelope = cloud_events.media_type(request)
        if envelope is None:
            return self.once(request, request_schemas.Usage, lambda fields: (200, {"results": _taken_in(fields["events"], OWN)}))
        events = cloud_events.events_in(request, envelope)
        return self.once(
            request, request_schemas.Usage, lambda fields: (200, {"results": _taken_in(fields["events"], ENVELOPES)}),
            raw={"events": events}, is_keyed=False,
        )  # fmt: skip


class Form(NamedTuple):
    """A form of events: how one is read, which raises `InvalidRequest`, and which key it has, before it is read."""

    read: Callable[[Any], usage.NewEvent | Correction]
    key: Callable[[Any], Any]


def _own_event(raw: Any) -> usage.NewEvent | Correction:
    shape = request_schemas.event_shape(raw)
    event: usage.NewEvent | Correction = shape.make(read(shape, raw))
    return event


OWN = Form(_own_event, lambda raw: raw.get("idempotency_key") if isinstance(raw, dict) else None)
ENVELOPES = Form(cloud_events.event_of, cloud_events.key_of)


def _taken_in(raw_events: list[Any], form: Form) -> list[dict[str, Any]]:
    good: list[usage.NewEvent | Correction] = []
    results: list[dict[str, Any] | None] = []
    for raw in with_pauses(raw_events):
        try:
            good.append(form.read(raw))
        except InvalidRequest as invalid:
            results.append(_invalid(form.key(raw), invalid))
            continue
        results.append(None)
    taken_in = map(response_schemas.UsageResultSerializer.body, take_in_all(good))
    return [result if result is not None else next(taken_in) for result in results]


def _invalid(key: Any, invalid: InvalidRequest) -> dict[str, Any]:
    detail = "; ".join(f"{field_error.pointer}: {field_error.detail}" for field_error in invalid.field_errors)[:1000]
    result = usage.EventResult(key if isinstance(key, str) else None, usage.EventStatus.INVALID, detail)
    return response_schemas.UsageResultSerializer.body(result)
