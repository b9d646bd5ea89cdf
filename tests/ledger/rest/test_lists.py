"""Lists by the page: every row once, in order, there and back, also where many rows have the same time."""

import json
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pytest_django.fixtures import Settings

from ledger import services
from tests.ledger.rest.conftest import ApiClient

Step = tuple[str, list[str]]

TYPES = ("credits", "sms", "usd_cents")


@pytest.fixture
def history(api: ApiClient) -> list[tuple[str, int]]:
    """27 entries in three credit types; what identifies each, newest first."""
    entries = [
        services.grant(holder_id="busy", amount=number + 1, idempotency_key=f"{credit_type}-{number}", credit_type=credit_type)
        for number in range(9)
        for credit_type in TYPES
    ]
    newest = sorted(entries, key=lambda entry: (entry.recorded_at, entry.credit_type, entry.sequence), reverse=True)
    return [(entry.credit_type, entry.sequence) for entry in newest]


def entries_page(api: ApiClient, url: str) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """The entries of a page, each as (credit type, sequence), and its links."""
    response = api.get(url)
    assert response.status_code == 200, response.content
    body = json.loads(response.content)
    assert list(body) == ["results", "next", "previous"]
    return [(row["credit_type"], row["sequence"]) for row in body["results"]], body


@pytest.mark.parametrize("limit", [1, 4, 9, 13, 26, 27, 28, 200])
def test_every_entry_is_shown_once_there_and_back(api: ApiClient, history: list[tuple[str, int]], limit: int) -> None:
    seen, url, previous = [], f"/v1/holders/busy/entries?limit={limit}", None
    while url:
        rows, body = entries_page(api, url)
        assert (body["previous"] is None) == (not seen)
        seen += rows
        last_rows, previous, url = rows, body["previous"], body["next"]
    assert seen == history
    back = last_rows
    while previous:
        rows, body = entries_page(api, previous)
        assert len(rows) == limit
        assert body["next"] is not None
        back, previous = rows + back, body["previous"]
    assert back == history


def test_rows_that_arrive_between_two_pages_shift_nothing(api: ApiClient, history: list[tuple[str, int]]) -> None:
    first, body = entries_page(api, "/v1/holders/busy/entries?limit=5")
    services.grant(holder_id="busy", amount=1, idempotency_key="late")
    second, following = entries_page(api, body["next"])
    assert first + second == history[:10]
    assert entries_page(api, following["previous"])[0] == first
    newest = entries_page(api, json.loads(api.get(following["previous"]).content)["previous"])
    assert newest[0] == [("credits", 10)]


def test_fifty_is_the_default_and_two_hundred_the_most(api: ApiClient) -> None:
    for number in range(51):
        services.grant(holder_id="busy", amount=1, idempotency_key=str(number))
    rows, body = entries_page(api, "/v1/holders/busy/entries")
    assert (len(rows), rows[0], rows[-1]) == (50, ("credits", 51), ("credits", 2))
    assert entries_page(api, body["next"]) == ([("credits", 1)], json.loads(api.get(body["next"]).content))
    assert len(entries_page(api, "/v1/holders/busy/entries?limit=200")[0]) == 51


def test_links_are_whole_addresses_and_keep_the_filters(api: ApiClient, history: list[tuple[str, int]]) -> None:
    rows, body = entries_page(api, "/v1/holders/busy/entries?kind=grant&limit=2&credit_type=sms")
    link = urlsplit(body["next"])
    assert (link.scheme, link.netloc, link.path) == ("http", "testserver", "/v1/holders/busy/entries")
    query = parse_qs(link.query)
    assert {name: query[name] for name in ("kind", "limit", "credit_type")} == {
        "kind": ["grant"],
        "limit": ["2"],
        "credit_type": ["sms"],
    }
    assert rows == [("sms", 9), ("sms", 8)]
    assert entries_page(api, body["next"])[0] == [("sms", 7), ("sms", 6)]


def test_the_limit_may_change_between_pages(api: ApiClient, history: list[tuple[str, int]]) -> None:
    _, body = entries_page(api, "/v1/holders/busy/entries?limit=2")
    assert entries_page(api, body["next"].replace("limit=2", "limit=7"))[0] == history[2:9]


def test_filters_choose(api: ApiClient, holder: str) -> None:
    spent = services.spend(holder_id=holder, amount=1, idempotency_key="s")
    services.refund(holder_id=holder, spend=2, idempotency_key="r")
    path = f"/v1/holders/{holder}/entries"
    at = spent.recorded_at.isoformat().replace("+00:00", "Z")
    assert entries_page(api, f"{path}?kind=spend")[0] == [("credits", 2)]
    assert entries_page(api, f"{path}?since={at}")[0] == [("credits", 3), ("credits", 2)]
    assert entries_page(api, f"{path}?until={at}")[0] == [("credits", 1)]
    assert entries_page(api, f"{path}?since={at}&until={at}")[0] == []
    assert entries_page(api, f"{path}?credit_type=sms")[0] == []
    assert entries_page(api, "/v1/holders/nobody/entries") == ([], {"results": [], "next": None, "previous": None})


