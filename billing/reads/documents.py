"""Invoices and credit notes as the REST contract has them, and who moved them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from django.db.models import QuerySet

from billing.errors import NotFound
from billing.models import (
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    Customer,
    DocumentMove,
    Invoice,
    InvoiceTax,
    Line,
    Subscription,
)
from billing.rating.money import decimal_text
from billing.rating.tax import NOTES
from billing.reads.pages import page
from ledger.api.kit.rendering import time_text


def invoice_document(invoice_id: int) -> dict[str, Any]:
    """An invoice with its lines and taxes, in the words of the REST contract.

    Raises:
        NotFound: there is no such invoice.
    """
    invoice = Invoice.objects.filter(pk=invoice_id).first()
    if invoice is None:
        raise NotFound(resource="invoice", ref=invoice_id)
    return invoice_documents([invoice])[0]


def invoices(
    *,
    subscription: str | None = None,
    customer: str | None = None,
    state: str | None = None,
    number: str | None = None,
    currency: str | None = None,
    since: date | None = None,
    until: date | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[dict[str, Any]]:
    """Invoices, newest first, by keyset on the id.

    Args:
        since, until: issued on a day in `[since, until)`; a draft has no day.
        before, after: see `pages.page`.
    """
    wanted = {
        "subscription__in": None if subscription is None else Subscription.objects.filter(ref=subscription).values("pk"),
        "customer__in": None if customer is None else Customer.objects.filter(ref=customer).values("pk"),
        "state": state, "number": number, "currency": currency,
        "issue_date__gte": since, "issue_date__lt": until,
    }  # fmt: skip
    rows = Invoice.objects.filter(**{name: value for name, value in wanted.items() if value is not None})
    return invoice_documents(page(rows, before=before, after=after, limit=limit))


def moves(invoice_id: int, *, before: int | None = None, after: int | None = None, limit: int) -> list[DocumentMove]:
    """Who moved an invoice, newest first, by keyset on the id; also who deleted it as a draft.

    Args: `before`, `after` as in `invoices`.

    Raises:
        NotFound: there is no such invoice, and was none that anybody deleted.
    """
    rows = DocumentMove.objects.filter(invoice_id=invoice_id)
    found = page(rows, before=before, after=after, limit=limit)
    if not found and not rows.exists() and not Invoice.objects.filter(pk=invoice_id).exists():
        raise NotFound(resource="invoice", ref=invoice_id)
    return found


def invoice_documents(rows: Sequence[Invoice]) -> list[dict[str, Any]]:
    """Several invoices with their lines and taxes, by three queries in all."""
    ids = [invoice.pk for invoice in rows]
    lines: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for line in Line.objects.filter(invoice_id__in=ids).order_by("invoice_id", "position"):
        lines[line.invoice_id].append(_line(line))
    taxes: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for tax in InvoiceTax.objects.filter(invoice_id__in=ids).order_by("invoice_id", "category", "rate"):
        taxes[tax.invoice_id].append(_tax(tax))
    return [_invoice(invoice, lines[invoice.pk], taxes[invoice.pk]) for invoice in rows]


# Credit notes ----------------------------------------------------------------------------------------


def credit_note_document(credit_note_id: int) -> dict[str, Any]:
    """A credit note with its lines and taxes.

    Raises:
        NotFound: there is no such credit note.
    """
    note = CreditNote.objects.filter(pk=credit_note_id).first()
    if note is None:
        raise NotFound(resource="credit note", ref=credit_note_id)
    return _credit_note_documents([note])[0]


def credit_notes(
    *,
    customer: str | None = None,
    subscription: str | None = None,
    invoice: int | None = None,
    number: str | None = None,
    since: date | None = None,
    until: date | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[dict[str, Any]]:
    """Credit notes, newest first, by keyset on the id. Args: as in `invoices`."""
    wanted = {"number": number, "issue_date__gte": since, "issue_date__lt": until}
    rows: QuerySet[CreditNote] = CreditNote.objects.filter(**{name: value for name, value in wanted.items() if value is not None})
    if subscription is not None:
        rows = rows.filter(subscription_id__in=Subscription.objects.filter(ref=subscription).values("pk"))
    if customer is not None:
        rows = rows.filter(subscription_id__in=Subscription.objects.filter(customer__ref=customer).values("pk"))
    if invoice is not None:
        rows = rows.filter(invoice_id=invoice)
    return _credit_note_documents(page(rows, before=before, after=after, limit=limit))


def note_left_minor(note: CreditNote, used_minor: int) -> int:
    """What is left of a credit note of which so much has been used."""
    return 0 if note.released_at else note.amount_minor - note.credits_returned_minor - used_minor


def _credit_note_documents(rows: Sequence[CreditNote]) -> list[dict[str, Any]]:
    ids = [note.pk for note in rows]
    invoices = Invoice.objects.in_bulk({note.invoice_id for note in rows})
    lines: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for line in CreditNoteLine.objects.filter(credit_note_id__in=ids).order_by("credit_note_id", "position"):
        lines[line.credit_note_id].append(_credit_note_line(line))
    taxes: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for tax in CreditNoteTax.objects.filter(credit_note_id__in=ids).order_by("credit_note_id", "category", "rate"):
        taxes[tax.credit_note_id].append(_tax(tax))
    used: dict[int, dict[int, int]] = {pk: {} for pk in ids}
    for use in CreditNoteUse.objects.filter(credit_note_id__in=ids, released_at=None):
        used[use.credit_note_id][use.invoice_id] = use.amount_minor
    return [_credit_note(note, invoices[note.invoice_id], lines[note.pk], taxes[note.pk], used[note.pk]) for note in rows]


def _credit_note(
    note: CreditNote, invoice: Invoice, lines: list[dict[str, Any]], taxes: list[dict[str, Any]], used: Mapping[int, int]
) -> dict[str, Any]:
    return {
        "id": note.pk,
        "kind": note.kind,
        "number": note.number,
        "state": "void" if note.released_at else "issued",
        "invoice": note.invoice_id,
        "invoice_number": invoice.number,
        "subscription": invoice.subscription_ref,
        "customer": invoice.customer_ref,
        "currency": note.currency,
        "issue_date": note.issue_date.isoformat() if note.issue_date else None,
        "reason": note.reason,
        "actor": note.actor,
        "subtotal_minor": note.subtotal_minor,
        "tax_minor": note.tax_minor,
        "total_minor": note.amount_minor,
        "lowers_due_minor": used.get(note.invoice_id, 0),
        "credits_returned": note.credits_returned,
        "credits_returned_minor": note.credits_returned_minor,
        "left_minor": note_left_minor(note, sum(used.values())),
        "lines": lines,
        "taxes": taxes,
    }


def _credit_note_line(line: CreditNoteLine) -> dict[str, Any]:
    return {
        "position": line.position,
        "description": line.description,
        "amount_minor": line.amount_minor,
        "tax_category": line.tax_category,
        "tax_rate": decimal_text(line.tax_rate),
    }


# Parts -----------------------------------------------------------------------------------------------


def _invoice(invoice: Invoice, lines: Iterable[dict[str, Any]], taxes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": invoice.pk,
        "number": invoice.number,
        "subscription": invoice.subscription_ref,
        "customer": invoice.customer_ref,
        "currency": invoice.currency,
        "state": invoice.state,
        "issue_date": invoice.issue_date.isoformat() if invoice.issue_date else None,
        "due_date": invoice.due_date.isoformat() if invoice.due_date else None,
        "subtotal_minor": invoice.subtotal_minor,
        "discount_minor": invoice.discount_minor,
        "tax_minor": invoice.tax_minor,
        "total_minor": invoice.total_minor,
        "credit_notes_minor": invoice.credit_notes_minor,
        "credits_applied_minor": invoice.credits_applied_minor,
        "amount_due_minor": invoice.amount_due_minor,
        "lines": list(lines),
        "taxes": list(taxes),
    }


def _line(line: Line) -> dict[str, Any]:
    period = None
    if line.starts_at is not None and line.ends_at is not None:
        period = {"start": time_text(line.starts_at), "end": time_text(line.ends_at)}
    return {
        "position": line.position,
        "kind": line.kind,
        "price_key": line.price_key or None,
        "description": line.description,
        "period": period,
        "quantity": decimal_text(line.quantity),
        "unit_amount": None if line.unit_amount is None else decimal_text(line.unit_amount),
        "amount_minor": line.amount_minor,
        "discount_minor": line.discount_minor,
        "tax_category": line.tax_category,
        "tax_rate": decimal_text(line.tax_rate),
        "rating": line.rating,
    }


def _tax(tax: InvoiceTax | CreditNoteTax) -> dict[str, Any]:
    shown = {
        "category": tax.category,
        "rate": decimal_text(tax.rate),
        "base_minor": tax.base_minor,
        "amount_minor": tax.amount_minor,
    }
    return shown if tax.category not in NOTES else {**shown, "note": NOTES[tax.category]}
