"""Billing's lists: filters that look at a bounded number of rows, totals, and CSV of what is filtered."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing import reads
from billing.admin import invoice_lists, search
from billing.admin import subscriptions as subscription_pages
from billing.documents import invoice_payments
from billing.documents.credit_notes import issue_in
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Customer, Invoice
from billing.orders import subscriptions, suspension
from billing.orders.subscriptions import Wish
from billing.rating.periods import Interval, IntervalUnit
from ledger import services
from ledger.models import StaffEvent
from ledger.staff.kit import bounded_reads, pages, saved_lists
from ledger.staff.kit.cells import instant_words
from tests.asgi_client import AsgiClient
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique
from tests.ledger.staff.admin_site import older_url, operator, text_of

pytestmark = pytest.mark.django_db

BILLING = "/admin/billing"


def csv_rows(client, url):
    """The rows of the list's CSV file, by heading."""
    response = client.get(url)
    assert response.status_code == 200
    assert response.streaming
    text = response.getvalue().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def customers_shown(page):
    """The customers on the page, in the order shown."""
    return [ref for ref in Customer.objects.order_by("-pk").values_list("ref", flat=True) if f">{ref}<" in page]


def test_the_file_has_what_is_filtered_and_that_it_was_saved_is_on_record(client, monkeypatch):
    monkeypatch.setattr(saved_lists, "ROWS_PER_PIECE", 2)
    for number in range(5):
        CustomerFactory(ref=f"C-{number}", name='=cmd|"x"', currency="EUR" if number else "USD", holder_id=f"ada-{number}")
    page = client.get(f"{BILLING}/customer/?currency=eur").content.decode()
    assert f'href="{BILLING}/customer/csv/?currency=eur"' in page
    rows = csv_rows(client, f"{BILLING}/customer/csv/?currency=eur")
    assert [row["Customer"] for row in rows] == ["C-4", "C-3", "C-2", "C-1"]
    assert {row["Name"] for row in rows} == {'\'=cmd|"x"'}
    noted = StaffEvent.objects.get(action="exported")
    assert (noted.actor, noted.details) == ("admin:mara", "currency is eur")
    assert re.fullmatch(r"customers-\d{4}-\d\d-\d\d\.csv", noted.object)
    assert [row["Customer"] for row in csv_rows(client, f"{BILLING}/customer/csv/?holder=ada-3")] == ["C-3"]


def test_the_file_asks_for_the_permission_to_look(client):
    CustomerFactory()
    url = f"{BILLING}/customer/csv/"
    assert operator("billing.view_invoice", name="ben").get(url).status_code == 403
    assert Client().get(url).status_code == 302
    assert not StaffEvent.objects.filter(action="exported").exists()
    assert operator("billing.view_customer", name="eve").get(url).status_code == 200


def test_a_filter_that_is_wrong_leads_back_to_the_list(client):
    response = client.get(f"{BILLING}/customer/csv/?currency=%00")
    assert response.status_code == 302
    assert response["Location"].startswith(f"{BILLING}/customer/?")
    assert not StaffEvent.objects.filter(action="exported").exists()


def test_a_filter_that_a_file_does_not_know_leads_back_to_the_list(client):
    response = client.get(f"{BILLING}/customer/csv/?unknown=1")
    assert (response.status_code, response["Location"]) == (302, f"{BILLING}/customer/")
    assert not StaffEvent.objects.filter(action="exported").exists()


def test_a_search_without_an_index_covers_a_window_of_rows_and_links_to_the_next(client, monkeypatch):
    monkeypatch.setattr(bounded_reads, "WINDOW_ROWS", 10)
    for number in range(25):
        CustomerFactory(ref=f"C-{number:02}", currency="USD" if number == 3 else "EUR")
    seen, url, pages, costs = [], f"{BILLING}/customer/?currency=USD", 0, set()
    while url:
        with CaptureQueriesContext(connection) as captured:
            page = client.get(url).content.decode()
        costs.add(len(captured))
        pages += 1
        seen += customers_shown(page)
        link = older_url(page)
        assert (link is not None) is ("The search covers 10 rows" in page)
        url = link and f"{BILLING}/customer/{link}"
    assert (seen, pages) == (["C-03"], 3)
    assert max(costs) <= 7
    assert [row["Customer"] for row in csv_rows(client, f"{BILLING}/customer/csv/?currency=USD")] == ["C-03"]


