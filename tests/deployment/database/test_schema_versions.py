"""A database whose tables another version made is refused wherever a process meets it, and changes by hand show."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from ledger.database import checks, schema_versions
from ledger.models import Entry
from ledger.rest.calls import health
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
SENTENCE = (
    f"another version made the schema of {', '.join(OF_APPS)}: before release 1.0 there are no migrations between versions: "
    "run the version that made it, or prepare a new database "
    "(docs/how-to/operations/upgrade.md)"
)


# The digest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "is_another"),
    [
        ("schema.sql", "-- Another comment.\n\nCREATE TABLE t (n int);\n", False),
        ("schema.sql", "-- A comment.\nCREATE TABLE t (n bigint);\n", True),
        ("0001_initial.py", "# Another comment.\nMODELS = []\n", False),
        ("0001_initial.py", "# A comment.\nMODELS = [1]\n", True),
        ("0002_more.py", "", True),
    ],
)
def test_what_makes_tables_counts_and_comments_do_not(tmp_path: Path, name: str, text: str, is_another: bool) -> None:
    (tmp_path / "0001_initial.py").write_text("# A comment.\nMODELS = []\n")
    (tmp_path / "schema.sql").write_text("-- A comment.\nCREATE TABLE t (n int);\n")
    before = schema_versions.digest_of(tmp_path)
    (tmp_path / name).write_text(text)
    assert (schema_versions.digest_of(tmp_path) != before) is is_another


def test_the_migration_that_makes_the_tables_records_the_digest(db: None) -> None:
    recorded = {key for key in MigrationRecorder(connection).applied_migrations() if key[1].startswith("schema ")}
    assert sorted(app for app, _ in recorded) == OF_APPS
    assert {"billing", "ledger"} < set(OF_APPS)
    assert ("ledger", f"schema {schema_versions.digest_of(ROOT / 'ledger' / 'migrations')}") in recorded


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
    migrations = "SELECT * FROM django_migrations ORDER BY id"
    before = raw_connection().execute(migrations).fetchall()
    done = run("manage.py", "prepare_database")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"CommandError: This database is refused. {SENTENCE}.\n"
    assert raw_connection().execute(migrations).fetchall() == before


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
