"""Invoices and credit notes as documents: seller and buyer, numbers and dates, each line with its arithmetic, totals.

The page shows what the PDF shows, in English and with periods in the customer's zone; above the document it shows the state.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from billing.admin.document_tables import notation_in
from billing.documents.brand import logo_url
from billing.documents.printed_pages import DocumentSource, country_name, credit_note_page, invoice_page, seller_lines
from billing.documents.printing import credit_note_source, invoice_source
from billing.models import CreditNote, CreditRefund, Invoice
from billing.reads.documents import today_of
from ledger.staff.kit.cells import instant_words
from ledger.staff.links import entry_link
from ledger.typesetting.languages import ENGLISH

NO_SELLER: Final = {
    "name": "No seller is recorded",
    "line1": "manage.py seller --file seller.json records one; until then, documents have no PDF.",
    "country": "",
}


def invoice_document(invoice: Invoice) -> dict[str, Any]:
    """Return the data of the template for an invoice."""
    source = invoice_source(invoice.pk, without_seller=NO_SELLER, language=ENGLISH.code)
    return _document(source, invoice_page(source), invoice.state)


def credit_note_document(note: CreditNote) -> dict[str, Any] | None:
    """Return the data of the template for a credit note; None for a carried note, which is not a document."""
    if note.number is None:
        return None
    source = credit_note_source(note.pk, without_seller=NO_SELLER, language=ENGLISH.code)
    return _document(source, credit_note_page(source), "void" if note.released_at else "issued")


def _document(source: DocumentSource, page: Mapping[str, Any], state: str) -> dict[str, Any]:
    lines = [{**line, "entries": _entries(row)} for line, row in zip(page["lines"], source.document["lines"], strict=True)]
    return {
        "title": page["title"],
        "state": state,
        "facts": page["facts"],
        "seller": _seller(source),
        "logo": logo_url(source.seller),
        "footer": source.in_language("footer"),
        "terms": (page["payment"] or {}).get("terms", ""),
        "buyer": page["recipient"],
        "columns": page["columns"],
        "lines": lines,
        "sums": page["sums"],
        "notes": page["notes"],
        "zone": str(source.zone),
        "has_periods": any(row.get("period") for row in source.document["lines"]),
    }


def _seller(source: DocumentSource) -> list[str]:
    vat_id = source.seller.get("vat_id", "")
    lines = seller_lines(source.seller, country=country_name(source.seller["country"], ENGLISH.code))
    return [*lines, *([f"{source.notation.texts['vat_id']} {vat_id}"] if vat_id else [])]


def _entries(line: Mapping[str, Any]) -> SafeString | str:
    """Return links to the ledger's entries whose credits paid for the line."""
    covered = line.get("rating", {}).get("covered")
    if not covered or not covered["entries"]:
        return ""
    holder_id, credit_type = covered["holder_id"], covered["credit_type"]
    links = ((entry_link(holder_id, credit_type, sequence, f"entry #{sequence}"),) for sequence in covered["entries"])
    return format_html_join(" ", "{}", links)


# Its state -------------------------------------------------------------------------------------------


def invoice_sentences(invoice: Invoice, *, today: date | None = None) -> list[str]:
    """Return the state of an invoice in sentences."""
    due = _money(invoice.amount_remaining_minor, invoice.currency)
    if invoice.state == Invoice.State.DRAFT:
        total = _money(invoice.total_minor, invoice.currency)
        sentences = [f"A draft of {total} for {invoice.customer_ref}, which nobody has to pay."]
        if invoice.grace_ends_at is not None:
            sentences.append(
                f"It accepts late usage until {instant_words(invoice.grace_ends_at)}; the next run then finalises it."
            )
        if invoice.consolidates_on is not None:
            day = ENGLISH.day(invoice.consolidates_on)
            sentences.append(f"It goes onto one invoice with the other subscriptions that are invoiced on {day}.")
        return sentences
    if invoice.state == Invoice.State.VOID:
        return [f"Void{_since(invoice.voided_at)}: nobody has to pay it, and a run can bill its periods again."]
    if invoice.state == Invoice.State.UNCOLLECTIBLE:
        return [f"{due} of {invoice.customer_ref} is written off{_since(invoice.uncollectible_at)}."]
    if invoice.state == Invoice.State.PAID:
        paid_out = [
            f"{_money(refund.amount_minor, refund.currency)} of its credits is paid out: refund {refund.pk}."
            for refund in CreditRefund.objects.filter(invoice_id=invoice.pk)
        ]
        return [f"Paid{_on(invoice.paid_at)}{_how(invoice)}.", *paid_out]
    sentences = [f"{invoice.customer_ref} owes {due}, {_due_words(invoice.due_date, today or today_of(invoice))}."]
    if invoice.amount_paid_minor:
        sentences.append(f"Payments paid {_money(invoice.amount_paid_minor, invoice.currency)} of it.")
    if invoice.credit_notes_minor:
        sentences.append(f"Credit notes lowered it by {_money(invoice.credit_notes_minor, invoice.currency)}.")
    return sentences


def _since(at: Any) -> str:
    return "" if at is None else f" since {ENGLISH.day(at.date())}"


def _on(at: Any) -> str:
    return "" if at is None else f" on {ENGLISH.day(at.date())}"


def _how(invoice: Invoice) -> str:
    if not invoice.credits_applied_minor:
        return "" if invoice.total_minor else ": nothing was due"
    if invoice.credits_applied_minor == invoice.total_minor:
        return ", all of it with credits"
    return f", {_money(invoice.credits_applied_minor, invoice.currency)} of it with credits"


def paid_words(invoice: Invoice) -> str:
    """Return how an invoice was paid, as far as documents say it; empty for money that somebody recorded."""
    return _how(invoice).lstrip(",: ")


def _due_words(due: date | None, today: date) -> str:
    if due is None:
        return "without a date"
    late = (today - due).days
    if late > 0:
        return f"due on {ENGLISH.day(due)}: {late:,} day{'' if late == 1 else 's'} overdue"
    return f"due on {ENGLISH.day(due)}"


def note_sentences(note: CreditNote, *, left_minor: int) -> list[str]:
    """Return the amount that a credit note gives back and its unused part, in sentences."""
    amount = _money(note.amount_minor, note.currency)
    if note.released_at is not None:
        return [f"Void{_since(note.released_at)}, with its invoice."]
    if note.kind == CreditNote.Kind.DEPOSIT:
        sentences = [f"{amount} that was received beyond what was due{f', by {note.reference}' if note.reference else ''}."]
    elif note.number is None:
        sentences = [f"{amount} that an invoice owed the customer, carried to later invoices."]
    else:
        sentences = [f"Gives back {amount}: {note.reason}."]
    left = _money(left_minor, note.currency)
    return [*sentences, f"{left} is left for later invoices of the customer." if left_minor else "Fully used."]


def _money(amount_minor: int, currency: str) -> str:
    return f"{notation_in(currency).money(amount_minor)} {currency}"
