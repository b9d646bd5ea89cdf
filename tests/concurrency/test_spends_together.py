"""Group commit: queued requests share one transaction, each gets its own result, and a bad request does not fail the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections

from ledger import journal, services
from ledger.database.queues import Pending
from ledger.database.statements import fetch_value
from ledger.errors import (
    AccountMovedOn,
    HolderBusy,
    IdempotencyKeyReused,
    InsufficientCredits,
    Invalid,
    LockNotHeld,
    NotInTransaction,
)
from ledger.journal import Result
from ledger.rules.requests import GrantRequest, Request, SpendRequest
from ledger.services import execute
from ledger.services.group_commit import GroupCommit, ResultOrError
from tests import nodes
from tests.nodes import Session, lock_holder

Connect = Callable[..., Session]
NewHolder = Callable[[], str]
TIMEOUT_S = 30
YEAR_2000 = datetime(2000, 1, 1, tzinfo=UTC)


class Executor:
    """Executes groups as the product does, but can stop after the INSERT of a holder's entry, and bound a waiter's time."""

    def __init__(self) -> None:
        self.stops: dict[str, Callable[[], None]] = {}
        """Per holder, a function to call after the INSERT of the holder's entry."""
        self.seconds = 0.0
        """How long a waiter waits; 0 for as long as in the product."""

    def together(self, requests: Sequence[Request]) -> Sequence[ResultOrError]:
        stop = self.stops.get(requests[0].holder_id)
        with connection.execute_wrapper(partial(_stop_after_insert, stop)) if stop else nullcontext():
            return execute.execute_group(requests)

    def after_waiting(
        self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float
    ) -> Sequence[ResultOrError]:
        return execute.execute_after_waiting(holder_id, arrived, seconds=self.seconds or seconds)


def _stop_after_insert(stop: Callable[[], None], execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    """Call `stop` after each INSERT of entries."""
    result = execute(sql, params, many, context)
    if sql.startswith("INSERT INTO ledger_entry"):
        stop()
    return result


class QueueUnderTest:
    """The queue of one process. Requests submitted while a transaction is stopped form the next group."""

    def __init__(self) -> None:
        self.executor = Executor()
        self.group_commit = GroupCommit(self.executor.together, self.executor.after_waiting, most=lambda: 32)

    @contextmanager
    def while_committing(self, holder: str) -> Iterator[None]:
        """Run the block while the transaction of a grant to `holder` is stopped between its INSERT and its COMMIT."""
        has_inserted, may_commit = threading.Event(), threading.Event()

        def stop() -> None:
            has_inserted.set()
            assert may_commit.wait(TIMEOUT_S)

        self.executor.stops[holder] = stop
        try:
            first = self.submit(GrantRequest(holder_id=holder, amount=1, idempotency_key="the first one"))
            assert has_inserted.wait(TIMEOUT_S)
            yield
        finally:
            may_commit.set()
        first.result(TIMEOUT_S)

    def submit(self, request: Request) -> "Future[Any]":
        """Queue the request; the future gets its entry or its error."""
        future: Future[Any] = Future()
        self.group_commit.submit(request, _set_results, future)
        return future


def _set_results(group: Sequence[Pending]) -> None:
    """Give each caller its result or error."""
    for pending in group:
        try:
            pending.caller.set_result(pending.result().unwrap())
        except Exception as error:
            pending.caller.set_exception(error)


@pytest.fixture
def queue(committed_db: None) -> Iterator[QueueUnderTest]:
    """A queue of group commit that the test works off itself."""
    queue = QueueUnderTest()
    yield queue
    queue.group_commit.close()


def transactions(*holders: str) -> list[Any]:
    """Return the ids of the transactions that wrote the holders' entries, in the order of holder and sequence."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xmin::text FROM ledger_entry WHERE holder_id = ANY(%s) ORDER BY holder_id, sequence", [list(holders)]
        )
        return [xmin for (xmin,) in cursor.fetchall()]


def refusals(holder: str) -> list[Any]:
    """Key and code of the holder's refusals, by key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT idempotency_key, refusal ->> 'code' FROM ledger_entry WHERE holder_id = %s AND kind = 'refusal' ORDER BY 1",
            [holder],
        )
        return cursor.fetchall()


@pytest.mark.one_node("each node counts its transactions")
def test_spends_of_one_holder_and_of_others_share_a_transaction(queue: QueueUnderTest, new_holder: NewHolder) -> None:
    first, one, other = new_holder(), new_holder(), new_holder()
    for holder in (one, other):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")

    with queue.while_committing(first):
        futures = [
            queue.submit(SpendRequest(holder_id=holder, amount=30, idempotency_key=f"spend {n}"))
            for holder in (one, other)
            for n in (1, 2)
        ]
    answers = [each.result(TIMEOUT_S) for each in futures]

    assert [(response.sequence, response.balance) for response in answers] == [(2, 70), (3, 40), (2, 70), (3, 40)]
    assert len(set(transactions(one)[1:] + transactions(other)[1:])) == 1
    assert answers[1].digest == answers[1].computed_digest(answers[0].digest)


