"""Prepares a database for the application: migrates, gives rights and settings, and seeds an unused ledger.

Web processes that start at the same time wait for that, and check the database before they serve.

The settings are set on the database, not by each connection: so they also hold behind PgBouncer, which drops settings that a
client sets at connecting, and for a person with psql. On a cluster the timeouts are set for the application's role in this
database instead: on the database they would end Citus's own work too, such as copying a shard.
"""

import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.core.checks import run_checks
from django.core.management import call_command, get_commands
from django.core.management.base import SystemCheckError
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import DatabaseError, OperationalError, ProgrammingError
from psycopg import sql
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from ledger import conf
from ledger.database import schema_changes
from ledger.database.checks import verify_database
from ledger.database.cluster import NoCluster, on_cluster
from ledger.database.lock_names import MIGRATION
from ledger.database.locks import lock_number
from ledger.database.schema_versions import compare_schema
from ledger.errors import Invalid, UnsafeDatabase
from ledger.scopes import SCOPES
from ledger.version import VERSION
from ledger_project.database import connection_urls
from ledger_project.database.catalogue import changed_since_prepared, record_catalogue
from ledger_project.database.rights import FUNCTIONS, READ, RIGHTS, SEQUENCES
from ledger_project.operators.two_step import UnknownGroups, ensure_groups_exist
from ledger_project.serving.postgres import credentials
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.steps import step
from ledger_project.serving.web import PREPARED_WHEN_FREE

logger = logging.getLogger(__name__)


class NotPrepared(Exception):
    """The database cannot be prepared, or is not safe to use; the message says what to do."""


class NotTheOwner(Exception):
    """The connected role may not migrate, or not give rights and set timeouts."""


class NewerSchema(Exception):
    """A later release prepared the database. This version can work with it, and would take back what that release gave."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"Release {version} prepared this database, and {VERSION} does not prepare it: there is no way back. "
            f"Servers of {VERSION} work with it as it is; to prepare it, run {version} (docs/how-to/operations/upgrade.md)"
        )


def use_database(url: str) -> BaseDatabaseWrapper:
    """Have Django's default connection go to `url` from now on; closes the present one."""
    connection = connections[DEFAULT_DB_ALIAS]
    connection.close()
    connection.settings_dict.update(connection_urls.parse(url))
    return connection


@contextmanager
def connected_as_owner() -> Iterator[BaseDatabaseWrapper]:
    """For the block, Django's default connection uses the owner's role; afterwards the application's again."""
    connection = connections[DEFAULT_DB_ALIAS]
    before = dict(connection.settings_dict)
    try:
        yield use_database(settings.OWNER_DATABASE_URL)
    finally:
        connection.close()
        connection.settings_dict.update(before)


def migrate_and_grant_rights(
    connection: BaseDatabaseWrapper, *, verbosity: int = 1, report: Callable[[str], None] = logger.info
) -> int:
    """Migrate, then give the application's rights and the timeouts; or raise, with whole migrations applied or not.

    On the coordinator of a Citus cluster it also distributes the ledger.

    Several machines may do so at once: one works, the others wait for it and find nothing left to do.

    Args:
        connection: the owner's, straight to PostgreSQL: a pooler in transaction mode does not keep the lock that is used here.
        verbosity: as for `migrate`.
        report: gets a line for each table and function that was distributed.

    Returns:
        The number of migrations that were applied.

    Raises:
        NotTheOwner: SQLSTATE 42501, on migrating or on giving rights.
        UnsafeDatabase: this version cannot prepare the database; nothing was changed.
        NewerSchema: a later release prepared it; nothing was changed.
        NoCluster: LEDGER_DISTRIBUTED is set, and this is no coordinator with workers.
    """
    number = lock_number(MIGRATION())
    try:
        with connection.cursor() as cursor:
            # A migration may take long, also on another machine. Waiting for a table stays short: behind a waiting
            # ALTER TABLE everybody else waits too.
            cursor.execute("SET statement_timeout = 0")
            cursor.execute("SET lock_timeout = 0")
            cursor.execute("SELECT pg_advisory_lock(%s)", [number])
            cursor.execute("SET lock_timeout = '2s'")
        # By another connection the process may know it already; another machine may have prepared it since.
        comparison = compare_schema(connection)
        comparison.refuse(allow_pending=True)
        if comparison.version:
            raise NewerSchema(comparison.version)
        applied = _migrate(connection, verbosity, report)
        are_functions_replaced = _distribute(connection, set_settings, report)
        provision(connection)
        if applied or are_functions_replaced or changed_since_prepared(connection) is None:
            record_catalogue(connection)
        return applied
    except DatabaseError as error:
        if isinstance(error.__cause__, InsufficientPrivilege):
            raise NotTheOwner(str(error).strip()) from error
        raise
    finally:
        # The lock ends with the session.
        connection.close()


@on_cluster("distribution.prepare")
def _distribute(
    connection: BaseDatabaseWrapper, set_settings: Callable[[BaseDatabaseWrapper], None], report: Callable[[str], None]
) -> bool:
    """Distribute the ledger over the nodes of a cluster, and return whether functions of the database were replaced."""
    return False


