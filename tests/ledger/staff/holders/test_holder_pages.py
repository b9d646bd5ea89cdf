"""One page per holder: what there is, how long it lasts, what happened, who granted it; and whether she exists at all."""

import html
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from ledger import journal, reads, services
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits
from ledger.models import CreditType
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, hold_rules
from ledger.rules.instants import to_us
from ledger.rules.lots import decode
from ledger.rules.requests import GrantRequest, HoldRequest, SpendRequest
from ledger.rules.usage_rates import BurnRate, Stock, burn_rate
from ledger.staff import holder_page as holders
from ledger.staff import holder_reads
from tests.billing.factories import CustomerFactory, SubscriptionFactory
from tests.ledger.staff.admin_site import cost_of, load_history, operator, text_of

pytestmark = pytest.mark.django_db


def holder_url(holder_id="ada", **query):
    """The address of a holder's page; `query` is its query string."""
    return f"/admin/ledger/account/holders/{holder_id}/?" + "&".join(f"{name}={value}" for name, value in query.items())


@pytest.mark.slow
def test_mistyped_ids_and_credit_types_are_in_no_list_and_lead_to_their_refusals(client):
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    for number in range(50):
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id=f"ada-{number}", amount=1, idempotency_key="s")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", credit_type="credist", amount=1, idempotency_key="s")
    assert "credist" not in holder_page(client).split('id="refusals"')[0].split("What happened")[0]
    listed = text_of(client.get("/admin/ledger/account/").content.decode())
    assert ("ada-1" in listed, "ada" in listed) == (False, True)
    found = client.get("/admin/search/", {"s": "ada", "extended": 1}).content.decode()
    assert ("holders/ada/" in found, "holders/ada-1" in found) == (True, False)
    unknown = client.get(holder_url("ada-1"))
    assert unknown.status_code == 404
    assert "see the refused requests" in unknown.content.decode()
    assert "see the refused requests" not in client.get(holder_url("nobody")).content.decode()
    refused = text_of(client.get("/admin/ledger/refusallisting/?q=ada-1").content.decode())
    assert "1 requested, 0 spendable" in refused


def holder_page(client, holder_id="ada", **query):
    """The page of a holder, as HTML."""
    response = client.get(holder_url(holder_id, **query))
    assert response.status_code == 200
    return response.content.decode()


def chart_data(page):
    """The data of the chart on the page."""
    return json.loads(html.unescape(re.search(r'data-value="([^"]+)"', page)[1]))


def append_history(days_ago, *steps):
    """Append what the rules make of these steps: (days ago, function of the account)."""
    account = AccountState("ada", "credits", to_us(datetime.now(UTC) - timedelta(days=days_ago)))
    made = []
    for days, step in steps:
        account = account._replace(now_us=to_us(datetime.now(UTC) - timedelta(days=days)))
        entries = step(account)
        account = account.after_all(entries)
        made += entries
    with transaction.atomic(), holder_lock("ada") as lock:
        journal.append(lock, made)


def grant_step(amount, key="g", **terms):
    """A step of a history: a grant to ada."""
    return lambda account: credit_rules.grant(account, GrantRequest(holder_id="ada", idempotency_key=key, amount=amount, **terms))


def spend_step(amount, key):
    """A step of a history: a spend of ada."""
    return lambda account: credit_rules.spend(account, SpendRequest(holder_id="ada", idempotency_key=key, amount=amount))


def test_the_headline_says_what_is_available_what_keeps_the_rest_away_and_how_long_it_lasts(client):
    later = datetime.now(UTC) + timedelta(days=40)
    append_history(60, (60, grant_step(1_300)), (20, spend_step(500, "s1")), (10, spend_step(430, "s2")))
    services.grant(holder_id="ada", amount=1_000, idempotency_key="later", effective_at=later)
    services.hold(holder_id="ada", amount=60, idempotency_key="h")
    page = holder_page(client)
    text = text_of(page)
    assert "310 available About 31 a day over the last 30 days; lasts 10 days." in text
    assert "Spendable 310 Held 60 Not yet effective 1,000" in text
    assert re.search(
        r"1,310 in the balance; 60 held until [\d:]+( \w+)?; 1,000 not yet effective, from \d+ \w+( \d+)?; nothing owed\.", text
    )


