"""What a project's own code declares locks with, under contention: unique insertion, a shared list, kinds of its own."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.views import View

from ledger import reads, services
from ledger.database import lock_names, locking, transactions
from ledger.database.lock_names import HOLDER, LockName, register
from ledger.database.locking import LockedHandlers, locked, on, share, unique
from ledger.database.locks import Lock, holder_key, lock_number
from ledger.database.statements import fetch_rows, fetch_value
from ledger.errors import HolderBusy, InsufficientCredits, LockBusy, LocksOutOfOrder
from tests.concurrency.test_joined_writes import rolled_back
from tests.conftest import wait_until_waiting
from tests.nodes import session_id

Connect = Callable[..., psycopg.Connection[Any]]
RunThreads = Callable[..., list[Any]]

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def mailing() -> Iterator[LockName]:
    """A kind of lock of the project's own."""
    name = register(LockName("mailing", "shop/mailing/{name}", "sending a mailing", waits=False))
    yield name
    lock_names.forget(name)


@pytest.fixture
def sent(raw_connection: Connect) -> Iterator[str]:
    """The name of a table of the project, with what was sent to whom and by which worker."""
    owner, table = raw_connection(autocommit=True), f"sent_{uuid.uuid4().hex[:12]}"
    owner.execute(f"CREATE TABLE {table} (name text, worker int)")
    yield table
    connection.close()
    owner.execute(f"DROP TABLE {table}")


def insert(table: str, name: str, worker: int = 0) -> str:
    return fetch_value(str, f"INSERT INTO {table} VALUES (%s, %s) RETURNING name", [name, worker])


def found(table: str, name: str) -> str | None:
    return next(iter(fetch_rows(str, f"SELECT name FROM {table} WHERE name = %s", [name])), None)


def rows(table: str) -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT name, worker FROM {table}")
        return list(cursor.fetchall())


# Unique insertion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "control: no lock"])
def test_of_sessions_that_insert_the_same_at_once_one_inserts_and_all_get_its_row(run_threads, sent, monkeypatch, is_locked):
    """The first to insert waits before its COMMIT until the other waits for its lock; in the control, both check before."""
    if not is_locked:
        monkeypatch.setattr(locking, "locked_transaction", lambda name: transaction.atomic())
    both_have_checked = threading.Barrier(2)
    sessions: list[int] = []

    def check(since: Any) -> str | None:
        known = found(sent, "welcome")
        if not is_locked:
            both_have_checked.wait(30)
        return known

    def store() -> str:
        name = insert(sent, "welcome")
        if is_locked:
            while len(sessions) < 2:
                pass
            with psycopg.connect(**connection.get_connection_params(), autocommit=True) as observer:
                wait_until_waiting(observer, next(each for each in sessions if each != session_id()))
        return name

    def work(index: int) -> tuple[str, bool]:
        sessions.append(session_id())
        return unique("mail", {"user": 7}, check=check, insert=store)

    outcomes = run_threads(work, 2)
    assert sorted(outcomes) == [("welcome", not is_locked), ("welcome", True)]
    assert fetch_value(int, f"SELECT count(*) FROM {sent}") == (1 if is_locked else 2)


def test_an_insertion_joins_the_callers_transaction_and_its_lock_is_held_to_the_end(sent, raw_connection):
    other = raw_connection(autocommit=True)
    name = 'unique/mail/args={"user":7}'
    is_free = "SELECT pg_try_advisory_xact_lock(%s)"

    def send() -> tuple[str, bool]:
        return unique("mail", {"user": 7}, check=lambda since: found(sent, "welcome"), insert=lambda: insert(sent, "welcome"))

    with rolled_back():
        send()
    with transaction.atomic():
        assert send() == ("welcome", True)
        assert send() == ("welcome", False)
        assert other.execute(is_free, [lock_number(name)]).fetchone() == (False,)
        assert other.execute(f"SELECT count(*) FROM {sent}").fetchone() == (0,)
    assert other.execute(is_free, [lock_number(name)]).fetchone() == (True,)
    assert other.execute(f"SELECT count(*) FROM {sent}").fetchone() == (1,)