ATTEMPTS: Final = 20
PAUSE_SECONDS: Final = 1.0
"""Between two attempts, in which those go on who waited behind the migration."""


def _migrate(connection: BaseDatabaseWrapper, verbosity: int, report: Callable[[str], None]) -> int:
    """Apply the migrations that the database lacks, and return their number; one that a table is busy for is tried again."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    for attempt in range(1, ATTEMPTS + 1 if plan else 1):
        try:
            call_command("migrate", interactive=False, verbosity=verbosity, database=connection.alias)
            break
        except OperationalError as error:
            if attempt == ATTEMPTS or not isinstance(error.__cause__, LockNotAvailable):
                raise
            report(f"A table is in use; attempt {attempt} of {ATTEMPTS} ended after {schema_changes.WAITS['lock_timeout']}.")
            time.sleep(PAUSE_SECONDS)
    return len(plan)


# Rights and settings ---------------------------------------------------------------------------------

TIMEOUTS = {
    "lock_timeout": "2s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}
SETTINGS = {
    # A client whose machine has vanished does not say that it is gone. It is asked after 10 s of silence, three times in 9 s, and
    # a statement that is running looks every 5 s whether the connection has ended: its lock is free after 24 s at most.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
    "client_connection_check_interval": "5s",
    # Statements on arrays would be planned again each time, which costs more than to run them: ADR 0014.
    "plan_cache_mode": "force_generic_plan",
}


@on_cluster("distribution.placed")
def _place_timeouts(base: dict[str, str], timeouts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the database, and those of the application's role in it."""
    return base | timeouts, {}


SETTINGS_OF_DATABASE, SETTINGS_OF_ROLE = _place_timeouts(SETTINGS, TIMEOUTS)

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
    """Give the application's role its rights and the database its settings, or raise an exception and change nothing.

    The role gets the rights of `rights.RIGHTS` on tables, SELECT on views, and no right on tables that are not named there. The
    function revokes rights given by hand. Idempotent. New connections see the settings, the given one does not.

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
    """Set SETTINGS_OF_DATABASE on the connected database, for all that connect from now on."""
    database = sql.Identifier(connection.get_connection_params()["dbname"])
    with connection.cursor() as cursor:
        for name, value in SETTINGS_OF_DATABASE.items():
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
            cursor.execute(statement.format(database, sql.SQL(name), sql.Literal(value)))
        for name in SETTINGS_OF_ROLE:
            cursor.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(database, sql.SQL(name)))


def set_settings_of_role(connection: BaseDatabaseWrapper) -> None:
    """Set SETTINGS_OF_ROLE for the connected role, on all nodes, and close the connection: the next one has them.

    Args:
        connection: the application's: a role may set this for itself, and the owner of the database may not.
    """
    database = sql.Identifier(connection.get_connection_params()["dbname"])
    with connection.cursor() as cursor:
        for name, value in SETTINGS_OF_ROLE.items():
            statement = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} SET {} = {}")
            cursor.execute(statement.format(database, sql.SQL(name), sql.Literal(value)))
    connection.close()


def grant_rights(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give `role` the rights that the application needs on tables, views and sequences of the schema, and no others."""
    grantee = sql.Identifier(role)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        (schema,) = cursor.fetchone()
        cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), grantee))
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


# All of it for `serve` -------------------------------------------------------------------------------


def prepare(server: Server | None) -> "Secrets":
    """Have the database ready for `serve`: migrated, with rights and settings, seeded, and safe; or raise `NotPrepared`.

    Args:
        server: the embedded server, running; None if DATABASE_URL names another.
    """
    if server is not None:
        # The port may have changed since the settings were read.
        settings.OWNER_DATABASE_URL = server.owner_url
        use_database(server.application_url)
    try:
        _prepare_as_owner()
        set_settings_of_role(connection)
        made = seed()
        verify_database(connection, needs_lock_timeout=True)
        ensure_groups_exist()
    except OperationalError as error:
        raise NotPrepared(f"serve cannot reach the database: {error}") from error
    except NoCluster as error:
        raise NotPrepared(str(error)) from error
    except UnsafeDatabase as error:
        raise NotPrepared(f"serve refuses this database. {error}.") from error
    except UnknownGroups as error:
        raise NotPrepared(f"{error}.") from error
    except ProgrammingError as error:
        raise NotPrepared(f"The database is not prepared: run `manage.py prepare_database` as its owner. {error}") from error
    connections.close_all()
    return made


def _prepare_as_owner() -> None:
    try:
        with connected_as_owner() as owner:
            migrate_and_grant_rights(owner, verbosity=0)
    except NewerSchema as error:
        # Right after an earlier version was put back.
        logger.warning("%s.", error)
    except NotTheOwner as error:
        # Right if the owner has prepared it already. If not, seeding fails and says what is missing.
        logger.warning(
            "This role does not own the database, so serve did not prepare it (%s); see LEDGER_OWNER_DATABASE_URL.", error
        )


# Seed ------------------------------------------------------------------------------------------------

OPERATOR = "admin"


