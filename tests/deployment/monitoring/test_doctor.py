"""`manage.py doctor`: each check finds what it is for, and the exit code is that of the worst."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder

from billing.metering import partitions
from billing.models import ScheduledTask, SuspendedBilling
from ledger import services
from ledger.database import checks
from ledger.errors import UnsafeDatabase
from ledger_project.database.rights import RIGHTS
from ledger_project.database.triggers import ALWAYS, PARTITIONS_HAVE, TRIGGERS, enabled_as
from ledger_project.monitoring import examination, schema_checks, server_checks, work_checks
from ledger_project.monitoring.findings import CheckResult, CheckState, failed, ok, warning
from ledger_project.work.timetable import TIMETABLE
from tests.billing.factories import SubscriptionFactory
from tests.ledger.database.test_checks import second_database

OK, WARNING, FAILED = CheckState.OK, CheckState.WARNING, CheckState.FAILED


def run_doctor(*arguments: str) -> tuple[int, str]:
    """The exit code and what `manage.py doctor` prints."""
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def execute(sql: str) -> None:
    """Execute a statement on the test's connection."""
    with connection.cursor() as cursor:
        cursor.execute(sql)


# All of it -------------------------------------------------------------------------------------------


@pytest.fixture
def all_is_well(
    as_application: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_anchor: Callable[[Path, str], None]
) -> Iterator[None]:
    """The timetable has run, and there is an anchor."""
    now = datetime.now(UTC)
    for task in TIMETABLE:
        ended = {"due_at": now, "started_at": now, "finished_at": now, "succeeded_at": now, "exit_code": 0}
        ScheduledTask.objects.update_or_create(name=task.name, defaults=ended)
    write_anchor(tmp_path / "anchor", now.isoformat())
    monkeypatch.setattr(settings, "ANCHOR_DIR", tmp_path)
    monkeypatch.setattr(work_checks, "months_ahead", lambda *given: 3)
    monkeypatch.setattr(work_checks, "suspended", lambda given: ok("Billing", "Other tests suspend."))
    yield
    ScheduledTask.objects.update(due_at=now - timedelta(days=1))


