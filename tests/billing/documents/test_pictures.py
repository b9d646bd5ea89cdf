"""Documents looked at as pictures. With LEDGER_PICTURES=FOLDER they are written there, for the docs."""

import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from billing.documents.printed_pages import DocumentSource
from billing.documents.printing import TEMPLATE as DOCUMENT
from billing.documents.printing import page_of
from ledger.statements.statements import TEMPLATE, AccountStatement, Edge, StatementRow, statement_page
from ledger.typesetting.languages import ENGLISH, GERMAN
from ledger.typesetting.letterheads import Letterhead
from ledger.units import CreditUnit, plain_unit
from tests.billing.documents.issued import BUYER_ADDRESS, SELLER
from tests.billing.documents.png import pictures, pixels

FOLDER = os.environ.get("LEDGER_PICTURES")


def rating_step(units: str, unit_amount: str, amount: str, lower: str = "0", upper: str = "0", flat: str = "0") -> dict[str, str]:
    """A step of a line's calculation, as the REST contract has it."""
    return {"from": lower, "to": upper, "units": units, "unit_amount": unit_amount, "flat_amount": flat, "amount": amount}


def line_of(
    position: int, kind: str, key: str, quantity: str, unit_amount: str | None, amount_minor: int, **more: Any
) -> dict[str, Any]:
    """A line of an invoice, as the REST contract has it; usage of October, the rest for November."""
    start, end = (10, 11) if kind == "usage" else (11, 12)
    period = {"start": f"2026-{start}-01T00:00:00.000000Z", "end": f"2026-{end}-01T00:00:00.000000Z"}
    return {
        "position": position, "kind": kind, "price_key": key, "description": key, "title": f"Team: {key}", "period": period,
        "quantity": quantity,
        "unit_amount": unit_amount, "amount_minor": amount_minor, "discount_minor": more.pop("discount_minor", 0),
        "tax_category": "S", "tax_rate": more.pop("tax_rate", "19"), "rating": more,
    }  # fmt: skip


FREE = [rating_step("1000000", "0", "0", upper="1000000"), rating_step("4390000", "0.00002", "87.8", "1000000", "5390000")]
TIERS = [rating_step("1000", "0.1", "100", upper="1000"), rating_step("10000", "0.05", "505", "1000", "11000", "5")]
INVOICE = {
    "number": "INV-000012", "subscription": "SUB-1234", "customer": "CUST-0042", "currency": "EUR", "state": "open", "note": None,
    "issue_date": "2026-11-01", "due_date": "2026-12-01", "subtotal_minor": 124_680, "discount_minor": 1_860,
    "tax_minor": 22_436, "total_minor": 145_256, "credit_notes_minor": 0, "credits_applied_minor": 25_000, "rounding_minor": 0,
    "amount_due_minor": 120_256,
    "lines": [
        line_of(1, "recurring", "seats", "12", "31", 37_200, discount_minor=1_860),
        line_of(2, "recurring", "support", "1", "260", 18_200, exact="260", share={"used": 21, "of": 30}, tax_rate="7"),
        line_of(3, "usage", "calls", "5390000", "0.00002", 8_780, steps=FREE),
        line_of(4, "usage", "storage", "11000", None, 60_500, steps=TIERS),
        line_of(5, "usage", "tokens", "150000", None, 0, covered={"units": "150000", "credits": 150, "credit_type": "credits"}),
    ],
    "discounts": [{"coupon": "AUTUMN", "name": "Autumn offer", "amount_minor": 1_860}],
    "taxes": [
        {"category": "S", "rate": "7", "base_minor": 18_200, "amount_minor": 1_274},
        {"category": "S", "rate": "19", "base_minor": 104_620, "amount_minor": 19_878},
    ],
}  # fmt: skip
NOTE = {
    "number": "CN-000003", "state": "issued", "invoice_number": "INV-000012", "subscription": "SUB-1234", "customer": "CUST-0042",
    "currency": "EUR", "issue_date": "2026-11-20", "reason": "Two hours of outage on 17 November", "subtotal_minor": 10_000,
    "tax_minor": 1_900, "rounding_minor": 0, "total_minor": 11_900, "lowers_due_minor": 0,
    "credits_returned": 11_900, "credits_returned_minor": 11_900,
    "left_minor": 0, "taxes": [{"category": "S", "rate": "19", "base_minor": 10_000, "amount_minor": 1_900}],
    "lines": [
        {"position": 1, "description": "seats", "title": "Team: seats", "amount_minor": 10_000, "tax_category": "S",
         "tax_rate": "19"},
    ],
}  # fmt: skip


DOLLARS = {code: CreditUnit(code, "US dollars", "USD", 2) for code in ("credits", "usd_cents")}