def test_a_wrong_page_link_is_refused_with_a_message(client):
    CustomerFactory()
    for cursor in ("x", "1/2", "-", "9" * 40, "%00", "1e5"):
        page = client.get(f"{BILLING}/customer/?p={cursor}").content.decode()
        assert "is not a valid page link for this list" in page, cursor


@pytest.fixture
def billed():
    """See `bill`; 60 days ago, so that what is open is overdue."""
    return make_invoices(days_ago=60)


def make_invoices(*, days_ago):
    """Two customers: one in EUR with an open invoice of January and a draft of February, one in USD that has paid."""
    eur = PlanFactory(code="eur", prices=[recurring(tax_rate="20")])
    usd = PlanFactory(code="usd", currency="USD", prices=[recurring(unit_amount="5")])
    first = SubscriptionFactory(ref="SUB-1", customer=CustomerFactory(ref="C-1").ref, plan=eur.code)
    second = SubscriptionFactory(ref="SUB-2", customer=CustomerFactory(ref="C-2", currency="USD").ref, plan=usd.code)
    with time_machine.travel(datetime.now(UTC) - timedelta(days=days_ago), tick=False):
        generate_in(ref=first.ref, options=Options(as_of=at(1, 1)))
        generate_in(ref=first.ref, options=Options(as_of=at(2, 1), finalize=False))
        generate_in(ref=second.ref, options=Options(as_of=at(1, 1)))
    invoice_payments.pay_rest(Invoice.objects.get(currency="USD").pk)
    return first, second


FILTERED = [
    ("", ["SUB-2 paid", "SUB-1 draft", "SUB-1 open"]),
    ("state=open", ["SUB-1 open"]),
    ("currency=usd", ["SUB-2 paid"]),
    ("customer=C-1", ["SUB-1 draft", "SUB-1 open"]),
    ("customer=NOBODY", []),
    ("subscription=SUB-2", ["SUB-2 paid"]),
    ("subscription=SUB-2&customer=C-1", []),
    ("plan=eur&state=draft", ["SUB-1 draft"]),
    ("since=2000-01-01", ["SUB-2 paid", "SUB-1 open"]),
    ("since=2000-01-01&until=2000-01-02", []),
    ("since=2000-01-01&currency=EUR", ["SUB-1 open"]),
    ("overdue=yes", ["SUB-1 open"]),
    ("overdue=yes&plan=usd", []),
    ("overdue=yes&since=2999-01-01", []),
]


@pytest.mark.slow
def test_invoices_are_filtered(client, billed):
    for query, found in FILTERED:
        page = client.get(f"{BILLING}/invoice/?{query}").content.decode()
        assert page.count('class="field-name') == len(found), query
        rows = csv_rows(client, f"{BILLING}/invoice/csv/?{query}")
        assert [f"{row['Subscription']} {row['State']}" for row in rows] == found, query


def test_nothing_is_overdue_before_its_day(client):
    make_invoices(days_ago=1)
    assert "Nothing fits" in client.get(f"{BILLING}/invoice/?overdue=yes").content.decode()


def test_a_wrong_filter_of_invoices_is_refused_with_a_message(client, billed):
    for query in ("since=2026-13-01", "until=x", "since=%00", "state=stolen", "overdue=no"):
        page = client.get(f"{BILLING}/invoice/?{query}").content.decode()
        assert page.count('class="field-name') == 0
        assert re.search("is not a|must not contain NUL", page), query


