"""How often one address may log in, and that neither other addresses nor other pages wait for it."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from ledger.rest.kit.front import logins
from ledger.rest.kit.front.application import Front
from ledger.rest.kit.front.logins import REQUESTS_AT_ONCE, REQUESTS_PER_SECOND, LoginLimit
from ledger.rest.kit.request_errors import TooManyRequests
from tests.asgi_client import response_of
from tests.ledger.rest.kit.front.test_front import Exchange

GUESSER, COLLEAGUE = "203.0.113.9", "198.51.100.7"
LOGIN = "/log-in/"
TOGETHER_S = 0.5


class Clock:
    """Seconds that pass when a test says so, and the pauses that somebody has made."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The limit's clock. No test really waits."""
    clock = Clock()
    monkeypatch.setattr(logins, "time", clock)
    monkeypatch.setattr(logins, "asyncio", SimpleNamespace(sleep=clock.sleep))
    return clock


def seconds_to_wait(limit: LoginLimit, address: str) -> int:
    """Seconds to wait, or 0 where the address was let in."""
    try:
        asyncio.run(limit.admit(address))
    except TooManyRequests as refusal:
        return int(refusal.facts["retry_after_seconds"])
    return 0


def test_an_address_that_has_used_its_requests_up_waits_and_another_does_not(clock: Clock) -> None:
    limit = LoginLimit()
    assert [seconds_to_wait(limit, GUESSER) for _ in range(REQUESTS_AT_ONCE)] == [0] * REQUESTS_AT_ONCE
    each = round(1 / REQUESTS_PER_SECOND)
    assert [seconds_to_wait(limit, GUESSER) for _ in range(100)] == [each] * 100, "a refusal is not counted"
    assert seconds_to_wait(limit, COLLEAGUE) == 0
    clock.now += each
    assert [seconds_to_wait(limit, GUESSER) for _ in range(2)] == [0, each]
    clock.now += 1_000_000
    assert [seconds_to_wait(limit, GUESSER) for _ in range(REQUESTS_AT_ONCE + 1)] == [0] * REQUESTS_AT_ONCE + [each]


def test_a_refusal_waits_unless_too_many_do(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "REQUESTS_AT_ONCE", 0)
    limit = LoginLimit()
    assert seconds_to_wait(limit, GUESSER) > 0
    assert clock.pauses == [logins.REFUSAL_PAUSE_S]
    monkeypatch.setattr(logins, "REFUSALS_PAUSED", 0)
    assert seconds_to_wait(limit, GUESSER) > 0
    assert clock.pauses == [logins.REFUSAL_PAUSE_S], "the second refusal did not wait"


def test_no_more_addresses_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "ADDRESSES_LIMIT", 2)
    monkeypatch.setattr(logins, "REQUESTS_AT_ONCE", 1)
    limit = LoginLimit()
    asked = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert [seconds_to_wait(limit, each) for each in asked] == [0, 0, 0]
    assert [seconds_to_wait(limit, each) > 0 for each in asked[1:]] == [True, True]
    assert seconds_to_wait(limit, asked[0]) == 0, "the one that asked first is forgotten"


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True), ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False), ("192.0.2.1", "192.0.2.2", False), ("unix:", "unix:", True),
    ],
)  # fmt: skip
def test_a_line_with_many_ipv6_addresses_is_one_address(one: str, other: str, is_one: bool) -> None:
    assert (logins._network(one) == logins._network(other)) is is_one


# In the front ----------------------------------------------------------------------------------------


def answers(page: Callable[[HttpRequest], HttpResponse], *paths: str) -> list[HttpResponse]:
    """The responses of a front with such pages, which is asked one after the other by the same address."""
    front = Front(page, login_path=LOGIN)

    async def ask() -> list[HttpResponse]:
        found = []
        for path in paths:
            exchange = Exchange("GET", path)
            await front(exchange.scope, exchange.receive, exchange.send)
            found.append(response_of(exchange.sent))
        await front.close()
        return found

    return asyncio.run(ask())


def test_logins_are_limited_before_anything_is_computed_and_other_pages_are_not() -> None:
    made: list[str] = []

    def page(request: HttpRequest) -> HttpResponse:
        made.append(request.path_info)
        return HttpResponse(b"a page")

    *found, refused = answers(page, *["/", LOGIN] * REQUESTS_AT_ONCE, "/", LOGIN)
    assert [each.status_code for each in found] == [200] * len(found)
    assert made == ["/", LOGIN] * REQUESTS_AT_ONCE + ["/"]
    problem = json.loads(refused.content)
    assert (refused.status_code, refused["Retry-After"], problem["outcome"]) == (429, "5", "not_executed")
    assert problem["type"].endswith("/too-many-requests")


@pytest.mark.parametrize("path", [LOGIN, "/other/"])
def test_one_login_is_made_at_a_time_and_other_pages_beside_it(path: str) -> None:
    """Two requests meet at a barrier only where both are made at the same time."""
    barrier = threading.Barrier(2)

    def page(request: HttpRequest) -> HttpResponse:
        try:
            barrier.wait(TOGETHER_S)
        except threading.BrokenBarrierError:
            return HttpResponse(b"alone")
        return HttpResponse(b"together")

    async def both() -> list[bytes]:
        front = Front(page, login_path=LOGIN)
        exchanges = [Exchange("GET", path), Exchange("GET", path)]
        calls: list[Coroutine[Any, Any, None]] = [front(each.scope, each.receive, each.send) for each in exchanges]
        await asyncio.gather(*calls)
        await front.close()
        return [response_of(each.sent).content for each in exchanges]

    assert asyncio.run(both()) == ([b"alone"] * 2 if path == LOGIN else [b"together"] * 2)
