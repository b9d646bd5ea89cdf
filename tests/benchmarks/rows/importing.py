"""What `import_ledger` does, with rules, keys and digests, against COPY of the same rows; and what an entry takes on the disk."""

import os
import uuid
from statistics import median

import psycopg

from ledger.entry_rows import COLUMNS
from ledger.exchange.import_rows import KEY_PREFIX, ImportRow
from ledger.exchange.imports import Importer, ImportSummary
from ledger.rules.entries import BY_AN_IMPORT
from ledger.rules.requests import SpendRequest
from ledger.values import encode_json
from tests.benchmarks.measuring import Result, result, seconds
from tests.benchmarks.server import BenchmarkServer

ENTRIES = int(os.environ.get("BENCH_IMPORT", "60000"))
HOLDERS = 1_000
WORKERS = 2
ROUNDS = 3

SIZES = """
SELECT c.relname, pg_total_relation_size(c.oid), pg_relation_size(c.oid)
FROM pg_class c
WHERE c.relname = 'ledger_entry' OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'ledger_entry'::regclass)
ORDER BY c.relkind DESC, c.relname
"""


def run(server: BenchmarkServer) -> list[Result]:
    """Transactions of 1,000 rows, by two threads in one process."""
    imported, copied = [], []
    for number in range(ROUNDS):
        prefix = f"import{number}-"
        server.grant_to_all(prefix, HOLDERS)
        with server.superuser() as connection:
            connection.execute("TRUNCATE competitors.plain")
            imported.append(ENTRIES / seconds(lambda prefix=prefix: _import(prefix)))  # type: ignore[misc]
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM ledger_entry WHERE starts_with(holder_id, %s) AND kind = 'spend' "
                "ORDER BY recorded_at, holder_id, sequence",
                [prefix],
            ).fetchall()
            if len(rows) != ENTRIES:
                raise RuntimeError(f"the import of {ENTRIES} wrote {len(rows)} entries")
            connection.execute("SET synchronous_commit = on")
            copied.append(len(rows) / seconds(lambda rows=rows, connection=connection: _copy(connection, rows)))  # type: ignore[misc]
    lines = [
        result("importing", f"import of {ENTRIES:,} entries", "COPY of the same rows, same indexes", imported, copied,
               aim=">= 0.15", context=f"{median(imported):,.0f} entries/s beside {median(copied):,.0f}"),
    ]  # fmt: skip
    return lines + _sizes(server)


def _import(prefix: str) -> None:
    """Import entries as `import_ledger` does, from rows in memory."""
    run_id = uuid.uuid4().hex[:12]
    rows = (
        ImportRow(
            number,
            SpendRequest(
                holder_id=f"{prefix}{number % HOLDERS}", amount=120, idempotency_key=f"{KEY_PREFIX}{run_id}-{number}",
                reason="chat completion", reference=f"req_{number}", actor=f"{BY_AN_IMPORT}bench",
            ),
            None,
            None,
        )
        for number in range(ENTRIES)
    )  # fmt: skip
    Importer(ImportSummary(0)).import_all(rows, workers=WORKERS)


def _copy(connection: "psycopg.Connection[tuple[object, ...]]", rows: list[tuple[object, ...]]) -> None:
    """Import the same rows by COPY into a plain table."""
    as_text = [[value if not isinstance(value, list | dict) else encode_json(value) for value in row] for row in rows]
    with connection.cursor() as cursor, cursor.copy(f"COPY competitors.plain ({COLUMNS}) FROM STDIN") as copy:
        for row in as_text:
            copy.write_row(row)


def _sizes(server: BenchmarkServer) -> list[Result]:
    """The size of an entry on disk, with and without indexes."""
    with server.superuser() as connection:
        connection.execute("VACUUM (ANALYZE) ledger_entry")
        counted = connection.execute("SELECT count(*) FROM ledger_entry").fetchone()
        sizes = {name: (whole, alone) for name, whole, alone in connection.execute(SIZES).fetchall()}
    entries = counted[0] if counted else 1
    whole = sizes.pop("ledger_entry")
    each = ", ".join(f"{name.removeprefix('ledger_entry_')} {alone / entries:.0f}" for name, (_, alone) in sorted(sizes.items()))
    return [
        Result("importing", "disk per entry, indexes included", "bytes", whole[0] / entries, unit="B",
               context=f"{entries:,} entries; rows {whole[1] / entries:.0f}, {each}"),
    ]  # fmt: skip
