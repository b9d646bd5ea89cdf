"""Makes the PDF of an invoice or credit note in the database."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.db.models import Sum

from billing import reads
from billing.documents.e_invoice import attachment, declare, e_invoice, faults_of, profile_of
from billing.documents.pay_links import link_on_paper
from billing.documents.printed_pages import DocumentSource, credit_note_page, invoice_page
from billing.documents.sellers import current_seller, seller_of
from billing.errors import BrokenRule, EInvoiceMissing, SellerMissing
from billing.models import CREDIT_NOTE, DEFAULT_SELLER, INVOICE, CreditNote, CreditNoteUse, CreditPayment, Customer, Invoice
from billing.models.columns import first_of
from ledger.typesetting.typeset import compiler_of, typeset
from ledger.units import CreditUnit, plain_unit, units_of

PAGES: Final = {INVOICE: invoice_page, CREDIT_NOTE: credit_note_page}
"""The function that makes the page of each kind of document."""
TEMPLATE: Final = Path(__file__).with_name("invoice.typ")


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """A PDF and its file name.

    Args:
        without_glyph: the characters that no font has; the PDF shows a box in their places.
    """

    file_name: str
    content: bytes
    without_glyph: str = ""


def invoice_pdf(invoice_id: int) -> PrintedDocument:
    """Return an invoice as it was issued; the same bytes every time, until it is void.

    Raises:
        NotFound: the invoice does not exist.
        SellerMissing: no seller is recorded.
        DocumentTooLong: it has more lines than a document can have.
    """
    source = invoice_source(invoice_id)
    if source.is_valid:
        source = replace(source, pay_url=link_on_paper(Invoice.objects.get(pk=invoice_id)) or "")
    return _print_document(source, source.document["number"] or _draft_name(source))


def credit_note_pdf(credit_note_id: int) -> PrintedDocument:
    """Return a credit note on request as it was issued. Raises: as `invoice_pdf`; a carried note is not a document."""
    source = credit_note_source(credit_note_id)
    return _print_document(source, source.document["number"])


def invoice_xml(invoice_id: int) -> PrintedDocument:
    """Return the e-invoice of an invoice as XML, in the form that its customer had at the issue.

    Raises:
        NotFound, SellerMissing: as `invoice_pdf`.
        EInvoiceMissing: it would break a rule.
    """
    return _e_invoice_of(invoice_source(invoice_id))


def credit_note_xml(credit_note_id: int) -> PrintedDocument:
    """Return the e-invoice of a credit note on request. Raises: as `invoice_xml`."""
    return _e_invoice_of(credit_note_source(credit_note_id))


def _e_invoice_of(source: DocumentSource) -> PrintedDocument:
    profile = profile_of(source)
    faults = faults_of(source, profile)
    xml = None if faults else e_invoice(source, profile)
    if xml is None:
        schema = BrokenRule(rule="XSD", detail="the schemas refuse it; the server's log has the reason.")
        raise EInvoiceMissing(faults=[BrokenRule(rule=one.rule, detail=one.detail) for one in faults] or [schema])
    return PrintedDocument(f"{source.document['number']}.xml", xml)


def invoice_source(
    invoice_id: int, *, without_seller: Mapping[str, str] | None = None, language: str | None = None
) -> DocumentSource:
    """Return an invoice and the rows that belong to it, as it was issued. Raises: NotFound, SellerMissing.

    Args:
        without_seller: the seller's fields to print while nobody has recorded a seller; None: then SellerMissing is raised.
        language: the code of the document's language; None: the buyer's.
    """
    invoice = first_of(Invoice.objects.filter(pk=invoice_id), INVOICE.word, invoice_id)
    document = reads.invoice_documents([invoice], language=language)[0]
    # A later note about the invoice lowers its amount due, and is a separate document.
    lowered_minor = _lowered_minor(CreditNoteUse.objects.filter(invoice_id=invoice_id, credit_note__invoice_id=invoice_id))
    document["credit_notes_minor"] -= lowered_minor
    document["amount_due_minor"] += lowered_minor
    paid = CreditPayment.objects.filter(invoice_id=invoice_id).only("credits", "credit_type").first()
    return DocumentSource(
        document=document,
        seller=_seller_details(invoice, invoice.seller_id, missing=without_seller),
        buyer=_buyer(invoice, language),
        zone=_zone(invoice.customer_id),
        credits=paid.credits if paid else 0,
        credit_type=paid.credit_type if paid else "credits",
        units=_units(invoice, document),
    )


def credit_note_source(
    credit_note_id: int, *, without_seller: Mapping[str, str] | None = None, language: str | None = None
) -> DocumentSource:
    """Return a credit note on request and the rows that belong to it, as it was issued. Args, raises: as `invoice_source`."""
    note = first_of(CreditNote.objects.filter(pk=credit_note_id, number__isnull=False), CREDIT_NOTE.word, credit_note_id)
    assert note.invoice_id is not None
    invoice = Invoice.objects.get(pk=note.invoice_id)
    document = reads.credit_note_document(credit_note_id, language=language)
    lowers_minor = _lowered_minor(CreditNoteUse.objects.filter(credit_note_id=note.pk, invoice_id=note.invoice_id))
    document["lowers_due_minor"] = lowers_minor
    document["left_minor"] = note.amount_minor - note.credits_returned_minor - lowers_minor
    assert invoice.number is not None
    assert invoice.issue_date is not None
    return DocumentSource(
        document=document,
        seller=_seller_details(invoice, note.seller_id, missing=without_seller),
        buyer=_buyer(invoice, language),
        zone=_zone(invoice.customer_id),
        credits=note.credits_returned,
        credit_type=_paid_type(invoice),
        units=_units(invoice, document),
        corrects=(invoice.number, invoice.issue_date),
    )


SAMPLE: Final[dict[str, Any]] = {
    "number": None, "subscription": "SUB-1234", "customer": "CUST-7", "vat_lookup": None,
    "currency": "EUR", "state": "draft", "note": None,
    "issue_date": None, "due_date": None, "subtotal_minor": 3_100, "discount_minor": 0, "tax_minor": 0, "total_minor": 3_100,
    "credit_notes_minor": 0, "credits_applied_minor": 0, "rounding_minor": 0, "amount_due_minor": 3_100, "discounts": [],
    "taxes": [], "refunded_minor": 0,
    "lines": [
        {"position": 1, "title": "Team plan: seats", "period": None, "quantity": "1", "unit_amount": "31", "amount_minor": 3_100,
         "discount_minor": 0, "tax_category": "Z", "tax_rate": "0", "rating": {}},
    ],
}  # fmt: skip
"""A draft on which a seller can be seen."""


def letterhead_picture(details: Mapping[str, Any], *, language: str = "en") -> bytes:
    """Return the first page of a sample draft of a seller, as PNG."""
    address = {"line1": "12 Main St", "city": "Springfield", "country": details["country"]}
    buyer = {"name": "Ada Lovelace", "language": language, "address": address}
    page = page_of(DocumentSource(SAMPLE, details, buyer, ZoneInfo("UTC")))
    pages = compiler_of(TEMPLATE, page).compile(format="png", ppi=72)
    return pages[0] if isinstance(pages, list) else pages or b""


def _buyer(invoice: Invoice, language: str | None) -> Mapping[str, Any]:
    """Return the buyer at the issue, as a reader of this language."""
    buyer: dict[str, Any] = invoice.buyer
    return buyer if language is None else {**buyer, "language": language}


def _paid_type(invoice: Invoice) -> str:
    """Return the type of the credits that paid a part of an invoice."""
    credit_type = CreditPayment.objects.filter(invoice_id=invoice.pk).values_list("credit_type", flat=True).first()
    return credit_type or "credits"


def _units(invoice: Invoice, document: Mapping[str, Any]) -> Mapping[str, CreditUnit]:
    """Return the units of credit types at the time of finalisation; for the lines of a draft, the current units."""
    if invoice.credit_units is not None:
        return {code: CreditUnit(code, unit, unit, scale) for code, (unit, scale) in invoice.credit_units.items()}
    covered = (line["rating"].get("covered") for line in document["lines"])
    units = units_of(each["credit_type"] for each in covered if each)
    return {code: unit for code, unit in units.items() if unit != plain_unit(code)}


def _lowered_minor(uses: Any) -> int:
    """Return by how much notes on request have lowered the amount due, including notes that voiding has released since."""
    lowered: int | None = uses.filter(credit_note__kind=CreditNote.Kind.REQUESTED).aggregate(minor=Sum("amount_minor"))["minor"]
    return lowered or 0


def _seller_details(invoice: Invoice, seller_id: int | None, *, missing: Mapping[str, str] | None) -> Mapping[str, Any]:
    """Return the seller of a document; of a draft, the customer's present seller."""
    if invoice.state == Invoice.State.DRAFT:
        ref = Customer.objects.filter(pk=invoice.customer_id).values_list("seller", flat=True).first()
        seller = current_seller(ref or DEFAULT_SELLER)
    else:
        seller = seller_of(seller_id)
    if seller is not None:
        details: dict[str, Any] = seller.details
        return details
    if missing is None:
        raise SellerMissing
    return missing