@pytest.mark.slow
@pytest.mark.check
def test_a_deployment_that_keeps_the_promises_passes(all_is_well: None, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(check for check in examination.CHECKS if check.__name__ not in ("suspended", "holder_clocks"))
    monkeypatch.setattr(examination, "CHECKS", others)
    code, said = run_doctor("--format", "json")
    found = json.loads(said)
    assert [each for each in found["checks"] if each["state"] != OK] == []
    assert (code, found["exit_code"], len(found["checks"])) == (0, 0, 26)
    assert {task["task"] for task in found["tasks"]} == {task.name for task in TIMETABLE}
    code, said = run_doctor()
    lines = said.splitlines()
    assert (code, lines[-1]) == (0, "Checks: 26 OK.")
    assert len(lines) < 30
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("states", "code", "summary"),
    [((OK, OK), 0, "2 OK"), ((OK, WARNING), 1, "1 OK, 1 WARNING"), ((FAILED, WARNING), 2, "1 WARNING, 1 FAILED")],
)
def test_the_worst_finding_decides_the_exit_code(
    states: tuple[CheckState, ...], code: int, summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [CheckResult("Some check", state, "Is so.", "" if state is OK else "Do this.") for state in states]
    monkeypatch.setattr("ledger_project.management.commands.doctor.examine", lambda: iter(found))
    assert run_doctor()[0] == code
    assert run_doctor()[1].endswith(f"\nChecks: {summary}.\n")
    assert run_doctor()[1].count("→ Do this.") == len([state for state in states if state is not OK])


@pytest.mark.django_db
def test_a_misspelt_group_that_must_have_a_code_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LEDGER_TWO_STEP", ["finance", "suport"])
    found = examination.two_step_login(connection)
    assert (found.check, found.state) == ("Two-step", FAILED)
    assert found.text.startswith("LEDGER_TWO_STEP names suport; the groups are administrator, ")
    assert "without a code" in found.advice
    monkeypatch.setattr(settings, "LEDGER_TWO_STEP", ["finance", "support"])
    assert examination.two_step_login(connection).state == OK


@pytest.mark.usefixtures("committed_db")
def test_without_the_database_it_says_so_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    code, said = run_doctor()
    assert code == 2
    assert said.startswith("FAILED   Database     The database does not answer: ")
    assert said.endswith("\nChecks: 1 FAILED.\n")
    assert json.loads(run_doctor("--format", "json")[1])["tasks"] == []


@pytest.mark.django_db
def test_a_check_that_cannot_be_made_fails_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(given: Any) -> CheckResult:
        raise OperationalError("no such thing")

    monkeypatch.setattr(examination, "CHECKS", (cannot, schema_checks.migrations))
    found = list(examination.examine())
    assert [each.state for each in found] == [OK, FAILED, OK]
    assert found[1].text == "This could not be checked: no such thing"


@pytest.mark.django_db
@pytest.mark.parametrize(("distributed", "state"), [(True, WARNING), (False, FAILED)])
def test_only_on_a_cluster_a_node_that_is_away_makes_its_own_check_fail_and_no_other(
    monkeypatch: pytest.MonkeyPatch, settings: Any, distributed: bool, state: CheckState
) -> None:
    def cannot(given: Any) -> CheckResult:
        raise OperationalError("it is away") from psycopg.errors.ConnectionFailure("it is away")

    settings.LEDGER = settings.LEDGER | {"DISTRIBUTED": distributed}
    monkeypatch.setattr(examination, "CHECKS", (cannot,))
    monkeypatch.setattr(examination.node_checks, "nodes", lambda connection: ())
    assert [each.state for each in examination.examine()] == [OK, state]


@pytest.mark.django_db
def test_a_setting_that_is_no_number_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_WEB_WORKERS", "many")
    code, said = run_doctor()
    assert code == 2
    assert "FAILED   Connections  This could not be checked: LEDGER_WEB_WORKERS is not a number: 'many'." in said


def test_a_server_that_is_not_released_yet_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "_row", lambda *given: ("19beta1 (Debian 19~beta1-1)",))
    found = server_checks.versions(connection)
    assert (found.state, "PostgreSQL 19beta1, " in found.text) == (OK, True)


