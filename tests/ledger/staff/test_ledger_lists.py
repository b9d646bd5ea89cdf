"""Lists of holders and entries: narrowed by filters, added up, saved as CSV, in the unit and decimals of the credit type."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta

import pytest

from ledger import services
from ledger.models import CreditType, StaffEvent
from ledger.staff import accounts
from ledger.staff.kit import saved_lists
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db

ACCOUNTS = "/admin/ledger/account/"
ENTRIES = "/admin/ledger/entrylisting/"


@pytest.fixture
def holders():
    """ada has 5 that expire in 3 days; bob 1,000 of which 60 are held; cy owes 30; dee has 12.34 USD."""
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    soon = datetime.now(UTC) + timedelta(days=3)
    services.grant(holder_id="ada", amount=5, idempotency_key="g", expires_at=soon, reference="=1+1")
    services.grant(holder_id="bob", amount=1_000, idempotency_key="g")
    services.hold(holder_id="bob", amount=60, idempotency_key="h")
    services.set_overdraft(holder_id="cy", limit=100, idempotency_key="o")
    services.spend(holder_id="cy", amount=30, idempotency_key="s")
    services.grant(holder_id="dee", amount=1_234, credit_type="usd_cents", idempotency_key="g")


def holders_listed(client, query):
    """The holders of the list of accounts with this query string, in the order shown."""
    page = client.get(ACCOUNTS + query).content.decode()
    return re.findall(r"account/holders/([^/]+)/\?type=", page)


def csv_rows(client, url):
    """The rows of the list's CSV file, by heading."""
    response = client.get(url)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"].startswith("attachment;")
    text = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


# Holders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["ada", "bob", "cy", "dee"]),
        ("?at_most=100", ["ada", "cy", "dee"]),
        ("?at_most=1,300", ["ada", "bob", "cy", "dee"]),
        ("?at_most=12.34&credit_type=usd_cents", ["dee"]),
        ("?at_most=12.3399&credit_type=usd_cents", []),
        ("?with=held", ["bob"]),
        ("?with=owed", ["cy"]),
        ("?with=overdraft", ["cy"]),
    ],
)
def test_holders_are_narrowed_by_what_they_have(client, holders, query, expected):
    assert holders_listed(client, query) == expected


def test_holders_are_narrowed_by_what_expires(client, holders):
    now = datetime.now(UTC)
    assert holders_listed(client, f"?expires_before={now + timedelta(days=4):%Y-%m-%d}") == ["ada"]
    assert holders_listed(client, f"?expires_before={now + timedelta(days=1):%Y-%m-%d}") == []


@pytest.mark.products(most=2)
@pytest.mark.parametrize(
    "query",
    [
        "?at_most=x",
        "?at_most=-1",
        "?at_most=12,50",
        "?at_most=1e3",
        "?at_most=" + "9" * 41,
        "?with=wings",
        "?expires_before=soon",
    ],
)
def test_a_wrong_filter_is_said_and_shows_nothing(client, holders, query):
    response = client.get(ACCOUNTS + query)
    assert response.status_code == 200
    assert "is not a" in text_of(response.content.decode())
    assert holders_listed(client, query) == []
    assert client.get(f"{ACCOUNTS}csv/{query}").status_code == 302
    assert not StaffEvent.objects.filter(action="exported").exists()


def test_what_is_filtered_is_added_up_by_credit_type(client, holders):
    page = text_of(client.get(f"{ACCOUNTS}?at_most=100000").content.decode())
    assert "Credits: 3 accounts with 1,015 credits available, 60 held, 30 owed." in page
    assert "US dollars: 1 account with 12.34 USD available." in page
    assert "accounts with" not in text_of(client.get(ACCOUNTS).content.decode()), "nothing is filtered"


@pytest.mark.slow
def test_a_click_looks_at_a_bounded_number_of_accounts_and_the_next_goes_on(client, holders, monkeypatch):
    monkeypatch.setattr(accounts, "ACCOUNTS_LOOKED_AT", 2)
    monkeypatch.setattr("ledger.staff.kit.pages.PAGE_ROWS", 1)
    page = client.get(f"{ACCOUNTS}?with=owed").content.decode()
    assert "The search covers 2 accounts, up to bob" in text_of(page)
    assert "The sums cover 2 accounts." not in text_of(page), "none of them fits: nothing is added up"
    assert holders_listed(client, "?with=owed") == []
    assert holders_listed(client, "?with=owed&p=bob/credits") == ["cy"]


