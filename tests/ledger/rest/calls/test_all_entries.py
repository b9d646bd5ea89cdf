"""Finding entries of all holders, following them, reading one by its id, and several balances at once."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from django.db import connections
from django.test import Client

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.reads import entry_search
from ledger.rest.kit.endpoint import _waiting_threads
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal

pytestmark = pytest.mark.one_node("a cluster has no feed")

TYPES = ("credits", "sms")


@pytest.fixture
def history(db: None) -> list[str]:
    """The ids of 19 entries of four holders, the oldest first; `ada/credits/3` is a refusal."""
    made = [
        services.grant(
            holder_id=holder,
            credit_type=credit_type,
            amount=1 + number,
            idempotency_key=f"{credit_type}-{number}",
            reference=f"order-{number}",
            metadata={"order": number, "channel": "web" if number else "shop"},
            actor=f"key:{holder}",
        )
        for number in range(3)
        for holder in ("bob", "ada", "Cyd")
        for credit_type in TYPES
    ]
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=99, idempotency_key="no", actor="key:ada")
    made.append(
        services.spend(
            holder_id="ada",
            amount=2,
            idempotency_key="s",
            reference="order-1",
            actor="key:till",
        )
    )
    return [f"{entry.holder_id}/{entry.credit_type}/{entry.sequence}" for entry in made]


def page(api: ApiClient, url: str) -> tuple[list[str], dict[str, Any]]:
    """The ids of a page, and the page."""
    response = api.get(url)
    assert response.status_code == 200, response.content
    body = json.loads(response.content)
    assert list(body) == ["results", "next", "previous"]
    return [entry["id"] for entry in body["results"]], body


def found(api: ApiClient, query: str) -> list[str]:
    """The ids of all pages of a list."""
    ids, url = [], f"/v1/entries?{query}"
    while url:
        more, body = page(api, url)
        ids += more
        url = body["next"]
    return ids


# Search ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 5, 19])
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_every_entry_is_shown_once_there_and_back(api: ApiClient, history: list[str], limit: int, order: str) -> None:
    expected = history if order == "oldest" else history[::-1]
    ids, url = [], f"/v1/entries?limit={limit}&order={order}"
    while url:
        last, body = page(api, url)
        ids, url = ids + last, body["next"]
    assert ids == expected
    back = last
    while body["previous"]:
        more, body = page(api, body["previous"])
        assert len(more) == limit
        back = more + back
    assert back == expected


SEARCHES: dict[str, Any] = {
    "reference=order-1": lambda each: each in OF_ORDER_1,
    "reference=order-9": lambda each: False,
    "kind=spend": lambda each: each == "ada/credits/5",
    "kind=refusal": lambda each: each == "ada/credits/4",
    "refusals=true&holder=ada&credit_type=credits": lambda each: each.startswith("ada/credits/"),
    "credit_type=sms": lambda each: "/sms/" in each,
    "actor=key:Cyd": lambda each: each.startswith("Cyd/"),
    "metadata=order:2": lambda each: each.endswith("/3"),
    "metadata=channel:shop&holder=bob": lambda each: each in ("bob/credits/1", "bob/sms/1"),
    "holder=bob": lambda each: each.startswith("bob/"),
    "holder=bob&kind=spend": lambda each: False,
    "holder=nobody": lambda each: False,
    "holder=ada&idempotency_key=sms-1": lambda each: each == "ada/sms/2",
    "holder=ada&reference=order-1&kind=spend": lambda each: each == "ada/credits/5",
}


@pytest.mark.parametrize(("scanned", "limit"), [(2, 3), (5000, 50)])
def test_a_search_finds_what_fits_and_nothing_else(
    api: ApiClient, history: list[str], monkeypatch: pytest.MonkeyPatch, scanned: int, limit: int
) -> None:
    """However few entries a page looks at."""
    monkeypatch.setattr(entry_search, "SCANNED_ROWS", scanned)
    for query, wanted in SEARCHES.items():
        whole = [*history[:18], *(["ada/credits/4"] if "refusal" in query else []), history[18]]
        expected = [each for each in whole if wanted(each)]
        assert found(api, f"{query}&order=oldest&limit={limit}") == expected, query
        assert found(api, f"{query}&limit={limit}") == expected[::-1], query


OF_ORDER_1 = {f"{holder}/{credit_type}/2" for holder in ("ada", "bob", "Cyd") for credit_type in TYPES} | {"ada/credits/5"}


def test_since_and_until_bound_both_orders(api: ApiClient, history: list[str]) -> None:
    times = {entry["id"]: entry["recorded_at"] for entry in page(api, "/v1/entries")[1]["results"]}
    since, until = (quote(times[history[place]]) for place in (5, 9))
    for query in ("", "&credit_type=sms", "&holder=ada"):
        kept = [each for each in found(api, f"order=oldest{query}") if times[history[5]] <= times[each] < times[history[9]]]
        assert found(api, f"order=oldest&since={since}&until={until}&limit=2{query}") == kept
        assert found(api, f"since={since}&until={until}&limit=2{query}") == kept[::-1]
    assert found(api, f"since={until}&until={since}") == []


def test_a_reference_that_many_entries_have_is_looked_for_by_time(
    api: ApiClient, history: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_search, "SCANNED_ROWS", 3)
    statements = []
    scan = entry_search._scan
    monkeypatch.setattr(entry_search, "_scan", lambda *given: statements.append(given[0]._name) or scan(*given))
    api.get("/v1/entries?reference=order-1")
    assert statements == ["entries_referenced_True", "entries_recorded_True"]
    monkeypatch.setattr(entry_search, "SCANNED_ROWS", 8)
    api.get("/v1/entries?reference=order-1")
    assert statements[2:] == ["entries_referenced_True"]


def test_a_page_that_found_nothing_yet_leads_on(api: ApiClient, history: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_search, "SCANNED_ROWS", 4)
    ids, body = page(api, "/v1/entries?kind=grant&actor=key:bob&order=newest")
    assert ids == []
    assert body["next"] is not None
    assert found(api, urlsplit(body["next"]).query) == [each for each in history[::-1] if each.startswith("bob/")]


# The feed --------------------------------------------------------------------------------------------


def followed(api: ApiClient, query: str) -> list[str]:
    """The ids of the feed, to the first empty page that leads no further."""
    ids, url, before = [], f"/v1/entries?{query}", ""
    while url != before:
        more, body = page(api, url)
        assert body["previous"] is None
        ids, before, url = ids + more, url, body["next"]
    return ids


@pytest.mark.parametrize(("scanned", "limit"), [(1, 4), (5, 1), (5000, 50)])
def test_the_feed_has_every_entry_once(
    api: ApiClient, history: list[str], monkeypatch: pytest.MonkeyPatch, scanned: int, limit: int
) -> None:
    monkeypatch.setattr(entry_search, "SCANNED_ROWS", scanned)
    whole = [*history[:18], "ada/credits/4", history[18]]
    assert followed(api, f"after=start&limit={limit}&refusals=true") == whole
    assert followed(api, f"after=start&limit={limit}") == history
    assert followed(api, f"after=start&limit={limit}&kind=spend") == history[18:]
    assert followed(api, f"after=start&limit={limit}&kind=refusal") == ["ada/credits/4"]
    assert followed(api, f"after=start&limit={limit}&credit_type=sms") == [each for each in history if "/sms/" in each]
    assert followed(api, f"after=start&limit={limit}&holder=ada&refusals=true") == [
        each for each in whole if each.startswith("ada/")
    ]


def test_a_position_of_one_filter_goes_on_in_another(api: ApiClient, history: list[str]) -> None:
    for place in (0, 3, 4, 17, 18):
        _, body = page(api, f"/v1/entries?after=start&limit={place + 1}&refusals=true")
        after = parse_qs(urlsplit(body["next"]).query)["after"][0]
        whole = [*history[:18], "ada/credits/4", history[18]]
        for holder in ("Cyd", "ada", "bob"):
            rest = [each for each in whole[place + 1 :] if each.startswith(f"{holder}/")]
            assert followed(api, f"after={after}&holder={holder}&refusals=true") == rest


def test_the_feed_begins_at_an_instant_or_at_its_end(api: ApiClient, history: list[str]) -> None:
    entry = json.loads(api.get(f"/v1/entries/{history[7]}").content)
    assert followed(api, f"after={quote(entry['recorded_at'])}") == history[7:]
    ids, body = page(api, "/v1/entries?after=end")
    assert ids == []
    services.grant(holder_id="new", amount=1, idempotency_key="1")
    assert page(api, body["next"])[0] == ["new/credits/1"]


def test_a_position_that_the_ledger_does_not_have_is_gone(api: ApiClient, history: list[str]) -> None:
    position = reads.feed(limit=1).next._replace(sequence=77)
    problem = problem_of_refusal(api.get(f"/v1/entries?after={position.text}"), 410)
    assert problem["type"].endswith("/feed-position-lost")
    assert (problem["holder_id"], problem["sequence"]) == ("bob", 77)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.usefixtures("committed_db")
def test_a_wait_ends_with_an_empty_page(make_api: Any, new_holder: Any) -> None:
    assert page(make_api("ledger:read"), f"/v1/entries?after=end&wait=1&holder={new_holder()}")[0] == []


@pytest.mark.usefixtures("committed_db")
def test_a_call_that_waits_gets_an_entry_when_it_is_committed(make_api: Any, new_holder: Any) -> None:
    api, holder = make_api("ledger:read"), new_holder()
    after = reads.feed_end().text

    def wait() -> list[str]:
        ids: list[str] = []
        url = f"/v1/entries?after={after}&wait=4&holder={holder}"
        try:
            while not ids:
                ids, body = page(api, url)
                url = body["next"]
        finally:
            connections.close_all()
        return ids

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        services.grant(holder_id=new_holder(), amount=1, idempotency_key="1")
        services.grant(holder_id=holder, amount=1, idempotency_key="1")
        assert waiting.result(60) == [f"{holder}/credits/1"]


def test_only_so_many_threads_of_a_project_wait(db: None, make_api: Any) -> None:
    api = make_api("ledger:read")
    taken = 0
    while _waiting_threads.acquire(blocking=False):
        taken += 1
    try:
        response = Client().get("/v1/entries?after=end&wait=1", headers={"Authorization": f"Bearer {api.secret}"})
        assert response["Retry-After"] == "1"
        problem_of_refusal(response, 503)
    finally:
        for _ in range(taken):
            _waiting_threads.release()


# By id -----------------------------------------------------------------------------------------------


def test_an_entry_is_read_by_its_id(api: ApiClient, history: list[str]) -> None:
    for each in history:
        entry = json.loads(api.get(f"/v1/entries/{each}").content)
        holder, credit_type, sequence = each.split("/")
        same = json.loads(api.get(f"/v1/holders/{holder}/entries/{sequence}?credit_type={credit_type}").content)
        assert entry == same
        assert entry["id"] == each


@pytest.mark.parametrize(
    "entry_id", ["ada/credits/77", "ada/other/1", "nobody/credits/1", "ada/Credits/1", "ada/credits/0", "ada/credits"]
)
def test_no_other_id_is_an_entrys(api: ApiClient, history: list[str], entry_id: str) -> None:
    problem_of_refusal(api.get(f"/v1/entries/{entry_id}"), 404)


# Confines --------------------------------------------------------------------------------------------


def test_a_key_of_one_holder_sees_only_that_holder(make_api: Any, history: list[str]) -> None:
    api = make_api("ledger:read", holder_id="ada")
    own = [each for each in history if each.startswith("ada/")]
    assert found(api, "order=oldest") == own
    assert followed(api, "after=start&limit=2") == own
    assert found(api, "reference=order-0&order=oldest") == own[:2]
    for path in (
        "/v1/entries?holder=bob",
        "/v1/entries?after=start&holder=nobody",
        f"/v1/entries/{history[0]}",
        "/v1/balances?accounts=ada,bob",
    ):
        problem_of_refusal(api.get(path), 404)
    assert api.get("/v1/balances?accounts=ada,ada/sms").status_code == 200


# Balances --------------------------------------------------------------------------------------------


def test_several_balances_come_in_the_order_in_which_they_were_named(api: ApiClient, history: list[str]) -> None:
    body = json.loads(api.get("/v1/balances?accounts=bob/sms,nobody,ada,bob/sms").content)
    assert [(each["holder_id"], each["credit_type"], each["balance"]) for each in body["results"]] == [
        ("bob", "sms", 6),
        ("nobody", "credits", 0),
        ("ada", "credits", 4),
        ("bob", "sms", 6),
    ]
    alone = json.loads(api.get("/v1/holders/ada/balance").content)
    assert body["results"][2] | {"as_of": ""} == alone | {"as_of": ""}


# Lots and grants -------------------------------------------------------------------------------------


def listed(api: ApiClient, url: str) -> list[dict[str, Any]]:
    """The items of all pages, there; and back again, which must be the same."""
    there, pages, link = [], [], url
    while link:
        body = json.loads(api.get(link).content)
        pages.append(body)
        there += body["results"]
        link = body["next"]
    back = pages[-1]["results"]
    while pages[-1]["previous"]:
        pages.append(json.loads(api.get(pages[-1]["previous"]).content))
        back = pages[-1]["results"] + back
    assert back == there
    return there


@pytest.fixture
def lots(db: None) -> None:
    """Five grants to `ada`, the second spent, the third partly held; and one in another type."""
    for number in range(5):
        services.grant(holder_id="ada", amount=10, priority=90 if number == 1 else 100 + number % 2, idempotency_key=str(number))
    services.grant(holder_id="ada", credit_type="sms", amount=7, idempotency_key="sms")
    services.spend(holder_id="ada", amount=10, idempotency_key="s")
    services.hold(holder_id="ada", amount=14, idempotency_key="h")


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_open_lots_are_listed_by_their_grants(api: ApiClient, lots: None, limit: int) -> None:
    found = listed(api, f"/v1/holders/ada/lots?limit={limit}")
    assert [(lot["grant"], lot["remaining"]) for lot in found] == [(3, 6), (4, 10), (5, 10)]
    balance = json.loads(api.get("/v1/holders/ada/balance").content)
    assert sorted(balance["lots"], key=lambda lot: lot["grant"]) == found
    assert [lot["remaining"] for lot in listed(api, "/v1/holders/ada/lots?credit_type=sms")] == [7]
    assert listed(api, "/v1/holders/nobody/lots") == []


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_grants_are_listed_with_what_is_left_of_them(api: ApiClient, lots: None, limit: int) -> None:
    found = listed(api, f"/v1/holders/ada/grants?limit={limit}")
    assert [(grant["sequence"], grant["amount"], (grant["lot"] or {}).get("remaining")) for grant in found] == [
        (5, 10, 10), (4, 10, 10), (3, 10, 6), (2, 10, None), (1, 10, None),
    ]  # fmt: skip
    entry = json.loads(api.get("/v1/entries/ada/credits/3").content)
    assert {name: value for name, value in found[2].items() if name != "lot"} == entry
    assert found[2]["lot"] == json.loads(api.get("/v1/holders/ada/lots?limit=1").content)["results"][0]


@pytest.mark.parametrize("name", ["lots", "grants"])
def test_lots_and_grants_of_others_are_not_there(make_api: Any, lots: None, name: str) -> None:
    problem_of_refusal(make_api("ledger:read", holder_id="bob").get(f"/v1/holders/ada/{name}"), 404)
    problem_of_refusal(make_api("ledger:grant").get(f"/v1/holders/ada/{name}"), 403)
    problem_of_refusal(make_api("ledger:read").get(f"/v1/holders/ada/{name}?kind=grant"), 400, ("/kind", "unknown-field"))


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        ("entries?after=", "/after", "too-short"),
        ("entries?after=x", "/after", "not-a-cursor"),
        ("entries?after=%C3%A9", "/after", "not-a-cursor"),
        ("entries?after=W10", "/after", "not-a-cursor"),
        ("entries?after=2026-01-31", "/after", "not-a-time"),
        ("entries?after=2026-01-31T09:30:00", "/after", "no-offset"),
        ("entries?after=start&wait=5", "/wait", "too-large"),
        ("entries?after=start&wait=-1", "/wait", "too-small"),
        ("entries?after=start&wait=1.5", "/wait", "not-an-integer"),
        ("entries?wait=1", "/wait", "needs-after"),
        ("entries?after=start&order=oldest", "/order", "not-with-after"),
        ("entries?after=start&reference=x", "/reference", "not-with-after"),
        ("entries?after=start&since=2026-01-31T09:30:00Z", "/since", "not-with-after"),
        ("entries?idempotency_key=x", "/holder", "required"),
        ("entries?order=up", "/order", "not-a-choice"),
        ("entries?kind=gift", "/kind", "not-a-choice"),
        ("entries?refusals=1", "/refusals", "not-a-boolean"),
        ("entries?metadata=order", "/metadata", "pattern"),
        ("entries?metadata=:7", "/metadata", "pattern"),
        ("entries?metadata=:", "/metadata", "too-short"),
        ("entries?metadata=" + "k" * 65 + ":7", "/metadata", "pattern"),
        ("entries?reference=" + "r" * 201, "/reference", "too-long"),
        ("entries?holder=a%20b", "/holder", "pattern"),
        ("entries?limit=201", "/limit", "too-large"),
        ("entries?cursor=x", "/cursor", "not-a-cursor"),
        ("entries?colour=x", "/colour", "unknown-field"),
        ("balances", "/accounts", "required"),
        ("balances?accounts=", "/accounts", "too-short"),
        ("balances?accounts=ada,", "/accounts", "pattern"),
        ("balances?accounts=ada/", "/accounts", "pattern"),
        ("balances?accounts=ada/SMS", "/accounts", "pattern"),
        ("balances?accounts=" + ",".join(["a"] * 51), "/accounts", "pattern"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_by_name_and_rule(api: ApiClient, query: str, pointer: str, code: str) -> None:
    problem_of_refusal(api.get(f"/v1/{query}"), 400, (pointer, code))


def test_a_cursor_of_another_search_is_refused(api: ApiClient, history: list[str]) -> None:
    _, body = page(api, "/v1/entries?limit=2&kind=grant")
    cursor = parse_qs(urlsplit(body["next"]).query)["cursor"][0]
    for query in ("", "kind=spend&", "kind=grant&order=oldest&"):
        problem_of_refusal(api.get(f"/v1/entries?{query}cursor={cursor}"), 400, ("/cursor", "not-a-cursor"))


def test_an_instant_to_come_is_a_place_behind_the_end(api: ApiClient, history: list[str]) -> None:
    at = (reads.entries("ada")[0].position[0] + timedelta(days=1)).isoformat()
    assert page(api, f"/v1/entries?after={quote(at)}")[0] == []
