"""A database whose tables another version made is refused wherever a process meets it, and changes by hand show."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from psycopg.errors import LockNotAvailable

from ledger import services
from ledger.database import checks, schema_changes, schema_versions, system_checks
from ledger.database.schema_changes import LedgerMigration
from ledger.database.schema_versions import Record
from ledger.errors import UnsafeDatabase
from ledger.models import Entry
from ledger.rest.calls import health
from ledger.version import VERSION
from ledger_project.database.catalogue import changed_since_prepared
from ledger_project.monitoring import schema_checks
from ledger_project.monitoring.findings import CheckState
from ledger_project.serving import bootstrap
from tests.asgi_client import AsgiClient
from tests.conftest import database_url
from tests.deployment.servers import ROOT

pytestmark = pytest.mark.one_node("makes databases of its own, and changes the owner's tables")

RawConnection = Callable[..., psycopg.Connection[Any]]
OF_APPS = sorted(
    "_".join(path.relative_to(ROOT).parts[:-2])
    for app in ("ledger", "billing")
    for path in ROOT.glob(f"{app}/**/migrations/schema.sql")
)
"""The labels of the applications that have a schema."""
NAME_LENGTH = 255
"""Of the column of Django's table of migrations."""
SENTENCE = (
    f"another version made the schema of {', '.join(OF_APPS)}: run the version that made it, or prepare a new database; "
    "databases are upgraded from release 0.2.0 on (docs/how-to/operations/upgrade.md)"
)
MIGRATIONS = "SELECT * FROM django_migrations ORDER BY id"


# The record ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "is_another"),
    [
        ("schema.sql", "-- Another comment.\n\nCREATE TABLE t (n int);\n", False),
        ("schema.sql", "-- A comment.\nCREATE TABLE t (n bigint);\n", True),
        ("0001_initial.py", "# Another comment.\nMODELS = []\n", False),
        ("0001_initial.py", "# A comment.\nMODELS = [1]\n", True),
        ("0001_initial.sql", "SELECT 1;", True),
        ("0002_more.py", "", False),
        ("0002_more.sql", "SELECT 1;", False),
    ],
)
def test_the_files_of_a_migration_count_and_comments_do_not(tmp_path: Path, name: str, text: str, is_another: bool) -> None:
    (tmp_path / "0001_initial.py").write_text("# A comment.\nMODELS = []\n")
    (tmp_path / "schema.sql").write_text("-- A comment.\nCREATE TABLE t (n int);\n")
    before = schema_versions.digest_of(tmp_path, "0001_initial")
    (tmp_path / name).write_text(text)
    assert (schema_versions.digest_of(tmp_path, "0001_initial") != before) is is_another


def test_each_migration_records_its_files_and_its_release(db: None) -> None:
    applied = MigrationRecorder(connection).applied_migrations()
    recorded = {(app, record.migration): record for app, name in applied if (record := schema_versions.find_record(name))}
    assert sorted({app for app, _ in recorded}) == OF_APPS
    assert {"billing", "ledger"} < set(OF_APPS)
    digests = {(app, name): digest for app, of_app in schema_versions.own_digests().items() for name, digest in of_app.items()}
    assert {key: record.digest for key, record in recorded.items()} == digests
    first = recorded["ledger", "0001_initial"]
    assert first.digest == schema_versions.digest_of(ROOT / "ledger" / "migrations", "0001_initial")
    assert str(first) == f"schema 0001_initial version=0.2.0 code_from=0.2.0 sha256={first.digest}"
    assert max(map(len, map(str, recorded.values()))) <= NAME_LENGTH


# A database of another version -----------------------------------------------------------------------


