"""A customer's page says what is asked first: credits, what a month brings, what is open and comes next, usage, who did what."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.documents import credit_notes, transitions
from billing.documents.credit_notes import CreditLine
from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.generate import generate_in
from billing.metering import usage
from billing.metering.corrections import EventCancellation, EventCorrection, take_in_all
from billing.models import Customer, Invoice, Subscription
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from ledger import services
from ledger.database.statements import fetch_value
from ledger.errors import LockBusy
from ledger.models import CreditType
from tests.billing.documents.issued import add_seller
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring, unique
from tests.ledger.staff.admin_site import operator, shown_time, text_of

pytestmark = pytest.mark.django_db

BILLING = "/admin/billing"
NOW = datetime.now(UTC)


@pytest.fixture
def customer() -> Customer:
    """A customer with credits, a subscription since 40 days ago that is billed up to 35 days ago, and usage since then."""
    add_seller()
    CreditType.objects.create(code="sms", name="Text messages", unit="SMS", scale=0)
    made = CustomerFactory(ref="C-1", name="Acme AG", holder_id="acme", time_zone="Europe/Berlin", terms_days=10)
    services.grant(holder_id="acme", credit_type="sms", amount=1_200, idempotency_key="g")
    plan = PlanFactory(code="team", name="Team", prices=[recurring("base", "49"), metered("calls", "0.02")])
    SubscriptionFactory(ref="SUB-1", customer="C-1", plan="team", started_at=NOW - timedelta(days=40))
    assert plan.name == "Team"
    generate_in(ref="SUB-1", options=Options(as_of=NOW - timedelta(days=35)))
    return made


def page_of(client: Client, customer: Customer) -> str:
    response = client.get(f"{BILLING}/customer/{customer.pk}/change/")
    assert response.status_code == 200
    return text_of(response.content.decode()).replace("\u00a0", " ")


def use(day: int, value: int, key: str = "") -> None:
    event = usage.NewEvent(
        idempotency_key=key or unique("u"), subscription="SUB-1", meter="calls", value=Decimal(value),
        occurred_at=NOW - timedelta(days=day),
    )  # fmt: skip
    [taken] = usage.take_in([event])
    assert taken.result == usage.EventStatus.ACCEPTED


def test_the_page_says_what_is_asked_first(customer: Customer) -> None:
    use(3, 1_000)
    use(3, 500)
    use(1, 250)
    page = page_of(operator(), customer)
    for words in (
        "Text messages 1,200 SMS available to acme",
        "Monthly amount 49.00 EUR 1 active of 1 subscription",
        "Open invoices 49.00 EUR 1 invoice",
        "Next invoice by the next run of SUB-1, due since",
        "Usage: calls 1,750 calls from",
        "at most 1,500 a day.",
        "ordered Team (team v1)",
    ):
        assert words in page, words
    assert "overdue" not in page


def test_what_is_overdue_is_said_with_its_day(customer: Customer) -> None:
    with time_machine.travel(NOW + timedelta(days=20), tick=False):
        assert "1 invoice; 1 overdue, 49.00 EUR, the first since" in page_of(operator(), customer)


def test_a_correction_counts_instead_of_what_it_corrects_and_a_cancelled_event_not_at_all(customer: Customer) -> None:
    use(3, 1_000, "first")
    use(2, 70, "second")
    better = EventCorrection(idempotency_key="better", subscription="SUB-1", corrects="first", value=Decimal(300))
    taken = take_in_all([better, EventCancellation(idempotency_key="none", subscription="SUB-1", cancels="second")])
    assert {each.result for each in taken} == {usage.EventStatus.ACCEPTED}
    assert "Usage: calls 300 calls from" in page_of(operator(), customer)


def test_only_the_newest_events_are_read_and_the_page_says_so(customer: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.admin.customer_overview.EVENTS_OF_A_METER", 2)
    for day in (5, 4, 3):
        use(day, 10 * day)
    page = page_of(operator(), customer)
    assert "Usage: calls 70 calls from" in page
    assert "the newest 2 events count" in page


def test_payments_credit_notes_and_who_did_what_are_listed(customer: Customer) -> None:
    [invoice] = Invoice.objects.all()
    line = [CreditLine(position=1, amount_minor=5_00)]
    note = credit_notes.issue(invoice_id=invoice.pk, lines=line, reason="Goodwill", actor="admin:ann", idempotency_key="n")
    transitions.apply(invoice_id=invoice.pk, kind="pay", actor="admin:ben", reason="Bank transfer", idempotency_key="p")
    subscriptions.amend_subscription(ref="SUB-1", effective_at=NOW, wish=Wish(paused=True), actor="key:shop")
    page = page_of(operator(), customer)
    payments, deeds = page.partition("Payments")[2].partition("Who did what")[::2]
    assert f"{invoice.number} 49.00 EUR by other means admin:ben" in payments
    for words in ("admin:ann Credit note", "Goodwill", "admin:ben Mark as paid Bank transfer", "key:shop"):
        assert words in deeds, words
    assert note.number in page
    assert "Open invoices none" in page


def test_a_payment_is_listed_by_the_time_at_which_it_came_in(customer: Customer) -> None:
    [invoice] = Invoice.objects.all()
    paid_at = NOW - timedelta(days=20)
    record_payment(
        invoice=invoice.pk, payment="T-1", amount_minor=invoice.amount_remaining_minor, paid_at=paid_at, actor="admin:ben"
    )  # fmt: skip
    payments = page_of(operator(), customer).partition("Payments")[2].partition("Who did what")[0]
    assert f"{shown_time(paid_at)} {invoice.number}" in payments


def test_the_next_invoice_is_shown_as_the_run_makes_it_and_nothing_is_written(customer: Customer) -> None:
    use(36, 1_000)
    url = f"{BILLING}/customer/{customer.pk}/preview/"
    before = fetch_value(int, "SELECT count(*) + (SELECT count(*) FROM billing_claim) FROM billing_invoice")
    page = text_of(operator().get(url).content.decode()).replace("\u00a0", " ")
    assert fetch_value(int, "SELECT count(*) + (SELECT count(*) FROM billing_claim) FROM billing_invoice") == before
    assert "The next invoice is that of SUB-1." in page
    [made] = generate_in(ref="SUB-1", options=Options(as_of=timezone.now(), finalize=False)).invoices
    total = Invoice.objects.get(pk=made.invoice_id).total_minor
    assert f"{total / 100:.2f} EUR" in page
    assert " 20.00 Total 69.00" in page


def test_who_did_what_has_one_off_invoices_too(customer: Customer) -> None:
    line = OneOffLine(description="Workshop", unit_amount=Decimal(450))
    made = issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line]))
    transitions.apply(invoice_id=made.pk, kind="void", actor="admin:cleo", reason="Not held", idempotency_key="v")
    deeds = page_of(operator(), customer).partition("Who did what")[2]
    assert "admin:cleo Void" in deeds
    assert "Not held" in deeds


def test_while_a_run_bills_the_customer_the_page_says_so(customer: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*names: str) -> None:
        raise LockBusy(key=names[0])

    monkeypatch.setattr(generate, "try_advisory_lock", busy)
    for page in (f"customer/{customer.pk}/preview", f"subscription/{Subscription.objects.get().pk}/next-invoices"):
        response = operator(name=unique("op")).get(f"{BILLING}/{page}/")
        assert response.status_code == 200
        assert "Another process is generating invoices" in text_of(response.content.decode())


def test_a_customer_without_orders_has_a_page_too() -> None:
    made = CustomerFactory(ref="C-2")
    client = operator()
    page = page_of(client, made)
    assert "Monthly amount nothing 0 active of 0 subscriptions" in page
    assert "Open invoices none" in page
    assert "Nothing becomes due." in page
    shown = client.get(f"{BILLING}/customer/{made.pk}/preview/").content.decode()
    assert "Nothing becomes due." in shown


def test_what_an_operator_may_not_see_is_not_there(customer: Customer) -> None:
    use(3, 1_000)
    client = operator("billing.view_customer")
    page = page_of(client, customer)
    for words in ("1,200 SMS", "49.00", "Usage:", "Who did what", "SUB-1", "Open invoices"):
        assert words not in page, words
    assert client.get(f"{BILLING}/customer/{customer.pk}/preview/").status_code == 403


def test_the_page_costs_the_same_with_more_rows(customer: Customer) -> None:
    client = operator()

    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            page_of(client, customer)
        return len(captured)

    use(3, 10)
    first = cost()
    for number in range(5):
        use(number, 10)
        SubscriptionFactory(customer="C-1", plan="team", started_at=NOW - timedelta(days=40))
    for ref in Subscription.objects.values_list("ref", flat=True):
        generate_in(ref=ref, options=Options(as_of=NOW - timedelta(days=35)))
    assert cost() == first <= 40


def test_credit_in_money_is_a_card_of_its_own(customer: Customer) -> None:
    client = operator()
    assert "pays for the next invoices" not in page_of(client, customer)
    [invoice] = Invoice.objects.all()
    transitions.apply(invoice_id=invoice.pk, kind="pay", actor="admin:ben", reason="Bank transfer", idempotency_key="p")
    lines = [CreditLine(position=1, amount_minor=5_00)]
    credit_notes.issue(invoice_id=invoice.pk, lines=lines, reason="Goodwill", actor="admin:ann", idempotency_key="n")
    assert "Credit 5.00 EUR pays for the next invoices" in page_of(client, customer)
