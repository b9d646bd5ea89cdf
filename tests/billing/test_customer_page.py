"""Billing's part of the customer's page: subscriptions and invoices of this customer, and of no other."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine, IssuedNote
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Customer, Invoice, Subscription
from ledger import services
from ledger.portal import links
from tests.billing.documents.issued import add_seller
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, unique

pytestmark = pytest.mark.django_db


def billed(holder: str | None, *, draft: bool = True, **fields: Any) -> tuple[Customer, Invoice]:
    """A customer with an invoice, and with a draft."""
    customer = CustomerFactory(holder_id=holder, **fields)
    plan = PlanFactory(prices=[recurring("seat", "49.17")])
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=at(1))
    [made] = generate_in(ref=subscription.ref, options=Options(as_of=at(1, 2))).invoices
    if draft:
        generate_in(ref=subscription.ref, options=Options(as_of=at(2, 2), finalize=False))
    return customer, Invoice.objects.get(pk=made.invoice_id)


def seen(client: Client, holder: str = "ada", **fields: Any) -> tuple[str, dict[str, Any]]:
    made = links.link(holder_id=holder, **fields)
    return client.get(made.url).content.decode(), json.loads(client.get(made.data_url).content)


def test_the_page_has_invoices_without_drafts_and_their_pdfs(client: Client) -> None:
    add_seller()
    customer, invoice = billed("ada", name="Ada <script>Ltd", time_zone="Europe/Berlin", language="de")
    html, data = seen(client)
    assert (data["name"], data["language"], data["time_zone"]) == ("Ada <script>Ltd", "de", "Europe/Berlin")
    [row] = data["invoices"]
    assert (row["number"], row["total_minor"]) == (invoice.number, invoice.total_minor)
    assert Invoice.objects.filter(customer_id=customer.pk).count() == 2
    [subscription] = data["subscriptions"]
    assert (subscription["state"], subscription["ends_at"]) == ("active", None)
    assert "Ada &lt;script&gt;Ltd" in html
    assert "<script" not in html
    assert f"{invoice.number} als PDF" in html
    assert "49,17" in html
    pdf = client.get(row["pdf_url"])
    assert (pdf.status_code, pdf["Content-Type"], pdf["Cache-Control"]) == (200, "application/pdf", "no-store")
    assert pdf["Content-Disposition"] == f'attachment; filename="{invoice.number}.pdf"'
    assert pdf.content.startswith(b"%PDF")


def credited(invoice: Invoice, amount: int) -> IssuedNote:
    """A credit note that takes an amount back from the invoice's first line."""
    lines = [CreditLine(position=1, amount_minor=amount)]
    return credit_notes.issue(invoice_id=invoice.pk, lines=lines, reason="Goodwill", actor="test", idempotency_key=unique("n"))


def test_the_page_has_credit_notes_with_their_pdfs_and_only_those_of_this_customer(client: Client) -> None:
    add_seller()
    _, invoice = billed("ada")
    _, others = billed("ben")
    note, other = credited(invoice, 1_00), credited(others, 2_00)
    html, data = seen(client)
    [row] = data["credit_notes"]
    assert (row["number"], row["invoice"], row["total_minor"]) == (note.number, invoice.number, 1_00)
    assert f"{note.number} as PDF" in html
    assert client.get(row["pdf_url"]).content.startswith(b"%PDF")
    link = links.link(holder_id="ada").url
    strange = client.get(link.replace("/c/?", f"/c/documents/credit-note-{other.id}.pdf?"))
    assert (strange.status_code, other.number in html) == (410, False)
    hidden, without = seen(client, hide_amounts=True)
    assert (without["credit_notes"][0]["total_minor"], without["credit_notes"][0]["pdf_url"]) == (None, None)
    assert "1.00" not in hidden


