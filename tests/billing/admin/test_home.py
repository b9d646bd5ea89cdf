"""The first page about money: MRR, invoiced, paid, unpaid, overdue, charts; by permission, from a bounded number of rows."""

import html
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client

from billing.additions import SALES
from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.models import Customer, Invoice
from billing.payments.testing import PurchaseFactory
from billing.reads import money_at_a_glance
from ledger import services
from ledger.database.statements import fetch_rows
from ledger.staff.history import never_reading_whole_tables
from tests.billing.documents.issued import add_seller
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, recurring, transition
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def on_a_friday() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


def issue(amount: str, *, customer: str = "C-1", days_ago: int = 0) -> Invoice:
    """An invoice of so much, without tax, payable within 10 days."""
    with time_machine.travel(NOW - timedelta(days=days_ago), tick=False):
        line = OneOffLine(description="Work", unit_amount=Decimal(amount))
        return issue_one_off_in(customer_ref=customer, request=NewOneOffInvoice(lines=[line]))


@pytest.fixture
def company() -> None:
    """A customer on each of two plans, a paid, an open and an overdue invoice, one that was voided, and a pack that was sold."""
    add_seller()
    for number, (plan, price) in enumerate((("team", "49"), ("pro", "149")), 1):
        CustomerFactory(ref=f"C-{number}", name=f"Customer {number}", holder_id=f"holder-{number}", terms_days=10)
        PlanFactory(code=plan, name=plan.title(), prices=[recurring("base", price)])
        SubscriptionFactory(ref=f"SUB-{number}", customer=f"C-{number}", plan=plan, started_at=NOW - timedelta(days=40))
    record_payment(invoice=issue("100").pk, payment="transfer 1", amount_minor=100_00)
    transition(issue("30").pk, "pay")
    transition(issue("999").pk, "void")
    issue("7.50")
    issue("20", customer="C-2", days_ago=40)
    PurchaseFactory(customer="C-1", payment="pi_1", paid_at=NOW)


def page_of(client: Client) -> str:
    response = client.get("/admin/")
    assert response.status_code == 200
    return response.content.decode()


def headlines(page: str) -> dict[str, tuple[str, bool]]:
    """Each number of the page with its note, and whether it is shown as bad."""
    found = re.findall(r'<section aria-labelledby="headline-\d"( class="bad")?>(.*?)</section>', page, re.DOTALL)
    words = [(text_of(part).strip().split(" ", 1), bool(bad)) for bad, part in found]
    return {title: (rest, is_bad) for (title, rest), is_bad in words}


def chart(page: str, title: str) -> tuple[str, dict[str, Any]]:
    """The words and the values of a chart."""
    part = page.partition(f">{title}</h2>")[2].partition("</section>")[0]
    found = re.search(r'data-value="([^"]+)"', part)
    assert found, title
    return text_of(part), json.loads(html.unescape(found[1]))


def test_money_is_said_first_and_what_is_overdue_is_red(company: None) -> None:
    page = page_of(operator())
    assert headlines(page) == {
        "MRR": ("198.00 EUR a month from 2 subscriptions, without usage and tax", False),
        "Invoiced": ("137.50 EUR 3 invoices in November", False),
        "Paid": ("150.00 EUR 3 payments in November, for invoices and packs", False),
        "Unpaid": ("27.50 EUR 2 open invoices Who owes most", False),
        "Overdue": ("20.00 EUR 1 invoice, the first since 21 Oct 2026", True),
    }
    assert page.index("headline-1") < page.index("attention-heading")
    page = page.replace("\u00a0", " ")
    item = "1 invoice is overdue, 20.00 EUR: INV-000005 of Customer 2, was due on 21 Oct 2026."
    assert f'<li class="danger"><span class="dot fill-danger" aria-hidden="true"></span><span class="grow">{item}</span>' in page
    assert ">Open the invoice</a>" in page


def test_charts_show_revenue_by_month_and_income_by_plan(company: None) -> None:
    page = page_of(operator())
    words, values = chart(page, "Revenue by month")
    assert "177.50 EUR in 12 months, tax included: 130.00 EUR of settled invoices, 20.00 EUR of packs, 27.50 EUR unpaid" in words
    assert values["labels"][-2:] == ["Oct", "Nov"]
    parts = {each["label"]: each["data"][-2:] for each in values["datasets"]}
    assert parts == {"Invoices, settled": [0, 130], "Packs": [0, 20], "Invoices, unpaid": [20, 7.5]}
    words, values = chart(page, "Income by plan")
    assert "MRR now: Pro 149.00 EUR (75%, 1 subscription); Team 49.00 EUR (25%, 1 subscription)." in words
    assert values["datasets"][0]["data"] == [149, 49]


def test_the_page_of_debts_names_who_owes_most(company: None) -> None:
    issue("5", customer="C-1", days_ago=30)
    client = operator()
    page = client.get("/admin/billing/invoice/debts/").content.decode()
    words = text_of(page.partition('id="content-main"')[2]).replace("\u00a0", " ")
    assert "32.50 EUR owed by 2 customers, 25.00 EUR of it overdue." in words
    assert re.search(
        r"Customer 2 C-2 20\.00 EUR 20\.00 EUR 1 overdue 21 Oct 2026 .*Customer 1 C-1 12\.50 EUR 5\.00 EUR 2, 1 overdue", words
    )
    address = "/admin/billing/invoice/?customer=C-1&amp;state=open&amp;currency=EUR"
    assert address in page
    assert text_of(client.get(html.unescape(address)).content.decode()).count("INV-") == 2
    card = text_of(client.get(f"/admin/billing/customer/{Customer.objects.get(ref='C-1').pk}/change/").content.decode())
    assert "12.50 EUR 2 invoices; 1 overdue, 5.00 EUR, the first since 31 Oct 2026" in card.replace("\u00a0", " ")


