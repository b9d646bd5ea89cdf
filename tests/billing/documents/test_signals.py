"""Signals of billing are written with their cause, by whichever way it comes, and undone with it."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from billing.documents import invoice_payments, invoices
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Invoice
from billing.orders import suspension
from billing.orders.customers import NewCredits
from ledger import services
from ledger.database.statements import fetch_rows
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.ledger.signals.conftest import Receiver, receiver, webhook, work

__all__ = ["receiver", "webhook"]

MakeWebhook = Callable[..., dict[str, Any]]
OF_INVOICES = ("invoice.finalized", "invoice.paid", "invoice.void", "invoice.uncollectible")

pytestmark = pytest.mark.django_db


def new_invoice(*, finalize: bool = True, **customer: Any) -> Invoice:
    """A first invoice of 10.00 plus 20 percent."""
    buyer = CustomerFactory(**customer).ref
    subscription = SubscriptionFactory(customer=buyer, plan=PlanFactory(prices=[recurring(tax_rate="20")]).code)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1), finalize=finalize))
    return Invoice.objects.get(subscription_ref=subscription.ref)


def told() -> list[str]:
    """The types of the signals, in the order in which they are sent."""
    return fetch_rows(str, "SELECT type FROM ledger_signal WHERE sequence IS NULL ORDER BY number")


def test_where_no_webhook_wants_it_nothing_is_written(webhook: MakeWebhook) -> None:
    webhook("entry.recorded")
    new_invoice()
    assert told() == []


def test_a_receiver_gets_the_invoice_as_it_was(receiver: Receiver, webhook: MakeWebhook) -> None:
    made = webhook(*OF_INVOICES)
    draft = new_invoice(finalize=False)
    assert told() == []
    invoices.finalize(draft.pk)
    invoice_payments.pay_rest(draft.pk)
    work()
    invoice = Invoice.objects.get(pk=draft.pk)
    finalized, paid = (each.verified_by(made["secret"]) for each in receiver.received)
    assert (finalized["type"], paid["type"]) == ("invoice.finalized", "invoice.paid")
    assert finalized["data"] == {
        "id": invoice.pk,
        "number": invoice.number,
        "subscription": invoice.subscription_ref,
        "customer": invoice.customer_ref,
        "currency": "EUR",
        "state": "open",
        "issue_date": str(invoice.issue_date),
        "due_date": str(invoice.due_date),
        "total_minor": 1200,
        "credit_notes_minor": 0,
        "credits_applied_minor": 0,
        "rounding_minor": 0,
        "amount_due_minor": 1200,
        "amount_paid_minor": 0,
    }
    assert paid["data"]["state"] == "paid"


@pytest.mark.parametrize(
    ("change", "name"), [(invoices.void, "invoice.void"), (invoices.mark_uncollectible, "invoice.uncollectible")]
)
def test_each_end_of_an_invoice_is_told(webhook: MakeWebhook, change: Callable[[int], Any], name: str) -> None:
    webhook(*OF_INVOICES)
    change(new_invoice().pk)
    assert told() == ["invoice.finalized", name]


def test_an_invoice_that_credits_pay_is_finalised_and_then_paid_for_its_holder(webhook: MakeWebhook) -> None:
    webhook(*OF_INVOICES)
    services.grant(holder_id="payer", amount=5000, idempotency_key="g")
    new_invoice(holder_id="payer", credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    assert told() == ["invoice.finalized", "invoice.paid"]
    assert set(fetch_rows(str, "SELECT holder_id FROM ledger_signal WHERE type = 'invoice.paid'")) == {"payer"}


def test_what_is_rolled_back_is_not_told(webhook: MakeWebhook) -> None:
    webhook(*OF_INVOICES)
    draft = new_invoice(finalize=False)
    with transaction.atomic():
        invoices.finalize(draft.pk)
        transaction.set_rollback(True)
    assert told() == []


def test_suspending_and_resuming_billing_is_told(receiver: Receiver, webhook: MakeWebhook) -> None:
    webhook("subscription.suspended", "subscription.resumed")
    subscription = SubscriptionFactory()
    for _ in range(2):
        suspension.suspend(ref=subscription.ref, reason="too-much")
    suspension.resume(ref=subscription.ref, actor="admin:mara", reason="checked")
    work()
    suspended, resumed = (each.content for each in receiver.received)
    assert (suspended["type"], suspended["data"]["reason"]) == ("subscription.suspended", "too-much")
    assert (suspended["data"]["subscription"], suspended["data"]["resumed_by"]) == (subscription.ref, None)
    assert (resumed["type"], resumed["data"]["resumed_by"], resumed["data"]["resume_reason"]) == (
        "subscription.resumed", "admin:mara", "checked",
    )  # fmt: skip
