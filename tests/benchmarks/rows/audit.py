"""The audit of every law over every entry, against a scan that computes one SHA-256 a row in the server."""

import io
import os
from statistics import median

from django.core.management import call_command

from tests.benchmarks.histories import load_in_parallel
from tests.benchmarks.measuring import Result, interleaved, result, seconds
from tests.benchmarks.server import BenchmarkServer

ENTRIES = int(os.environ.get("BENCH_AUDIT", "200000"))
SCAN = """
SELECT count(*) FILTER (WHERE sha256(e.digest || convert_to(e::text, 'UTF8')) = e.digest) FROM ledger_entry e
"""

DIGESTS = """
SELECT count(*) FILTER (WHERE fits)
FROM (
    SELECT ledger_entry_digest(COALESCE(lag(e.digest) OVER account, decode(repeat('00', 32), 'hex')), e) = e.digest AS fits
    FROM ledger_entry e
    WINDOW account AS (PARTITION BY e.holder_id, e.credit_type ORDER BY e.sequence)
) AS chained
"""


def run(server: BenchmarkServer) -> list[Result]:
    """On a database with nothing but histories made by the rules."""
    server.empty_ledger()
    load_in_parallel(server.postgres.owner_url, holders=1_000, entries=ENTRIES, processes=2)
    server.settle()

    def scanned(query: str) -> float:
        with server.superuser() as connection:
            return seconds(lambda: connection.execute(query).fetchone())

    def audit() -> float:
        return seconds(lambda: call_command("audit_ledger", no_progress=True, stdout=io.StringIO()))

    found = interleaved({"scan": lambda: scanned(SCAN), "digests": lambda: scanned(DIGESTS), "audit": audit}, rounds=3)
    what = f"audit of {ENTRIES:,} entries, speed"
    return [
        result("audit", what, "a scan with SHA-256 of each row's text in the server", found["scan"], found["audit"], aim=">= 0.5",
               context=f"{median(found['audit']):.1f} s beside {median(found['scan']):.1f} s"),
        result("audit", what, "a scan with SHA-256 of each row's canonical form", found["digests"], found["audit"],
               context=f"{median(found['digests']):.1f} s"),
    ]  # fmt: skip
