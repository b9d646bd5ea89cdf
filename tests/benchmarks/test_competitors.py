"""The rows "the lock alone" of `make bench` compare statements that differ only in the lock."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from ledger import journal, services
from ledger.database.locks import holder_key, lock_number
from ledger.keys import api_keys
from ledger.rules.requests import SpendRequest
from ledger.services import execute
from tests.benchmarks.clients import Load, send_load
from tests.benchmarks.competitors import bare, locking
from tests.benchmarks.rows import http, peers
from tests.benchmarks.server import COMPETITORS_SQL, SETTINGS_MODULE, SPEND
from tests.conftest import wait_until_waiting

WRITTEN = """
SELECT kind, amount, held, drawn::text, request_digest, actor, reason, reference, metadata::text, lots::text LIKE '[[1,%%'
FROM ledger_entry
WHERE holder_id = %s AND idempotency_key = %s
"""
SOUND = """
SELECT count(*) FILTER (WHERE e.digest = ledger_entry_digest(before.digest, e)), sum(e.amount), min(e.balance)
FROM ledger_entry e
JOIN ledger_entry before ON before.holder_id = e.holder_id AND before.sequence = e.sequence - 1
WHERE e.holder_id = %s
"""


@pytest.fixture
def owner(committed_db: None, raw_connection: Callable[..., psycopg.Connection[Any]]) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to a database with the competitors' tables and functions."""
    found = raw_connection(autocommit=True)
    try:
        for script in COMPETITORS_SQL:
            found.execute((Path(locking.__file__).parent / script).read_text())
        found.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA competitors TO {settings.LEDGER_APP_ROLE}")
        yield found
    finally:
        found.execute("DROP SCHEMA IF EXISTS competitors CASCADE")


@pytest.fixture
def holder(owner: psycopg.Connection[Any], new_holder: Callable[[], str]) -> str:
    """A holder with 1,000 credits, in the ledger and in the competitors' tables."""
    name = new_holder()
    owner.execute("INSERT INTO competitors.holder VALUES (%s, 1000)", [name])
    services.grant(holder_id=name, amount=1_000, idempotency_key="lot", actor="test")
    return name


def request(holder: str, key: str = "") -> SpendRequest:
    """Return a request to spend 10."""
    return SpendRequest(
        holder_id=holder, idempotency_key=key or uuid.uuid4().hex, actor="test", amount=10, reason="chat", reference="r-1",
        metadata={"model": "small"},
    )  # fmt: skip


def test_every_way_to_lock_writes_the_same_entry_as_the_ledger(holder: str, raw_connection) -> None:
    observer = raw_connection(autocommit=True)
    execute.execute_once(request(holder, "ledger"))
    entries = {name: spend(request(holder, name)) for name, spend in locking.SPENDS.items()}
    assert list(entries) == ["advisory", "row-lock", "table-lock", "serializable"]
    ours = observer.execute(WRITTEN, [holder, "ledger"]).fetchone()
    assert ours is not None
    assert ours[:3] == ("spend", -10, 0)
    for name in entries:
        theirs = observer.execute(WRITTEN, [holder, name]).fetchone()
        # What is asked is the same, and so is its digest: the key is no part of it.
        assert theirs == ours, name
    assert [entry.balance for entry in entries.values()] == [980, 970, 960, 950]
    assert [entry.sequence for entry in entries.values()] == [3, 4, 5, 6]
    assert observer.execute(SOUND, [holder]).fetchone() == (5, -50, 950)


@pytest.mark.parametrize("name", locking.SPENDS)
def test_every_way_to_lock_sends_only_the_prepared_opening_and_the_prepared_insert(holder: str, name: str) -> None:
    locking.SPENDS[name](request(holder))  # from now on both are prepared
    sent, isolation = [], []

    def watch(execute: Any, sql: str, values: Any, many: bool, context: dict[str, Any]) -> Any:
        sent.append(sql)
        rows = execute(sql, values, many, context)
        isolation.append(connection.connection.pgconn.exec_(b"SHOW transaction_isolation").get_value(0, 0))
        return rows

    with connection.execute_wrapper(watch):
        locking.SPENDS[name](request(holder))
    competitor = f"competitors.open_by_{name.replace('-', '_')}"
    opening = journal.OPEN.sql if name == "advisory" else journal.OPEN.sql.replace("ledger_open", competitor)
    assert sent == [opening, journal.APPEND_ONE.sql]
    assert isolation == [b"serializable" if name == "serializable" else b"read committed"] * 2
    prepared = connection.connection.execute("SELECT statement FROM pg_prepared_statements WHERE NOT from_sql").fetchall()
    wanted = {sql.split("(")[0] for sql in sent}
    assert wanted <= {statement.split("(")[0] for (statement,) in prepared}


