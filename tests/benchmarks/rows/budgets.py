"""A spend of a pool with a budget for each of 10,000 members, against one of a holder without budgets.

Judged by the CPU of both processes, the caller's and the server's, which holds on a busy machine; the clock is told too.
"""

import random
import time
from statistics import median
from typing import Any, NamedTuple

from django.db import connection

from ledger import services
from ledger.rules.requests import SpendRequest
from tests.benchmarks.measuring import ROUNDS, Result, cpu_of_process_us, result
from tests.benchmarks.server import BenchmarkServer

MEMBERS = 10_000
CALLS = 300
HOLDERS = ("pool", "plain")


class Spend(NamedTuple):
    """What one spend took, in microseconds."""

    own_us: float
    server_us: float
    elapsed_us: float

    @property
    def cpu_us(self) -> float:
        """Of both processes."""
        return self.own_us + self.server_us


def run(server: BenchmarkServer) -> list[Result]:
    """Spend in turn from both, member after member at random."""
    for holder in HOLDERS:
        services.grant(holder_id=holder, amount=10**12, idempotency_key="grant")
    setting: dict[str, Any] = {"limit": 10**9, "window": "month", "by": "label", "label": "member"}
    services.set_budget(holder_id="pool", budget="member", idempotency_key="budget", **setting)
    for first in range(0, MEMBERS, 500):
        spends = [
            SpendRequest(holder_id=holder, amount=1, metadata={"member": f"m{number}"}, idempotency_key=f"first-{number}")
            for number in range(first, first + 500)
            for holder in HOLDERS
        ]
        services.batch(spends, mode="each", idempotency_key=f"batch-{first}")
    server.settle()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [backend] = cursor.fetchone()
    rounds = [_round(number, backend) for number in range(ROUNDS + 1)][1:]
    pool, plain = [each["pool"] for each in rounds], [each["plain"] for each in rounds]
    what, beside = f"spend of one of {MEMBERS:,} members with a budget each", "of a holder without budgets"
    return [
        result("budgets", what, beside, *_values(pool, plain, "cpu_us"), aim="<= 1.3", context=_context(pool, plain)),
        result("budgets", f"{what}, by the clock", beside, *_values(pool, plain, "elapsed_us")),
    ]


def _round(number: int, backend: int) -> dict[str, Spend]:
    """Return the medians of spends that alternate, by holder."""
    spends: dict[str, list[Spend]] = {holder: [] for holder in HOLDERS}
    for call in range(CALLS):
        member = f"m{random.randrange(MEMBERS)}"
        for holder in HOLDERS if call % 2 else HOLDERS[::-1]:
            start, own, server = time.perf_counter(), time.process_time(), cpu_of_process_us(backend)
            services.spend(holder_id=holder, amount=1, metadata={"member": member}, idempotency_key=f"{number}/{call}")
            own, elapsed = time.process_time() - own, time.perf_counter() - start
            spends[holder].append(Spend(own * 1e6, cpu_of_process_us(backend) - server, elapsed * 1e6))
    return {holder: Spend(*map(median, zip(*each, strict=True))) for holder, each in spends.items()}


def _values(pool: list[Spend], plain: list[Spend], name: str) -> list[list[float]]:
    """Return one measure of both sides, by round."""
    return [[getattr(each, name) for each in side] for side in (pool, plain)]


def _context(pool: list[Spend], plain: list[Spend]) -> str:
    """Return what a spend takes of each process, in words."""
    sides = []
    for side in (pool, plain):
        own_us, server_us = (median(getattr(each, name) for each in side) for name in ("own_us", "server_us"))
        sides.append(f"{own_us:.0f} + {server_us:.0f} µs")
    return f"{' beside '.join(sides)} of the caller's processor + the server's"
