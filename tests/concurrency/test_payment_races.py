"""Two payments of an invoice, a payment and a void, two returns, and one payment that arrives twice: each at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError

from billing.documents import credit_payments, invoice_locks, invoice_payments, invoices, payment_returns
from billing.documents.credit_payments import pay_with_credit
from billing.documents.credit_refunds import deposit_in
from billing.documents.invoice_locks import invoice_key, payment_key
from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.payment_returns import record_payment_return
from billing.errors import CreditPaymentExceeds, InvoiceGenerationBusy, InvoicePartlyPaid, ReturnExceedsPayment
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import CreditNote, Customer, Invoice, InvoicePayment, PaymentReturn
from billing.testing import CustomerFactory, SubscriptionFactory
from ledger.database.locks import Lock, holding, lock_number
from ledger.database.transactions import outermost
from ledger.errors import HolderBusy
from ledger.testing import unique
from tests.billing.factories import at
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock


def issued(minor: int = 10000) -> Invoice:
    """A committed open invoice of a new customer."""
    line = OneOffLine(description="Work", unit_amount=Decimal(minor) / 100)
    made = issue_one_off_in(customer_ref=CustomerFactory().ref, request=NewOneOffInvoice(lines=[line]))
    return Invoice.objects.get(pk=made.pk)


def pay(invoice: Invoice, minor: int, payment: str = "") -> InvoicePayment:
    return record_payment(invoice=invoice.pk, payment=payment or unique("pay"), amount_minor=minor)


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let payments, returns and transitions take no lock of the invoice's payments."""
    for module in (invoice_payments, invoice_locks):
        monkeypatch.setattr(module, "advisory_lock", no_lock)
    monkeypatch.setattr(payment_returns, "locked_transaction", _unlocked)
    monkeypatch.setattr(payment_returns, "account_turn", nullcontext)


@contextmanager
def _unlocked(*names: str) -> Iterator[Lock]:
    with outermost(), holding(*names) as lock:
        yield lock


def refused_by_the_database(results: list[Any]) -> int:
    return sum(isinstance(each, DatabaseError) for each in results)