def source_of(document: dict[str, Any], language: str = "en", **more: Any) -> DocumentSource:
    """The document as it is printed for a Belgian customer."""
    buyer = {"name": "Umbrella Analytics SA", "language": language, "address": BUYER_ADDRESS, "vat_id": "BE0123456749"}
    return DocumentSource(document, SELLER, buyer, ZoneInfo("UTC"), credits=25_000, **more)


def darkness(rows: list[bytes], *, left: float, right: float, top: float, bottom: float) -> float:
    """The share of dark pixels in a part of a page; the edges are shares of its width and height."""
    height, width = len(rows), len(rows[0]) // 4
    part = [row[4 * int(left * width) : 4 * int(right * width)] for row in rows[int(top * height) : int(bottom * height)]]
    count = sum(sum(red < 200 for red in row[::4]) for row in part)
    return count / (sum(len(row) for row in part) / 4)


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("invoice-en", source_of(INVOICE)),
        ("invoice-de", source_of(INVOICE, "de")),
        ("invoice-draft", source_of({**INVOICE, "state": "draft", "number": None, "issue_date": None, "due_date": None})),
        ("invoice-units-en", source_of(INVOICE, credit_type="usd_cents", units=DOLLARS)),
        ("invoice-units-de", source_of(INVOICE, "de", credit_type="credits", units=DOLLARS)),
        ("credit-note-units-de", source_of(NOTE, "de", corrects=("INV-000012", date(2026, 11, 1)), units=DOLLARS)),
        ("credit-note", source_of(NOTE, corrects=("INV-000012", date(2026, 11, 1)))),
    ],
)
def test_a_document_looks_as_it_should(name, shown):
    if FOLDER:
        Path(FOLDER, f"{name}.png").write_bytes(pictures(DOCUMENT, page_of(shown), dots_per_inch=80)[0])
    pages = pictures(DOCUMENT, page_of(shown), dots_per_inch=30)
    assert len(pages) == 1
    rows = pixels(pages[0])
    assert darkness(rows, left=0.1, right=0.4, top=0.2, bottom=0.28) > 0.01, "the address is in the window of the envelope"
    assert darkness(rows, left=0, right=0.1, top=0, bottom=1) < 0.002, "nothing but marks in the margin"
    assert darkness(rows, left=0.92, right=1, top=0, bottom=1) == 0
    has_code = darkness(rows, left=0.7, right=0.9, top=0.7, bottom=0.86) > 0.1
    is_payable = name.startswith(("invoice-en", "invoice-de", "invoice-units"))
    assert has_code == is_payable, "the code of the transfer, on what is to be paid"


@pytest.mark.parametrize(
    ("unit", "language", "values"),
    [
        (plain_unit("credits"), ENGLISH, ["1,200", "500", "−730", "−60", "910", "30"]),
        (DOLLARS["usd_cents"], ENGLISH, ["12.00", "5.00", "−7.30", "−0.60", "9.10 USD", "0.30"]),
        (DOLLARS["usd_cents"], GERMAN, ["12,00", "5,00", "−7,30", "−0,60", "9,10 USD", "0,30"]),
    ],
)
def test_a_statement_looks_as_it_should(unit, language, values):
    opening, closing = Edge(3, 1_200, 0, "00"), Edge(8, 880, 30, "7c" * 32)
    kinds = [("grant", 500), ("spend", -730), ("hold", -120), ("capture", 0), ("release", 30)]
    rows, balance = [], opening.balance
    for number, (kind, amount) in enumerate(kinds, 4):
        balance += amount
        at = datetime(2026, 10, 3 * number, 9, 30, tzinfo=UTC)
        rows.append(StatementRow(number, at, kind, amount, balance, f"reason {number}", f"order-{number}", 1))
    code = unit.credit_type
    found = AccountStatement("customer-42", code, date(2026, 10, 1), opening, closing, rows, 5, 2, is_final=True, unit=unit)
    head = Letterhead(name=SELLER["name"], line="Lindenstraße 7 · 10969 Berlin", footer=[[SELLER["name"]], [SELLER["email"]]])
    page = statement_page(found, language, letterhead=head)
    assert [row["value"] for row in page["sums"]] == values
    if FOLDER:
        name = "statement.png" if code == "credits" else f"statement-units-{language.code}.png"
        Path(FOLDER, name).write_bytes(pictures(TEMPLATE, page, dots_per_inch=80)[0])
    (picture,) = pictures(TEMPLATE, page, dots_per_inch=30)
    picture_rows = pixels(picture)
    assert darkness(picture_rows, left=0.5, right=0.92, top=0.18, bottom=0.4) > 0.01, "the sums are at the right margin"
    assert darkness(picture_rows, left=0.92, right=1, top=0, bottom=1) == 0
