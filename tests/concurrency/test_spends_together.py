"""Requests that are answered together: one transaction, an answer each; what goes wrong with all is met by each alone."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection

from ledger import journal, services
from ledger.database.locks import holder_key, lock_number
from ledger.database.queues import Pending
from ledger.errors import (
    AccountMovedOn,
    HolderBusy,
    IdempotencyKeyReused,
    InsufficientCredits,
    Invalid,
    LockNotHeld,
    NotInTransaction,
)
from ledger.journal import Recorded
from ledger.rules import GrantRequest, Request, SpendRequest
from ledger.services import answering
from ledger.services.group_commit import GroupCommit, Outcome
from tests.concurrency.rooms import Session

Connect = Callable[..., Session]
NewHolder = Callable[[], str]
TIMEOUT_S = 30
YEAR_2000 = datetime(2000, 1, 1, tzinfo=UTC)


class Ways:
    """How the product executes requests; a test can have the transaction of one holder stand still, or one way fail."""

    def __init__(self) -> None:
        self.stops: dict[str, Callable[[], None]] = {}
        """What is called when an entry of the holder has been inserted."""
        self.seconds = 0.0
        """How long a waiter waits, where the test says so."""

    def together(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        stop = self.stops.get(requests[0].holder_id)
        with connection.execute_wrapper(partial(_watch, stop)) if stop else nullcontext():
            return answering.WAYS.together(requests)

    def after_waiting(self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float) -> Sequence[Outcome]:
        return answering.WAYS.after_waiting(holder_id, arrived, seconds=self.seconds or seconds)


def _watch(stop: Callable[[], None], execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    result = execute(sql, params, many, context)
    if sql.startswith("INSERT INTO ledger_entry"):
        stop()
    return result


class Crowd:
    """Callers that bring requests while the first one's transaction stands still after its INSERT."""

    def __init__(self) -> None:
        self.ways = Ways()
        self.group_commit = GroupCommit(self.ways, most=lambda: 32)

    @contextmanager
    def meanwhile(self, holder: str) -> Iterator[None]:
        """For the block, a grant to `holder` has been inserted and not committed; at its end, it commits."""
        has_inserted, may_commit = threading.Event(), threading.Event()

        def stop() -> None:
            has_inserted.set()
            assert may_commit.wait(TIMEOUT_S)

        self.ways.stops[holder] = stop
        try:
            first = self.bring(GrantRequest(holder_id=holder, amount=1, idempotency_key="the first one"))
            assert has_inserted.wait(TIMEOUT_S)
            yield
        finally:
            may_commit.set()
        first.result(TIMEOUT_S)

    def bring(self, request: Request) -> "Future[Any]":
        """Submit it; the future has its entry, or the error."""
        future: Future[Any] = Future()
        self.group_commit.submit(request, _tell, future)
        return future


def _tell(group: Sequence[Pending]) -> None:
    for pending in group:
        try:
            pending.caller.set_result(pending.result().unwrap())
        except Exception as error:
            pending.caller.set_exception(error)


@pytest.fixture
def crowd(committed_db: None) -> Iterator[Crowd]:
    crowd = Crowd()
    yield crowd
    crowd.group_commit.close()