def _zone(customer_id: int) -> ZoneInfo:
    return ZoneInfo(Customer.objects.filter(pk=customer_id).values_list("time_zone", flat=True).first() or "UTC")


def page_of(source: DocumentSource) -> dict[str, Any]:
    """Return the data that the template prints of a document."""
    return PAGES[source.kind](source)


def _draft_name(source: DocumentSource) -> str:
    """Return the customer and the first and last billed day, such as draft-C-7-2026-02-01-to-2026-02-28."""
    # A customer's reference may have colons, which file systems refuse.
    words = ["draft", source.document["customer"].replace(":", "-")]
    periods = [line["period"] for line in source.document["lines"] if line["period"] is not None]
    if periods:
        first = min(datetime.fromisoformat(period["start"]) for period in periods).astimezone(source.zone)
        end = max(datetime.fromisoformat(period["end"]) for period in periods).astimezone(source.zone)
        words += [f"{first:%Y-%m-%d}", "to", f"{end - timedelta(microseconds=1):%Y-%m-%d}"]
    return "-".join(words)


def _print_document(source: DocumentSource, name: str) -> PrintedDocument:
    xml = e_invoice(source)
    files = [] if xml is None else [attachment(xml)]
    pdf = typeset(TEMPLATE, page_of(source), at=_made_at(source.day("issue_date")), files=files)
    return PrintedDocument(f"{name}.pdf", declare(pdf.content) if files else pdf.content, pdf.without_glyph)


def _made_at(day: date | None) -> datetime:
    """Return the day of issue; for a draft always the same day."""
    return datetime.combine(day or date(2000, 1, 1), time(), UTC)
