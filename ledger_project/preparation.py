"""Make a database ready for the application: migrate, then give rights and timeouts. One process at a time does so."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import DatabaseError
from psycopg.errors import InsufficientPrivilege

from ledger.database.lock_names import PREPARATION
from ledger.database.locks import lock_number
from ledger_project import database_urls
from ledger_project.provisioning import provision


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


def prepare_database(connection: BaseDatabaseWrapper, *, verbosity: int = 1) -> int:
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
