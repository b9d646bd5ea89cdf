"""Refuses to work with a database that would let wrong balances through.

`verify_database` checks an open connection; every process calls it once, when it first connects. `system_checks` are what Django
checks by command. See docs/how-to/operations/run.md, "What is refused at the start".
"""

import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, OperationalError, ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import IsolationLevel

from ledger.database.cluster import on_cluster
from ledger.database.schema_versions import leave_unensured, verify_schema
from ledger.database.transactions import REPEATABLE_SNAPSHOT
from ledger.errors import UnsafeDatabase

CAN_BE_LOST: Final = "a crash could lose a spend that a client has seen succeed"
DURABLE: Final[dict[str, tuple[str, ...]]] = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
}
"""The settings of a server that keep committed data, with their safe values."""
IS_A_CLUSTER: Final = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
LEDGER_HAS_SHARDS: Final = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('ledger_entry'))"
)
TAKES_NO_WRITES = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
SERVER_SETTINGS = """
    SELECT name, setting
      FROM pg_settings
     WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'default_transaction_isolation', 'lock_timeout')
"""

OLDEST_VERSION = 15
"""The oldest PostgreSQL that has everything that the ledger's SQL uses; the tests run on it, and on each newer version."""


class NoSecondConnection(OperationalError):
    """The server refused the second connection, which the test of advisory locks needs. All other checks passed."""


_verifying = threading.Lock()
_verified: set[str] = set()
"""The aliases of the databases that this process has verified."""


def register() -> None:
    """Verify each database when this process first connects to it."""
    connection_created.connect(_verify_once, dispatch_uid="ledger.database.checks")


def verify_database(connection: BaseDatabaseWrapper, *, needs_lock_timeout: bool = False) -> None:
    """Return if the ledger can rely on this database, or raise; nothing is written.

    Opens a second connection for a moment, to test that advisory locks exclude.

    Args:
        connection: the connection whose settings and server are checked; outside a transaction.
        needs_lock_timeout: also refuse a database without `lock_timeout`, and a cluster whose nodes are not set up. `manage.py
            prepare_database` does both, so only processes that start after that command ask for this check.

    Raises:
        UnsafeDatabase: the server is too old, this version cannot use the schema, the isolation level, durability, advisory
            locks or `lock_timeout` are unsafe, or the connection leads to a worker of a cluster.
        NoSecondConnection: the server accepts no further connection, so the locks are untested; all other checks passed.
    """
    # Django determines the isolation level on connecting.
    connection.ensure_connection()
    verify_version(connection)
    verify_schema(connection)
    verify_server(connection, needs_lock_timeout=needs_lock_timeout)


def verify_server(connection: BaseDatabaseWrapper, *, needs_lock_timeout: bool = False) -> None:
    """Return if the ledger can rely on the server, whatever its tables are, or raise; as `verify_database` otherwise."""
    connection.ensure_connection()
    verify_version(connection)
    current = server_settings(connection)
    verify_isolation(connection, current)
    verify_durability(current)
    verify_coordinator(connection)
    if needs_lock_timeout:
        verify_lock_timeout(current)
        verify_cluster(connection)
    verify_advisory_locks(connection)


@on_cluster("checks.verify_coordinator")
def verify_coordinator(connection: BaseDatabaseWrapper) -> None:
    """Return, or raise UnsafeDatabase if the connection must not lead to this server of a cluster; without a cluster, return."""


@on_cluster("checks.verify_cluster")
def verify_cluster(connection: BaseDatabaseWrapper) -> None:
    """Return if the ledger is distributed as the settings say, and every node has safe settings; or raise UnsafeDatabase."""
    with connection.cursor() as cursor:
        if is_so(cursor, IS_A_CLUSTER) and is_so(cursor, LEDGER_HAS_SHARDS):
            raise UnsafeDatabase(what="LEDGER_DISTRIBUTED is off", why="the ledger of this database is distributed over nodes")


def is_so(cursor: Any, question: str, parameters: list[str] | None = None) -> bool:
    """Return the server's answer to a query of one row with one boolean."""
    cursor.execute(question, parameters)
    (found,) = cursor.fetchone()
    return bool(found)


