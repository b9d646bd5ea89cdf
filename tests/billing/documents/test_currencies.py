"""Yen without decimals and dinars with three, in every place that shows money: PDF, pages, files, command, REST."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from billing.admin.cells import decimal
from billing.books import month_sales
from billing.books.tax_summary import tax_summary
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.documents.e_invoice import faults_of
from billing.documents.printing import credit_note_pdf, invoice_pdf, invoice_source, page_of
from billing.management.run_texts import amount
from billing.models import Invoice
from billing.rating.money import money_text
from ledger.portal import links
from ledger.totals.figures import amounts_of
from tests.billing.documents.issued import add_seller, invoice_up_to, subscribed
from tests.billing.documents.test_printed import has_xml, text_of
from tests.billing.factories import recurring
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


class Shown(NamedTuple):
    """An invoice of 12 units with tax, and how places show it."""

    currency: str
    unit_amount: str
    rate: str
    minor: tuple[int, int, int]
    """Net, tax and total in minor units."""
    english: tuple[str, str, str]
    german: tuple[str, str, str]
    file: tuple[str, str, str]
    steps: tuple[str, str]
    """The price per unit in English and German."""


# 12 × 1,030 = 12,360, of which 10 % is 1,236. 12 × 1.0055 = 12.066, of which 5 % is 0.6033, rounded half up to 0.603.
YEN = Shown(
    "JPY", "1030", "10", (12_360, 1_236, 13_596), ("12,360", "1,236", "13,596"), ("12.360", "1.236", "13.596"),
    ("12360", "1236", "13596"), ("1,030", "1.030"),
)  # fmt: skip
DINAR = Shown(
    "KWD", "1.0055", "5", (12_066, 603, 12_669), ("12.066", "0.603", "12.669"), ("12,066", "0,603", "12,669"),
    ("12.066", "0.603", "12.669"), ("1.0055", "1,0055"),
)  # fmt: skip
BOTH = pytest.mark.parametrize("shown", [YEN, DINAR], ids=lambda shown: shown.currency)


def billed(shown: Shown, **customer: Any) -> Invoice:
    """The invoice."""
    add_seller()
    price = recurring("seats", shown.unit_amount, model="unit", tax_rate=shown.rate)
    subscription = subscribed(price, currency=shown.currency, quantities={"seats": Decimal(12)}, **customer)
    return invoice_up_to(subscription, as_of=datetime(2026, 10, 2, tzinfo=UTC))


def words_of(html: str) -> str:
    """A page without tags, each run of spaces as one."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@BOTH
@pytest.mark.parametrize("language", ["en", "de"])
def test_a_pdf_has_the_decimals_of_the_currency_and_no_e_invoice(shown, language):
    invoice = billed(shown, language=language)
    assert (invoice.subtotal_minor, invoice.tax_minor, invoice.total_minor) == shown.minor
    pdf = invoice_pdf(invoice.pk).content
    net, tax, total = shown.english if language == "en" else shown.german
    text = text_of(pdf)
    assert f"{shown.currency} {total}" in text
    assert f"12 {shown.steps[language == 'de']} {shown.rate} % {net}" in text
    assert f"{shown.rate} % {'on' if language == 'en' else 'auf'} {net} {tax}" in text
    assert not has_xml(pdf)
    assert [fault.rule for fault in faults_of(invoice_source(invoice.pk))] == ["BR-53"], "e-invoices are in euro"
    assert page_of(invoice_source(invoice.pk))["payment"]["codes"] == [], "the code of a transfer is in euro"


@BOTH
def test_pages_lists_and_files_have_the_decimals_of_the_currency(shown):
    invoice = billed(shown)
    net, tax, total = shown.english
    viewer = operator("billing.view_invoice", name="viewer")
    page = words_of(viewer.get(f"/admin/billing/invoice/{invoice.pk}/change/").content.decode())
    assert f"{shown.currency} {total}" in page
    assert f"{total} {shown.currency}" in words_of(viewer.get("/admin/billing/invoice/").content.decode())
    listed = b"".join(viewer.get("/admin/billing/invoice/csv/").streaming_content).decode("utf-8-sig").splitlines()
    row = dict(zip(listed[0].split(","), listed[1].split(","), strict=True))
    assert (row["Subtotal"], row["Tax"], row["Total"], row["Amount due"]) == (shown.file[0], *shown.file[1:], shown.file[2])
    [taxes] = tax_summary(datetime.now(UTC).date())
    assert (taxes.currency, taxes.base_minor, taxes.tax_minor) == (shown.currency, *shown.minor[:2])
    _, of_taxes = month_sales.sections(datetime.now(UTC).date().replace(day=1))
    assert [each.amount.text for each in amounts_of(of_taxes)] == [net, tax] * 2


@BOTH
def test_a_credit_note_and_the_customers_page_have_the_decimals_of_the_currency(shown, client, settings):
    invoice = billed(shown, holder_id="ada", language="de")
    note = credit_notes.issue_in(
        invoice_id=invoice.pk, lines=[CreditLine(position=1, amount_minor=shown.minor[0])], reason="All", actor="test"
    )
    assert note.amount_minor == shown.minor[2]
    assert f"{shown.currency} {shown.german[2]}" in text_of(credit_note_pdf(note.pk).content)
    page = words_of(client.get(links.link(holder_id="ada").url).content.decode())
    assert f"{shown.german[2]} {shown.currency}" in page


@BOTH
def test_a_negative_amount_and_a_part_of_a_unit_keep_sign_and_zeros(shown):
    one = {"JPY": ("−1 JPY", "JPY -1", "-1"), "KWD": ("−0.001 KWD", "KWD -0.001", "-0.001")}[shown.currency]
    assert (money_text(-1, shown.currency), amount(-1, shown.currency), str(decimal(-1, shown.currency))) == one
    whole = {"JPY": "1,000 JPY", "KWD": "1.000 KWD"}[shown.currency]
    assert money_text(1_000, shown.currency) == whole


@BOTH
def test_rest_has_whole_minor_units_whatever_the_currency(shown, api):
    invoice = billed(shown)
    body = api.get(f"/v1/invoices/{invoice.pk}").json()
    assert (body["subtotal_minor"], body["tax_minor"], body["total_minor"]) == shown.minor
    assert (body["lines"][0]["unit_amount"], body["lines"][0]["amount_minor"]) == (shown.unit_amount, shown.minor[0])
