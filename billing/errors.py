"""The errors with which billing refuses a request."""

from typing import Annotated, Any, TypedDict

from ledger.errors import AGAIN, Answer, LedgerError, LockBusy, Misuse, Refused, Retryable
from ledger.values import Count, ListOf, Members, Text, Value


class RefOrId(Value):
    """The reference of a resource; the id of a document."""

    def openapi(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"oneOf": [{"type": "string"}, {"type": "integer"}]}


class AlreadyExists(Refused):
    """The name belongs to an existing resource with other content."""

    code = "already-exists"
    title = "The name is taken"

    resource: Annotated[str, Text("The kind of the resource.", most=64)]
    ref: Annotated[str, Text("Its reference.", most=64)]


class NotFound(Refused):
    """No resource has this name, or this key may not see it; the response is the same for both."""

    code = "not-found"
    title = "The resource does not exist"
    answer = Answer(404, "The {resource} {ref} does not exist.")

    resource: Annotated[str, Text("The kind of the resource.", most=64)]
    ref: Annotated[str | int, RefOrId("The resource's reference, or the id of a document.")]


class InvalidTransition(Refused):
    """The document's state does not allow this transition.

    With `by`: a later invoice corrects this one, bills time that it gave back, or used its credit. Void that invoice first.
    """

    code = "invalid-transition"
    title = "The invoice's state does not allow this"

    invoice: Annotated[int, Count("The invoice, by its id.")]
    state: Annotated[str, Text("The state of the invoice.", most=32)]
    wanted: Annotated[str, Text("The transition that the request asks for.", most=32)]


class InvoiceCorrectedLater(InvalidTransition):
    """A later invoice corrects a line of this one, or bills time that this one gave back; void that invoice first."""

    stored_as = "invoice-corrected-later"
    title = "A later invoice corrects this one"
    answer = Answer(409, "Invoice {by} corrects this one or bills time that it gave back; void {by} first.")

    by: Annotated[int, Count("The later invoice, by its id.")]


class InvoiceCreditRefunded(InvalidTransition):
    """Credit from this invoice was paid out, so the invoice stays."""

    stored_as = "invoice-credit-refunded"
    title = "Credit from this invoice was paid out"
    answer = Answer(409, "Credit from this invoice was paid out in money, so the invoice cannot be voided.")


class InvoicePartlyPaid(InvalidTransition):
    """Payments paid a part of the invoice. Credit the invoice, or record that the payments went back."""

    stored_as = "invoice-partly-paid"
    title = "Part of the invoice is paid"
    answer = Answer(409, "Part of the invoice is paid. Credit the invoice, or record that its payments went back.")

    paid_minor: Annotated[int, Count("What payments paid, in minor units.")]


class PaymentNotMatched(Refused):
    """The text of the payment names no invoice, or several."""

    code = "payment-not-matched"
    title = "The payment's text does not name one invoice"

    invoices: Annotated[list[int], ListOf(Count("An invoice, by its id."), "The invoices that the text names.", most=100)]


class ReturnExceedsPayment(Refused):
    """The return exceeds what is left of the payment."""

    code = "return-exceeds-payment"
    title = "The return exceeds the rest of the payment"

    payment: Annotated[int, Count("The payment, by its id.")]
    returnable_minor: Annotated[int, Count("The money that was not returned yet.")]


class RefundExceedsCredit(Refused):
    """The refund exceeds the credit of the customer, or the rest of the credit note that it names."""

    code = "refund-exceeds-credit"
    title = "The refund exceeds the credit"

    customer: Annotated[str, Text("The customer.", most=64)]
    currency: Annotated[str, Text("The currency.", most=3)]
    left_minor: Annotated[int, Count("The credit that can be paid out, in minor units.")]
    requested_minor: Annotated[int, Count("The amount of the refund, in minor units.")]


class CreditPaymentExceeds(Refused):
    """The credit that is to be set against an invoice exceeds what is left of it, or what is still to be paid."""

    code = "credit-payment-exceeds"
    title = "Less is left of the credit, or still to be paid"

    invoice: Annotated[int, Count("The invoice, by its id.")]
    remaining_minor: Annotated[int, Count("What is still to be paid, in minor units.")]
    left_minor: Annotated[int, Count("The credit that can be used, in minor units.")]


class CreditableLine(TypedDict):
    """The rest of a line that can be credited."""

    position: Annotated[int, Count("The line.")]
    creditable_minor: Annotated[int, Count("The creditable amount, before tax.")]


class CreditExceedsInvoice(Refused):
    """The credit note exceeds the rest of the invoice."""

    code = "credit-exceeds-invoice"
    title = "The credit note exceeds the rest of the invoice"

    invoice: Annotated[int, Count("The invoice, by its id.")]
    creditable_minor: Annotated[int, Count("The creditable amount, with tax.")]
    lines: Annotated[list[CreditableLine], ListOf(Members(CreditableLine), "The creditable amount of each line.", most=10_000)]