def test_the_chart_shows_what_was_available_then_and_the_balance_beside(client):
    now = datetime.now(UTC)
    append_history(60, (60, grant_step(100, effective_at=now - timedelta(days=20))), (10, spend_step(40, "s")))
    page = holder_page(client, days=30)
    available, balance = (each["data"] for each in chart_data(page)["datasets"])
    assert (len(available), available[0], available[-1]) == (holder_reads.CHART_POINTS + 1, 0, 60)
    assert sorted(set(available)) == [0, 60, 100]
    assert sorted(set(balance)) == [60, 100]
    # A third of the time before the credits were effective, a third before they were spent.
    assert [available.count(amount) for amount in (0, 100, 60)] == [30, 30, 31]
    assert "at least 0, at most 100." in text_of(page)


@pytest.mark.parametrize("owed", [0, 70])
def test_the_chart_ends_with_what_the_balance_says_and_decodes_lots_only_in_debt(monkeypatch, owed):
    now = datetime.now(UTC)
    append_history(60, (60, grant_step(100)), (20, spend_step(30, "s")))
    services.grant(holder_id="ada", amount=7, idempotency_key="promotional", source="promotional", priority=5)
    services.grant(holder_id="ada", amount=11, idempotency_key="soon", expires_at=now.replace(microsecond=0) + timedelta(days=1))
    services.grant(holder_id="ada", amount=13, idempotency_key="later", effective_at=now + timedelta(days=1))
    services.hold(holder_id="ada", amount=9, idempotency_key="held")
    if owed:
        services.set_overdraft(holder_id="ada", limit=100, idempotency_key="limit")
        services.spend(holder_id="ada", amount=79 + owed, idempotency_key="all and more")
    decoded = []
    monkeypatch.setattr(holder_reads, "decode", lambda lots: decoded.append(lots) or decode(lots))
    now = datetime.now(UTC)
    first, *_, last = holder_reads.available_over_time("ada", "credits", since=now - timedelta(days=90), now=now)
    assert (first.available, last.available, last.balance) == (
        0, reads.balance("ada").available, reads.balance("ada").balance,
    )  # fmt: skip
    # In two days the hold has ended first, and what it gives back repays a debt; then a lot has expired, and one is effective.
    *_, later = holder_reads.available_over_time("ada", "credits", since=now, now=now + timedelta(days=2))
    assert later.available == (100 - owed + 9 + 13 if owed else 70 + 7 + 13)
    assert bool(decoded) is bool(owed)


def test_a_lot_says_what_is_left_when_it_expires_who_granted_it_and_why(client):
    expires_at = datetime.now(UTC) + timedelta(days=41)
    services.grant(
        holder_id="ada", amount=400, idempotency_key="g", source="promotional", expires_at=expires_at, priority=5,
        actor="admin:ben", reason="sorry for the outage", reference="ticket-9",
    )  # fmt: skip
    services.spend(holder_id="ada", amount=100, idempotency_key="s")
    page = holder_page(client)
    text = text_of(page)
    assert re.search(r"#1 300 of 400 left expires \d+ \w+( \d+)?, in 41 days", text)
    assert re.search(r"Promotional, priority 5, by admin:ben on \d+ \w+ \d+: sorry for the outage ticket-9", text)
    assert 'style="width: 75.0%"' in page


