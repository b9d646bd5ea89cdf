"""Makes a database ready for the application: migrate, give rights and settings, and seed a ledger that nobody has used yet.

The settings are set on the database, not by each connection: so they also hold behind PgBouncer, which drops what a client
sets at connecting, and for a person with psql.
"""

import hashlib
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.core.management import call_command, get_commands
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import DatabaseError
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from ledger import services
from ledger.database.lock_names import PREPARATION
from ledger.database.locks import lock_number
from ledger.models import SCOPES, ApiKey
from ledger_project import database_urls
from ledger_project.rights import FUNCTIONS, READ, RIGHTS, SEQUENCES


class NotTheOwner(Exception):
    """The connected role may not migrate, or not give rights and set timeouts."""


def use_database(url: str) -> BaseDatabaseWrapper:
    """Have Django's default connection go to `url` from now on; closes the present one."""
    connection = connections[DEFAULT_DB_ALIAS]
    connection.close()
    connection.settings_dict.update(database_urls.parse(url))
    return connection


@contextmanager
def connected_as_owner() -> Iterator[BaseDatabaseWrapper]:
    """For the block, Django's default connection is the owner's; afterwards the application's again."""
    connection = connections[DEFAULT_DB_ALIAS]
    before = dict(connection.settings_dict)
    try:
        yield use_database(settings.OWNER_DATABASE_URL)
    finally:
        connection.close()
        connection.settings_dict.update(before)


def migrate_and_grant_rights(connection: BaseDatabaseWrapper, *, verbosity: int = 1) -> int:
    """Migrate, then give the application's rights and the timeouts; or raise, with whole migrations applied or not.

    Several machines may do so at once: one works, the others wait for it and find nothing left to do.

    Args:
        connection: the owner's, straight to PostgreSQL: a pooler in transaction mode does not keep the lock that is used here.
        verbosity: as for `migrate`.

    Returns:
        The number of migrations that were applied.

    Raises:
        NotTheOwner: SQLSTATE 42501, on migrating or on giving rights.
    """
    number = lock_number(PREPARATION())
    try:
        with connection.cursor() as cursor:
            # A migration may take long, and so may another machine's. Waiting for a table stays short: behind a waiting
            # ALTER TABLE everybody else waits too.
            cursor.execute("SET statement_timeout = 0")
            cursor.execute("SET lock_timeout = 0")
            cursor.execute("SELECT pg_advisory_lock(%s)", [number])
            cursor.execute("SET lock_timeout = '2s'")
        applied = _migrate(connection, verbosity)
        provision(connection)
        return applied
    except DatabaseError as error:
        if isinstance(error.__cause__, InsufficientPrivilege):
            raise NotTheOwner(str(error).strip()) from error
        raise
    finally:
        # With the session its lock ends.
        connection.close()


def _migrate(connection: BaseDatabaseWrapper, verbosity: int) -> int:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        call_command("migrate", interactive=False, verbosity=verbosity, database=connection.alias)
    return len(plan)


# Rights and settings ---------------------------------------------------------------------------------

SETTINGS = {
    "lock_timeout": "2s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    # A client whose machine has vanished does not say that it is gone. It is asked after 10 s of silence, three times in 9 s, and
    # a statement that is running looks every 5 s whether the connection has ended: its lock is free after 24 s at most.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
    "client_connection_check_interval": "5s",
    # Statements on arrays would be planned anew each time, which costs more than to run them: ADR 0014.
    "plan_cache_mode": "force_generic_plan",
}

RELATIONS = """
    SELECT c.relname, c.relkind
      FROM pg_class c
     WHERE c.relnamespace = current_schema()::regnamespace
       AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
     ORDER BY c.relname
"""
TABLE_KINDS = ("r", "p")
SEQUENCE_KIND = "S"


