"""The tails of a spend's latency: `python -m tests.benchmarks.tails`.

16 and 200 clients spend over 10,000 holders: with nobody else there, and beside 4 clients of one hot holder and one that sends
batches of 1,000 spends of other holders. Prints p50 and p99 in milliseconds and their quotient, medians of the rounds; the aim is
a quotient of at most 3. BENCH_ROUNDS and BENCH_SECONDS say how much.

`python -m tests.benchmarks.tails --what-waits`: 16 clients beside one that sends batches of 100: of other holders, of some of the
10,000, and of the same hundred. So it shows how long spends wait for the locks of a batch, and how long for the machine.
"""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.clients import Outcome
from tests.benchmarks.measuring import ROUNDS
from tests.benchmarks.server import HOLDERS, RESULTS, ROOT, SPEND, BenchmarkServer, Web

OPERATIONS = 1_000
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
SPENDS = "/v1/holders/{holder}/spends"
SPREAD: dict[str, Any] = {"path": SPENDS, "body": SPEND, "holders": HOLDERS}
HOT: dict[str, Any] = {"path": SPENDS, "body": SPEND, "clients": 4, "prefix": "hot-"}


def _batches(prefix: str, size: int, *, step: int = 1) -> dict[str, Any]:
    """One client that sends batches of spends of these holders, each `step` numbers after the other."""
    operations = [
        {"operation": "spend", "holder": f"{prefix}{n * step}", "amount": 1, "idempotency_key": "{number}-" + str(n)}
        for n in range(size)
    ]
    return {"path": "/v1/batches", "body": json.dumps({"mode": "each", "operations": operations}), "clients": 1}


BATCH = _batches("batch-", OPERATIONS)
SMALL = 100


def main() -> None:
    """Print a line for each number of clients, alone and beside others."""
    RESULTS.mkdir(exist_ok=True)
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-tails")
    try:
        server.grant_to_all()
        server.grant_to_all("batch-", OPERATIONS)
        server.grant_to_all("hot-", 1)
        server.settle()
        if sys.argv[1:] == ["--what-waits"]:
            _show_what_waits(server)
            return
        with server.web() as web:
            for clients in (16, 200):
                web.load(**SPREAD, clients=clients, seconds=1.0)
                _show(f"{clients} clients", lambda clients=clients: _load(web, clients))  # type: ignore[misc]
                _show(
                    f"{clients} clients, one hot holder, batches",
                    lambda clients=clients: _load(web, clients, HOT, BATCH),  # type: ignore[misc]
                )
    finally:
        server.close()


def _show_what_waits(server: BenchmarkServer) -> None:
    """Print a line for each kind of batches beside 16 clients."""
    others, some = _batches("batch-", SMALL), _batches("bench-", SMALL, step=HOLDERS // SMALL)
    hundred, same = {**SPREAD, "holders": SMALL}, _batches("bench-", SMALL)
    with server.web() as web:
        web.load(**SPREAD, clients=16, seconds=1.0)
        _show("alone", lambda: _load(web, 16))
        _show("batches of other holders", lambda: _load(web, 16, others))
        _show("batches of 1 in 100 of the holders", lambda: _load(web, 16, some))
        _show("spends of 100 holders, alone", lambda: _load(web, 16, spread=hundred))
        _show("spends of 100, batches of these 100", lambda: _load(web, 16, same, spread=hundred))


def _load(web: Web, clients: int, *beside: dict[str, Any], spread: dict[str, Any] = SPREAD) -> list[Outcome]:
    """Send spends of many holders, and other loads at the same time; the outcomes, that of the spends first."""
    with ThreadPoolExecutor(1 + len(beside)) as pool:
        others = [pool.submit(web.load, **load, seconds=SECONDS) for load in beside]
        outcome = web.load(**spread, clients=clients, seconds=SECONDS)
        return [outcome, *(other.result() for other in others)]


def _show(name: str, measure: Callable[[], list[Outcome]]) -> None:
    """Measure some rounds, and print their medians; of the last load beside the spends, the batches, its p50."""
    outcomes = [measure() for _ in range(ROUNDS)]
    rounds = [each[0] for each in outcomes]
    p50, p99 = (median(getattr(each, mark) for each in rounds) for mark in ("p50_ms", "p99_ms"))
    quotient = median(each.p99_ms / each.p50_ms for each in rounds)
    rate = median(each.per_second for each in rounds)
    sys.stdout.write(f"{name:42} p50 {p50:6.1f}  p99 {p99:6.1f} ms  {quotient:4.1f} x  {rate:6.0f}/s{_of_batches(outcomes)}\n")
    sys.stdout.flush()


def _of_batches(outcomes: list[list[Outcome]]) -> str:
    """How long a batch took beside the spends, where there were batches."""
    return f"  a batch {median(each[-1].p50_ms for each in outcomes):4.0f} ms" if len(outcomes[0]) > 1 else ""


if __name__ == "__main__":
    main()