@pytest.mark.slow
def test_the_time_line_says_entries_and_refusals_in_words_with_reference_metadata_and_rate(client):
    services.publish_rate(code="gpt.out", price=3, per=1_000, actor="admin:ben", reason="list")
    services.grant(holder_id="ada", amount=322, idempotency_key="g", actor="key:shop", reason="top-up", reference="pay_1")
    services.spend(
        holder_id="ada", rate="gpt.out", quantity=2_000, idempotency_key="s", metadata={"model": "large"}, actor="key:app"
    )
    services.hold(holder_id="ada", amount=60, idempotency_key="h")
    services.capture(holder_id="ada", hold=3, amount=20, idempotency_key="c")
    services.refund(holder_id="ada", spend=2, amount=2, idempotency_key="r", reason="cut off")
    services.transfer(holder_id="ada", to="bob", amount=8, idempotency_key="t")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=700, idempotency_key="no", reference="job-19", actor="key:app")
    text = text_of(holder_page(client))
    for line in (
        r"Refused #8 spend: 700 requested, 290 spendable\. Short by 410\. key:app · job-19",
        r"Transfer #7 8 sent to bob",
        r"Refund #6 2 of spend #2 returned cut off \+2",
        r"Capture #5 20 of hold #3 spent",
        r"Release #4 40 of hold #3 returned ledger \+40",
        r"Hold #3 60 set aside",
        r"Spend #2 6 spent for 2,000 of gpt\.out v1 key:app · model large −6 316",
        r"Grant #1 322 added key:shop · top-up · pay_1 \+322",
    ):
        assert re.search(line, text), line
    assert text_of(holder_page(client, "bob")).count("8 received from ada") == 1