def test_each_request_of_a_group_gets_its_own_result(queue: QueueUnderTest, new_holder: NewHolder) -> None:
    first, holder = new_holder(), new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    services.spend(holder_id=holder, amount=1, idempotency_key="before")
    spend = partial(SpendRequest, holder_id=holder)

    with queue.while_committing(first):
        futures = [
            queue.submit(request)
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
    answers = [each.exception(TIMEOUT_S) or each.result() for each in futures]

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
            "SELECT e.sequence, e.reason, e.idempotency_key, e.digest = ledger_entry_digest(p.digest, ROW(e.*)::ledger_entry) "
            "FROM ledger_entry e "
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


def test_if_the_groups_transaction_fails_each_request_is_executed_alone_and_only_the_bad_one_fails(
    queue: QueueUnderTest, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one, other = new_holder(), new_holder(), new_holder()
    for holder in (one, other):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    insert = journal._insert

    def refuse_the_poisoned(entries: Any) -> None:
        if any(entry.reason == "poison" for entry in entries):
            raise DatabaseError("no row of this kind")
        insert(entries)

    monkeypatch.setattr(journal, "_insert", refuse_the_poisoned)
    with queue.while_committing(first):
        right = queue.submit(SpendRequest(holder_id=one, amount=30, idempotency_key="s"))
        wrong = queue.submit(SpendRequest(holder_id=other, amount=30, idempotency_key="s", reason="poison"))

    assert right.result(TIMEOUT_S).balance == 70
    with pytest.raises(DatabaseError, match="no row of this kind"):
        wrong.result(TIMEOUT_S)
    assert (len(transactions(one)), len(transactions(other))) == (2, 1)


def test_a_locked_holder_does_not_delay_the_other_requests_of_the_group(
    queue: QueueUnderTest, new_holder: NewHolder, raw_connection: Connect
) -> None:
    first, busy, free = new_holder(), new_holder(), new_holder()
    for holder in (busy, free):
        services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    gate = raw_connection()
    lock_holder(gate, busy)

    with queue.while_committing(first):
        waiting = [queue.submit(SpendRequest(holder_id=busy, amount=30, idempotency_key=f"s{n}")) for n in (1, 2)]
        passing = queue.submit(SpendRequest(holder_id=free, amount=30, idempotency_key="s"))
    assert passing.result(TIMEOUT_S).balance == 70
    assert not any(each.done() for each in waiting)
    gate.rollback()

    assert [each.result(TIMEOUT_S).balance for each in waiting] == [70, 40]
    assert len(set(transactions(busy)[1:])) == 1


def test_requests_that_wait_too_long_for_a_locked_holder_are_busy_and_write_nothing(
    queue: QueueUnderTest, new_holder: NewHolder, raw_connection: Connect
) -> None:
    first, busy = new_holder(), new_holder()
    services.grant(holder_id=busy, amount=100, idempotency_key="grant")
    gate = raw_connection()
    lock_holder(gate, busy)

    queue.executor.seconds = 0.1
    with queue.while_committing(first):
        futures = [queue.submit(SpendRequest(holder_id=busy, amount=30, idempotency_key=f"s{n}")) for n in (1, 2, 3)]

    assert [type(each.exception(TIMEOUT_S)) for each in futures] == [HolderBusy] * 3
    gate.rollback()
    assert len(transactions(busy)) == 1
    assert refusals(busy) == []
    assert services.spend(holder_id=busy, amount=30, idempotency_key="s1").balance == 70


def test_a_group_that_is_tried_again_waits_only_for_the_rest_of_its_time(
    queue: QueueUnderTest, new_holder: NewHolder, raw_connection: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, waits_ms = new_holder(), []
    services.grant(holder_id=busy, amount=100, idempotency_key="grant")
    clock = iter(range(1_000))
    monkeypatch.setattr(execute, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr(execute, "wait_at_most", waits_ms.append)
    collisions = iter([True, False])

    def arrived() -> list[Request]:
        if next(collisions):
            with connection.cursor() as cursor:  # as if a writer without the lock had taken the sequence
                cursor.execute("DO $$ BEGIN RAISE unique_violation; END $$")
        return [SpendRequest(holder_id=busy, amount=1, idempotency_key="s")]

    (outcome,) = execute.execute_after_waiting(busy, arrived, seconds=5)
    assert isinstance(outcome, Result)
    assert outcome.unwrap().balance == 99
    assert [each for each in waits_ms if each != execute.GROUP_LOCK_TIMEOUT_MS] == [4_000, 3_000]


def spends_of(holder: str) -> list[Request]:
    """Two spends of 30 credits."""
    return [SpendRequest(holder_id=holder, amount=30, idempotency_key=key) for key in ("s1", "s2")]


def test_a_group_of_a_shared_holder_waits_for_its_lock_and_is_decided_by_what_was_committed_until_then(
    queue: QueueUnderTest, new_holder: NewHolder, raw_connection: Connect
) -> None:
    holder, observer = new_holder(), raw_connection(autocommit=True)
    services.grant(holder_id=holder, amount=49, idempotency_key="grant")
    sessions: Future[int] = Future()

    def wait() -> Sequence[ResultOrError]:
        try:
            sessions.set_result(nodes.session_id())
            return execute.execute_shared(spends_of(holder), seconds=TIMEOUT_S)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with queue.while_committing(holder):  # a grant of 1
            waiting = pool.submit(wait)
            session = sessions.result(TIMEOUT_S)
            while not waiting.done() and not nodes.is_waiting(observer, session):
                pass
            assert not waiting.done()
        spent, refused = waiting.result(TIMEOUT_S)
    assert isinstance(spent, Result)
    assert spent.unwrap().balance == 20
    assert isinstance(refused, Result)
    assert isinstance(refused.refusal, InsufficientCredits)
    assert refusals(holder) == [("s2", "insufficient-credits")]


def test_a_group_of_a_shared_holder_whose_lock_is_kept_writes_nothing(
    committed_db: None, new_holder: NewHolder, raw_connection: Connect
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    gate = raw_connection()
    lock_holder(gate, holder)
    assert execute.execute_shared(spends_of(holder), seconds=0.02) == [None, None]
    gate.rollback()
    assert len(transactions(holder)) == 1
    assert all(isinstance(each, Result) for each in execute.execute_shared(spends_of(holder), seconds=0.02))
    assert len(set(transactions(holder)[1:])) == 1


def test_a_group_of_a_shared_holder_waits_only_a_moment_for_a_row_of_a_writer_without_the_lock(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")

    def insert(entries: Sequence[Any]) -> None:
        with connection.cursor() as cursor:  # as the server does when the time is over
            cursor.execute("DO $$ BEGIN RAISE lock_not_available; END $$")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "_insert", insert)
        assert execute.execute_shared(spends_of(holder), seconds=0.02) == [None, None]
    assert len(transactions(holder)) == 1
    assert lock_timeouts(lambda: execute.execute_shared(spends_of(holder), seconds=0.02)) == ["20ms", "20ms"]


def test_after_opening_many_accounts_only_those_with_a_free_lock_may_be_read(
    committed_db: None, new_holder: NewHolder, raw_connection: Connect
) -> None:
    busy, free = new_holder(), new_holder()
    lock_holder(raw_connection(), busy)
    requests = [SpendRequest(holder_id=holder, amount=1, idempotency_key="s") for holder in (busy, free)]

    def open_both() -> None:
        with journal.open(requests, wait=False) as accounts:
            assert [accounts.covers_request(request) for request in requests] == [False, True]
            with pytest.raises(LockNotHeld):
                journal.read(accounts.lock, busy, "credits")
            journal.read(accounts.lock, free, "credits")

    services.in_transaction(open_both, holder_id=busy)
    with pytest.raises(NotInTransaction):
        open_both()


def lock_timeouts(work: Callable[[], Any]) -> list[str]:
    """Return the lock_timeout at each wait for a lock, look at accounts and INSERT of entries within the work."""
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(("SELECT ledger_lock", journal.OPEN.sql, "INSERT INTO ledger_entry")):
            seen.append(fetch_value(str, "SHOW lock_timeout"))
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        work()
    return seen


def test_a_group_waits_only_a_moment_for_a_row_of_a_writer_without_the_lock(committed_db: None, new_holder: NewHolder) -> None:
    """Its requests are executed alone then, so that they do not wait for the one that has to."""
    requests = [GrantRequest(holder_id=new_holder(), amount=1, idempotency_key="g") for _ in range(2)]
    assert lock_timeouts(lambda: execute.execute_group(requests)) == ["100ms", "100ms"]


def test_a_waiter_waits_for_the_lock_as_long_as_it_may_and_then_only_a_moment(committed_db: None, new_holder: NewHolder) -> None:
    holder = new_holder()
    request = GrantRequest(holder_id=holder, amount=1, idempotency_key="g")
    waited, *others = lock_timeouts(lambda: execute.execute_after_waiting(holder, lambda: [request], seconds=1.5))
    assert 1_000 < int(waited.removesuffix("ms")) <= 1_500
    assert others == ["100ms", "100ms"]


def test_an_error_of_one_request_names_its_holder_and_that_of_a_group_names_none(
    committed_db: None, new_holder: NewHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue gives each request of a group an error of its own."""
    about: list[dict[str, str]] = []
    monkeypatch.setattr(execute, "in_transaction", lambda once, **facts: about.append(facts) or [None] * 2)
    monkeypatch.setattr(execute, "count_group", lambda requests, outcomes: None)
    requests = [GrantRequest(holder_id=new_holder(), amount=1, idempotency_key="g") for _ in range(2)]
    execute.execute_group(requests)
    execute.execute_group(requests[:1])
    assert about == [{}, {"holder_id": requests[0].holder_id}]
