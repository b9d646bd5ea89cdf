"""A thread's group of work: each piece gets what it returned or raised, and is executed once. When a queue is at work."""

import threading
from collections.abc import Sequence

from ledger.database.queues import Pending, Queue, threads


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
