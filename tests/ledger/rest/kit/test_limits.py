"""What one key may ask of one process."""

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from ledger.database.queues import LIMIT
from ledger.rest.kit import limits
from ledger.rest.kit.authentication import Key
from ledger.rest.kit.request_errors import TooManyRequests
from tests.ledger.rest.conftest import ApiClient, nothing_written

KEY = Key(b"one", "one", frozenset(), None)
OTHER = Key(b"two", "two", frozenset(), None)


@pytest.fixture
def limits_with_clock(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Callable[..., list[float]]:
    """Sets limits, and gives a clock that stands still until it is moved."""
    now = [1000.0]

    def limit(per_second: int = 0, at_once: int = 0) -> list[float]:
        monkeypatch.setattr(limits, "_uses", {})
        monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
        limited = {"KEY_REQUESTS_PER_SECOND": per_second, "KEY_CONCURRENT_REQUESTS": at_once}
        settings.LEDGER = {**settings.LEDGER, **limited}
        return now

    return limit


def passes(key: Key = KEY) -> bool:
    """Whether a request with that key is let in."""
    try:
        with limits.admitted(key):
            return True
    except TooManyRequests:
        return False


def test_a_key_gets_its_rate_and_no_more(limits_with_clock: Callable[..., list[float]]) -> None:
    now = limits_with_clock(per_second=3)
    assert [passes() for _ in range(4)] == [True, True, True, False]
    assert passes(OTHER)
    now[0] += 0.34
    assert [passes() for _ in range(2)] == [True, False]
    now[0] += 3600
    assert [passes() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("of_the_settings", "own", "let_in"), [(1, 3, 3), (3, 1, 1), (0, 2, 2), (2, None, 2), (0, None, 5)])
def test_a_keys_own_rate_replaces_that_of_the_settings(
    limits_with_clock: Callable[..., list[float]], of_the_settings: int, own: int | None, let_in: int
) -> None:
    limits_with_clock(per_second=of_the_settings)
    key = Key(b"own", "own", frozenset(), None, requests_per_second=own)
    assert sum(passes(key) for _ in range(5)) == let_in


@pytest.mark.parametrize(("of_the_settings", "own", "is_let_in"), [(1, 2, True), (3, 1, False), (0, 1, False), (2, None, True)])
def test_a_keys_own_number_of_requests_at_the_same_time_replaces_that_of_the_settings(
    limits_with_clock: Callable[..., list[float]], of_the_settings: int, own: int | None, is_let_in: bool
) -> None:
    limits_with_clock(at_once=of_the_settings)
    key = Key(b"own", "own", frozenset(), None, concurrent_requests=own)
    with limits.admitted(key):
        assert passes(key) == is_let_in


def test_a_refused_request_gets_a_retry_after(limits_with_clock: Callable[..., list[float]]) -> None:
    limits_with_clock(per_second=1)
    assert passes()
    with pytest.raises(TooManyRequests) as refused, limits.admitted(KEY):
        pass
    assert refused.value.facts == {"retry_after_seconds": 2}


def test_a_key_has_a_limited_number_of_requests_at_the_same_time(limits_with_clock: Callable[..., list[float]]) -> None:
    limits_with_clock(at_once=2)
    with limits.admitted(KEY), limits.admitted(KEY):
        assert not passes()
        assert passes(OTHER)
    assert passes()


def test_a_request_that_fails_frees_its_place(limits_with_clock: Callable[..., list[float]]) -> None:
    limits_with_clock(at_once=1)
    with pytest.raises(ZeroDivisionError), limits.admitted(KEY):
        raise ZeroDivisionError
    assert passes()


def test_threads_do_not_pass_together(limits_with_clock: Callable[..., list[float]]) -> None:
    limits_with_clock(per_second=10)
    start, passed = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        passed.extend(passes() for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(passed), sum(passed)) == (40, 10)


def test_the_limiter_forgets_api_keys_without_a_running_request(
    limits_with_clock: Callable[..., list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_with_clock(at_once=1)
    monkeypatch.setattr(limits, "_KEYS_LIMIT", 3)
    with limits.admitted(KEY):
        for number in range(10):
            assert passes(Key(b"x", str(number), frozenset(), None))
        assert not passes()
    assert len(limits._uses) <= 3


def test_beyond_the_rate_a_request_is_a_429_with_nothing_written(
    api: ApiClient, holder: str, limits_with_clock: Callable[..., list[float]]
) -> None:
    limits_with_clock(per_second=1)
    path = f"/v1/holders/{holder}/spends"
    assert api.post(path, {"amount": 1}).status_code == 201
    with nothing_written(holder):
        response = api.post(path, {"amount": 1}, key="k")
    problem: dict[str, Any] = json.loads(response.content)
    assert (response.status_code, response["Retry-After"], problem["outcome"]) == (429, "2", "not_executed")
    assert problem["type"].endswith("/too-many-requests")


def test_by_default_a_key_takes_half_of_the_room_for_requests_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_uses", {})
    with ExitStack() as running:
        for _ in range(LIMIT // 2):
            running.enter_context(limits.admitted(KEY))
        assert (passes(KEY), passes(OTHER)) == (False, True)
    assert passes(KEY)