@LOCKED
def test_two_payments_at_the_same_time_pay_no_more_than_is_due(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    invoice = issued()
    if not is_locked:
        without_locks(monkeypatch)
    meet(monkeypatch, (invoice_payments, "set_paid_under"), is_locked=is_locked)
    results = run_threads(lambda _: pay(invoice, 8000), 2)
    invoice.refresh_from_db()
    deposits = CreditNote.objects.filter(customer_id=invoice.customer_id).values_list("amount_minor", flat=True)
    if is_locked:
        assert {type(each) for each in results} == {InvoicePayment}
        assert (invoice.state, invoice.amount_paid_minor, list(deposits)) == ("paid", 10000, [6000])
    else:
        # Both have read that 100.00 is due. The database refuses what the second would make of the invoice.
        assert refused_by_the_database(results) == 1
        assert (invoice.state, invoice.amount_paid_minor, list(deposits)) == ("open", 8000, [])


@LOCKED
def test_a_payment_and_a_void_at_the_same_time(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    invoice = issued()
    if not is_locked:
        without_locks(monkeypatch)
    if not is_locked:
        meet(monkeypatch, (invoice_payments, "set_paid_under"), (invoices, "came_to_nothing"), is_locked=False)
    results = run_threads(lambda index: invoices.void(invoice.pk) if index else pay(invoice, 4000), 2)
    invoice.refresh_from_db()
    [paid] = InvoicePayment.objects.filter(invoice_id=invoice.pk) or [None]
    if is_locked:
        # In either order: a part is paid and the void is refused, or the invoice is void and the money is a deposit.
        came_first = isinstance(results[1], InvoicePartlyPaid)
        assert (invoice.state, invoice.amount_paid_minor) == (("open", 4000) if came_first else ("void", 0))
        assert paid is not None
        assert paid.applied_minor == (4000 if came_first else 0)
    else:
        assert refused_by_the_database(results) == 1
        assert (invoice.state, invoice.amount_paid_minor) in {("open", 4000), ("void", 0)}


@LOCKED
def test_two_returns_at_the_same_time_return_no_more_than_came_in(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    invoice = issued()
    paid = pay(invoice, 10000)
    if not is_locked:
        without_locks(monkeypatch)
    meet(monkeypatch, (payment_returns, "returned_minor"), is_locked=is_locked)
    if not is_locked:
        meet(monkeypatch, (payment_returns, "set_paid_under"), is_locked=is_locked)

    def send_back(index: int) -> PaymentReturn:
        return record_payment_return(invoice_payment=paid.pk, kind="refund", payment=f"r-{index}", amount_minor=8000)

    results = run_threads(send_back, 2)
    invoice.refresh_from_db()
    gone = list(PaymentReturn.objects.filter(invoice_payment_id=paid.pk).values_list("amount_minor", flat=True))
    if is_locked:
        assert {type(each) for each in results} == {PaymentReturn, ReturnExceedsPayment}
        assert (invoice.amount_paid_minor, gone) == (2000, [8000])
    else:
        # Neither row knows of the other: only the column of the invoice refuses the second.
        assert refused_by_the_database(results) == 1
        assert (invoice.amount_paid_minor, gone) == (2000, [8000])


@LOCKED
@pytest.mark.parametrize("is_charge_back", [False, True])
def test_a_deposit_pays_one_of_two_invoices_at_the_same_time(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool, is_charge_back: bool
) -> None:
    """Two set it against their invoices; or one does, while the payment of the other invoice is charged back."""
    first = issued()
    customer = Customer.objects.get(pk=first.customer_id)
    line = OneOffLine(description="Work", unit_amount=Decimal(100))
    second = Invoice.objects.get(pk=issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=[line])).pk)
    paid = pay(second, 10000) if is_charge_back else None
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=10000, reference="payment", actor="test")
    if not is_locked:
        monkeypatch.setattr(credit_payments, "account_turn", nullcontext)
    meet(monkeypatch, (credit_payments, "_write"), is_locked=is_locked)

    def one(index: int) -> Any:
        if index and paid is not None:
            return record_payment_return(invoice_payment=paid.pk, kind="dispute", payment="d-1")
        return pay_with_credit(invoice=(first, second)[index].pk)

    results = run_threads(one, 2)
    invoices_now = Invoice.objects.filter(pk__in=(first.pk, second.pk))
    [left] = CreditNote.objects.filter(customer_id=customer.pk).values_list("left_minor", flat=True)
    assert left == 0
    if is_locked:
        assert sorted(invoices_now.values_list("state", "amount_paid_minor")) == [("open", 0), ("paid", 10000)]
        refused = [each for each in results if isinstance(each, CreditPaymentExceeds)]
        # A charge-back is recorded either way; a form that comes second finds no credit.
        assert len(refused) == (1 if paid is None or invoices_now.get(pk=first.pk).state == "open" else 0)
    else:
        # Both have read that the deposit is whole. The database refuses the second use, and with it all that it wrote.
        assert refused_by_the_database(results) == 1
        assert InvoicePayment.objects.filter(provider="credit", customer_id=customer.pk).count() == 1


@LOCKED
def test_one_payment_that_arrives_twice_at_the_same_time_is_recorded_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    invoice, name = issued(), unique("pay")
    if not is_locked:
        monkeypatch.setattr(invoice_payments, "locked_transaction", _unlocked)
        monkeypatch.setattr(invoice_payments, "advisory_lock", no_lock)
    meet(monkeypatch, (invoice_payments, "record_under"), is_locked=is_locked)
    results = run_threads(lambda _: pay(invoice, 4000, name), 2)
    invoice.refresh_from_db()
    assert (invoice.amount_paid_minor, InvoicePayment.objects.filter(payment=name).count()) == (4000, 1)
    if is_locked:
        assert results[0].pk == results[1].pk
    else:
        assert {type(each) for each in results} == {InvoicePayment, IntegrityError}


def test_a_payment_does_not_wait_for_invoice_generation(committed_db: None, raw_connection: Any) -> None:
    subscription = SubscriptionFactory()
    [made] = generate(ref=subscription.ref, options=Options(as_of=at(1, 1))).invoices
    holder = raw_connection()
    holder.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(invoice_key(subscription.ref))])
    invoice = Invoice.objects.get(pk=made.invoice_id)
    assert pay(invoice, 100).applied_minor == 100
    with pytest.raises(InvoiceGenerationBusy):
        invoice_payments.pay_rest(invoice.pk)
    holder.rollback()


@pytest.mark.slow
@pytest.mark.check
def test_a_payment_waits_for_another_of_the_invoice_and_gives_up(committed_db: None, raw_connection: Any) -> None:
    invoice = issued()
    holder = raw_connection()
    holder.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(payment_key(invoice.pk))])
    with pytest.raises(HolderBusy):
        pay(invoice, 100)
    holder.rollback()
    invoice.refresh_from_db()
    assert (invoice.amount_paid_minor, InvoicePayment.objects.filter(invoice_id=invoice.pk).count()) == (0, 0)
