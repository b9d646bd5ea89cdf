"""Traces: a request, what is executed for it and each statement are spans of the caller's trace, where the setting is on."""

import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextvars import copy_context
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ledger import services
from ledger.database.queues import Pending, Queue
from ledger.keys import api_keys
from ledger.rest.kit import authentication
from ledger.rest.kit.front.request_traces import request_span
from ledger.telemetry import tracing
from ledger_project.monitoring.spans import start_tracing, statement_span, trace_with
from tests.conftest import WebProcess
from tests.deployment.serving.test_serve import wait_until
from tests.ledger.rest.conftest import ApiClient

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLERS = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-00"}

Spans = Callable[[], list[Any]]


@pytest.fixture
def spans(db: None) -> Iterator[Spans]:
    """Switches traces on; gives the spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_with(provider)
    yield lambda: list(exporter.get_finished_spans())
    tracing.switch_off()
    connection.execute_wrappers.remove(statement_span)


@pytest.fixture
def api(db: None) -> Iterator[ApiClient]:
    """A client whose holder `ada` has 10 credits."""
    authentication.forget_keys()
    yield ApiClient(api_keys.create_api_key(name="traced", scopes=("ledger:read", "ledger:spend", "ledger:grant"))[1])
    authentication.forget_keys()


def test_a_spend_is_one_trace_from_the_caller_to_the_statements(api: ApiClient, spans: Spans) -> None:
    services.grant(holder_id="ada-lovelace", amount=10, idempotency_key="g")
    assert spans() == []  # what is asked for outside a request is not traced
    response = api.post("/v1/holders/ada-lovelace/spends", {"amount": 4, "reason": "a secret"}, key="s", **CALLERS)
    found = spans()
    assert {f"{span.context.trace_id:032x}" for span in found} == {TRACE}
    (request,) = [span for span in found if span.kind is SpanKind.SERVER]
    assert (request.name, f"{request.parent.span_id:016x}") == ("POST /v1/holders/{holder}/spends", CALLER)
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/holders/{holder}/spends",
        "http.response.status_code": 201,
        "ledger.request_id": response["X-Request-Id"],
    }
    (group,) = [span for span in found if span.name == "ledger-committer"]
    assert (group.parent.span_id, dict(group.attributes)) == (request.context.span_id, {"ledger.group.size": 1})
    statements = [span for span in found if span.parent.span_id == group.context.span_id]
    assert [span.name for span in statements if "ledger_entry" in span.attributes["db.query.text"]] == ["INSERT"]
    assert any("ledger_open($1" in span.attributes["db.query.text"] for span in statements)
    text = str([span.to_json() for span in found])
    assert [word for word in ("ada-lovelace", "a secret", api.secret) if word in text] == []


def test_a_refusal_names_its_problem_and_an_error_of_ours_is_one(api: ApiClient, spans: Spans) -> None:
    api.post("/v1/holders/ada/spends", {"amount": 11})
    (refused,) = [span for span in spans() if span.kind is SpanKind.SERVER]
    assert (refused.attributes["ledger.problem"], refused.status.status_code) == ("insufficient-credits", StatusCode.UNSET)
    api.get("/v1/holders/ada/balance", Accept="text/csv")
    assert spans()[-1].attributes["http.response.status_code"] == 406
    assert spans()[-1].parent is None


def test_a_request_that_its_caller_does_not_record_and_a_probe_make_no_span(api: ApiClient, spans: Spans) -> None:
    api.post("/v1/holders/ada/grants", {"amount": 1}, **UNSAMPLED)
    for path in ("/healthz", "/readyz"):
        api.get(path)
    assert spans() == []


def test_what_is_executed_for_a_group_is_linked_with_each_of_its_requests(spans: Spans) -> None:
    group, requests = [], []
    for number in range(3):
        with request_span({}) as span:
            group.append(Pending(number, lambda done: None))
            requests.append(span.get_span_context())
    executed: list[Any] = []
    # The spans of requests are still open while their group is executed.
    with request_span({}) as open_span:
        group[0].context = copy_context()
        Queue("a-queue", lambda asked: executed.append(asked) or asked)._outcomes(group)
    (of_group,) = [span for span in spans() if span.name == "a-queue"]
    assert executed == [[0, 1, 2]]
    assert of_group.parent.span_id == open_span.get_span_context().span_id
    assert [link.context.span_id for link in of_group.links] == [each.span_id for each in requests[1:]]
    assert of_group.attributes["ledger.group.size"] == 3


def test_a_comment_that_names_a_holder_is_left_out(spans: Spans) -> None:
    with request_span({}), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s) /* ledger/ada */", [1])
    (statement,) = [span for span in spans() if span.kind is SpanKind.CLIENT]
    assert statement.attributes["db.query.text"] == "SELECT pg_advisory_xact_lock(%s)"


def test_without_the_packages_the_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "TRACING", True)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ImproperlyConfigured, match=r"-r requirements-tracing\.txt"):
        start_tracing()
    assert tracing.tracer is None


@pytest.mark.slow
def test_a_web_server_sends_its_spans_to_the_collector(server_processes: Callable[..., list[WebProcess]]) -> None:
    received: list[str] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in sent.resource_spans:
                service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
                received.extend(f"{service}: {span.name}" for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{collector.server_port}"
        environment = {"LEDGER_TRACING": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        (web,) = server_processes(1, env=environment)
        urllib.request.urlopen(f"{web.url}/v1/", timeout=60).close()
        wait_until(lambda: "credit-ledger: GET /v1/" in received, "the span arrives")
    finally:
        collector.shutdown()
        collector.server_close()