def test_the_time_line_goes_on_behind_its_last_row(client, monkeypatch):
    monkeypatch.setattr(holders, "TIME_LINE_ROWS", 2)
    for number in range(5):
        services.grant(holder_id="ada", amount=1, idempotency_key=f"g{number}")
    seen, address = [], holder_url()
    while address:
        page = client.get(address).content.decode()
        seen += re.findall(r'entrylisting/ada_2Fcredits_2F(\d+)/change/">#\d+</a> 1 added', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        address = html.unescape(older[1]) if older else None
    assert seen == ["5", "4", "3", "2", "1"]


@pytest.mark.slow
def test_all_credit_types_are_beside_one_another_each_in_its_unit(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    services.grant(holder_id="ada", amount=12_345, credit_type="usd_cents", idempotency_key="u")
    text = text_of(holder_page(client))
    assert "Credits 5 credits US dollars 123.45 USD" in text
    assert "5 available" in text
    dollars = text_of(holder_page(client, type="usd_cents"))
    assert "123.45 USD available" in dollars
    assert "Grant #1 123.45 added" in dollars
    assert "0 available" in text_of(holder_page(client, type="sms"))
    assert "ada has never had sms." in text_of(holder_page(client, type="sms"))
    assert "5 available" in text_of(holder_page(client, type="NO/../TYPE"))


def test_a_holder_who_never_existed_differs_from_an_empty_one(client):
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    services.grant(holder_id="ada.2", amount=7, idempotency_key="g")
    empty = text_of(holder_page(client))
    assert "0 available" in empty
    assert "used in the last day; no credits are left." in empty
    for nobody in ("ad", "Ada", "ada.", "a%20b", "a%00b"):
        response = client.get(holder_url(nobody))
        assert response.status_code == 404
        assert "No holder has ever had the id" in text_of(response.content.decode())


@pytest.mark.slow
def test_a_customer_of_billing_is_shown_with_what_it_ordered_as_far_as_the_operator_may_see(client):
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    assert "No customer of billing names this holder." in text_of(holder_page(client))
    customer = CustomerFactory(holder_id="ada")
    subscription = SubscriptionFactory(customer=customer.ref)
    text = text_of(holder_page(client))
    assert f"{customer.ref} {customer.name}" in text
    assert re.search(rf"{subscription.ref} .* active", text)
    assert "This customer has no invoice yet." in text
    looking = text_of(holder_page(operator("ledger.view_account", "billing.view_customer", name="ben")))
    assert customer.ref in looking
    assert subscription.ref not in looking
    assert customer.ref not in text_of(holder_page(operator("ledger.view_account", name="eve")))


def test_who_may_not_see_entries_sees_none_and_who_may_not_see_accounts_nothing(client):
    services.grant(holder_id="ada", amount=5, idempotency_key="g", reason="secret reason")
    page = holder_page(operator("ledger.view_account", name="ben"))
    assert "What happened" not in page
    assert "grant/" not in page
    assert operator("ledger.view_entrylisting", name="eve").get(holder_url()).status_code == 403


@pytest.mark.slow
def test_the_page_costs_the_same_with_a_long_history_and_reads_by_the_primary_key(client):
    made = load_history(holders=1, entries=60)
    few = cost_of(client, holder_url(made[0].holder_id))
    made = load_history(holders=1, entries=6_000, first_holder=7)
    many = cost_of(client, holder_url(made[0].holder_id))
    assert len(many.statements) == len(few.statements) <= 16
    for plan in many.plans:
        assert "Seq Scan on ledger_entry" not in plan, plan


class Row:
    def __init__(self, kind, amount, drawn=()):
        self.kind, self.amount, self.drawn = kind, amount, drawn


NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rows", "days", "expected"),
    [
        ([], 10, BurnRate(0, 10.0)),
        (
            [Row("spend", -30), Row("capture", 0, [(1, 7)]), Row("refund", 5), Row("grant", 99), Row("hold", -50)],
            4,
            BurnRate(32, 4.0),
        ),
        ([Row("refund", 5)], 4, BurnRate(0, 4.0)),
        ([Row("spend", -30)], 0.5, BurnRate(30, 0.5)),
    ],
)
def test_what_is_used_is_what_was_spent_for_good(rows, days, expected):
    assert burn_rate(rows, since=NOW - timedelta(days=days), now=NOW) == expected


@pytest.mark.parametrize(
    ("rate", "stocks", "expected"),
    [
        (BurnRate(310, 10), [(248, None)], (8, 0)),
        (BurnRate(310, 10), [(30, None)], (0, 0)),
        (BurnRate(0, 10), [(248, None)], None),
        # A day of use is no rate.
        (BurnRate(310, 1.5), [(248, None)], None),
        # They would last 27 days, and expire in 2.
        (BurnRate(100, 10), [(270, 2)], (2, 250)),
        # What expires first is used first, and the rest of it is lost.
        (BurnRate(100, 10), [(50, 2), (40, None)], (6, 30)),
        (BurnRate(100, 10), [(10, 2), (40, 4), (5, None)], (4, 10)),
        (BurnRate(100, 10), [(70, None), (50, 3)], (7, 50)),
        (BurnRate(100, 10), [], (0, 0)),
    ],
)
def test_a_forecast_counts_credits_only_as_long_as_they_have_not_expired(rate, stocks, expected):
    assert rate.forecast([Stock(*each) for each in stocks]) == expected


def test_the_headline_says_what_expires_unused_and_makes_no_forecast_from_a_day(client):
    soon = datetime.now(UTC) + timedelta(days=2, hours=1)
    append_history(20, (20, grant_step(470, expires_at=soon)), (10, spend_step(200, "s1")))
    assert "About 10 a day over the last 20 days; lasts 2 days, and 250 expire unused." in text_of(holder_page(client))


def test_a_day_of_use_is_no_rate(client):
    append_history(1, (1, grant_step(470)), (0.5, spend_step(200, "s1")))
    text = text_of(holder_page(client))
    assert "200 used in the last day: too short to say how long credits last." in text
    assert "a day" not in text.partition("too short")[0].partition("available")[2].replace("in the last day", "")


def test_a_hold_of_another_day_is_released_from_the_page(client):
    append_history(
        3, (3, grant_step(100)), (2, lambda a: hold_rules.hold(a, HoldRequest(holder_id="ada", idempotency_key="h", amount=30)))
    )
    assert "expired, not booked yet" in text_of(holder_page(client))
    assert "Release #" not in text_of(holder_page(client))
