"""Numbers of /metrics about overdue invoices, reminders, mails and payments: what they count, and by which indexes."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.documents.sellers import record_seller
from billing.dunning import reminding
from billing.dunning.models import Mail
from billing.models import Invoice, VatCheck
from billing.payments.models import PaymentIntent
from ledger.testing import unique
from ledger_project.monitoring import gauges
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def read(*names: str) -> dict[tuple[str, ...], float]:
    """The samples of the reads that have these names, by name and values of labels."""
    found: dict[tuple[str, ...], float] = {}
    for each in gauges.READS:
        if each.__name__ in names:
            for family in each():
                found |= {(sample.name, *sample.labels.values()): sample.value for sample in family.samples}
    return found


def overdue_invoice(currency: str = "EUR", amount: str = "100.00") -> Invoice:
    plan = PlanFactory(currency=currency, prices=[recurring(unit_amount=amount)])
    customer = CustomerFactory(email="ada@example.com", currency=currency)
    [made] = bill(SubscriptionFactory(plan=plan.code, customer=customer.ref), at(1, 1))
    return Invoice.objects.get(pk=made["id"])


@pytest.fixture
def reminded(db: None, monkeypatch: pytest.MonkeyPatch) -> Invoice:
    """An overdue invoice with one reminder, beside one without in each of two currencies; 100 days after they were issued."""
    record_seller(SELLER | {"reminder_days": [7, 300]}, actor="t")
    day = timezone.now().date() + timedelta(days=100)
    monkeypatch.setattr(reminding, "today_of", lambda invoice: day)
    for module in (reminding, gauges):
        monkeypatch.setattr(module, "is_overdue", lambda: Q(state="open", amount_due_minor__gt=0, due_date__lt=day))
    invoice = overdue_invoice()
    assert reminding.remind(invoice.pk) is not None
    overdue_invoice(amount="0.01")
    overdue_invoice("JPY", "500")
    return invoice


def test_overdue_invoices_are_counted_by_currency_and_reminders(reminded: Invoice) -> None:
    assert read("_overdue_invoices") == {
        ("ledger_invoices_overdue", "EUR", "1"): 1,
        ("ledger_invoices_overdue", "EUR", "0"): 1,
        ("ledger_invoices_overdue", "JPY", "0"): 1,
        ("ledger_invoices_overdue_amount_minor", "EUR", "1"): 10000,
        ("ledger_invoices_overdue_amount_minor", "EUR", "0"): 1,
        ("ledger_invoices_overdue_amount_minor", "JPY", "0"): 500,
    }


def test_vat_lookups_are_overdue_after_an_hour_where_they_are_made(reminded: Invoice, settings: Any) -> None:
    VatCheck.objects.create(customer_id=reminded.customer_id, due_at=datetime.now(UTC) - timedelta(minutes=61))
    assert read("_billing")["ledger_vat_lookups_overdue",] == 0
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": "https://vies.example"}
    assert read("_billing")["ledger_vat_lookups_overdue",] == 1
    VatCheck.objects.update(due_at=datetime.now(UTC) - timedelta(minutes=59))
    assert read("_billing")["ledger_vat_lookups_overdue",] == 0


def test_due_reminders_are_counted_page_by_page(reminded: Invoice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminding, "PAGE_ROWS", 1)
    monkeypatch.setattr(gauges, "PAGES_A_READING", 1)
    walk = gauges.due_reminders()
    # Three invoices, one of which was reminded of, and the page that is empty.
    assert [[sample.value for family in walk() for sample in family.samples] for _ in range(4)] == [[0], [1], [2], [2]]


def test_mails_are_counted_by_state_with_the_age_of_the_oldest(reminded: Invoice) -> None:
    Mail.objects.all().delete()
    assert read("_mails")["ledger_mail_oldest_waiting_seconds",] == 0
    now = datetime.now(UTC)
    for number, (state, hours) in enumerate([("waiting", 2), ("waiting", 1), ("failed", 9), ("unknown", 9), ("sent", 9)]):
        Mail.objects.create(
            kind=f"reminder_{number}", invoice_id=reminded.pk, customer_id=reminded.customer_id, identity=uuid4(), state=state,
            recipient="ada@example.com", queued_at=now - timedelta(hours=hours),
        )  # fmt: skip
    found = read("_mails")
    assert {name[1]: value for name, value in found.items() if len(name) > 1} == {
        "waiting": 2, "handed_over": 0, "bounced": 0, "failed": 1, "unknown": 1,
    }  # fmt: skip
    assert 7200 <= found["ledger_mail_oldest_waiting_seconds",] < 7300
    # Mails of erased customers are never sent, so they do not wait.
    Mail.objects.update(recipient="")
    assert read("_mails")["ledger_mail_oldest_waiting_seconds",] == 0


def test_open_payment_intents_are_counted_by_state(reminded: Invoice) -> None:
    for state, due_at in (("waiting", at(1, 1)), ("succeeded", None)):
        PaymentIntent.objects.create(
            key=unique("k"), provider="stripe", invoice_id=reminded.pk, currency="EUR", amount_minor=1, actor="t", state=state,
            due_at=due_at,
        )  # fmt: skip
    assert {name[1]: value for name, value in read("_payment_intents").items()} == {"requested": 0, "waiting": 1, "processing": 0}


def test_the_numbers_are_read_by_indexes_and_up_to_a_limit(reminded: Invoice, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables this small, only where PostgreSQL avoids the scans that it can do without."""
    with CaptureQueriesContext(connection) as captured:
        assert len(read("_overdue_invoices", "_mails", "_payment_intents")) > 8
    plans = ""
    with connection.cursor() as cursor:
        for method in ("seqscan", "bitmapscan", "sort", "incremental_sort"):
            cursor.execute(f"SET LOCAL enable_{method} = off")
        for query in captured.captured_queries:
            cursor.execute(f"EXPLAIN {query['sql']}")
            plans += "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan" not in plans
    for index in ("billing_invoice_due", "billing_reminder_once", "billing_mail_state", "billing_paymentintent_due"):
        assert index in plans
    assert plans.count("Limit") >= len(captured.captured_queries)
    monkeypatch.setattr(gauges, "MOST_COUNTED", 2)
    assert sum(value for name, value in read("_overdue_invoices").items() if name[0] == "ledger_invoices_overdue") == 2
