"""A spend of a pool with a budget for each of 10,000 members, against one of a holder without budgets."""

import random
import time
from statistics import median

from ledger import services
from ledger.rules.requests import SpendRequest
from tests.benchmarks.measuring import ROUNDS, Result, result
from tests.benchmarks.server import BenchmarkServer

MEMBERS = 10_000
CALLS = 300


def run(server: BenchmarkServer) -> list[Result]:
    """Spend in turn from both, member after member at random."""
    for holder in ("pool", "plain"):
        services.grant(holder_id=holder, amount=10**12, idempotency_key="grant")
    setting = {"limit": 10**9, "window": "month", "by": "label", "label": "member"}
    services.set_budget(holder_id="pool", budget="member", idempotency_key="budget", **setting)
    for first in range(0, MEMBERS, 500):
        spends = [
            SpendRequest(holder_id=holder, amount=1, metadata={"member": f"m{number}"}, idempotency_key=f"first-{number}")
            for number in range(first, first + 500)
            for holder in ("pool", "plain")
        ]
        services.batch(spends, mode="each", idempotency_key=f"batch-{first}")
    server.settle()
    rounds = [_round(number) for number in range(ROUNDS)]
    pool, plain = [each[0] for each in rounds], [each[1] for each in rounds]
    context = f"{median(pool):.0f} µs beside {median(plain):.0f} µs"
    what, beside = f"spend of one of {MEMBERS:,} members with a budget each", "of a holder without budgets"
    return [result("budgets", what, beside, pool, plain, aim="<= 1.3", context=context)]


def _round(number: int) -> tuple[float, float]:
    """The medians of spends that alternate, in microseconds."""
    took: dict[str, list[float]] = {"pool": [], "plain": []}
    for call in range(CALLS):
        member = f"m{random.randrange(MEMBERS)}"
        for holder in ("pool", "plain") if call % 2 else ("plain", "pool"):
            start = time.perf_counter()
            services.spend(holder_id=holder, amount=1, metadata={"member": member}, idempotency_key=f"{number}/{call}")
            took[holder].append((time.perf_counter() - start) * 1e6)
    return median(took["pool"]), median(took["plain"])
