"""What a migrated database still needs before the application may use it: the application's rights, and its settings.

The settings are set on the database, not by each connection: so they also hold behind PgBouncer, which drops what a client
sets at connecting, and for a person with psql.
"""

from django.conf import settings
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from ledger_project.rights import READ, RIGHTS, SEQUENCES

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