def provision(connection: BaseDatabaseWrapper) -> None:
    """Give the application's role its rights and the database its settings, or raise and change nothing.

    A table gives what `rights.RIGHTS` says, a view SELECT only, and what is not named there nothing. Rights given by hand are
    taken back. Idempotent. New connections see the settings, the given one does not.

    Args:
        connection: connected as the owner of the database and its tables.

    Raises:
        django.db.ProgrammingError: the connected role does not own the database or a table (SQLSTATE 42501).
    """
    with transaction.atomic(using=connection.alias):
        set_settings(connection)
        if _role_exists(connection, settings.LEDGER_APP_ROLE):
            grant_rights(connection, settings.LEDGER_APP_ROLE)


def set_settings(connection: BaseDatabaseWrapper) -> None:
    """Set `SETTINGS` on the connected database, for all that connect from now on."""
    database = sql.Identifier(connection.get_connection_params()["dbname"])
    with connection.cursor() as cursor:
        for name, value in SETTINGS.items():
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
            cursor.execute(statement.format(database, sql.Identifier(name), sql.Literal(value)))


def grant_rights(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give `role` what the application needs on every table, view and sequence of the schema, and nothing more."""
    grantee = sql.Identifier(role)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(cursor.fetchone()[0]), grantee))
        for function in FUNCTIONS:
            cursor.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(function), grantee))
        cursor.execute(RELATIONS)
        for name, kind in cursor.fetchall():
            relation = sql.SQL("SEQUENCE {}" if kind == SEQUENCE_KIND else "TABLE {}").format(sql.Identifier(name))
            cursor.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(relation, grantee))
            if rights := _rights_on(name, kind):
                granted = sql.SQL(", ").join(map(sql.SQL, rights))
                cursor.execute(sql.SQL("GRANT {} ON {} TO {}").format(granted, relation, grantee))


def _rights_on(name: str, kind: str) -> tuple[str, ...]:
    if kind in TABLE_KINDS:
        return RIGHTS.get(name, ())
    if kind == SEQUENCE_KIND:
        return ("USAGE",) if name in SEQUENCES else ()
    return READ


def _role_exists(connection: BaseDatabaseWrapper, role: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        return cursor.fetchone() is not None


# A ledger that nobody has used yet -------------------------------------------------------------------

OPERATOR = "admin"


@dataclass(frozen=True)
class Secrets:
    """What is shown once, because it is nowhere kept in clear. None where it existed before."""

    admin_password: str | None
    api_key: str | None


def seed() -> Secrets:
    """Make what is missing, as the application's role: demo data, then the operator, then the API key.

    The key is made last: as long as there is none, this was not finished, and all of it is done again. Nothing is doubled by
    that; the demo's requests have fixed idempotency keys.
    """
    is_unused = not ApiKey.objects.exists()
    password = _password_for_operator()
    with ThreadPoolExecutor(max_workers=1) as aside:
        # Hashing a password is meant to take long; it needs neither the database nor the interpreter.
        hashed = None if password is None else aside.submit(make_password, password)
        if is_unused and "demo" in get_commands():
            call_command("demo", verbosity=0)
    if hashed is not None:
        get_user_model().objects.create(username=OPERATOR, password=hashed.result(), is_staff=True, is_superuser=True)
    return Secrets(admin_password=password, api_key=_make_api_key(is_unused))


def _password_for_operator() -> str | None:
    """A new password, if there is no superuser."""
    has_operator = get_user_model().objects.filter(is_superuser=True).exists()
    return None if has_operator else secrets.token_urlsafe(15)


def ensure_bootstrap_key() -> None:
    """Have the key of LEDGER_BOOTSTRAP_API_KEY, with all scopes; nothing happens when none is set or it is there."""
    given = settings.LEDGER_BOOTSTRAP_API_KEY
    if given and services.find_api_key(given) is None:
        services.create_api_key(
            name=f"bootstrap-{hashlib.sha256(given.encode()).hexdigest()[:8]}", scopes=SCOPES, key=given, actor="serve"
        )


def _make_api_key(is_unused: bool) -> str | None:
    """Have the key of LEDGER_BOOTSTRAP_API_KEY; without one given, make the first key and return it."""
    ensure_bootstrap_key()
    if is_unused and not settings.LEDGER_BOOTSTRAP_API_KEY:
        return services.create_api_key(name="first", scopes=SCOPES, actor="serve")[1]
    return None