def test_holders_are_saved_as_shown_with_decimals(client, holders):
    rows = csv_rows(client, f"{ACCOUNTS}csv/?with=held")
    assert [(row["Holder"], row["Available"], row["Held"], row["Owed"]) for row in rows] == [("bob", "940", "60", "0")]
    (dee,) = csv_rows(client, f"{ACCOUNTS}csv/?credit_type=usd_cents")
    assert (dee["Available"], dee["Unit"]) == ("12.34", "USD")
    events = StaffEvent.objects.filter(action="exported").order_by("id").values_list("object", "details")
    assert [details for _, details in events] == ["with is held", "credit type is usd_cents"]
    assert operator("ledger.view_entrylisting", name="ben").get(f"{ACCOUNTS}csv/").status_code == 403


# Entries ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_amounts_of_entries_and_rates_have_the_unit_and_decimals_of_their_type(client, holders):
    services.publish_rate(code="gpt", credit_type="usd_cents", price=250, per=1_000)
    assert "+12.34 USD" in text_of(client.get(ENTRIES).content.decode())
    assert "+1,000 " in text_of(client.get(ENTRIES).content.decode())
    assert "2.50 USD per 1,000 units" in text_of(client.get("/admin/ledger/ratelisting/").content.decode())
    entry = text_of(client.get(f"{ENTRIES}dee_2Fusd_5Fcents_2F1/change/").content.decode())
    assert "Amount +12.34 USD Balance after 12.34" in entry


def test_entries_are_added_up_where_the_list_is_narrowed(client, holders):
    services.spend(holder_id="bob", amount=40, idempotency_key="s")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    page = text_of(client.get(f"{ENTRIES}?since={today}").content.decode())
    assert "Credits: 6 entries, +1,005 and −130, together +875 credits." in page
    assert "US dollars: 1 entry, +12.34 and 0.00, together +12.34 USD." in page
    of_bob = text_of(client.get(f"{ENTRIES}?q=bob").content.decode())
    assert "Credits: 3 entries, +1,000 and −100, together +900 credits." in of_bob
    assert "Credits: 1 entry, 0 and −40, together −40 credits." in text_of(
        client.get(f"{ENTRIES}?q=bob&kind=spend").content.decode()
    )
    assert "together" not in text_of(client.get(ENTRIES).content.decode())


@pytest.mark.products(most=3)
@pytest.mark.parametrize("since", ["0001-01-01T00:00", "0001-01-01T00:00%2B14:00", "9999-12-31", "9999-12-31T23:59-14:00"])
@pytest.mark.parametrize("query", ["", "&q=ada", "&q=a*"])
def test_times_at_the_ends_of_the_calendar_are_refused(client, holders, since, query):
    page = client.get(f"{ENTRIES}?since={since}{query}")
    assert page.status_code == 200
    assert "is not a time; write it as 2026-01-31T14:00." in text_of(page.content.decode())


def test_sums_say_when_they_are_not_of_all(client, holders, monkeypatch):
    monkeypatch.setattr("ledger.staff.history.WINDOW_ROWS", 2)
    monkeypatch.setattr("ledger.staff.entries.WINDOW_ROWS", 2)
    page = text_of(client.get(f"{ENTRIES}?since=2000-01-01").content.decode())
    assert "The sums cover the newest 2 entries; narrow the time to cover all." in page


def test_entries_are_saved_in_pieces_and_safe_to_open(client, holders, monkeypatch):
    monkeypatch.setattr(saved_lists, "ROWS_PER_PIECE", 2)
    rows = csv_rows(client, f"{ENTRIES}csv/")
    assert len(rows) == 6
    by_holder = {row["Holder"]: row for row in rows if row["Kind"] == "grant"}
    assert by_holder["ada"]["Reference"] == "'=1+1"
    assert (by_holder["dee"]["Amount"], by_holder["dee"]["Unit"]) == ("12.34", "USD")
    assert [row["Kind"] for row in csv_rows(client, f"{ENTRIES}csv/?q=cy")] == ["spend", "adjust"]
    assert [row["Holder"] for row in csv_rows(client, f"{ENTRIES}csv/?kind=hold")] == ["bob"]


def test_every_piece_of_a_file_is_filtered_in_the_operators_zone(client, holders, monkeypatch):
    monkeypatch.setattr(saved_lists, "ROWS_PER_PIECE", 2)
    client.post("/admin/preferences/", {"time_zone": "Asia/Tokyo"})
    an_hour_ago_in_tokyo = datetime.now(UTC) + timedelta(hours=9 - 1)
    assert len(csv_rows(client, f"{ENTRIES}csv/?since={an_hour_ago_in_tokyo:%Y-%m-%dT%H:%M}")) == 6
