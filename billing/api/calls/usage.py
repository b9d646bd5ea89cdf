"""Calls about meters and usage events."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from django.http import HttpRequest

from billing import reads
from billing.api.calls import cloud_events
from billing.api.endpoints import NO_CUSTOMER, NO_SUBSCRIPTION, USAGE, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import EVENT_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import NotFound
from billing.metering import usage
from billing.metering.corrections import Correction, take_in_all
from billing.metering.meters import NewMeter, create_meter
from ledger.database.pacing import with_pauses
from ledger.records import choice_errors, shape_of
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.parsing import BATCH_LIMIT_BYTES, read
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import InvalidRequest
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response


class Meters(WriteEndpoint):
    """Meters whose events have a quantity that an expression computes."""

    collection = "meters"
    location = "/v1/meters/{ref}?version={version}"
    get = list_operation(
        "listMeters", "List meters", "Every version, newest first. A meter without an expression need not be created.",
        tag=USAGE, path="/v1/meters", query=request_schemas.MetersQuery, shape=response_schemas.MeterSerializer,
        example=examples.METER, rows=reads.meters,
    )  # fmt: skip

    @operation(
        "createMeter", "Create a meter",
        "Creates a meter, or its next version: versions never change. The expression computes the value of each event that is "
        "recorded from then on; recorded events keep their value.",
        tag=USAGE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(shape_of(NewMeter), {"tokens": examples.METER_BODY}),
        responses={201: ResponseBody(response_schemas.MeterSerializer, examples.METER, "The new version.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 201, response_schemas.MeterSerializer.body(create_meter.execute(shape_of(NewMeter).make(fields)))

        return self.once(request, NewMeter, act)


class OneMeter(BillingEndpoint):
    """One meter."""

    @operation(
        "readMeter", "Read a meter", "The newest version, or the version that the request names.",
        tag=USAGE, scope=BILLING_READ, parameters=[REF_PATH], query=request_schemas.PlanQuery,
        responses={200: ResponseBody(response_schemas.MeterSerializer, examples.METER, "The version.")},
        problems=[NotFound(resource="meter", ref="tokens")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(
            response_schemas.MeterSerializer.body(reads.meter(ref, **read_query(request_schemas.PlanQuery, request)))
        )


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
        responses=page_response(
            response_schemas.UsageEventSerializer, examples.USAGE_EVENT, path="/v1/usage-events", text="A page of the list."
        ),
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
        "accepted, duplicate, conflict, invalid or refused, for each.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        envelope = cloud_events.media_type(request)
        if envelope is None:
            return self.once(request, request_schemas.Usage, lambda fields: (200, {"results": _taken_in(OWN, **fields)}))
        events = cloud_events.events_in(request, envelope)
        return self.once(
            request, request_schemas.Usage, lambda fields: (200, {"results": _taken_in(ENVELOPES, **fields)}),
            raw={"events": events}, is_keyed=False,
        )  # fmt: skip


class Form(NamedTuple):
    """A form of events.

    Args:
        read: reads an event, or raises `InvalidRequest`.
        key: returns the key of an event that is not read.
        pointer: returns the place of a field of the event.
    """

    read: Callable[[Any], usage.NewEvent | Correction]
    key: Callable[[Any], Any]
    pointer: Callable[[str], str]


def _own_event(raw: Any) -> usage.NewEvent | Correction:
    shape = request_schemas.event_shape(raw)
    event: usage.NewEvent | Correction = shape.make(read(shape, raw))
    return event


OWN = Form(_own_event, lambda raw: raw.get("idempotency_key") if isinstance(raw, dict) else None, str)
ENVELOPES = Form(cloud_events.event_of, cloud_events.key_of, cloud_events.in_envelope)


def _taken_in(form: Form, events: list[Any], *, allow_future: bool = False) -> list[dict[str, Any]]:
    good: list[usage.NewEvent | Correction] = []
    results: list[dict[str, Any] | None] = []
    for raw in with_pauses(events):
        try:
            good.append(form.read(raw))
        except InvalidRequest as invalid:
            results.append(_invalid(form.key(raw), invalid))
            continue
        results.append(None)
    taken_in = (
        response_schemas.UsageResultSerializer.body(_place_result(one, form))
        for one in take_in_all(good, allow_future=allow_future)
    )
    return [result if result is not None else next(taken_in) for result in results]


def _place_result(one: usage.EventResult, form: Form) -> usage.EventResult:
    """Return a result whose detail names the field in the form that was sent."""
    return replace(one, detail=f"{form.pointer(one.pointer)}: {one.detail}") if one.pointer else one


def _invalid(key: Any, invalid: InvalidRequest) -> dict[str, Any]:
    detail = "; ".join(f"{field_error.pointer}: {field_error.detail}" for field_error in invalid.field_errors)[:1000]
    result = usage.EventResult(key if isinstance(key, str) else None, usage.EventStatus.INVALID, detail)
    return response_schemas.UsageResultSerializer.body(result)
