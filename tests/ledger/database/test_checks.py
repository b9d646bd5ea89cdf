"""Nothing starts on a database, or with settings, that would let wrong balances through."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, connection, connections
from psycopg import IsolationLevel
from pytest_django.fixtures import Settings

from ledger.database import checks, system_checks
from ledger.errors import UnsafeDatabase
from ledger_project.database import connection_urls
from ledger_project.serving.postgres.server import Server
from tests.conftest import database_url
from tests.parts import spread


@contextmanager
def second_database(**changes: Any) -> Iterator[Any]:
    """A separate Django connection to the test database, with some settings changed."""
    other = connection.copy(alias="other")
    other.settings_dict["OPTIONS"] = other.settings_dict["OPTIONS"] | changes.pop("OPTIONS", {})
    other.settings_dict.update(changes)
    try:
        yield other
    finally:
        other.close()


def refusal_of_database(**changes: Any) -> UnsafeDatabase:
    """Why `verify_database` refuses the test database with these settings."""
    with second_database(**changes) as other, pytest.raises(UnsafeDatabase) as error:
        checks.verify_database(other, needs_lock_timeout=True)
    return error.value


# A living connection ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("committed_db")
def test_the_database_as_it_is_prepared_is_accepted() -> None:
    with second_database() as other:
        checks.verify_database(other, needs_lock_timeout=True)


@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE, IsolationLevel.READ_UNCOMMITTED])
def test_another_isolation_level_of_django_is_refused(level: IsolationLevel) -> None:
    assert refusal_of_database(OPTIONS={"isolation_level": level}).facts["what"] == f"isolation_level = {level.name}"


@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("-c default_transaction_isolation=repeatable\\ read", "default_transaction_isolation = repeatable read"),
        ("-c default_transaction_isolation=serializable", "default_transaction_isolation = serializable"),
        ("-c synchronous_commit=off", "synchronous_commit = off"),
        ("-c lock_timeout=0", "lock_timeout = 0"),
    ],
)
def test_an_unsafe_setting_of_the_session_is_refused(option: str, what: str) -> None:
    assert refusal_of_database(OPTIONS={"options": option}).facts["what"] == what


@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize("value", ["local", "remote_write", "remote_apply"])
def test_other_ways_to_commit_durably_are_accepted(value: str) -> None:
    with second_database(OPTIONS={"options": f"-c synchronous_commit={value}"}) as other:
        checks.verify_database(other, needs_lock_timeout=True)


@pytest.mark.usefixtures("committed_db")
def test_advisory_locks_that_do_nothing_are_refused(raw_connection: Callable[..., psycopg.Connection[Any]]) -> None:
    # What some servers that speak PostgreSQL's protocol do: say yes to everybody.
    with raw_connection() as owner:
        owner.execute("CREATE SCHEMA IF NOT EXISTS look_alike")
        owner.execute(
            "CREATE OR REPLACE FUNCTION look_alike.pg_try_advisory_xact_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true'"
        )
    error = refusal_of_database(OPTIONS={"options": "-c search_path=look_alike,pg_catalog,public"})
    assert error.facts["what"] == "advisory locks do nothing"


@pytest.mark.parametrize("name", spread(["fsync", "full_page_writes"], test=(), check=["fsync"]))
def test_a_server_that_may_lose_what_it_committed_is_refused(committed_db: None, name: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    folder.chmod(0o755)
    server = Server(folder, shared_buffers="16MB", **{name: "off"})
    try:
        with (
            second_database(**connection_urls.parse(server.start().application_url)) as other,
            pytest.raises(UnsafeDatabase) as error,
        ):
            checks.verify_database(other)
        assert error.value.facts["what"] == f"{name} = off"
    finally:
        server.stop()
        shutil.rmtree(folder)


# When it is looked at --------------------------------------------------------------------------------


@pytest.mark.usefixtures("committed_db")
def test_a_process_that_connects_to_an_unsafe_database_is_refused_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_verified", set())
    before = connection.settings_dict["OPTIONS"]
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", before | {"options": "-c synchronous_commit=off"})
    for _ in range(2):
        with pytest.raises(UnsafeDatabase):
            connection.ensure_connection()
        assert connection.connection is None
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", before)
    connection.ensure_connection()
    assert checks._verified == {"default"}


@pytest.mark.usefixtures("committed_db")
def test_a_safe_database_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(checks, "_verified", set())
    monkeypatch.setattr(checks, "verify_server", lambda found: looked.append(found.alias))
    for _ in range(3):
        connections.close_all()
        connection.ensure_connection()
    assert looked == ["default"]


IMPORTED = "import ledger_project.asgi"
IMPORTED_IN_A_LOOP = """
import asyncio, importlib
async def load():
    importlib.import_module("ledger_project.asgi")
