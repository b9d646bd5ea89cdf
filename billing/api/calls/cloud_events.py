"""Usage events in the envelope of CloudEvents 1.0, in its structured JSON form: one event, or a batch.

Source: CloudEvents 1.0.2, core specification, JSON event format, JSON batch format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from django.http import HttpRequest

from billing.metering.usage import EnvelopedEvent
from ledger.records import Record, shape_of
from ledger.rest.kit.parsing import JSON, parse_array, parse_object, read
from ledger.rest.kit.request_errors import InvalidRequest, UnsupportedMediaType
from ledger.values import Choice, FieldError, InvalidValue, Text, Value, json_name

EVENT: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
_CONTENT_TYPE: Final = re.compile(r'(application/cloudevents(?:-batch)?\+json)(?:\s*;\s*charset="?utf-8"?)?', re.IGNORECASE)
_FURTHER_DIGITS: Final = re.compile(r"(\.\d{6})\d+")
PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
VALUE: Final = "value"
"""The member of `data` that is the value; without it, an event counts 1, unless its meter computes the value."""

_ABSENT: Final = object()


class EventData(Value):
    """The payload of an event: an object."""

    def read(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, kw_only=True)
class CloudEvent(Record):
    """A usage event in an envelope. Further attributes are ignored."""

    specversion: Annotated[str, Choice(("1.0",), "The version of CloudEvents.")]
    id: Annotated[str, Text("With the source, the key of the event.", most=255, least=1)]
    source: Annotated[str, Text("What produced the event.", most=255, least=1, pattern=r"[^\s]+")]
    type: Annotated[str, Text("The meter that counts it.", most=64, least=1)]
    subject: Annotated[str, Text("The subscription that used it.", most=64, least=1)]
    time: Annotated[str, Text("When; digits beyond microseconds are cut off.", most=40, least=1)]
    datacontenttype: Annotated[
        str, Text("JSON, which is the default.", most=100, pattern=r"[A-Za-z]+/([^;]+\+)?[Jj][Ss][Oo][Nn](;.*)?")
    ] = "application/json"
    data: Annotated[
        dict[str, Any] | None, EventData("`value`, by default 1 or what the meter computes, and the properties of the event.")
    ] = None


SHAPE: Final = shape_of(CloudEvent)
USAGE_EVENT: Final = shape_of(EnvelopedEvent)
SCHEMA: Final = {
    "type": "object",
    "required": [field.name for field in SHAPE.fields if field.required],
    "properties": {field.name: field.value.openapi() | {"description": field.value.text} for field in SHAPE.fields},
    "additionalProperties": True,
}
_ATTRIBUTES: Final = {
    "idempotency_key": "id", "subscription": "subject", "meter": "type", "value": "data/value", "occurred_at": "time",
    "properties": "data",
}  # fmt: skip
"""The fields of an event by the attributes of its envelope."""


def media_type(request: HttpRequest) -> str | None:
    """Return the type of the envelope that the request declares; None for another body.

    Raises:
        UnsupportedMediaType: another format or charset of CloudEvents, or a compressed body.
    """
    declared = request.META.get("CONTENT_TYPE", "").strip()
    if not declared.lower().startswith("application/cloudevents"):
        return None
    known = _CONTENT_TYPE.fullmatch(declared)
    if known is None or request.META.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(accepted=f"{JSON}, {EVENT}, {BATCH}")
    return known[1].lower()


def events_in(request: HttpRequest, envelope: str) -> list[Any]:
    """Return the events of a body, not checked.

    Raises:
        MalformedRequest: not one JSON object; of a batch, not one array.
    """
    body: bytes | Exception = request.raw_body  # type: ignore[attr-defined]
    if isinstance(body, Exception):
        raise body
    return parse_array(body) if envelope == BATCH else [parse_object(body)]


def key_of(raw: Any) -> str | None:
    """Return the key of an event: its source and id, which together are unique; None if it lacks one of them."""
    if not isinstance(raw, Mapping) or not all(isinstance(raw.get(name), str) for name in ("source", "id")):
        return None
    return f"{quote(raw['source'], safe=PRINTABLE)} {quote(raw['id'], safe=PRINTABLE)}"


def event_of(raw: Any) -> EnvelopedEvent:
    """Return the usage event in an envelope.

    Raises:
        InvalidRequest: the envelope or the event is invalid; pointers name the attributes of the envelope.
    """
    known = {name: item for name, item in raw.items() if name in SHAPE.names} if isinstance(raw, dict) else raw
    fields = read(SHAPE, known)
    if "data_base64" in raw:
        raise InvalidRequest([FieldError("/data_base64", "not-used", "Send JSON in data.")])
    data = dict(fields.get("data") or {})
    value = data.pop(VALUE, _ABSENT)
    event = {
        "idempotency_key": key_of(raw),
        "subscription": fields["subject"],
        "meter": fields["type"],
        "occurred_at": _FURTHER_DIGITS.sub(r"\1", fields["time"]),
        "properties": data,
    }
    if value is not _ABSENT:
        # The shortest text that reads back as the same float is the text that the client sent.
        event[VALUE] = repr(value) if isinstance(value, float) else value
    try:
        return USAGE_EVENT.make(read(USAGE_EVENT, event))
    except InvalidRequest as invalid:
        raise InvalidRequest([error._replace(pointer=in_envelope(error.pointer)) for error in invalid.field_errors]) from None


def in_envelope(pointer: str) -> str:
    """Return the attribute of the envelope for a field of its event."""
    field, slash, rest = pointer.removeprefix("/").partition("/")
    return f"/{_ATTRIBUTES[field]}{slash}{rest}" if field else ""