@pytest.mark.usefixtures("committed_db")
def test_a_database_on_which_nothing_else_starts_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_verified", set())
    connection.close()
    before = connection.settings_dict["OPTIONS"]
    unsafe = before | {"options": "-c synchronous_commit=off -c default_transaction_isolation=serializable -c lock_timeout=0"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", unsafe)
    try:
        found = {each.check: each for each in examination.examine()}
    finally:
        connection.close()
    assert {name for name in ("Isolation", "Durability", "Timeouts") if found[name].state is FAILED} == {
        "Isolation", "Durability", "Timeouts",
    }  # fmt: skip
    assert found["Durability"].text.startswith("synchronous_commit = off: a crash could lose")
    assert found["Locks"].state is OK


# The server ------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_locks_that_exclude_nobody_and_a_server_without_a_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: Exception) -> Callable[[Any], None]:
        def verify(given: Any) -> None:
            raise error

        return verify

    unsafe = UnsafeDatabase(what="advisory locks do nothing", why="two connections hold one lock at the same time")
    monkeypatch.setattr(checks, "verify_advisory_locks", raising(unsafe))
    assert server_checks.locks(connection).state is FAILED
    monkeypatch.setattr(checks, "verify_advisory_locks", raising(checks.NoSecondConnection("no")))
    assert server_checks.locks(connection).state is WARNING


@pytest.mark.usefixtures("committed_db")
def test_timeouts_that_are_not_as_prepared(raw_connection: Callable[..., psycopg.Connection[Any]]) -> None:
    with second_database() as other:
        assert server_checks.timeouts(other).state is OK
        owner, name = raw_connection(autocommit=True), connection.settings_dict["NAME"]
        try:
            owner.execute(f"ALTER DATABASE {name} RESET idle_in_transaction_session_timeout")
            found = server_checks.timeouts(other)
        finally:
            owner.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '60s'")
    assert (found.state, found.text) == (WARNING, "On the database, idle_in_transaction_session_timeout is not 60s.")


@pytest.mark.django_db
def test_connections_are_compared_with_what_the_web_processes_may_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_checks.connections(connection).state is OK
    monkeypatch.setenv("LEDGER_WEB_WORKERS", "20")
    found = server_checks.connections(connection)
    assert (found.state, "21 web processes need at most 630." in found.text) == (WARNING, True)
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    assert server_checks.connections(connection).state is OK


@pytest.mark.django_db
def test_a_small_table_of_locks_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_checks.lock_table(connection) == ok("Lock table", "25 batches of 1,000 holders can run at once.")
    monkeypatch.setattr(server_checks, "SERVER_SLOTS", "64 * 100 / 2 / 100")
    assert server_checks.lock_table(connection).text == "3 batches of 1,000 holders can run at once."
    assert server_checks.lock_table(connection).state is WARNING


@pytest.mark.parametrize(("apart_s", "state"), [(0.2, OK), (5, WARNING), (-5, WARNING), (600, FAILED)])
def test_clocks_that_are_apart(apart_s: float, state: CheckState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "_row", lambda *given: (datetime.now(UTC) + timedelta(seconds=apart_s),))
    assert server_checks.clock(connection).state is state


@pytest.mark.django_db
def test_a_server_that_logs_no_waits_an_old_one_and_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_checks.server_log(connection).text == "The server logs waits for locks, and statements over 500 ms."
    silent = server_checks.SETTING.replace("setting, unit", "CASE name WHEN 'log_lock_waits' THEN 'off' ELSE '-1' END, unit")
    monkeypatch.setattr(server_checks, "SETTING", silent)
    found = server_checks.server_log(connection)
    assert (found.state, found.text) == (WARNING, "log_lock_waits and log_min_duration_statement are off.")
    assert server_checks.versions(connection).state is OK
    with monkeypatch.context() as patch:
        patch.setattr(settings, "DEBUG", True)
        assert server_checks.versions(connection).state is WARNING
    monkeypatch.setattr(checks, "OLDEST_VERSION", 99)
    found = server_checks.versions(connection)
    assert (found.state, found.text.split(": ")[1]) == (FAILED, "the ledger needs PostgreSQL 99 or newer.")


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{server_checks.VERSION}"' in (settings.BASE_DIR / "pyproject.toml").read_text()


# The schema ------------------------------------------------------------------------------------------


def test_the_output_in_the_docs_has_todays_numbers_of_tables_and_triggers() -> None:
    shown = (settings.BASE_DIR / "docs" / "how-to" / "operations" / "monitoring.md").read_text()
    assert f"exactly the rights of the {len(RIGHTS)} tables in rights.py." in shown
    assert "The usage table has partitions for 4 coming months." in shown
    partitions_shown = 1 + 4
    triggers_shown = sum(map(len, TRIGGERS.values())) + partitions_shown * len(PARTITIONS_HAVE)
    assert f"All {triggers_shown} triggers exist and are enabled." in shown


@pytest.mark.django_db
def test_every_trigger_of_the_schema_is_declared() -> None:
    partitions.make_month(connection, date(2199, 1, 1))
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgrelid::regclass::text, tgname, tgenabled::text FROM pg_trigger WHERE NOT tgisinternal")
        rows = cursor.fetchall()
    assert {(name, state) for _, name, state in rows} == {(name, enabled_as(name)) for _, name, _ in rows}
    assert enabled_as("append_only") == ALWAYS
    found: dict[str, set[str]] = {}
    for table, name, _ in rows:
        found.setdefault(table, set()).add(name)
    months = {table for table in found if table.startswith("billing_usageevent_2")}
    assert "billing_usageevent_2199_01" in months
    assert {table: names for table, names in found.items() if table not in months} == TRIGGERS
    assert all(found[month] == PARTITIONS_HAVE for month in months)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE ledger_entry DISABLE TRIGGER append_only",
        "ALTER TABLE ledger_entry ENABLE TRIGGER append_only",  # not for replicas
        "ALTER TABLE ledger_entry ENABLE REPLICA TRIGGER append_only",
        "DROP TRIGGER append_only ON ledger_entry",
    ],
)
def test_a_trigger_that_is_missing_or_not_always_enabled_fails(change: str) -> None:
    assert schema_checks.triggers(connection).state is OK
    execute(change)
    found = schema_checks.triggers(connection)
    assert (found.state, found.text) == (FAILED, "Missing or not enabled: append_only of ledger_entry.")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("GRANT DELETE ON ledger_entry TO {role}", "may also DELETE ledger_entry"),
        ("GRANT UPDATE ON ledger_entry TO {role}", "may also UPDATE ledger_entry"),
        ("GRANT UPDATE (amount) ON ledger_entry TO {role}", "may also UPDATE (amount) ledger_entry"),
        ("GRANT TRUNCATE ON billing_line TO PUBLIC", "may also TRUNCATE billing_line"),
        ("REVOKE INSERT ON ledger_entry FROM {role}", "may not INSERT ledger_entry"),
        ("REVOKE UPDATE (revoked_at) ON ledger_api_key FROM {role}", "may not UPDATE (revoked_at) ledger_api_key"),
    ],
)
def test_rights_that_are_not_those_of_the_code_fail(change: str, text: str) -> None:
    role = settings.LEDGER_APP_ROLE
    assert schema_checks.rights(connection).state is OK
    execute(change.format(role=role))
    assert schema_checks.rights(connection) == failed("Rights", f"{role} {text}.", server_checks.PREPARE)


