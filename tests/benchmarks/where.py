"""Where a spend's microseconds go: `python -m tests.benchmarks.where`.

CPU of one process that runs the ASGI application without a web server, and of its one server process; each figure is the least of
several rounds, so that what else the machine does counts as little as can be. The parts are measured alone, hot in the caches, so
that they come to less than the whole: the difference is what sleeping and waking between statements costs.
"""

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from psycopg import sql

from tests.benchmarks.measuring import cpu_of_process_us, interleaved
from tests.benchmarks.server import KEY, ROOT, BenchmarkServer

HOLDERS = 1_000
LOTS = (3, 499)
ROUNDS = 8
OURS = "/v1/holders/{holder}/spends"


def main() -> None:
    """Print one line for each part."""
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-where")
    try:
        server.grant_to_all("where-", HOLDERS)
        server.settle()
        _show("The web process, per request", _requests())
        _show("Parts of it, alone", _parts())
        _show("The server, per transaction", _server(server))
        _show("Spends that share a transaction, each", _together())
        _show("A spend of a holder, by its open lots", _by_lots())
        _show("What a scale is worked out from", _bounds(), unit="")
        _show("The server, per transaction of 1 and of 8 spends, with parts left out one after the other", _left_out(server))
    finally:
        server.close()


def _show(title: str, lines: dict[str, float], unit: str = ", µs of CPU") -> None:
    """Print a title, and a line for each value."""
    sys.stdout.write(f"\n{title}{unit}\n")
    for name, value in lines.items():
        sys.stdout.write(f"  {name:62} {value:7.1f}\n")
    sys.stdout.flush()


def _least(
    work: Callable[[int], object], times: int = 300, clock: Callable[[], float] = lambda: time.process_time() * 1e6
) -> float:
    """What a piece of work takes, in the round with the least."""
    found = []
    for _ in range(ROUNDS):
        start = clock()
        for number in range(times):
            work(number)
        found.append((clock() - start) / times)
    return min(found)


def asking(
    loop: asyncio.AbstractEventLoop, method: str, path: str, *headers: tuple[bytes, bytes], status: int = 200
) -> Callable[[int], None]:
    """What sends a request to the application without a web server, with its number in it; raises when the status is another."""
    from ledger_project.serving.application import application

    async def one(number: int) -> None:
        body = b'{"amount":120,"reason":"chat completion","reference":"req_%d"}' % number if method == "POST" else b""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path.replace("{holder}", f"where-{number * 37 % HOLDERS}"), "query_string": b"", "root_path": "",
            "headers": [
                (b"host", b"127.0.0.1"), (b"authorization", b"Bearer %s" % KEY.encode()),
                (b"idempotency-key", uuid.uuid4().hex.encode()), (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)), *headers,
            ],
            "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        await application(scope, receive, send)
        if statuses != [status]:
            raise RuntimeError(f"{method} {path}: {statuses}")

    return lambda number: loop.run_until_complete(one(number))


def _requests() -> dict[str, float]:
    """CPU of whole requests, from the ASGI application on."""
    from ledger_project.serving.application import application

    loop = asyncio.new_event_loop()
    ask = partial(asking, loop)
    found = {
        "GET /healthz": _least(ask("GET", "/healthz")),
        "a POST that only checks the key, in a thread": _least(ask("POST", "/v1/competitors/lean-key-only/{holder}", status=201)),
        "POST …/spends": _least(ask("POST", OURS, status=201)),
        "GET …/balance": _least(ask("GET", "/v1/holders/{holder}/balance")),
        "GET …/entries, up to 50": _least(ask("GET", "/v1/holders/{holder}/entries")),
    }
    loop.run_until_complete(application.close())
    loop.close()
    return found


