"""Switches traces on if LEDGER_TRACING is set."""

import os
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ledger.telemetry import tracing
from ledger.version import VERSION

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
    if tracing.statement_span not in connection.execute_wrappers:
        connection.execute_wrappers.append(tracing.statement_span)
