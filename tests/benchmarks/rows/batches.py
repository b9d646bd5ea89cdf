"""Batches of 1,000, as services and over HTTP: spends beside a multi-row INSERT of the same rows, transfers beside spends."""

import json
import random
import time
import uuid
from collections.abc import Sequence
from statistics import median
from typing import Any

from django.db import connection

from ledger import services
from ledger.database.statements import fetch_value
from ledger.entry_rows import COLUMNS
from ledger.rules.requests import Request, SpendRequest, TransferRequest
from tests.benchmarks.histories import row
from tests.benchmarks.measuring import Result, cpu_of_process_us, interleaved, result, seconds
from tests.benchmarks.server import BenchmarkServer, Web

OPERATIONS = 1_000
HOLDERS = 1_000
SETS = 10
"""Over HTTP, each batch is of one of these sets of holders: two at the same time seldom wait for each other's locks."""
REPEATS = 3
SPREAD: dict[str, Any] = {"prefix": "batch-", "holders": SETS}
PLAIN = f"INSERT INTO competitors.plain ({COLUMNS}) VALUES "
PLACES = ", ".join(["%s"] * (COLUMNS.count(",") + 1))


def run(server: BenchmarkServer) -> list[Result]:
    """Both ways, with the same rows."""
    server.grant_to_all("batch-", HOLDERS)
    server.settle()
    rows: list[tuple[object, ...]] = []

    def batch() -> float:
        spent = 0.0
        for _ in range(REPEATS):
            requests = _requests()
            start = time.perf_counter()
            answered = services.batch(requests, mode="each", idempotency_key=str(uuid.uuid4()))
            spent += time.perf_counter() - start
            entries = [outcome.entry for outcome in answered.outcomes if outcome.entry is not None]
            if len(entries) != OPERATIONS:
                raise RuntimeError(f"a batch of {OPERATIONS} wrote {len(entries)} entries")
            rows[:] = [row(entry) for entry in entries]
        return REPEATS * OPERATIONS / spent

    def transfers() -> float:
        spent = 0.0
        for _ in range(REPEATS):
            requests = _transfers()
            start = time.perf_counter()
            answered = services.batch(requests, mode="each", idempotency_key=str(uuid.uuid4()))
            spent += time.perf_counter() - start
            if any(outcome.entry is None for outcome in answered.outcomes):
                raise RuntimeError("a transfer of a batch was refused")
        return REPEATS * OPERATIONS / spent

    def plain() -> float:
        spent = 0.0
        for _ in range(REPEATS):
            key = str(uuid.uuid4())
            fresh = [(f"{holder_id}-{key}", *rest) for holder_id, *rest in rows]
            spent += seconds(lambda fresh=fresh: _insert(fresh))  # type: ignore[misc]
        return REPEATS * OPERATIONS / spent

    def cpu_us(requests: Sequence[Request]) -> float:
        pid = connection.connection.info.backend_pid
        before = time.process_time() * 1e6 + cpu_of_process_us(pid)
        services.batch(requests, mode="each", idempotency_key=str(uuid.uuid4()))
        return (time.process_time() * 1e6 + cpu_of_process_us(pid) - before) / OPERATIONS

    batch()
    transfers()
    measures = {"batch": batch, "transfers": transfers, "plain": plain, "cpu": lambda: cpu_us(_requests()),
                "cpu of transfers": lambda: cpu_us(_transfers())}  # fmt: skip
    found = interleaved(measures)
    kept = [OPERATIONS / rate for rate in found["transfers"]]
    for number in range(SETS):
        server.grant_to_all(f"batch-{number}-", HOLDERS)
    server.settle()
    with server.web() as web:
        body = json.dumps(
            {
                "mode": "each",
                "operations": [
                    {
                        "operation": "spend", "holder": f"{{holder}}-{number}", "amount": 120,
                        "idempotency_key": "{number}-" + str(number), "reason": "chat completion",
                    }
                    for number in range(OPERATIONS)
                ],
            }
        )  # fmt: skip
        web.load("/v1/batches", body=body, clients=2, seconds=1.0, **SPREAD)
        rates = [_entries_per_second(web, body) for _ in range(3)]
    return [
        result("batches", "batch of 1,000 spends", "plain multi-row INSERT of the same rows", found["batch"], found["plain"],
               aim=">= 0.35", context=f"{median(found['batch']):,.0f} entries/s beside {median(found['plain']):,.0f}"),
        result("batches", "batch of 1,000 transfers", "batch of 1,000 spends", found["transfers"], found["batch"], aim=">= 0.33"),
        Result("batches", "batch of 1,000 transfers", "seconds for which it keeps its locks", median(kept), "<= 1", unit="s",
               rounds=kept),
        Result("batches", "batch of 1,000 spends", "CPU of an entry, process and server",
               median(found["cpu"]), "<= 180", unit="µs",
               rounds=found["cpu"]),
        Result("batches", "batch of 1,000 transfers", "CPU of a transfer, process and server", median(found["cpu of transfers"]),
               unit="µs", rounds=found["cpu of transfers"]),
        Result("batches", "batch of 1,000, one process", "entries a second", median(found["batch"]), ">= 10000", unit="/s",
               rounds=found["batch"]),
        Result("batches", "POST /v1/batches, 2 clients", "entries a second", median(rates), ">= 10000", unit="/s", rounds=rates),
    ]  # fmt: skip


def _entries_per_second(web: Web, body: str) -> float:
    """Counted in the table: a batch of nothing but refusals is answered by 200 too."""
    before = _entries()
    outcome = web.load("/v1/batches", body=body, clients=2, seconds=3.0, **SPREAD)
    written = _entries() - before
    if written != outcome.answered * OPERATIONS:
        raise RuntimeError(f"{outcome.answered} batches of {OPERATIONS} wrote {written} entries")
    return written / outcome.seconds


def _entries() -> int:
    """How many entries the batches of this row have made."""
    return fetch_value(int, "SELECT count(*) FROM ledger_entry WHERE starts_with(holder_id, 'batch-')")


def _requests() -> list[SpendRequest]:
    """A batch of spends of random holders."""
    key = uuid.uuid4().hex
    return [
        SpendRequest(
            holder_id=f"batch-{random.randrange(HOLDERS)}", amount=120, idempotency_key=f"{key}-{number}",
            reason="chat completion", actor="key:bench",
        )
        for number in range(OPERATIONS)
    ]  # fmt: skip


def _transfers() -> list[TransferRequest]:
    """From one holder to another one; each entry of theirs is two rows."""
    key = uuid.uuid4().hex
    pairs = [random.sample(range(HOLDERS), 2) for _ in range(OPERATIONS)]
    return [
        TransferRequest(
            holder_id=f"batch-{source}", to=f"batch-{target}", amount=1, idempotency_key=f"{key}-{number}", actor="key:bench"
        )
        for number, (source, target) in enumerate(pairs)
    ]


def _insert(rows: list[tuple[object, ...]]) -> None:
    """Insert rows into the plain table by one statement."""
    with connection.cursor() as cursor:
        cursor.execute(PLAIN + ", ".join([f"({PLACES})"] * len(rows)), [value for row in rows for value in row])