def test_lists_have_further_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.customer_page.ROWS_SHOWN", 2)
    add_seller()
    customer, invoice = billed("ada", draft=False)
    subscription = Subscription.objects.get(customer_id=customer.pk)
    for month in range(2, 6):
        generate_in(ref=subscription.ref, options=Options(as_of=at(month, 2)))
    notes = [credited(invoice, 1_00 + n).number for n in range(3)]
    made = links.link(holder_id="ada")
    numbers = list(Invoice.objects.filter(customer_id=customer.pk).order_by("-pk").values_list("number", flat=True))
    for name, expected in (("invoices", numbers), ("credit_notes", notes[::-1])):
        found, parameter = [], ""
        while True:
            data = json.loads(client.get(made.data_url + parameter).content)
            found += [row["number"] for row in data[name]]
            if data[f"{name}_older_than"] is None:
                break
            parameter = f"&{name}_before={data[f'{name}_older_than']}"
        assert found == expected
    html = client.get(made.url).content.decode()
    older = next(link for link in re.findall(r'href="([^"]*)"', html) if "invoices_before=" in link).replace("&amp;", "&")
    further = client.get(older).content.decode()
    assert f"{numbers[2]} as PDF" in further
    assert f"{numbers[0]} as PDF" not in further
    assert 'aria-label="Pages: Invoices"' in further
    assert client.get(f"{made.url}&invoices_before=x").status_code == 200


def test_without_amounts_there_are_no_pdfs(client: Client) -> None:
    add_seller()
    _, invoice = billed("ada")
    html, data = seen(client, hide_amounts=True)
    assert data["invoices"][0] | {"state": "", "issue_date": "", "due_date": ""} == {
        "number": invoice.number, "state": "", "is_overdue": False, "issue_date": "", "due_date": "", "currency": "EUR",
        "total_minor": None, "amount_due_minor": None, "amount_paid_minor": None, "amount_remaining_minor": None,
        "pdf_url": None,
    }  # fmt: skip
    assert ".pdf" not in html
    assert "49.17" not in html
    shown, hidden = (links.link(holder_id="ada", hide_amounts=hides).url for hides in (False, True))
    name = f"/c/documents/invoice-{invoice.pk}.pdf?"
    assert client.get(shown.replace("/c/?", name)).status_code == 200
    assert client.get(hidden.replace("/c/?", name)).status_code == 410


def test_documents_of_others_drafts_and_other_names_are_not_there(client: Client) -> None:
    add_seller()
    customer, invoice = billed("ada")
    _, other = billed("ben")
    draft = Invoice.objects.get(customer_id=customer.pk, state="draft")
    link = links.link(holder_id="ada").url
    names = [f"invoice-{other.pk}", f"invoice-{draft.pk}", f"credit-note-{invoice.pk}", "invoice-", "invoice-x", f"{invoice.pk}"]
    found = {
        client.get(link.replace("/c/?", f"/c/documents/{name}.pdf?")).status_code for name in [*names, f"invoice-{'9' * 30}"]
    }
    assert found == {410}
    assert client.get(link.replace("/c/?", f"/c/documents/invoice-{invoice.pk}.pdf?")).status_code == 200


def test_customers_who_share_a_holder_see_no_invoices(client: Client) -> None:
    add_seller()
    _, invoice = billed("team")
    CustomerFactory(holder_id="team")
    html, data = seen(client, "team")
    assert "invoices" not in data
    assert invoice.number not in html
    link = links.link(holder_id="team").url
    assert client.get(link.replace("/c/?", f"/c/documents/invoice-{invoice.pk}.pdf?")).status_code == 410


def test_an_invoice_that_cannot_be_printed_is_not_there(client: Client) -> None:
    _, invoice = billed("ada")
    link = links.link(holder_id="ada").url
    assert client.get(link.replace("/c/?", f"/c/documents/invoice-{invoice.pk}.pdf?")).status_code == 410


def test_the_page_reads_by_few_statements(client: Client) -> None:
    billed("ada")
    services.grant(holder_id="ada", amount=5, idempotency_key="1", expires_at=datetime.now(UTC) + timedelta(days=1))
    link = links.link(holder_id="ada")
    client.get(link.url)
    with CaptureQueriesContext(connection) as read:
        client.get(link.url)
    assert len(read) <= 14
