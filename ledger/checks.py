"""Refuse to work on a database, or with settings, that would let wrong balances through.

Two doors. Django's system checks look at the settings, without a connection. `verify_database` looks at a living
connection; every process does so once, when it first connects. See docs/OPERATIONS.md, "What is refused at the start".
"""

import secrets
import threading
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import register as register_check
from django.core.exceptions import ImproperlyConfigured
from django.db import NotSupportedError, OperationalError, ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import IsolationLevel

from ledger.database.locks import holder_key, lock_number
from ledger.errors import UnsafeDatabase

DURABILITY = ("fsync", "full_page_writes", "synchronous_commit")
SAFE_SYNCHRONOUS_COMMIT = {"on", "local", "remote_write", "remote_apply"}

SERVER_SETTINGS = """
    SELECT name, setting
      FROM pg_settings
     WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'default_transaction_isolation', 'lock_timeout')
"""

REPEATABLE_SNAPSHOT = "the snapshot would be older than the lock, and balances are then overspent"
ONE_TRANSACTION_PER_REQUEST = "use-cases open their own transaction; inside another one a lock outlives what it protects"


class NoSecondConnection(OperationalError):
    """The server refused the self-test its second connection; all that the first one showed was as needed."""


_looking = threading.Lock()
_verified: set[str] = set()


def register() -> None:
    """Register the system checks, and look at each database when this process first connects to it."""
    register_check(check_settings, "ledger")
    connection_created.connect(_verify_once, dispatch_uid="ledger.checks")


# Settings --------------------------------------------------------------------------------------------


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report ATOMIC_REQUESTS (ledger.E001), another isolation level than READ COMMITTED (E002), wrong lock settings (E003)."""
    found: list[CheckMessage] = []
    for alias, database in settings.DATABASES.items():
        if database.get("ATOMIC_REQUESTS"):
            found.append(Error(f"ATOMIC_REQUESTS is on for {alias!r}: {ONE_TRANSACTION_PER_REQUEST}.", id="ledger.E001"))
        level = database.get("OPTIONS", {}).get("isolation_level")
        if level not in (None, IsolationLevel.READ_COMMITTED):
            found.append(Error(f"The isolation level of {alias!r} is {level!r}: {REPEATABLE_SNAPSHOT}.", id="ledger.E002"))
    try:
        lock_number(holder_key("42"))
    except ImproperlyConfigured as error:
        found.append(Error(f"Locks cannot be taken: {error}.", id="ledger.E003"))
    return found


# A living connection ---------------------------------------------------------------------------------


def verify_database(connection: BaseDatabaseWrapper, *, needs_lock_timeout: bool = False) -> None:
    """Look whether the ledger can rely on this database, or raise; nothing is written.

    Opens a second connection for a moment, to see that advisory locks exclude.

    Args:
        connection: the connection whose settings and server are looked at; outside a transaction.
        needs_lock_timeout: also refuse waiting for locks without an end. A database has its `lock_timeout` from
            `manage.py prepare_database`, so this is asked only by processes that start after it.

    Raises:
        UnsafeDatabase: the isolation level, ATOMIC_REQUESTS, durability, advisory locks or `lock_timeout` are not as needed.
        NoSecondConnection: everything but the locks was looked at and is as needed; the server takes no further connection.
    """
    # Django settles the isolation level on connecting.
    connection.ensure_connection()
    _verify_client(connection)
    found = _server_settings(connection)
    _verify_durability(found)
    if found.get("default_transaction_isolation", "read committed") != "read committed":
        raise UnsafeDatabase(
            what=f"default_transaction_isolation = {found['default_transaction_isolation']}", why=REPEATABLE_SNAPSHOT
        )
    if needs_lock_timeout and found.get("lock_timeout", "0") == "0":
        raise UnsafeDatabase(what="lock_timeout = 0", why="a spend would wait for ever; run `manage.py prepare_database`")
    _verify_advisory_locks(connection)


def _verify_client(connection: BaseDatabaseWrapper) -> None:
    if connection.settings_dict.get("ATOMIC_REQUESTS"):
        raise UnsafeDatabase(what="ATOMIC_REQUESTS = True", why=ONE_TRANSACTION_PER_REQUEST)
    level = getattr(connection, "isolation_level", IsolationLevel.READ_COMMITTED)
    if level not in (None, IsolationLevel.READ_COMMITTED):
        raise UnsafeDatabase(what=f"isolation_level = {IsolationLevel(level).name}", why=REPEATABLE_SNAPSHOT)


def _server_settings(connection: BaseDatabaseWrapper) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(SERVER_SETTINGS)
        return dict(cursor.fetchall())


def _verify_durability(found: dict[str, str]) -> None:
    for name in DURABILITY:
        value = found.get(name, "on")
        if value != "on" and not (name == "synchronous_commit" and value in SAFE_SYNCHRONOUS_COMMIT):
            raise UnsafeDatabase(what=f"{name} = {value}", why="a spend that was answered could be gone after a crash")


def _verify_advisory_locks(connection: BaseDatabaseWrapper) -> None:
    """See that a second connection does not get the lock that the first one holds; some look-alikes of PostgreSQL give it."""
    # A number of our own, so that two processes that start at the same time do not meet here.
    number = secrets.randbits(62)
    # Under another alias, so that it is not itself looked at; outside a pool, so that it is really another one.
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
                is_held = holder.fetchone()[0]
                other.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
                is_held_twice = other.fetchone()[0]
            finally:
                holder.execute("ROLLBACK")
    except (NotSupportedError, ProgrammingError) as error:
        raise UnsafeDatabase(what="no advisory locks", why=str(error)) from error
    finally:
        second.close()
    if not is_held or is_held_twice:
        raise UnsafeDatabase(what="advisory locks do nothing", why="two connections hold one lock at the same time")


def _verify_once(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Look at a database when this process first connects to it; refuse the connection as long as it is unsafe."""
    if connection.alias not in settings.DATABASES or connection.alias in _verified:
        return
    with _looking:
        if connection.alias in _verified:
            return
        try:
            verify_database(connection)
        except BaseException:
            connection.close()
            raise
        _verified.add(connection.alias)