def _parts() -> dict[str, float]:
    """CPU of the parts of a spend, in this process alone."""
    from django.db import connection, transaction

    from ledger import entry_rows
    from ledger.rest.kit import parsing, rendering
    from ledger.rest.schemas import request_schemas, response_schemas
    from ledger.rules.accounts import AccountState
    from ledger.rules.decisions import credit_rules
    from ledger.rules.lots import Lot, decode, encode
    from ledger.rules.requests import SpendRequest

    body = b'{"amount":120,"reason":"chat completion","reference":"req_1"}'
    shape = request_schemas.body_of(SpendRequest)
    common = {"holder_id": "where-1", "idempotency_key": "key", "actor": "key:x"}

    def read() -> SpendRequest:
        return shape.make(parsing.read(shape, parsing.parse_object(body)) | common)

    request = read()
    lots = (Lot(1, 10**12, 1), Lot(2, 10**12, 1, None, 50), Lot(3, 10**12, 1, None, 100, "promotional"))
    account = AccountState("where-1", "credits", 1_700_000_000_000_000, 7, 3 * 10**12, 0, lots)
    entry = credit_rules.spend(account, request)[-1]
    connection.ensure_connection()
    driver = connection.connection.pgconn

    def begin_and_commit(number: int) -> None:
        with transaction.atomic(durable=True):
            driver.exec_(b"BEGIN")

    return {
        "read the body: bytes, object, request": _least(lambda number: read(), 2_000),
        "rules: lots, next entry, both digests": _least(lambda number: credit_rules.spend(account, request), 2_000),
        "state from JSON and to JSON": _least(lambda number: decode(encode(lots)), 2_000),
        "the entry as parameters": _least(lambda number: entry_rows.parameters(entry), 2_000),
        "the answer": _least(lambda number: rendering.json_response(response_schemas.EntrySerializer.body(entry)), 2_000),
        "Django's atomic() without a statement": _least(lambda number: _nothing_in_a_transaction(), 2_000),
        "… with BEGIN and COMMIT": _least(begin_and_commit, 1_000),
        "one statement there and back (SELECT 1 through libpq)": _least(lambda number: driver.exec_(b"SELECT 1"), 1_000),
        "the same through Django's cursor": _least(lambda number: _select_through_cursor(), 1_000),
    }


def _nothing_in_a_transaction() -> None:
    """An empty transaction."""
    from django.db import transaction

    with transaction.atomic(durable=True):
        pass


