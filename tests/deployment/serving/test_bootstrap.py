"""The application's role may insert into the ledger and change nothing in it; every session has its timeouts."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from psycopg import errors, sql

from ledger.database import lock_names
from ledger.database.locks import lock_number
from ledger_project.operators import two_step
from ledger_project.serving import bootstrap
from ledger_project.serving.bootstrap import provision
from tests.conftest import database_url, wait_until_waiting

pytestmark = pytest.mark.usefixtures("committed_db")

RawConnection = Callable[..., psycopg.Connection[Any]]


def rights_of(owner: psycopg.Connection[Any], table: str) -> set[str]:
    """What the application's role may do with a table."""
    found = owner.execute(
        "SELECT privilege_type FROM information_schema.role_table_grants WHERE table_name = %s AND grantee = %s",
        [table, settings.LEDGER_APP_ROLE],
    ).fetchall()
    return {row[0] for row in found}


@pytest.mark.parametrize("role", ["owner", "application"])
def test_every_session_has_the_timeouts(raw_connection: RawConnection, role: str) -> None:
    session = raw_connection(role)
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "client_connection_check_interval")
    found = [session.execute(f"SHOW {name}").fetchone() for name in names]
    assert found == [("2s",), ("30s",), ("1min",), ("5s",)]


def test_every_session_over_tcp_asks_whether_its_client_is_there(committed_db: None) -> None:
    with psycopg.connect(database_url("application", host="127.0.0.1")) as session:
        names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        assert [session.execute(f"SHOW {name}").fetchone() for name in names] == [("10",), ("3",), ("3",), ("20000",)]


def test_the_application_cannot_switch_triggers_off(raw_connection: RawConnection) -> None:
    application = raw_connection("application", autocommit=True)
    with pytest.raises(errors.InsufficientPrivilege):
        application.execute("SET session_replication_role = replica")
    with pytest.raises(errors.InsufficientPrivilege):
        application.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")


def test_rights_given_by_hand_are_taken_back_and_again_changes_nothing(raw_connection: RawConnection) -> None:
    owner = raw_connection(autocommit=True)
    owner.execute(sql.SQL("GRANT UPDATE, DELETE ON ledger_entry TO {}").format(sql.Identifier(settings.LEDGER_APP_ROLE)))
    assert rights_of(owner, "ledger_entry") == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    for _ in range(2):
        provision(connection)
        assert rights_of(owner, "ledger_entry") == {"SELECT", "INSERT"}


def test_a_missing_role_is_passed_over(monkeypatch: pytest.MonkeyPatch, raw_connection: RawConnection) -> None:
    monkeypatch.setattr(settings, "LEDGER_APP_ROLE", "nobody_of_this_name")
    provision(connection)
    assert raw_connection("owner").execute("SHOW lock_timeout").fetchone() == ("2s",)


def test_the_command_can_be_run_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url("owner"))
    monkeypatch.setattr(settings, "LEDGER_BOOTSTRAP_API_KEY", "")
    call_command("prepare_database")
    assert capsys.readouterr().out == "The database is ready; 0 migrations applied.\n"


def test_the_command_names_the_next_step_to_the_application_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url("application"))
    before = dict(connection.settings_dict)
    with pytest.raises(
        CommandError, match=f"The role {settings.LEDGER_APP_ROLE} may not prepare .* Set LEDGER_OWNER_DATABASE_URL"
    ):
        call_command("prepare_database")
    assert connection.settings_dict == before


@pytest.mark.parametrize("wanted", [["suport", "finance", " all"], ["suport"]])
def test_a_group_that_must_have_a_code_and_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch, wanted: list[str]) -> None:
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url("owner"))
    monkeypatch.setattr(settings, "LEDGER_BOOTSTRAP_API_KEY", "")
    monkeypatch.setattr(settings, "LEDGER_TWO_STEP", wanted)
    monkeypatch.setattr(bootstrap, "seed", lambda: bootstrap.Secrets("admin", None, None))
    message = "LEDGER_TWO_STEP names suport; the groups are administrator, billing operator, finance, read-only, support."
    with pytest.raises(CommandError, match=message):
        call_command("prepare_database", verbosity=0)
    with pytest.raises(bootstrap.NotPrepared, match=message):
        bootstrap.prepare(None)


@pytest.mark.parametrize("wanted", [[], [""], ["all"], ["finance", " support "]])
def test_groups_that_exist_are_accepted(monkeypatch: pytest.MonkeyPatch, wanted: list[str]) -> None:
    monkeypatch.setattr(settings, "LEDGER_TWO_STEP", wanted)
    two_step.ensure_groups_exist()


def test_two_preparing_at_once_take_turns(raw_connection: RawConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first, longer than `lock_timeout`, and finds nothing left to do."""
    monkeypatch.setattr(settings, "OWNER_DATABASE_URL", database_url("owner"))
    monkeypatch.setattr(settings, "LEDGER_BOOTSTRAP_API_KEY", "")
    first = raw_connection(autocommit=True)
    observer = raw_connection("superuser", autocommit=True)
    first.execute("SELECT pg_advisory_lock(%s)", [lock_number(lock_names.MIGRATION())])
    failures: list[BaseException] = []

    def second() -> None:
        try:
            call_command("prepare_database", verbosity=0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    while (row := observer.execute(waiting).fetchone()) is None:
        assert thread.is_alive(), failures
    wait_until_waiting(observer, row[0])
    first.execute("SELECT pg_advisory_unlock_all()")
    thread.join(30)
    assert failures == []
