"""Lock-free reads, for showing only: nothing is decided by them."""

from billing.reads.catalogue import coupon, coupons, customer, customer_coupons, customers, plan, plans
from billing.reads.documents import (
    credit_note_document,
    credit_notes,
    invoice_document,
    invoice_documents,
    invoices,
    moves,
    note_left_minor,
)
from billing.reads.subscriptions import amendments, charges, subscription, subscriptions
from billing.reads.usage import usage_event, usage_events

__all__ = [
    "amendments",
    "charges",
    "coupon",
    "coupons",
    "credit_note_document",
    "credit_notes",
    "customer",
    "customer_coupons",
    "customers",
    "invoice_document",
    "invoice_documents",
    "invoices",
    "moves",
    "note_left_minor",
    "plan",
    "plans",
    "subscription",
    "subscriptions",
    "usage_event",
    "usage_events",
]