@pytest.fixture(params=["without a record, as before there were any", "with another record"])
def of_another_version(
    request: pytest.FixtureRequest, committed_db: None, raw_connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The test's database counts as made by another version; the process has not looked at it yet."""
    owner = raw_connection(autocommit=True)
    changed = "'other'" if request.param.startswith("without") else "'schema 0123'"
    owner.execute("CREATE TEMPORARY TABLE kept AS SELECT * FROM django_migrations WHERE name LIKE 'schema %'")
    owner.execute(f"UPDATE django_migrations SET name = {changed} WHERE id IN (SELECT id FROM kept)")
    monkeypatch.setattr(checks, "_verified", set())
    monkeypatch.setattr(schema_versions, "_fitting", set())
    health.forget_checks()
    connection.close()
    yield
    owner.execute("UPDATE django_migrations SET name = kept.name FROM kept WHERE kept.id = django_migrations.id")
    health.forget_checks()
    connection.close()


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    """A program of ours on the test's database."""
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DJANGO_SETTINGS_MODULE": "ledger_project.settings"}
    environment |= {"DATABASE_URL": database_url("application"), "LEDGER_OWNER_DATABASE_URL": database_url()}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_prepare_database_refuses_it_and_changes_nothing(of_another_version: None, raw_connection: RawConnection) -> None:
    before = raw_connection().execute(MIGRATIONS).fetchall()
    done = run("manage.py", "prepare_database")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"CommandError: This database is refused. {SENTENCE}.\n"
    assert raw_connection().execute(MIGRATIONS).fetchall() == before


def test_serve_refuses_it(of_another_version: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap.settings, "OWNER_DATABASE_URL", database_url())
    with pytest.raises(bootstrap.NotPrepared) as refusal:
        bootstrap.prepare(None)
    assert str(refusal.value) == f"serve refuses this database. {SENTENCE}."


@pytest.mark.slow
def test_a_web_process_does_not_start(of_another_version: None) -> None:
    done = run("-c", "import ledger_project.asgi")
    assert (done.returncode, done.stderr) == (
        1,
        f"The web process does not start: this database is refused. {SENTENCE}.\n",
    )


def test_a_process_that_connects_later_is_not_ready_and_spends_nothing(of_another_version: None) -> None:
    answer = AsgiClient(on_this_connection=True).get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["database"]) == (503, f"refused: {SENTENCE}")
    headers = {"Authorization": "Bearer " + "k" * 30, "Idempotency-Key": "spend-1"}
    answer = AsgiClient(on_this_connection=True).post("/v1/holders/ada/spends", {"amount": 1}, headers=headers)
    assert (answer.status_code, answer.json()["type"].rsplit("/", 1)[1]) == (503, "unsafe-database")
    checks.leave_unverified("default")
    assert not Entry.objects.filter(holder_id="ada", idempotency_key="spend-1").exists()


def test_a_process_that_serves_it_already_is_not_ready_either(of_another_version: None) -> None:
    """As after a restore: the database was another one when the process connected."""
    checks.leave_unverified("default")
    assert health.readiness()["database"] == f"refused: {SENTENCE}"


def test_doctor_says_so(of_another_version: None) -> None:
    checks.leave_unverified("default")
    found = schema_checks.schema(connection)
    assert (found.state, found.text) == (CheckState.FAILED, f"{SENTENCE}.")


def test_control_the_database_as_it_was_made_is_accepted(committed_db: None) -> None:
    schema_versions.verify_schema(connection)


def test_an_empty_database_is_accepted(committed_db: None, raw_connection: RawConnection) -> None:
    owner = raw_connection(autocommit=True)
    owner.execute("CREATE SCHEMA empty_one")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path TO empty_one")
        schema_versions.verify_schema(connection)
    finally:
        connection.close()
        owner.execute("DROP SCHEMA empty_one")


def test_a_role_that_may_not_read_the_record_yet_is_not_refused_for_it(
    as_application: None, raw_connection: RawConnection
) -> None:
    owner = raw_connection(autocommit=True)
    owner.execute("REVOKE SELECT ON django_migrations FROM ledger_app")
    try:
        schema_versions.verify_schema(connection)
    finally:
        owner.execute("GRANT SELECT ON django_migrations TO ledger_app")


# An upgrade that is due ------------------------------------------------------------------------------


LACKING = (
    "the database lacks ledger.0999_more of release {version}: run `manage.py prepare_database` of this version as the owner, in "
    "a project that embeds the ledger `manage.py migrate` (docs/how-to/operations/upgrade.md)"
)


