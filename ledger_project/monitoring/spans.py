"""Switches traces on if LEDGER_TRACING is set."""

import os
import re
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ledger.telemetry import tracing
from ledger.version import VERSION

COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
NAME = "credit-ledger"
MISSING = "LEDGER_TRACING needs OpenTelemetry: pip install --require-hashes --no-deps -r requirements-tracing.txt"


def start_tracing() -> None:
    """Send spans from now on, or do nothing if the setting is off. Call it in each process, after the fork.

    OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_SAMPLER, set where they go and how many.

    Raises:
        ImproperlyConfigured: the setting is on, and the packages are not installed.
    """
    if not settings.TRACING:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImproperlyConfigured(MISSING) from error
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": NAME}
    provider = TracerProvider(resource=Resource.create({"service.version": VERSION, **named}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace_with(provider)


def trace_with(provider: Any) -> None:
    """Make spans with this provider, also of statements, on open and later connections."""
    tracing.switch_on(provider.get_tracer(NAME, VERSION), provider.force_flush)
    connection_created.connect(_trace_statements, dispatch_uid="ledger_project.monitoring.spans")
    for connection in connections.all(initialized_only=True):
        _trace_statements(sender=None, connection=connection)


def _trace_statements(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if statement_span not in connection.execute_wrappers:
        connection.execute_wrappers.append(statement_span)


def statement_span(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    """A span for a statement within another span. A wrapper for Django's `execute_wrappers`.

    It has the text of the statement with its placeholders: no parameter, and no comment, which may name a holder.
    """
    if tracing.tracer is None:
        return execute(sql, params, many, context)
    from opentelemetry import trace

    if not trace.get_current_span().is_recording():
        return execute(sql, params, many, context)
    text = " ".join(COMMENT.sub("", str(sql)).split())
    operation = text.partition(" ")[0].upper()
    attributes = {"db.system.name": "postgresql", "db.operation.name": operation, "db.query.text": text}
    with tracing.tracer.start_as_current_span(operation, kind=trace.SpanKind.CLIENT, attributes=attributes):
        return execute(sql, params, many, context)
