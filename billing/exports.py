"""What of billing can be exported: the rows of a model each, with the references that people know instead of their ids."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import models

from billing.models import (
    Activation,
    Amendment,
    Charge,
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    CreditRefund,
    Customer,
    CustomerCoupon,
    Invoice,
    InvoicedSubscription,
    InvoicePayment,
    InvoiceTax,
    Line,
    PaymentReturn,
    Subscription,
    UsageEvent,
    VatLookup,
)
from ledger.database.copies import FileColumn, Form
from ledger.exports import Export

FORMS: Final[tuple[tuple[Any, Form], ...]] = (
    (models.JSONField, "json"),
    (models.DateTimeField, "time"),
    (models.CharField, "text"),
)
REFERENCES: Final = {
    "customer": "(SELECT ref FROM billing_customer WHERE id = e.{})",
    "subscription": "(SELECT ref FROM billing_subscription WHERE id = e.{})",
    "coupon": "(SELECT code FROM billing_coupon WHERE id = e.{})",
}

OF_CUSTOMER: Final = "{} IN (SELECT id FROM billing_customer WHERE ref = %(customer)s)"
_SUBSCRIPTION: Final = "{} IN (SELECT id FROM billing_subscription WHERE ref = %(subscription)s)"
THEIRS: Final = {"customer": OF_CUSTOMER.format("e.customer_id"), "subscription": _SUBSCRIPTION.format("e.subscription_id")}
"""Of rows that name customer and subscription."""
_BILLED: Final = f"""{_SUBSCRIPTION.format("{0}.subscription_id")} OR {{0}}.{{1}} IN (
    SELECT b.invoice_id FROM billing_invoicedsubscription AS b WHERE {_SUBSCRIPTION.format("b.subscription_id")})"""
"""The invoices of a subscription, the consolidated ones among them, and their credit notes."""
_DOCUMENTS: Final = {
    name: {"customer": THEIRS["customer"], "subscription": f"({_BILLED.format('e', pk)})"}
    for name, pk in (("invoices", "id"), ("notes", "invoice_id"))
}
_OF_SUBSCRIPTION: Final = {
    "customer": f"e.subscription_id IN (SELECT id FROM billing_subscription WHERE {OF_CUSTOMER.format('customer_id')})",
    "subscription": _SUBSCRIPTION.format("e.subscription_id"),
}


def _of_invoice(rows: str) -> dict[str, str]:
    """Return the filters of rows that belong to an invoice.

    Args:
        rows: a condition on the invoices `i` of a row.
    """
    found = "EXISTS (SELECT FROM billing_invoice AS i WHERE {} AND ({}))"
    return {
        "customer": found.format(rows, OF_CUSTOMER.format("i.customer_id")),
        "subscription": found.format(rows, _BILLED.format("i", "id")),
    }


_OF_PAYMENT: Final = {
    "customer": "EXISTS (SELECT FROM billing_invoicepayment AS p WHERE p.id = e.invoice_payment_id AND "
    f"{OF_CUSTOMER.format('p.customer_id')})"
}
_OF_INVOICE: Final = _of_invoice("i.id = e.invoice_id")
_OF_NOTE: Final = _of_invoice("i.id = (SELECT invoice_id FROM billing_creditnote WHERE id = e.credit_note_id)")
_OF_CREDIT: Final = {
    name: f"EXISTS (SELECT FROM billing_creditnote AS n WHERE n.id = e.credit_note_id AND ({theirs}))"
    for name, theirs in (
        ("customer", OF_CUSTOMER.format("n.customer_id")),
        ("subscription", _BILLED.format("n", "invoice_id")),
    )
}


def _field(column: "models.Field[Any, Any]", references: Mapping[str, str]) -> FileColumn:
    if column.name in references:
        return FileColumn(references[column.name].format(column.column), "text")
    if isinstance(column, models.BinaryField):
        return FileColumn(f"encode(e.{column.column}, 'hex')")
    return FileColumn(f"e.{column.column}", next((form for kind, form in FORMS if isinstance(column, kind)), "plain"))


def export_of(
    name: str,
    row: str,
    model: type[models.Model],
    filters: dict[str, str],
    *,
    order: str,
    dated: str = "",
    references: Mapping[str, str] = REFERENCES,
) -> Export:
    """Return the export of the rows of a model `e`, all of its columns.

    Args:
        row: what a row is, in words.
        filters: the conditions on `e`, by the name of the filter.
        order: the columns that sort it.
        dated: the column that the filters `since` and `until` compare; empty: it has no such filters.
        references: the SQL of what stands instead of the id of a row, by the name of the column.
    """
    columns = [column for column in model._meta.concrete_fields if column.column is not None]
    if dated:
        filters = {**filters, "since": f"e.{dated} >= %(since)s", "until": f"e.{dated} < %(until)s"}
    return Export(
        name=name,
        row=row,
        fields={column.name: _field(column, references) for column in columns},
        source=f"FROM {model._meta.db_table} AS e",
        filters=filters,
        order=order,
    )


_REVERSE_CHARGE: Final = {
    "number": FileColumn("e.number", "text"),
    "issue_date": FileColumn("e.issue_date"),
    "state": FileColumn("e.state", "text"),
    "seller_id": FileColumn("e.seller_id"),
    "customer": FileColumn("e.customer_ref", "text"),
    "buyer": FileColumn("e.buyer", "json"),
    "vat_id": FileColumn("(e.buyer ->> 'vat_id')", "text"),
    "currency": FileColumn("e.currency", "text"),
    "base_minor": FileColumn("t.base_minor"),
    "vat_lookup": FileColumn("l.id"),
    "outcome": FileColumn("l.outcome", "text"),
    "asked_at": FileColumn("l.asked_at", "time"),
    "requester": FileColumn("l.requester", "text"),
    "consultation": FileColumn("l.consultation", "text"),
    "name": FileColumn("l.name", "text"),
    "address": FileColumn("l.address", "text"),
}
"""For a tax office that asks why no VAT was charged."""

EXPORTS: Final = (
    export_of("customers", "a customer", Customer, {"customer": "e.ref = %(customer)s"}, order="e.id"),
    export_of(
        "vat-lookups", "what VIES said about the VAT id of a customer", VatLookup, {"customer": THEIRS["customer"]},
        order="e.id", dated="recorded_at",
    ),
    export_of(
        "customer-coupons", "a coupon that a customer has", CustomerCoupon, {"customer": THEIRS["customer"]}, order="e.id"
    ),
    export_of(
        "subscriptions", "a subscription", Subscription,
        {"customer": THEIRS["customer"], "subscription": "e.ref = %(subscription)s"}, order="e.id",
    ),
    export_of(
        "activations", "the first payment for which a start waits", Activation, _OF_SUBSCRIPTION, order="e.id",
        dated="recorded_at",
    ),
    export_of("amendments", "a change of a subscription", Amendment, _OF_SUBSCRIPTION, order="e.id", dated="recorded_at"),
    export_of("charges", "a one-off charge", Charge, _OF_SUBSCRIPTION, order="e.id", dated="recorded_at"),
    export_of(
        "usage-events", "one use of a metered service", UsageEvent, _OF_SUBSCRIPTION,
        order="e.subscription_id, e.meter, e.occurred_at, e.idempotency_key", dated="occurred_at",
    ),
    export_of("invoices", "an invoice, drafts included", Invoice, _DOCUMENTS["invoices"], order="e.id", dated="issue_date"),
    export_of(
        "invoiced-subscriptions", "a subscription that a consolidated invoice bills", InvoicedSubscription, _OF_INVOICE,
        order="e.id",
    ),
    Export(
        name="reverse-charge",
        row="an invoice under reverse charge, with the VAT lookup on which it relies",
        fields=_REVERSE_CHARGE,
        source="""FROM billing_invoice AS e
            JOIN billing_invoicetax AS t ON t.invoice_id = e.id AND t.category = 'AE'
            LEFT JOIN billing_vatlookup AS l ON l.id = (e.buyer #>> '{vat_lookup,id}')::bigint""",
        filters={
            **_DOCUMENTS["invoices"],
            "since": "e.issue_date >= %(since)s",
            "until": "e.issue_date < %(until)s",
        },
        order="e.id, t.id",
        always="e.number IS NOT NULL",
    ),
    export_of("invoice-lines", "a line of an invoice", Line, _OF_INVOICE, order="e.invoice_id, e.position"),
    export_of("invoice-taxes", "the tax of a category and rate on an invoice", InvoiceTax, _OF_INVOICE, order="e.id"),
    export_of("credit-notes", "a credit note or deposit", CreditNote, _DOCUMENTS["notes"], order="e.id", dated="issue_date"),
    export_of("credit-note-lines", "what a credit note credits of a line", CreditNoteLine, _OF_NOTE, order="e.id"),
    export_of(
        "payments", "money that came in for an invoice", InvoicePayment, {"customer": THEIRS["customer"]}, order="e.id",
        dated="paid_at",
    ),
    export_of(
        "payment-returns", "money of an invoice's payment that went back", PaymentReturn, _OF_PAYMENT, order="e.id",
        dated="returned_at",
    ),
    export_of("credit-note-taxes", "the tax that goes back with a credit note", CreditNoteTax, _OF_NOTE, order="e.id"),
    export_of(
        "credit-refunds", "credit that was paid out", CreditRefund, {"customer": THEIRS["customer"]}, order="e.id",
        dated="recorded_at",
    ),
    export_of("credit-uses", "what an invoice or a refund took from credit", CreditNoteUse, _OF_CREDIT, order="e.id"),
)  # fmt: skip
