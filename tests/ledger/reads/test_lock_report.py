"""`manage.py locks`, with a real holder and real waiters."""

import json
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, transaction
from psycopg import sql

from ledger.database.locks import advisory_lock, lock_number
from ledger.reads.lock_report import SessionLock, current_locks, known_names
from tests.billing.factories import SubscriptionFactory
from tests.conftest import wait_until_waiting
from tests.nodes import session_id

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def lock_name(new_holder: Callable[[], str]) -> str:
    """The name of a lock that no other test takes."""
    return f"ledger/{new_holder()}"


@pytest.fixture
def holder(raw_connection: Connect, lock_name: str) -> psycopg.Connection[Any]:
    """A session that holds the lock and whose query does not tell its name."""
    session = raw_connection(application_name="the holder")
    session.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(lock_name)])
    return session


@pytest.fixture
def waiter(committed_db: None, raw_connection: Connect, holder: psycopg.Connection[Any], lock_name: str) -> Iterator[int]:
    """A session that waits for the lock as the application does; gives its pid."""
    started = threading.Event()
    pids: list[int] = []
    sessions: list[int] = []

    def wait_for_it() -> None:
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL lock_timeout = '20s'")
                    cursor.execute("SELECT pg_backend_pid()")
                    pids.extend(cursor.fetchone())
                sessions.append(session_id())
                started.set()
                with advisory_lock(lock_name):
                    pass
        finally:
            connections.close_all()

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert started.wait(60)
    wait_until_waiting(raw_connection(autocommit=True), sessions[0])
    yield pids[0]
    holder.rollback()
    thread.join(60)


def of_lock(found: list[SessionLock], lock_name: str) -> list[SessionLock]:
    """The locks of that name among those found."""
    return [lock for lock in found if lock.number == lock_number(lock_name)]


def test_tells_holder_and_waiter_their_order_and_who_blocks_whom(
    holder: psycopg.Connection[Any], waiter: int, lock_name: str
) -> None:
    held, awaited = of_lock(current_locks(), lock_name)

    assert (held.pid, held.granted, held.blocked_by, held.shared) == (holder.info.backend_pid, True, (), False)
    assert (awaited.pid, awaited.granted, awaited.blocked_by) == (waiter, False, (holder.info.backend_pid,))
    assert (held.application, held.state, held.role) == ("the holder", "idle in transaction", holder.info.user)
    assert held.transaction_started_at is not None
    assert awaited.waiting_since is not None
    assert held.transaction_started_at <= awaited.waiting_since
    assert held.waiting_since is None
    assert held.seconds is not None
    assert awaited.seconds is not None
    assert 0 < awaited.seconds < held.seconds < 60


def test_the_waiters_statement_names_the_lock_for_the_holder_too(waiter: int, lock_name: str) -> None:
    assert [lock.name for lock in of_lock(current_locks(), lock_name)] == [lock_name, lock_name]


@pytest.mark.django_db
def test_an_id_in_the_holders_query_is_recognised(holder: psycopg.Connection[Any], lock_name: str) -> None:
    assert [lock.name for lock in of_lock(current_locks(), lock_name)] == [None]

    holder.execute(f"SELECT 'O''Neil', '{lock_name.removeprefix('ledger/')}'")

    assert [lock.name for lock in of_lock(current_locks(), lock_name)] == [lock_name]


@pytest.mark.django_db
def test_a_name_in_a_query_is_believed_only_when_its_number_is_locked(holder: psycopg.Connection[Any], lock_name: str) -> None:
    holder.execute("SELECT 1 /* ledger/somebody-else */")

    assert [lock.name for lock in of_lock(current_locks(), lock_name)] == [None]


@pytest.mark.django_db
def test_a_name_that_is_given_is_recognised(holder: psycopg.Connection[Any], lock_name: str) -> None:
    assert [lock.name for lock in of_lock(current_locks(names=["ledger/another", lock_name]), lock_name)] == [lock_name]


@pytest.mark.django_db
def test_shared_locks_and_pairs_of_another_application_are_distinguished(raw_connection: Connect, lock_name: str) -> None:
    session = raw_connection()
    session.execute("SELECT pg_advisory_xact_lock_shared(%s), pg_advisory_xact_lock(7, -8)", [lock_number(lock_name)])

    mine = [lock for lock in current_locks(names=[lock_name]) if lock.pid == session.info.backend_pid]

    assert [(lock.two_part, lock.name, lock.shared) for lock in mine] == [(False, lock_name, True), (True, None, False)]
    assert "(7, -8)" in printed_locks()


@pytest.mark.django_db
@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63), 2**32, -(2**32), 2**31])
def test_every_number_comes_back_as_it_was_locked(raw_connection: Connect, number: int) -> None:
    session = raw_connection()
    session.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [number])

    assert [lock.number for lock in current_locks() if lock.pid == session.info.backend_pid] == [number]


