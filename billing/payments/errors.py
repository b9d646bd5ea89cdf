"""What is refused about packs, purchases, payment intents and top-ups, and what providers refuse."""

from typing import Annotated

from ledger.errors import Answer, Invalid, LedgerError, Refused, Retryable
from ledger.values import Count, Text


class NotPayable(Refused):
    """The invoice is not open, or nothing is due."""

    code = "not-payable"
    title = "Nothing is to be paid for the invoice"

    invoice: Annotated[int, Count("The invoice, by its id.")]
    state: Annotated[str, Text("The state of the invoice.", most=32)]


class InvoiceInCollection(Refused):
    """A provider is asked for the money of the invoice already; a second payment would pay it twice."""

    code = "invoice-in-collection"
    title = "A provider is asked for the money of the invoice already"
    passes = True

    invoice: Annotated[int, Count("The invoice, by its id.")]
    payment_intent: Annotated[int, Count("The open payment intent, by its id: wait for it, or cancel it.")]


class PaymentIntentClosed(Refused):
    """The payment intent has succeeded, failed or was canceled."""

    code = "payment-intent-closed"
    title = "The payment intent is not open"

    payment_intent: Annotated[int, Count("The payment intent, by its id.")]
    state: Annotated[str, Text("Its state.", most=16)]


class TopUpEnded(Refused):
    """The top-up has ended; declare a new one."""

    code = "top-up-ended"
    title = "The top-up has ended"

    top_up: Annotated[int, Count("The top-up, by its id.")]


class TransferTooSmall(Refused):
    """The transfer is less than the pack costs. It is left for a person, who asks for the rest or sends the money back."""

    code = "transfer-too-small"
    title = "The transfer is less than the pack costs"

    payment_intent: Annotated[int, Count("The payment intent, by its id.")]
    asked_minor: Annotated[int, Count("What the pack costs, in minor units.")]
    received_minor: Annotated[int, Count("What was transferred, in minor units.")]


class RefundExceedsIntent(Refused):
    """The refund exceeds what is left of the payment intent's money, or the intent has not succeeded."""

    code = "refund-exceeds-intent"
    title = "The refund exceeds the rest of the payment"

    payment_intent: Annotated[int, Count("The payment intent, by its id.")]
    refundable_minor: Annotated[int, Count("The money that can be sent back.")]


class ProviderUnavailable(Retryable):
    """The provider of payments did not answer, or not now: whether it executed the request is unknown. It is asked again."""

    code = "provider-unavailable"
    title = "The provider of payments does not answer"

    why: Annotated[str, Text("What happened.", most=500)]


class ProviderRefused(LedgerError):
    """The provider of payments refuses the request for good; no money moved."""

    code = "provider-refused"
    title = "The provider of payments refuses the request"
    answer = Answer(409, "The provider of payments refuses the request.")

    why: Annotated[str, Text("What the provider says.", most=500)]


class EventRejected(Invalid):
    """The bytes are not an event that the provider signed, or they are too old. Nothing was written."""

    code = "event-rejected"
    title = "The event is not signed by the provider"

    def __init__(self) -> None:
        super().__init__(pointer="", rule="not-signed", detail="The event is not signed by the provider, or it is too old.")


class ReturnExceedsPurchase(Refused):
    """The return exceeds what is left of the purchase's money."""

    code = "return-exceeds-purchase"
    title = "The return exceeds the rest of the purchase"

    purchase: Annotated[int, Count("The purchase, by its id.")]
    returnable_minor: Annotated[int, Count("The money that was not returned yet.")]