class More(LedgerMigration):
    """A migration that the database lacks."""

    effect = "It adds more."
    lock = "It locks one table for a moment."
    release = "0.2.9"


@pytest.fixture
def with_more(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This version has a migration more than the database."""
    digests = schema_versions.own_digests()
    more = digests | {"ledger": digests["ledger"] | {"0999_more": "9" * 64}}
    monkeypatch.setattr(schema_versions, "own_digests", lambda: more)
    monkeypatch.setattr(checks, "_verified", set())
    monkeypatch.setattr(schema_versions, "_fitting", set())
    plan = [(More("0999_more", "ledger"), False), (Migration("0013_more", "auth"), False)]
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *args, **kwargs: plan)
    health.forget_checks()
    connection.close()
    yield
    health.forget_checks()
    connection.close()


def test_calls_are_refused_until_the_database_is_upgraded(with_more: None) -> None:
    lacking = LACKING.format(version=VERSION)
    with pytest.raises(UnsafeDatabase) as refusal:
        services.grant(holder_id="ada", amount=1, idempotency_key="grant-1", actor="shop")
    assert str(refusal.value) == lacking
    assert not Entry.objects.filter(holder_id="ada", idempotency_key="grant-1").exists()
    answer = AsgiClient(on_this_connection=True).get("/readyz")
    assert answer.status_code == 503
    with pytest.raises(UnsafeDatabase) as refusal:
        checks.verify_database(connection)
    assert str(refusal.value) == lacking


def test_what_upgrades_the_database_is_let_through(with_more: None) -> None:
    connection.ensure_connection()
    schema_versions.verify_schema(connection, allow_pending=True)


def test_checks_and_doctor_say_what_an_upgrade_does_before_it_is_done(with_more: None) -> None:
    does = "ledger.0999_more (0.2.9): It adds more. It locks one table for a moment. Servers of 0.2.0 and later go on."
    warnings = [("ledger.W008", f"An upgrade is due. {text}") for text in (does, "auth.0013_more")]
    lacking = LACKING.format(version=VERSION)
    refused = f"Calls of the ledger are refused: {lacking.replace(': run', '; run')}."
    said = system_checks.check_schema(["default"])
    assert [(each.id, each.msg) for each in said] == [("ledger.W006", refused), *warnings]
    said = system_checks.check_schema_before_deployment()
    assert [(each.id, each.msg) for each in said[1:]] == warnings
    assert said[0].id == "ledger.E007"
    found = schema_checks.migrations(connection)
    assert (found.state, found.text) == (CheckState.FAILED, f"2 are not applied: {does} auth.0013_more.")
    assert schema_checks.schema(connection).text == f"{lacking}."


# A later release -------------------------------------------------------------------------------------


@pytest.fixture
def later(committed_db: None, raw_connection: RawConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Has the database migrated by a release 9.3.0, whose migration can be used by code from the given release on."""
    owner = raw_connection(autocommit=True)
    insert = "INSERT INTO django_migrations (app, name, applied) VALUES ('ledger', %s, now())"

    def migrate(code_from: str) -> None:
        for name in ("0999_later", str(Record("0999_later", "9.3.0", code_from, "9" * 64))):
            owner.execute(insert, [name])

    monkeypatch.setattr(checks, "_verified", set())
    monkeypatch.setattr(schema_versions, "_fitting", set())
    health.forget_checks()
    connection.close()
    yield migrate
    owner.execute("DELETE FROM django_migrations WHERE name ~ '0999_later'")
    health.forget_checks()
    connection.close()


def test_code_goes_on_with_what_a_later_release_left_for_it(later: Callable[[str], None]) -> None:
    later(VERSION)
    services.grant(holder_id="later", amount=1, idempotency_key="grant-1", actor="shop")
    assert set(health.readiness().values()) == {"ok"}
    found = schema_checks.schema(connection)
    text = f"Release 9.3.0 made it, and {VERSION} works with it; it is as prepare_database left it."
    assert (found.state, found.text) == (CheckState.OK, text)


def test_rights_that_a_later_release_gave_are_no_failure(later: Callable[[str], None], raw_connection: RawConnection) -> None:
    owner = raw_connection(autocommit=True)
    owner.execute("GRANT UPDATE (holder_id) ON ledger_api_key TO ledger_app")
    try:
        assert schema_checks.rights(connection).state is CheckState.FAILED
        later(VERSION)
        assert schema_checks.rights(connection).state is CheckState.OK
    finally:
        owner.execute("REVOKE UPDATE (holder_id) ON ledger_api_key FROM ledger_app")


@pytest.mark.parametrize(
    ("code_from", "what", "why"),
    [
        (
            "9.3.0",
            "release 9.3.0 migrated the database, and its tables need code of 9.3.0 or later",
            f"this is {VERSION}: run 9.3.0; there is no way back (docs/how-to/operations/upgrade.md)",
        ),
        ("unrecorded", "ledger.0999_later is unknown here", schema_versions.MAKE_AGAIN),
    ],
)
def test_older_code_is_refused_where_its_tables_are_gone(
    later: Callable[[str], None], raw_connection: RawConnection, code_from: str, what: str, why: str
) -> None:
    later(code_from)
    with pytest.raises(UnsafeDatabase) as refusal:
        services.grant(holder_id="later", amount=1, idempotency_key="grant-2", actor="shop")
    assert refusal.value.facts == {"what": what, "why": why}
    count = "SELECT count(*) FROM ledger_entry WHERE holder_id = 'later' AND idempotency_key = 'grant-2'"
    assert raw_connection().execute(count).fetchone() == (0,)
    checks.leave_unverified("default")
    assert health.readiness()["database"] == f"refused: {what}: {why}"


@pytest.mark.slow
@pytest.mark.check
def test_a_database_of_a_later_release_is_not_prepared_by_an_earlier_one(
    later: Callable[[str], None], raw_connection: RawConnection
) -> None:
    later(VERSION)
    before = raw_connection().execute(MIGRATIONS).fetchall()
    done = run("manage.py", "prepare_database")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"CommandError: Release 9.3.0 prepared this database, and {VERSION} does not prepare it: there is no way back. "
        f"Servers of {VERSION} work with it as it is; to prepare it, run 9.3.0 (docs/how-to/operations/upgrade.md).\n"
    )
    assert raw_connection().execute(MIGRATIONS).fetchall() == before


