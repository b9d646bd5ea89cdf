"""What Django checks by command: the settings without a connection; with `--database` and before `migrate` the database too."""

from collections.abc import Sequence

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from psycopg import IsolationLevel

from ledger import conf
from ledger.database.locks import holder_key, lock_number
from ledger.database.schema_changes import describe_pending, goes_through_pooler
from ledger.database.schema_versions import compare_schema, verify_schema
from ledger.database.transactions import REPEATABLE_SNAPSHOT
from ledger.errors import UnsafeDatabase


def check_settings() -> list[CheckMessage]:
    """Report isolation levels other than READ COMMITTED (ledger.E002), wrong lock settings (E003), other settings (E004).

    Also DISTRIBUTED without the application of clusters (E009).
    """
    check_messages: list[CheckMessage] = []
    level = settings.DATABASES[DEFAULT_DB_ALIAS].get("OPTIONS", {}).get("isolation_level")
    if level not in (None, IsolationLevel.READ_COMMITTED):
        what = f"The isolation level of {DEFAULT_DB_ALIAS!r} is {level!r}: {REPEATABLE_SNAPSHOT}."
        check_messages.append(Error(what, id="ledger.E002"))
    if wrong := [Error(f"{complaint}.", id="ledger.E004") for complaint in conf.complaints()]:
        return [*check_messages, *wrong]
    if conf.DISTRIBUTED.value and not apps.is_installed("ledger.cluster"):
        check_messages.append(Error("LEDGER['DISTRIBUTED'] needs 'ledger.cluster' in INSTALLED_APPS.", id="ledger.E009"))
    try:
        lock_number(holder_key("42"))
    except ImproperlyConfigured as error:
        check_messages.append(Error(f"Locks cannot be taken: {error}.", id="ledger.E003"))
    return check_messages


def check_pooler(databases: Sequence[str] | None) -> list[CheckMessage]:
    """Report a pooler of which the settings do not know (ledger.W005), with `--database` or before `migrate`."""
    if DEFAULT_DB_ALIAS not in (databases or ()) or "PREPARE_STATEMENTS" in conf.given_settings():
        return []
    if not conf.keeps_server_sessions() or not goes_through_pooler(connections[DEFAULT_DB_ALIAS]):
        return []
    what = (
        f"The connection of {DEFAULT_DB_ALIAS!r} goes through a pooler, and its settings do not say so. In transaction mode, "
        "statements that one client has prepared meet the session of another, and calls fail."
    )
    hint = (
        f"Set DATABASES[{DEFAULT_DB_ALIAS!r}]['DISABLE_SERVER_SIDE_CURSORS'] = True; or, if the pooler is in session mode or "
        "keeps prepared statements (PgBouncer from 1.21 on, with max_prepared_statements), LEDGER['PREPARE_STATEMENTS'] = True."
    )
    return [CheckWarning(what, hint=hint, id="ledger.W005")]


def check_schema(databases: Sequence[str] | None) -> list[CheckMessage]:
    """Warn, with `--database` and before `migrate`, of tables that this version cannot use (ledger.W006); `migrate` goes on.

    Where `migrate` makes them fit, each of its migrations is described (ledger.W008).
    """
    refusal = refusal_of_schema() if DEFAULT_DB_ALIAS in (databases or ()) else None
    if refusal is None:
        return []
    return [CheckWarning(f"Calls of the ledger are refused: {refusal}.", id="ledger.W006"), *_describe_upgrade()]


def check_schema_before_deployment() -> list[CheckMessage]:
    """Report, with `--deploy`, tables that this version cannot use (ledger.E007), or a database that does not answer (W007).

    Where `migrate` makes them fit, each of its migrations is described (ledger.W008).
    """
    try:
        refusal = refusal_of_schema()
    except OperationalError as error:
        what = f"The database of the ledger does not answer, so its tables were not compared: {' '.join(str(error).split())}"
        return [CheckWarning(what, id="ledger.W007")]
    if refusal is None:
        return []
    return [Error(f"Calls of the ledger would be refused: {refusal}.", id="ledger.E007"), *_describe_upgrade()]


def _describe_upgrade() -> list[CheckMessage]:
    """What each migration will do that the database lacks, if this version can upgrade the database."""
    connection = connections[DEFAULT_DB_ALIAS]
    comparison = compare_schema(connection)
    if not comparison.pending or comparison.others or comparison.unrecorded or comparison.needs_code_from:
        return []
    return [CheckWarning(f"An upgrade is due. {text}", id="ledger.W008") for text in describe_pending(connection)]


def refusal_of_schema() -> str | None:
    """Return why calls of the ledger are refused because of its tables; None if they are not."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return None
    try:
        verify_schema(connection)
    except UnsafeDatabase as unsafe:
        return "; ".join(str(fact) for fact in unsafe.facts.values())
    return None
