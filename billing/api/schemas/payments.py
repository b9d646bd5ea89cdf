"""Bodies, queries and examples of the calls about payments of invoices."""

from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from rest_framework import serializers

from billing.api.schemas.request_schemas import OfCustomer
from billing.documents.credit_payments import NewCreditPayment
from billing.documents.invoice_payments import NewPayment
from billing.documents.payment_returns import NewPaymentReturn
from billing.rating.values import PaymentId, Provider
from billing.reads.response_fields import minor, text, time, whole
from ledger.json_values import time_text
from ledger.records import Shape
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.queries import ListQuery, QueryInteger
from ledger.values import Time

PAYMENT_BODY = Shape(NewPayment, without={"actor"})
CREDIT_PAYMENT_BODY = Shape(NewCreditPayment, without={"actor", "invoice"})
PAYMENT_RETURN_BODY = Shape(NewPaymentReturn, without={"actor", "invoice_payment"})


@dataclass(frozen=True, kw_only=True)
class PaymentsQuery(ListQuery):
    """Which payments of invoices."""

    invoice: Annotated[int | None, QueryInteger("Only payments of this invoice, by its id.", least=1, most=2**63 - 1)] = None
    customer: OfCustomer = None
    provider: Annotated[str | None, Provider("Only money that this provider took.")] = None
    payment: Annotated[str | None, PaymentId("Only the payment with this id.")] = None
    since: Annotated[datetime | None, Time("Paid at this time or later.")] = None
    until: Annotated[datetime | None, Time("Paid before this time.")] = None


class PaymentReturnSerializer(ResponseSchema):
    """Money of a payment that went back."""

    payment_id = whole(attrgetter("invoice_payment_id"))
    kind = text()
    payment = text()
    amount_minor = minor()
    credit_minor = minor(help_text="What was taken from credit that the money had become.")
    reopened_minor = minor(help_text="By how much the invoice is due again.")
    claim_minor = minor(help_text="Money whose credit had paid other invoices, or was paid out.")
    returned_at = time()
    reason = text()
    actor = text()
    recorded_at = time()


class InvoicePaymentSerializer(ResponseSchema):
    """Money that came in for an invoice, or credit of the customer that was set against it."""

    id = whole(attrgetter("row.pk"))
    invoice = whole(attrgetter("row.invoice_id"))
    number = text(help_text="The number of the invoice.")
    customer = text()
    provider = text(attrgetter("row.provider"))
    payment = text(attrgetter("row.payment"))
    currency = text(attrgetter("row.currency"))
    amount_minor = minor(attrgetter("row.amount_minor"))
    applied_minor = minor(attrgetter("row.applied_minor"), help_text="What of it paid the invoice.")
    deposit = whole(attrgetter("row.deposit_id"), null=True, help_text="The rest, which is credit of the customer, by its id.")
    deposit_minor = minor()
    credit_refund = whole(
        attrgetter("row.credit_refund_id"), null=True, help_text="The refund of credit that paid, by its id; null: money came in."
    )
    returned_minor = minor()
    paid_at = computed(serializers.CharField(), attrgetter("row.paid_at"), as_text=time_text)
    reference = text(attrgetter("row.reference"))
    actor = text(attrgetter("row.actor"))
    recorded_at = computed(serializers.CharField(), attrgetter("row.recorded_at"), as_text=time_text)
    returns = computed(PaymentReturnSerializer(many=True), attrgetter("returns"))


# Examples --------------------------------------------------------------------------------------------

PAYMENT_EXAMPLE_BODY: dict[str, Any] = {
    "provider": "bank", "payment": "2026-01-20/17", "amount_minor": 2000, "currency": "EUR", "reference": "INV 000012 thank you",
}  # fmt: skip
PAYMENT: dict[str, Any] = {
    "id": 1, "invoice": 1, "number": "INV-000012", "customer": "CUST-7", "provider": "bank", "payment": "2026-01-20/17",
    "currency": "EUR", "amount_minor": 2000, "applied_minor": 1680, "deposit": 4, "deposit_minor": 320,
    "credit_refund": None, "returned_minor": 0, "paid_at": "2026-01-20T08:00:00.000000Z",
    "reference": "INV 000012 thank you", "actor": "key:bank",
    "recorded_at": "2026-01-20T08:00:00.123456Z", "returns": [],
}  # fmt: skip
CREDIT_PAYMENT_EXAMPLE_BODY: dict[str, Any] = {"credit_note": 4, "reason": "As agreed by phone"}
CREDIT_PAYMENT: dict[str, Any] = {
    "id": 2, "invoice": 2, "number": "INV-000013", "customer": "CUST-7", "provider": "credit", "payment": "credit-refund-3",
    "currency": "EUR", "amount_minor": 320, "applied_minor": 320, "deposit": None, "deposit_minor": 0, "credit_refund": 3,
    "returned_minor": 0, "paid_at": "2026-01-21T08:00:00.123456Z", "reference": "As agreed by phone", "actor": "key:shop",
    "recorded_at": "2026-01-21T08:00:00.123456Z", "returns": [],
}  # fmt: skip
PAYMENT_RETURN_EXAMPLE_BODY: dict[str, Any] = {"kind": "dispute", "payment": "R-88", "reason": "Account closed"}
PAYMENT_RETURN: dict[str, Any] = {
    "payment_id": 1, "kind": "dispute", "payment": "R-88", "amount_minor": 2000, "credit_minor": 320, "reopened_minor": 1680,
    "claim_minor": 0, "returned_at": "2026-01-22T08:00:00.000000Z", "reason": "Account closed", "actor": "key:bank",
    "recorded_at": "2026-01-22T08:00:00.123456Z",
}  # fmt: skip
