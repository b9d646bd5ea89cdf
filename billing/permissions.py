"""The permissions of operators in billing, each declared once; those about credits are in `ledger.operators.permissions`."""

from typing import Final

from ledger.operators.permissions import EVERYONE, Permission, table_of

OPERATOR: Final = ("billing operator",)
INVOICES: Final = ("finance", "billing operator")

VIEW_COUPON: Final = Permission("billing.view_coupon", EVERYONE)
VIEW_CREDITNOTE: Final = Permission("billing.view_creditnote", EVERYONE)
VIEW_CUSTOMER: Final = Permission("billing.view_customer", EVERYONE)
VIEW_INVOICE: Final = Permission("billing.view_invoice", EVERYONE)
VIEW_INVOICEPAYMENT: Final = Permission("billing.view_invoicepayment", EVERYONE)
VIEW_METER: Final = Permission("billing.view_meter", EVERYONE)
VIEW_PLAN: Final = Permission("billing.view_plan", EVERYONE)
VIEW_RUN: Final = Permission("billing.view_run", EVERYONE)
VIEW_SELLER: Final = Permission("billing.view_seller", EVERYONE)
VIEW_SUBSCRIPTION: Final = Permission("billing.view_subscription", EVERYONE)
VIEW_TAX: Final = Permission("billing.view_tax", EVERYONE)
VIEW_USAGEEVENT: Final = Permission("billing.view_usageevent", EVERYONE)
VIEW_VATLOOKUP: Final = Permission("billing.view_vatlookup", EVERYONE)
FINALIZE_INVOICE: Final = Permission("billing.finalize_invoice", INVOICES, "invoice", "Can finalise a draft")
PAY_INVOICE: Final = Permission("billing.pay_invoice", INVOICES, "invoice", "Can mark an invoice as paid, and record payments")
VOID_INVOICE: Final = Permission("billing.void_invoice", INVOICES, "invoice", "Can void an invoice")
MARK_INVOICE_UNCOLLECTIBLE: Final = Permission(
    "billing.mark_invoice_uncollectible", INVOICES, "invoice", "Can mark an invoice as uncollectible"
)
DELETE_DRAFT: Final = Permission("billing.delete_draft", OPERATOR, "invoice", "Can delete a draft")
CREDIT_INVOICE: Final = Permission("billing.credit_invoice", INVOICES, "invoice", "Can credit an invoice")
ISSUE_INVOICE: Final = Permission("billing.issue_invoice", INVOICES, "invoice", "Can make a one-off invoice")
REFUND_CREDIT: Final = Permission("billing.refund_credit", INVOICES, "creditnote", "Can record that credit was paid out")
ADD_AMENDMENT: Final = Permission("billing.add_amendment", OPERATOR)
ADD_COUPON: Final = Permission("billing.add_coupon", OPERATOR)
ADD_CUSTOMER: Final = Permission("billing.add_customer", OPERATOR)
ADD_CUSTOMERCOUPON: Final = Permission("billing.add_customercoupon", OPERATOR)
ADD_METER: Final = Permission("billing.add_meter", OPERATOR)
ADD_PLAN: Final = Permission("billing.add_plan", OPERATOR)
ADD_SELLER: Final = Permission("billing.add_seller", INVOICES)
ADD_TAX: Final = Permission("billing.add_tax", INVOICES)
ADD_SUBSCRIPTION: Final = Permission("billing.add_subscription", OPERATOR)
RETURN_PAYMENT: Final = Permission(
    "billing.return_payment", INVOICES, "invoicepayment", "Can record that money of a payment went back"
)
CHANGE_CUSTOMER: Final = Permission("billing.change_customer", OPERATOR)
CHANGE_CUSTOMERCOUPON: Final = Permission("billing.change_customercoupon", OPERATOR)
CHANGE_SUSPENDEDBILLING: Final = Permission("billing.change_suspendedbilling", OPERATOR)
ERASE_CUSTOMER: Final = Permission("billing.erase_customer", (), "customer", "Can erase a customer's personal data")

PERMISSIONS: Final = table_of(dict(globals()))
