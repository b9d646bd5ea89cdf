"""What operators may do with packs, purchases, payment intents and top-ups."""

from typing import Final

from billing.permissions import INVOICES, OPERATOR
from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_PACK: Final = Permission("billing_payments.view_pack", EVERYONE)
VIEW_PAYMENTINTENT: Final = Permission("billing_payments.view_paymentintent", EVERYONE)
VIEW_PURCHASE: Final = Permission("billing_payments.view_purchase", EVERYONE)
VIEW_TOPUP: Final = Permission("billing_payments.view_topup", EVERYONE)
ADD_PACK: Final = Permission("billing_payments.add_pack", OPERATOR)
ADD_PURCHASE: Final = Permission("billing_payments.add_purchase", INVOICES)
REFUND_PAYMENTINTENT: Final = Permission(
    "billing_payments.refund_paymentintent", INVOICES, "paymentintent", "Can have a provider send money back"
)
RETURN_PURCHASE: Final = Permission("billing_payments.return_purchase", INVOICES, "purchase", "Can record a return of money")
CHANGE_TOPUP: Final = Permission("billing_payments.change_topup", INVOICES)

PERMISSIONS: Final = table_of(dict(globals()))