def test_what_is_filtered_is_added_up_for_each_currency_within_a_limit(client, billed, monkeypatch):
    assert "in total" not in client.get(f"{BILLING}/invoice/").content.decode()
    page = client.get(f"{BILLING}/invoice/?since=2000-01-01").content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "EUR 1 invoice: 12.00 EUR in total, 12.00 EUR due." in text
    assert "USD 1 invoice: 5.00 USD in total, 0.00 USD due." in text
    assert "there are more" not in text
    monkeypatch.setattr(bounded_reads, "WINDOW_ROWS", 1)
    monkeypatch.setattr(invoice_lists, "WINDOW_ROWS", 1)
    text = client.get(f"{BILLING}/invoice/?since=2000-01-01").content.decode()
    assert "The sums cover the first 1 rows; there are more." in text


@pytest.mark.slow
def test_pages_by_day_go_on_without_gap_or_repetition(client, monkeypatch):
    """Several of one day, so that the id must tell them apart; with a filter that no index serves, and without."""
    monkeypatch.setattr(pages, "PAGE_ROWS", 3)
    plan = PlanFactory(prices=[recurring()])
    for number in range(8):
        SubscriptionFactory(ref=f"SUB-{number}", plan=plan.code)
        generate_in(ref=f"SUB-{number}", options=Options(as_of=at(1, 1)))
    for query in ("since=2000-01-01", "since=2000-01-01&currency=EUR", "currency=EUR"):
        seen, url = [], f"{BILLING}/invoice/?{query}"
        while url:
            page = client.get(url).content.decode()
            seen += re.findall(r">(SUB-\d)<", page)
            link = older_url(page)
            url = link and f"{BILLING}/invoice/{link}"
        assert seen == [f"SUB-{number}" for number in range(7, -1, -1)], query


