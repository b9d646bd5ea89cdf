"""Invoices and credit notes as PDF: what they say, that they stay the same, and that nothing typed into them is markup."""

import io
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import segno
from facturx import get_facturx_xml_from_pdf
from pypdf import PdfReader

from billing.documents import credit_notes
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printed_pages import epc_code, invoice_page
from billing.documents.printed_texts import TAXES, TEXTS, texts_of
from billing.documents.printing import TEMPLATE, credit_note_pdf, invoice_pdf, invoice_source, page_of
from billing.errors import NotFound
from billing.models import Invoice
from billing.orders.customers import NewCredits
from billing.orders.tax_declarations import NewTax, declare
from ledger import services
from ledger.errors import DocumentTooLong
from ledger.models import CreditType
from ledger.typesetting import typeset as typesetting
from tests.billing.documents.issued import add_seller, invoice_up_to, metered_free, subscribed, usual_invoice
from tests.billing.documents.png import pictures, pixels
from tests.billing.documents.schematron import broken_rules
from tests.billing.factories import CustomerFactory, recurring, transition, unique, use

pytestmark = pytest.mark.django_db

BERLIN = {"line1": "Weg 1", "postal_code": "10115", "city": "Berlin", "country": "DE"}
NEW_YORK = {"line1": "1 Main Street", "city": "New York", "country": "US"}
MADE_AT = datetime(2026, 1, 1, tzinfo=UTC)
RAM = "{urn:un:unece:uncefact:data:standard:ReusableAggregateBusinessInformationEntity:100}"


@pytest.fixture(autouse=True)
def _recorded_seller() -> None:
    """The seller is recorded."""
    add_seller()


