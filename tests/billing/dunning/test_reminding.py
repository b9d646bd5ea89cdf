"""Overdue invoices are reminded of once for each step, with a fee and a suspension by choice, until they are paid."""

from collections.abc import Sequence
from datetime import date, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core import mail as outbox
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import record_seller
from billing.dunning import reminding
from billing.dunning.delivery import deliver_due
from billing.dunning.models import Mail, Reminder
from billing.dunning.reminding import Reminded, remind, remind_due
from billing.errors import BillingSuspended
from billing.models import Charge, Invoice, SuspendedBilling
from ledger.errors import Invalid
from ledger.signals.webhooks import WebhookRequest, create_webhook
from tests.billing.admin.conftest import client
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition, unique
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

__all__ = ["client"]

STEPS = {"reminder_days": [7, 21, 35], "reminder_fee_minor": {"EUR": 500}, "suspends_at_reminder": 3}


@pytest.fixture(autouse=True)
def _reminding_seller() -> None:
    record_seller(SELLER | STEPS, actor="t")


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes it this number of days after the due date of an invoice."""

    def set_to(invoice: Invoice, days: int) -> None:
        assert invoice.due_date is not None
        day = invoice.due_date + timedelta(days=days)
        monkeypatch.setattr(reminding, "today_of", lambda invoice: day)
        monkeypatch.setattr(reminding, "is_overdue", lambda: Q(state="open", due_date__lt=day))

    return set_to


def issued(email: str = "ada@example.com", **options: Any) -> Invoice:
    customer = CustomerFactory(email=email, **options)
    plan = PlanFactory(prices=[recurring(unit_amount="100.00")])
    [made] = bill(SubscriptionFactory(plan=plan.code, customer=customer.ref), at(1, 1))
    return Invoice.objects.get(pk=made["id"])


def rows() -> list[tuple[int, int, bool]]:
    return list(Reminder.objects.order_by("pk").values_list("step", "fee_minor", "suspends"))


def assert_sound() -> None:
    assert consistency.check() == []


@pytest.mark.slow
@pytest.mark.check
def test_each_step_is_reminded_once_with_fee_and_suspension(today: Any) -> None:
    invoice = issued()
    today(invoice, 6)
    assert remind_due() == Reminded()
    for day, expected in ((7, [(1, 0, False)]), (21, [(1, 0, False), (2, 500, False)])):
        today(invoice, day)
        assert remind_due(dry_run=True) == Reminded(reminded=1)
        assert remind_due() == Reminded(reminded=1)
        assert (remind_due(), remind(invoice.pk), rows()) == (Reminded(), None, expected)
    assert [row.amount_minor for row in Charge.objects.all()] == [500]
    assert not SuspendedBilling.objects.exists()
    today(invoice, 35)
    assert remind_due() == Reminded(reminded=1)
    [suspended] = SuspendedBilling.objects.all()
    assert (suspended.reason, suspended.facts, suspended.resumed_at) == (
        "overdue",
        {"invoice": invoice.number, "reminder": 3},
        None,
    )
    today(invoice, 400)
    assert remind_due() == Reminded()
    assert_sound()


@pytest.mark.slow
@pytest.mark.check
def test_a_suspended_subscription_is_resumed_when_the_invoice_is_paid(today: Any) -> None:
    invoice = issued()
    for day in STEPS["reminder_days"]:
        today(invoice, day)
        remind_due()
    from billing.models import Subscription

    subscription = Subscription.objects.get(pk=invoice.subscription_id)
    with pytest.raises(BillingSuspended):
        bill(subscription, at(2, 1))
    record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=9999)
    assert remind_due() == Reminded()
    record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=1)
    assert remind_due(dry_run=True) == Reminded(resumed=1)
    assert remind_due() == Reminded(resumed=1)
    assert remind_due() == Reminded()
    [row] = SuspendedBilling.objects.all()
    assert (row.resumed_by, row.resume_reason) == ("billing", "what was overdue is paid")
    [following] = bill(subscription, at(2, 1))
    fees = [line["description"] for line in following["lines"] if line["kind"] == "charge"]
    assert fees == [f"Reminder 2 of invoice {invoice.number}", f"Reminder 3 of invoice {invoice.number}"]
    assert_sound()


def test_one_that_fails_does_not_stop_the_others(today: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = issued(), issued()
    today(second, 7)
    write = reminding._write

    def fails_once(invoice: Invoice, step: int, refs: Sequence[str]) -> Reminder:
        if invoice.pk == first.pk:
            raise Invalid(pointer="", rule="r", detail="d")
        return write(invoice, step, refs)

    with monkeypatch.context() as failing:
        failing.setattr(reminding, "_write", fails_once)
        assert remind_due() == Reminded(reminded=1, failed=1)
    assert [row.invoice_id for row in Reminder.objects.all()] == [second.pk]
    assert remind_due() == Reminded(reminded=1)
    assert_sound()


@pytest.mark.slow
@pytest.mark.check
def test_more_overdue_invoices_cost_no_more_queries(today: Any) -> None:
    invoice, counts = issued(), []
    for _ in range(2):
        today(invoice, 7)
        with CaptureQueriesContext(connection) as sent:
            found = remind_due(dry_run=True).reminded
        counts.append((found, len(sent)))
        for _ in range(3):
            issued()
    assert [found for found, _ in counts] == [1, 4]
    assert counts[0][1] == counts[1][1]


@pytest.mark.parametrize("how", ["paid", "void", "uncollectible", "disputed", "no terms"])
def test_what_is_not_owed_or_disputed_is_not_reminded_of(today: Any, how: str) -> None:
    invoice = issued()
    today(invoice, 7)
    if how == "paid":
        record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=10000)
    elif how == "disputed":
        paid = record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=4000)
        record_payment_return(invoice_payment=paid.pk, kind="dispute", payment=unique("d"))
    elif how == "no terms":
        record_seller(SELLER, actor="t")
    else:
        transition(invoice.pk, {"void": "void", "uncollectible": "mark_uncollectible"}[how])
    assert (remind_due(), remind(invoice.pk), rows()) == (Reminded(), None, [])
    assert not Mail.objects.exists()


def test_a_partly_paid_invoice_is_reminded_of_what_is_left(today: Any) -> None:
    invoice = issued()
    record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=4000)
    today(invoice, 7)
    remind_due()
    assert [row.remaining_minor for row in Reminder.objects.all()] == [6000]


def test_reminders_are_mailed_in_the_language_of_the_customer(today: Any) -> None:
    invoice = issued(language="de")
    today(invoice, 7)
    remind_due()
    today(invoice, 21)
    remind_due()
    assert deliver_due().sent == 2
    first, second = outbox.outbox
    assert first.subject == f"Mahnung: Rechnung {invoice.number} von {SELLER['name']} ist überfällig"
    assert "100,00 EUR sind noch offen" in first.body.replace("\xa0", " ")
    assert "kostet" not in first.body
    assert "Diese Mahnung kostet 5,00 EUR" in second.body.replace("\xa0", " ")
    assert [name for name, *_ in first.attachments] == [name for name, *_ in second.attachments]


def test_a_reminder_of_an_invoice_that_was_paid_since_is_not_mailed(today: Any) -> None:
    invoice = issued()
    today(invoice, 7)
    remind_due()
    transition(invoice.pk, "pay")
    deliver_due()
    assert (outbox.outbox, [one.state for one in Mail.objects.all()]) == ([], ["failed"])


def test_without_an_address_a_reminder_is_recorded_and_not_mailed(today: Any) -> None:
    invoice = issued(email="")
    today(invoice, 7)
    remind_due()
    assert (len(rows()), Mail.objects.count()) == (1, 0)


def test_a_step_that_fails_halfway_leaves_nothing(today: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    invoice = issued()
    for day in (7, 21):
        today(invoice, day)
        remind_due()
    today(invoice, 35)
    with monkeypatch.context() as broken:
        broken.setattr(reminding, "suspend", lambda **named: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            remind(invoice.pk)
    assert (len(rows()), Charge.objects.count(), Mail.objects.count()) == (2, 1, 2)
    assert remind(invoice.pk) is not None
    assert (len(rows()), Charge.objects.count(), Mail.objects.count()) == (3, 2, 3)


def test_the_database_refuses_a_second_reminder_of_a_step_and_a_change_of_one(today: Any) -> None:
    invoice = issued()
    today(invoice, 7)
    remind_due()
    copy = Reminder.objects.get()
    copy.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()
    with pytest.raises(DatabaseError), transaction.atomic():
        Reminder.objects.update(step=2)


def test_the_check_finds_a_fee_that_is_not_its_charge(today: Any) -> None:
    invoice = issued()
    for day in (7, 21):
        today(invoice, day)
        remind_due()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE billing_reminder DISABLE TRIGGER USER")
            cursor.execute("UPDATE billing_reminder SET fee_minor = 400 WHERE step = 2")
        found = {one["finding"] for one in consistency.check()}
        transaction.set_rollback(True)
    assert "fee of a reminder is not its charge" in found


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"reminder_days": [7, 7]}, "/reminder_days"),
        ({"reminder_days": [21, 7]}, "/reminder_days"),
        ({"reminder_days": [0]}, "/reminder_days/0"),
        ({"reminder_days": [366]}, "/reminder_days/0"),
        ({"reminder_days": list(range(1, 11))}, "/reminder_days"),
        ({"suspends_at_reminder": 4}, "/suspends_at_reminder"),
        ({"reminder_fee_minor": {"EUR": 0}}, "/reminder_fee_minor/EUR"),
    ],
)
def test_wrong_steps_are_refused(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as wrong:
        record_seller(SELLER | STEPS | change, actor="t")
    assert wrong.value.facts["pointer"] == pointer


def test_reminders_over_rest_in_the_admin_and_by_the_command(today: Any, api: ApiClient, client: Any) -> None:
    invoice = issued()
    today(invoice, 7)
    shown = StringIO()
    call_command("send_reminders", stdout=shown)
    assert shown.getvalue() == "1 reminders, 0 resumed, 0 busy or failed.\n"
    [row] = api.get(f"/v1/reminders?invoice={invoice.pk}").json()["results"]
    assert (row["step"], row["remaining_minor"], row["fee_minor"], row["suspends"]) == (1, 10000, 0, False)
    assert date.fromisoformat(row["reminded_on"]) == invoice.due_date + timedelta(days=7)
    assert api.get("/v1/sellers/default").json()["reminder_days"] == [7, 21, 35]
    assert "Reminders" in client.get(f"/admin/billing/invoice/{invoice.pk}/change/").content.decode()


def test_the_signal_of_a_reminder_says_when_the_invoice_was_due(today: Any) -> None:
    create_webhook(WebhookRequest(url="https://example.com/hook", types=["invoice.reminded"]))
    invoice = issued()
    today(invoice, 7)
    call_command("send_reminders", stdout=StringIO())
    with connection.cursor() as cursor:
        cursor.execute("SELECT data ->> 'invoice', data ->> 'step', data ->> 'due_date' FROM ledger_signal")
        [row] = cursor.fetchall()
    assert row == (str(invoice.pk), "1", invoice.due_date.isoformat())
