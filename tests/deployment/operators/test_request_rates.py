"""The page of requests: rates by route, key and reason, from counts that are written down here."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from ledger.telemetry.count_history import Count, CountHistory, Growth
from ledger_project.operators import request_rates
from ledger_project.operators.request_rates import calls_in, problems_by_code, requests_by_key, requests_by_route
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/requests/"
DURATION = "ledger_http_request_duration_seconds"
SPENDS = "/v1/holders/{holder}/spends"


def count(name: str, **labels: str) -> Count:
    return name, frozenset(labels.items())


def of_route(method: str, route: str, status: str, *, within: dict[str, float], number: float) -> dict[Count, float]:
    """The samples of a histogram: how many took at most each bound."""
    labels = {"method": method, "route": route, "status": status}
    return {count(f"{DURATION}_count", **labels): number} | {
        count(f"{DURATION}_bucket", **labels, le=bound): below for bound, below in within.items()
    }


# 60 spends are recorded, of which 40 take at most 5 ms and all at most 25 ms; 30 lack credits; 10 meet a busy holder for 250 ms.
COUNTS = {
    **of_route("POST", SPENDS, "201", within={"0.005": 40, "0.025": 60, "0.25": 60, "+Inf": 60}, number=60),
    **of_route("POST", SPENDS, "402", within={"0.005": 30, "0.025": 30, "0.25": 30, "+Inf": 30}, number=30),
    **of_route("POST", SPENDS, "503", within={"0.005": 0, "0.025": 0, "0.25": 10, "+Inf": 10}, number=10),
    **of_route("GET", "/admin/", "200", within={"0.25": 0, "+Inf": 7}, number=7),
    count("ledger_http_key_calls_total", key="web shop", status="201"): 50,
    count("ledger_http_key_calls_total", key="web shop", status="402"): 2,
    count("ledger_http_key_calls_total", key="worker", status="201"): 10,
    count("ledger_http_key_calls_total", key="worker", status="402"): 28,
    count("ledger_http_key_calls_total", key="worker", status="503"): 10,
    count("ledger_http_problems_total", status="402", code="insufficient-credits"): 30,
    count("ledger_http_problems_total", status="503", code="holder-busy"): 10,
}


@pytest.fixture
def growth() -> Growth:
    until = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    return Growth(until - timedelta(minutes=5), until, COUNTS)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five minutes of the counts above, which were 0 at first."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    history = CountHistory(started_at=now - timedelta(minutes=5), read=lambda: COUNTS)
    monkeypatch.setattr(request_rates, "HISTORY", history)


def rows_of(page: str, title: str) -> list[list[str]]:
    """The rows of the table below a heading, cell by cell."""
    part = page.partition(f">{title}</h2>")[2].partition("</section>")[0]
    rows = re.findall(r"<tr\b.*?</tr>", part, re.DOTALL)
    return [[text_of(cell).strip() for cell in re.findall(r"<td\b.*?</td>", row, re.DOTALL)] for row in rows if "<td" in row]


def test_routes_have_their_numbers_and_how_long_half_of_them_took(growth: Growth) -> None:
    routes = requests_by_route(growth)
    spends = routes["POST", SPENDS]
    assert (spends.number, spends.refused, spends.failed) == (100, 30, 10)
    # 70 of 100 took at most 5 ms; 90 at most 25 ms; the 95th took up to 250 ms.
    assert [spends.within_seconds(share) for share in (0.5, 0.7, 0.71, 0.9, 0.95)] == [0.005, 0.005, 0.025, 0.025, 0.25]
    assert routes["GET", "/admin/"].within_seconds(0.5) == float("inf")
    assert calls_in(growth).number == 100, "pages are no calls"


def test_keys_and_reasons_have_their_numbers(growth: Growth) -> None:
    keys = requests_by_key(growth)
    assert {name: (each.number, each.refused, each.failed) for name, each in keys.items()} == {
        "web shop": (52, 2, 0),
        "worker": (48, 28, 10),
    }
    assert problems_by_code(growth) == {("402", "insufficient-credits"): 30, ("503", "holder-busy"): 10}


@pytest.mark.usefixtures("counted")
def test_the_page_shows_what_was_counted() -> None:
    page = operator().get(PAGE, {"window": "all"}).content.decode()
    # 100 calls in 300 s.
    assert "Calls a second 0.33 100 calls Refused 30 30.0% of the calls Failed 10 10.0% of the calls" in text_of(page)
    assert "Half of the calls took ≤ 5 ms 95 of 100 took ≤ 250 ms" in text_of(page)
    assert rows_of(page, "By route") == [
        [f"POST {SPENDS}", "100", "20.0", "30 (30.0%)", "10 (10.0%)", "≤ 5 ms", "≤ 250 ms"],
        ["GET /admin/", "7", "1.4", "0", "0", "over 5 s", "over 5 s"],
    ]
    assert [row[:1] + row[3:] for row in rows_of(page, "By API key")] == [
        ["web shop", "2 (3.8%)", "0"],
        ["worker", "28 (58.3%)", "10 (20.8%)"],
    ]
    assert rows_of(page, "Refused and failed, by reason") == [["insufficient-credits", "402", "30"], ["holder-busy", "503", "10"]]
    assert "/admin/ledger_keys/apikey/?q=web+shop" in page


@pytest.mark.usefixtures("counted")
def test_a_window_that_nobody_offers_is_the_usual_one() -> None:
    page = operator().get(PAGE, {"window": "7"}).content.decode()
    assert 'href="?window=15" aria-current="page"' in page


def test_nothing_that_was_counted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rates, "HISTORY", CountHistory(started_at=datetime.now(UTC), read=dict))
    page = text_of(operator().get(PAGE).content.decode())
    assert "Calls a second 0.00 0 calls Refused 0 no calls" in page
    assert page.count("Nothing in this time.") == 3


@pytest.mark.usefixtures("counted")
def test_who_may_not_see_keys_sees_their_names_without_a_link() -> None:
    assert operator("ledger.view_account", name="ben").get(PAGE).status_code == 403
    page = operator("ledger.view_locks", name="eve").get(PAGE, {"window": "all"}).content.decode()
    assert "web shop" in page
    assert "apikey/?q=" not in page


@pytest.mark.parametrize("typed", ["latency", "requests", "traffic"])
def test_the_search_finds_the_page(typed: str) -> None:
    assert PAGE in operator().get("/admin/search/", {"s": typed}).content.decode()
