"""What one address may ask of the pages while nobody is logged in, and that the others do not pay for it."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from ledger.api.kit.front import page_budget
from ledger.api.kit.front.application import Front
from ledger.api.kit.front.interpreter import SHORT_TURN_S, short_turns
from ledger.api.kit.front.page_budget import ADDRESS_SAVINGS_S, LARGEST_PRICE_S, PER_ADDRESS_S_PER_S, PageBudget, add_work
from ledger.api.kit.request_errors import TooManyRequests
from tests.ledger.api.kit.front.test_front import Exchange, problem_of

GUESS_S = 0.3
"""What a guess of a password costs: seconds of CPU."""
OVERDRAWN = 7
"""Seconds to wait after four calls that took 0.3 s each: 1.0 - 4 * 0.3 is -0.2, which 0.03 a second make good."""
GUESSER, COLLEAGUE, STRANGER = "203.0.113.9", "198.51.100.7", "192.0.2.1"


@pytest.fixture(autouse=True)
def recorded_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each refusal has waited; no test really waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(page_budget, "asyncio", SimpleNamespace(sleep=sleep, Lock=asyncio.Lock, timeout=asyncio.timeout))
    return found


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until it is moved."""
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> PageBudget:
    """A budget that goes by the clock."""
    return PageBudget(clock)


async def seconds_to_wait(budget: PageBudget, address: str, price_s: float = GUESS_S) -> int:
    """Seconds to wait, or 0 where the address was let in and has paid."""
    try:
        async with budget.turn(address) as pay:
            pay(price_s)
    except TooManyRequests as refusal:
        return int(refusal.facts["retry_after_seconds"])
    return 0


def run_in_new_loop(work: Awaitable[Any]) -> Any:
    """The result of the work, in a new event loop."""

    async def main() -> Any:
        return await work

    return asyncio.run(main())


def seconds_to_wait_of_each(budget: PageBudget, *addresses: str, price_s: float = GUESS_S) -> list[int]:
    """What `seconds_to_wait` gives for each address, one after the other."""

    async def one_after_the_other() -> list[int]:
        return [await seconds_to_wait(budget, address, price_s) for address in addresses]

    found: list[int] = run_in_new_loop(one_after_the_other())
    return found


# Savings ---------------------------------------------------------------------------------------------


def test_an_address_that_has_used_its_savings_up_waits_until_some_have_come_back(budget: PageBudget, clock: Clock) -> None:
    assert seconds_to_wait_of_each(budget, *[GUESSER] * 6) == [0, 0, 0, 0, OVERDRAWN, OVERDRAWN]
    clock.now += 6
    assert seconds_to_wait_of_each(budget, GUESSER) == [1]
    clock.now += 1
    assert seconds_to_wait_of_each(budget, GUESSER, GUESSER) == [0, 10]


def test_another_address_is_let_in(budget: PageBudget) -> None:
    assert seconds_to_wait_of_each(budget, *[GUESSER] * 5, COLLEAGUE, COLLEAGUE) == [0, 0, 0, 0, OVERDRAWN, 0, 0]


def test_savings_have_a_bound(budget: PageBudget, clock: Clock) -> None:
    clock.now += 3600
    assert seconds_to_wait_of_each(budget, *[GUESSER] * 5) == [0, 0, 0, 0, OVERDRAWN]


def test_a_page_costs_no_more_than_the_largest_price(budget: PageBudget) -> None:
    assert seconds_to_wait_of_each(budget, GUESSER, GUESSER, GUESSER, price_s=60) == [0, 0, 1]
    assert pytest.approx(1.0) == 2 * LARGEST_PRICE_S == ADDRESS_SAVINGS_S
    assert PER_ADDRESS_S_PER_S == 0.03


def test_a_line_with_many_ipv6_addresses_is_one_address(budget: PageBudget) -> None:
    line = [f"2001:db8:0:1::{number:x}" for number in range(1, 6)]
    assert seconds_to_wait_of_each(budget, *line, "2001:db8:0:2::1", "::ffff:192.0.2.1", "::ffff:192.0.2.2") == [
        0,
        0,
        0,
        0,
        OVERDRAWN,
        0,
        0,
        0,
    ]