@pytest.mark.django_db
def test_the_owner_at_work_and_a_role_that_does_not_exist_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert schema_checks.role(connection).state is WARNING
    monkeypatch.setattr(settings, "LEDGER_APP_ROLE", "nobody_of_that_name")
    assert schema_checks.rights(connection).state is WARNING


@pytest.mark.django_db
def test_migrations_that_are_not_applied_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    applied = MigrationRecorder.applied_migrations

    def without_one(recorder: MigrationRecorder) -> dict[tuple[str, str], object]:
        return {key: value for key, value in applied(recorder).items() if key != ("sessions", "0001_initial")}

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", without_one)
    assert schema_checks.migrations(connection).text == "1 are not applied: sessions.0001_initial."


# What happens again and again ------------------------------------------------------------------------


def record_task(name: str, *, hours_ago: float, exit_code: int | None) -> None:
    """Record that a task of the timetable ran that many hours ago; with no exit code it still runs."""
    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    values = {"due_at": at, "started_at": at, "finished_at": None if exit_code is None else at, "exit_code": exit_code}
    ScheduledTask.objects.update_or_create(name=name, defaults=values)


@pytest.mark.django_db
def test_a_recurring_grant_that_is_overdue_is_named() -> None:
    assert work_checks.recurring_grants(connection) == ok("Recurring grants", "None is overdue.")
    starts_at = datetime(2026, 9, 1, tzinfo=UTC)
    terms = {"interval": "year", "interval_count": 100, "amount": 1, "starts_at": starts_at}
    services.set_recurring_grant(holder_id="ada", recurring_grant="late", idempotency_key="k", **terms)
    found = work_checks.recurring_grants(connection)
    assert (found.state, found.text) == (
        WARNING,
        "1 recurring grant is overdue, the first since 2026-09-01 00:00 UTC.",
    )


