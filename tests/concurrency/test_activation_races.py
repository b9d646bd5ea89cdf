"""A payment and the expiry of its order, two payments, two expiries, and an order that is broken off: each at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from billing.documents import invoice_locks, invoice_payments
from billing.documents.invoice_payments import record_payment
from billing.generator import activations
from billing.generator.activations import expire, order_subscription
from billing.models import Activation, Amendment, Invoice, InvoicePayment, Subscription
from billing.testing import CustomerFactory, PlanFactory, recurring
from ledger.database.locks import Lock, holding
from ledger.database.transactions import outermost
from ledger.testing import unique
from tests.billing.factories import at
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock


def order() -> Subscription:
    """A committed order of 30.00 that waits for its payment."""
    return order_subscription(
        ref=unique("SUB"), customer=CustomerFactory().ref, plan=PlanFactory(prices=[recurring(unit_amount="30.00")]).code,
        started_at=at(1), starts_when_paid=True,
    )  # fmt: skip


def activation(subscription: Subscription) -> Activation:
    return Activation.objects.get(subscription_id=subscription.pk)


def pay(subscription: Subscription, minor: int = 3000) -> InvoicePayment:
    return record_payment(invoice=activation(subscription).invoice_id, payment=unique("pay"), amount_minor=minor)


def now_of(subscription: Subscription) -> tuple[str, str, int]:
    """The states of the order and of its invoice, and how many amendments it has."""
    found = activation(subscription)
    invoice = Invoice.objects.get(pk=found.invoice_id)
    return found.state, invoice.state, Amendment.objects.filter(subscription_id=subscription.pk).count()


@pytest.fixture(autouse=True)
def _too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which invoices may be paid is over."""
    monkeypatch.setattr(activations, "present", lambda _: timezone.now() + timedelta(days=31))


@contextmanager
def _unlocked(*names: str) -> Iterator[Lock]:
    with outermost(), holding(*names) as lock:
        yield lock


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (invoice_payments, invoice_locks, activations):
        monkeypatch.setattr(module, "advisory_lock", no_lock)
    monkeypatch.setattr(activations, "try_advisory_lock", no_lock)
    monkeypatch.setattr(invoice_locks, "try_advisory_lock", no_lock)
    monkeypatch.setattr(activations, "locked_transaction", _unlocked)


def refused_by_the_database(results: list[Any]) -> int:
    return sum(isinstance(each, DatabaseError) for each in results)


@LOCKED
def test_a_payment_and_the_expiry_at_the_same_time(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    subscription = order()
    if not is_locked:
        without_locks(monkeypatch)
        meet(monkeypatch, (invoice_payments, "set_paid_under"), (activations, "never_start"), is_locked=False)
    results = run_threads(lambda index: expire(subscription.ref) if index else pay(subscription), 2)
    if is_locked:
        # In either order: it starts and does not expire, or it expires and the money is credit of the customer.
        assert isinstance(results[0], InvoicePayment)
        if results[1] is None:
            assert (now_of(subscription), results[0].applied_minor) == (("started", "paid", 1), 3000)
        else:
            assert (now_of(subscription), results[0].applied_minor) == (("expired", "void", 2), 0)
            assert results[0].deposit_id is not None
    else:
        # Both have read that it waits. The database breaks one of them off, and a payment may be lost.
        assert refused_by_the_database(results) == 1
        assert now_of(subscription) in {("started", "paid", 1), ("expired", "void", 2)}


@LOCKED
def test_two_expiries_at_the_same_time_give_back_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    subscription = order()
    if not is_locked:
        without_locks(monkeypatch)
    meet(monkeypatch, (activations, "present"), is_locked=is_locked)
    results = run_threads(lambda _: expire(subscription.ref), 2)
    if is_locked:
        assert now_of(subscription) == ("expired", "void", 2)
        assert sorted(type(each).__name__ for each in results) == ["Activation", "NoneType"]
    else:
        # Both have found it waiting, and have ended it.
        assert now_of(subscription) == ("expired", "void", 3)


@LOCKED
def test_two_payments_at_the_same_time_start_it_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    subscription = order()
    if not is_locked:
        without_locks(monkeypatch)
    meet(monkeypatch, (invoice_payments, "set_paid_under"), is_locked=is_locked)
    results = run_threads(lambda _: pay(subscription), 2)
    assert now_of(subscription) == ("started", "paid", 1)
    if is_locked:
        assert sorted(each.applied_minor for each in results) == [0, 3000]
    else:
        assert refused_by_the_database(results) == 1


@pytest.mark.parametrize("step", ["never_start", "_take_back"])
def test_an_expiry_that_is_broken_off_leaves_nothing_and_the_next_one_does_it(
    committed_db: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    subscription = order()
    with monkeypatch.context() as broken:
        broken.setattr(activations, step, _killed)
        with pytest.raises(_KilledError):
            expire(subscription.ref)
    assert now_of(subscription) == ("waiting", "open", 1)
    assert expire(subscription.ref) is not None
    assert now_of(subscription) == ("expired", "void", 2)


def test_an_order_that_is_broken_off_leaves_nothing(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    customer, plan, ref = CustomerFactory(), PlanFactory(prices=[recurring()]), unique("SUB")
    monkeypatch.setattr(activations, "generate_under", _killed)
    with pytest.raises(_KilledError):
        order_subscription(ref=ref, customer=customer.ref, plan=plan.code, started_at=at(1), starts_when_paid=True)
    assert not Subscription.objects.filter(ref=ref).exists()
    assert not Invoice.objects.filter(customer_id=customer.pk).exists()


class _KilledError(Exception):
    """The process ends here."""


def _killed(*_: Any, **__: Any) -> None:
    raise _KilledError
