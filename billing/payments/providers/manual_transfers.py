"""`manual`: the customer transfers the money to the seller's account, and a person or a bank's file says that it came in.

It asks nobody: what it finds are payments of invoices that are on record here. The money of a pack is found when it is booked
(`billing.payments.transfers`).
"""

import re
from typing import ClassVar, Final

from billing.models import Invoice, InvoicePayment
from billing.payments.models import PaymentIntent
from billing.payments.providers.interface import CANCELED, SUCCEEDED, WAITING, Found, Order, Provider
from billing.rating.values import MANUAL

DIGITS: Final = 12
"""The digits of an intent's id in its reference, so that a reference ends where the next number of a text begins."""
REFERENCE: Final = re.compile(rf"(?<![A-Z0-9])RF((?:[ ./_–-]{{0,3}}[0-9]){{{DIGITS + 2}}})(?![0-9])", re.IGNORECASE)


class ManualProvider(Provider):
    """Transfers to the seller's own account."""

    name: ClassVar[str] = MANUAL
    has_page: ClassVar[bool] = False
    is_remote: ClassVar[bool] = False

    def start(self, order: Order) -> Found:
        intent_id = PaymentIntent.objects.values_list("pk", flat=True).get(key=order.key)
        return Found(state=WAITING, checkout=reference_of(intent_id))

    def find(self, order: Order) -> Found:
        """Return how an order stands: that of an invoice is paid when its invoice is, by whatever means."""
        intent = PaymentIntent.objects.get(key=order.key)
        answer = Found(state=CANCELED if intent.is_canceled else WAITING, checkout=order.checkout, payment=order.payment)
        if intent.invoice_id is None:
            return answer
        invoice = Invoice.objects.get(pk=intent.invoice_id)
        if invoice.state == Invoice.State.PAID:
            paid = InvoicePayment.objects.filter(invoice_id=invoice.pk, provider=MANUAL, recorded_at__gte=intent.recorded_at)
            last = paid.order_by("-pk").values_list("payment", flat=True).first()
            return Found(state=SUCCEEDED, checkout=order.checkout, payment=last or "", is_recorded=True)
        if invoice.state == Invoice.State.VOID:
            return Found(state=CANCELED, checkout=order.checkout, payment=order.payment)
        return answer

    def cancel(self, order: Order) -> None:
        """Do nothing: that the intent is given up is on record."""


def reference_of(intent_id: int) -> str:
    """Return what the customer writes on the transfer: a creditor reference, whose check digits find mistyped ones.

    Source: ISO 11649.
    """
    digits = f"{intent_id:0{DIGITS}}"
    return f"RF{98 - int(digits + '271500') % 97:02}{digits}"


def intents_in(text: str) -> list[int]:
    """Return the ids of the intents whose references stand in a text, in order. Signs between the digits make no difference."""
    numbers = (re.sub("[^0-9]", "", match.group(1)) for match in REFERENCE.finditer(text))
    named = {int(digits[2:]): f"RF{digits}" for digits in numbers}
    return sorted(intent_id for intent_id, reference in named.items() if reference == reference_of(intent_id))