def test_debts_are_read_from_a_bounded_number_of_invoices_and_for_those_who_may_see_them(
    company: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(money_at_a_glance, "MOST_INVOICES", 1)
    found = money_at_a_glance.debts()
    assert ([debt.minor for debt in found.rows], found.is_whole) == ([20_00], False)
    finance = operator("billing.view_invoice", name="fin")
    words = text_of(finance.get("/admin/billing/invoice/debts/").content.decode())
    assert "Customer 2 (C-2)" in words
    assert operator("billing.view_plan", name="pat").get("/admin/billing/invoice/debts/").status_code == 403


def test_nobody_owes_anything_without_open_invoices() -> None:
    assert "No customer owes anything." in text_of(operator().get("/admin/billing/invoice/debts/").content.decode())


def test_use_is_shown_by_model_and_by_plan(company: None) -> None:
    for number, model in ((1, "large"), (1, "small"), (2, "large")):
        services.grant(holder_id=f"holder-{number}", amount=100, idempotency_key=f"g{model}")
        services.spend(holder_id=f"holder-{number}", amount=30, metadata={"model": model}, idempotency_key=f"s{model}")
    services.grant(holder_id="somebody", amount=10, idempotency_key="g")
    services.spend(holder_id="somebody", amount=10, idempotency_key="s")
    page = page_of(operator())
    assert "large 60 (60%); small 30 (30%); other 10 (10%)." in chart(page, "Use by model")[0]
    assert "Team 60 (60%); Pro 30 (30%); no plan 10 (10%)." in chart(page, "Use by plan")[0]


def test_several_currencies_are_named_and_never_added_up(company: None) -> None:
    CustomerFactory(ref="C-3", currency="JPY")
    issue("5000", customer="C-3")
    page = page_of(operator())
    assert headlines(page)["Invoiced"][0] == "5,000 JPY, 137.50 EUR 4 invoices in November"
    assert "Not shown:" in chart(page, "Revenue by month")[0]


def test_each_number_is_for_operators_who_may_see_it(company: None) -> None:
    assert headlines(page_of(operator("ledger.view_account"))) == {}
    assert list(headlines(page_of(operator("billing.view_plan", "billing.view_subscription", name="ben")))) == ["MRR"]
    assert list(headlines(page_of(operator("billing.view_invoice", name="cy")))) == ["Invoiced", "Unpaid", "Overdue"]
    some = headlines(page_of(operator("billing.view_invoice", "billing.view_invoicepayment", name="dan")))
    assert some["Paid"] == ("130.00 EUR 2 payments in November, for invoices", False)


def test_a_company_without_money_shows_zeros_and_no_chart(client: Client) -> None:
    page = page_of(client)
    assert headlines(page)["MRR"] == ("0 a month from 0 subscriptions, without usage and tax", False)
    assert headlines(page)["Overdue"] == ("0 0 invoices", False)
    assert "Revenue by month" not in page


def test_more_rows_than_are_added_up_make_it_at_least(company: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money_at_a_glance, "MOST_INVOICES", 1)
    monkeypatch.setattr("billing.admin.home.MOST_SUBSCRIPTIONS", 1)
    page = page_of(operator())
    assert headlines(page)["Unpaid"][0] == "at least 20.00 EUR 1 open invoice Who owes most"
    assert headlines(page)["MRR"][0].startswith("at least 149.00 EUR")


def test_money_is_read_by_indexes(company: None) -> None:
    named = {"since": NOW.date()}
    with never_reading_whole_tables():
        for sql, expected in (
            (money_at_a_glance.ISSUED, "billing_invoice_issued"),
            (money_at_a_glance.PAYMENTS, "billing_invoicepayment_pkey"),
            (money_at_a_glance.sales_sql(SALES["packs"]), "billing_purchase_pkey"),
        ):
            plan = "\n".join(fetch_rows(str, f"EXPLAIN {sql}", named))
            assert expected in plan, plan
            assert "Limit" in plan
        # For the few invoices of a test, which statistics may know by now, another index and a sort would do as well.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off")
        unpaid = Invoice.objects.filter(state="open", amount_due_minor__gt=0).order_by("due_date", "id")[:10]
        assert "billing_invoice_due" in unpaid.explain()
    assert connection.in_atomic_block


def test_the_year_has_each_month_with_its_money_and_each_plan_with_its_income(company: None) -> None:
    page = text_of(operator().get("/admin/billing/run/year/").content.decode()).replace("\u00a0", " ")
    assert "November 2026 3 198.00 EUR 137.50 EUR 130.00 EUR 20.00 EUR 7.50 EUR" in page
    assert "October 2026 1 0.00 EUR 20.00 EUR 0.00 EUR 0.00 EUR 20.00 EUR" in page
    assert "Sum 4 157.50 EUR 130.00 EUR 20.00 EUR 27.50 EUR" in page
    assert "Month Pro Team November 2026 149.00 EUR 49.00 EUR October 2026" in page


def test_the_year_is_for_operators_who_may_see_invoices(company: None) -> None:
    page = "/admin/billing/run/year/"
    assert operator("ledger.view_account").get(page).status_code == 403
    some = text_of(operator("billing.view_invoice", name="ben").get(page).content.decode())
    assert "MRR at" not in some
    assert "Payments received" not in some