@pytest.mark.django_db
def test_the_timetable_is_held_to_what_is_on_record() -> None:
    assert work_checks.timetable(connection).text.startswith(
        "top_up_accounts never ran; settle_purchases never ran; make_recurring_grants never ran; expire_credits never ran; "
        "move_subscriptions never ran; expire_subscriptions never ran; generate_invoices never ran; send_reminders never ran; "
        "collect_payments never ran; deliver_signals never ran; deliver_mails never ran; check_vat_ids never ran; "
    )
    for task in TIMETABLE:
        record_task(task.name, hours_ago=0.1, exit_code=0)
    assert work_checks.timetable(connection).state is OK
    record_task("generate_invoices", hours_ago=0.1, exit_code=4)  # passes
    record_task("usage_partitions", hours_ago=30, exit_code=0)
    assert work_checks.timetable(connection).state is OK
    record_task("update_totals", hours_ago=2, exit_code=0)
    record_task("usage_partitions", hours_ago=1, exit_code=2)
    found = work_checks.timetable(connection)
    texts = "update_totals last ran 2 hours ago; usage_partitions ended with exit code 2 1 hour ago."
    assert (found.state, found.text) == (WARNING, texts)
    record_task("generate_invoices --check", hours_ago=1, exit_code=1)
    assert work_checks.timetable(connection).state is FAILED


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("hours_ago", "exit_code", "state"), [(20, 0, OK), (40, 0, WARNING), (20, 2, WARNING), (20, 1, FAILED), (1, None, WARNING)]
)
def test_the_last_audit_is_reported_with_its_age_and_result(hours_ago: float, exit_code: int | None, state: CheckState) -> None:
    assert work_checks.audit(connection).state is WARNING
    record_task("audit_ledger", hours_ago=hours_ago, exit_code=exit_code)
    assert work_checks.audit(connection).state is state


def test_the_newest_anchor_is_reported_with_its_age_and_its_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_anchor: Callable[[Path, str], None]
) -> None:
    monkeypatch.setattr(settings, "ANCHOR_DIR", None)
    assert work_checks.anchor(connection).state is WARNING
    monkeypatch.setattr(settings, "ANCHOR_DIR", tmp_path)
    assert work_checks.anchor(connection).text == f"There is no anchor in {tmp_path}."
    now = datetime.now(UTC)
    write_anchor(tmp_path / "a", (now - timedelta(days=3)).isoformat())
    assert work_checks.anchor(connection).state is WARNING
    write_anchor(tmp_path / "b", now.isoformat())
    assert work_checks.anchor(connection).text.startswith("The newest anchor, b, was written less than a minute ago")
    assert work_checks.anchor(connection).state is OK
    whole = (tmp_path / "b").read_text()
    (tmp_path / "b").write_text(whole.replace("seal 0", "seal 1"))
    assert work_checks.anchor(connection).state is FAILED


@pytest.mark.django_db
def test_missing_partitions_and_suspended_subscriptions_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for ahead, state in ((3, OK), (1, OK), (0, WARNING), (-1, WARNING)):
        monkeypatch.setattr(work_checks, "months_ahead", lambda *given, ahead=ahead: ahead)
        assert work_checks.partitions(connection).state is state
    assert work_checks.suspended(connection).state is OK
    SuspendedBilling.objects.create(subscription_id=SubscriptionFactory().pk, reason="looks-odd")
    advice = "Home in the admin names them; each page says why, and resumes billing."
    assert work_checks.suspended(connection) == warning("Billing", "1 subscription is suspended.", advice)


@pytest.mark.parametrize(("free", "state"), [(50, OK), (5, WARNING), (1, FAILED)])
def test_a_full_disk_of_the_embedded_server_is_reported(free: int, state: CheckState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "EMBEDDED_SERVER", False)
    assert work_checks.disk(connection).text.startswith("Unknown")
    monkeypatch.setattr(settings, "EMBEDDED_SERVER", True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 100 - free, free))
    assert work_checks.disk(connection).state is state
