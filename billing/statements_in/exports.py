"""What of bank statements can be exported."""

from typing import Final

from django.apps import apps

from billing.exports import OF_CUSTOMER, export_of
from billing.statements_in.models import BankReceipt

_PAID: Final = {
    "invoice_id": "billing_invoice",
    **({"payment_intent_id": "billing_paymentintent"} if apps.is_installed("billing.payments") else {}),
}
_OF_RECEIPT: Final = {
    "customer": " OR ".join(
        f"e.{column} IN (SELECT id FROM {table} WHERE {OF_CUSTOMER.format('customer_id')})" for column, table in _PAID.items()
    ).join("()")
}
RECEIPTS: Final = export_of(
    "bank-receipts", "money that a bank's statement says came in", BankReceipt, _OF_RECEIPT, order="e.id", dated="recorded_at"
)
