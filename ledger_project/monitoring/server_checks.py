"""Checks of the database server: settings that the start checks refuse, and settings that are only unwise."""

import platform
from datetime import UTC, datetime, timedelta
from typing import Any

import django
import psycopg
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.database import checks
from ledger.database.batch_slots import SERVER_SLOTS, SLOT_LOCKS
from ledger.database.cluster import on_cluster
from ledger.errors import UnsafeDatabase
from ledger.version import VERSION
from ledger_project.monitoring.findings import CheckResult, failed, ok, warning
from ledger_project.serving.bootstrap import SETTINGS_OF_DATABASE, SETTINGS_OF_ROLE, TIMEOUTS
from ledger_project.serving.web import CONNECTIONS_TO_DATABASE, workers_from_environment

CLOCK_WARNING, CLOCK_FAILED = timedelta(seconds=1), timedelta(seconds=60)
BATCH_HOLDERS = 1_000
BATCHES_EXPECTED = 5
PREPARE = "Run `manage.py prepare_database` as the owner, then start the processes again."

CONNECTIONS = """
SELECT count(*), current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    -- From PostgreSQL 16 on.
    - coalesce(current_setting('reserved_connections', true), '0')::int
FROM pg_stat_activity
WHERE backend_type = 'client backend'
"""
# The settings of the database, and of this role in it, not of this session, which may have others; some apply to TCP only.
OF_DATABASE = """
SELECT coalesce(array_agg(each) FILTER (WHERE setrole = 0), '{}'), coalesce(array_agg(each) FILTER (WHERE setrole <> 0), '{}')
FROM pg_db_role_setting, unnest(setconfig) AS each
WHERE setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))
    AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
SETTING = "SELECT name, setting, unit FROM pg_settings WHERE name = ANY(%s)"


def _row(connection: BaseDatabaseWrapper, sql: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchone()


def isolation(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that transactions read what was committed before each statement, as the start checks require."""
    try:
        checks.verify_isolation(connection, checks.server_settings(connection))
    except UnsafeDatabase as unsafe:
        return failed("Isolation", _text_of(unsafe), "Use READ COMMITTED for the role, the database and Django.")
    return ok("Isolation", "READ COMMITTED.")


