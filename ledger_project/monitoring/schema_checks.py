"""Checks of the database's schema: migrations, the rights of the application's role, the triggers that refuse changes."""

from typing import Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from billing.metering.partitions import PREFIX
from ledger.database import schema_versions
from ledger.database.cluster import ask_all_nodes
from ledger.database.schema_changes import describe_pending
from ledger.errors import UnsafeDatabase
from ledger.version import VERSION
from ledger_project.database import catalogue
from ledger_project.database.optional_tables import is_left_out
from ledger_project.database.rights import RIGHTS
from ledger_project.database.triggers import ALWAYS, PARTITIONS_HAVE, TRIGGERS, enabled_as
from ledger_project.monitoring.findings import CheckResult, failed, ok, warning
from ledger_project.monitoring.server_checks import PREPARE

SHOWN = 4
OF_NO_LAW = frozenset({"indexes", "views"})
"""Changes that an operator may make: an additional index refuses nothing and permits nothing."""
TABLE_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
ROLE = """
SELECT current_user, role.rolsuper,
    pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'ledger_entry'::regclass), 'USAGE')
FROM pg_roles AS role
WHERE role.rolname = current_user
"""
ON_TABLES = """
SELECT relation.relname, privilege
FROM pg_class AS relation, unnest(%(privileges)s::text[]) AS privilege
WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relkind IN ('r', 'p') AND NOT relation.relispartition
    AND has_table_privilege(%(role)s, relation.oid, privilege)
"""
ON_COLUMNS = """
SELECT relation.relname, 'UPDATE (' || attribute.attname || ')'
FROM pg_class AS relation
JOIN pg_attribute AS attribute ON attribute.attrelid = relation.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relkind IN ('r', 'p') AND NOT relation.relispartition
    AND has_column_privilege(%(role)s, relation.oid, attribute.attnum, 'UPDATE')
    AND NOT has_table_privilege(%(role)s, relation.oid, 'UPDATE')
"""
TRIGGERS_THERE = """
SELECT relation.relname, found.tgname, found.tgenabled::text
FROM pg_class AS relation
LEFT JOIN pg_trigger AS found ON found.tgrelid = relation.oid AND NOT found.tgisinternal
WHERE relation.relnamespace = current_schema()::regnamespace AND relation.relkind IN ('r', 'p')
"""

# The triggers of each shard on a node, and in which modes of replication they fire.
ON_SHARDS = """
SELECT coalesce(json_object_agg(shard.relname, (
    SELECT coalesce(json_object_agg(tgname, tgenabled), '{}')
    FROM pg_trigger
    WHERE tgrelid = shard.oid AND NOT tgisinternal
)), '{}')
FROM pg_class AS shard
WHERE shard.relnamespace = current_schema()::regnamespace AND shard.relname ~ '^ledger_entry_[0-9]+$'
"""


