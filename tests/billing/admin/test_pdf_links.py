"""The PDFs that the operators' pages offer, followed from the page to the file, which the staff log records."""

import html
import re
from urllib.parse import urlencode

import pytest

from billing.models import CreditNote, Invoice
from ledger import services
from ledger.models import StaffEvent
from ledger.statements.pages import last_month
from tests.browser.billed import billed_with_everything

pytestmark = pytest.mark.django_db

BILLING, HOLDERS = "/admin/billing", "/admin/ledger/account/holders"
A_PDF = re.compile(r'<a\b[^>]*\bhref="([^"]*(?:/pdf/|/statement/)[^"]*)"')


def page(client, address):
    """The HTML of a page."""
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def followed(client, address):
    """The names of the files behind the page's links to PDFs, each read once; the staff log has each."""
    addresses = [html.unescape(found) for found in dict.fromkeys(A_PDF.findall(page(client, address)))]
    return [saved(client, each) for each in addresses]


def saved(client, address):
    """The name of the file behind that address, which is a PDF."""
    response = client.get(address)
    assert (response.status_code, response["Content-Type"]) == (200, "application/pdf"), address
    assert response.content.startswith(b"%PDF-")
    assert "no-store" in response["Cache-Control"]
    name = re.fullmatch(r'inline; filename="([^"]+)"', response["Content-Disposition"])[1]
    assert StaffEvent.objects.filter(action="exported", object=name, actor="admin:mara").exists()
    return name


@pytest.mark.slow
def test_an_invoice_a_draft_and_a_credit_note_lead_to_their_pdfs(client):
    invoice, draft, note = billed_with_everything()
    assert followed(client, f"{BILLING}/invoice/{invoice.pk}/change/") == [f"{invoice.number}.pdf"]
    drafted = followed(client, f"{BILLING}/invoice/{draft.pk}/change/")
    assert drafted == ["draft-C-7-2026-03-01-to-2026-03-31.pdf"]
    row = CreditNote.objects.get(number=note.number)
    assert followed(client, f"{BILLING}/creditnote/{row.pk}/change/") == [f"{row.number}.pdf"]


def test_a_pdf_without_a_glyph_for_an_emoji_says_so_to_the_operator(client):
    invoice, *_ = billed_with_everything()
    address = f"{BILLING}/invoice/{invoice.pk}/"
    client.get(f"{address}pdf/")
    assert "which no font" not in page(client, f"{address}change/")
    draft = Invoice.objects.get(state="draft")
    Invoice.objects.filter(pk=draft.pk).update(buyer={**draft.buyer, "name": "Rocket 🚀 Ltd"})
    client.get(f"{BILLING}/invoice/{draft.pk}/pdf/")
    assert "shows □ in place of 🚀, which no font has" in page(client, f"{BILLING}/invoice/{draft.pk}/change/")


def test_a_holder_and_a_customer_lead_to_the_pdfs_of_invoices_and_of_the_last_months_statement(client):
    invoice, *_ = billed_with_everything()
    services.grant(holder_id="acme-gmbh", amount=5, idempotency_key="g")
    statement = f"statement-acme-gmbh-credits-{last_month():%Y-%m}.pdf"
    customer = followed(client, f"{BILLING}/customer/{invoice.customer_id}/change/")
    assert {statement, f"{invoice.number}.pdf"} <= set(customer)
    assert f"{invoice.number}.pdf" in followed(client, f"{HOLDERS}/acme-gmbh/")
    shown = page(client, f"{HOLDERS}/acme-gmbh/")
    form = re.search(r'<form method="get" action="([^"]+)" class="statement">(.*?)</form>', shown, re.DOTALL)
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form[2])
    assert [name for name, _ in fields] == ["type", "month"]
    assert saved(client, f"{form[1]}?{urlencode(fields)}") == statement