def test_when_many_addresses_have_used_up_what_all_have_newcomers_are_still_let_in(budget: PageBudget) -> None:
    """A crowd, each within its own savings: who has asked twice comes back later, who comes once or logs in does not."""
    crowd = [f"10.0.0.{number}" for number in range(7)]
    assert seconds_to_wait_of_each(budget, *crowd, *crowd, price_s=0.3) == [0] * 14
    assert seconds_to_wait_of_each(budget, *crowd, price_s=0.3) == [4] * 7
    assert seconds_to_wait_of_each(budget, COLLEAGUE, price_s=0.02) == [0]
    assert seconds_to_wait_of_each(budget, COLLEAGUE, price_s=0.35) == [0]


def test_no_more_addresses_are_kept_than_there_is_room_for(budget: PageBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "ADDRESSES_LIMIT", 3)
    seconds_to_wait_of_each(budget, *[f"10.0.0.{number}" for number in range(10)], price_s=0)
    assert list(budget._addresses) == ["10.0.0.7", "10.0.0.8", "10.0.0.9"]


# Turns -----------------------------------------------------------------------------------------------


def ask_together(budget: PageBudget, address: str, count: int) -> tuple[int, list[int]]:
    """Send that many at once: how many were let in at the same time at most, and how long each must wait."""

    async def all_of_them() -> tuple[int, list[int]]:
        inside = most = 0

        async def one() -> int:
            nonlocal inside, most
            try:
                async with budget.turn(address) as pay:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    inside -= 1
                    pay(0.3)
            except TooManyRequests as refusal:
                return int(refusal.facts["retry_after_seconds"])
            return 0

        waits_s = await asyncio.gather(*(one() for _ in range(count)))
        return most, list(waits_s)

    found: tuple[int, list[int]] = run_in_new_loop(all_of_them())
    return found


def test_who_asks_for_much_at_once_gets_one_page_at_a_time_and_pays_for_each(budget: PageBudget) -> None:
    assert ask_together(budget, GUESSER, 12) == (1, [0] * 4 + [OVERDRAWN] * 8)


def test_only_some_wait_for_their_turn(budget: PageBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "WAITING_PER_ADDRESS", 2)
    assert ask_together(budget, GUESSER, 5) == (1, [0, 0, 0, 1, 1]), "one has its turn, two wait"


def test_nobody_waits_longer_for_a_turn_than_a_request_may(budget: PageBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "PATIENCE_SECONDS", 0)

    async def beside_one_that_takes_long() -> tuple[int, int]:
        async with budget.turn(GUESSER):
            waited = await seconds_to_wait(budget, GUESSER)
        return waited, await seconds_to_wait(budget, GUESSER)

    assert run_in_new_loop(beside_one_that_takes_long()) == (1, 0)


