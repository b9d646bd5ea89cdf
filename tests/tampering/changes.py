"""Every change of one row that a superuser can make with triggers off, from the catalogue: a new column is in it by itself."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from django.db import Error, connection, transaction

TABLES = """
    SELECT c.relname, ARRAY(
        SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary
    )
    FROM pg_class AS c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname ~ '^(ledger|billing)_'
    ORDER BY c.relname
"""
COLUMNS = """
    SELECT attname::text, format_type(atttypid, NULL), attnotnull FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
# What a column may be changed to, by its type: the first that the table's constraints accept and that is another value.
OTHER_VALUES = {
    "bigint": ["{0} + 1", "{0} - 1", "{0} + 1000000", "1"],
    "integer": ["{0} + 1", "{0} - 1", "{0} + 1000000", "1"],
    "smallint": ["{0} + 1", "{0} - 1", "1"],
    "numeric": ["{0} + 1", "{0} - 1", "1"],
    "double precision": ["{0} + 1"],
    "boolean": ["NOT {0}"],
    "uuid": ["gen_random_uuid()"],
    "date": ["{0} + 1", "date '2026-02-01'", "{0} + interval '31 days'", "date '2027-01-01'"],
    "timestamp with time zone": [
        "{0} + interval '1 day'", "{0} - interval '1 hour'", "{0} + interval '1 microsecond'", "{0} + interval '4 years'",
        "timestamptz '2026-02-03'",
    ],
    "text": ["{0} || 'x'", "'x' || {0}", "left({0}, -1)", "'forged'"],
    "character varying": ["{0} || 'x'", "left({0}, -1)", "'forged'", "'EUR'", "'USD'", "'paid'", "'open'", "'void'", "'carried'"],
    "smallint[]": ["{0} || {0}", "array_append({0}, 1::smallint)", "ARRAY(SELECT (each + 1)::smallint FROM unnest({0}) AS each)"],
    "bigint[]": ["{0} || {0}", "array_append({0}, 1::bigint)", "ARRAY(SELECT each + 1 FROM unnest({0}) AS each)"],
    "numeric[]": ["{0} || {0}", "array_append({0}, 1::numeric)", "ARRAY(SELECT each + 1 FROM unnest({0}) AS each)"],
    "text[]": ["{0} || {0}", "array_append({0}, 'x')", "ARRAY(SELECT each || 'x' FROM unnest({0}) AS each)"],
    "bytea": ["set_byte({0}, 0, get_byte({0}, 0) # 1)", r"'\x00'"],
    "jsonb": [
        "jsonb_set({0}, ARRAY[(SELECT min(k) FROM jsonb_object_keys({0}) AS k)], '7')",
        "{0} || '[7]'", "'{{\"forged\": 1}}'", "'7'",
    ],
    "json": [
        "jsonb_set({0}::jsonb, ARRAY[(SELECT min(k) FROM jsonb_object_keys({0}::jsonb) AS k)], '7')::json",
        "({0}::jsonb || '[7]')::json", "'{{\"forged\": 1}}'::json",
    ],
}  # fmt: skip

UNIQUE = {"sequence", "number", "series_value", "invoice_id", "code", "ref", "idempotency_key", "key", "position", "name"}


class Undone(Exception):
    """Ends the transaction of a change."""


@dataclass(frozen=True)
class Change:
    """One change of one row: a column, or `deleted`, or `added`.

    Args:
        statements: of which the first that changes a row counts.
    """

    table: str
    what: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}.{self.what}"

    def make(self) -> str | None:
        """Make it in the open transaction; return the statement, or None where constraints accept none."""
        for statement in self.statements:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(statement)
                    if cursor.rowcount == 1:
                        return statement
                    raise Undone
            except (Error, Undone, psycopg.Error):
                continue
        return None


def disable_triggers() -> None:
    """Switch all triggers off, also those of foreign keys, in the open transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(TABLES)
        for table, _ in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")


def all_changes() -> Iterator[Change]:
    """Every column of every table, and for each table a row deleted and a row added."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = cursor.fetchall()
        for table, key in tables:
            cursor.execute(COLUMNS, [table])
            columns = cursor.fetchall()
            key = key or ["idempotency_key"]
            yield from _of_columns(table, key, columns)
            yield Change(table, "deleted", (f"DELETE FROM {table} AS t WHERE {_is(table, key, _last(key))}",))
            yield Change(table, "added", tuple(_added(table, key, columns)))


def _of_columns(table: str, key: list[str], columns: list[tuple[str, str, bool]]) -> Iterator[Change]:
    for column, kind, is_required in columns:
        filled = f"ORDER BY {column} IS NULL, {_richest(table)}, {_key(key)} LIMIT 1"
        values = [value.format(column) for value in OTHER_VALUES[kind]]
        where = _is(table, key, filled)
        # The type json has no equality.
        differs = f"{column}::text IS DISTINCT FROM ({{}})::text" if kind == "json" else f"{column} IS DISTINCT FROM {{}}"
        changes = [f"UPDATE {table} AS t SET {column} = {value} WHERE {where} AND " for value in values]
        statements = [change + differs.format(value) for change, value in zip(changes, values, strict=True)]
        yield Change(table, column, tuple(statements))
        if not is_required:
            emptied = f"UPDATE {table} AS t SET {column} = NULL WHERE {where} AND {column} IS NOT NULL"
            yield Change(table, f"{column} emptied", (emptied,))


def _added(table: str, key: list[str], columns: list[tuple[str, str, bool]]) -> Iterator[str]:
    """A copy of a row with another key, and other values where they are unique."""
    names = ", ".join(name for name, _, _ in columns)
    fresh: dict[str, str] = {}
    for name, kind, _ in columns:
        if name in key or name in UNIQUE:
            if kind in {"bigint", "integer", "smallint"}:
                fresh[name] = f"{name} + 1000"
            elif kind in {"text", "character varying"}:
                fresh[name] = f"{name} || 'x'"
            elif kind == "uuid":
                fresh[name] = "gen_random_uuid()"
            elif kind == "date":
                fresh[name] = f"({name} + interval '1 month')::date"
    for changed in (fresh, {name: value for name, value in fresh.items() if name in key}):
        values = ", ".join(changed.get(name, name) for name, _, _ in columns)
        for number in range(3):
            yield (
                f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {table} AS t "
                f"ORDER BY {_key(key)} DESC LIMIT 1 OFFSET {number}"
            )


def _richest(table: str) -> str:
    return f"length(to_jsonb({table})::text) DESC"


def _key(key: list[str]) -> str:
    return ", ".join(f"{name}::text" if name == "is_only" else name for name in key)


def _last(key: list[str]) -> str:
    return f"ORDER BY {', '.join(f'{name} DESC' for name in key)} LIMIT 1"


def _is(table: str, key: list[str], order: str) -> str:
    return f"({', '.join(f't.{name}' for name in key)}) = (SELECT {', '.join(key)} FROM {table} {order})"
