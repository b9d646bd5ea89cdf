"""Fifty spends at the same time with credits for ten; lock timeouts, deadlocks, and a client that is killed."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction

from ledger import services
from ledger.database import locks
from ledger.database.locks import LOCK_TIMEOUT_MS, holder_key, holder_lock, lock_number, sqlstate
from ledger.errors import HolderBusy, InsufficientCredits, LocksOutOfOrder, SequenceTaken
from ledger.rules.entries import Entry
from tests import nodes
from tests.concurrency.race_harness import RaceSchema
from tests.conftest import database_url, wait_until_waiting
from tests.nodes import lock_holder, pause, session_id, waiting_for_advisory_lock
from tests.settings import CITUS

MakeRaceSchema = Callable[..., RaceSchema]
NewHolder = Callable[[], str]
Connect = Callable[..., psycopg.Connection[Any]]

FIFTY = 50


def set_lock_timeout(value: str) -> None:
    """Set lock_timeout on this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{value}'")


def run_fifty(
    schema: RaceSchema, work: Callable[[int], Any], *, before_any_commits: Callable[[], None] = lambda: None
) -> list[Any]:
    """Run `work` fifty times at the same time, each in a thread with a separate connection that uses the schema.

    Args:
        work: gets the index, 0 .. 49.
        before_any_commits: called after all have been started; it must release what they wait for.

    Returns: for each its return value, or the ledger's error that it raised.
    """

    def one(index: int) -> Any:
        try:
            schema.use()
            set_lock_timeout("60s")
            with schema.count_violations():
                return work(index)
        except (InsufficientCredits, SequenceTaken) as error:
            return error
        finally:
            connections.close_all()

    with schema.execution(), ThreadPoolExecutor(FIFTY) as pool:
        running = [pool.submit(one, index) for index in range(FIFTY)]
        before_any_commits()
        return [each.result(60) for each in running]


# Fifty spends, credits for ten -----------------------------------------------------------------------


