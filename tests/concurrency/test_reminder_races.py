"""Two workers at one reminder, and a payment at the same time: each step happens once, and not for what is paid."""

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from billing.documents.dunning import reminding
from billing.documents.invoice_payments import recording
from billing.documents.invoice_payments.recording import record_payment
from billing.documents.sellers import record_seller
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import Charge, Invoice, Reminder
from billing.testing import CustomerFactory, SubscriptionFactory
from ledger.testing import unique
from tests.billing.documents.issued import SELLER
from tests.billing.factories import at
from tests.concurrency.race_harness import no_lock

COMES_WITHIN_S = {True: 1, False: 60}
"""How long a thread waits for the other at a meeting. With the lock the other cannot come; no result depends on it."""
LOCKED = pytest.mark.parametrize("is_locked", [True, False], ids=["with the lock", "control: without the lock"])


def overdue(monkeypatch: pytest.MonkeyPatch, *, reminders: int) -> Invoice:
    """A committed invoice, so many of whose reminders were sent, on the day of the next one."""
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


def meet(monkeypatch: pytest.MonkeyPatch, is_locked: bool, *places: tuple[Any, str]) -> None:
    """Stop two threads at these functions until both are there, or, with the lock, one waits for the other elsewhere."""
    barrier = threading.Barrier(2)
    for module, name in places:
        real = getattr(module, name)

        def together(*arguments: Any, real: Any = real, **named: Any) -> Any:
            with suppress(threading.BrokenBarrierError):
                barrier.wait(COMES_WITHIN_S[is_locked])
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, together)


@LOCKED
def test_two_workers_remind_once(committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool) -> None:
    invoice = overdue(monkeypatch, reminders=1)
    if not is_locked:
        monkeypatch.setattr(reminding, "advisory_lock", no_lock)
        monkeypatch.setattr(reminding, "charge_once", lambda **fields: Charge(pk=1))
    meet(monkeypatch, is_locked, (reminding, "_write"))
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
    meet(monkeypatch, is_locked, (reminding, "_write"), (recording, "set_paid_under"))
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