OTHER_LISTS = [
    "/v1/holders/busy/entries?kind=grant&cursor={}",
    "/v1/holders/busy/entries?credit_type=sms&cursor={}",
    "/v1/holders/other/entries?cursor={}",
    "/v1/holders/busy/refusals?cursor={}",
    "/v1/holders?cursor={}",
]


@pytest.mark.parametrize("url", OTHER_LISTS)
def test_a_cursor_of_another_list_is_refused(api: ApiClient, history: list[tuple[str, int]], url: str) -> None:
    cursor = parse_qs(urlsplit(entries_page(api, "/v1/holders/busy/entries?limit=2")[1]["next"]).query)["cursor"][0]
    response = api.get(url.format(cursor))
    assert response.status_code == 400
    assert [(error["pointer"], error["code"]) for error in json.loads(response.content)["errors"]] == [
        ("/cursor", "not-a-cursor")
    ]


def test_a_cursor_that_was_altered_is_refused_at_every_character(api: ApiClient, history: list[tuple[str, int]]) -> None:
    cursor = parse_qs(urlsplit(entries_page(api, "/v1/holders/busy/entries?limit=2")[1]["next"]).query)["cursor"][0]
    for position in range(0, len(cursor) - 1, 5):
        altered = cursor[:position] + ("A" if cursor[position] != "A" else "B") + cursor[position + 1 :]
        assert api.get(f"/v1/holders/busy/entries?limit=2&cursor={altered}").status_code == 400
    assert api.get(f"/v1/holders/busy/entries?limit=2&cursor={cursor}").status_code == 200


def test_refusals_are_paged(api: ApiClient, holder: str) -> None:
    for number in range(5):
        assert api.post(f"/v1/holders/{holder}/spends", {"amount": 101 + number}, key=f"no-{number}").status_code == 402
    first = json.loads(api.get(f"/v1/holders/{holder}/refusals?limit=2").content)
    second = json.loads(api.get(first["next"]).content)
    third = json.loads(api.get(second["next"]).content)
    keys = [[refusal["idempotency_key"] for refusal in each["results"]] for each in (first, second, third)]
    assert keys == [["no-4", "no-3"], ["no-2", "no-1"], ["no-0"]]
    assert (third["next"], first["previous"]) == (None, None)
    assert json.loads(api.get(third["previous"]).content)["results"] == second["results"]


def test_holders_are_paged_by_name_and_credit_type(api: ApiClient) -> None:
    # Other tests commit their own holders; these have a prefix that none of those has.
    names = [f"paged:{name}" for name in ("A", "B:1", "a", "a-1", "b")]
    accounts = [(name, credit_type) for name in names for credit_type in ("credits", "sms")]
    for name, credit_type in accounts:
        services.grant(holder_id=name, amount=3, idempotency_key=credit_type, credit_type=credit_type)
    seen, url = [], "/v1/holders?prefix=paged:&limit=3"
    while url:
        body = json.loads(api.get(url).content)
        seen += [(account["holder_id"], account["credit_type"]) for account in body["results"]]
        url = body["next"]
    assert seen == accounts
    back, url = [], body["previous"]
    while url:
        body = json.loads(api.get(url).content)
        back = [(account["holder_id"], account["credit_type"]) for account in body["results"]] + back
        url = body["previous"]
    assert back == accounts[:9]
    found = json.loads(api.get("/v1/holders?prefix=paged:a&credit_type=sms").content)["results"]
    assert [(account["holder_id"], account["available"]) for account in found] == [("paged:a", 3), ("paged:a-1", 3)]
    assert list(found[0]) == [
        "holder_id",
        "credit_type",
        "available",
        "balance",
        "held",
        "sequence",
        "as_of",
        "lots",
        "next_expiry",
        "holds",
        "overdraft",
        "owed",
        "overage",
    ]


STEPS: list[Step] = [("a", []), ("a", ["b"]), ("b", ["a"]), ("b", [])]
"""SECRET_KEY and SECRET_KEY_FALLBACKS in each step of a rotation: docs/how-to/operations/security.md."""


@pytest.mark.parametrize(("one", "other"), [*pairwise(STEPS), *((other, one) for one, other in pairwise(STEPS))])
def test_a_list_goes_on_between_servers_at_neighbouring_steps_of_a_rotation(
    api: ApiClient, history: list[tuple[str, int]], one: Step, other: Step, settings: Settings
) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = one
    first, body = entries_page(api, "/v1/holders/busy/entries?limit=5")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = other
    assert first + entries_page(api, body["next"])[0] == history[:10]


def test_control_without_the_steps_between_the_next_page_is_refused(
    api: ApiClient, history: list[tuple[str, int]], settings: Settings
) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = STEPS[0]
    _, body = entries_page(api, "/v1/holders/busy/entries?limit=5")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = STEPS[-1]
    assert api.get(body["next"]).status_code == 400
