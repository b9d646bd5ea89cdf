"""Histories that clients of several processes saw while connections, backends and web servers died, judged by Porcupine.

`python -m pytest -s -m convince tests/convince` prints how hard it was.
"""

import json
import multiprocessing
import os
import random
import re
import secrets
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from psycopg.conninfo import conninfo_to_dict
from pytest_django.plugin import DjangoDbBlocker

from ledger.keys import api_keys
from ledger.scopes import SCOPES
from tests.conftest import WebProcess, database_url, on_fresh_database, web_servers
from tests.convince.judge import FALSIFICATIONS, Row, build_judge, judge
from tests.convince.recording import play
from tests.faults.proxy import FaultProxy, Rates, connecting_to

pytestmark = [
    pytest.mark.slow,
    pytest.mark.convince,
    pytest.mark.one_node("the proxy is before one server"),
    pytest.mark.skipif(shutil.which("go") is None, reason="Porcupine is a module of Go"),
]

PROCESSES = 3
CLIENTS = 4
"""Of each process."""
REQUESTS = 300
"""Of each client."""
HOLDERS = 3
SERVERS = 5
SURVIVORS = 2
"""Servers that are not killed."""
EVERY_S = 0.2
"""How often a backend is ended."""
DEATHS = 0.3
"""How often a web server is killed beside it."""
BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
)


NO_LOCK = """
CREATE OR REPLACE FUNCTION ledger_lock(number bigint, holder text, wait boolean) RETURNS boolean LANGUAGE sql VOLATILE RETURN true
"""
NO_CONSTRAINTS = (
    "ALTER TABLE ledger_entry DISABLE TRIGGER USER",
    "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_pkey CASCADE",
    "CREATE INDEX ledger_entry_pkey ON ledger_entry (holder_id, credit_type, sequence)",
)


@pytest.fixture(scope="module")
def fresh_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database that no other test has written to, so that it can be audited as a whole."""
    with django_db_blocker.unblock(), on_fresh_database("_convince"):
        yield


@contextmanager
def killing(servers: Sequence[WebProcess], proxy: FaultProxy, done: Counter[str]) -> Iterator[None]:
    """For the block, break connections around COMMIT, end backends, and kill web servers as the machine would."""
    has_ended, chance = threading.Event(), random.Random(1)
    doomed = list(servers[SURVIVORS:])

    def work() -> None:
        with psycopg.connect(database_url("application"), autocommit=True) as session:
            while not has_ended.wait(EVERY_S):
                if pids := [pid for (pid,) in session.execute(BACKENDS)]:
                    session.execute("SELECT pg_terminate_backend(%s)", [chance.choice(pids)])
                    done["backends ended"] += 1
                if doomed and chance.random() < DEATHS:
                    os.killpg(doomed.pop().process.pid, signal.SIGKILL)
                    done["servers killed"] += 1

    thread = threading.Thread(target=work, name="killing", daemon=True)
    thread.start()
    proxy.is_breaking = True
    try:
        yield
    finally:
        proxy.is_breaking = False
        has_ended.set()
        thread.join()


@contextmanager
def without(*statements: str) -> Iterator[None]:
    """For the block, the database is what these statements make of it."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    yield


def record(folder: Path, requests: int, *, servers: int, kills: bool, is_sound: bool = True) -> list[Row]:
    """Return what the clients saw of some fresh holders.

    Args:
        requests: of each client.
        kills: whether connections, backends and servers die.
        is_sound: False if the ledger was broken on purpose.
    """
    run = secrets.token_hex(4)
    holders = [f"{run}-{number}" for number in range(HOLDERS)]
    _, api_key = api_keys.create_api_key(name=f"convince-{run}", scopes=SCOPES)
    reached = conninfo_to_dict(database_url("application"))
    connect = connecting_to(str(reached["host"]), int(reached["port"]))
    proxy = FaultProxy(connect, key=re.compile(run.encode()), seed=7, rates=Rates(commit=0.06, garbage=0.0)).start()
    done: Counter[str] = Counter()
    try:
        with web_servers(folder) as start:
            started = start(servers, dsn=database_url("application", host="127.0.0.1", port=proxy.port))
            urls = [web.url for web in started]
            with (
                killing(started, proxy, done) if kills else nullcontext(),
                ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool,
            ):
                played = [
                    pool.submit(play, number * CLIENTS, CLIENTS, requests, urls, api_key, holders, seed=5, is_sound=is_sound)
                    for number in range(PROCESSES)
                ]
                results = [each.result() for each in played]
    finally:
        proxy.close()
    rows: list[Row] = [json.loads(line) for lines, _ in results for line in lines]
    lost = sum(number for _, number in results)
    answers = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(Counter(row["outcome"] for row in rows).items()))
    ended = "".join(f", {number:,} {what}" for what, number in sorted(done.items()))
    print(f"\n{len(rows):,} answers: {answers}; {lost:,} lost; {len(proxy.cuts):,} connections cut{ended}")
    if kills:
        assert lost > 20
        assert done["servers killed"] == servers - SURVIVORS
    return rows


@pytest.fixture(scope="module")
def history(fresh_database: None, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """What the clients saw while everything died."""
    return record(tmp_path_factory.mktemp("web"), REQUESTS, servers=SERVERS, kills=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_judge(tmp_path_factory.mktemp("judge"))


def test_what_the_clients_saw_is_linearizable(history: list[Row], program: Path, tmp_path: Path) -> None:
    assert judge(program, history, tmp_path) == "linearizable"
    assert "Clean: no violations found." in audited()


@pytest.mark.parametrize("falsify", FALSIFICATIONS, ids=lambda each: each.__name__)
def test_a_falsified_history_is_rejected(
    history: list[Row], falsify: Callable[[Sequence[Row]], list[Row]], program: Path, tmp_path: Path
) -> None:
    assert judge(program, falsify(history), tmp_path).startswith("not linearizable")


def audited() -> str:
    """Return what the audit prints, also if it ends with findings."""
    output = StringIO()
    with suppress(SystemExit):
        call_command("audit_ledger", stdout=output)
    return output.getvalue()


def test_with_a_broken_lock_the_database_refuses_what_would_be_wrong(fresh_database: None, program: Path, tmp_path: Path) -> None:
    with without(NO_LOCK):
        rows = record(tmp_path, 60, servers=2, kills=False, is_sound=False)
    assert judge(program, rows, tmp_path) == "linearizable"
    assert "Clean: no violations found." in audited()


def test_with_a_broken_lock_and_without_the_constraints_the_judge_sees_it(
    fresh_database: None, program: Path, tmp_path: Path
) -> None:
    with without(NO_LOCK, *NO_CONSTRAINTS):
        rows = record(tmp_path, 60, servers=2, kills=False, is_sound=False)
    assert judge(program, rows, tmp_path).startswith("not linearizable")
    assert "Clean: no violations found." not in audited()
