"""What following and finding entries takes: `python -m tests.benchmarks.feed`.

Each figure is the median of the calls of one client in this process, round trips included. BENCH_ENTRIES says how many entries
there are, one a second as `histories` makes them; 15,000 more come as fast as batches make them, into a few slots of the index.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from tests.benchmarks.histories import load_in_parallel
from tests.benchmarks.server import ROOT, BenchmarkServer

HOLDERS = 1_000
DENSE_HOLDERS = 5_000
LOCKS = 1_000
TIMES = 60


def main() -> None:
    """Print one line for each call."""
    entries = int(os.environ.get("BENCH_ENTRIES", "100000"))
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-feed")
    try:
        load_in_parallel(server.postgres.owner_url, holders=HOLDERS, entries=entries, processes=2)
        server.grant_to_all("dense-", DENSE_HOLDERS)
        server.settle()
        sys.stdout.write(f"{entries + 3 * DENSE_HOLDERS:,} entries, ms\n")
        for name, work in _calls(server).items():
            sys.stdout.write(f"  {name:64} {_median_ms(work):8.2f}\n")
            sys.stdout.flush()
    finally:
        server.close()


def _calls(server: BenchmarkServer) -> dict[str, Callable[[], Any]]:
    from ledger import reads

    now = datetime.now(UTC)
    middle = reads.feed(reads.FeedPosition.at(datetime(2025, 1, 1, 12, tzinfo=UTC)), limit=1).next
    last = reads.search_entries(
        reads.EntryFilter(), at=now, place=None, bound=datetime(2000, 1, 1, tzinfo=UTC), newest=True, limit=200
    ).found[-1]
    dense = reads.FeedPosition.behind(last)
    end = reads.feed(dense).next

    def search(**wanted: Any) -> Callable[[], Any]:
        bound = datetime(2000, 1, 1, tzinfo=UTC)
        return lambda: reads.search_entries(reads.EntryFilter(**wanted), at=now, place=None, bound=bound, newest=True, limit=50)

    return {
        "look at the marker, for all calls that wait": reads.feed_marker,
        "the end of the feed": reads.feed_end,
        f"the same while a transaction has {LOCKS:,} locks": _beside_locks(server, reads.feed_end),
        "200 entries in the middle, one a second": lambda: reads.feed(middle),
        "the last 200 of a burst of thousands a second": lambda: reads.feed(dense),
        "no entry behind the last one, in that burst": lambda: reads.feed(end),
        "50 of a holder, newest first": search(holder_id="cust-000711"),
        "50 by a reference that no entry has": search(reference="nobody-has-this"),
        "5,000 entries looked at for an actor, none found": search(actor="key:nobody"),
        "5,000 entries looked at for metadata, none found": search(metadata=("order", "7781")),
    }


def _beside_locks(server: BenchmarkServer, work: Callable[[], Any]) -> Callable[[], Any]:
    def beside() -> None:
        with psycopg.connect(server.postgres.owner_url) as other:
            other.execute("SELECT count(pg_advisory_xact_lock(number)) FROM generate_series(1, %s) AS number", [LOCKS])
            began = time.perf_counter()
            work()
            beside.ms = (time.perf_counter() - began) * 1e3  # type: ignore[attr-defined]
            other.rollback()

    return beside


def _median_ms(work: Callable[[], Any]) -> float:
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        found.append(getattr(work, "ms", (time.perf_counter() - began) * 1e3))
    return median(found)


if __name__ == "__main__":
    main()
