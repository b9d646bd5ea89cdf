"""Calls about payments of invoices: money that is in, and money that went back."""

from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import NO_CUSTOMER, PAYMENTS, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import INVOICE_PATH, PAYMENT_PATH
from billing.api.schemas import payments as schemas
from billing.documents.credit_payments import pay_with_credit
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.errors import AlreadyExists, CreditPaymentExceeds, InvalidTransition, PaymentNotMatched, ReturnExceedsPayment
from billing.reads import invoice_payments as reads
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Payments(WriteEndpoint):
    """Payments of invoices."""

    collection = "payments"
    location = "/v1/payments/{id}"
    get = list_operation(
        "listPayments", "List payments of invoices", "Newest first.", tag=PAYMENTS, path="/v1/payments",
        query=schemas.PaymentsQuery, shape=schemas.InvoicePaymentSerializer, example=schemas.PAYMENT, rows=reads.payments,
        problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "recordPayment", "Record the payment of an invoice",
        "Send this when the money is in. It pays the invoice as far as something is due, in parts if need be; the invoice is "
        "paid when its payments cover it. What is too much becomes credit of the customer, which pays the next invoices. Without "
        "`invoice`, the number of the invoice is searched in `reference`: capitals, spaces and punctuation make no difference. A "
        "payment is recorded once, also when it is sent with another Idempotency-Key.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(schemas.PAYMENT_BODY, {"a transfer": schemas.PAYMENT_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.InvoicePaymentSerializer, schemas.PAYMENT, "The payment.")},
        problems=[
            INVOICE_PATH.missing, PaymentNotMatched(invoices=[1, 2]), InvalidTransition(invoice=1, state="draft", wanted="paid"),
            AlreadyExists(resource="payment", ref="1"),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            made = record_payment.execute(schemas.PAYMENT_BODY.make(fields | {"actor": self.key.actor}))
            return 201, schemas.InvoicePaymentSerializer.body(reads.payment(made.pk))

        return self.once(request, schemas.PAYMENT_BODY, act)


class OnePayment(BillingEndpoint):
    """One payment of an invoice."""

    @operation(
        "readPayment", "Read a payment of an invoice", tag=PAYMENTS, scope=BILLING_READ, parameters=[PAYMENT_PATH],
        responses={200: ResponseBody(schemas.InvoicePaymentSerializer, schemas.PAYMENT, "The payment.")},
        problems=[PAYMENT_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, payment_id: int) -> Response:
        return json_response(schemas.InvoicePaymentSerializer.body(reads.payment(payment_id)))


class CreditPayments(WriteEndpoint):
    """Credit of a customer that is set against an open invoice."""

    collection = "credit-payments"
    location = "/v1/payments/{id}"

    @operation(
        "payInvoiceWithCredit", "Set credit of the customer against an open invoice",
        "Credit that came after the invoice was finalised, such as a deposit: at finalisation, credit pays by itself. It is "
        "recorded as a refund of the credit and a payment of the provider `credit`; no money moves. By default the oldest credit "
        "comes first, and as much as is left of it and still to be paid.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INVOICE_PATH],
        takes=RequestBody(schemas.CREDIT_PAYMENT_BODY, {"a deposit": schemas.CREDIT_PAYMENT_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.InvoicePaymentSerializer, schemas.CREDIT_PAYMENT, "The payment.")},
        problems=[
            INVOICE_PATH.missing, InvalidTransition(invoice=1, state="paid", wanted="paid"),
            CreditPaymentExceeds(invoice=1, remaining_minor=500, left_minor=320),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            named = {"invoice": invoice_id, "actor": self.key.actor}
            made = pay_with_credit.execute(schemas.CREDIT_PAYMENT_BODY.make(fields | named))
            return 201, schemas.InvoicePaymentSerializer.body(reads.payment(made.pk))

        return self.once(request, schemas.CREDIT_PAYMENT_BODY, act)


class PaymentReturns(WriteEndpoint):
    """Money of a payment that went back."""

    collection = "payment-returns"
    location = "/v1/payments/{payment_id}"

    @operation(
        "recordPaymentReturn", "Record returned money of an invoice's payment",
        "A refund, or a dispute. It takes the credit that the money had become: the deposit of the payment, then credit notes "
        "about the invoice. By the rest the invoice is due again, and other deposits of the customer pay it. Record a dispute "
        "that you won as a new payment.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[PAYMENT_PATH],
        takes=RequestBody(schemas.PAYMENT_RETURN_BODY, {"a dispute": schemas.PAYMENT_RETURN_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.PaymentReturnSerializer, schemas.PAYMENT_RETURN, "The return.")},
        problems=[
            PAYMENT_PATH.missing, ReturnExceedsPayment(payment=1, returnable_minor=500),
            AlreadyExists(resource="dispute of payment", ref="1"),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, payment_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            named = {"invoice_payment": payment_id, "actor": self.key.actor}
            made = record_payment_return.execute(schemas.PAYMENT_RETURN_BODY.make(fields | named))
            return 201, schemas.PaymentReturnSerializer.body(made)

        return self.once(request, schemas.PAYMENT_RETURN_BODY, act)