def writes(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the server takes writes: a standby or a read-only server does not."""
    refusal = checks.refusal_of_writes(connection)
    if refusal:
        advice = "Point DATABASE_URL to the primary. For a web server that only reads, check /readyz?reads_only=true."
        return failed("Writes", f"Every write gets 503: {refusal}.", advice)
    return ok("Writes", "The server takes writes.")


def durability(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that every confirmed write is on the disk."""
    try:
        checks.verify_durability(checks.server_settings(connection))
    except UnsafeDatabase as unsafe:
        return failed("Durability", _text_of(unsafe), "Set fsync, full_page_writes and synchronous_commit to on.")
    (checksums,) = _row(connection, "SHOW data_checksums")
    if checksums != "on":
        text = "The cluster has no data checksums: PostgreSQL does not notice a page that the disk has changed."
        return warning("Durability", text, "Stop the server and run `pg_checksums --enable`.")
    return ok("Durability", "fsync, full_page_writes and synchronous_commit are on, and pages have checksums.")


def timeouts(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the database, and on a cluster the role in it, has the timeouts that `prepare_database` sets."""
    try:
        checks.verify_lock_timeout(checks.server_settings(connection))
    except UnsafeDatabase as unsafe:
        return failed("Timeouts", _text_of(unsafe), PREPARE)
    of_database, of_role = (dict(each.split("=", 1) for each in found) for found in _row(connection, OF_DATABASE))
    wrong = [
        f"on the database, {name} is not {value}"
        for name, value in SETTINGS_OF_DATABASE.items()
        if of_database.get(name) != value
    ]
    for name, value in SETTINGS_OF_ROLE.items():
        if of_role.get(name) != value:
            wrong.append(f"for this role, {name} is not {value}")
        if name in of_database:
            wrong.append(f"on the database, {name} is set, which also ends moves of shards")
    if wrong:
        text = "; ".join(wrong)
        return warning("Timeouts", f"{text[0].upper()}{text[1:]}.", PREPARE)
    return ok("Timeouts", f"lock_timeout is {TIMEOUTS['lock_timeout']}; all others are as prepare_database sets them.")


def locks(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that two connections exclude each other from an advisory lock, through the pooler if there is one."""
    way = "through PgBouncer" if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS") else "straight to PostgreSQL"
    try:
        checks.verify_advisory_locks(connection)
    except UnsafeDatabase as unsafe:
        return failed(
            "Locks", f"{_text_of(unsafe)} ({way}).", "Use PostgreSQL itself; a pooler must be in transaction or session mode."
        )
    except checks.NoSecondConnection:
        return warning(
            "Locks", "The server has no second connection to test the locks with.", "See Connections, then run doctor again."
        )
    return ok("Locks", f"Two connections exclude each other, {way}.")


@on_cluster("group_commit.connections_to_a_node")
def _connections_to_a_node() -> int:
    """Return the most connections that a web process opens to a worker of a cluster."""
    return 0


def connections(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the server, or a worker of a cluster, has the connections that the web processes of this machine may need."""
    used, most = _row(connection, CONNECTIONS)
    workers = sum(workers_from_environment())
    needed = workers * (CONNECTIONS_TO_DATABASE + _connections_to_a_node())
    is_pooled = bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))
    text = f"{used} of {most} are in use; {workers} web processes need at most {needed}{', which PgBouncer shares' * is_pooled}."
    advice = "Put PgBouncer in between, start fewer web processes, or raise max_connections."
    if used >= most * 0.9 or (needed > most and not is_pooled):
        return warning("Connections", text, advice)
    return ok("Connections", text)


def lock_table(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the server's lock table is large enough for large batches."""
    (slots,) = _row(connection, f"SELECT {SERVER_SLOTS}")
    batches = slots * SLOT_LOCKS // BATCH_HOLDERS
    text = f"{batches} batches of {BATCH_HOLDERS:,} holders can run at once."
    if batches < BATCHES_EXPECTED:
        return warning("Lock table", text, "Raise max_locks_per_transaction to 256, and start the server again.")
    return ok("Lock table", text)


def clock(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that this process and the server have the same time. Entries have the server's time."""
    before = datetime.now(UTC)
    (server_time,) = _row(connection, "SELECT clock_timestamp()")
    apart = abs(server_time - (before + (datetime.now(UTC) - before) / 2))
    text = f"The server's clock and this machine's are {apart.total_seconds():.3f} s apart."
    advice = "Synchronise both clocks with NTP. Entries have the server's time."
    if apart > CLOCK_FAILED:
        return failed("Clock", text, advice)
    return warning("Clock", text, advice) if apart > CLOCK_WARNING else ok("Clock", text)


def server_log(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the server logs waits for locks and slow statements."""
    with connection.cursor() as cursor:
        cursor.execute(SETTING, [["log_lock_waits", "log_min_duration_statement"]])
        found = {name: setting for name, setting, _ in cursor.fetchall()}
    missing = [name for name, off in (("log_lock_waits", "off"), ("log_min_duration_statement", "-1")) if found.get(name) == off]
    if missing:
        advice = "Set log_lock_waits = on and log_min_duration_statement = 500ms, and reload the server."
        return warning("Server log", f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} off.", advice)
    slow_ms = int(found["log_min_duration_statement"])
    return ok("Server log", f"The server logs waits for locks, and statements over {slow_ms} ms.")


def versions(connection: BaseDatabaseWrapper) -> CheckResult:
    """Show the versions; fail on a server that the start checks refuse."""
    (server,) = _row(connection, "SHOW server_version")
    text = (
        f"Ledger {VERSION}, PostgreSQL {server.split()[0]}, Python {platform.python_version()}, Django {django.__version__}, "
        f"psycopg {psycopg.__version__}."
    )
    try:
        checks.verify_version(connection)
    except UnsafeDatabase as unsafe:
        return failed("Versions", _text_of(unsafe), f"Upgrade the server to PostgreSQL {checks.OLDEST_VERSION} or newer.")
    if settings.DEBUG:
        return warning("Versions", f"{text[:-1]}; DEBUG is on.", "Unset DEBUG: error pages show settings and data.")
    return ok("Versions", text)


def _text_of(unsafe: UnsafeDatabase) -> str:
    return f"{unsafe}."