def printed_locks(*arguments: str, **options: Any) -> str:
    """What `manage.py locks` prints."""
    out = StringIO()
    call_command("locks", *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.one_node("the lines of a cluster begin with the node; tests/distributed reads them")
def test_the_command_prints_a_line_for_each(holder: psycopg.Connection[Any], waiter: int, lock_name: str) -> None:
    lines = printed_locks().splitlines()
    held, awaited = (line.split() for line in lines if line.startswith(lock_name))

    assert lines[0].split() == [
        "LOCK",
        "NUMBER",
        "MODE",
        "STATE",
        "FOR",
        "PID",
        "BLOCKED",
        "BY",
        "APPLICATION",
        "CLIENT",
        "QUERY",
    ]
    assert held[:4] == [lock_name, str(lock_number(lock_name)), "exclusive", "held"]
    assert (held[5], held[6]) == ("s", str(holder.info.backend_pid))
    assert awaited[:4] == [lock_name, str(lock_number(lock_name)), "exclusive", "WAITING"]
    assert (awaited[5], awaited[6], awaited[7]) == ("s", str(waiter), str(holder.info.backend_pid))


def test_the_command_prints_json(holder: psycopg.Connection[Any], waiter: int, lock_name: str) -> None:
    held, awaited = (lock for lock in json.loads(printed_locks(format="json")) if lock["name"] == lock_name)

    assert held == held | {
        "number": lock_number(lock_name),
        "granted": True,
        "pid": holder.info.backend_pid,
        "waiting_since": None,
    }
    assert awaited == awaited | {"granted": False, "pid": waiter, "blocked_by": [holder.info.backend_pid]}


@pytest.mark.django_db
def test_the_command_says_so_when_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.management.commands.locks.current_locks", lambda **options: [])

    assert printed_locks() == "No session holds or awaits an advisory lock.\n"
    assert json.loads(printed_locks(format="json")) == []


@pytest.mark.django_db
def test_the_command_asks_the_tables_only_with_its_option(
    holder: psycopg.Connection[Any], lock_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "ledger.management.commands.locks.known_names", lambda *, limit, using: asked.append(limit) or [lock_name]
    )

    assert lock_name not in printed_locks()
    assert asked == []
    assert lock_name in printed_locks(lock_name)
    assert asked == []
    assert lock_name in printed_locks(names=True, limit=5)
    assert asked == [5]


@pytest.mark.django_db
def test_every_holder_and_every_subscription_are_known_names(holder_of_many_entries: list[str]) -> None:
    refs = [SubscriptionFactory().ref for _ in range(2)]

    names = list(known_names(limit=1000))

    assert {f"ledger/{holder_id}" for holder_id in holder_of_many_entries} <= set(names)
    assert {f"{kind}/{ref}" for kind in ("invoice_gen", "subscription_intent") for ref in refs} <= set(names)
    assert len(names) == len(set(names))
    assert len([lock_name for lock_name in known_names(limit=1) if not lock_name.startswith("ledger_batch_slot/")]) == 3


@pytest.fixture
def holder_of_many_entries(db: None, new_holder: Callable[[], str]) -> list[str]:
    """Two holders with some history."""
    from ledger import services

    holders = [new_holder(), new_holder()]
    for holder_id in holders:
        for key in ("first", "second"):
            services.grant(holder_id=holder_id, amount=5, idempotency_key=key)
    return holders


@pytest.mark.usefixtures("as_application")
def test_the_application_sees_what_sessions_of_other_roles_do(raw_connection: Connect, lock_name: str) -> None:
    other, superuser = (raw_connection("superuser", autocommit=autocommit) for autocommit in (False, True))
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(lock_name)])
    (held,) = of_lock(current_locks(), lock_name)
    assert (held.role, held.state, held.query) == ("postgres", "idle in transaction", "SELECT pg_advisory_xact_lock($1)")

    # The control: without the right the server hides them, and the command says what to do.
    role = sql.Identifier(settings.LEDGER_APP_ROLE)
    superuser.execute(sql.SQL("REVOKE pg_read_all_stats FROM {}").format(role))
    try:
        (hidden,) = of_lock(current_locks(), lock_name)
        assert (hidden.state, hidden.query) == ("", "<insufficient privilege>")
        said = StringIO()
        call_command("locks", stdout=StringIO(), stderr=said)
    finally:
        superuser.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(role))
    what_to_do = f"run as a superuser: GRANT pg_read_all_stats TO {settings.LEDGER_APP_ROLE};"
    assert said.getvalue() == f"PostgreSQL hides the sessions of other roles; {what_to_do}\n"