def _select_through_cursor() -> None:
    """The smallest query by Django's cursor."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def _server(server: BenchmarkServer) -> dict[str, float]:
    """CPU of statements and transactions in the database server."""
    from django.db import connection, transaction

    from ledger import journal, services
    from ledger.rules.requests import SpendRequest

    connection.ensure_connection()
    driver = connection.connection.pgconn
    clock = lambda: cpu_of_process_us(connection.connection.info.backend_pid)  # noqa: E731

    def opened(number: int) -> None:
        with transaction.atomic(durable=True), journal.open([spend_of(number)]):
            pass

    def spend_of(number: int) -> SpendRequest:
        return SpendRequest(holder_id=f"where-{number * 37 % HOLDERS}", amount=120, idempotency_key="never used")

    def begun(number: int) -> None:
        with transaction.atomic(durable=True):
            driver.exec_(b"BEGIN")

    def spent(number: int) -> None:
        services.spend(
            holder_id=f"where-{number * 37 % HOLDERS}", amount=120, idempotency_key=str(uuid.uuid4()), reason="chat completion"
        )

    def unsynced() -> float:
        driver.exec_(b"SET synchronous_commit = off")
        found = _least(spent, clock=clock)
        driver.exec_(b"SET synchronous_commit = on")
        return found

    found = {
        "BEGIN and COMMIT": _least(begun, clock=clock),
        "… with ledger_open between: lock, last entry, replay check": _least(opened, clock=clock),
        "a spend, without waiting for the disk": unsynced(),
        "a spend": _least(spent, clock=clock),
    }
    with server.superuser() as superuser:
        superuser.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        found["a spend, without waiting for the disk and without `follows`"] = unsynced()
        superuser.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")
    return found


def _group(size: int) -> Callable[[int], object]:
    """Makes a call that executes a group of spends."""
    from ledger.rules.requests import SpendRequest
    from ledger.services.execute import execute_group

    def one(number: int) -> object:
        return execute_group(
            [
                SpendRequest(
                    holder_id=f"where-{(number * 37 + place * 11) % HOLDERS}", amount=120, idempotency_key=str(uuid.uuid4()),
                    reason="chat completion", actor="key:x",
                )
                for place in range(size)
            ]
        )  # fmt: skip

    return one


def _together() -> dict[str, float]:
    """CPU of a spend in groups of each size."""
    from django.db import connection

    connection.ensure_connection()
    server = lambda: cpu_of_process_us(connection.connection.info.backend_pid)  # noqa: E731
    found = {}
    for size in (1, 2, 4, 8, 16):
        found[f"{size}, in the process"] = _least(_group(size), 100) / size
        found[f"{size}, in the server"] = _least(_group(size), 100, clock=server) / size
    return found


def _by_lots() -> dict[str, float]:
    """CPU of a spend alone in its transaction, and of reading and showing a balance, for holders with few and many open lots.

    Medians of rounds in turns: what is told is their quotients.
    """
    from django.db import connection

    from ledger import reads, services
    from ledger.rest.kit.rendering import json_response
    from ledger.rest.schemas import response_schemas
    from ledger.rules.requests import GrantRequest, SpendRequest
    from ledger.services.execute import execute_group

    def spend(holder: str) -> object:
        return execute_group([SpendRequest(holder_id=holder, amount=120, idempotency_key=str(uuid.uuid4()))])

    def balance(holder: str) -> object:
        [account] = reads.balances([(holder, "credits")])
        return json_response(response_schemas.AccountBalanceSerializer.body(account))

    def taken(work: Callable[[str], object], holder: str, clock: Callable[[], float]) -> float:
        start = clock()
        for _ in range(12):
            work(holder)
        return (clock() - start) / 12

    connection.ensure_connection()
    clocks = {
        "process": lambda: time.process_time() * 1e6,
        "server": lambda: cpu_of_process_us(connection.connection.info.backend_pid),
    }
    measures: dict[str, Callable[[], float]] = {}
    for lots in LOTS:
        holder = f"where-lots-{lots}"
        grants = [GrantRequest(holder_id=holder, amount=10**9, idempotency_key=f"lot-{number}") for number in range(lots)]
        services.batch(grants, mode="each", idempotency_key=holder)
        for name, work in (("spend", spend), ("balance", balance)):
            for place, clock in clocks.items():
                measures[f"a {name}, {lots} lots, in the {place}"] = partial(taken, work, holder, clock)
    return {name: median(rounds) for name, rounds in interleaved(measures, rounds=2 * ROUNDS).items()}


def _bounds() -> dict[str, float]:
    """What the log takes of each spend, and how long a group keeps its locks."""
    from ledger.database.statements import fetch_value

    def written() -> float:
        return fetch_value(float, "SELECT pg_current_wal_insert_lsn() - '0/0'")

    found = {}
    for size in (1, 8, 32):
        group = _group(size)
        found[f"bytes of log of a spend, {size} in a transaction"] = _least(group, 50, clock=written) / size
        found[f"µs for which a group of {size} keeps its locks"] = _least(group, 50, clock=lambda: time.perf_counter() * 1e6)
    return found


def _left_out(server: BenchmarkServer) -> dict[str, float]:
    """CPU of a transaction in the database server: the opening alone, all, and all without more and more of what checks it."""
    from django.db import connection, transaction

    from ledger import journal
    from ledger.database.statements import wait_at_most
    from ledger.rules.requests import SpendRequest

    connection.ensure_connection()
    connection.connection.pgconn.exec_(b"SET synchronous_commit = off")
    found: dict[str, float] = {}

    def least(part: str, make: Callable[[int], Callable[[int], object]] = _group) -> None:
        for size in (1, 8):
            work = make(size)
            for number in range(20):  # plans made again
                work(number)
            clock = lambda: cpu_of_process_us(connection.connection.info.backend_pid)  # noqa: E731
            found[f"{size}: {part}"] = _least(work, 60, clock=clock)

    def opening(size: int) -> Callable[[int], object]:
        def opened(number: int) -> None:
            requests = [
                SpendRequest(holder_id=f"where-{(number * 37 + place * 11) % HOLDERS}", amount=120, idempotency_key="never used")
                for place in range(size)
            ]
            with transaction.atomic(durable=True):
                wait_at_most(100)
                with journal.open(requests, wait=False):
                    pass

        return opened

    least("BEGIN, the opening, COMMIT", opening)
    least("all")
    with server.superuser() as superuser:
        superuser.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        least("without `follows`")
        superuser.execute("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
        least("and without the other triggers")
        checks = superuser.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'ledger_entry'::regclass AND contype = 'c'"
        ).fetchall()
        for (name,) in checks:
            superuser.execute(sql.SQL("ALTER TABLE ledger_entry DROP CONSTRAINT {}").format(sql.Identifier(name)))
        least(f"and without the {len(checks)} CHECK constraints")
    return found


if __name__ == "__main__":
    main()
