"""Fifty at once on one holder who can pay for ten; and what those meet who wait too long, or whose client dies."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction

from ledger import services
from ledger.database.locks import holder_key, holder_lock, lock_number, sqlstate
from ledger.errors import HolderBusy, InsufficientCredits, SequenceTaken
from ledger.rules import Entry
from tests.concurrency.rooms import Room, backend_pid, waiting_for_advisory_lock
from tests.conftest import database_url, wait_until_waiting

MakeRoom = Callable[..., Room]
NewHolder = Callable[[], str]
Connect = Callable[..., psycopg.Connection[Any]]

CROWD = 50


def set_lock_timeout(value: str) -> None:
    """For this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{value}'")


def crowd(room: Room, work: Callable[[int], Any], *, before_any_commits: Callable[[], None] = lambda: None) -> list[Any]:
    """Let fifty work in the room, each in a thread and connection of its own.

    Args:
        before_any_commits: called once all have begun; must let them go.

    Returns: what each gave back, or the error of the ledger that it raised.
    """

    def one(index: int) -> Any:
        try:
            room.enter()
            set_lock_timeout("60s")
            with room.watched():
                return work(index)
        except (InsufficientCredits, SequenceTaken) as error:
            return error
        finally:
            connections.close_all()

    with room.executing(), ThreadPoolExecutor(CROWD) as pool:
        running = [pool.submit(one, index) for index in range(CROWD)]
        before_any_commits()
        return [each.result(60) for each in running]


# Fifty spends, credits for ten -----------------------------------------------------------------------