def test_of_fifty_spends_that_wait_for_the_lock_exactly_ten_are_accepted(
    make_race_schema: MakeRaceSchema, raw_connection: Connect, new_holder: NewHolder
) -> None:
    schema, holder = make_race_schema(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")
    number = lock_number(holder_key(holder))
    blocker = raw_connection()
    lock_holder(blocker, holder)

    def free_the_lock() -> None:
        deadline = time.monotonic() + 60
        while waiting_for_advisory_lock(schema.observer, number) < FIFTY:
            assert time.monotonic() < deadline, "not all fifty wait"
            pause()
        blocker.commit()

    answers = run_fifty(
        schema,
        lambda index: services.spend(holder_id=holder, amount=7, idempotency_key=f"spend {index}"),
        before_any_commits=free_the_lock,
    )

    accepted = [response for response in answers if isinstance(response, Entry)]
    refused = [response for response in answers if isinstance(response, InsufficientCredits)]
    assert sorted(entry.sequence for entry in accepted) == list(range(2, 12))
    assert {(refusal.facts["available"], refusal.facts["requested"], refusal.facts["shortfall"]) for refusal in refused} == {
        (0, 7, 7)
    }
    assert len(refused) == 40
    assert schema.entries(holder) == [
        (1, "grant", 70, 70),
        *((number, "spend", -7, 70 - 7 * (number - 1)) for number in range(2, 12)),
    ]
    assert Counter(code for _, code in schema.refusals(holder)) == {"insufficient-credits": 40}
    assert schema.is_sound(holder)
    assert schema.unique_violations == []


def read_barrier() -> Callable[[], None]:
    """Return a function that waits until all fifty have called it; only the first call of each thread waits."""
    all_have_read = threading.Barrier(FIFTY)
    has_met = threading.local()

    def meet() -> None:
        if not getattr(has_met, "once", False):
            has_met.once = True
            all_have_read.wait(timeout=30)

    return meet


def spend_after_all_have_read(holder: str, meet: Callable[[], None]) -> Callable[[int], Any]:
    """Return a spend that waits before its INSERT until all fifty have read the account."""

    def work(index: int) -> Entry:
        def stop(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if sql.startswith("INSERT INTO ledger_entry"):
                meet()
            return execute(sql, params, many, context)

        with connection.execute_wrapper(stop):
            return services.spend(holder_id=holder, amount=7, idempotency_key=f"spend {index}")

    return work


def test_control_without_the_lock_fifty_spends_collide_and_the_constraints_prevent_overspending(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder
) -> None:
    schema, holder = make_race_schema("no lock"), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = run_fifty(schema, spend_after_all_have_read(holder, read_barrier()))

    accepted = sum(isinstance(response, Entry) for response in answers)
    assert 1 <= accepted <= 10
    assert schema.sum_of_amounts(holder) == 70 - 7 * accepted
    assert schema.is_sound(holder)
    # All fifty tried to insert entry 2. One succeeded; the others were refused and tried again, up to three times.
    assert len(schema.unique_violations) >= FIFTY - 1
    assert len(schema.unique_violations) >= 3 * sum(isinstance(response, SequenceTaken) for response in answers)
    assert len(schema.refusals(holder)) == sum(isinstance(response, InsufficientCredits) for response in answers)


def test_control_without_the_lock_and_the_constraints_all_fifty_spends_are_accepted(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder
) -> None:
    schema, holder = make_race_schema("no lock", constrained=False), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = run_fifty(schema, spend_after_all_have_read(holder, read_barrier()))

    assert all(isinstance(response, Entry) for response in answers)
    assert schema.sum_of_amounts(holder) == 70 - 7 * FIFTY
    assert schema.entries(holder)[1:] == FIFTY * [(2, "spend", -7, 63)]


def test_fifty_requests_with_one_key_make_one_spend(make_race_schema: MakeRaceSchema, new_holder: NewHolder) -> None:
    schema, holder = make_race_schema(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")

    answers = run_fifty(schema, lambda _: services.spend(holder_id=holder, amount=7, idempotency_key="the one"))

    assert Counter(response.replayed for response in answers) == {False: 1, True: 49}
    assert {(response.sequence, response.digest) for response in answers} == {(2, answers[0].digest)}
    assert schema.unique_violations == []
    assert schema.entries(holder) == [(1, "grant", 70, 70), (2, "spend", -7, 63)]


# Lock timeouts --------------------------------------------------------------------------------------


def test_waiting_ends_with_the_lock_timeout_and_nothing_is_written(
    make_race_schema: MakeRaceSchema, raw_connection: Connect, new_holder: NewHolder
) -> None:
    schema, holder = make_race_schema(), new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="grant")
    blocker = raw_connection()
    lock_holder(blocker, holder)
    set_lock_timeout("80ms")
    # On a cluster, a setting of the session does not reach the holder's node, which has the database's.
    limit_s = LOCK_TIMEOUT_MS / 1_000 if nodes.cluster else 0.08

    started = time.monotonic()
    with pytest.raises(HolderBusy) as busy:
        services.spend(holder_id=holder, amount=10, idempotency_key="spend")
    waited_s = time.monotonic() - started

    assert busy.value.facts == {"key": f"ledger/{holder}"}
    assert waited_s >= limit_s
    assert schema.entries(holder) == [(1, "grant", 10, 10)]
    assert schema.refusals(holder) == []
    blocker.rollback()
    again = services.spend(holder_id=holder, amount=10, idempotency_key="spend")
    assert (again.sequence, again.replayed) == (2, False)


def test_a_locked_holder_does_not_delay_other_holders(
    make_race_schema: MakeRaceSchema, raw_connection: Connect, new_holder: NewHolder
) -> None:
    schema, busy, other = make_race_schema(), new_holder(), new_holder()
    lock_holder(raw_connection(), busy)
    set_lock_timeout("100ms")

    services.grant(holder_id=other, amount=10, idempotency_key="grant")

    assert schema.entries(other) == [(1, "grant", 10, 10)]


# Two holders in one transaction ----------------------------------------------------------------------


def move_under_both_locks(giver: str, taker: str, key: str) -> str:
    """Spend one holder's credits and grant them to another, both or neither."""
    with transaction.atomic(durable=True), holder_lock(giver, taker) as lock:
        services.spend_under(lock, holder_id=giver, amount=10, idempotency_key=key)
        services.grant_under(lock, holder_id=taker, amount=10, idempotency_key=key)
    return "moved"


def move_under_one_lock_after_the_other(giver: str, taker: str, key: str) -> str:
    """The same, but take each lock only when it is needed."""
    with transaction.atomic(durable=True):
        with holder_lock(giver) as lock:
            services.spend_under(lock, holder_id=giver, amount=10, idempotency_key=key)
        with holder_lock(taker) as lock:
            services.grant_under(lock, holder_id=taker, amount=10, idempotency_key=key)
    return "moved"


def cross(schema: RaceSchema, one: str, other: str, move: Callable[[str, str, str], str]) -> tuple[Any, Any]:
    """Move 10 credits from one holder to the other and 10 back, at the same time."""
    for holder in (one, other):
        services.grant(holder_id=holder, amount=30, idempotency_key="grant")
    return schema.race(lambda: move(one, other, "there"), lambda: move(other, one, "back"))


@pytest.mark.parametrize("swapped", [False, True])
def test_two_transactions_that_take_both_locks_in_one_call_never_deadlock(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder, swapped: bool
) -> None:
    schema = make_race_schema()
    one, other = sorted((new_holder(), new_holder()), key=lambda holder: lock_number(holder_key(holder)), reverse=swapped)

    assert cross(schema, one, other, move_under_both_locks) == ("moved", "moved")

    assert schema.entries(one) == [(1, "grant", 30, 30), (2, "spend", -10, 20), (3, "grant", 10, 30)]
    assert schema.entries(other) == [(1, "grant", 30, 30), (2, "grant", 10, 40), (3, "spend", -10, 30)]
    assert schema.is_sound(one)
    assert schema.is_sound(other)


def test_of_two_transactions_that_take_one_lock_after_the_other_the_one_out_of_order_is_refused(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder
) -> None:
    schema = make_race_schema()
    one, other = sorted((new_holder(), new_holder()), key=lambda holder: lock_number(holder_key(holder)))

    there, back = cross(schema, one, other, move_under_one_lock_after_the_other)

    assert (there, type(back)) == ("moved", LocksOutOfOrder)
    assert schema.entries(one) == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert schema.entries(other) == [(1, "grant", 30, 30), (2, "grant", 10, 40)]


def test_control_without_the_order_two_transactions_that_take_one_lock_after_the_other_deadlock_and_the_victim_writes_nothing(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder
) -> None:
    schema = make_race_schema()
    one, other = nodes.neighbours(new_holder)

    with mock.patch.object(locks, "ensure_order"):
        there, back = cross(schema, one, other, move_under_one_lock_after_the_other)

    victim = there if isinstance(there, OperationalError) else back
    assert sqlstate(victim) == "40P01"
    assert [there, back].count("moved") == 1
    winner, loser = (one, other) if there == "moved" else (other, one)
    assert schema.entries(winner) == [(1, "grant", 30, 30), (2, "spend", -10, 20)]
    assert schema.entries(loser) == [(1, "grant", 30, 30), (2, "grant", 10, 40)]


# A killed client -------------------------------------------------------------------------------------

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
    services.spend(holder_id=sys.argv[1], amount=7, idempotency_key="of the killed client")
"""


def test_kill_9_of_a_client_between_insert_and_commit_writes_nothing_and_frees_the_lock(
    make_race_schema: MakeRaceSchema, new_holder: NewHolder
) -> None:
    schema, holder = make_race_schema(), new_holder()
    services.grant(holder_id=holder, amount=70, idempotency_key="grant")
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
        "LEDGER_DISTRIBUTED": str(bool(CITUS)),
    }
    sessions: list[int] = []
    has_begun = threading.Event()

    def spend_in_another_session() -> Entry:
        try:
            set_lock_timeout("30s")
            sessions.append(session_id())
            has_begun.set()
            return services.spend(holder_id=holder, amount=7, idempotency_key="of the waiting client")
        finally:
            connections.close_all()

    with (
        subprocess.Popen(
            [sys.executable, "-c", SPEND_AND_STOP_BEFORE_COMMIT, holder], cwd=settings.BASE_DIR, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as client,
        ThreadPoolExecutor(1) as pool,
    ):  # fmt: skip
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "inserted\n"
            waiting = pool.submit(spend_in_another_session)
            assert has_begun.wait(60)
            wait_until_waiting(schema.observer, sessions[0])
        finally:
            client.kill()
        entry = waiting.result(60)
        assert client.wait(60) == -9

    assert (entry.sequence, entry.balance) == (2, 63)
    retried = services.spend(holder_id=holder, amount=7, idempotency_key="of the killed client")
    assert (retried.sequence, retried.balance, retried.replayed) == (3, 56, False)
    assert schema.entries(holder) == [(1, "grant", 70, 70), (2, "spend", -7, 63), (3, "spend", -7, 56)]
    assert schema.is_sound(holder)
