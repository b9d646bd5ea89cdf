"""A server that takes no writes, a standby or one that was made read-only: who asks is told so, and reads go on."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from ledger.api import health
from ledger_project.monitoring import server_checks
from ledger_project.monitoring.findings import State
from ledger_project.serving.postgres import Server
from tests.asgi_client import AsgiClient
from tests.conftest import WebProcess, web_servers
from tests.deployment.servers import call, folder, manage, promote, standby_of, started

ENTRIES = "SELECT count(*) FROM ledger_entry WHERE holder_id = 'ada'"
STANDBY = "the server is a standby, which only reads"
READ_ONLY = "transactions are read-only (default_transaction_read_only)"


@pytest.fixture(scope="module")
def standby() -> Iterator[Server]:
    """A standby of a prepared server, in which ada has 100 credits."""
    with started() as primary:
        manage(primary, "prepare_database")
        grant(primary)
        with standby_of(primary) as found:
            yield found


def grant(server: Server) -> None:
    """Give ada 100 credits, over HTTP."""
    with folder() as logs, web_servers(logs) as start:
        (web,) = start(1, dsn=server.application_url)
        assert call(web.url, "/v1/holders/ada/grants", "grant-1", {"amount": 100})[0] == 201


@pytest.fixture
def web(standby: Server, tmp_path: Path) -> Iterator[WebProcess]:
    """A web server at the standby."""
    with web_servers(tmp_path) as start:
        yield start(1, dsn=standby.application_url)[0]


def entries(server: Server) -> int:
    """How many entries ada has."""
    with psycopg.connect(server.application_url) as session:
        found = session.execute(ENTRIES).fetchone()
    assert found is not None
    return int(found[0])


def test_a_standby_is_not_ready_for_writes_until_it_is_promoted(standby: Server, web: WebProcess) -> None:
    status, body = call(web.url, "/readyz")
    assert (status, body["status"]) == (503, "not-ready")
    assert body["checks"] == {"database": "ok", "migrations": "ok", "locks": "ok", "writes": STANDBY}
    assert (call(web.url, "/readyz?reads_only=true")) == (200, {"status": "ready", "checks": body["checks"]})
    for path in ("spends", "grants", "holds"):
        status, body = call(web.url, f"/v1/holders/ada/{path}", f"{path}-1", {"amount": 1})
        assert (status, body["type"].rsplit("/", 1)[1], body["outcome"]) == (503, "database-unavailable", "not_executed")
    assert entries(standby) == 1
    assert call(web.url, "/v1/holders/ada/balance")[1]["balance"] == 100
    found = {each["check"]: each for each in json.loads(manage(standby, "doctor", "--format", "json", codes=(2,)))["checks"]}
    assert (found["Writes"]["state"], found["Writes"]["text"]) == ("FAILED", f"Every write gets 503: {STANDBY}.")
    assert "Clean: no violations found." in manage(standby, "audit_ledger")

    promote(standby)
    assert call(web.url, "/readyz")[0] == 200
    assert call(web.url, "/v1/holders/ada/spends", "spends-1", {"amount": 1})[0] == 201


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
    assert (found.state, found.text) == (State.FAILED, f"Every write gets 503: {READ_ONLY}.")


def test_control_the_tests_server_takes_writes(committed_db: None) -> None:
    assert server_checks.writes(connection).state is State.OK
    assert AsgiClient(on_this_connection=True).get("/readyz?reads_only=true").status_code == 200


@pytest.mark.parametrize("query", ["reads_only=1", "reads_only=", "reads=true", "reads_only=true&reads_only=true"])
def test_what_it_shall_be_ready_for_is_read_strictly(committed_db: None, query: str) -> None:
    assert AsgiClient(on_this_connection=True).get(f"/readyz?{query}").status_code == 400
