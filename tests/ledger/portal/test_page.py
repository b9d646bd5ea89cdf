"""The customer's page: what a link shows, what it hides, and that it opens nothing else."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import Settings

from ledger import services
from ledger.models import CreditType
from ledger.portal import links, usage
from ledger.portal.parts import _registered
from ledger.reads import usage_sums
from ledger.values import MAX_AMOUNT
from tests.asgi_client import AsgiClient

pytestmark = pytest.mark.django_db

ADDRESS = re.compile(r'href="(/[^"]*)"')


@pytest.fixture
def ada() -> str:
    """A holder with lots, spends, a hold and a second credit type."""
    now = datetime.now(UTC)
    CreditType.objects.create(code="usd_cents", name="Money", unit="USD", scale=2)
    give, who = services.grant, {"holder_id": "ada"}
    give(**who, amount=70_001, expires_at=now + timedelta(days=3), idempotency_key="1", reason="internal: lost a bet")
    give(**who, amount=8_002, source="promotional", idempotency_key="2")
    services.spend(**who, amount=1_003, idempotency_key="3", metadata={"<script>": "<script>"}, reference="<script>alert(1)")
    held = services.hold(**who, amount=204, idempotency_key="4")
    services.capture(**who, hold=held.sequence, amount=105, idempotency_key="5")
    services.refund(**who, spend=3, amount=6, idempotency_key="6")
    services.hold(**who, amount=307, idempotency_key="7")
    give(**who, amount=12_345, credit_type="usd_cents", idempotency_key="8")
    return "ada"


def path_of(url: str) -> str:
    return url.removeprefix("http://testserver")


def seen(client: Client, holder: str = "ada", more: str = "", **fields: Any) -> tuple[str, dict[str, Any]]:
    """The page of a link as HTML and as JSON."""
    made = links.link(holder_id=holder, **fields)
    html, data = client.get(made.url + more), client.get(made.data_url + more)
    assert (html.status_code, data.status_code) == (200, 200)
    return html.content.decode(), json.loads(data.content)


@pytest.mark.usefixtures("stopped_clock")
def test_the_page_shows_limits(client: Client) -> None:
    who = {"holder_id": "team"}
    services.grant(**who, amount=10_000, idempotency_key="1")
    services.set_budget(**who, budget="all", limit=5_000, window="rolling", hours=48, idempotency_key="2")
    services.set_budget(**who, budget="b", limit=1_000, window="month", by="label", label="member", idempotency_key="3")
    for member, amount in (("<ben>", 1_000), ("cleo", 250)):
        services.spend(**who, amount=amount, metadata={"member": member}, idempotency_key=member)
    html, data = seen(client, "team", language="de")
    named = [(row["name"], row["subject"], row["limit"], row["used"], row["remaining"]) for row in data["limits"]]
    assert named == [("all", None, 5_000, 1_250, 3_750), ("b", "<ben>", 1_000, 1_000, 0), ("b", "cleo", 1_000, 250, 750)]
    assert (data["limits"][1]["window"], data["limits"][1]["mode"], data["limits"][1]["within"]) == ("month", "hard", [])
    assert all(row["resets_at"] for row in data["limits"])
    for text in ("Limits", "Alles", "5.000 Guthabeneinheiten in 48 Stunden", "1.000 Guthabeneinheiten im Monat", "&lt;ben&gt;"):
        assert text in html
    hidden, data = seen(client, "team", hide_amounts=True)
    assert (data["limits"], "cleo" in hidden) == ([], False)


@pytest.mark.usefixtures("stopped_clock")
def test_the_page_says_from_when_a_limit_is_in_force(client: Client) -> None:
    starts_at = datetime(2199, 3, 1, tzinfo=UTC)
    services.set_budget(holder_id="ada", budget="all", limit=5_000, window="day", starts_at=starts_at, idempotency_key="1")
    html, data = seen(client, "ada", language="de")
    [row] = data["limits"]
    assert (row["limit"], row["used"], row["starts_at"]) == (5_000, 0, "2199-03-01T00:00:00.000000Z")
    assert "5.000 Guthabeneinheiten am Tag, ab 01.03.2199, 00:00" in html


def test_without_limits_nothing_is_said_of_them(client: Client, ada: str) -> None:
    html, data = seen(client)
    assert (data["limits"], 'id="limits"' in html) == ([], False)


@pytest.mark.usefixtures("stopped_clock")
def test_the_page_shows_balance_lots_usage_and_history(client: Client, ada: str) -> None:
    html, data = seen(client)
    assert [(each["credit_type"], each["available"], each["held"]) for each in data["accounts"]] == [
        ("credits", 76_594, 307),
        ("usd_cents", 12_345, 0),
    ]
    account = data["account"]
    assert [(lot["amount"], lot["source"], lot["expires_at"] is None) for lot in account["lots"]] == [
        (68_592, "purchased", False),
        (8_002, "promotional", True),
    ]
    assert [(entry["kind"], entry["amount"]) for entry in account["history"]][:3] == [
        ("hold", -307), ("refund", 6), ("capture", 0),
    ]  # fmt: skip
    assert len(account["usage"]) == usage.DAYS
    assert sum(day["used"] for day in account["usage"]) == account["usage"][-1]["used"] == 1_003 + 105 - 6
    for text in (
        "76,594",
        "307 reserved",
        "68,592",
        "−1,003",
        "Held credits spent",
        "1,102 credits used",
        "Money",
        "123.45",
        "never",
    ):
        assert text in html, text
    assert "lost a bet" not in html + json.dumps(data)
    assert "<script" not in html


@pytest.mark.usefixtures("stopped_clock")
def test_credits_for_some_things_only_are_shown_as_such(client: Client, ada: str) -> None:
    services.grant(holder_id="ada", amount=50, idempotency_key="r", applies_to={"labels": {"member": ["kim", "lee"]}})
    html, data = seen(client)
    assert data["accounts"][0]["for_other_things"] == [{"applies_to": {"labels": {"member": ["kim", "lee"]}}, "available": 50}]
    assert (data["accounts"][0]["available"], data["account"]["lots"][-1]["applies_to"]) == (
        76_594,
        {"labels": {"member": ["kim", "lee"]}},
    )
    assert "50 only for kim, lee" in html
    assert "Purchased, only for kim, lee" in html
    hidden, data = seen(client, hide_amounts=True)
    assert data["accounts"][0]["for_other_things"] == []
    assert "only for kim, lee" in hidden
    assert "50 only" not in hidden


def test_another_account_and_language_are_shown(client: Client, ada: str) -> None:
    html, data = seen(client, more="&type=usd_cents", language="de")
    assert data["account"]["credit_type"] == "usd_cents"
    assert '<html lang="de">' in html
    assert "+123,45" in html
    assert "Gutschrift" in html
    _, data = seen(client, more="&type=usd_cents", credit_types=["credits"])
    assert [each["credit_type"] for each in data["accounts"]] == ["credits"]
    assert data["account"]["credit_type"] == "credits"


def test_a_holder_without_credits_has_a_page_too(client: Client) -> None:
    html, data = seen(client, "nobody-yet")
    assert "There are no credits yet." in html
    assert (data["accounts"], data["account"]) == ([], None)


def numbers_in(text: str) -> set[str]:
    """The numbers of three or more digits in a text, without separators."""
    return set(re.findall(r"\d{3,}", re.sub(r"(?<=\d)[,.](?=\d{2,3}\b)", "", text)))


def test_hidden_amounts_are_nowhere(client: Client, ada: str) -> None:
    html, data = seen(client)
    amounts = {"76594", "307", "68592", "8002", "1003", "12345", "70001", "1102"}
    assert amounts <= numbers_in(html)
    for more in ("", "&type=usd_cents", "&before=5"):
        html, data = seen(client, more=more, hide_amounts=True)
        text = re.sub(r"link=[\w.-]+", "", html) + json.dumps(data)
        assert not amounts & numbers_in(text)
        assert "<svg" not in html
        assert data["account"]["usage"] is None
    assert "Amounts are hidden on this page." in html
    values = [
        value for row in (*data["accounts"], *data["account"]["lots"], *data["account"]["history"]) for value in row.items()
    ]
    named = ("available", "held", "owed", "amount", "balance")
    assert {value for name, value in values if name in named} == {None}
    # The link says so, not its reader.
    shown, _ = seen(client, more="&hide_amounts=false&a=false", hide_amounts=True)
    assert "76,594" not in shown


def test_the_history_has_pages(client: Client) -> None:
    services.grant(holder_id="bea", amount=1_000, idempotency_key="g")
    for number in range(45):
        services.spend(holder_id="bea", amount=1, idempotency_key=f"s{number}")
    made = links.link(holder_id="bea")
    found, before = [], ""
    for _ in range(3):
        data = json.loads(client.get(made.data_url + before).content)
        found += [entry["number"] for entry in data["account"]["history"]]
        before = f"&before={data['account']['older_than']}"
    assert found == list(range(46, 0, -1))
    assert before == "&before=None"
    html = client.get(made.url).content.decode()
    older = next(link for link in ADDRESS.findall(html) if "before=27" in link).replace("&amp;", "&")
    html = client.get(older).content.decode()
    assert "Newest" in html
    assert client.get(f"{made.url}&before=nonsense").status_code == 200
    assert client.get(f"{made.url}&before={'9' * 18}").status_code == 200


def test_lots_have_further_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.portal.content.LOTS_SHOWN", 2)
    for number in range(5):
        expires_at = datetime(2090 + number, 1, 1, tzinfo=UTC)
        services.grant(holder_id="bea", amount=number + 1, idempotency_key=f"g{number}", expires_at=expires_at)
    made = links.link(holder_id="bea")
    pages = [json.loads(client.get(f"{made.data_url}&lots_from={at}").content)["account"] for at in (0, 2, 4, 6)]
    assert [[lot["amount"] for lot in page["lots"]] for page in pages] == [[1, 2], [3, 4], [5], []]
    assert [page["more_lots"] for page in pages] == [3, 1, 0, 0]
    html = client.get(made.url).content.decode()
    further = next(link for link in ADDRESS.findall(html) if "lots_from=2" in link).replace("&amp;", "&")
    html = client.get(further).content.decode()
    assert ("Further" in html, "Beginning" in html) == (True, True)
    assert client.get(f"{made.url}&lots_from=-1").status_code == 200


def test_the_number_of_statements_does_not_grow(client: Client, ada: str, django_assert_num_queries: Any) -> None:
    made = links.link(holder_id="ada")
    client.get(made.url)
    from django.db import connection

    with CaptureQueriesContext(connection) as first:
        client.get(made.url)
    for number in range(30):
        services.spend(holder_id="ada", amount=1, idempotency_key=f"more-{number}")
        services.grant(holder_id="ada", amount=1, idempotency_key=f"grant-{number}")
    with CaptureQueriesContext(connection) as then:
        client.get(made.url)
    assert len(first) == len(then) <= 8
    assert not [each["sql"] for each in then if "lock" in each["sql"].lower()]


def test_usage_is_that_of_the_zones_days(ada: str) -> None:
    zone, now = usage.ZoneInfo("Pacific/Kiritimati"), datetime.now(UTC)
    days = usage.read_usage("ada", "credits", zone=zone, now=now).days
    assert days[-1] == (now.astimezone(zone).date(), 1_102)
    assert [day.used for day in days[:-1]] == [0] * 29


def test_usage_is_also_by_model_and_by_member_in_the_customers_language(client: Client, ada: str) -> None:
    html, data = seen(client)
    assert (data["account"]["usage_by_model"], "Usage by model" in html) == ([], False)
    for number in range(10):
        labels = {"model": "large" if number % 2 else "small", "member": f"m{number}"}
        services.spend(holder_id="ada", amount=10 + number, metadata=labels, idempotency_key=f"labelled-{number}")
    html, data = seen(client)
    account = data["account"]
    assert account["usage_by_model"] == [
        {"group": "value", "name": "large", "used": 75},
        {"group": "value", "name": "small", "used": 70},
        {"group": "without", "name": None, "used": 1_102},
    ]
    assert [each["used"] for each in account["usage_by_member"]] == [19, 18, 17, 16, 15, 14, 13, 12, 21, 1_102]
    assert sum(each["used"] for each in account["usage_by_member"]) == sum(day["used"] for day in account["usage"]) == 1_247
    assert all(text in html for text in ("Usage by model", "Usage by member", "All others", "Not named"))
    german, _ = seen(client, language="de")
    assert all(text in german for text in ("Verbrauch nach Modell", "Verbrauch nach Mitglied", "Alle anderen", "Nicht benannt"))


def test_usage_is_also_by_member_and_rate_together_where_a_member_used_a_rate(client: Client, ada: str) -> None:
    services.spend(holder_id="ada", amount=4, metadata={"member": "ann"}, idempotency_key="unrated")
    html, data = seen(client)
    assert (data["account"]["usage_by_member_and_rate"], "Usage by member and rate" in html) == ([], False)
    services.publish_rate(credit_type="credits", code="chat-large", price=2, per=1, idempotency_key="p")
    for member in ("ann", "ben", ""):
        labels = {"member": member} if member else {}
        services.spend(holder_id="ada", rate="chat-large", quantity=5, metadata=labels, idempotency_key=f"rated-{member}")
    html, data = seen(client)
    account = data["account"]
    assert account["usage_by_member_and_rate"] == [
        {"group": "value", "name": "ann", "rate": "chat-large", "used": 10},
        {"group": "value", "name": "ben", "rate": "chat-large", "used": 10},
        {"group": "value", "name": "ann", "rate": None, "used": 4},
        {"group": "without", "name": None, "rate": None, "used": 1_102},
        {"group": "without", "name": None, "rate": "chat-large", "used": 10},
    ]
    assert sum(each["used"] for each in account["usage_by_member_and_rate"]) == sum(day["used"] for day in account["usage"])
    assert all(text in html for text in ("Usage by member and rate", "chat-large", "No rate"))
    german, _ = seen(client, language="de")
    assert all(text in german for text in ("Verbrauch nach Mitglied und Tarif", "Kein Tarif"))


def test_amounts_that_readers_round_are_strings_too_and_sums_may_exceed_a_bigint(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        services.grant(holder_id="cleo", amount=MAX_AMOUNT, idempotency_key=f"g{number}")
    services.spend(holder_id="cleo", amount=MAX_AMOUNT, idempotency_key="s")
    monkeypatch.setattr(usage_sums, "USAGE", usage_sums.USAGE.replace("NULL AS rate, s.amount", "NULL AS rate, s.amount * 2000"))
    html, data = seen(client, "cleo")
    assert data["accounts"][0]["exact_integers"] == {"available": str(2 * MAX_AMOUNT)}
    assert data["account"]["usage"][-1]["exact_integers"] == {"used": str(2_000 * MAX_AMOUNT)}
    assert f"{2_000 * MAX_AMOUNT:,}" in html


# Headers, and what is refused ------------------------------------------------------------------------


def addresses(holder: str = "ada") -> list[str]:
    """All addresses of a page."""
    made = links.link(holder_id=holder)
    return [made.url, made.data_url, made.url.replace("/c/?", "/c/documents/invoice-1.pdf?")]


@pytest.mark.parametrize("origins", [[], ["https://shop.example", "http://localhost:3000"]])
def test_no_cache_search_engine_or_other_page_keeps_it(client: Client, ada: str, settings: Settings, origins: list[str]) -> None:
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_FRAMED_BY": [*origins, "https://a; b"][: len(origins) + bool(origins)]}
    for address in [*addresses(), "/c/", "/c/data?link=wrong"]:
        response = client.get(address)
        policy = response["Content-Security-Policy"]
        assert f"frame-ancestors {' '.join(origins) or chr(39) + 'none' + chr(39)}" in policy.split("; ")
        assert policy.startswith("default-src 'none'; style-src 'self'; ")
        assert "script-src" not in policy
        assert response.get("X-Frame-Options") == (None if origins else "DENY")
        assert response["Cache-Control"] == "no-store"
        assert response["Referrer-Policy"] == "no-referrer"
        assert response["X-Robots-Tag"].startswith("noindex")
        assert not response.cookies
        assert " style=" not in response.content.decode()
        assert "<script" not in response.content.decode()


def test_other_methods_are_refused(ada: str) -> None:
    client = Client(enforce_csrf_checks=True)
    for address in addresses():
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            response = client.generic(method, address)
            assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")
        assert client.head(address).content == b""


def test_a_wrong_or_expired_link_says_nothing_of_the_holder_and_reads_nothing(
    client: Client, ada: str, django_assert_num_queries: Any
) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(hours=1), tick=False):
        expired = [*addresses(), *addresses("nobody")]
    wrong = [address[:-1] + ("A" if address[-1] != "A" else "B") for address in addresses()]
    with django_assert_num_queries(0):
        found = [client.get(address) for address in [*expired, *wrong, "/c/", "/c/?link=", "/c/data?link=%00"]]
    assert {response.status_code for response in found} == {410}
    assert len({response.content for response in found}) == 1
    assert b"This link has expired" in found[0].content


def routes(patterns: list[Any], prefix: str = "/") -> Iterator[str]:
    """An address for each view of the project, with 1 in each place."""
    for pattern in patterns:
        route = prefix + re.sub(r"<[^>]*>", "1", re.sub(r"[\^$\\]|\(\?.*", "", str(pattern.pattern)))
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


def test_the_link_opens_nothing_else(client: Client, ada: str) -> None:
    token = links.link(holder_id="ada").url.partition("link=")[2]
    others = [route for route in routes(get_resolver().url_patterns) if not route.startswith(("/c/", "/docs"))]
    assert len(others) > 200

    def outcome(response: HttpResponse) -> Any:
        return response.status_code, response.headers.get("Location", "").partition("?")[0]

    opened = [
        route for route in others if outcome(client.get(f"{route}?link={token}")) != outcome(client.get(f"{route}?link=wrong"))
    ]
    assert opened == []
    answer = AsgiClient().get("/v1/holders/ada/balance", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401


def test_the_page_names_no_address_but_its_own(client: Client, ada: str) -> None:
    html, _ = seen(client)
    assert not re.search(r'(?:href|src)="(?!#|/c/\?|/c/documents/|/static/|data:,)', html)
    assert not re.search(r"https?://", html)


def test_a_part_that_is_registered_is_escaped(client: Client, ada: str) -> None:
    from ledger.portal.parts import Cell, PageList, register

    class Hostile:
        name, language, time_zone = "<script>alert(1)</script>", "en", "Mars/Olympus"

        def sections(self, shown: Any) -> list[PageList]:
            evil = "<script>alert(2)</script>"
            cells = [[Cell(evil, 'x"><script>')]]
            return [PageList(name="evil", title=evil, empty=evil, headers=[Cell(evil)], cells=cells, rows=[{"x": evil}])]

        def document(self, name: str) -> None:
            return None

    register(lambda holder: Hostile())
    try:
        html, data = seen(client)
    finally:
        _registered.pop()
    assert "<script" not in html
    assert "&lt;script&gt;alert(2)" in html
    assert data["time_zone"] == "UTC"
    assert data["evil"] == [{"x": "<script>alert(2)</script>"}]


@pytest.fixture
def front() -> None:
    """The front has started, and has set up the logs: within a test that would end what `caplog` captures."""
    AsgiClient().get("/healthz")


@pytest.mark.usefixtures("front")
def test_no_log_has_the_token(ada: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = links.link(holder_id="ada").url.partition("link=")[2]
    for path in ("/c/", "/c/data", "/c/documents/invoice-1.pdf", "/c/nowhere"):
        AsgiClient().get(f"{path}?link={token}")
        AsgiClient().get(f"{path}?link={token}x")
        Client().get(f"{path}?link={token}x")
    requests = [record.getMessage() for record in caplog.records if record.name == "ledger.requests"]
    assert "GET /c/" in requests
    assert [record for record in caplog.records if token[:40] in f"{record.getMessage()} {vars(record).get('facts')}"] == []


@pytest.mark.parametrize(
    ("limit", "words"), [(500, "120 of 500 used beyond them until 1\xa0"), (None, "120 used beyond them until 1\xa0")]
)
def test_the_page_shows_what_is_used_on_overage(client: Client, limit: int | None, words: str) -> None:
    services.set_overage(
        holder_id="eve", limit=limit, anchor_at=datetime(2026, 1, 1, tzinfo=UTC), time_zone="UTC", idempotency_key="o"
    )
    services.spend(holder_id="eve", amount=120, idempotency_key="s")
    html, data = seen(client, "eve")
    [account] = data["accounts"]
    assert (account["available"], account["overage"]["used"], account["overage"]["limit"]) == (0, 120, limit)
    assert words in html
    html, data = seen(client, "eve", hide_amounts=True)
    assert data["accounts"][0]["overage"] is None
    assert "120" not in numbers_in(html)
