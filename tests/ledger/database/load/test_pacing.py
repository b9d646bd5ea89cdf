"""Long work pauses while there is other work, and only then; its pauses together have a limit."""

from collections.abc import Iterator

import pytest

from ledger.database import pacing
from ledger.database.pacing import PAUSE_SECONDS, PAUSES_SECONDS, WORK_SECONDS, in_pieces, with_pauses, yielding_to_quick_work


class Clock:
    """A clock that stands still but for the work and the pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def work_on(self, items: int, seconds_each: float) -> list[int]:
        """Go over items, each of which takes so long; the items."""
        done = []
        for item in with_pauses(range(items)):
            done.append(item)
            self.now += seconds_each
        return done


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of the module."""
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    return clock


def test_work_pauses_each_time_that_it_has_continued_long_enough(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: True):
        assert clock.work_on(10, WORK_SECONDS / 2) == list(range(10))
    assert clock.pauses == [PAUSE_SECONDS] * 4, "before the items 2, 4, 6 and 8"


def test_work_does_not_rest_while_there_is_no_other_work(clock: Clock) -> None:
    other_work = [True, False, True]
    with yielding_to_quick_work(lambda: other_work.pop(0)):
        assert clock.work_on(4, WORK_SECONDS) == list(range(4))
    assert clock.pauses == [PAUSE_SECONDS] * 2
    assert other_work == []


def test_time_between_two_loops_counts_as_work(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: True):
        clock.work_on(1, WORK_SECONDS / 2)
        clock.now += WORK_SECONDS / 2
        clock.work_on(1, 0.0)
    assert clock.pauses == [PAUSE_SECONDS]


def test_all_pauses_of_one_work_together_have_a_limit(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: True):
        clock.work_on(1_000, 2 * WORK_SECONDS)
        assert PAUSES_SECONDS <= sum(clock.pauses) < PAUSES_SECONDS + PAUSE_SECONDS
        taken = len(clock.pauses)
        clock.work_on(1_000, 2 * WORK_SECONDS)
    assert len(clock.pauses) == taken, "a second loop of the same work has no further pauses"
    with yielding_to_quick_work(lambda: True):
        clock.work_on(2, 2 * WORK_SECONDS)
    assert len(clock.pauses) == taken + 1, "the next work has"


def test_work_that_gives_way_to_nobody_does_not_rest(clock: Clock) -> None:
    assert clock.work_on(100, WORK_SECONDS) == list(range(100))
    with yielding_to_quick_work(lambda: True):
        pass
    clock.work_on(100, WORK_SECONDS)
    assert clock.pauses == []


def test_items_come_at_once_until_there_is_other_work_and_then_in_pieces(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: clock.now >= 2 * WORK_SECONDS):
        clock.now += WORK_SECONDS
        assert list(in_pieces(range(10), 4)) == [range(10)]
        clock.now += WORK_SECONDS
        assert list(in_pieces(range(10), 4)) == [range(4), range(4, 8), range(8, 10)]
    assert clock.pauses == [PAUSE_SECONDS]


def test_work_pauses_between_pieces_that_take_long_enough(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: True):
        clock.now += WORK_SECONDS
        for _ in in_pieces(range(10), 4):
            clock.now += WORK_SECONDS
    assert clock.pauses == [PAUSE_SECONDS] * 3


def test_work_that_has_no_pauses_left_gets_the_other_items_at_once(clock: Clock) -> None:
    with yielding_to_quick_work(lambda: True):
        clock.work_on(1_000, 2 * WORK_SECONDS)
        assert list(in_pieces(range(10), 4)) == [range(10)]


def test_items_are_never_in_pieces_outside_a_block(clock: Clock) -> None:
    clock.now += WORK_SECONDS
    assert list(in_pieces(range(10), 4)) == [range(10)]


def test_no_items_are_no_piece(clock: Clock) -> None:
    assert list(in_pieces((), 4)) == []
    with yielding_to_quick_work(lambda: True):
        clock.now += WORK_SECONDS
        assert list(in_pieces((), 4)) == []