def text_of(pdf: bytes) -> str:
    """What a reader reads, each run of white space as one space."""
    return re.sub(r"\s+", " ", " ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages))


def has_xml(pdf: bytes) -> bool:
    """Whether the PDF has the e-invoice inside."""
    return "factur-x.xml" in PdfReader(io.BytesIO(pdf)).attachments


def xml_of(pdf: bytes) -> ET.Element:
    """The e-invoice inside, which must keep the schemas and the rules of EN 16931."""
    name, xml = get_facturx_xml_from_pdf(pdf, check_xsd=True, check_schematron=False)
    assert name == "factur-x.xml"
    assert broken_rules(xml) == []
    return ET.fromstring(xml)


def metadata_of(pdf: bytes) -> str:
    """What the PDF says of itself."""
    return PdfReader(io.BytesIO(pdf)).root_object["/Metadata"].get_data().decode()


def amounts(xml: ET.Element, *names: str) -> list[str | None]:
    """The texts of the first elements with these names; None where there is none."""
    return [found.text if (found := xml.find(f".//{RAM}{name}")) is not None else None for name in names]


# What it says ----------------------------------------------------------------------------------------


def test_an_invoice_says_who_what_why_and_how_to_pay_and_has_the_same_bytes_every_time():
    invoice = usual_invoice()
    pdf = invoice_pdf(invoice.pk)
    assert pdf.file_name == f"{invoice.number}.pdf"
    text = text_of(pdf.content)
    for words in (
        "Umbrella Analytics SA Rue de la Loi 16 Accounts Payable 1000 Bruxelles BELGIUM",
        f"Invoice number {invoice.number}",
        "Your VAT id BE0123456749",
        "seats 1 Oct 2026 – 31 Oct 2026 12 31.00 19 % 372.00",
        "5,390,000 − 1,000,000 free = 4,390,000 × 0.00002 = 87.80",
        "0 to 1,000: 1,000 × 0.10 = 100.00",
        "1,000 to 11,000: 10,000 × 0.05 + 5.00 = 505.00",
        "Subtotal 1,436.80 VAT 19 % on 1,436.80 272.99 Total EUR 1,709.79",
        "Please pay EUR 1,709.79 by",
        "IBAN DE89 3704 0044 0532 0130 00",
        "Page 1 of 1",
    ):
        assert words in text, words
    assert invoice_pdf(invoice.pk).content == pdf.content


def test_the_same_template_speaks_german():
    text = text_of(invoice_pdf(usual_invoice(language="de-AT").pk).content)
    for words in (
        "Rechnungsnummer",
        "BELGIEN",
        "seats 01.10.2026 – 31.10.2026 12 31,00 19 % 372,00",
        "5.390.000 − 1.000.000 frei = 4.390.000 × 0,00002 = 87,80",
        "Gesamtbetrag EUR 1.709,79",
        "Bitte zahlen Sie EUR 1.709,79 bis zum",
        "Seite 1 von 1",
    ):
        assert words in text, words
    assert "Invoice" not in text


def test_credits_that_paid_all_leave_nothing_to_pay():
    holder = unique("holder")
    services.grant(holder_id=holder, amount=100_000, idempotency_key="k")
    invoice = usual_invoice(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.05")))
    text = text_of(invoice_pdf(invoice.pk).content)
    assert "Paid with 34,195 credits −1,709.75" in text
    assert "Amount due EUR 0.04" in text
    assert "Please pay EUR 0.04" in text


def invoice_in_cents(**customer: Any) -> Invoice:
    """Calls whose units credits cover at 1.5 cents each, and seats that credits pay in part; the type has no unit yet."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=300_000, credit_type="usd_cents", idempotency_key="k")
    terms = NewCredits(credit_type="usd_cents", unit_value=Decimal("0.0085"))
    calls = metered_free(free_units=None, credits={"credit_type": "usd_cents", "per_unit": "1.5"})
    subscription = subscribed(
        recurring("seats", "31.00", model="unit", tax_rate="19"),
        {name: value for name, value in calls.items() if value is not None},
        quantities={"seats": Decimal(100)},
        holder_id=holder,
        credits=terms,
        **customer,
    )
    use(subscription, "1001", datetime(2026, 10, 5, tzinfo=UTC))
    return invoice_up_to(subscription)


@pytest.mark.slow
@pytest.mark.check
def test_credits_have_the_unit_and_decimals_of_their_type_in_both_languages():
    plain = text_of(invoice_pdf(invoice_in_cents().pk).content)
    assert "1,001 units paid with 1,502 usd cents" in plain
    assert "Paid with prepaid credits: 298,498 usd cents" in plain
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    english = text_of(invoice_pdf(invoice_in_cents().pk).content)
    assert "1,001 units paid with 15.02 USD" in english
    assert "Paid with prepaid credits: 2,984.98 USD −2,537.23" in english
    german = text_of(invoice_pdf(invoice_in_cents(language="de").pk).content)
    assert "1.001 Einheiten bezahlt mit 15,02 USD" in german
    assert "Bezahlt mit Guthaben: 2.984,98 USD −2.537,23" in german


def test_a_document_keeps_the_unit_with_which_it_was_issued():
    shown = CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    invoice = invoice_in_cents()
    assert invoice.credit_units == {"usd_cents": ["USD", 2]}
    lines = [credit_notes.CreditLine(position=position, amount_minor=310_000) for position in (1, 2)]
    note = credit_notes.issue(invoice_id=invoice.pk, reason="Late", actor="t", idempotency_key=unique("k"), lines=lines)
    assert re.search(r"Returned as prepaid credits: 2,984\.98 USD 2,537\.23", text_of(credit_note_pdf(note.id).content))
    before = invoice_pdf(invoice.pk).content, credit_note_pdf(note.id).content
    shown.unit, shown.scale = "dollars", 3
    shown.save()
    assert (invoice_pdf(invoice.pk).content, credit_note_pdf(note.id).content) == before
    shown.delete()
    assert (invoice_pdf(invoice.pk).content, credit_note_pdf(note.id).content) == before


def test_a_draft_has_the_unit_of_now():
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    holder = unique("holder")
    services.grant(holder_id=holder, amount=2_000, credit_type="usd_cents", idempotency_key="k")
    calls = metered_free(free_units="0", credits={"credit_type": "usd_cents", "per_unit": "1.5"})
    subscription = subscribed(recurring("seats", "31.00", model="unit", tax_rate="19"), calls, holder_id=holder)
    use(subscription, "1", datetime(2026, 10, 5, tzinfo=UTC))
    draft = invoice_up_to(subscription, finalize=False)
    assert draft.credit_units is None
    assert "1 unit paid with 0.02 USD" in text_of(invoice_pdf(draft.pk).content)


@pytest.mark.slow
@pytest.mark.check
def test_500_lines_go_on_over_pages_that_say_which_they_are():
    source = invoice_source(usual_invoice().pk)
    lines = [{**source.document["lines"][0], "position": position} for position in range(1, 501)]
    page = invoice_page(replace(source, document={**source.document, "lines": lines}))
    pages = PdfReader(io.BytesIO(typesetting.typeset(TEMPLATE, page, at=datetime(2026, 11, 1, tzinfo=UTC)).content)).pages
    assert len(pages) >= 12
    assert f"Page {len(pages)} of {len(pages)}" in pages[-1].extract_text()
    assert source.document["number"] in pages[1].extract_text()
    assert "500 Team: seats" in pages[-1].extract_text().replace("\n", " ")


def test_more_rows_than_a_pdf_has_are_refused(monkeypatch):
    monkeypatch.setattr(typesetting, "MAX_ROWS", 3)
    with pytest.raises(DocumentTooLong) as refused:
        invoice_pdf(usual_invoice().pk)
    assert refused.value.facts == {"rows": 4, "limit": 3}


# What stays the same ---------------------------------------------------------------------------------


def test_what_happens_later_changes_nothing_on_the_paper_but_that_it_is_void():
    paid, voided = usual_invoice(), usual_invoice()
    before = {invoice.pk: invoice_pdf(invoice.pk).content for invoice in (paid, voided)}
    for invoice in (paid, voided):
        line = credit_notes.CreditLine(position=1, amount_minor=10_000)
        credit_notes.issue(invoice_id=invoice.pk, reason="Late", actor="t", idempotency_key=unique("k"), lines=[line])
    transition(paid.pk, "pay")
    add_seller(name="Another Company AG")
    assert {invoice.pk: invoice_pdf(invoice.pk).content for invoice in (paid, voided)} == before
    transition(voided.pk, "void")
    text = text_of(invoice_pdf(voided.pk).content)
    assert "This document is void." in text
    assert "Please pay" not in text
    assert "EUR 1,709.79" in text


@pytest.mark.slow
@pytest.mark.check
def test_a_draft_says_so_across_the_page_and_asks_for_nothing():
    subscription = subscribed(recurring("base", "49.00"))
    draft = invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC), finalize=False)
    pdf = invoice_pdf(draft.pk)
    assert pdf.file_name == f"draft-{draft.customer_ref}-2026-10-01-to-2026-10-31.pdf"
    text = text_of(pdf.content)
    assert "Draft invoice" in text
    assert "not an invoice" in text
    assert "Please pay" not in text
    assert not has_xml(pdf.content)
    assert stamped_pixels(draft.pk) > 200
    transition(draft.pk, "finalize")
    assert stamped_pixels(draft.pk) == 0


def stamped_pixels(invoice_id: int) -> int:
    """How many pixels in the middle of the first page have the light red of a stamp, which nothing else there has."""
    rows = pixels(pictures(TEMPLATE, page_of(invoice_source(invoice_id)), dots_per_inch=24)[0])
    found = 0
    for row in rows[len(rows) // 3 : 2 * len(rows) // 3]:
        colours = [row[at : at + 3] for at in range(len(row) // 16 * 4, len(row) // 4 * 3, 4)]
        found += sum(red > 220 and red - green > 12 and red - blue > 12 for red, green, blue in colours)
    return found


# Texts of others -------------------------------------------------------------------------------------

HOSTILE = (
    '#set page(width: 1cm) *bold* $x^2$ `raw` @label <label> \\ // c /* c */ #read("/etc/passwd") #panic() "quoted" = h - l \n'
)


def test_texts_are_printed_as_they_are_and_never_read_as_markup():
    subscription = subscribed(recurring("base", "49.00"), name=HOSTILE, address={"line1": HOSTILE, "city": "#pagebreak()"})
    invoice = invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC))
    credit_notes.issue(invoice_id=invoice.pk, reason=HOSTILE, actor="t", idempotency_key=unique("k"))
    note = credit_notes.CreditNote.objects.get(invoice_id=invoice.pk)
    squeezed = re.sub(r"\s", "", HOSTILE)
    for pdf, times in ((invoice_pdf(invoice.pk).content, 2), (credit_note_pdf(note.pk).content, 3)):
        pages = PdfReader(io.BytesIO(pdf)).pages
        assert len(pages) == 1
        assert re.sub(r"\s", "", pages[0].extract_text()).count(squeezed) == times
        assert round(pages[0].mediabox.width) == 595


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("name", "shown", "missing"),
    [
        ("東京株式会社", "□□□□□□", "東京株式会社"),
        ("Rocket 🚀🚀 Ltd", "Rocket □□ Ltd", "🚀"),
        ("Family 👩\u200d👧\ufe0f Ltd", "Family □□ Ltd", "👩👧"),
        ("Private \ue000 Ltd", "Private □ Ltd", "\ue000"),
        ("Bell \x07 Ltd", "Bell Ltd", ""),
        ("Łódź Ωμέγα Иванов", "Łódź Ωμέγα Иванов", ""),
    ],
)
def test_a_character_that_no_font_has_is_a_box_in_an_e_invoice_all_the_same(name, shown, missing):
    subscription = subscribed(recurring("base", "49.00"), name=name)
    invoice = invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC))
    printed = invoice_pdf(invoice.pk)
    pdf = printed.content
    assert printed.without_glyph == missing
    assert re.sub(r"\s", "", shown) in re.sub(r"\s", "", text_of(pdf))
    assert "<pdfaid:part>3</pdfaid:part><pdfaid:conformance>A</pdfaid:conformance>" in metadata_of(pdf)
    assert invoice_pdf(invoice.pk).content == pdf
    buyer = xml_of(pdf).find(f".//{RAM}BuyerTradeParty/{RAM}Name")
    assert buyer is not None
    assert buyer.text == name.replace("\x07", " ")


@pytest.mark.parametrize(
    ("seller", "buyer", "language", "shown"),
    [
        ("US", "US", "en", ["Sales tax", "Sales tax 8.25 % on 49.00", "Your tax id", "Tax id"]),
        ("US", "", "en", ["Sales tax 8.25 %"]),
        ("DE", "US", "en", ["Sales tax 8.25 %", "Your tax id", "VAT id DE987654328"]),
        ("US", "DE", "de", ["USt. 8,25 % auf 49,00", "Ihre USt-IdNr."]),
        ("AU", "AU", "en", ["GST 8.25 %", "Your ABN"]),
        ("CA", "CA", "en", ["GST/HST 8.25 %"]),
        ("CH", "CH", "de", ["MWST 8,25 %", "Ihre MWST-Nummer"]),
        ("DE", "FR", "en", ["VAT 8.25 %", "Your VAT id"]),
    ],
)
def test_the_tax_has_its_name_in_the_buyers_country(seller, buyer, language, shown):
    add_seller(country=seller)
    address = {"line1": "1 Main St", "city": "Springfield"} | ({"country": buyer} if buyer else {})
    subscription = subscribed(recurring("base", "49.00", tax_rate="8.25"), currency="USD", address=address, language=language)
    text = text_of(invoice_pdf(invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC)).pk).content)
    for words in shown:
        assert words in text, words
    other = {"Sales tax", "VAT 8", "GST", "USt. 8"} - {
        name for name in ("Sales tax", "VAT 8", "GST", "USt. 8") if name in shown[0]
    }
    assert not [name for name in other if name in text]


def test_a_buyer_without_a_country_is_in_that_of_the_seller():
    at_home = texts_of("en", seller={"country": "US"}, buyer={"country": "US"})
    assert texts_of("en", seller={"country": "US"}, buyer={}) == at_home
    assert texts_of("en", seller={"country": "DE"}, buyer={}) != at_home


@pytest.mark.parametrize("language", list(TEXTS))
def test_no_text_keeps_a_mark_of_the_taxs_name(language):
    assert TAXES.keys() == TEXTS.keys()
    for country in TAXES[language]:
        texts = texts_of(language, seller={"country": country}, buyer={"country": country})
        assert not [text for text in texts.values() if "ax}" in text or "_id}" in text]


@pytest.mark.parametrize("lines", range(37, 41))
def test_the_payment_box_is_never_alone_on_a_page(lines):
    source = invoice_source(usual_invoice().pk)
    [line, *_] = source.document["lines"]
    page = invoice_page(replace(source, document={**source.document, "lines": [line] * lines}))
    texts = [page.extract_text() for page in PdfReader(io.BytesIO(typesetting.typeset(TEMPLATE, page, at=MADE_AT).content)).pages]
    [with_box] = [text for text in texts if "Please pay" in text]
    assert "Subtotal" in with_box


# The e-invoice ---------------------------------------------------------------------------------------


def test_an_invoice_in_euro_carries_the_same_amounts_for_machines():
    invoice = usual_invoice()
    pdf = invoice_pdf(invoice.pk).content
    names = ("LineTotalAmount", "TaxBasisTotalAmount", "TaxTotalAmount", "GrandTotalAmount", "DuePayableAmount")
    xml = xml_of(pdf)
    settlement = xml.find(f".//{RAM}SpecifiedTradeSettlementHeaderMonetarySummation")
    assert settlement is not None
    assert amounts(settlement, *names) == ["1436.80", "1436.80", "272.99", "1709.79", "1709.79"]
    assert (invoice.subtotal_minor, invoice.tax_minor, invoice.amount_due_minor) == (143680, 27299, 170979)
    assert [line.text for line in xml.iterfind(f".//{RAM}BilledQuantity")] == ["12", "12", "1", "1"]
    metadata = PdfReader(io.BytesIO(pdf)).root_object["/Metadata"].get_data().decode()  # type: ignore[attr-defined]
    assert "<pdfaid:part>3</pdfaid:part><pdfaid:conformance>A</pdfaid:conformance>" in metadata
    assert "<fx:DocumentFileName>factur-x.xml</fx:DocumentFileName>" in metadata
    assert "<fx:ConformanceLevel>EN 16931</fx:ConformanceLevel>" in metadata


def test_a_credit_note_is_one_for_machines_too():
    invoice = usual_invoice()
    line = credit_notes.CreditLine(position=1, amount_minor=10_000)
    note = credit_notes.issue(invoice_id=invoice.pk, reason="Late", actor="t", idempotency_key=unique("k"), lines=[line])
    pdf = credit_note_pdf(note.id)
    assert pdf.file_name == f"{note.number}.pdf"
    assert f"Corrects invoice {invoice.number}" in text_of(pdf.content)
    assert f"Lowers the amount due of {invoice.number} 119.00" in text_of(pdf.content)
    xml = xml_of(pdf.content)
    assert amounts(xml, "TypeCode", "GrandTotalAmount", "InvoiceReferencedDocument/" + RAM + "IssuerAssignedID") == [
        "381", "119.00", invoice.number,
    ]  # fmt: skip
    assert credit_note_pdf(note.id).content == pdf.content


@pytest.mark.parametrize(
    "customer",
    [{"currency": "USD"}, {"address": {"line1": "Somewhere", "city": "Bruxelles"}}],
    ids=["another currency", "no country"],
)
def test_without_what_an_e_invoice_needs_the_paper_stands_alone(customer):
    subscription = subscribed(recurring("base", "49.00", tax_rate="19"), **customer)
    invoice = invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC))
    assert not has_xml(invoice_pdf(invoice.pk).content)


def test_reverse_charge_says_why_there_is_no_tax_to_both_readers():
    subscription = subscribed(recurring("base", "49.00", tax_rate="19"), vat_status="reverse_charge")
    pdf = invoice_pdf(invoice_up_to(subscription, as_of=datetime(2026, 10, 1, tzinfo=UTC)).pk).content
    assert "Reverse charge: VAT is owed by the recipient." in text_of(pdf)
    assert amounts(xml_of(pdf), "CategoryCode", "ExemptionReasonCode") == ["AE", "VATEX-EU-AE"]


def one_off(*lines: tuple[str, str, str], seller: dict[str, Any] | None = None, **customer: Any) -> bytes:
    """The PDF of an invoice with a line for each price, category and rate."""
    add_seller(**(seller or {}))
    payer = CustomerFactory(**{"address": BERLIN, **customer})
    made = [
        OneOffLine(description="x", unit_amount=Decimal(price), tax_category=kind, tax_rate=Decimal(rate))
        for price, kind, rate in lines
    ]
    return invoice_pdf(issue_one_off_in(customer_ref=payer.ref, request=NewOneOffInvoice(lines=made)).pk).content


@pytest.mark.parametrize(
    ("lines", "customer", "categories"),
    [
        ([("31.00", "S", "19"), ("5.00", "S", "0")], {}, {"S": "19", "Z": "0"}),
        ([("5.00", "S", "0")], {}, {"Z": "0"}),
        ([("5.00", "reduced", "7"), ("9.00", "reduced", "0"), ("1.00", "Z", "0")], {}, {"S": "7", "Z": "0"}),
        ([("5.00", "E", "0"), ("9.00", "S", "19")], {}, {"E": "0", "S": "19"}),
        ([("9.99", "O", "0")], {"address": NEW_YORK}, {"O": None}),
        ([("9.99", "O", "0"), ("5.00", "O", "0")], {"vat_id": "BE0123456749"}, {"O": None}),
        ([("9.99", "G", "0")], {"address": NEW_YORK}, {"G": "0"}),
    ],
)
def test_each_category_keeps_the_rules_of_en_16931(lines, customer, categories):
    taxes = xml_of(one_off(*lines, **customer)).findall(f".//{RAM}ApplicableHeaderTradeSettlement/{RAM}ApplicableTradeTax")
    found = {tax.findtext(f"{RAM}CategoryCode"): tax.findtext(f"{RAM}RateApplicablePercent") for tax in taxes}
    assert found == categories


def test_a_seller_that_consumers_outside_the_eu_owe_no_tax_is_identified_without_a_vat_id():
    declare(NewTax(code="de", name="MwSt", rate=Decimal(19), country="DE", valid_from=date(2020, 1, 1)), actor="test")
    xml = xml_of(one_off(("9.99", "S", "0"), seller={"tax_rules": "eu_oss"}, address=NEW_YORK))
    seller = xml.find(f".//{RAM}SellerTradeParty")
    assert seller is not None
    assert [each.get("schemeID") for each in seller.iterfind(f".//{RAM}SpecifiedTaxRegistration/{RAM}ID")] in ([], ["FC"])
    assert seller.findtext(f"{RAM}ID") == "DE987654328"


def test_what_is_not_subject_to_vat_beside_what_is_has_no_e_invoice():
    assert not has_xml(one_off(("9.99", "O", "0"), ("5.00", "S", "19")))


def test_the_check_of_the_rules_finds_what_breaks_them():
    _, xml = get_facturx_xml_from_pdf(one_off(("31.00", "S", "19")), check_xsd=False, check_schematron=False)
    broken = xml.replace(b"<ram:CategoryCode>S<", b"<ram:CategoryCode>Z<")
    assert any(rule.startswith("[BR-Z-") for rule in broken_rules(broken))


def test_the_code_of_a_transfer_is_that_of_the_european_payments_council():
    code = epc_code(
        name="Nimbus Computing GmbH", iban="DE89370400440532013000", bic="", amount=Decimal("12.30"), reference="INV-000001"
    )
    content = "BCD\n002\n1\nSCT\n\nNimbus Computing GmbH\nDE89370400440532013000\nEUR12.3\n\n\nINV-000001"
    expected = segno.make(content, error="m", boost_error=False, micro=False, encoding="utf-8")
    assert code == expected.svg_inline(border=0, omitsize=True).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')


def test_a_name_that_no_code_of_a_transfer_holds_leaves_the_bank_account_to_type():
    add_seller(name="\U00020000" * 70)
    invoice = invoice_up_to(subscribed(recurring("base", "49.00")), as_of=datetime(2026, 10, 1, tzinfo=UTC))
    text = text_of(invoice_pdf(invoice.pk).content)
    assert "DE89 3704 0044 0532 0130 00" in text
    assert "Scan to pay" not in text


# Refused ---------------------------------------------------------------------------------------------


def test_what_does_not_exist_is_not_printed():
    with pytest.raises(NotFound):
        invoice_pdf(2**40)
    with pytest.raises(NotFound):
        credit_note_pdf(2**40)
