"""From an invoice or credit note in the database to its PDF."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.db.models import Sum

from billing import reads
from billing.documents.printing.e_invoice import attachment, declare, e_invoice
from billing.documents.printing.pages import Paper, credit_note_page, invoice_page
from billing.documents.sellers import current_seller, seller_of
from billing.errors import SellerMissing
from billing.models import CreditNote, CreditNoteUse, CreditPayment, Customer, Invoice
from billing.models.columns import first_of
from ledger.typesetting.typeset import typeset
from ledger.units import CreditUnit, plain_unit, units_of

TEMPLATE: Final = Path(__file__).with_name("invoice.typ")


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """A PDF, and the name to save it under.

    Args:
        without_glyph: the characters that no font has; the PDF has a box in their places.
    """

    file_name: str
    content: bytes
    without_glyph: str = ""


def invoice_pdf(invoice_id: int) -> PrintedDocument:
    """Return an invoice as it was issued; the same bytes every time, until it is void.

    Raises:
        NotFound: there is no such invoice.
        SellerMissing: nobody has recorded who invoices.
        DocumentTooLong: it has more lines than a document can have.
    """
    paper = invoice_paper(invoice_id)
    return _printed(paper, paper.document["number"] or _draft_name(paper))


def credit_note_pdf(credit_note_id: int) -> PrintedDocument:
    """Return a credit note on request as it was issued. Raises: as `invoice_pdf`; a carried note is not a document."""
    paper = credit_note_paper(credit_note_id)
    return _printed(paper, paper.document["number"])


def invoice_paper(invoice_id: int, *, without_seller: Mapping[str, str] | None = None) -> Paper:
    """Return an invoice and what belongs to it, as it was issued. Raises: NotFound, SellerMissing.

    Args:
        without_seller: what is said of the seller where nobody has recorded one; None: that raises SellerMissing.
    """
    invoice = first_of(Invoice.objects.filter(pk=invoice_id), "invoice", invoice_id)
    document = reads.invoice_documents([invoice])[0]
    # A later note about the invoice lowers what is due of it, and is a separate document.
    lowered_minor = _lowered_minor(CreditNoteUse.objects.filter(invoice_id=invoice_id, credit_note__invoice_id=invoice_id))
    document["credit_notes_minor"] -= lowered_minor
    document["amount_due_minor"] += lowered_minor
    paid = CreditPayment.objects.filter(invoice_id=invoice_id).only("credits", "credit_type").first()
    return Paper(
        document=document,
        seller=_seller_details(invoice.seller_id, is_draft=invoice.state == Invoice.State.DRAFT, missing=without_seller),
        buyer=invoice.buyer,
        zone=_zone(invoice.customer_id),
        credits=paid.credits if paid else 0,
        credit_type=paid.credit_type if paid else "credits",
        units=_units(invoice, document),
    )


def credit_note_paper(credit_note_id: int, *, without_seller: Mapping[str, str] | None = None) -> Paper:
    """Return a credit note on request and what belongs to it, as it was issued. Args, raises: as `invoice_paper`."""
    note = first_of(CreditNote.objects.filter(pk=credit_note_id, number__isnull=False), "credit note", credit_note_id)
    invoice = Invoice.objects.get(pk=note.invoice_id)
    document = reads.credit_note_document(credit_note_id)
    lowers_minor = _lowered_minor(CreditNoteUse.objects.filter(credit_note_id=note.pk, invoice_id=note.invoice_id))
    document["lowers_due_minor"] = lowers_minor
    document["left_minor"] = note.amount_minor - note.credits_returned_minor - lowers_minor
    assert invoice.number is not None
    assert invoice.issue_date is not None
    return Paper(
        document=document,
        seller=_seller_details(note.seller_id, is_draft=False, missing=without_seller),
        buyer=invoice.buyer,
        zone=_zone(invoice.customer_id),
        credits=note.credits_returned,
        credit_type=_paid_type(invoice),
        units=_units(invoice, document),
        corrects=(invoice.number, invoice.issue_date),
    )


def _paid_type(invoice: Invoice) -> str:
    """The type of the credits that paid a part of an invoice."""
    credit_type = CreditPayment.objects.filter(invoice_id=invoice.pk).values_list("credit_type", flat=True).first()
    return credit_type or "credits"


def _units(invoice: Invoice, document: Mapping[str, Any]) -> Mapping[str, CreditUnit]:
    """How credit types were shown when the invoice was finalised; those of a draft's lines as they are shown now."""
    if invoice.credit_units is not None:
        return {code: CreditUnit(code, unit, unit, scale) for code, (unit, scale) in invoice.credit_units.items()}
    covered = (line["rating"].get("covered") for line in document["lines"])
    units = units_of(each["credit_type"] for each in covered if each)
    return {code: unit for code, unit in units.items() if unit != plain_unit(code)}


def _lowered_minor(uses: Any) -> int:
    """The amount by which notes on request have lowered the amount due, with those that voiding has released since."""
    lowered: int | None = uses.filter(credit_note__kind=CreditNote.Kind.REQUESTED).aggregate(minor=Sum("amount_minor"))["minor"]
    return lowered or 0


def _seller_details(seller_id: int | None, *, is_draft: bool, missing: Mapping[str, str] | None) -> Mapping[str, str]:
    seller = current_seller() if is_draft else seller_of(seller_id)
    if seller is not None:
        details: dict[str, str] = seller.details
        return details
    if missing is None:
        raise SellerMissing
    return missing


def _zone(customer_id: int) -> ZoneInfo:
    return ZoneInfo(Customer.objects.filter(pk=customer_id).values_list("time_zone", flat=True).first() or "UTC")


def page_of(paper: Paper) -> dict[str, Any]:
    """Return what the template prints of a document."""
    return invoice_page(paper) if paper.corrects is None else credit_note_page(paper)


def _draft_name(paper: Paper) -> str:
    """The customer, and the first and last day of what is billed, such as draft-C-7-2026-02-01-to-2026-02-28."""
    # A customer's reference may have colons, which file systems do not take.
    words = ["draft", paper.document["customer"].replace(":", "-")]
    periods = [line["period"] for line in paper.document["lines"] if line["period"] is not None]
    if periods:
        first = min(datetime.fromisoformat(period["start"]) for period in periods).astimezone(paper.zone)
        end = max(datetime.fromisoformat(period["end"]) for period in periods).astimezone(paper.zone)
        words += [f"{first:%Y-%m-%d}", "to", f"{end - timedelta(microseconds=1):%Y-%m-%d}"]
    return "-".join(words)


def _printed(paper: Paper, name: str) -> PrintedDocument:
    xml = e_invoice(paper)
    files = [] if xml is None else [attachment(xml)]
    pdf = typeset(TEMPLATE, page_of(paper), at=_made_at(paper.day("issue_date")), files=files)
    return PrintedDocument(f"{name}.pdf", declare(pdf.content) if files else pdf.content, pdf.without_glyph)


def _made_at(day: date | None) -> datetime:
    """The day of issue; for a draft always the same day."""
    return datetime.combine(day or date(2000, 1, 1), time(), UTC)