def verify_version(connection: BaseDatabaseWrapper) -> None:
    """Return, or raise UnsafeDatabase if the server is not PostgreSQL, or is older than the ledger's SQL needs."""
    if connection.vendor != "postgresql":
        raise UnsafeDatabase(what=connection.display_name, why=f"the ledger needs PostgreSQL {OLDEST_VERSION} or newer")
    version: int = connection.pg_version  # type: ignore[attr-defined]
    if version // 10_000 < OLDEST_VERSION:
        found = f"PostgreSQL {version // 10_000}.{version % 10_000}"
        raise UnsafeDatabase(what=found, why=f"the ledger needs PostgreSQL {OLDEST_VERSION} or newer")


def verify_isolation(connection: BaseDatabaseWrapper, found: Mapping[str, str]) -> None:
    """Return, or raise UnsafeDatabase if a transaction would read older data than its lock."""
    level = getattr(connection, "isolation_level", IsolationLevel.READ_COMMITTED)
    if level not in (None, IsolationLevel.READ_COMMITTED):
        raise UnsafeDatabase(what=f"isolation_level = {IsolationLevel(level).name}", why=REPEATABLE_SNAPSHOT)
    if found.get("default_transaction_isolation", "read committed") != "read committed":
        raise UnsafeDatabase(
            what=f"default_transaction_isolation = {found['default_transaction_isolation']}", why=REPEATABLE_SNAPSHOT
        )


def server_settings(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the server's settings that the ledger relies on."""
    with connection.cursor() as cursor:
        cursor.execute(SERVER_SETTINGS)
        return dict(cursor.fetchall())


def verify_durability(found: Mapping[str, str]) -> None:
    """Return, or raise UnsafeDatabase if a crash could lose a committed write."""
    for name, safe in DURABLE.items():
        value = found.get(name, "on")
        if value not in safe:
            raise UnsafeDatabase(what=f"{name} = {value}", why=CAN_BE_LOST)


def verify_lock_timeout(found: Mapping[str, str]) -> None:
    """Return, or raise UnsafeDatabase if the server does not limit waits for locks."""
    if found.get("lock_timeout", "0") == "0":
        raise UnsafeDatabase(what="lock_timeout = 0", why="a spend could wait for ever; run `manage.py prepare_database`")


def verify_advisory_locks(connection: BaseDatabaseWrapper) -> None:
    """Test that a second connection does not get a lock that the first one holds; with some look-alikes of PostgreSQL it does."""
    # A random number, so that two processes that start at the same time do not collide.
    number = secrets.randbits(62)
    # Under another alias, so that it is not verified in turn; outside a pool, so that it is a separate connection.
    second = connection.copy(alias=f"{connection.alias} (second)")
    second.settings_dict["OPTIONS"].pop("pool", None)
    try:
        second.ensure_connection()
    except OperationalError as error:
        raise NoSecondConnection(str(error)) from error
    try:
        with connection.cursor() as holder, second.cursor() as other:
            holder.execute("BEGIN")
            try:
                holder.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
                (is_held,) = holder.fetchone()
                other.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
                (is_held_twice,) = other.fetchone()
            finally:
                holder.execute("ROLLBACK")
    except (NotSupportedError, ProgrammingError) as error:
        raise UnsafeDatabase(what="no advisory locks", why=str(error)) from error
    finally:
        second.close()
    if not is_held or is_held_twice:
        raise UnsafeDatabase(what="advisory locks do nothing", why="two connections hold one lock at the same time")


def refusal_of_writes(connection: BaseDatabaseWrapper) -> str:
    """Return why the server takes no writes now, or an empty text if it does."""
    with connection.cursor() as cursor:
        cursor.execute(TAKES_NO_WRITES)
        is_standby, is_read_only = cursor.fetchone()
    if is_standby:
        return "the server is a standby, which only reads"
    return "transactions are read-only (default_transaction_read_only)" if is_read_only else ""


def leave_unverified(alias: str) -> None:
    """Let this process connect to the database of that alias without verification: the caller verifies it step by step."""
    _verified.add(alias)
    leave_unensured(alias)


def _verify_once(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Verify the ledger's server when this process first connects to it; close the connection and raise if it is unsafe.

    Tables that do not fit refuse the calls of the ledger (`ensure_schema`), not the connection: a project that embeds the
    ledger has logins, pages and migrations of its own.
    """
    if connection.alias != DEFAULT_DB_ALIAS or connection.alias in _verified:
        return
    with _verifying:
        if connection.alias in _verified:
            return
        try:
            verify_server(connection)
        except BaseException:
            connection.close()
            raise
        _verified.add(connection.alias)
