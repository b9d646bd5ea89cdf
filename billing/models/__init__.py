"""The rows of billing: intent, what was billed, and the documents.

Intent (plans, customers, subscriptions, item versions, amendments, charges) is written by orders; the generator only reads it.
What was billed are claims. Documents are invoices and credit notes with their lines and taxes, frozen once finalised.
"""

from billing.models.catalogue import Coupon, CouponUse, CustomerCoupon, Plan, Price
from billing.models.claims import Claim, Cursor
from billing.models.credit_notes import CreditNote, CreditNoteLine, CreditNoteTax, CreditNoteUse
from billing.models.customers import Customer
from billing.models.invoices import CreditPayment, Invoice, InvoiceTax, Line, NumberSeries, Seller, Transition
from billing.models.runs import RequestKey, Run, RunResult, ScheduledTask
from billing.models.subscriptions import Amendment, Charge, Item, ItemVersion, Subscription, SuspendedBilling
from billing.models.usage import DroppedMonth, UsageEvent, UsageKey

__all__ = [
    "Amendment",
    "Charge",
    "Claim",
    "Coupon",
    "CouponUse",
    "CreditNote",
    "CreditNoteLine",
    "CreditNoteTax",
    "CreditNoteUse",
    "CreditPayment",
    "Cursor",
    "Customer",
    "CustomerCoupon",
    "DroppedMonth",
    "Invoice",
    "InvoiceTax",
    "Item",
    "ItemVersion",
    "Line",
    "NumberSeries",
    "Plan",
    "Price",
    "RequestKey",
    "Run",
    "RunResult",
    "ScheduledTask",
    "Seller",
    "Subscription",
    "SuspendedBilling",
    "Transition",
    "UsageEvent",
    "UsageKey",
]
