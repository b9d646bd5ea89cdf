"""Invoices and credit notes as documents: seller and buyer, numbers and dates, each line with its arithmetic, totals.

The page says the same as the PDF, in English and with periods in the customer's zone; above the document it shows its state.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, Final

from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from billing.admin.documents.tables import notation_in
from billing.documents.printing.pages import Paper, address_lines, country_name, credit_note_page, invoice_page
from billing.documents.printing.printed import credit_note_paper, invoice_paper
from billing.models import CreditNote, Invoice
from ledger.admin.kit.cells import instant_words
from ledger.admin.links import entry_link
from ledger.typesetting.languages import ENGLISH

NO_SELLER: Final = {
    "name": "No seller is recorded",
    "line1": "manage.py seller --file seller.json records one; until then, documents have no PDF.",
    "country": "",
}


def invoice_document(invoice: Invoice) -> dict[str, Any]:
    """What the template shows of an invoice."""
    paper = _in_english(invoice_paper(invoice.pk, without_seller=NO_SELLER))
    return _document(paper, invoice_page(paper), invoice.state)


def credit_note_document(note: CreditNote) -> dict[str, Any] | None:
    """What the template shows of a credit note; None for a carried note, which is not a document."""
    if note.number is None:
        return None
    paper = _in_english(credit_note_paper(note.pk, without_seller=NO_SELLER))
    return _document(paper, credit_note_page(paper), "void" if note.released_at else "issued")


def _in_english(paper: Paper) -> Paper:
    return replace(paper, buyer={**paper.buyer, "language": ENGLISH.code})


def _document(paper: Paper, page: Mapping[str, Any], state: str) -> dict[str, Any]:
    lines = [{**line, "entries": _entries(row)} for line, row in zip(page["lines"], paper.document["lines"], strict=True)]
    return {
        "title": page["title"],
        "state": state,
        "facts": page["facts"],
        "seller": _seller(paper),
        "buyer": page["recipient"],
        "columns": page["columns"],
        "lines": lines,
        "sums": page["sums"],
        "notes": page["notes"],
        "zone": str(paper.zone),
        "has_periods": any(row.get("period") for row in paper.document["lines"]),
    }


def _seller(paper: Paper) -> list[str]:
    vat_id = paper.seller.get("vat_id", "")
    lines = address_lines(paper.seller, country=country_name(paper.seller["country"], ENGLISH.code))
    return [*lines, *([f"{paper.notation.texts['vat_id']} {vat_id}"] if vat_id else [])]


def _entries(line: Mapping[str, Any]) -> SafeString | str:
    """Links to the ledger's entries by which credits paid for the line."""
    covered = line.get("rating", {}).get("covered")
    if not covered or not covered["entries"]:
        return ""
    holder_id, credit_type = covered["holder_id"], covered["credit_type"]
    links = ((entry_link(holder_id, credit_type, sequence, f"entry #{sequence}"),) for sequence in covered["entries"])
    return format_html_join(" ", "{}", links)


# Its state -------------------------------------------------------------------------------------------


def invoice_sentences(invoice: Invoice, *, today: date | None = None) -> list[str]:
    """The state of an invoice in sentences."""
    due = _money(invoice.amount_due_minor, invoice.currency)
    if invoice.state == Invoice.State.DRAFT:
        sentences = [
            f"A draft of {_money(invoice.total_minor, invoice.currency)} for {invoice.customer_ref}: nothing is to be paid on it."
        ]
        if invoice.grace_ends_at is not None:
            sentences.append(
                f"It accepts late usage until {instant_words(invoice.grace_ends_at)}; the next run then finalises it."
            )
        return sentences
    if invoice.state == Invoice.State.VOID:
        return [f"Void{_since(invoice.voided_at)}: nothing is to be paid, and its periods are free to be billed."]
    if invoice.state == Invoice.State.UNCOLLECTIBLE:
        return [f"{due} of {invoice.customer_ref} is not expected any more{_since(invoice.uncollectible_at)}."]
    if invoice.state == Invoice.State.PAID:
        return [f"Paid{_on(invoice.paid_at)}{_how(invoice)}."]
    sentences = [f"{invoice.customer_ref} owes {due}, {_due_words(invoice.due_date, today or timezone.now().date())}."]
    if invoice.credit_notes_minor:
        sentences.append(f"Credit notes took off {_money(invoice.credit_notes_minor, invoice.currency)}.")
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


def _due_words(due: date | None, today: date) -> str:
    if due is None:
        return "without a date"
    late = (today - due).days
    if late > 0:
        return f"due on {ENGLISH.day(due)}: {late:,} day{'' if late == 1 else 's'} overdue"
    return f"due on {ENGLISH.day(due)}"


def note_sentences(note: CreditNote, *, left_minor: int) -> list[str]:
    """What a credit note gives back, and its unused part."""
    amount = _money(note.amount_minor, note.currency)
    if note.released_at is not None:
        return [f"Void{_since(note.released_at)}, with its invoice."]
    if note.number is None:
        sentences = [f"{amount} that an invoice owed the customer, carried to later invoices."]
    else:
        sentences = [f"Gives back {amount}: {note.reason}."]
    left = _money(left_minor, note.currency)
    return [*sentences, f"{left} is left for later invoices." if left_minor else "Nothing is left of it."]


def _money(amount_minor: int, currency: str) -> str:
    return f"{notation_in(currency).money(amount_minor)} {currency}"
