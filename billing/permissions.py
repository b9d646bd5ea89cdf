"""What operators may do with money: one row for each permission, as `ledger.permissions` has them for credits."""

from typing import Final

from ledger.permissions import EVERYONE, Permission

OPERATOR: Final = ("billing operator",)
INVOICES: Final = ("finance", "billing operator")

PERMISSIONS: Final = (
    *(
        Permission(f"billing.view_{model}", EVERYONE)
        for model in ("coupon", "creditnote", "customer", "invoice", "plan", "run", "subscription", "usageevent")
    ),
    Permission("billing.finalize_invoice", INVOICES, "invoice", "Can finalise a draft"),
    Permission("billing.pay_invoice", INVOICES, "invoice", "Can mark an invoice as paid"),
    Permission("billing.void_invoice", INVOICES, "invoice", "Can void an invoice"),
    Permission("billing.mark_invoice_uncollectible", INVOICES, "invoice", "Can mark an invoice as uncollectible"),
    Permission("billing.delete_draft", OPERATOR, "invoice", "Can delete a draft"),
    Permission("billing.credit_invoice", INVOICES, "invoice", "Can credit an invoice"),
    *(
        Permission(f"billing.add_{model}", OPERATOR)
        for model in ("amendment", "coupon", "customer", "customercoupon", "plan", "subscription")
    ),
    *(Permission(f"billing.change_{model}", OPERATOR) for model in ("customer", "customercoupon", "suspendedbilling")),
    Permission("billing.erase_customer", (), "customer", "Can erase a customer's personal data"),
)