def test_fifty_who_wait_at_once_get_what_is_there_and_no_more(
    make_room: MakeRoom, raw_connection: Connect, new_holder: NewHolder
) -> None:
    room, holder = make_room(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")
    number = lock_number(holder_key(holder))
    gate = raw_connection()
    gate.execute("SELECT pg_advisory_xact_lock(%s)", [number])

    def open_the_gate() -> None:
        deadline = time.monotonic() + 30
        while waiting_for_advisory_lock(room.observer, number) < CROWD:
            assert time.monotonic() < deadline, "not all came to wait"
        gate.commit()

    answers = crowd(
        room,
        lambda index: services.spend(holder_id=holder, amount=7, idempotency_key=f"spend {index}"),
        before_any_commits=open_the_gate,
    )

    accepted = [answer for answer in answers if isinstance(answer, Entry)]
    refused = [answer for answer in answers if isinstance(answer, InsufficientCredits)]
    assert sorted(entry.sequence for entry in accepted) == list(range(2, 12))
    assert {(refusal.facts["available"], refusal.facts["requested"], refusal.facts["shortfall"]) for refusal in refused} == {
        (0, 7, 7)
    }
    assert len(refused) == 40
    assert room.entries(holder) == [
        (1, "grant", 70, 70),
        *((number, "spend", -7, 70 - 7 * (number - 1)) for number in range(2, 12)),
    ]
    assert Counter(code for _, code in room.refusals(holder)) == {"insufficient-credits": 40}
    assert room.is_sound(holder)
    assert room.unique_violations == []


def read_together(room: Room) -> Callable[[], None]:
    """What lets nobody in the crowd INSERT before all have read; for their first try only."""
    all_have_read = threading.Barrier(CROWD)
    has_met = threading.local()

    def meet() -> None:
        if not getattr(has_met, "once", False):
            has_met.once = True
            all_have_read.wait(timeout=30)

    return meet


def spend_after_all_have_read(holder: str, meet: Callable[[], None]) -> Callable[[int], Any]:
    """One of the crowd: spends, but stops before its first INSERT until all have come so far."""

    def work(index: int) -> Entry:
        def stop(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if sql.startswith("INSERT INTO ledger_entry"):
                meet()
            return execute(sql, params, many, context)

        with connection.execute_wrapper(stop):
            return services.spend(holder_id=holder, amount=7, idempotency_key=f"spend {index}")

    return work


def test_control_without_the_lock_they_collide_but_the_constraints_let_nobody_overspend(
    make_room: MakeRoom, new_holder: NewHolder
) -> None:
    room, holder = make_room("no lock"), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = crowd(room, spend_after_all_have_read(holder, read_together(room)))

    accepted = sum(isinstance(answer, Entry) for answer in answers)
    assert 1 <= accepted <= 10
    assert room.sum_of_amounts(holder) == 70 - 7 * accepted
    assert room.is_sound(holder)
    # All fifty went for number 2. One got it; the others were refused, and tried again, up to three times.
    assert len(room.unique_violations) >= CROWD - 1
    assert len(room.unique_violations) >= 3 * sum(isinstance(answer, SequenceTaken) for answer in answers)
    assert len(room.refusals(holder)) == sum(isinstance(answer, InsufficientCredits) for answer in answers)


def test_control_without_the_lock_and_the_constraints_all_fifty_are_served(make_room: MakeRoom, new_holder: NewHolder) -> None:
    room, holder = make_room("no lock", constrained=False), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = crowd(room, spend_after_all_have_read(holder, read_together(room)))

    assert all(isinstance(answer, Entry) for answer in answers)
    assert room.sum_of_amounts(holder) == 70 - 7 * CROWD
    assert room.entries(holder)[1:] == CROWD * [(2, "spend", -7, 63)]


def test_fifty_with_one_key_are_one_spend(make_room: MakeRoom, new_holder: NewHolder) -> None:
    room, holder = make_room(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = crowd(room, lambda _: services.spend(holder_id=holder, amount=7, idempotency_key="the one"))

    assert Counter(answer.replayed for answer in answers) == {False: 1, True: 49}
    assert {(answer.sequence, answer.digest) for answer in answers} == {(2, answers[0].digest)}
    assert room.unique_violations == []
    assert room.entries(holder) == [(1, "grant", 70, 70), (2, "spend", -7, 63)]


# Who waits too long ----------------------------------------------------------------------------------


def test_waiting_ends_with_the_lock_timeout_and_nothing_is_written(
    make_room: MakeRoom, raw_connection: Connect, new_holder: NewHolder
) -> None:
    room, holder = make_room(), new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    gate = raw_connection()
    gate.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(holder))])
    set_lock_timeout("80ms")

    started = time.monotonic()
    with pytest.raises(HolderBusy) as busy:
        services.spend(holder_id=holder, amount=10, idempotency_key="spend")
    waited_s = time.monotonic() - started

    assert busy.value.facts == {"key": f"ledger/{holder}"}
    assert 0.08 <= waited_s < 1.5, "it waits once, not once per try"
    assert room.entries(holder) == [(1, "grant", 10, 10)]
    assert room.refusals(holder) == []
    gate.rollback()
    again = services.spend(holder_id=holder, amount=10, idempotency_key="spend")
    assert (again.sequence, again.replayed) == (2, False)


def test_other_holders_do_not_wait(make_room: MakeRoom, raw_connection: Connect, new_holder: NewHolder) -> None:
    room, busy, other = make_room(), new_holder(), new_holder()
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(busy))])
    set_lock_timeout("100ms")

    services.grant(holder_id=other, amount=10, idempotency_key="grant")

    assert room.entries(other) == [(1, "grant", 10, 10)]


# Two holders in one transaction ----------------------------------------------------------------------


def move_under_both_locks(giver: str, taker: str, key: str) -> str:
    """Spend one holder's credits and grant them to another, both or neither."""
    with transaction.atomic(durable=True), holder_lock(giver, taker) as lock:
        services.spend_under(lock, holder_id=giver, amount=10, idempotency_key=key)
        services.grant_under(lock, holder_id=taker, amount=10, idempotency_key=key)
    return "moved"


