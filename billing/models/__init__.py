"""The rows of billing: intent, claims, and documents.

Orders write the intent (plans, customers, subscriptions, item versions, amendments, charges); the generator only reads it.
Claims record what is billed. Documents are invoices and credit notes with their lines and taxes, frozen after
finalisation. Payments record money that came in for invoices, returns money that went back."""

from billing.models.catalogue import Coupon, CouponUse, CustomerCoupon, Meter, Plan, Price, Tax
from billing.models.claims import Claim, Cursor
from billing.models.credit_notes import CreditNote, CreditNoteLine, CreditNoteTax, CreditNoteUse, CreditRefund
from billing.models.invoices import (
    CREDIT_NOTE,
    DEFAULT_SELLER,
    DOCUMENT_KINDS,
    INVOICE,
    CreditPayment,
    DocumentKind,
    Invoice,
    InvoicedSubscription,
    InvoiceTax,
    Line,
    NumberSeries,
    Seller,
    Transition,
)
from billing.models.payments import InvoicePayment, PaymentReturn
from billing.models.runs import RequestKey, Run, RunResult, ScheduledTask
from billing.models.subscriptions import (
    Activation,
    Amendment,
    Charge,
    Customer,
    Item,
    ItemVersion,
    MovedSubscription,
    OpenPlanMove,
    PlanMove,
    Subscription,
    SuspendedBilling,
    VatCheck,
    VatLookup,
)
from billing.models.usage import DroppedMonth, UsageEvent, UsageKey

__all__ = [
    "CREDIT_NOTE",
    "DEFAULT_SELLER",
    "DOCUMENT_KINDS",
    "INVOICE",
    "Activation",
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
    "CreditRefund",
    "Cursor",
    "Customer",
    "CustomerCoupon",
    "DocumentKind",
    "DroppedMonth",
    "Invoice",
    "InvoicePayment",
    "InvoiceTax",
    "InvoicedSubscription",
    "Item",
    "ItemVersion",
    "Line",
    "Meter",
    "MovedSubscription",
    "NumberSeries",
    "OpenPlanMove",
    "PaymentReturn",
    "Plan",
    "PlanMove",
    "Price",
    "RequestKey",
    "Run",
    "RunResult",
    "ScheduledTask",
    "Seller",
    "Subscription",
    "SuspendedBilling",
    "Tax",
    "Transition",
    "UsageEvent",
    "UsageKey",
    "VatCheck",
    "VatLookup",
]
