"""A thread's group of work: each piece gets what it returned or raised, and is executed once. When a queue is at work."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from ledger.database import queues
from ledger.database.queues import LATEST_RETURN_SECONDS, Pace, Pending, Queue, threads


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
    assert pace.wait_seconds(100, 1) == 0, "nothing is known yet"
    pace.learn(0.010, 10)
    assert pace.wait_seconds(100, 1) == pytest.approx(0.1)
    assert pace.wait_seconds(100, 4) == pytest.approx(0.025)
    pace.learn(1.0, 10)
    assert pace.wait_seconds(100, 1) == pytest.approx(100 * (0.001 + 0.2 * 0.099))
    pace.learn(1.0, 0)
    assert pace.wait_seconds(100, 1) == pytest.approx(100 * (0.001 + 0.2 * 0.099))


def test_those_who_are_turned_away_come_back_as_fast_as_the_queue_moves_and_not_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(queues, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace()
    pace.learn(1.0, 4)
    found = [pace.retry_after_seconds(queued=8, threads=1) for _ in range(12)]
    assert found == [3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5], "the queue takes two seconds, and four are executed in each"
    now[0] += 60
    assert pace.retry_after_seconds(queued=0, threads=1) == 1


def test_nobody_is_asked_to_come_back_later_than_half_a_minute() -> None:
    pace = Pace()
    pace.learn(10.0, 1)
    assert [pace.retry_after_seconds(queued=1, threads=1) for _ in range(5)] == [20, 30, 30, 30, 30]
    assert LATEST_RETURN_SECONDS == 30