def _rows(connection: BaseDatabaseWrapper, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def migrations(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the database has all migrations of this version, and say what those do that it lacks."""
    pending = describe_pending(connection)
    if pending:
        text = " ".join(text if text.endswith(".") else f"{text}." for text in pending)
        return failed("Migrations", f"{len(pending)} are not applied: {text}", PREPARE)
    return ok("Migrations", "All migrations are applied.")


def schema(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that this version can use the tables, and that nobody has changed them since they were prepared."""
    comparison = schema_versions.compare_schema(connection)
    try:
        comparison.refuse()
    except UnsafeDatabase as unsafe:
        return failed("Schema", f"{unsafe}.", "No process of this version starts on this database.")
    changed = catalogue.changed_since_prepared(connection)
    if changed is None:
        return warning("Schema", "This version made the schema, but prepare_database has not recorded its state.", PREPARE)
    if changed:
        text = f"Not as prepare_database left them: {_list_names(changed)}."
        advice = "Compare `pg_dump --schema-only` with that of a new database to find the changes and their author; then audit."
        return (warning if set(changed) <= OF_NO_LAW else failed)("Schema", text, advice)
    if comparison.version:
        text = f"Release {comparison.version} made it, and {VERSION} works with it; it is as prepare_database left it."
        return ok("Schema", text)
    return ok("Schema", "This version made it, and it is as prepare_database left it.")


def role(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the application connects as a role that owns nothing."""
    [(name, is_superuser, owns_tables)] = _rows(connection, ROLE)
    if is_superuser or owns_tables:
        text = f"This process connects as {name}, {'a superuser' if is_superuser else 'who owns the tables'}."
        return warning("Role", text, f"Name {settings.LEDGER_APP_ROLE} in DATABASE_URL: it has no needless rights.")
    return ok("Role", f"This process connects as {name}, which owns no table.")


def rights(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the application's role has exactly the rights that the code needs."""
    name = settings.LEDGER_APP_ROLE
    if not _rows(connection, "SELECT FROM pg_roles WHERE rolname = %s", [name]):
        advice = "Create the role (docs/how-to/operations/deploy.md), or set LEDGER_APP_ROLE; then run prepare_database."
        return warning("Rights", f"The server has no role {name}.", advice)
    values = {"role": name, "privileges": list(TABLE_PRIVILEGES)}
    there = {*_rows(connection, ON_TABLES, values), *_rows(connection, ON_COLUMNS, values)}
    granted = {table: rights for table, rights in RIGHTS.items() if not is_left_out(table)}
    expected = {(table, right) for table, rights in granted.items() for each in rights for right in _single(each)}
    # What a later release gives beside these is what its own servers need.
    more = [] if schema_versions.compare_schema(connection).version else sorted(there - expected)
    missing = sorted(expected - there)
    if missing or more:
        texts = [f"may not {_list_names(f'{right} {table}' for table, right in missing)}"] if missing else []
        texts += [f"may also {_list_names(f'{right} {table}' for table, right in more)}"] if more else []
        return failed("Rights", f"{name} {' and '.join(texts)}.", PREPARE)
    return ok("Rights", f"{name} has exactly the rights of the {len(granted)} tables in rights.py.")


def _single(right: str) -> list[str]:
    """Return `UPDATE (a, b)` as one right for each column."""
    if not right.startswith("UPDATE ("):
        return [right]
    return [f"UPDATE ({column})" for column in right.removeprefix("UPDATE (").removesuffix(")").split(", ")]


def triggers(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that every trigger exists and is enabled for every role, and in every replication mode where that is required."""
    enabled: dict[str, dict[str, str]] = {}
    for table, name, state in _rows(connection, TRIGGERS_THERE):
        enabled.setdefault(table, {})[name] = state
    expected = TRIGGERS | {table: PARTITIONS_HAVE for table in enabled if table.startswith(PREFIX)}
    wrong = sorted(
        f"{name} of {table}"
        for table, names in expected.items()
        for name in names
        if enabled.get(table, {}).get(name) not in {ALWAYS, enabled_as(name)}
    )
    wrong += _wrong_on_shards()
    if wrong:
        advice = "Find out who disabled them, and audit. The owner enables a trigger by ALTER TABLE … ENABLE ALWAYS TRIGGER …, "
        advice += "and one that registers rows by ENABLE TRIGGER."
        return failed("Triggers", f"Missing or not enabled: {_list_names(wrong)}.", advice)
    return ok("Triggers", f"All {sum(map(len, expected.values()))} triggers exist and are enabled.")


def _wrong_on_shards() -> list[str]:
    """Return the triggers that are missing or not enabled on a shard of a cluster, on any node that answers."""
    expected = TRIGGERS["ledger_entry"]
    return [
        f"{name} of {shard} on {node}"
        for node, shards in ask_all_nodes(ON_SHARDS).values()
        for shard, states in sorted(shards.items())
        for name in sorted(expected)
        # On a shard the trigger's name ends with the shard's number.
        if not any(each.startswith(name) and state in {ALWAYS, enabled_as(name)} for each, state in states.items())
    ]


def _list_names(names: Any) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more
