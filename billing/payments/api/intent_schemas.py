"""Bodies, queries and examples of the calls about payment intents and their providers."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from rest_framework import serializers

from billing.api.schemas.request_schemas import OfCustomer
from billing.payments.intent_orders import NewCancellation, NewPaymentIntent, NewProviderRefund
from billing.payments.providers.interface import STATES
from billing.payments.topup_declarations import NewTopUp, NewTopUpChange
from billing.payments.transfers import NewTransfer
from billing.rating.values import Ref
from billing.reads.response_fields import minor, text, time, whole
from ledger.json_values import time_text
from ledger.records import Shape
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.queries import ListQuery, QueryBoolean, QueryInteger
from ledger.values import Choice, Holder

INTENT_BODY = Shape(NewPaymentIntent, without={"actor", "top_up"})
CANCELLATION_BODY = Shape(NewCancellation, without={"intent"})
TOP_UP_BODY = Shape(NewTopUp, without={"actor"})
TOP_UP_CHANGE_BODY = Shape(NewTopUpChange, without={"top_up"})
TRANSFER_BODY = Shape(NewTransfer, without={"actor", "intent"})
PROVIDER_REFUND_BODY = Shape(NewProviderRefund, without={"actor", "intent"})


@dataclass(frozen=True, kw_only=True)
class PaymentIntentsQuery(ListQuery):
    """Which payment intents."""

    holder: Annotated[str | None, Holder("Only for this holder's credits.", named="holder_id")] = None
    customer: OfCustomer = None
    invoice: Annotated[int | None, QueryInteger("Only of the invoice with this id.", least=1, most=2**63 - 1)] = None
    pack: Annotated[str | None, Ref("Only for this pack.")] = None
    state: Annotated[str | None, Choice(STATES, "In this state.")] = None


@dataclass(frozen=True, kw_only=True)
class TopUpsQuery(ListQuery):
    """Which top-ups."""

    holder: Annotated[str | None, Holder("Only of this holder's accounts.", named="holder_id")] = None
    customer: OfCustomer = None
    ended: Annotated[bool | None, QueryBoolean("True: only those that have ended; false: only the others.")] = None


class ProviderRefundSerializer(ResponseSchema):
    """Money that a provider is asked to send back."""

    id = whole(attrgetter("pk"))
    payment_intent = whole(attrgetter("intent_id"))
    state = text(help_text="requested, processing, succeeded or failed.")
    amount_minor = minor()
    refund = text(lambda row: row.refund or None, null=True, help_text="The provider's id of the refund.")
    reason = text()
    error = text(lambda row: row.error or None, null=True)
    actor = text()
    recorded_at = time()


class TransferOrderSerializer(ResponseSchema):
    """What the customer is to transfer, and to whom."""

    reference = text(help_text="What the customer writes on the transfer: a creditor reference (ISO 11649).")
    amount_minor = minor(help_text="What is still to be transferred, in minor units.")
    currency = text()
    account_holder = text(lambda source: source.seller.get("name"), null=True, help_text="The seller.")
    iban = text(lambda source: source.seller.get("iban") or None, null=True)
    bic = text(lambda source: source.seller.get("bic") or None, null=True)
    bank = text(lambda source: source.seller.get("bank") or None, null=True)
    due_date = computed(
        serializers.DateField(allow_null=True, help_text="The due date of the invoice."),
        lambda source: source.due_date and source.due_date.isoformat(),
    )


class PaymentIntentSerializer(ResponseSchema):
    """Money that a provider is asked for."""

    id = whole(attrgetter("row.pk"))
    state = text(
        attrgetter("row.state"),
        help_text="requested: recorded here; waiting: the customer must act at `url`, or transfer what `transfer` says; "
        "processing: the provider is at work; "
        "succeeded: the money is in; failed: declined; canceled: given up, or not paid in time.",
    )
    provider = text(attrgetter("row.provider"))
    pack = text(null=True)
    version = whole(null=True)
    quantity = whole(attrgetter("row.quantity"))
    top_up = whole(attrgetter("row.top_up_id"), null=True, help_text="The top-up that asked for it.")
    holder_id = text(attrgetter("row.holder_id"), null=True)
    invoice = whole(attrgetter("row.invoice_id"), null=True)
    customer = text(null=True)
    currency = text(attrgetter("row.currency"))
    amount_minor = minor(attrgetter("row.amount_minor"))
    method = text(lambda source: source.row.method or None, null=True)
    url = text(lambda source: source.row.url or None, null=True, help_text="Where the customer pays or confirms.")
    checkout = text(lambda source: source.row.checkout or None, null=True, help_text="The provider's id of the checkout.")
    payment = text(lambda source: source.row.payment or None, null=True, help_text="The provider's id of the payment.")
    transfer = computed(
        TransferOrderSerializer(allow_null=True, help_text="Of an open intent of the provider `manual`."), attrgetter("transfer")
    )
    purchase = whole(null=True, help_text="The purchase that it made.")
    invoice_payment = whole(null=True, help_text="The payment of the invoice that it made.")
    returned_minor = minor(attrgetter("row.returned_minor"), help_text="Refunded or disputed, in minor units.")
    refunds = computed(ProviderRefundSerializer(many=True), attrgetter("refunds"))
    error = text(lambda source: source.row.error or None, null=True)
    next_try_at = computed(serializers.CharField(allow_null=True), attrgetter("row.due_at"), as_text=time_text)
    reference = text(attrgetter("row.reference"))
    actor = text(attrgetter("row.actor"))
    recorded_at = computed(serializers.CharField(), attrgetter("row.recorded_at"), as_text=time_text)


class TopUpSerializer(ResponseSchema):
    """When an account is topped up, and what is under way."""

    id = whole(attrgetter("row.pk"))
    state = text(help_text="active; paused: after declines, resume it; ended.")
    holder_id = text(attrgetter("row.holder_id"))
    credit_type = text(attrgetter("row.credit_type"))
    threshold = whole(attrgetter("row.threshold"))
    pack = text(attrgetter("row.pack_ref"))
    packs = whole(attrgetter("row.packs"), null=True)
    up_to = whole(attrgetter("row.up_to"), null=True)
    customer = text()
    provider = text(attrgetter("row.provider"))
    method = text(attrgetter("row.method"))
    cap_minor = whole(attrgetter("row.cap_minor"), null=True)
    cap_period = text(attrgetter("row.cap_period"))
    cooldown_seconds = whole(attrgetter("row.cooldown_seconds"))
    declines = whole(attrgetter("row.declines"))
    under_way = whole(
        lambda source: source.under_way and source.under_way.pk, null=True, help_text="The open payment intent, by its id."
    )
    actor = text(attrgetter("row.actor"))
    recorded_at = computed(serializers.CharField(), attrgetter("row.recorded_at"), as_text=time_text)
    paused_at = computed(serializers.CharField(allow_null=True), attrgetter("row.paused_at"), as_text=time_text)
    ended_at = computed(serializers.CharField(allow_null=True), attrgetter("row.ended_at"), as_text=time_text)


class PaymentMethodSerializer(ResponseSchema):
    """A saved method of a customer."""

    id = text()
    provider = text(help_text="Who keeps it.")
    text = text(help_text="As a person recognises it.")


class PaymentMethodsSerializer(ResponseSchema):
    """The saved methods of a customer."""

    results = PaymentMethodSerializer(many=True)


class ReceivedEventSerializer(ResponseSchema):
    """An event of a provider that is on record."""

    is_new = serializers.BooleanField(help_text="False if it was on record before.")


# Examples --------------------------------------------------------------------------------------------

CHECKOUT_EXAMPLE_BODY: dict[str, Any] = {
    "pack": "starter", "holder_id": "customer-42", "return_url": "https://shop.example/credits",
}  # fmt: skip
CHARGE_EXAMPLE_BODY: dict[str, Any] = {"invoice": 7, "method": "pm_1Qx7"}
TRANSFER_ORDER_EXAMPLE_BODY: dict[str, Any] = {
    "pack": "starter", "holder_id": "customer-42", "customer": "CUST-7", "provider": "manual",
}  # fmt: skip
TRANSFER_EXAMPLE_BODY: dict[str, Any] = {
    "payment": "2026-01-20/17", "amount_minor": 2000, "currency": "EUR", "paid_at": "2026-01-20T00:00:00Z",
}  # fmt: skip
PROVIDER_REFUND_EXAMPLE_BODY: dict[str, Any] = {"amount_minor": 500, "reason": "Not as agreed"}
PROVIDER_REFUND: dict[str, Any] = {
    "id": 1, "payment_intent": 1, "state": "requested", "amount_minor": 500, "refund": None, "reason": "Not as agreed",
    "error": None, "actor": "key:shop", "recorded_at": "2026-01-20T08:00:00.000000Z",
}  # fmt: skip
PAYMENT_INTENT: dict[str, Any] = {
    "id": 1, "state": "requested", "provider": "stripe", "pack": "starter", "version": 1, "quantity": 1, "top_up": None,
    "holder_id": "customer-42", "invoice": None, "customer": None, "currency": "EUR", "amount_minor": 2000, "method": None,
    "url": None, "checkout": None, "payment": None, "transfer": None, "purchase": None, "invoice_payment": None,
    "returned_minor": 0, "refunds": [], "error": None, "next_try_at": "2026-01-14T09:30:00.123456Z",
    "reference": "", "actor": "key:shop", "recorded_at": "2026-01-14T09:30:00.123456Z",
}  # fmt: skip
TOP_UP_EXAMPLE_BODY: dict[str, Any] = {
    "holder_id": "customer-42", "threshold": 200, "pack": "starter", "packs": 1, "customer": "CUST-7", "method": "pm_1Qx7",
    "cap_minor": 20000,
}  # fmt: skip
TOP_UP: dict[str, Any] = {
    "id": 1, "state": "active", "holder_id": "customer-42", "credit_type": "credits", "threshold": 200, "pack": "starter",
    "packs": 1, "up_to": None, "customer": "CUST-7", "provider": "stripe", "method": "pm_1Qx7", "cap_minor": 20000,
    "cap_period": "month", "cooldown_seconds": 300, "declines": 3, "under_way": None, "actor": "key:shop",
    "recorded_at": "2026-01-14T09:30:00.123456Z", "paused_at": None, "ended_at": None,
}  # fmt: skip
WAITING_INTENT: dict[str, Any] = {
    **PAYMENT_INTENT, "state": "waiting", "checkout": "cs_test_a1", "url": "https://checkout.stripe.com/c/pay/cs_test_a1",
}  # fmt: skip
PAID_INTENT: dict[str, Any] = {
    **PAYMENT_INTENT, "state": "succeeded", "provider": "manual", "customer": "CUST-7", "checkout": "RF74000000000001",
    "payment": "2026-01-20/17", "purchase": 1, "next_try_at": None,
}  # fmt: skip
METHODS: dict[str, Any] = {"results": [{"id": "pm_1Qx7", "provider": "stripe", "text": "Visa …4242, 8/2030"}]}
