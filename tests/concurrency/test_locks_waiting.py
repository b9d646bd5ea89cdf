"""Sessions that wait for one lock: how long they wait, deadlocks, and what happens when the lock's holder is killed."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from ledger.database import locks
from ledger.database.locks import advisory_lock, lock_number, try_advisory_lock
from ledger.errors import HolderBusy, LockBusy
from tests import nodes
from tests.conftest import wait_until_waiting
from tests.nodes import session_id

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def observer(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A connection that sees each change at once."""
    return raw_connection(autocommit=True)


@pytest.fixture
def lock_name(new_holder: Callable[[], str]) -> str:
    """The name of a lock that no other test takes."""
    return f"ledger/{new_holder()}"


@pytest.fixture
def pool(committed_db: None) -> Iterator[ThreadPoolExecutor]:
    """Threads with separate connections, which are closed at the end."""
    with ThreadPoolExecutor(2) as pool:
        yield pool
        together = threading.Barrier(2)

        def close(_: int) -> None:
            together.wait(timeout=60)
            connections.close_all()

        list(pool.map(close, range(2)))


def backend_pid() -> int:
    """The process id of this thread's session."""
    assert connection.connection is not None
    return int(connection.connection.info.backend_pid)


# Waiting ---------------------------------------------------------------------------------------------


def test_a_waiting_session_is_in_pg_locks_and_continues_when_the_lock_is_free(
    observer: psycopg.Connection[Any], pool: ThreadPoolExecutor, lock_name: str
) -> None:
    pids: list[int] = []
    sessions: list[int] = []
    order: list[str] = []
    started = threading.Event()

    def wait_for_it() -> None:
        with transaction.atomic():
            sessions.append(session_id())
            pids.append(backend_pid())
            started.set()
            with advisory_lock(lock_name) as lock:
                lock.ensure_held(lock_name)
                order.append("second")

    with transaction.atomic(), advisory_lock(lock_name):
        waiting = pool.submit(wait_for_it)
        assert started.wait(60)
        wait_until_waiting(observer, sessions[0])
        seen = observer.execute(
            "SELECT classid::bigint << 32 | objid::bigint, mode, granted, waitstart IS NOT NULL FROM pg_locks"
            " WHERE locktype = 'advisory' AND pid = %s",
            pids,
        ).fetchall()
        order.append("first")
    waiting.result(60)

    assert seen == [(lock_number(lock_name), "ExclusiveLock", False, True)]
    assert order == ["first", "second"]


@pytest.mark.parametrize("shared", [True, False])
def test_waiting_ends_with_lock_timeout_and_nothing_is_written(
    committed_db: None, raw_connection: Connect, lock_name: str, shared: bool
) -> None:
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(lock_name)])
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE scratch (note text)")

    def write_then_wait() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '50ms'")
                cursor.execute("INSERT INTO scratch VALUES ('before the lock')")
            with advisory_lock(lock_name, shared=shared):
                pytest.fail("the body must not run")

    with pytest.raises(HolderBusy) as busy:
        write_then_wait()

    assert busy.value.facts == {"key": lock_name}
    assert locks.sqlstate(busy.value.__cause__ or busy.value) == "55P03"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM scratch")
        assert cursor.fetchone() == (0,)