def test_serve_goes_on_with_a_database_that_a_later_release_prepared(
    later: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later(VERSION)
    monkeypatch.setattr(bootstrap.settings, "OWNER_DATABASE_URL", database_url())
    bootstrap._prepare_as_owner()
    assert "Release 9.3.0 prepared this database" in caplog.text


# No way back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("app", "target"), [("ledger", "zero"), ("ledger_keys", "0001_initial")])
def test_the_schema_goes_forwards_only(committed_db: None, raw_connection: RawConnection, app: str, target: str) -> None:
    before = raw_connection().execute(MIGRATIONS).fetchall()
    with pytest.raises(CommandError, match=r"of release 0\.[0-9.]+ is not undone: the ledger's schema goes forwards only\."):
        call_command("migrate", app, target, verbosity=0)
    assert raw_connection().execute(MIGRATIONS).fetchall() == before


# Waits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [schema_changes.WAITS, schema_changes.WAITS_OF_BUILD])
def test_a_migration_has_its_own_waits_and_leaves_those_of_the_session(committed_db: None, waits: dict[str, str]) -> None:
    shown = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
    with connection.cursor() as cursor:
        cursor.execute(shown)
        before = cursor.fetchone()
        with schema_changes.waits_set(connection, waits):
            cursor.execute(shown)
            assert cursor.fetchone() == (waits["lock_timeout"], waits["statement_timeout"])
        with transaction.atomic(), schema_changes.waits_set(connection, waits):
            cursor.execute(shown)
            assert cursor.fetchone() == (waits["lock_timeout"], waits["statement_timeout"])
        cursor.execute(shown)
        assert cursor.fetchone() == before


def test_through_a_pooler_no_wait_stays_with_the_session_that_the_next_client_gets(
    committed_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its control is the test above: without the pooler the session has them for the block."""
    monkeypatch.setitem(settings.DATABASES["default"], "DISABLE_SERVER_SIDE_CURSORS", True)
    monkeypatch.setattr(schema_changes, "goes_through_pooler", lambda connection: True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        before = cursor.fetchone()
        with schema_changes.waits_set(connection, schema_changes.WAITS_OF_BUILD):
            cursor.execute("SELECT current_setting('lock_timeout')")
            assert cursor.fetchone() == before != (schema_changes.WAITS_OF_BUILD["lock_timeout"],)
        # The settings end with the transaction; the next client of the session finds none of them.
        with transaction.atomic(), schema_changes.waits_set(connection, schema_changes.WAITS_OF_BUILD):
            cursor.execute("SELECT current_setting('lock_timeout')")
            assert cursor.fetchone() == (schema_changes.WAITS_OF_BUILD["lock_timeout"],)


def test_a_busy_table_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def migrate(*args: Any, **kwargs: Any) -> None:
        attempts.append("migrate")
        if len(attempts) < 3:
            raise OperationalError from LockNotAvailable()

    said: list[str] = []
    monkeypatch.setattr(MigrationExecutor, "__init__", lambda self, connection: setattr(self, "loader", Mock()))
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *args: [More("0999_more", "ledger")])
    monkeypatch.setattr(bootstrap, "call_command", migrate)
    monkeypatch.setattr(bootstrap.time, "sleep", lambda seconds: None)
    assert bootstrap._migrate(connection, 0, said.append) == 1
    assert said == [f"A table is in use; attempt {number} of 20 ended after 2s." for number in (1, 2)]


# Changes by hand -------------------------------------------------------------------------------------


@pytest.mark.products(most=2)
@pytest.mark.parametrize(
    ("kind", "state", "change"),
    [
        ("tables", CheckState.FAILED, "CREATE TABLE ledger_extra ()"),
        ("columns", CheckState.FAILED, "ALTER TABLE billing_run ADD COLUMN extra int"),
        ("columns", CheckState.FAILED, "ALTER TABLE billing_run ALTER COLUMN host DROP NOT NULL"),
        ("constraints", CheckState.FAILED, "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_pkey"),
        ("functions", CheckState.FAILED, "ALTER FUNCTION ledger_key_hash(text) VOLATILE"),
        ("triggers", CheckState.FAILED, "ALTER TABLE ledger_entry ENABLE TRIGGER follows"),
        ("indexes", CheckState.WARNING, "CREATE INDEX ledger_mine ON ledger_batch (actor)"),
        ("views", CheckState.WARNING, "DROP VIEW ledger_drawn"),
    ],
)
def test_doctor_names_what_was_changed(db: None, kind: str, state: CheckState, change: str) -> None:
    assert schema_checks.schema(connection).state is CheckState.OK
    with connection.cursor() as cursor:
        cursor.execute(change)
    assert kind in (changed_since_prepared(connection) or [])
    assert schema_checks.schema(connection).state is state


def test_partitions_come_and_go(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_make_usage_month('2031-05-01')")
    assert changed_since_prepared(connection) == []


def test_preparing_once_more_does_not_take_a_change_for_granted(committed_db: None, raw_connection: RawConnection) -> None:
    owner = raw_connection(autocommit=True)
    owner.execute("CREATE INDEX ledger_mine ON ledger_batch (actor)")
    try:
        assert bootstrap.migrate_and_grant_rights(connection, verbosity=0) == 0
        assert changed_since_prepared(connection) == ["indexes"]
    finally:
        owner.execute("DROP INDEX ledger_mine")


def test_nothing_recorded_is_a_warning_until_the_database_is_prepared_again(
    committed_db: None, raw_connection: RawConnection
) -> None:
    raw_connection(autocommit=True).execute("DELETE FROM django_migrations WHERE app = 'ledger_project'")
    assert schema_checks.schema(connection).state is CheckState.WARNING
    bootstrap.migrate_and_grant_rights(connection, verbosity=0)
    assert schema_checks.schema(connection).state is CheckState.OK
