"""Calls about payment intents: money that a provider is asked for, and asked to send back."""

from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import NO_CUSTOMER, PAYMENTS, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import INVOICE_PATH
from billing.errors import AlreadyExists
from billing.payments import intent_reads
from billing.payments.advancing import refresh
from billing.payments.api import intent_schemas as schemas
from billing.payments.api.paths import INTENT_PATH
from billing.payments.errors import InvoiceInCollection, NotPayable, PaymentIntentClosed, RefundExceedsIntent, TransferTooSmall
from billing.payments.intent_orders import cancel_intent, order_payment, refund_intent
from billing.payments.transfers import book_transfer
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class PaymentIntents(WriteEndpoint):
    """Payment intents."""

    collection = "payment-intents"
    location = "/v1/payment-intents/{id}"
    get = list_operation(
        "listPaymentIntents", "List payment intents", "Newest first.", tag=PAYMENTS, path="/v1/payment-intents",
        query=schemas.PaymentIntentsQuery, shape=schemas.PaymentIntentSerializer, example=schemas.WAITING_INTENT,
        rows=intent_reads.payment_intents, problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "createPaymentIntent", "Ask a provider for money",
        "For a pack or an open invoice: by a checkout, to whose `url` you send the customer, or from a saved method. The intent "
        "is on record from then on, and a worker asks the provider within a second; the response shows the intent as recorded. "
        "Read it until it has the `url`. With the provider `manual` the customer transfers the money, as `transfer` says. "
        "When the money is in, the pack's purchase or the invoice's payment is recorded.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            schemas.INTENT_BODY, {"a checkout": schemas.CHECKOUT_EXAMPLE_BODY, "a charge": schemas.CHARGE_EXAMPLE_BODY,
             "a transfer": schemas.TRANSFER_ORDER_EXAMPLE_BODY},
        ),
        responses={201: ResponseBody(schemas.PaymentIntentSerializer, schemas.PAYMENT_INTENT, "The intent.")},
        problems=[INVOICE_PATH.missing, NotPayable(invoice=7, state="paid"), InvoiceInCollection(invoice=7, payment_intent=1)],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            intent = order_payment.execute(schemas.INTENT_BODY.make(fields | {"actor": self.key.actor}))
            return 201, schemas.PaymentIntentSerializer.body(intent_reads.payment_intent(intent.pk))

        return self.once(request, schemas.INTENT_BODY, act)


class OnePaymentIntent(BillingEndpoint):
    """One payment intent."""

    @operation(
        "readPaymentIntent", "Read a payment intent",
        "As it is on record: the response does not wait for the provider. If the intent is open, a worker asks the provider "
        "again how it stands, at most every five seconds; the next read shows it.",
        tag=PAYMENTS, scope=BILLING_READ, parameters=[INTENT_PATH],
        responses={200: ResponseBody(schemas.PaymentIntentSerializer, schemas.WAITING_INTENT, "The intent.")},
        problems=[INTENT_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, intent_id: int) -> Response:
        refresh(intent_id)
        return json_response(schemas.PaymentIntentSerializer.body(intent_reads.payment_intent(intent_id)))


class CancelPaymentIntent(WriteEndpoint):
    """Gives an open payment intent up."""

    collection = "payment-intent-cancellations"
    takes_nothing = True

    @operation(
        "cancelPaymentIntent", "Cancel a payment intent",
        "The provider is asked to end the checkout or the charge. If the customer has paid in the meantime, the intent succeeds "
        "all the same: read it.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INTENT_PATH],
        responses={200: ResponseBody(schemas.PaymentIntentSerializer, schemas.WAITING_INTENT, "The intent, as it was.")},
        problems=[INTENT_PATH.missing, PaymentIntentClosed(payment_intent=1, state="succeeded")],
    )  # fmt: skip
    def post(self, request: HttpRequest, intent_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            canceled = cancel_intent(intent=intent_id)
            return 200, schemas.PaymentIntentSerializer.body(intent_reads.payment_intent(canceled.pk))

        return self.once(request, schemas.CANCELLATION_BODY, act)


class PaymentIntentTransfers(WriteEndpoint):
    """Transfers that came in for a payment intent of the provider `manual`."""

    collection = "payment-intent-transfers"

    @operation(
        "bookTransfer", "Book a transfer",
        "For an intent of the provider `manual`, once per `payment`. A transfer of the pack's price or more buys the pack; for "
        "an invoice it may be a part, and the intent succeeds when the invoice is paid. What is more becomes credit.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INTENT_PATH],
        takes=RequestBody(schemas.TRANSFER_BODY, {"a transfer": schemas.TRANSFER_EXAMPLE_BODY}),
        responses={200: ResponseBody(schemas.PaymentIntentSerializer, schemas.PAID_INTENT, "The intent.")},
        problems=[
            INTENT_PATH.missing, PaymentIntentClosed(payment_intent=1, state="canceled"),
            AlreadyExists(resource="payment", ref="1"),
            TransferTooSmall(payment_intent=1, asked_minor=2000, received_minor=1500),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, intent_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            named = {"intent": intent_id, "actor": self.key.actor}
            booked = book_transfer.execute(schemas.TRANSFER_BODY.make(fields | named))
            return 200, schemas.PaymentIntentSerializer.body(intent_reads.payment_intent(booked.pk))

        return self.once(request, schemas.TRANSFER_BODY, act)


class PaymentIntentRefunds(WriteEndpoint):
    """Money of a payment intent that goes back."""

    collection = "payment-intent-refunds"
    location = "/v1/payment-intents/{payment_intent}"

    @operation(
        "refundPaymentIntent", "Send money back",
        "The refund is on record from then on, and a worker asks the provider to send the money. When it is sent, "
        "the return of the purchase is recorded, and its unspent credits are revoked.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INTENT_PATH],
        takes=RequestBody(schemas.PROVIDER_REFUND_BODY, {"a part": schemas.PROVIDER_REFUND_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.ProviderRefundSerializer, schemas.PROVIDER_REFUND, "The refund.")},
        problems=[INTENT_PATH.missing, RefundExceedsIntent(payment_intent=1, refundable_minor=1500)],
    )  # fmt: skip
    def post(self, request: HttpRequest, intent_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            named = {"intent": intent_id, "actor": self.key.actor}
            refund = refund_intent.execute(schemas.PROVIDER_REFUND_BODY.make(fields | named))
            return 201, schemas.ProviderRefundSerializer.body(refund)

        return self.once(request, schemas.PROVIDER_REFUND_BODY, act)