def plan_of_page(client, url, table="billing_invoice"):
    """How PostgreSQL executes each query of billing's tables for that page."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    found = []
    with connection.cursor() as cursor:
        for method in ("seqscan", "bitmapscan", "sort", "incremental_sort"):
            cursor.execute(f"SET LOCAL enable_{method} = off")
        for query in captured.captured_queries:
            if query["sql"].startswith("SELECT") and f'FROM "{table}"' in query["sql"]:
                cursor.execute(f"EXPLAIN {query['sql']}")
                found += [row[0] for row in cursor.fetchall()]
    return "\n".join(found)


def test_each_order_of_invoices_is_read_by_its_index(client, billed):
    """With a table this small, only where PostgreSQL avoids the scans and sorts that it can do without."""
    assert "billing_invoice_issued" in plan_of_page(client, f"{BILLING}/invoice/?since=2000-01-01")
    assert "billing_invoice_due" in plan_of_page(client, f"{BILLING}/invoice/?overdue=yes&currency=EUR")


FILTERED_SUBSCRIPTIONS = [
    ("", ["SUB-3", "SUB-2", "SUB-1"]),
    ("state=paused", ["SUB-2"]),
    ("state=active", ["SUB-3", "SUB-1"]),
    ("plan=usd", ["SUB-2"]),
    ("customer=C-1", ["SUB-1"]),
    ("suspended=yes", ["SUB-3"]),
    ("suspended=yes&plan=usd", []),
    ("since=2026-01-05T00:00", ["SUB-3"]),
    ("until=2026-01-05T00:00&state=active", ["SUB-1"]),
    ("q=SUB-", ["SUB-3", "SUB-2", "SUB-1"]),
]


@pytest.mark.slow
def test_subscriptions_are_filtered(client):
    eur, usd = PlanFactory(code="eur"), PlanFactory(code="usd", currency="USD")
    SubscriptionFactory(ref="SUB-1", customer=CustomerFactory(ref="C-1").ref, plan=eur.code)
    SubscriptionFactory(ref="SUB-2", plan=usd.code)
    SubscriptionFactory(ref="SUB-3", plan=eur.code, started_at=at(1, 9))
    subscriptions.amend_subscription(ref="SUB-2", effective_at=at(1, 2), wish=Wish(paused=True))
    suspension.suspend(ref="SUB-3", reason="too-many-periods")
    for query, found in FILTERED_SUBSCRIPTIONS:
        page = client.get(f"{BILLING}/subscription/?{query}").content.decode()
        assert re.findall(r"change/[^>]*>(SUB-\d)<", page) == found, query
        rows = csv_rows(client, f"{BILLING}/subscription/csv/?{query}")
        assert [row["Subscription"] for row in rows] == found, query


def test_a_search_of_subscriptions_by_state_covers_a_window_of_rows_and_links_to_the_next(client, monkeypatch):
    monkeypatch.setattr(subscription_pages, "WINDOW_ROWS", 2)
    plan = PlanFactory().code
    for number in range(5):
        SubscriptionFactory(ref=f"SUB-{number}", plan=plan)
    subscriptions.amend_subscription(ref="SUB-0", effective_at=at(1, 2), wish=Wish(paused=True))
    seen, url, clicks = [], f"{BILLING}/subscription/?state=paused", 0
    while url:
        page = client.get(url).content.decode()
        clicks += 1
        seen += re.findall(r"change/[^>]*>(SUB-\d)<", page)
        link = older_url(page)
        assert (link is not None) is ("The search covers 2 subscriptions" in page)
        url = link and f"{BILLING}/subscription/{link}"
    assert (seen, clicks) == (["SUB-0"], 3)


def test_every_list_can_be_saved_also_where_it_is_empty_and_asks_for_its_permission(client):
    ben = operator("billing.view_usageevent", name="ben")
    for name in ("customer", "subscription", "plan", "coupon", "invoice", "creditnote", "run"):
        assert client.get(f"{BILLING}/{name}/csv/").status_code == 200
        assert ben.get(f"{BILLING}/{name}/csv/").status_code == 403


def statement_count(client, url):
    """How many statements showing the page takes."""
    ContentType.objects.get_for_models(*apps.get_models(), for_concrete_models=False)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


@pytest.mark.slow
def test_a_document_and_its_customer_cost_the_same_with_many_lines_and_invoices(client):
    few = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    many = SubscriptionFactory(plan=PlanFactory(prices=[recurring(key=f"p-{number}") for number in range(40)]).code)
    generate_in(ref=few.ref, options=Options(as_of=at(1, 1)))
    for month in range(1, 6):
        generate_in(ref=many.ref, options=Options(as_of=at(month, 1)))
    for model, rows in (
        ("invoice", [Invoice.objects.filter(subscription_id=each.pk).first().pk for each in (few, many)]),
        ("customer", [few.customer_id, many.customer_id]),
        ("subscription", [few.pk, many.pk]),
    ):
        one, other = (statement_count(client, f"{BILLING}/{model}/{pk}/change/") for pk in rows)
        assert one == other <= 37, model


def test_the_file_comes_whole_through_the_front_in_many_pieces(client, monkeypatch):
    monkeypatch.setattr(saved_lists, "ROWS_PER_PIECE", 2)
    for number in range(5):
        CustomerFactory(ref=f"C-{number}")
    front = AsgiClient(on_this_connection=True)
    front.cookies = client.cookies
    response = front.get(f"{BILLING}/customer/csv/")
    assert response.status_code == 200
    rows = csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"), newline=""))
    assert [row["Customer"] for row in rows] == [f"C-{number}" for number in range(4, -1, -1)]


# By the customer's name ------------------------------------------------------------------------------


LISTS = ("customer", "subscription", "invoice", "creditnote")


@pytest.fixture
def named():
    """Two customers with a subscription, an invoice and a credit note each."""
    for number, name in enumerate(("Jörg Müller", "Anna Meier")):
        customer = CustomerFactory(ref=f"C-{number}", name=name)
        SubscriptionFactory(ref=f"SUB-{number}", customer=customer.ref)
        generate_in(ref=f"SUB-{number}", options=Options(as_of=at(1, 1)))
        invoice = Invoice.objects.get(customer_ref=customer.ref)
        issue_in(invoice_id=invoice.pk, reason="a mistake", actor="admin:mara")


@pytest.mark.products(most=1)
@pytest.mark.parametrize("model", LISTS)
def test_a_list_is_searched_by_the_customers_name_and_shows_it(client, named, model):
    both = client.get(f"{BILLING}/{model}/").content.decode()
    assert ("Jörg Müller" in both, "Anna Meier" in both) == (True, True)
    for word in ("Müller", "muller", "C-0"):
        page = client.get(f"{BILLING}/{model}/", {"q": word}).content.decode()
        assert ("Jörg Müller" in page, "Anna Meier" in page) == (True, False), word
        [row] = csv_rows(client, f"{BILLING}/{model}/csv/?q={word}")
        assert row["Name" if model == "customer" else "Customer name"] == "Jörg Müller"
    assert 'class="field-' not in client.get(f"{BILLING}/{model}/", {"q": "nobody"}).content.decode()


@pytest.mark.products(most=1)
@pytest.mark.parametrize("model", LISTS)
def test_names_cost_the_same_number_of_queries_for_one_row_and_for_many(client, named, model):
    def cost(query):
        with CaptureQueriesContext(connection) as captured:
            client.get(f"{BILLING}/{model}/{query}")
        return len(captured)

    few = cost("")
    for number in range(5):
        SubscriptionFactory(ref=f"SUB-{number + 2}", customer=CustomerFactory(ref=f"C-{number + 2}").ref)
        generate_in(ref=f"SUB-{number + 2}", options=Options(as_of=at(1, 1)))
        invoice = Invoice.objects.get(customer_ref=f"C-{number + 2}")
        issue_in(invoice_id=invoice.pk, reason="a mistake", actor="admin:mara")
    assert cost("") == few


@pytest.mark.parametrize("model", LISTS[1:])
def test_a_name_of_too_many_customers_asks_for_more_of_it(client, named, model, monkeypatch):
    monkeypatch.setattr(search, "MOST_NAMED", 1)
    CustomerFactory(name="Jorge")
    page = client.get(f"{BILLING}/{model}/?q=jorg").content.decode()
    assert "More than 1 customers are named “jorg”. Type more of the name" in page
    assert client.get(f"{BILLING}/{model}/csv/?q=jorg").status_code == 302
    assert "Jörg Müller" in client.get(f"{BILLING}/{model}/?q=jorg+mul").content.decode()


# Dates and times -------------------------------------------------------------------------------------

A_DAY = r"\d{1,2}\u00a0[A-Z][a-z]{2}\u00a0\d{4}"
A_TIME_OF_DAY = r"\d\d:\d\d(:\d\d)?.* UTC$"
A_TIME = r"\d{1,2}\u00a0[A-Z][a-z]{2}\u00a0\d{4}, \d\d:\d\d(:\d\d)?\u00a0[A-Z]{3,4}"


@pytest.fixture
def in_berlin():
    """A subscription from 1 September in Berlin on, which is 22:00 of 31 August in UTC, with an open invoice."""
    customer = CustomerFactory(ref="C-1", time_zone="Europe/Berlin")
    started_at = datetime(2026, 8, 31, 22, tzinfo=UTC)
    return SubscriptionFactory(ref="SUB-1", customer=customer.ref, time_zone="Europe/Berlin", started_at=started_at)


def test_a_contract_has_its_times_in_its_own_zone_and_says_so(client, in_berlin):
    generate_in(ref="SUB-1", options=Options(as_of=datetime(2026, 9, 1, tzinfo=UTC)))
    pages = (
        f"{BILLING}/subscription/",
        f"{BILLING}/subscription/{in_berlin.pk}/change/",
        f"{BILLING}/customer/{in_berlin.customer_id}/change/",
    )
    for page in (client.get(url).content.decode() for url in pages):
        # The day, or the time to the second; a day has the time beside it when pointed at.
        assert re.search(r"1\u00a0Sep\u00a02026(, 00:00:00\u00a0CEST)?<", page)
        assert "1\u00a0Sep\u00a02026, 00:00" in page
        assert re.search(r"1\u00a0Oct\u00a02026(, 00:00:00\u00a0CEST)?<", page), "next due"
        assert "31\u00a0Aug\u00a02026" not in page


@pytest.mark.parametrize("model", ["customer", "subscription", "invoice", "creditnote", "plan", "run"])
def test_each_time_of_a_list_is_written_in_one_way_with_its_zone(client, named, model):
    page = client.get(f"{BILLING}/{model}/").content.decode()
    shown = re.findall(r"<time [^>]*>([^<]*)</time>", page)
    assert all(re.fullmatch(rf"{A_TIME}|{A_DAY}", each) for each in shown), shown
    assert all(re.search(A_TIME_OF_DAY, title) for title in re.findall(r'<time [^>]*title="([^"]*)"', page))
    assert shown or model in ("run", "creditnote")
    cells = re.sub(r"<(input|time)\b[^>]*>", "", page)
    assert not re.search(r">\s*20\d\d-\d\d-\d\d", cells)


def test_an_operator_sees_the_chosen_zone_by_its_name(client, named):
    with timezone.override("Asia/Tokyo"):
        assert instant_words(datetime(2026, 8, 31, 22, tzinfo=UTC)) == "1\u00a0Sep\u00a02026, 07:00\u00a0JST"
    with timezone.override("America/Sao_Paulo"):
        assert instant_words(datetime(2026, 8, 31, 22, tzinfo=UTC)) == "31\u00a0Aug\u00a02026, 19:00\u00a0UTC-03"


def test_an_invoice_is_overdue_by_the_clock_of_its_customers_holder(client, settings):
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    customers = [CustomerFactory(holder_id=unique("h")), CustomerFactory(holder_id=unique("h")), CustomerFactory()]
    plan = PlanFactory(prices=[recurring("seat", "10")])
    for customer in customers:
        subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=timezone.now())
        assert generate_in(ref=subscription.ref, options=Options(as_of=timezone.now())).invoices
    address = f"{BILLING}/invoice/?overdue=yes"
    assert not [customer.ref for customer in customers if customer.ref in client.get(address).content.decode()]
    later = timezone.now() + timedelta(days=60)
    services.set_clock(holder_id=customers[0].holder_id, now=later, idempotency_key="clock")
    page = client.get(address).content.decode()
    assert [customer.ref in page for customer in customers] == [True, False, False]
    [invoice] = Invoice.objects.filter(customer_id=customers[0].pk)
    shown = text_of(client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode())
    assert "days overdue" in shown


# Sorting, and what a subscription brings a month -----------------------------------------------------


def order_on(client, address, words):
    """The words in the order in which a page has them."""
    page = client.get(address).content.decode()
    return sorted((word for word in words if word in page), key=page.index)


SEATS = {"seats": Decimal(5)}


@pytest.fixture
def priced():
    """Three customers, whose subscriptions bring 49.00 and 5 × 12.00, 100.00 and 10.00 EUR a month."""
    prices = {
        "SUB-B": ("Bolt AG", IntervalUnit.MONTH, [recurring("base", "49"), recurring("seats", "12", model="unit")], SEATS),
        "SUB-A": ("Zebra SE", IntervalUnit.YEAR, [recurring("base", "1200"), metered("calls", "0.02")], {}),
        "SUB-C": ("Ampere GmbH", IntervalUnit.QUARTER, [recurring("base", "30", maximum="35")], {}),
    }
    for number, (ref, (name, unit, terms, quantities)) in enumerate(prices.items()):
        customer = CustomerFactory(ref=f"C-{ref}", name=name)
        plan = PlanFactory(name=f"Plan of {ref}", prices=terms, interval=Interval(unit))
        SubscriptionFactory(ref=ref, customer=customer.ref, plan=plan.code, quantities=quantities, started_at=at(1, 9 - number))
    return list(prices)


def test_a_subscription_shows_what_it_brings_a_month(client, priced):
    rows = {row.ref: row for row in reads.subscriptions(limit=10)}
    monthly = reads.monthly_minor(rows.values())
    assert {ref: monthly[row.id] for ref, row in rows.items()} == {"SUB-A": 100_00, "SUB-B": 109_00, "SUB-C": 10_00}
    page = text_of(client.get(f"{BILLING}/subscription/").content.decode())
    assert "109.00 EUR" in page
    assert "Plan of SUB-B" in page
    in_file = {row["Subscription"]: row["Monthly amount (MRR)"] for row in csv_rows(client, f"{BILLING}/subscription/csv/")}
    assert in_file["SUB-A"] == "100.00"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"paused": True}, 0),
        ({"ends_at": at(1, 20), "sets_end": True}, 0),
        ({"quantities": {"seats": Decimal(2)}}, 49_00 + 24_00),
    ],
    ids=["paused", "ended", "other quantities"],
)
def test_what_a_month_brings_follows_the_orders(priced, change, expected):
    subscriptions.amend_subscription(ref="SUB-B", effective_at=at(1, 15), wish=Wish(**change))
    [row] = [row for row in reads.subscriptions(limit=10) if row.ref == "SUB-B"]
    assert reads.monthly_minor([row]) == {row.id: expected}


def test_a_trial_and_a_start_to_come_bring_nothing_yet():
    plan = PlanFactory(prices=[recurring("base", "49")])
    later = timezone.now() + timedelta(days=9)
    refs = [SubscriptionFactory(plan=plan.code, trial_end=later).ref, SubscriptionFactory(plan=plan.code, started_at=later).ref]
    rows = [row for row in reads.subscriptions(limit=10) if row.ref in refs]
    assert set(reads.monthly_minor(rows).values()) == {0}


@pytest.mark.slow
def test_lists_are_sorted_by_their_columns(client, priced):
    names = ["Bolt AG", "Zebra SE", "Ampere GmbH"]
    customers = f"{BILLING}/customer/"
    assert order_on(client, customers, names) == ["Ampere GmbH", "Zebra SE", "Bolt AG"], "the newest first"
    assert order_on(client, f"{customers}?o=0", names) == ["Ampere GmbH", "Bolt AG", "Zebra SE"]
    assert order_on(client, f"{customers}?o=-0", names) == ["Zebra SE", "Bolt AG", "Ampere GmbH"]
    listed = f"{BILLING}/subscription/"
    columns = {"ref": 0, "monthly": 4, "started": 5}
    assert order_on(client, f"{listed}?o={columns['ref']}", priced) == ["SUB-A", "SUB-B", "SUB-C"]
    assert order_on(client, f"{listed}?o=-{columns['monthly']}", priced) == ["SUB-B", "SUB-A", "SUB-C"]
    assert order_on(client, f"{listed}?o={columns['monthly']}&plan=none", priced) == []
    assert order_on(client, f"{listed}?o={columns['started']}", priced) == ["SUB-C", "SUB-A", "SUB-B"]
    # A column that cannot be sorted by, and what is no column, leave the list as it is.
    for other in ("3", "99", "x", "-", "0.1x"):
        assert client.get(f"{listed}?o={other}").status_code == 200
    assert order_on(client, f"{listed}?o=3", priced) == order_on(client, listed, priced)


def test_a_sorted_list_goes_on_behind_its_last_row(client, priced, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_ROWS", 2)
    for model, refs, column in (("subscription", priced, 0), ("customer", [f"C-{ref}" for ref in priced], 1)):
        first = client.get(f"{BILLING}/{model}/?o={column}").content.decode()
        second = client.get(f"{BILLING}/{model}/{older_url(first)}").content.decode()
        shown = [[ref for ref in sorted(refs) if f" {ref} " in text_of(page)] for page in (first, second)]
        assert shown == [sorted(refs)[:2], sorted(refs)[2:]]


def test_each_order_is_read_by_its_index(client, priced):
    for model, column, index in (
        ("customer", 0, "billing_customer_by_name"), ("customer", 1, "billing_customer_ref"),
        ("subscription", 5, "billing_subscription_started"), ("subscription", 0, "billing_subscription_ref"),
    ):  # fmt: skip
        assert index in plan_of_page(client, f"{BILLING}/{model}/?o={column}", f"billing_{model}"), (model, column)
