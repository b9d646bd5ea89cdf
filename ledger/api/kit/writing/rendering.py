"""From Python to the bytes of a response. One format, JSON; times in UTC with microseconds and a Z."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import orjson
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.renderers import BaseRenderer

PDF: Final = "application/pdf"


class JSONRenderer(BaseRenderer):
    """The one renderer: hand it to any DRF view. `Endpoint` calls `json_response` directly."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return `data` as JSON."""
        return b"" if data is None else orjson.dumps(data)


@dataclass(slots=True)
class Response:
    """A response of an `Endpoint`, which the front sends as it is.

    It has what Django's response calls by the same names. No middleware sees it, and it takes a tenth of the time to make.
    """

    content: bytes
    status_code: int = 200
    headers: dict[str, str] = field(default_factory=dict)


AnyResponse = Response | HttpResponse | StreamingHttpResponse
"""What the front sends: a call's response, or what Django makes of a page, a problem or a file."""


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return a response that carries `body`, in the order of its keys, never to be cached."""
    return Response(orjson.dumps(body), status, {"Content-Type": "application/json", "Cache-Control": "no-store", **headers})


def pdf_response(content: bytes, *, file_name: str) -> Response:
    """Return a response that carries a PDF, for looking at or saving under that name (printable ASCII), never to be cached."""
    shown_as = f'inline; filename="{file_name}"'
    return Response(content, 200, {"Content-Type": PDF, "Cache-Control": "no-store", "Content-Disposition": shown_as})


def write_response(body: Any, *, replayed: bool, status: int = 201) -> Response:
    """Return the response to a write; a replayed one has the same body and says so in `Idempotency-Replayed`."""
    return json_response(body, status=status, headers={"Idempotency-Replayed": "true"} if replayed else {})


def time_text(at: datetime) -> str:
    """Return a time as RFC 3339 in UTC, always with six digits of the second: texts of one length sort as their times do."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def in_key_order(value: Any) -> Any:
    """Return JSON with the keys of every object sorted.

    jsonb gives keys back in its own order; sorted, a replayed response is the first one byte for byte.
    """
    if isinstance(value, dict):
        return {key: in_key_order(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [in_key_order(item) for item in value]
    return value
