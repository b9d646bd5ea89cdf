"""Where the credits of a holder with 10^6 entries went, and what it costs a spend that this can be read."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from ledger import reads, services
from tests.benchmarks.measuring import ROUNDS, Result, result
from tests.benchmarks.server import BenchmarkServer

ENTRIES = int(os.environ.get("BENCH_ENTRIES", "1000000"))
DAYS = 365
CALLS = 20
SPENDS = 2_048
"""Of each side and round: eight times what is summed up at once."""
SUMMED = "ALTER TABLE ledger_entry {} TRIGGER summed"

# As in history.py: numbers, balances and labels are right, the digests are not. A year of five models, five rates, 50 members,
# and a session for each 20 entries.
HISTORY = """
INSERT INTO ledger_entry
    (holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, idempotency_key, request_digest, recorded_at,
     actor, reason, reference, metadata, rating, digest)
SELECT 'used', 'credits', n,
       CASE n WHEN 1 THEN 'grant' ELSE 'spend' END,
       CASE n WHEN 1 THEN 1000000000000 ELSE -120 END,
       1000000000000 - 120 * (n - 1), 0,
       json_build_array(json_build_array(1, 1000000000000 - 120 * (n - 1), 1735689600000000)),
       CASE n WHEN 1 THEN '[]' ELSE '[[1,120]]' END::json,
       gen_random_uuid()::text, decode('0011223344556677', 'hex'), timestamptz '2025-01-01' + n * (interval '%s days' / %s),
       'key:bench',
       'chat completion', 'req_' || n,
       CASE WHEN n > 1 THEN json_build_object(
           'member', 'm' || mod(n / 20, 50), 'model', 'model-' || mod(n, 5), 'session', 's' || n / 20
       ) END,
       CASE WHEN n > 1 THEN json_build_object('rate', 'rate-' || mod(n / 3, 5)) END,
       sha256(convert_to('used' || n, 'UTF8'))
FROM generate_series(%s, %s) n
"""
LABELS = {"model": "model-1", "member": "m7", "session": "s1"}
RATE = "chat"


def run(server: BenchmarkServer) -> list[Result]:
    """Read by each label, then spend in turn with the sums and without them."""
    return [*_reads(server), *_writes(server)]


def _reads(server: BenchmarkServer) -> list[Result]:
    start = time.monotonic()
    with server.superuser() as connection:
        connection.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        for first in range(1, ENTRIES, 100_000):
            last = min(first + 99_999, ENTRIES)
            connection.execute(HISTORY % (DAYS, ENTRIES, first, last))
        connection.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    server.settle()
    made = f"{ENTRIES:,} entries of one holder in {DAYS} days, made in {time.monotonic() - start:.0f} s"
    span = {"since": datetime(2025, 1, 1, tzinfo=UTC), "until": datetime(2026, 1, 2, tzinfo=UTC)}
    berlin = ZoneInfo("Europe/Berlin")
    questions: dict[str, Callable[[], object]] = {
        "by model": lambda: reads.usage("used", by="label:model", **span),
        "by model and day, of Berlin": lambda: reads.usage("used", by="label:model", by_day=True, zone=berlin, **span),
        "by session": lambda: reads.usage("used", by="label:session", **span),
        "by member and day, of Berlin": lambda: reads.usage("used", by="label:member", by_day=True, zone=berlin, **span),
        "by model and rate": lambda: reads.usage("used", by="label:model", by_rate=True, **span),
        "by member and rate": lambda: reads.usage("used", by="label:member", by_rate=True, **span),
        "by session and rate": lambda: reads.usage("used", by="label:session", by_rate=True, **span),
        "by member, rate and day, of Berlin": lambda: reads.usage(
            "used", by="label:member", by_rate=True, by_day=True, zone=berlin, **span
        ),
    }
    lines = [_read(name, ask, made) for name, ask in questions.items()]
    # No sums of two labels together are kept, so nothing is promised of it.
    return [*lines, replace(_read("by member and model, from the entries", _by_two_labels, made), aim=None)]


def _by_two_labels() -> None:
    """Add up the spends by two labels, which have no sums together: for comparison, and without refunds and captures."""
    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
        cursor.execute(
            "SELECT metadata ->> 'member', metadata ->> 'model', sum(-amount), count(*) FROM ledger_entry "
            "WHERE holder_id = 'used' AND credit_type = 'credits' AND kind = 'spend' GROUP BY 1, 2"
        )
        cursor.fetchall()
        cursor.execute("RESET max_parallel_workers_per_gather")


def _read(name: str, ask: Callable[[], object], made: str) -> Result:
    ask()
    busy, start = _processor_ms(), time.perf_counter()
    for _ in range(CALLS):
        ask()
    busy = (_processor_ms() - busy) / CALLS
    elapsed = (time.perf_counter() - start) * 1e3 / CALLS
    context = f"{busy:.0f} ms of the server's processor, {elapsed:.0f} ms in all; {made}"
    return Result("usage", f"a year's use {name}", "200 ms", busy / 200, aim="<= 1", context=context, rounds=[busy])


def _processor_ms() -> float:
    """The processor time that the server's process of this connection has used."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def _writes(server: BenchmarkServer) -> list[Result]:
    lines = []
    services.publish_rate(credit_type="credits", code=RATE, price=1, per=1, idempotency_key=RATE)
    asked: dict[str, dict[str, Any]] = {
        "with three labels and a rate": {"rate": RATE, "quantity": 1, "metadata": LABELS},
        "with three labels": {"amount": 1, "metadata": LABELS},
        "without labels": {"amount": 1},
    }
    for what, request in asked.items():
        holder = what.replace(" ", "-")
        services.grant(holder_id=holder, amount=10**12, idempotency_key="grant")
        sides: dict[str, list[float]] = {"ENABLE": [], "DISABLE": []}
        for number in range(ROUNDS + 1):
            for side in sorted(sides, reverse=number % 2 == 1):
                with server.superuser() as connection:
                    connection.execute(SUMMED.format(side))
                took = _spend(holder, request, f"{number}/{side}")
                if number:
                    sides[side].append(took)
        context = f"{median(sides['ENABLE']):.0f} µs beside {median(sides['DISABLE']):.0f} µs of processors a spend"
        lines.append(
            result(
                "usage",
                f"spends {what}",
                "without the sums of usage",
                sides["ENABLE"],
                sides["DISABLE"],
                aim="<= 1.1",
                context=context,
            )
        )
    with server.superuser() as connection:
        connection.execute(SUMMED.format("ENABLE"))
    return lines


def _spend(holder: str, request: dict[str, Any], name: str) -> float:
    """Spend one by one; return the processor time of one in both processes, in microseconds, on average."""
    busy, own = _processor_ms(), time.process_time()
    for call in range(SPENDS):
        services.spend(holder_id=holder, idempotency_key=f"{name}/{call}", **request)
    return ((_processor_ms() - busy) * 1e3 + (time.process_time() - own) * 1e6) / SPENDS