def transactions(*holders: str) -> list[Any]:
    """Which transaction wrote each entry of the holders, by their order."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xmin::text FROM ledger_entry WHERE holder_id = ANY(%s) ORDER BY holder_id, sequence", [list(holders)]
        )
        return [xmin for (xmin,) in cursor.fetchall()]


def refusals(holder: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT idempotency_key, refusal ->> 'code' FROM ledger_entry WHERE holder_id = %s AND kind = 'refusal' ORDER BY 1",
            [holder],
        )
        return cursor.fetchall()


def test_spends_of_one_holder_and_of_others_share_a_transaction(crowd: Crowd, new_holder: NewHolder) -> None:
    first, one, other = new_holder(), new_holder(), new_holder()
    for holder in (one, other):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")

    with crowd.meanwhile(first):
        brought = [
            crowd.bring(SpendRequest(holder_id=holder, amount=30, idempotency_key=f"spend {n}"))
            for holder in (one, other)
            for n in (1, 2)
        ]
    answers = [each.result(TIMEOUT_S) for each in brought]

    assert [(answer.sequence, answer.balance) for answer in answers] == [(2, 70), (3, 40), (2, 70), (3, 40)]
    assert len(set(transactions(one)[1:] + transactions(other)[1:])) == 1
    assert answers[1].digest == answers[1].computed_digest(answers[0].digest)


def test_each_gets_its_own_answer(crowd: Crowd, new_holder: NewHolder) -> None:
    first, holder = new_holder(), new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    services.spend(holder_id=holder, amount=1, idempotency_key="before")
    spend = partial(SpendRequest, holder_id=holder)

    with crowd.meanwhile(first):
        brought = [
            crowd.bring(request)
            for request in (
                spend(amount=60, idempotency_key="a", reason='it\'s "quoted" \\ and {braced}, with a\ttab and Ünïcode'),
                spend(amount=60, idempotency_key="b"),
                spend(amount=60, idempotency_key="a", reason='it\'s "quoted" \\ and {braced}, with a\ttab and Ünïcode'),
                spend(amount=5, idempotency_key="a"),
                spend(amount=1, idempotency_key="before"),
                spend(amount=1, idempotency_key="c", expected_sequence=2),
                spend(amount=39, idempotency_key='d "\\', metadata={"path": 'C:\\temp, "x"'}),
                GrantRequest(holder_id=holder, amount=7, idempotency_key="e", expires_at=YEAR_2000),
                GrantRequest(holder_id=holder, amount=7, idempotency_key="f"),
            )
        ]
    answers = [each.exception(TIMEOUT_S) or each.result() for each in brought]

    assert (answers[0].sequence, answers[0].balance) == (3, 39)
    assert isinstance(answers[1], InsufficientCredits)
    assert answers[1].facts["available"] == 39
    assert answers[2] == answers[0]._replace(replayed=True)
    assert isinstance(answers[3], IdempotencyKeyReused)
    assert (answers[4].sequence, answers[4].replayed) == (2, True)
    assert isinstance(answers[5], AccountMovedOn)
    assert (answers[6].sequence, answers[6].balance, answers[6].metadata) == (5, 0, {"path": 'C:\\temp, "x"'})
    assert isinstance(answers[7], Invalid)
    assert (answers[8].sequence, answers[8].balance) == (6, 7)
    assert refusals(holder) == [("b", "insufficient-credits")]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.sequence, e.reason, e.idempotency_key, e.digest = ledger_entry_digest(p.digest, e) FROM ledger_entry e "
            "JOIN ledger_entry p USING (holder_id, credit_type) "
            "WHERE e.holder_id = %s AND e.sequence > 2 AND p.sequence = e.sequence - 1 ORDER BY 1",
            [holder],
        )
        assert cursor.fetchall() == [
            (3, 'it\'s "quoted" \\ and {braced}, with a\ttab and Ünïcode', "a", True),
            (4, "", "b", True),
            (5, "", 'd "\\', True),
            (6, "", "f", True),
        ]


def test_when_the_transaction_fails_each_is_answered_by_itself_and_only_the_culprit_fails(
    crowd: Crowd, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one, other = new_holder(), new_holder(), new_holder()
    for holder in (one, other):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    append = journal.append

    def refuse_the_poisoned(lock: Any, entries: Any) -> None:
        if any(entry.reason == "poison" for entry in entries):
            raise DatabaseError("no row of this kind")
        append(lock, entries)

    monkeypatch.setattr(journal, "append", refuse_the_poisoned)
    with crowd.meanwhile(first):
        right = crowd.bring(SpendRequest(holder_id=one, amount=30, idempotency_key="s"))
        wrong = crowd.bring(SpendRequest(holder_id=other, amount=30, idempotency_key="s", reason="poison"))

    assert right.result(TIMEOUT_S).balance == 70
    with pytest.raises(DatabaseError, match="no row of this kind"):
        wrong.result(TIMEOUT_S)
    assert (len(transactions(one)), len(transactions(other))) == (2, 1)


def test_a_holder_who_is_locked_elsewhere_keeps_no_other_waiting(
    crowd: Crowd, new_holder: NewHolder, raw_connection: Connect
) -> None:
    first, busy, free = new_holder(), new_holder(), new_holder()
    for holder in (busy, free):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    number = lock_number(holder_key(busy))
    gate = raw_connection()
    gate.execute("SELECT pg_advisory_xact_lock(%s)", [number])

    with crowd.meanwhile(first):
        waiting = [crowd.bring(SpendRequest(holder_id=busy, amount=30, idempotency_key=f"s{n}")) for n in (1, 2)]
        passing = crowd.bring(SpendRequest(holder_id=free, amount=30, idempotency_key="s"))
    assert passing.result(TIMEOUT_S).balance == 70
    assert not any(each.done() for each in waiting)
    gate.rollback()

    assert [each.result(TIMEOUT_S).balance for each in waiting] == [70, 40]
    assert len(set(transactions(busy)[1:])) == 1


def test_those_who_wait_for_a_locked_holder_are_told_when_it_took_too_long_and_nothing_is_written(
    crowd: Crowd, new_holder: NewHolder, raw_connection: Connect
) -> None:
    first, busy = new_holder(), new_holder()
    services.grant(holder_id=busy, amount=100, idempotency_key="grant")
    gate = raw_connection()
    gate.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(busy))])

    crowd.ways.seconds = 0.1
    with crowd.meanwhile(first):
        brought = [crowd.bring(SpendRequest(holder_id=busy, amount=30, idempotency_key=f"s{n}")) for n in (1, 2, 3)]

    assert [type(each.exception(TIMEOUT_S)) for each in brought] == [HolderBusy] * 3
    gate.rollback()
    assert len(transactions(busy)) == 1
    assert refusals(busy) == []
    assert services.spend(holder_id=busy, amount=30, idempotency_key="s1").balance == 70


def test_a_group_that_is_tried_again_waits_for_the_lock_no_longer_than_it_had_left(
    crowd: Crowd, new_holder: NewHolder, raw_connection: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, waits_ms = new_holder(), []
    services.grant(holder_id=busy, amount=100, idempotency_key="grant")
    clock = iter(range(1_000))
    monkeypatch.setattr(answering, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr(answering, "wait_at_most", waits_ms.append)
    collisions = iter([True, False])

    def arrived() -> list[Request]:
        if next(collisions):
            with connection.cursor() as cursor:  # as when somebody without the lock has taken the number
                cursor.execute("DO $$ BEGIN RAISE unique_violation; END $$")
        return [SpendRequest(holder_id=busy, amount=1, idempotency_key="s")]

    (outcome,) = answering.WAYS.after_waiting(busy, arrived, seconds=5)
    assert isinstance(outcome, Recorded)
    assert outcome.unwrap().balance == 99
    assert [each for each in waits_ms if each != answering.COMMITTER_LOCK_TIMEOUT_MS] == [4_000, 3_000]


def test_who_has_read_many_accounts_may_write_only_where_the_lock_was_free(
    committed_db: None, new_holder: NewHolder, raw_connection: Connect
) -> None:
    busy, free = new_holder(), new_holder()
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(busy))])
    requests = [SpendRequest(holder_id=holder, amount=1, idempotency_key="s") for holder in (busy, free)]

    def enter() -> None:
        with journal.enter_many(requests) as room:
            assert [room.has(request) for request in requests] == [False, True]
            with pytest.raises(LockNotHeld):
                journal.read(room.lock, busy, "credits")
            journal.read(room.lock, free, "credits")

    services.in_transaction(enter, holder_id=busy)
    with pytest.raises(NotInTransaction):
        enter()
