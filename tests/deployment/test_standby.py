"""A server that takes no writes, a standby or one that was made read-only: who asks is told so, and reads go on."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from ledger.rest.calls import health
from ledger_project.monitoring import server_checks
from ledger_project.monitoring.findings import CheckState
from ledger_project.serving.postgres.server import Server
from tests.asgi_client import AsgiClient
from tests.billing.factories import metered, recurring
from tests.conftest import WebProcess, web_servers
from tests.deployment.servers import call, folder, manage, promote, standby_of, started

WRITTEN = (
    "ledger_entry", "billing_requestkey", "billing_plan", "billing_customer", "billing_subscription", "billing_usageevent",
    "billing_invoice",
)  # fmt: skip
STANDBY = "the server is a standby, which only reads"
READ_ONLY = "transactions are read-only (default_transaction_read_only)"


@pytest.fixture(scope="module")
def standby() -> Iterator[Server]:
    """A standby of a prepared server, in which ada has 100 credits and a subscription."""
    with started() as primary:
        manage(primary, "prepare_database")
        store(primary)
        with standby_of(primary) as found:
            yield found


PLAN = {
    "ref": "basic", "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1},
    "prices": [recurring(tax_rate="20"), metered(tax_rate="20")],
}  # fmt: skip
CUSTOMER = {"ref": "ada", "name": "Ada", "currency": "EUR"}
SUBSCRIPTION = {"ref": "ada-1", "customer": "ada", "plan": "basic", "started_at": "2026-01-01T00:00:00Z"}
USAGE = {
    "idempotency_key": "call-1", "subscription": "ada-1", "meter": "calls", "value": 10, "occurred_at": "2026-01-10T00:00:00Z",
}  # fmt: skip
STORED_FIRST = (
    ("/v1/holders/ada/grants", {"amount": 100}),
    ("/v1/plans", PLAN),
    ("/v1/customers", CUSTOMER),
    ("/v1/subscriptions", SUBSCRIPTION),
)
REFUSED = (
    *((f"/v1/holders/ada/{path}", {"amount": 1}) for path in ("spends", "grants", "holds")),
    ("/v1/plans", PLAN | {"ref": "other"}),
    ("/v1/customers", CUSTOMER | {"ref": "bea"}),
    ("/v1/subscriptions", SUBSCRIPTION | {"ref": "ada-2"}),
    ("/v1/usage-events", {"events": [USAGE]}),
    ("/v1/subscriptions/ada-1/invoices", {"as_of": "2026-02-01T00:00:00Z"}),
)
"""Writes of the ledger and of billing, each of which a server executes that takes writes."""


def store(server: Server) -> None:
    """Give ada 100 credits, and a subscription that is due, over HTTP."""
    with folder() as logs, web_servers(logs) as start:
        (web,) = start(1, dsn=server.application_url)
        for path, body in STORED_FIRST:
            status, answer = call(web.url, path, f"first {path}", body)
            assert status == 201, answer


@pytest.fixture
def web(standby: Server, tmp_path: Path) -> Iterator[WebProcess]:
    """A web server at the standby."""
    with web_servers(tmp_path) as start:
        yield start(1, dsn=standby.application_url)[0]


def rows(server: Server) -> list[int]:
    """How many rows each table has that a write of the ledger or of billing adds to."""
    with psycopg.connect(server.application_url) as session:
        return [next(session.execute(f"SELECT count(*) FROM {table}"))[0] for table in WRITTEN]


@pytest.mark.slow
def test_a_standby_is_not_ready_for_writes_until_it_is_promoted(standby: Server, web: WebProcess) -> None:
    status, body = call(web.url, "/readyz")
    assert (status, body["status"]) == (503, "not-ready")
    assert body["checks"] == {"database": "ok", "migrations": "ok", "locks": "ok", "writes": STANDBY}
    assert (call(web.url, "/readyz?reads_only=true")) == (200, {"status": "ready", "checks": body["checks"]})
    stored = rows(standby)
    for path, asked in REFUSED:
        status, body = call(web.url, path, f"while it reads {path}", asked)
        assert (status, body["type"].rsplit("/", 1)[1], body["outcome"]) == (503, "database-unavailable", "not_executed"), path
    assert rows(standby) == stored
    assert call(web.url, "/v1/holders/ada/balance")[1]["balance"] == 100
    found = {each["check"]: each for each in json.loads(manage(standby, "doctor", "--format", "json", codes=(2,)))["checks"]}
    assert (found["Writes"]["state"], found["Writes"]["text"]) == ("FAILED", f"Every write gets 503: {STANDBY}.")
    assert "Clean: no violations found." in manage(standby, "audit_ledger")

    promote(standby)
    assert call(web.url, "/readyz")[0] == 200
    assert {call(web.url, path, f"while it reads {path}", asked)[0] for path, asked in REFUSED} <= {200, 201}
    assert [now > before for now, before in zip(rows(standby), stored, strict=True)] == [True] * len(WRITTEN)


# Made read-only --------------------------------------------------------------------------------------


@pytest.fixture
def read_only(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions of this process are read-only, as by a setting of the server."""
    health.forget_checks()
    connection.close()
    options = connection.settings_dict["OPTIONS"] | {"options": "-c default_transaction_read_only=on"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    yield
    connection.close()
    health.forget_checks()


@pytest.mark.parametrize(("query", "status"), [("", 503), ("?reads_only=false", 503), ("?reads_only=true", 200)])
def test_a_server_that_was_made_read_only_is_ready_for_reads_only(read_only: None, query: str, status: int) -> None:
    answer = AsgiClient(on_this_connection=True).get(f"/readyz{query}")
    assert (answer.status_code, answer.json()["checks"]["writes"]) == (status, READ_ONLY)


def test_doctor_says_that_it_takes_no_writes(read_only: None) -> None:
    found = server_checks.writes(connection)
    assert (found.state, found.text) == (CheckState.FAILED, f"Every write gets 503: {READ_ONLY}.")


def test_control_the_tests_server_takes_writes(committed_db: None) -> None:
    assert server_checks.writes(connection).state is CheckState.OK
    assert AsgiClient(on_this_connection=True).get("/readyz?reads_only=true").status_code == 200


@pytest.mark.parametrize("query", ["reads_only=1", "reads_only=", "reads=true", "reads_only=true&reads_only=true"])
def test_what_it_shall_be_ready_for_is_read_strictly(committed_db: None, query: str) -> None:
    assert AsgiClient(on_this_connection=True).get(f"/readyz?{query}").status_code == 400
