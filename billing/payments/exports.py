"""What of packs, purchases, payment intents and top-ups can be exported."""

from typing import Final

from billing.exports import OF_CUSTOMER, REFERENCES, THEIRS, export_of
from billing.payments.models import (
    PaymentIntent,
    ProviderCustomer,
    ProviderRefund,
    Purchase,
    PurchaseGrant,
    PurchaseReturn,
    ReturnSettlement,
    TopUp,
)

_REFERENCES: Final = {**REFERENCES, "pack": "(SELECT code FROM billing_pack WHERE id = e.{})"}


def _bought_by(purchase: str) -> str:
    """Return the condition for purchases of a customer, and for those of the customer's holder that name no customer."""
    return f"""({OF_CUSTOMER.format(f"{purchase}.customer_id")} OR {purchase}.customer_id IS NULL AND {purchase}.holder_id IN (
        SELECT holder_id FROM billing_customer WHERE ref = %(customer)s AND holder_id <> ''))"""


_OF_PURCHASE: Final = {"customer": f"EXISTS (SELECT FROM billing_purchase AS p WHERE p.id = e.purchase_id AND {_bought_by('p')})"}
_OF_INTENT: Final = {
    "customer": "e.intent_id IN (SELECT id FROM billing_paymentintent WHERE " + OF_CUSTOMER.format("customer_id") + ")"
}
EXPORTS: Final = (
    export_of(
        "purchases", "money that came in for a pack", Purchase, {"customer": _bought_by("e")}, order="e.id", dated="paid_at",
        references=_REFERENCES,
    ),
    export_of("purchase-grants", "credits that a purchase added", PurchaseGrant, _OF_PURCHASE, order="e.id", dated="recorded_at"),
    export_of(
        "purchase-returns", "money of a purchase that went back", PurchaseReturn, _OF_PURCHASE, order="e.id", dated="returned_at"
    ),
    export_of(
        "return-settlements", "what a return did to credits", ReturnSettlement, _OF_PURCHASE, order="e.id", dated="recorded_at"
    ),
    export_of(
        "payment-intents", "money that a provider is asked for", PaymentIntent, {"customer": THEIRS["customer"]}, order="e.id",
        dated="recorded_at", references=_REFERENCES,
    ),
    export_of(
        "provider-refunds", "money that a provider is asked to send back", ProviderRefund, _OF_INTENT, order="e.id",
        dated="recorded_at",
    ),
    export_of(
        "provider-customers", "a customer's id with a provider", ProviderCustomer, {"customer": THEIRS["customer"]}, order="e.id"
    ),
    export_of(
        "top-ups", "when an account is topped up", TopUp, {"customer": THEIRS["customer"]}, order="e.id", dated="recorded_at"
    ),
)  # fmt: skip