@pytest.mark.parametrize(
    ("name", "waits"), [("advisory", True), ("row-lock", True), ("table-lock", True), ("serializable", False)]
)
def test_a_spend_waits_for_each_kind_of_lock_and_not_without_a_lock(
    holder: str, name: str, waits: bool, raw_connection, run_threads
) -> None:
    first, observer = raw_connection(), raw_connection(autocommit=True)
    opening = "ledger_open" if name == "advisory" else f"competitors.open_by_{name.replace('-', '_')}"
    number = lock_number(holder_key(holder))
    first.execute(
        f"SELECT * FROM {opening}(true, ARRAY[%s]::bigint[], ARRAY[%s], ARRAY['credits'], ARRAY['first'])", [number, holder]
    )
    pids: Queue[int] = Queue()

    def spend(_: int) -> int:
        pids.put(connection.connection.info.backend_pid)
        return locking.SPENDS[name](request(holder)).sequence

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(run_threads, spend, 1)
        if waits:
            wait_until_waiting(observer, pids.get(timeout=30))
            assert observer.execute("SELECT max(sequence) FROM ledger_entry WHERE holder_id = %s", [holder]).fetchone() == (1,)
            first.rollback()
        assert second.result(timeout=30) == [2]
    first.rollback()


@pytest.mark.slow
def test_every_measured_path_spends_over_http(owner: psycopg.Connection[Any], new_holder, server_processes) -> None:
    prefix = new_holder()
    holder = f"{prefix}0"
    owner.execute(http.competitors_rows(1).replace("bench-", prefix))
    services.grant(holder_id=holder, amount=10**9, idempotency_key="lot", actor="test")
    _, api_key = api_keys.create_api_key(name=prefix, scopes=["ledger:spend"])
    [web] = server_processes(1, env={"DJANGO_SETTINGS_MODULE": SETTINGS_MODULE})
    port = int(web.url.rpartition(":")[2])
    for name, path in http.PATHS.items():
        outcome = send_load(Load(port=port, path=path, body=SPEND, key=api_key, clients=1, requests=2, prefix=prefix))
        assert (name, outcome.statuses, outcome.first_bad) == (name, {"201": 2}, "")
    # The ledger and its four ways to lock, twice each.
    written = owner.execute("SELECT count(*) FROM ledger_entry WHERE kind = 'spend' AND holder_id = %s", [holder]).fetchone()
    assert written == (10,)
    assert owner.execute("SELECT count(*) FROM competitors.entry WHERE kind = 'spend'").fetchone() == (2,)


def test_the_script_of_the_peer_exists() -> None:
    assert peers.HORDAK_PROCESS.is_file()


@pytest.mark.parametrize("kind", [bare.InLoop, bare.InThread])
def test_a_bare_application_answers_only_when_the_row_of_a_request_is_committed(
    owner: psycopg.Connection[Any],
    raw_connection: Callable[..., psycopg.Connection[Any]],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[bare.Storing],
) -> None:
    monkeypatch.setenv(
        "DATABASE_URL", psycopg.conninfo.make_conninfo(**owner.info.get_parameters(), password=owner.info.password)
    )
    keeper = raw_connection()
    statuses: list[int] = []

    async def receive() -> bare.Message:
        return {}

    async def send(message: bare.Message) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    async def served() -> None:
        application = kind()
        application.start()
        keeper.execute("LOCK TABLE competitors.bare")
        scope = {"type": "http", "method": "POST", "path": "/rows/bench-1", "headers": [(b"idempotency-key", b"key-1")]}
        request = asyncio.create_task(application(scope, receive, send))
        try:
            await asyncio.to_thread(wait_until_waiting, owner, application.session)
            assert statuses == []
            keeper.rollback()
            await request
        finally:
            application.stop()

    asyncio.run(served())
    assert statuses == [201]
    assert owner.execute("SELECT holder_id, idempotency_key FROM competitors.bare").fetchall() == [("bench-1", "key-1")]