@dataclass(frozen=True)
class Secrets:
    """Secrets that `serve` shows once, because the ledger stores only their hashes. None for a secret that existed before."""

    operator: str
    admin_password: str | None
    api_key: str | None
    takes_keys: bool = True
    """Whether there are API keys; False without `ledger.keys`."""


def seed() -> Secrets:
    """Make the missing parts, as the application's role: demo data, then the operator, then the API key.

    The key is made last: as long as there is no key, an earlier call did not finish, and all steps run again. That doubles
    nothing, because the demo's requests have fixed idempotency keys.
    """
    is_unused = _is_unused()
    password = _password_for_operator()
    with ThreadPoolExecutor(max_workers=1) as aside:
        # Hashing a password is meant to take long; it needs neither the database nor the interpreter. No request is being
        # served yet that should come first.
        hashed = None if password is None else aside.submit(make_password, password, hasher=PBKDF2PasswordHasher())
        if is_unused and "demo" in get_commands():
            with step("Making a demo company: Nimbus Computing, with three months of history", "The demo company is made"):
                call_command("demo", verbosity=0)
    if hashed is not None:
        get_user_model().objects.create(username=OPERATOR, password=hashed.result(), is_staff=True, is_superuser=True)
    key = _make_api_key(is_unused)
    return Secrets(operator=OPERATOR, admin_password=password, api_key=key, takes_keys=apps.is_installed("ledger.keys"))


def _is_unused() -> bool:
    """Return whether what is made last is missing: the first API key, or without API keys the operator."""
    if not apps.is_installed("ledger.keys"):
        return not get_user_model().objects.filter(is_superuser=True).exists()
    from ledger.keys.models import ApiKey

    return not ApiKey.objects.exists()


def _password_for_operator() -> str | None:
    """Return a new password, if there is no superuser."""
    has_operator = get_user_model().objects.filter(is_superuser=True).exists()
    return None if has_operator else secrets.token_urlsafe(15)


def ensure_bootstrap_key() -> None:
    """Ensure the key of LEDGER_BOOTSTRAP_API_KEY, with all scopes; nothing happens if no key is set or it exists.

    Raises:
        NotPrepared: the text cannot be a key, its key has ended, or there are no API keys.
    """
    given = settings.LEDGER_BOOTSTRAP_API_KEY
    if not given:
        return
    if not apps.is_installed("ledger.keys"):
        raise NotPrepared('LEDGER_BOOTSTRAP_API_KEY needs "ledger.keys" in INSTALLED_APPS.')
    from ledger.keys import api_keys
    from ledger.keys.errors import KeyNameTaken

    name = f"bootstrap-{hashlib.sha256(given.encode()).hexdigest()[:8]}"
    try:
        if api_keys.find_api_key(given) is None:
            api_keys.create_api_key(name=name, scopes=SCOPES, key=given, actor="serve")
    except Invalid as error:
        raise NotPrepared(f"LEDGER_BOOTSTRAP_API_KEY {error.facts['detail']}") from error
    except KeyNameTaken as error:
        raise NotPrepared(
            f"LEDGER_BOOTSTRAP_API_KEY is the key {error.facts['ref']}, which is revoked or has expired."
        ) from error


def _make_api_key(is_unused: bool) -> str | None:
    """Ensure the key of LEDGER_BOOTSTRAP_API_KEY; without one given, make the first key and return it."""
    ensure_bootstrap_key()
    if not is_unused or settings.LEDGER_BOOTSTRAP_API_KEY or not apps.is_installed("ledger.keys"):
        return None
    from ledger.keys import api_keys

    return api_keys.create_api_key(name="first", scopes=SCOPES, actor="serve")[1]


# Checks of a web process before it serves ------------------------------------------------------------


def wait_until_prepared() -> None:
    """Return once the process that started this one has prepared the database; at once if no process prepares it."""
    file = os.environ.get(PREPARED_WHEN_FREE)
    if file:
        with Path(file).open("rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        if not os.environ.get("DATABASE_URL"):
            # The embedded server may have another address than when the settings were read.
            url = credentials.credentials_of(settings.DATA_DIR).application_url
            connections.databases[DEFAULT_DB_ALIAS].update(connection_urls.parse(url))


def refuse_wrong_settings() -> None:
    """Check the settings, as commands do at their start, or raise, so that the process does not start.

    Raises:
        SystemCheckError: a setting is wrong: a provider that cannot be made, for example.
    """
    wrong = [message for message in run_checks(tags=[conf.CHECKS]) if message.is_serious() and not message.is_silenced()]
    if wrong:
        raise SystemCheckError("; ".join(message.msg for message in wrong))


def refuse_unsafe_database() -> None:
    """Check the database once, or raise, so that the process does not start.

    A process starts without a reachable database: `/readyz` says so, and requests get 503 until it is back. The first
    connection then checks it, see ledger.database.checks.

    Raises:
        ledger.errors.UnsafeDatabase: as `ledger.database.checks.verify_database` says; `lock_timeout` included.
    """
    try:
        verify_database(connection, needs_lock_timeout=True)
    except OperationalError as error:
        logger.warning("The database cannot be reached yet: %s", error)
    finally:
        connection.close()
