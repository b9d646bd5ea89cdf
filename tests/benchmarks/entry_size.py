"""Measures the bytes of an entry on disk, per column and per index.

    python -m tests.benchmarks.entry_size --dsn postgresql://…      an empty, prepared database; entries are left in it

The entries are realistic ones: holders like cust-004711, UUIDs as keys, a reason and a reference, three open lots, arriving in
turn from a thousand holders, which is what fills an index least.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.benchmarks.histories import load_in_parallel

HOLDERS = 1_000
COLUMNS = """
SELECT string_agg(format('avg(COALESCE(pg_column_size(%1$I), 0))::float AS %1$I', attname), ', ' ORDER BY attnum)
FROM pg_attribute
WHERE attrelid = 'ledger_entry'::regclass AND attnum > 0 AND NOT attisdropped
"""
INDEXES = """
SELECT indexrelid::regclass::text, pg_relation_size(indexrelid)
FROM pg_index
WHERE indrelid = 'ledger_entry'::regclass
ORDER BY 2 DESC
"""


@dataclass(frozen=True)
class EntrySize:
    """Bytes per entry: in all, of the table alone, and of each index and column. A column that is null takes none."""

    entries: int
    open_lots: float
    total: float
    heap: float
    indexes: dict[str, float]
    columns: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{self.entries:,} entries with {self.open_lots:.2f} open lots: {self.total:.0f} bytes each"]
        lines += [f"  {self.heap:6.1f}  table"] + [f"  {size:6.1f}  {name}" for name, size in self.indexes.items()]
        lines += ["of the table, by column:"] + [f"  {size:6.1f}  {name}" for name, size in self.columns.items() if size]
        return "\n".join(lines)


def measure(connection: psycopg.Connection[Any]) -> EntrySize:
    """Measure what is there, after a VACUUM; the connection is in autocommit."""
    connection.execute("VACUUM (ANALYZE) ledger_entry")

    def row(query: str) -> tuple[Any, ...]:
        found = connection.execute(query).fetchone()
        assert found is not None
        return found

    entries, lots = row("SELECT count(*), avg(json_array_length(lots))::float FROM ledger_entry")
    heap, total = row("SELECT pg_table_size('ledger_entry'), pg_total_relation_size('ledger_entry')")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {row(COLUMNS)[0]} FROM ledger_entry")
        values = cursor.fetchone()
        assert cursor.description is not None
        assert values is not None
        columns = {column.name: value for column, value in zip(cursor.description, values, strict=True)}
    indexes = {name: size / entries for name, size in connection.execute(INDEXES)}
    return EntrySize(entries, lots, total / entries, heap / entries, indexes, columns)


def main() -> None:
    """The command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    parser = argparse.ArgumentParser()
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--entries", type=int, default=100_000)
    options = parser.parse_args()
    load_in_parallel(options.dsn, holders=HOLDERS, entries=options.entries, processes=2)
    with psycopg.connect(options.dsn, autocommit=True) as connection:
        sys.stdout.write(f"{measure(connection)}\n")


if __name__ == "__main__":
    main()
