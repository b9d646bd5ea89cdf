"""One worker's walk over a shared list: what is busy is put aside, and tried again."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from ledger.database import locking
from ledger.database.locking import TurnResult, share
from ledger.errors import LockBusy


class Clock:
    """Moves only when something sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds


@pytest.fixture(autouse=True)
def clock() -> Any:
    clock = Clock()
    with mock.patch.object(locking, "time", clock):
        yield clock


def busy_for(times: dict[str, int], seen: list[str], *, raises: bool = True) -> Callable[[str], TurnResult | None]:
    """An act whose items are busy this number of times."""
    left = Counter(times)

    def act(name: str) -> TurnResult | None:
        seen.append(name)
        left[name] -= 1
        if left[name] < 0:
            return None
        if raises:
            raise LockBusy(key=name)
        return TurnResult.BUSY

    return act


@pytest.mark.parametrize("raises", [True, False])
def test_busy_items_are_tried_again_after_the_others_and_a_pause(clock, raises):
    seen: list[str] = []
    waiting: list[list[str]] = []
    act = busy_for({"b": 1, "c": 9}, seen, raises=raises)
    left = share("abcd", act, retries=2, wait_s=0.5, waiting=lambda busy: waiting.append(list(busy)))
    assert (left, "".join(seen)) == (["c"], "abcdbcc")
    assert clock.slept == [0.2, 0.2, 0.1] * 2
    assert waiting == [["b"], ["b", "c"], ["c"], ["c"], ["c"]]


def test_without_busy_items_nothing_waits(clock):
    seen: list[str] = []
    assert share(iter("abc"), busy_for({}, seen)) == []
    assert (seen, clock.slept) == (["a", "b", "c"], [])


def test_without_retries_busy_items_are_left(clock):
    assert share("abc", busy_for({"b": 1}, []), retries=0) == ["b"]
    assert clock.slept == []


@pytest.mark.parametrize("ends_by", ["stop", "turn"])
def test_a_worker_that_ends_begins_no_further_item_and_returns_what_was_busy(ends_by):
    seen: list[str] = []
    act = busy_for({"a": 9}, seen)

    def act_or_end(name: str) -> TurnResult | None:
        return TurnResult.END if ends_by == "turn" and name == "c" else act(name)

    assert share("abcd", act_or_end, stop=lambda: ends_by == "stop" and len(seen) == 2) == ["a"]
    assert seen == ["a", "b"]


def test_a_worker_that_ends_does_not_wait_to_the_end_of_its_pause(clock):
    assert share("a", busy_for({"a": 9}, []), wait_s=60, stop=lambda: clock.now > 1) == ["a"]
    assert clock.now < 2


def test_another_error_ends_the_worker():
    def fail(name: str) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError, match="a"):
        share("ab", fail)
