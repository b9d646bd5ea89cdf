"""Whether a process is alive, and whether it can do its work."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from ledger.database import checks
from ledger.errors import UnsafeDatabase
from ledger.rest.calls import health
from tests.asgi_client import AsgiClient


@pytest.fixture(autouse=True)
def _checks_are_forgotten() -> Iterator[None]:
    """Results of health checks are forgotten before and after each test."""
    health.forget_checks()
    yield
    health.forget_checks()


def test_a_process_is_alive_without_a_database() -> None:
    answer = AsgiClient().get("/healthz")
    assert (answer.status_code, json.loads(answer.content)) == (200, {"status": "ok"})


def test_a_process_that_can_do_its_work_is_ready(committed_db: None) -> None:
    answer = AsgiClient(on_this_connection=True).get("/readyz")
    assert (answer.status_code, json.loads(answer.content)) == (
        200,
        {"status": "ready", "checks": {"database": "ok", "migrations": "ok", "locks": "ok", "writes": "ok"}},
    )


def assert_not_ready(**expected: str) -> None:
    """Assert that /readyz answers 503 with these checks."""
    answer = AsgiClient(on_this_connection=True).get("/readyz")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert json.loads(answer.content) == {"status": "not-ready", "checks": expected}


def test_without_the_database_it_is_not_ready(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    assert_not_ready(database="unreachable", migrations="unknown", locks="unknown", writes="unknown")


def test_with_unapplied_migrations_it_is_not_ready(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = MigrationRecorder.applied_migrations

    def without_one(recorder: MigrationRecorder) -> dict[tuple[str, str], object]:
        return {key: value for key, value in applied(recorder).items() if key[0] != "sessions"}

    with monkeypatch.context() as patch:
        patch.setattr(MigrationRecorder, "applied_migrations", without_one)
        assert_not_ready(database="ok", migrations="unapplied", locks="ok", writes="ok")
    assert AsgiClient(on_this_connection=True).get("/readyz").status_code == 200


def test_with_locks_that_do_nothing_it_is_not_ready(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(connection: object) -> None:
        raise UnsafeDatabase(what="advisory locks do nothing", why="two connections hold one lock at the same time")

    monkeypatch.setattr(checks, "verify_database", found)
    reason = "refused: advisory locks do nothing: two connections hold one lock at the same time"
    assert_not_ready(database=reason, migrations="ok", locks="unknown", writes="ok")


def test_a_process_that_serves_is_ready_though_the_server_has_no_second_connection_to_give(
    committed_db: None, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection.ensure_connection()
    superuser = raw_connection("superuser", autocommit=True)
    limit = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}")
    database = sql.Identifier(connection.settings_dict["NAME"])
    superuser.execute(limit.format(database, 1))
    try:
        # The control: the self-test itself cannot be done now.
        with pytest.raises(checks.NoSecondConnection):
            checks.verify_database(connection)
        assert AsgiClient(on_this_connection=True).get("/readyz").status_code == 200
        assert "locks" not in health._passed_at, "looked at as soon as there is a connection again"
    finally:
        superuser.execute(limit.format(database, -1))
    assert AsgiClient(on_this_connection=True).get("/readyz").status_code == 200
    assert "locks" in health._passed_at


def test_the_costly_checks_are_remembered_the_database_is_not(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AsgiClient(on_this_connection=True).get("/readyz").status_code == 200

    def never(*arguments: object) -> None:
        raise AssertionError("looked again")

    with monkeypatch.context() as patch:
        patch.setattr(MigrationExecutor, "migration_plan", never)
        patch.setattr(checks, "verify_database", never)
        assert AsgiClient(on_this_connection=True).get("/readyz").status_code == 200
        patch.setattr(health.time, "monotonic", lambda: 10**9)
        with pytest.raises(AssertionError, match="looked again"):
            health.readiness()

    class Broken:
        def cursor(self) -> None:
            raise OperationalError("gone")

    monkeypatch.setattr(health, "connection", Broken())
    assert_not_ready(database="unreachable", migrations="unknown", locks="unknown", writes="unknown")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_only_read(path: str) -> None:
    response = AsgiClient().post(path)
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")
