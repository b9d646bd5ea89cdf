"""Balance, spend and a page of entries where the history is long, against where it is short."""

import os
import time
import uuid
from collections.abc import Callable
from statistics import median

from ledger import reads, services
from tests.benchmarks.measuring import Result, result
from tests.benchmarks.server import BenchmarkServer

ENTRIES = int(os.environ.get("BENCH_ENTRIES", "1000000"))
LONG = ENTRIES // 10
SHORT = 100
PER_HOLDER = 1_000
CALLS = 300

# Made by the server, as far as a history needs to look like one: numbers and balances are right, the digests are not
# those of the canonical form. Only `follows`, which would look at each row's predecessor, is off while they are made.
HISTORY = """
INSERT INTO ledger_entry
    (holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, idempotency_key, request_digest, recorded_at,
     actor, reason, reference, digest)
SELECT holder, 'credits', n,
       CASE n WHEN 1 THEN 'grant' ELSE 'spend' END,
       CASE n WHEN 1 THEN 1000000000000 ELSE -120 END,
       1000000000000 - 120 * (n - 1), 0,
       format('[[1,%%s,1735689600000000]]', 1000000000000 - 120 * (n - 1))::json,
       CASE n WHEN 1 THEN '[]' ELSE '[[1,120]]' END::json,
       gen_random_uuid()::text, decode('0011223344556677', 'hex'), moment, 'key:bench', 'chat completion',
       'req_' || n,
       sha256(convert_to(holder || n, 'UTF8'))
FROM (
    SELECT format('%s-%%s', h) AS holder, n, timestamptz '2025-01-01' + n * interval '1 second' AS moment
    FROM generate_series(%s, %s) n, generate_series(1, %s) h
) AS planned
"""


def run(server: BenchmarkServer) -> list[Result]:
    """Each call in turn on the long history and on the short one."""
    start = time.monotonic()
    _make(server)
    made = f"{ENTRIES:,} entries in all, {LONG:,} of one holder; made in {time.monotonic() - start:.0f} s"
    calls: dict[str, Callable[[str], object]] = {
        "balance": lambda holder: reads.balance(holder),
        "spend": lambda holder: services.spend(holder_id=holder, amount=1, idempotency_key=str(uuid.uuid4())),
        "page of 50 entries": lambda holder: reads.entries(holder, limit=50),
    }
    lines = []
    for name, call in calls.items():
        long: list[float] = []
        short: list[float] = []
        for _ in range(5):
            for each in ("long-1", "short-1"):
                call(each)
            pair = _pairs(call)
            long.append(pair[0])
            short.append(pair[1])
        lines.append(
            result("history", f"{name}, long history", f"at {SHORT} entries", long, short, aim="<= 1.2",
                   context=f"{median(long):.0f} µs beside {median(short):.0f} µs; {made}")
        )  # fmt: skip
    return lines


def _pairs(call: Callable[[str], object]) -> tuple[float, float]:
    """The medians of calls that alternate, in microseconds."""
    took: dict[str, list[float]] = {"long-1": [], "short-1": []}
    for number in range(CALLS):
        for holder in ("long-1", "short-1") if number % 2 else ("short-1", "long-1"):
            start = time.perf_counter()
            call(holder)
            took[holder].append((time.perf_counter() - start) * 1e6)
    return median(took["long-1"]), median(took["short-1"])


def _make(server: BenchmarkServer) -> None:
    """Store a long history without its trigger, as no service could in that time."""
    with server.superuser() as connection:
        connection.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        try:
            connection.execute("SET synchronous_commit = off")
            holders = max(1, (ENTRIES - LONG) // PER_HOLDER)
            for first in range(
                1, PER_HOLDER + 1, 50
            ):  # the others' entries and the long holder's, side by side as they would come
                _insert(connection, "other", first, first + 49, holders)
                step = LONG // (PER_HOLDER // 50)
                nth = (first - 1) // 50
                _insert(connection, "long", nth * step + 1, (nth + 1) * step, 1)
            _insert(connection, "short", 1, SHORT, 1)
        finally:
            connection.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    server.settle()


def _insert(connection: object, prefix: str, first: int, last: int, holders: int) -> None:
    """Insert entries `first` to `last` of each holder with this prefix."""
    planned = (HISTORY.replace("%%s", "\0") % (prefix, first, last, holders)).replace("\0", "%s")
    connection.execute(planned)  # type: ignore[attr-defined]