def move_under_one_lock_after_the_other(giver: str, taker: str, key: str) -> str:
    """The same, but with each lock when it is needed."""
    with transaction.atomic(durable=True):
        with holder_lock(giver) as lock:
            services.spend_under(lock, holder_id=giver, amount=10, idempotency_key=key)
        with holder_lock(taker) as lock:
            services.grant_under(lock, holder_id=taker, amount=10, idempotency_key=key)
    return "moved"


def cross(room: Room, one: str, other: str, move: Callable[[str, str, str], str]) -> tuple[Any, Any]:
    """Move 10 from one to the other, and 10 back, at once."""
    for holder in (one, other):
        services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    return room.race(lambda: move(one, other, "there"), lambda: move(other, one, "back"))


@pytest.mark.parametrize("swapped", [False, True])
def test_two_who_need_both_locks_never_deadlock(make_room: MakeRoom, new_holder: NewHolder, swapped: bool) -> None:
    room = make_room()
    one, other = sorted((new_holder(), new_holder()), key=lambda holder: lock_number(holder_key(holder)), reverse=swapped)

    assert cross(room, one, other, move_under_both_locks) == ("moved", "moved")

    assert room.entries(one) == [(1, "grant", 30, 30), (2, "spend", -10, 20), (3, "grant", 10, 30)]
    assert room.entries(other) == [(1, "grant", 30, 30), (2, "grant", 10, 40), (3, "spend", -10, 30)]
    assert room.is_sound(one)
    assert room.is_sound(other)


def test_control_two_who_take_one_lock_after_the_other_deadlock_and_the_victim_writes_nothing(
    make_room: MakeRoom, new_holder: NewHolder
) -> None:
    room, one, other = make_room(), new_holder(), new_holder()

    there, back = cross(room, one, other, move_under_one_lock_after_the_other)

    victim = there if isinstance(there, OperationalError) else back
    assert sqlstate(victim) == "40P01"
    assert [there, back].count("moved") == 1
    winner, loser = (one, other) if there == "moved" else (other, one)
    assert room.entries(winner) == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert room.entries(loser) == [(1, "grant", 30, 30), (2, "grant", 10, 40)]


# A client that dies ----------------------------------------------------------------------------------

SPEND_AND_STOP_BEFORE_COMMIT = """
import sys
import django
django.setup()
from django.db import connection
from ledger import services

def stop(execute, sql, params, many, context):
    result = execute(sql, params, many, context)
    if sql.startswith("INSERT INTO ledger_entry"):
        print("inserted", flush=True)
        sys.stdin.read()
    return result

with connection.execute_wrapper(stop):
    services.spend(holder_id=sys.argv[1], amount=7, idempotency_key="of the dead")
"""


def test_kill_9_of_a_client_between_insert_and_commit_leaves_nothing_and_the_next_goes_on(
    make_room: MakeRoom, new_holder: NewHolder
) -> None:
    room, holder = make_room(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
    }
    pids: list[int] = []
    has_begun = threading.Event()

    def next_one() -> Entry:
        try:
            set_lock_timeout("30s")
            pids.append(backend_pid())
            has_begun.set()
            return services.spend(holder_id=holder, amount=7, idempotency_key="of the living")
        finally:
            connections.close_all()

    with (
        subprocess.Popen(
            [sys.executable, "-c", SPEND_AND_STOP_BEFORE_COMMIT, holder], cwd=settings.BASE_DIR, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as client,
        ThreadPoolExecutor(1) as elsewhere,
    ):  # fmt: skip
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "inserted\n"
            waiting = elsewhere.submit(next_one)
            assert has_begun.wait(10)
            wait_until_waiting(room.observer, pids[0])
        finally:
            client.kill()
        entry = waiting.result(15)
        assert client.wait(10) == -9

    assert (entry.sequence, entry.balance) == (2, 63)
    retried = services.spend(holder_id=holder, amount=7, idempotency_key="of the dead")
    assert (retried.sequence, retried.balance, retried.replayed) == (3, 56, False)
    assert room.entries(holder) == [(1, "grant", 70, 70), (2, "spend", -7, 63), (3, "spend", -7, 56)]
    assert room.is_sound(holder)