asyncio.run(load())
"""
"""As uvicorn and others do it. Django's connections refuse to be used in the thread of a running loop."""


@pytest.mark.slow
@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize(
    ("option", "imported"),
    [
        ("-c default_transaction_isolation=serializable", IMPORTED),
        ("-c synchronous_commit=off", IMPORTED),
        ("-c lock_timeout=0", IMPORTED_IN_A_LOOP),
        (None, IMPORTED),
        (None, IMPORTED_IN_A_LOOP),
    ],
)
def test_a_web_process_does_not_come_up_on_an_unsafe_database(option: str | None, imported: str) -> None:
    url = database_url("application") + (f"?options={quote(option, safe='')}" if option else "")
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "only-for-tests", "DATABASE_URL": url}
    command = [sys.executable, "-c", imported]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    if option is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        (sentence,) = done.stderr.splitlines()
        assert sentence.startswith("The web process does not start: this database is refused. ")


@pytest.mark.slow
def test_a_web_process_comes_up_while_the_database_is_away() -> None:
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    command = [sys.executable, "-c", "import ledger_project.asgi"]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The database cannot be reached yet" in done.stderr


# Settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "identifiers"),
    [
        ({}, []),
        ({"ATOMIC_REQUESTS": True}, []),
        ({"OPTIONS": {"isolation_level": IsolationLevel.SERIALIZABLE}}, ["ledger.E002"]),
        ({"OPTIONS": {"isolation_level": IsolationLevel.READ_COMMITTED}}, []),
    ],
)
def test_djangos_check_reports_unsafe_settings(
    changes: dict[str, Any], identifiers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DATABASES", {"default": {"OPTIONS": {}, **changes}})
    assert [message.id for message in system_checks.check_settings()] == identifiers


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"LOCK_KEY_SCHEME": "md5"}, "unknown lock key scheme 'md5'"),
        ({"LOCK_NAMESPACE": "a/b"}, "lock namespace 'a/b' is not a word"),
        (
            {"LOCK_NAMES": "holder=ledger"},
            "the template 'ledger' of the lock name holder is not valid: it must have {holder}, each once",
        ),
    ],
)
def test_djangos_check_reports_settings_by_which_no_lock_can_be_taken(
    changes: dict[str, Any], why: str, settings: Settings
) -> None:
    settings.LEDGER = {**settings.LEDGER, **changes}
    (message,) = system_checks.check_settings()
    assert (message.id, why in message.msg) == ("ledger.E003", True)


def test_the_check_is_part_of_manage_py_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DATABASES", {"default": {"OPTIONS": {"isolation_level": IsolationLevel.SERIALIZABLE}}})
    with pytest.raises(SystemCheckError, match=r"ledger\.E002"):
        call_command("check", tags=["ledger"])


def test_an_unreachable_database_is_another_error(monkeypatch: pytest.MonkeyPatch, committed_db: None) -> None:
    with second_database(HOST="127.0.0.1", PORT=1) as other, pytest.raises(DatabaseError):
        checks.verify_database(other)


@pytest.mark.slow
def test_the_checks_need_no_database(tmp_path: Path) -> None:
    """`make check` runs them on machines where nothing has been started yet."""
    environment = {
        "PATH": os.environ["PATH"],
        "LEDGER_DATA_DIR": str(tmp_path),
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    }
    command = [sys.executable, "manage.py", "check", "--fail-level", "WARNING"]
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.django_db
def test_it_is_said_why_a_server_takes_no_writes() -> None:
    assert checks.refusal_of_writes(connection) == ""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")

    assert checks.refusal_of_writes(connection) == "transactions are read-only (default_transaction_read_only)"


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_cluster_needs_its_application(is_installed: bool, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LEDGER = {**settings.LEDGER, "DISTRIBUTED": True}
    if not is_installed:
        # Other INSTALLED_APPS would make the applications ready again, and the pages would get another, empty site.
        monkeypatch.setattr(system_checks.apps, "is_installed", lambda name: name != "ledger.cluster")
    found = [message.id for message in system_checks.check_settings()]
    assert found == ([] if is_installed else ["ledger.E009"])
