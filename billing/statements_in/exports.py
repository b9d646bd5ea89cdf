"""What of bank statements can be exported."""

from typing import Final

from billing.exports import OF_CUSTOMER, export_of
from billing.statements_in.models import BankReceipt

_OF_RECEIPT: Final = {
    "customer": f"""(e.invoice_id IN (SELECT id FROM billing_invoice WHERE {OF_CUSTOMER.format("customer_id")})
        OR e.payment_intent_id IN (SELECT id FROM billing_paymentintent WHERE {OF_CUSTOMER.format("customer_id")}))"""
}
RECEIPTS: Final = export_of(
    "bank-receipts", "money that a bank's statement says came in", BankReceipt, _OF_RECEIPT, order="e.id", dated="recorded_at"
)
