"""A holder that stays busy: those who wait for it are asked to come back the later, the longer it has been so."""

from types import SimpleNamespace

import pytest

from ledger.services import group_commit
from ledger.services.group_commit import FORGET_SECONDS, LATEST_SECONDS, SOON_SECONDS, StuckHolders


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the module, which stands still at `now`. Of a range, the latest is taken."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(group_commit, "random", SimpleNamespace(randint=lambda first, last: (first, last)))
    return clock


def fail_for(holders: StuckHolders, clock: SimpleNamespace, seconds: float) -> None:
    """Wait in vain for ada, once for each 2.5 s of this time."""
    end = clock.now + seconds
    while clock.now < end:
        began = clock.now
        clock.now += min(2.5, end - clock.now)
        holders.was_busy("ada", since=began)


@pytest.mark.parametrize(
    ("busy_seconds", "latest"), [(4.0, 8), (5.0, 10), (12.5, 25), (15.0, LATEST_SECONDS), (600.0, LATEST_SECONDS)]
)
def test_who_waits_comes_back_after_at_most_twice_the_time_that_the_holder_has_been_busy(
    clock: SimpleNamespace, busy_seconds: float, latest: int
) -> None:
    holders = StuckHolders()
    fail_for(holders, clock, busy_seconds)
    assert holders.retry_after_seconds("ada") == (1, latest)


def test_nothing_is_said_of_a_holder_that_was_not_busy_for_long(clock: SimpleNamespace) -> None:
    holders = StuckHolders()
    fail_for(holders, clock, SOON_SECONDS - 0.5)
    assert holders.retry_after_seconds("ada") is None
    assert holders.retry_after_seconds("bob") is None


def test_a_holder_that_was_free_is_busy_again(clock: SimpleNamespace) -> None:
    holders = StuckHolders()
    fail_for(holders, clock, 60)
    holders.was_free("ada")
    assert holders.retry_after_seconds("ada") is None
    fail_for(holders, clock, 5)
    assert holders.retry_after_seconds("ada") == (1, 10)


@pytest.mark.parametrize(("pause", "is_kept"), [(FORGET_SECONDS - 3, True), (FORGET_SECONDS, False)])
def test_a_holder_for_which_nobody_waits_any_more_is_forgotten(clock: SimpleNamespace, pause: float, is_kept: bool) -> None:
    holders = StuckHolders()
    fail_for(holders, clock, 10)
    clock.now += pause
    holders.was_busy("bob", since=clock.now)
    assert (holders.retry_after_seconds("ada") is not None) is is_kept
    assert set(holders._busy) == ({"ada", "bob"} if is_kept else {"bob"})
