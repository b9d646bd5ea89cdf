"""Long work takes rests while there is other work, and only then; not more of them in all than it may."""

from collections.abc import Iterator

import pytest

from ledger.database.load import pacing
from ledger.database.load.pacing import REST_SECONDS, RESTS_SECONDS, WORK_SECONDS, giving_way, in_pieces, paced


class Clock:
    """A clock that stands still but for the work and the rests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rests: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def work_on(self, items: int, seconds_each: float) -> list[int]:
        """Go over items, each of which takes so long; the items."""
        done = []
        for item in paced(range(items)):
            done.append(item)
            self.now += seconds_each
        return done


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of the module."""
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    return clock


def test_work_rests_each_time_that_it_has_continued_long_enough(clock: Clock) -> None:
    with giving_way(lambda: True):
        assert clock.work_on(10, WORK_SECONDS / 2) == list(range(10))
    assert clock.rests == [REST_SECONDS] * 4, "before the items 2, 4, 6 and 8"


def test_work_does_not_rest_while_there_is_no_other_work(clock: Clock) -> None:
    other_work = [True, False, True]
    with giving_way(lambda: other_work.pop(0)):
        assert clock.work_on(4, WORK_SECONDS) == list(range(4))
    assert clock.rests == [REST_SECONDS] * 2
    assert other_work == []


def test_time_between_two_loops_counts_as_work(clock: Clock) -> None:
    with giving_way(lambda: True):
        clock.work_on(1, WORK_SECONDS / 2)
        clock.now += WORK_SECONDS / 2
        clock.work_on(1, 0.0)
    assert clock.rests == [REST_SECONDS]


def test_all_rests_of_one_work_together_have_a_limit(clock: Clock) -> None:
    with giving_way(lambda: True):
        clock.work_on(1_000, 2 * WORK_SECONDS)
        assert RESTS_SECONDS <= sum(clock.rests) < RESTS_SECONDS + REST_SECONDS
        taken = len(clock.rests)
        clock.work_on(1_000, 2 * WORK_SECONDS)
    assert len(clock.rests) == taken, "a second loop of the same work has no rests of its own"
    with giving_way(lambda: True):
        clock.work_on(2, 2 * WORK_SECONDS)
    assert len(clock.rests) == taken + 1, "the next work has"


def test_work_that_gives_way_to_nobody_does_not_rest(clock: Clock) -> None:
    assert clock.work_on(100, WORK_SECONDS) == list(range(100))
    with giving_way(lambda: True):
        pass
    clock.work_on(100, WORK_SECONDS)
    assert clock.rests == []


def test_items_come_at_once_until_there_is_other_work_and_then_in_pieces(clock: Clock) -> None:
    with giving_way(lambda: clock.now >= 2 * WORK_SECONDS):
        clock.now += WORK_SECONDS
        assert list(in_pieces(range(10), 4)) == [range(10)]
        clock.now += WORK_SECONDS
        assert list(in_pieces(range(10), 4)) == [range(4), range(4, 8), range(8, 10)]
    assert clock.rests == [REST_SECONDS]


def test_work_rests_between_pieces_that_take_long_enough(clock: Clock) -> None:
    with giving_way(lambda: True):
        clock.now += WORK_SECONDS
        for _ in in_pieces(range(10), 4):
            clock.now += WORK_SECONDS
    assert clock.rests == [REST_SECONDS] * 3


def test_work_that_has_no_rests_left_gets_the_other_items_at_once(clock: Clock) -> None:
    with giving_way(lambda: True):
        clock.work_on(1_000, 2 * WORK_SECONDS)
        assert list(in_pieces(range(10), 4)) == [range(10)]


def test_items_are_never_in_pieces_where_nobody_is_given_way_to(clock: Clock) -> None:
    clock.now += WORK_SECONDS
    assert list(in_pieces(range(10), 4)) == [range(10)]


def test_no_items_are_no_piece(clock: Clock) -> None:
    assert list(in_pieces((), 4)) == []
    with giving_way(lambda: True):
        clock.now += WORK_SECONDS
        assert list(in_pieces((), 4)) == []
