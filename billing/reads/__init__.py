"""Reads without a lock, for display only: nothing is decided from them."""

from billing.reads.calendar import calendar
from billing.reads.catalogue import (
    coupon,
    coupons,
    customer,
    customer_coupons,
    customers,
    meter,
    meters,
    plan,
    plans,
    seller,
    sellers,
    subscription_coupons,
    taxes,
    vat_lookup,
    vat_lookups,
)
from billing.reads.document_names import plan_names
from billing.reads.documents import (
    credit_balance,
    credit_note_document,
    credit_notes,
    credit_refund_documents,
    credit_refunds,
    invoice_document,
    invoice_documents,
    invoices,
    note_left_minor,
    open_credit_of,
    transitions,
)
from billing.reads.subscriptions import amendments, charges, monthly_minor, subscription, subscriptions
from billing.reads.usage import usage_by_day, usage_event, usage_events