def test_a_refusal_is_sent_after_a_pause_as_long_as_not_too_many_wait(
    budget: PageBudget, recorded_pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seconds_to_wait_of_each(budget, *[GUESSER] * 5)[-1] == OVERDRAWN
    assert recorded_pauses == [page_budget.REFUSAL_PAUSE_S]
    monkeypatch.setattr(page_budget, "REFUSALS_PAUSED", 0)
    assert seconds_to_wait_of_each(budget, GUESSER) == [OVERDRAWN]
    assert recorded_pauses == [page_budget.REFUSAL_PAUSE_S], "the second refusal did not wait"


# In the front ----------------------------------------------------------------------------------------


class Pages:
    """Pages as dear as a guess. Whose session is `mara` is logged in."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def __call__(self, request: HttpRequest) -> HttpResponse:
        add_work(GUESS_S)
        session = request.COOKIES.get("sessionid", "")
        self.made.append((session, threading.current_thread().name))
        request.user = SimpleNamespace(is_authenticated=session == "mara")
        return HttpResponse(b"a page")


PAGE, FILE = "/admin/login/", "/static/page.js"


def statuses(
    pages: Callable[[HttpRequest], HttpResponse],
    *asking: tuple[str, str] | tuple[str, str, str],
    files: tuple[str, ...] = (FILE,),
) -> list[int]:
    """The status that each (address, session, path) gets, one after the other, from one process."""

    async def main() -> list[int]:
        front, found = Front(pages, is_static_file=files.__contains__), []
        for address, session, *path in asking:
            exchange = Exchange("POST", *(path or [PAGE]), (b"cookie", f"sessionid={session}".encode()))
            exchange.scope["client"] = (address, 40000)
            await front(exchange.scope, exchange.receive, exchange.send)
            found.append(exchange.sent[0]["status"])
        await front.close()
        return found

    found: list[int] = run_in_new_loop(main())
    return found


def test_guesses_are_refused_before_anything_is_computed_and_others_log_in_beside_them() -> None:
    pages = Pages()
    found = statuses(pages, *[(GUESSER, "")] * 20, (COLLEAGUE, ""), (COLLEAGUE, ""))
    assert found == [200] * 4 + [429] * 16 + [200, 200]
    assert len(pages.made) == 6


def test_without_the_budget_every_guess_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: savings that twenty guesses cannot use up."""
    plenty_s = 1e9
    monkeypatch.setattr(page_budget, "ADDRESS_SAVINGS_S", plenty_s)
    monkeypatch.setattr(page_budget, "OVERALL_SAVINGS_S", plenty_s)
    pages = Pages()
    assert statuses(pages, *[(GUESSER, "")] * 20) == [200] * 20
    assert len(pages.made) == 20


def test_the_refusal_is_a_problem_that_says_when_to_come_back() -> None:
    async def main() -> Exchange:
        front = Front(Pages())
        for _ in range(5):
            exchange = Exchange("GET", "/admin/login/")
            await front(exchange.scope, exchange.receive, exchange.send)
        await front.close()
        return exchange

    from tests.asgi_client import response_of

    response = response_of(run_in_new_loop(main()).sent)
    assert problem_of(response) == (429, "too-many-requests")
    assert response["Retry-After"] == str(OVERDRAWN)


def test_an_operator_pays_nothing_even_at_the_address_of_a_guesser_and_waits_for_no_stranger() -> None:
    pages = Pages()
    found = statuses(pages, (GUESSER, "mara"), *[(GUESSER, "")] * 5, *[(GUESSER, "mara")] * 20)
    assert found == [200, 200, 200, 200, 200, 429, *[200] * 20]
    assert all(thread.startswith("ledger-pages-") for session, thread in pages.made[5:])
    assert {thread for session, thread in pages.made[:5]} == {"ledger-strangers-0"}


def test_a_session_that_has_ended_pays_again() -> None:
    class Ending(Pages):
        def __call__(self, request: HttpRequest) -> HttpResponse:
            response = super().__call__(request)
            request.user.is_authenticated = len(self.made) < 3  # type: ignore[union-attr]
            return response

    found = statuses(Ending(), *[(GUESSER, "mara")] * 8)
    assert found == [200] * 7 + [429], "two as an operator, one that tells, four that are paid for"


class PagesAndFiles(Pages):
    """Pages beside files. As WhiteNoise does, files are served before anything looks at who asks."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info == FILE:
            self.made.append((request.COOKIES.get("sessionid", ""), FILE))
            return HttpResponse(b"a file")
        return super().__call__(request)


def test_beside_a_guesser_an_operator_at_the_same_address_gets_pages_and_their_files() -> None:
    found = statuses(PagesAndFiles(), (GUESSER, "mara"), *[(GUESSER, "")] * 5, *[(GUESSER, "mara", FILE), (GUESSER, "mara")] * 8)
    assert found == [200, 200, 200, 200, 200, 429, *[200] * 16]


def test_a_file_that_is_taken_for_a_page_teaches_nothing_about_who_asks() -> None:
    """The half of the protection that is left when the front does not know which paths are files."""
    found = statuses(PagesAndFiles(), (GUESSER, "mara"), *[(GUESSER, "")] * 5, *[(GUESSER, "mara", FILE)] * 8, files=())
    assert found == [200, 200, 200, 200, 200, 429, *[200] * 8]


def test_files_cost_a_stranger_nothing_even_after_the_savings_are_used_up() -> None:
    found = statuses(PagesAndFiles(), *[(GUESSER, "")] * 5, *[(GUESSER, "", FILE)] * 30, (GUESSER, ""))
    assert found == [200] * 4 + [429] + [200] * 30 + [429]


def test_a_made_up_session_is_no_operators() -> None:
    assert statuses(Pages(), *[(GUESSER, f"made-up-{number}") for number in range(5)]) == [200, 200, 200, 200, 429]


# The interpreter -------------------------------------------------------------------------------------


def test_while_a_page_is_made_threads_give_the_interpreter_up_sooner() -> None:
    usual, seen = sys.getswitchinterval(), []

    def page(request: HttpRequest) -> HttpResponse:
        seen.append(sys.getswitchinterval())
        return HttpResponse(b"a page")

    assert statuses(page, (GUESSER, "")) == [200]
    assert seen == [pytest.approx(SHORT_TURN_S)]
    assert sys.getswitchinterval() == usual


def test_short_turns_last_until_the_last_of_overlapping_blocks_ends() -> None:
    usual = sys.getswitchinterval()
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SHORT_TURN_S)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
