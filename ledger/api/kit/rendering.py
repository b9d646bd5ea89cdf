"""From Python to the bytes of a response. One format, JSON; times in UTC with microseconds and a Z."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer

from ledger.api.kit.request_errors import NotAcceptable

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


def json_response(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, content_type: str = "application/json"
) -> HttpResponse:
    """Return a response that carries `body`, in the order of its keys, never to be cached."""
    response = HttpResponse(orjson.dumps(body), status=status, content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    if headers:
        for name, value in headers.items():
            response.headers[name] = value
    return response


def pdf_response(content: bytes, *, file_name: str) -> HttpResponse:
    """Return a response that carries a PDF, for looking at or saving under that name (printable ASCII), never to be cached."""
    response = HttpResponse(content, content_type=PDF)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Disposition"] = f'inline; filename="{file_name}"'
    return response


def write_response(body: Any, *, replayed: bool, status: int = 201) -> HttpResponse:
    """Return the response to a write; a replayed one has the same body and says so in `Idempotency-Replayed`."""
    return json_response(body, status=status, headers={"Idempotency-Replayed": "true"} if replayed else None)


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


def ensure_acceptable(accept: str | None, served: str = "application/json") -> None:
    """Return if a client with this Accept header takes what is served, or raise `NotAcceptable`. Source: RFC 9110, 12.5.1."""
    if not accept or accept in ("*/*", served):
        return
    ranges = {served: 2, served.partition("/")[0] + "/*": 1, "*/*": 0}
    best, quality = -1, 0.0
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        precision = ranges.get(name, -1)
        if precision > best:
            best, quality = precision, _quality(parameters)
    if quality <= 0:
        raise NotAcceptable(served=served)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