def test_the_role_has_a_lock_timeout_so_that_requests_need_not_set_it(as_application: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting::int, source FROM pg_settings WHERE name = 'lock_timeout'")
        assert cursor.fetchone() in [(2000, "user"), (2000, "database"), (2000, "database user")]


def test_of_several_locks_holder_busy_names_the_awaited_one(
    committed_db: None, raw_connection: Connect, new_holder: Callable[[], str]
) -> None:
    first, last = sorted((f"ledger/{new_holder()}", f"ledger/{new_holder()}"), key=lock_number)
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(last)])

    def wait_for_both() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '50ms'")
            with advisory_lock(last, first):
                pytest.fail("the body must not run")

    with pytest.raises(HolderBusy) as busy:
        wait_for_both()

    assert busy.value.facts == {"key": last}
    assert raw_connection().execute("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(first)]).fetchone() == (True,)


# Several keys: by number, never by name --------------------------------------------------------------

# Two of these three names share a number under string-hash-32 (see database/test_lock_keys.py), the third is between.
COLLIDING = ("ledger/aAA", "ledger/afF")
BETWEEN = "ledger/aZZ"


def cross(observer: psycopg.Connection[Any], pool: ThreadPoolExecutor) -> list[str]:
    """Have two sessions take two locks each; none goes for its second before both have a first, or one is seen to wait.

    Returns: how each of them ended.
    """
    sessions: dict[int, int] = {}
    has_first = [threading.Event(), threading.Event()]
    ready = threading.Barrier(2)

    def meet(me: int) -> None:
        has_first[me].set()
        while not has_first[1 - me].is_set():
            if is_seen_waiting(observer, sessions[1 - me]):
                return

    def one(me: int, names: tuple[str, str]) -> str:
        def after_each(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            if "xact_lock" in sql and not has_first[me].is_set():
                meet(me)
            return result

        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL lock_timeout = '20s'")
                sessions[me] = session_id()
                ready.wait(timeout=60)
                with connection.execute_wrapper(after_each), advisory_lock(*names):
                    return "had both"
        except OperationalError as error:
            return str(locks.sqlstate(error))

    return [
        each.result(30) for each in [pool.submit(one, 0, (COLLIDING[0], BETWEEN)), pool.submit(one, 1, (BETWEEN, COLLIDING[1]))]
    ]


_observing = threading.Lock()


def is_seen_waiting(observer: psycopg.Connection[Any], session: int) -> bool:
    """Return whether the session waits for a lock now. Both threads ask by one connection."""
    with _observing:
        return nodes.is_waiting(observer, session)


@pytest.fixture
def colliding_scheme(settings: Any) -> None:
    """Lock numbers of 32 bits, of which two known names have the same."""
    settings.LEDGER = {**settings.LEDGER, "LOCK_KEY_SCHEME": "string-hash-32", "LOCK_NAMESPACE": ""}
    assert lock_number(COLLIDING[0]) == lock_number(COLLIDING[1]) != lock_number(BETWEEN)
    assert COLLIDING[0] < BETWEEN < COLLIDING[1]


def test_two_sessions_that_lock_in_the_order_of_the_numbers_never_deadlock(
    colliding_scheme: None, observer: psycopg.Connection[Any], pool: ThreadPoolExecutor
) -> None:
    for _ in range(10):
        assert cross(observer, pool) == ["had both", "had both"]


def test_control_two_sessions_that_lock_in_the_order_of_the_names_deadlock(
    colliding_scheme: None,
    observer: psycopg.Connection[Any],
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "_in_order", lambda names: [(lock_number(lock_name), lock_name) for lock_name in sorted(names)])

    assert sorted(cross(observer, pool)) == ["40P01", "had both"]


# A holder that dies ----------------------------------------------------------------------------------

HOLD = """
import sys, psycopg
connection = psycopg.connect(sys.argv[1])
connection.execute("SELECT pg_advisory_xact_lock(%s)", [int(sys.argv[2])])
print(connection.info.backend_pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def holder_process(dsn: str, lock_name: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start a process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLD, dsn, str(lock_number(lock_name))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_kill_9_of_the_process_that_holds_a_lock_frees_it_for_the_waiting_session(
    observer: psycopg.Connection[Any], pool: ThreadPoolExecutor, raw_connection: Connect, lock_name: str
) -> None:
    pids: list[int] = []
    sessions: list[int] = []
    started = threading.Event()

    def wait_for_it() -> str:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '20s'")
            sessions.append(session_id())
            pids.append(backend_pid())
            started.set()
            with advisory_lock(lock_name):
                return "had it"

    dsn = psycopg.conninfo.make_conninfo(raw_connection().info.dsn, password=raw_connection().info.password)
    with holder_process(dsn, lock_name) as (process, backend):
        with transaction.atomic(), pytest.raises(LockBusy), try_advisory_lock(lock_name):
            pytest.fail("the holder is alive")
        waiting = pool.submit(wait_for_it)
        assert started.wait(60)
        wait_until_waiting(observer, sessions[0])
        assert observer.execute("SELECT pg_blocking_pids(%s)", pids).fetchone() == ([backend],)

        process.kill()

        assert waiting.result(60) == "had it"
        assert process.wait(60) == -9
