"""Forms that move money wait for a second operator above a limit: what each of them counts."""

from typing import Any

import pytest
from django.test import Client

from billing.documents.credit_refunds import deposit_in
from billing.documents.invoice_payments import record_payment
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Amendment, CreditRefund, Invoice, InvoicePayment, PaymentReturn
from billing.payments.intent_orders import order_payment
from billing.payments.models import Purchase, PurchaseReturn
from billing.payments.purchase_recording import record_purchase
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory
from ledger.staff.approvals import APPROVED
from ledger.staff.models import Approval
from tests.billing.documents.test_one_off_invoices import issued
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring
from tests.ledger.staff.admin_site import operator, submit_form

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["EUR=1000"]}


@pytest.fixture
def mara() -> Client:
    return operator(name="mara")


def approve(row: Approval) -> None:
    """Have somebody else approve it."""
    operator(name="ben").post(f"/admin/ledger_staff/approval/{row.pk}/judge/", {"decision": APPROVED})


def state_of(invoice: Invoice) -> str:
    return Invoice.objects.get(pk=invoice.pk).state


def test_a_payment_waits_by_all_that_came_in(mara: Client) -> None:
    invoice = issued(CustomerFactory(), "30")
    url = f"/admin/billing/invoice/{invoice.pk}/record-payment/"
    submit_form(mara, url, confirmed="yes", amount="50000.00", payment="p-1", reason="seen")
    row = Approval.objects.get()
    assert (row.stakes, InvoicePayment.objects.count()) == ({"EUR": 5_000_000}, 0)
    approve(row)
    assert (InvoicePayment.objects.get().amount_minor, state_of(invoice)) == (5_000_000, "paid")


@pytest.mark.parametrize(("action", "after"), [("pay", "paid"), ("void", "void"), ("mark_uncollectible", "uncollectible")])
def test_a_transition_waits_by_what_it_settles_or_writes_off(mara: Client, action: str, after: str) -> None:
    invoice, small = issued(CustomerFactory(), "30"), issued(CustomerFactory(), "5")
    url = "/admin/billing/invoice/{}/" + action.replace("_", "-") + "/"
    submit_form(mara, url.format(invoice.pk), confirmed="yes", reason="agreed")
    row = Approval.objects.get()
    assert (row.stakes, state_of(invoice)) == ({"EUR": invoice.total_minor}, "open")
    submit_form(mara, url.format(small.pk), confirmed="yes", reason="agreed")
    assert (state_of(small), Approval.objects.count()) == (after, 1)
    approve(row)
    assert state_of(invoice) == after


def test_paying_credit_out_waits(mara: Client) -> None:
    customer = CustomerFactory(currency="EUR")
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=5000, reference="r", actor="t")
    url = f"/admin/billing/customer/{customer.pk}/pay-out/"
    submit_form(mara, url, confirmed="yes", amount="40.00", reason="asked for")
    row = Approval.objects.get()
    assert (row.stakes, CreditRefund.objects.count()) == ({"EUR": 4000}, 0)
    approve(row)
    assert CreditRefund.objects.get().amount_minor == 4000


def test_paying_an_invoice_with_credit_waits(mara: Client) -> None:
    invoice = issued(CustomerFactory(currency="EUR"), "30")
    deposit_in(customer_id=invoice.customer_id, currency="EUR", amount_minor=5000, reference="r", actor="t")
    submit_form(mara, f"/admin/billing/invoice/{invoice.pk}/pay-with-credit/", confirmed="yes", amount="", reason="as agreed")
    row = Approval.objects.get()
    assert (row.stakes, state_of(invoice)) == ({"EUR": 3600}, "open")
    approve(row)
    assert state_of(invoice) == "paid"


def test_a_return_of_a_payment_waits(mara: Client) -> None:
    invoice = issued(CustomerFactory(), "30")
    paid = record_payment(invoice=invoice.pk, provider="manual", payment="p-1", amount_minor=3000)
    url = f"/admin/billing/invoicepayment/{paid.pk}/return/"
    submit_form(mara, url, confirmed="yes", amount="", kind="refund", payment="r-1", reason="seen")
    assert (Approval.objects.get().stakes, PaymentReturn.objects.count()) == ({"EUR": 3000}, 0)


def test_a_return_of_a_purchase_waits(mara: Client) -> None:
    pack = PackFactory(price_minor=2000, currency="EUR")
    made = record_purchase(pack=pack.code, holder_id="ada", payment="p-1")
    submit_form(
        mara, f"/admin/billing_payments/purchase/{made.pk}/return/", confirmed="yes", kind="refund", payment="r-1", reason="seen"
    )
    assert (Approval.objects.get().stakes, PurchaseReturn.objects.count()) == ({"EUR": 2000}, 0)


def test_a_transfer_counts_with_the_deposit_above_the_price(mara: Client) -> None:
    pack = PackFactory(price_minor=500, currency="EUR", credits=10, bonus=0)
    customer = CustomerFactory(currency="EUR", holder_id="ada")
    intent = order_payment(pack=pack.code, holder_id="ada", customer=customer.ref, provider="manual")
    url = f"/admin/billing_payments/paymentintent/{intent.pk}/transfer/"
    submit_form(mara, url, confirmed="yes", amount="500.00", payment="t-1", reason="seen")
    assert (Approval.objects.get().stakes, Purchase.objects.count()) == ({"EUR": 50_000, pack.credit_type: 10}, 0)


def test_a_cancellation_waits_by_the_unused_time_that_it_pays_out(mara: Client) -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="62")])
    subscription = SubscriptionFactory(ref="SUB-1", plan=plan.code)
    generate_in(ref="SUB-1", options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    record_payment(invoice=invoice.pk, provider="manual", payment="p-1", amount_minor=invoice.amount_remaining_minor)
    url = f"/admin/billing/subscription/{subscription.pk}/cancel/"
    values = {"ends_at": "2026-01-11T00:00", "reason": "asked for"}
    submit_form(mara, url, confirmed="yes", unused_time="refund", **values)
    assert (Approval.objects.get().stakes, Amendment.objects.count(), CreditRefund.objects.count()) == ({"EUR": 4200}, 1, 0)
    submit_form(mara, url, confirmed="yes", unused_time="", **values)
    assert (Approval.objects.count(), Amendment.objects.count()) == (1, 2)
