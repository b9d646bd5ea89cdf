"""The span of a request, where traces are switched on."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ledger.rest.kit.front.request_metrics import label_of
from ledger.rest.kit.rendering import AnyResponse
from ledger.rest.kit.requests import FastRequest
from ledger.telemetry import tracing


@contextmanager
def request_span(headers: Mapping[str, str]) -> Iterator[Any]:
    """While the block runs, the span of a request: a child of the caller's span that `traceparent` names among the headers."""
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    with tracing.tracer.start_as_current_span("request", context=propagate.extract(headers), kind=SpanKind.SERVER) as span:
        yield span


async def respond_in_span(request: FastRequest, respond: Callable[[], Awaitable[AnyResponse]]) -> AnyResponse:
    """Return the response of `respond`, which runs within the span of the request.

    The span has the route and not the path, because a path may name a holder. `ledger.request_id` finds the request in the log.
    """
    with request_span(_headers(request)) as span:
        response = await respond()
        method, route, status = label_of(request, response)
        span.update_name(f"{method} {route}")
        attributes: dict[str, Any] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "ledger.request_id": request.request_id,
        }
        problem = getattr(response, "problem", None)
        if problem is not None:
            attributes["ledger.problem"] = problem["type"].rsplit("/", 1)[1]
        span.set_attributes(attributes)
        if status >= 500:
            _mark_failed(span)
        return response


def _mark_failed(span: Any) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


def _headers(request: FastRequest) -> dict[str, str]:
    return {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in request.META.items()
        if name.startswith("HTTP_")
    }