# A handler -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "control: no lock"])
def test_of_two_clicks_the_second_reads_what_the_first_has_done(run_threads, new_holder, is_locked):
    """The handler reads the balance, then upgrades what has not been upgraded. It names no lock."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    both_have_read = threading.Barrier(2)

    class Upgrade(LockedHandlers, View):
        locks = (on(HOLDER, "{holder}"),) if is_locked else ()

        def post(self, request: HttpRequest, holder: str) -> HttpResponse:
            is_new = reads.balance(holder).available == 10
            if not is_locked:
                both_have_read.wait(30)
            if is_new:
                services.spend(holder_id=holder, amount=4, idempotency_key=uuid.uuid4().hex)
            return HttpResponse(status=201 if is_new else 200)

    upgrade = Upgrade.as_view()
    statuses = [each.status_code for each in run_threads(lambda index: upgrade(RequestFactory().post("/"), holder=holder), 2)]
    assert sorted(statuses) == ([200, 201] if is_locked else [201, 201])
    assert reads.balance(holder).available == (6 if is_locked else 2)


# A shared list ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "control: no lock"])
def test_workers_divide_a_list_and_none_does_what_another_has_done(run_threads, sent, mailing, is_locked):
    names = [f"{number:02}" for number in range(30)]
    meet = nullcontext() if is_locked else threading.Barrier(4)

    def send_once(lock: Lock | None, *, name: str, worker: int) -> None:
        if found(sent, name) is None:
            if not is_locked:
                meet.wait(30)
            insert(sent, name, worker)

    send = locked(on(mailing, "{name}"), wait=False)(send_once) if is_locked else None

    def work(index: int) -> list[str]:
        if send is not None:
            return share(names, lambda name: send(name=name, worker=index), retries=1000, wait_s=0.001)
        return share(names, lambda name: send_once(None, name=name, worker=index))

    assert run_threads(work, 4) == [[]] * 4
    times = Counter(name for name, _ in rows(sent))
    assert set(times.values()) == ({1} if is_locked else {4})
    assert sorted(times) == names


def test_what_another_worker_has_is_done_once_that_worker_has_died(sent, mailing, raw_connection):
    other = raw_connection()
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(mailing("b"))])
    done: list[str] = []

    @locked(on(mailing, "{name}"), wait=False)
    def send(lock: Lock, name: str) -> None:
        done.append(insert(sent, name))

    def die(busy: Any) -> None:
        assert (list(busy), done) == (["b"], ["a"])
        other.close()

    first = iter([die])
    left = share(["a", "b", "c"], send, retries=10_000, wait_s=0.001, waiting=lambda busy: next(first, str)(busy))
    assert (left, sorted(done)) == ([], ["a", "b", "c"])


# Kinds of the project's own --------------------------------------------------------------------------


def test_a_lock_of_the_project_comes_before_the_holders(sent, mailing, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")

    @locked(on(mailing, "{name}"))
    def charge(lock: Lock, name: str) -> None:
        services.spend(holder_id=holder, amount=1, idempotency_key=name)
        insert(sent, name)

    charge("a")
    with rolled_back():
        services.spend(holder_id=holder, amount=1, idempotency_key="s")
        with pytest.raises(LocksOutOfOrder) as out_of_order:
            charge("b")
    assert out_of_order.value.facts["locks"] == ["shop/mailing/b", holder_key(holder)]
    assert rows(sent) == [("a", 0)]
    with transaction.atomic():
        charge("b")
        services.spend(holder_id=holder, amount=1, idempotency_key="s")
    assert [name for name, _ in rows(sent)] == ["a", "b"]


def test_control_two_orders_of_the_projects_lock_and_a_holder_deadlock(run_threads, mailing, new_holder, monkeypatch):
    monkeypatch.setattr(transactions, "ensure_order", lambda names: None)
    holder, both_have_one = new_holder(), threading.Barrier(2)

    @locked(on(mailing, "{name}"))
    def lock_it(lock: Lock, name: str) -> None:
        """Take the lock."""

    acts = [lambda: lock_it("a"), lambda: services.grant(holder_id=holder, amount=1, idempotency_key="k")]

    def work(index: int) -> None:
        with transaction.atomic():
            acts[index]()
            both_have_one.wait(30)
            acts[not index]()

    (error,) = [outcome for outcome in run_threads(work, 2) if outcome is not None]
    assert error.facts["what_to_do"] == "repeat the transaction"


def test_a_refusal_under_a_declared_lock_undoes_what_the_function_wrote(sent, mailing, new_holder):
    holder = new_holder()

    @locked(on(mailing, "{name}"), on(HOLDER, "{holder}"))
    def charge(lock: Lock, name: str, holder: str) -> None:
        insert(sent, name)
        services.spend(holder_id=holder, amount=1, idempotency_key=name)

    with pytest.raises(InsufficientCredits):
        charge("a", holder=holder)
    assert rows(sent) == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_declared_lock_that_is_busy_is_an_error_and_nothing_is_written(sent, mailing, raw_connection, waits):
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(mailing("a"))])

    @locked(on(mailing, "{name}"), wait=waits)
    def send(lock: Lock, name: str) -> None:
        insert(sent, name)

    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
    try:
        with pytest.raises(HolderBusy if waits else LockBusy):
            send("a")
    finally:
        connection.close()
    assert rows(sent) == []


def test_two_kinds_whose_names_could_be_the_same_are_refused(mailing):
    with pytest.raises(ValueError, match="the lock name mailing exists already"):
        register(LockName("mailing", "other/{name}", "another"))
    with pytest.raises(ValueError, match="could be the same"):
        register(LockName("order", "shop/mailing/{order}", "another"))
    order = LockName("order", "shop/order/{order}", "writing an order")
    assert register(order) is order
    lock_names.forget(order)
