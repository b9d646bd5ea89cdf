"""Two workers at one reminder, and a payment at the same time: each step happens once, and not for what is paid."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from billing.auditing import consistency
from billing.documents import invoice_payments
from billing.documents.invoice_payments import record_payment
from billing.documents.sellers import record_seller
from billing.dunning import reminding
from billing.dunning.errors import NotReminded
from billing.dunning.holds import hold_reminders
from billing.dunning.models import Reminder
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import Charge, Customer, Invoice
from billing.testing import CustomerFactory, SubscriptionFactory
from ledger.testing import unique
from tests.billing.documents.issued import SELLER
from tests.billing.factories import at
from tests.concurrency.meetings import LOCKED, Meeting, meet
from tests.concurrency.race_harness import no_lock


def overdue(monkeypatch: pytest.MonkeyPatch, *, reminders: int) -> Invoice:
    """A committed invoice of which this number of reminders was sent, on the day of the next one."""
    record_seller(SELLER | {"reminder_days": [7, 21], "reminder_fee_minor": {"EUR": 500}}, actor="t")
    [made] = generate(ref=SubscriptionFactory(customer=CustomerFactory().ref).ref, options=Options(as_of=at(1, 1))).invoices
    invoice = Invoice.objects.get(pk=made.invoice_id)
    assert invoice.due_date is not None
    for days in (7, 21)[: reminders + 1]:
        day = invoice.due_date + timedelta(days=days)
        monkeypatch.setattr(reminding, "today_of", lambda invoice, day=day: day)
        if days == 7 and reminders:
            reminding.remind(invoice.pk)
    return invoice


@LOCKED
def test_two_workers_remind_once(committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool) -> None:
    invoice = overdue(monkeypatch, reminders=1)
    if not is_locked:
        monkeypatch.setattr(reminding, "advisory_lock", no_lock)
        monkeypatch.setattr(reminding, "charge_once", lambda **fields: Charge(pk=1))
    meet(monkeypatch, (reminding, "_write"), is_locked=is_locked)
    results = run_threads(lambda _: reminding.remind(invoice.pk), 2)
    assert {type(each) for each in results} == {Reminder, type(None) if is_locked else IntegrityError}
    assert Reminder.objects.filter(invoice_id=invoice.pk, step=2).count() == 1
    if is_locked:
        assert Charge.objects.filter(subscription_id=invoice.subscription_id).count() == 1


@LOCKED
def test_a_payment_and_a_reminder_at_the_same_time(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    invoice = overdue(monkeypatch, reminders=0)
    if not is_locked:
        monkeypatch.setattr(reminding, "advisory_lock", no_lock)
    due_minor = invoice.amount_remaining_minor
    meet(monkeypatch, (reminding, "_write"), (invoice_payments, "set_paid_under"), is_locked=is_locked)
    paid, reminded = run_threads(
        lambda index: (
            reminding.remind(invoice.pk)
            if index
            else record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=due_minor)
        ),
        2,
    )
    invoice.refresh_from_db()
    assert (paid.applied_minor, invoice.state) == (due_minor, "paid")
    if is_locked:
        # The reminder came first, or there is none.
        assert reminded is None or reminded.recorded_at <= paid.recorded_at
    else:
        assert reminded is not None


@LOCKED
@pytest.mark.parametrize("of", ["invoice", "customer"])
def test_a_hold_and_a_reminder_at_the_same_time(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool, of: str
) -> None:
    """Without the lock, the reminder is decided before the hold and written after it."""
    invoice = overdue(monkeypatch, reminders=0)
    if not is_locked:
        monkeypatch.setattr(reminding, "advisory_lock", no_lock)
    which: dict[str, Any] = {"invoice": invoice.pk} if of == "invoice" else {"customer": invoice.customer_ref}
    held = Meeting(is_locked=is_locked)
    write = reminding._write

    def write_after_the_hold(*arguments: Any) -> Reminder:
        held.come()
        return write(*arguments)

    monkeypatch.setattr(reminding, "_write", write_after_the_hold)
    decided = threading.Event()
    next_steps = reminding._next_steps

    def decide(invoices: Any) -> Any:
        found = next_steps(invoices)
        decided.set()
        return found

    monkeypatch.setattr(reminding, "_next_steps", decide)

    def act(index: int) -> Any:
        if index:
            return reminding.remind(invoice.pk)
        assert decided.wait(60)
        hold = hold_reminders(**which, reason="disputed", actor="t")
        held.end()
        return hold

    hold, reminder = run_threads(act, 2)
    assert reminder is not None, "it was decided before the hold"
    assert (reminder.recorded_at < hold.recorded_at) is is_locked
    monkeypatch.setattr(reminding, "_write", write)
    assert reminding.remind(invoice.pk) is None
    findings = [
        one for one in consistency.check() if one["finding"] == "reminder during a hold" and f"invoice {invoice.pk}" in str(one)
    ]
    assert bool(findings) is not is_locked


@LOCKED
def test_two_people_remind_at_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """The second is told that the invoice was reminded of today; without the lock, the database refuses the second row."""
    invoice = overdue(monkeypatch, reminders=0)
    Customer.objects.filter(pk=invoice.customer_id).update(email="ada@example.com")
    if not is_locked:
        monkeypatch.setattr(reminding, "advisory_lock", no_lock)
    meet(monkeypatch, (reminding, "_write"), is_locked=is_locked)
    results = run_threads(lambda index: reminding.remind_now(invoice=invoice.pk, actor=f"operator {index}"), 2)
    assert {type(each) for each in results} == {Reminder, NotReminded if is_locked else IntegrityError}
    assert Reminder.objects.filter(invoice_id=invoice.pk).count() == 1
