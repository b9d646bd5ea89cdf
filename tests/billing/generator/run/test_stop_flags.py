"""The limit of a run: each subscription is reserved before it is billed."""

import multiprocessing
from collections.abc import Callable
from contextlib import closing

import pytest

from billing.generator.run.stop_flags import LocalStopFlag, SharedStopFlag, StopFlag


def local(limit: int | None) -> LocalStopFlag:
    """Return the flag of a run in this process that nobody stops."""
    return LocalStopFlag(limit, lambda: False)


@pytest.fixture(params=["local", "shared"])
def flag_of(request: pytest.FixtureRequest) -> Callable[[int | None], StopFlag]:
    """Makes the flag of a run with a limit, in one process or for several."""

    def shared(limit: int | None) -> StopFlag:
        flag = SharedStopFlag(multiprocessing.get_context("fork"), limit)
        request.addfinalizer(flag.close)
        return flag

    return local if request.param == "local" else shared


def test_so_many_are_reserved_as_the_limit_says(flag_of: Callable[[int | None], StopFlag]) -> None:
    flag = flag_of(3)

    assert [flag.reserve() for _ in range(5)] == [True, True, True, False, False]


def test_what_is_given_back_can_be_reserved_again(flag_of: Callable[[int | None], StopFlag]) -> None:
    flag = flag_of(2)
    assert [flag.reserve(), flag.reserve()] == [True, True]

    flag.give_back()

    assert [flag.reserve(), flag.reserve()] == [True, False]


def test_without_a_limit_each_is_reserved(flag_of: Callable[[int | None], StopFlag]) -> None:
    flag = flag_of(None)

    assert [flag.reserve() for _ in range(3)] == [True, True, True]


def test_a_flag_that_is_set_stays_set() -> None:
    answers = iter([False, True, False])
    flag = LocalStopFlag(None, lambda: next(answers))

    assert [flag.stopped(), flag.stopped(), flag.stopped()] == [False, True, True]
    with closing(SharedStopFlag(multiprocessing.get_context("fork"), None)) as shared:
        assert not shared.stopped()
        shared.set()
        assert shared.stopped()
