"""Spans of OpenTelemetry, by setting. Switched off, nothing of OpenTelemetry is loaded, and a hook is one comparison.

docs/how-to/operations/monitoring.md says what is traced.

A span is the child of the span in whose context it begins. Contexts go with a request into the queues (`queues.py`), so the span
of the committer's work for a group is a child of the first request's span, with links to the others.
"""

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

tracer: Any = None
"""Makes the spans; None while spans are switched off."""
_flush: Callable[[], Any] = lambda: None  # noqa: E731


def switch_on(made_by: Any, flush: Callable[[], Any] = lambda: None) -> None:
    """Make spans from now on.

    Args:
        made_by: a tracer of `opentelemetry.trace`; flush: sends the spans that have ended and are not sent yet.
    """
    global tracer, _flush
    tracer, _flush = made_by, flush


def switch_off() -> None:
    """Send the remaining spans, and make no more."""
    global tracer
    tracer = None
    _flush()


def flush() -> None:
    """Send the spans that have ended; called when the process ends."""
    if tracer is not None:
        _flush()


def in_span(name: str, execute: Callable[..., Any], contexts: Sequence[Context]) -> Callable[..., Any]:
    """Return `execute` with a span around it, if it runs within a recorded span.

    Args:
        contexts: of the requests that are executed together; `execute` runs in that of the first, the others are linked.
    """
    from opentelemetry import trace

    def traced(*arguments: Any, **named: Any) -> Any:
        if not trace.get_current_span().is_recording():
            return execute(*arguments, **named)
        links = [trace.Link(each.run(trace.get_current_span).get_span_context()) for each in contexts[1:]]
        with tracer.start_as_current_span(name, links=links, attributes={"ledger.group.size": len(contexts)}):
            return execute(*arguments, **named)

    return traced
