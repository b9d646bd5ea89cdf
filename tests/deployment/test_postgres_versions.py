"""Each PostgreSQL that is supported does all that the ledger and billing ask of it; an older one is refused, by its name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from ledger.database import checks
from ledger_project.serving import bootstrap
from ledger_project.serving.postgres.server import Server
from tests.conftest import database_url, web_servers
from tests.deployment.servers import ROOT, WITH_PIP, call, manage, started_version

ON_RECORD = {"Timetable", "Audit", "Anchor"}
"""What doctor warns of where no worker has run yet."""


@pytest.fixture(scope="module", params=[15, 16, 17, pytest.param(WITH_PIP, marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this version, prepared, with the demo data; skipped where its programs are missing.

    All other tests use the version that comes with pip.
    """
    with started_version(request.param) as found:
        assert found.binaries.joinpath("postgres").exists()
        manage(found, "prepare_database")
        manage(found, "demo")
        yield found


@pytest.mark.slow
def test_the_demo_is_billed_and_every_law_holds(server: Server) -> None:
    assert "Subscriptions  12 finalised" in manage(server, "generate_invoices")
    assert manage(server, "generate_invoices", "--check").startswith("Clean")
    manage(server, "expire_credits")
    manage(server, "update_totals")
    assert "Clean: no violations found." in manage(server, "audit_ledger")


@pytest.mark.slow
def test_doctor_finds_nothing_wrong(server: Server) -> None:
    manage(server, "usage_partitions")
    found = json.loads(manage(server, "doctor", "--format", "json", codes=(0, 1)))
    assert {each["check"] for each in found["checks"] if each["state"] != "OK"} <= ON_RECORD


@pytest.mark.slow
def test_credits_are_spent_over_http(server: Server, tmp_path: Path) -> None:
    with web_servers(tmp_path) as start:
        (web,) = start(1, dsn=server.application_url)
        call(web.url, "/v1/holders/over-http/grants", "grant-1", {"amount": 100})
        status, spent = call(web.url, "/v1/holders/over-http/spends", "spend-1", {"amount": 30})
        assert (status, spent["balance"]) == (201, 70)
        assert call(web.url, "/v1/holders/over-http/spends", "spend-1", {"amount": 30}) == (201, spent)
        assert call(web.url, "/readyz")[1]["status"] == "ready"
    assert "Clean: no violations found." in manage(server, "audit_ledger")


# Older ones ------------------------------------------------------------------------------------------


@pytest.fixture
def old_server(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The tests' server counts as too old; gives the sentence that says so."""
    version = connection.pg_version
    monkeypatch.setattr(checks, "OLDEST_VERSION", version // 10_000 + 1)
    monkeypatch.setattr(checks, "_verified", set())
    connection.close()
    yield f"PostgreSQL {version // 10_000}.{version % 10_000}: the ledger needs PostgreSQL {checks.OLDEST_VERSION} or newer"
    connection.close()


@pytest.mark.parametrize("command", ["prepare_database", "audit_ledger", "generate_invoices"])
def test_commands_refuse_an_old_server_before_they_do_anything(
    old_server: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url())
    with pytest.raises(CommandError) as refusal:
        call_command(command)
    assert (str(refusal.value), refusal.value.returncode) == (f"This database is refused. {old_server}.", 2)


def test_serve_refuses_it(old_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url())
    with pytest.raises(bootstrap.NotPrepared) as refusal:
        bootstrap.prepare(None)
    assert str(refusal.value) == f"serve refuses this database. {old_server}."


AS_IF_OLD = """
from ledger.database import checks
checks.OLDEST_VERSION = 99
import ledger_project.{entry_point}
"""


@pytest.mark.slow
@pytest.mark.parametrize("entry_point", ["asgi", "wsgi"])
def test_a_web_process_does_not_start_on_it(committed_db: None, entry_point: str) -> None:
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DATABASE_URL": database_url("application")}
    environment["DJANGO_SETTINGS_MODULE"] = "ledger_project.settings"
    command = [sys.executable, "-c", AS_IF_OLD.format(entry_point=entry_point)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("The web process does not start: this database is refused. PostgreSQL ")
    assert sentence.endswith(": the ledger needs PostgreSQL 99 or newer.")
