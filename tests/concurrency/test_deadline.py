"""A request waits for all its locks together at most WAIT_SECONDS, however many locks it needs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from ledger import journal, reads, services
from ledger.database import locks, pacing
from ledger.database.locks import holder_key, lock_number
from ledger.database.pacing import yielding_to_quick_work
from ledger.database.transactions import in_transaction
from ledger.entry_rows import COLUMNS
from ledger.errors import HolderBusy
from ledger.rules.requests import GrantRequest
from tests.benchmarks.histories import row
from tests.nodes import lock_holder

Connect = Callable[..., psycopg.Connection[Any]]
NewHolder = Callable[[], str]

ENOUGH_MS = 100_000
"""A lock_timeout that no test reaches."""


@pytest.fixture
def long_lock_timeout(committed_db: None) -> Iterator[None]:
    """Set a lock_timeout that is too long to end a wait, so that only the deadline can."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {ENOUGH_MS}; SET statement_timeout = {ENOUGH_MS}")
    yield
    connection.close()


@contextmanager
def deadline_of(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the deadline within the block, and assert that the block ended after it, and before a lock_timeout could end it."""
    with monkeypatch.context() as patched:
        patched.setattr(locks, "LOCK_TIMEOUT_MS", ENOUGH_MS)
        for module in ("database.transactions", "services.batches"):
            patched.setattr(f"ledger.{module}.waits_bounded", lambda *_: locks.waits_bounded(seconds))
        begun = time.monotonic()
        yield
        assert seconds <= time.monotonic() - begun < ENOUGH_MS / 1000


def lock_holders(connect: Connect, *holders: str) -> psycopg.Connection[Any]:
    """Lock the holders in a second session, until its transaction ends."""
    other = connect()
    for holder in holders:
        lock_holder(other, holder)
    return other


def grant_requests(count: int, new_holder: NewHolder) -> list[GrantRequest]:
    """Grants of 1 to that many new holders."""
    return [GrantRequest(holder_id=new_holder(), idempotency_key="g", amount=1) for _ in range(count)]


def test_a_transfer_whose_second_holder_is_locked_ends_at_the_deadline(
    long_lock_timeout: None, raw_connection: Connect, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted((new_holder(), new_holder()), key=lambda holder: lock_number(holder_key(holder)))
    services.grant(holder_id=first, amount=5, idempotency_key="g")
    lock_holders(raw_connection, second)
    with deadline_of(0.3, monkeypatch), pytest.raises(HolderBusy) as busy:
        services.transfer(holder_id=first, to=second, amount=1, idempotency_key="t")
    assert busy.value.facts == {"key": f"{holder_key(first)} and {holder_key(second)}"}
    assert (reads.balance(first).sequence, reads.balance(second).sequence) == (1, 0)


def test_a_batch_over_many_locked_holders_ends_at_the_deadline(
    long_lock_timeout: None, raw_connection: Connect, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = grant_requests(20, new_holder)
    lock_holders(raw_connection, *(request.holder_id for request in requests[5:]))
    with deadline_of(0.3, monkeypatch), pytest.raises(HolderBusy):
        services.batch(requests, mode="each", idempotency_key=requests[0].holder_id)
    assert [reads.balance(request.holder_id).sequence for request in requests] == [0] * 20
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == (f"{ENOUGH_MS // 1000}s",)


def test_the_pieces_of_a_batch_that_gives_way_wait_no_longer_together_than_one_statement(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece takes an eighth of a second of a clock that stands still otherwise."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(locks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(pacing, "WORK_SECONDS", 0.0)
    bounds: list[str] = []
    left: list[str] = []

    def note(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if sql == locks.BOUND_STATEMENT:
            bounds.append(params[0])
        elif sql == journal.OPEN.sql:
            left.append(bounds[-1])
            clock.now += 0.125
        return execute(sql, params, *rest)

    requests = grant_requests(100, new_holder)
    with connection.execute_wrapper(note), yielding_to_quick_work(lambda: True):
        services.batch(requests, mode="each", idempotency_key=requests[0].holder_id)
    in_all_ms = 1000 * locks.wait_seconds(100)
    assert left == [f"{in_all_ms - waited_ms:.0f}ms" for waited_ms in (0, 125, 250, 375)]


def test_a_spend_that_waits_for_an_uncommitted_entry_with_its_sequence_ends_at_the_deadline(
    long_lock_timeout: None, raw_connection: Connect, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=5, idempotency_key="g")
    taken = services.spend(holder_id=holder, amount=1, idempotency_key="s", dry_run=True)
    other = raw_connection()
    places = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
    other.execute(f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({places})", row(taken))
    with deadline_of(0.3, monkeypatch), pytest.raises(OperationalError) as late:
        services.spend(holder_id=holder, amount=2, idempotency_key="s2")
    assert locks.sqlstate(late.value) == locks.LOCK_NOT_AVAILABLE  # over REST: 503 holder-busy
    other.rollback()
    assert reads.balance(holder).sequence == 1


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["late", "in time"])
def test_a_request_that_never_waited_sends_no_further_statement(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    sent: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        with locks.waits_bounded(seconds), transaction.atomic(durable=True):
            locks.keep_to_deadline()
        in_transaction(lambda: None)
    assert len(sent) == (1 if seconds == 0.0 else 0)


def test_an_inner_deadline_does_not_extend_the_outer_one(committed_db: None) -> None:
    with locks.waits_bounded(0.0), locks.waits_bounded(60.0):
        assert locks._left_ms() == 1
    assert locks._left_ms() is None


@pytest.mark.parametrize(("before", "after"), [("100ms", "100ms"), ("0", "1ms"), ("2s", "1ms")])
def test_a_lock_timeout_is_shortened_and_never_lengthened(committed_db: None, before: str, after: str) -> None:
    left_s = 0.0 if after == "1ms" else 1.5
    with locks.waits_bounded(left_s), transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{before}'")
        locks.keep_to_deadline()
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == (after,)
