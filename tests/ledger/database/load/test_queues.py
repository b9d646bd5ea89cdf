"""A thread's group of work: each piece gets what it returned or raised, and is executed once. When a queue is at work."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection

from ledger.database import queues
from ledger.database.queues import LATEST_RETURN_SECONDS, Pace, Pending, Queue, threads
from ledger.errors import OutcomeUnknown, ServerBusy


def test_what_one_piece_of_a_group_raises_is_its_own_matter() -> None:
    answered: list[Pending] = []
    groups = []
    all_answered, first_runs, go_on = threading.Event(), threading.Event(), threading.Event()
    executed = []

    def notify(group: Sequence[Pending]) -> None:
        groups.append(len(group))
        answered.extend(group)
        if len(answered) == 4:
            all_answered.set()

    def first() -> str:
        first_runs.set()
        assert go_on.wait(30)
        return "first"

    def fails() -> None:
        executed.append("fails")
        raise LookupError("no such row")

    queue = threads("test-queue", 1, limit=10, most=8)
    pending = [queue.submit(first, notify)]
    assert first_runs.wait(30)
    works = (lambda: executed.append("a") or "a", fails, lambda: executed.append("b") or "b")
    pending += [queue.submit(work, notify) for work in works]
    go_on.set()
    assert all_answered.wait(30)
    queue.close()

    assert groups == [1, 3], "what came while the first was executed is one group"
    assert executed == ["a", "fails", "b"]
    assert [pending[place].result() for place in (0, 1, 3)] == ["first", "a", "b"]
    assert isinstance(pending[2].outcome, LookupError)


def test_a_queue_is_at_work_while_it_executes_and_while_it_has_requests() -> None:
    has_begun, go_on, all_notified = threading.Event(), threading.Event(), threading.Event()
    at_work: list[bool] = []

    def execute(asked: Sequence[str]) -> Sequence[str]:
        has_begun.set()
        assert go_on.wait(30)
        return asked

    def notify(group: Sequence[Pending]) -> None:
        at_work.append(queue.is_at_work)
        if len(at_work) == 2:
            all_notified.set()

    queue = Queue("test-queue", execute)
    assert not queue.is_at_work
    queue.submit("first", notify)
    assert has_begun.wait(30)
    assert queue.is_at_work
    queue.submit("second", notify)
    go_on.set()
    assert all_notified.wait(30)
    queue.close()
    assert at_work == [True, True]
    assert not queue.is_at_work


def test_a_pace_follows_the_groups_and_a_single_slow_group_does_not_decide() -> None:
    pace = Pace()
    assert pace.wait_seconds(100) == 0, "nothing is known yet"
    pace.learn(0.010)
    assert pace.wait_seconds(100) == pytest.approx(1.0)
    pace.learn(0.020)
    assert pace.wait_seconds(100) == pytest.approx(1.2)
    pace.learn(60.0)
    assert pace.wait_seconds(100) == pytest.approx(1.2 * (0.8 + 0.2 * 4)), "as if it took four times as long"
    for _ in range(20):
        pace.learn(60.0)
    assert pace.wait_seconds(1) > 30, "all of them do decide"


def test_those_who_are_turned_away_come_back_as_fast_as_the_queue_moves_and_not_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(queues, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace()
    pace.learn(1.0)
    found = [pace.retry_after_seconds(groups=2, of_one=0.25) for _ in range(12)]
    assert found == [3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5], "the queue takes two seconds, and four are executed in each"
    now[0] += 60
    assert pace.retry_after_seconds(groups=0, of_one=0.25) == 1


def test_nobody_is_asked_to_come_back_later_than_half_a_minute() -> None:
    pace = Pace()
    pace.learn(10.0)
    assert [pace.retry_after_seconds(groups=1, of_one=1) for _ in range(5)] == [20, 30, 30, 30, 30]
    assert LATEST_RETURN_SECONDS == 30


@pytest.mark.parametrize(("most", "threads", "turned_away"), [(1, 1, 7), (4, 1, 0), (1, 4, 0)])
def test_how_long_a_request_would_wait_depends_on_the_size_of_groups_and_the_number_of_threads(
    most: int, threads: int, turned_away: int
) -> None:
    """A group takes a second, in which nothing is executed: the threads are held back."""
    has_begun, go_on = threading.Semaphore(0), threading.Event()

    def execute(asked: Sequence[str]) -> Sequence[str]:
        has_begun.release()
        assert go_on.wait(30)
        return asked

    queue = Queue("test-queue", execute, most=lambda: most, threads=lambda: threads, refuses_early=True)
    for _ in range(threads):
        queue.submit("taken", lambda done: None)
        assert has_begun.acquire(timeout=30)
    queue._pace.learn(1.0)
    refused = 0
    for _ in range(10):
        try:
            queue.submit("queued", lambda done: None)
        except ServerBusy:
            refused += 1
    go_on.set()
    queue.close()
    assert refused == turned_away


def outcomes_of(queue: Queue, *asked: str, before: Callable[[list[Pending]], None] = lambda pending: None) -> list[Any]:
    """Return the outcomes of requests that come together, which are in the queue before it begins."""
    done, all_done = [], threading.Event()

    def notify(group: Sequence[Pending]) -> None:
        done.extend(group)
        if len(done) == len(asked):
            all_done.set()

    with queue._guard:
        pending = [queue.submit(each, notify) for each in asked]
        before(pending)
    assert all_done.wait(30)
    return [each.outcome for each in pending]


def test_a_thread_whose_connection_has_broken_has_another_for_its_next_group(committed_db: None) -> None:
    def execute(asked: Sequence[str]) -> Sequence[str]:
        with connection.cursor() as cursor:
            cursor.execute(asked[0])
        return asked

    queue = Queue("test-queue", execute)
    [broken] = outcomes_of(queue, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert isinstance(broken, OperationalError)
    assert outcomes_of(queue, "SELECT 1") == ["SELECT 1"]
    queue.close()


def test_of_a_group_that_fails_those_that_have_waited_too_long_are_not_executed_alone() -> None:
    executed: list[Sequence[str]] = []

    def execute(asked: Sequence[str]) -> Sequence[str]:
        executed.append(asked)
        if len(asked) > 1:
            raise LookupError("one of them")
        return asked

    def let_the_second_be_late(pending: list[Pending]) -> None:
        pending[1].deadline = 0

    queue = Queue("test-queue", execute, most=lambda: 8)
    first, late, last = outcomes_of(queue, "first", "late", "last", before=let_the_second_be_late)
    queue.close()
    assert (first, last) == ("first", "last")
    assert isinstance(late, ServerBusy)
    assert executed == [["first", "late", "last"], ["first"], ["last"]]


def test_a_group_whose_commit_was_lost_is_not_executed_again_and_each_request_has_its_own_error() -> None:
    executed: list[Sequence[str]] = []

    def execute(asked: Sequence[str]) -> Sequence[str]:
        executed.append(asked)
        raise OutcomeUnknown(holder_id="first")

    queue = Queue("test-queue", execute, most=lambda: 8)
    outcomes = outcomes_of(queue, "first", "second")
    queue.close()
    assert [(type(each), each.facts) for each in outcomes] == [(OutcomeUnknown, {})] * 2
    assert outcomes[0] is not outcomes[1]
    assert executed == [["first", "second"]]


def test_all_that_have_waited_too_long_are_refused_at_once_and_the_others_stay() -> None:
    refused: list[Pending] = []
    has_begun, go_on = threading.Event(), threading.Event()

    def execute(asked: Sequence[str]) -> Sequence[str]:
        has_begun.set()
        assert go_on.wait(30)
        return asked

    queue = Queue("test-queue", execute)
    queue.submit("first", lambda group: None)
    assert has_begun.wait(30)
    waiting = [queue.submit(name, refused.extend) for name in ("second", "third", "fourth")]
    waiting[0].deadline = waiting[1].deadline = 0
    queue.expire()
    assert refused == waiting[:2]
    assert [type(pending.outcome) for pending in refused] == [ServerBusy] * 2
    go_on.set()
    queue.close()
    assert waiting[2].result() == "fourth"