class TaxesUnavailable(Retryable):
    """The provider of taxes did not answer, or not now. Nothing was written, and no number was taken."""

    code = "taxes-unavailable"
    title = "The provider of taxes does not answer"
    answer = Answer(503, AGAIN, retry_after_seconds=10)

    why: Annotated[str, Text("What happened.", most=500)]


class TaxesRefused(LedgerError):
    """The provider of taxes has no usable answer to the sale, as for an address that it does not know. Nothing was written."""

    code = "taxes-refused"
    title = "The provider of taxes refuses the sale"
    answer = Answer(409, "The provider of taxes refuses the sale. Nothing was written; mend what it names, and send it again.")

    why: Annotated[str, Text("What the provider says.", most=500)]


class CustomerStillBilled(Refused):
    """`manage.py erase_customer` cannot erase the customer before everything is billed."""

    code = "customer-still-billed"
    title = "The customer is still billed"

    customer: Annotated[str, Text("The customer.", most=64)]
    subscription: Annotated[str, Text("The subscription.", most=64)]
    why: Annotated[str, Text("What is not billed yet.", most=200)]


class SellerMissing(LedgerError):
    """No seller is recorded, so no document can be printed: `manage.py seller`. Nothing was written."""

    code = "seller-missing"
    title = "No seller is recorded"
    answer = Answer(409, "A document names the seller. Record the seller: manage.py seller --file seller.json.")


class BrokenRule(TypedDict):
    """A rule of e-invoices that the document would break."""

    rule: Annotated[str, Text("As EN 16931, XRechnung or Peppol name it.", most=64)]
    detail: Annotated[str, Text("In a sentence.", most=500)]


class EInvoiceMissing(LedgerError):
    """The document has no e-invoice, because it would break a rule. Nothing was written."""

    code = "e-invoice-missing"
    title = "The document has no e-invoice"
    answer = Answer(
        409, "`faults` has the rules that it would break. Give seller and customer what they lack; the next documents have it."
    )

    faults: Annotated[list[BrokenRule], ListOf(Members(BrokenRule), "The rules that it would break.", most=1_000)]


class CouponNotApplicable(Refused):
    """The customer cannot get the coupon: its currency differs, or the customer has it already."""

    code = "coupon-not-applicable"
    title = "The customer cannot get this coupon"

    coupon: Annotated[str, Text("The coupon.", most=64)]
    why: Annotated[str, Text("Why the customer cannot get it.", most=200)]


class SubscriptionNotStarted(Refused):
    """The subscription waits for the payment of its first invoice, or its order has expired or was canceled.

    What waits can only be paid or canceled: `POST /v1/subscriptions/{ref}/cancel`, which voids its first invoice.
    """

    code = "subscription-not-started"
    title = "The subscription has not started"
    answer = Answer(409, "The subscription starts when its first invoice is paid; it can be canceled before. It is {state}.")

    subscription: Annotated[str, Text("The subscription.", most=64)]
    state: Annotated[str, Text("`waiting` for the payment, `expired` or `canceled`.", most=16)]


class SubscriptionNotIncomplete(Refused):
    """The subscription does not wait for the payment of its first invoice. An amendment with `ends_at` ends it."""

    code = "subscription-not-incomplete"
    title = "The subscription does not wait for its first payment"

    subscription: Annotated[str, Text("The subscription.", most=64)]


class BillingNotSuspended(Refused):
    """Billing of the subscription is not suspended."""

    code = "billing-not-suspended"
    title = "Billing of the subscription is not suspended"

    subscription: Annotated[str, Text("The subscription.", most=64)]


class InvoiceGenerationBusy(LockBusy):
    """Another process is generating invoices for this subscription; try again later."""

    code = "invoice-generation-busy"
    title = "Another process is generating invoices for this subscription"

    subscription: Annotated[str, Text("The subscription.", most=64)]


class PeriodAlreadyBilled(Misuse):
    """Another process has billed this period, without the lock. Nothing was written.

    The database refused an overlapping claim. A process that holds `invoice_gen/<ref>` cannot get this error; the generator
    counts it as `conflict` and continues with the next subscription.
    """

    code = "period-already-billed"
    title = "The period is already billed"
    answer = Answer(409, "Another process has billed this period. Nothing was written.")

    subscription: Annotated[str, Text("The subscription.", most=64)]


class BillingSuspended(Refused):
    """Billing is suspended until a person has checked the subscription and resumes it."""

    code = "billing-suspended"
    title = "Billing of the subscription is suspended"

    subscription: Annotated[str, Text("The subscription.", most=64)]
    reason: Annotated[str, Text("Why billing was suspended.", most=64)]


class BillingWouldBeSuspended(BillingSuspended):
    """A dry run exceeds a limit at which a run suspends the billing. Nothing is suspended."""

    code = "billing-would-be-suspended"
    title = "A run would suspend billing of the subscription"
