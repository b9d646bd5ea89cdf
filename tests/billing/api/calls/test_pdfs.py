"""Documents as PDF over REST and in the admin."""

import pytest

from billing.documents import credit_notes
from billing.models import CreditNote, Invoice
from ledger.keys import api_keys
from tests.billing.documents.issued import add_seller, invoice_up_to, subscribed
from tests.billing.factories import recurring, unique
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


@pytest.fixture
def invoice() -> Invoice:
    """A finalised invoice of 49.00 and 19 percent tax."""
    return invoice_up_to(subscribed(recurring("base", "49.00", tax_rate="19")))


@pytest.fixture
def note(invoice: Invoice) -> CreditNote:
    """A credit note over the whole invoice."""
    issued = credit_notes.issue(invoice_id=invoice.pk, reason="Late", actor="t", idempotency_key=unique("k"))
    return CreditNote.objects.get(pk=issued.id)


def api_with(*scopes: str, holder_id: str | None = None) -> ApiClient:
    """A client whose key has these scopes (`billing:read` if none), for one holder or for all."""
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=scopes or ["billing:read"], holder_id=holder_id)
    return ApiClient(secret)


def test_both_documents_come_as_files_with_their_names(invoice, note):
    add_seller()
    client = api_with()
    for path, number in ((f"invoices/{invoice.pk}", invoice.number), (f"credit-notes/{note.pk}", note.number)):
        response = client.get(f"/v1/{path}.pdf")
        assert response.status_code == 200, response.content
        assert response.content.startswith(b"%PDF-1.7")
        assert response.headers["Content-Type"] == "application/pdf"
        assert response.headers["Content-Disposition"] == f'inline; filename="{number}.pdf"'
        assert response.headers["Cache-Control"] == "no-store"
        assert client.get(f"/v1/{path}.pdf").content == response.content
        assert client.get(f"/v1/{path}.pdf", Accept="application/json").status_code == 406


def test_what_cannot_be_printed_is_a_problem(invoice):
    response = api_with().get(f"/v1/invoices/{invoice.pk}.pdf")
    assert response.status_code == 409
    assert response.json()["type"].endswith("/seller-missing")
    assert response.json()["detail"].startswith("A document names the seller.")
    add_seller()
    for path in ("invoices/4611686018427", "credit-notes/4611686018427"):
        assert api_with().get(f"/v1/{path}.pdf").status_code == 404
    assert api_with("ledger:read").get(f"/v1/invoices/{invoice.pk}.pdf").status_code == 403
    assert api_with("billing:read", holder_id="ada").get(f"/v1/invoices/{invoice.pk}.pdf").status_code == 404


def test_a_carried_credit_note_is_no_document(invoice):
    add_seller()
    carried = CreditNote.objects.create(
        customer_id=invoice.customer_id,
        subscription_id=invoice.subscription_id,
        invoice_id=invoice.pk,
        left_minor=100,
        currency="EUR",
        amount_minor=100,
    )
    assert api_with().get(f"/v1/credit-notes/{carried.pk}.pdf").status_code == 404
    assert "PDF" not in operator().get(f"/admin/billing/creditnote/{carried.pk}/change/").content.decode()


def test_the_admin_shows_both_and_says_what_is_missing(invoice, note):
    client = operator()
    for model, pk in (("invoice", invoice.pk), ("creditnote", note.pk)):
        page = f"/admin/billing/{model}/{pk}/change/"
        url = f"/admin/billing/{model}/{pk}/pdf/"
        assert url in client.get(page).content.decode()
        response = client.get(url, follow=True)
        assert response.redirect_chain == [(page, 302)]
        assert "No seller is recorded." in response.content.decode()
    add_seller()
    for model, pk in (("invoice", invoice.pk), ("creditnote", note.pk)):
        response = client.get(f"/admin/billing/{model}/{pk}/pdf/")
        assert response.headers["Content-Type"] == "application/pdf"
        assert response.content.startswith(b"%PDF-1.7")
    assert client.get("/admin/billing/invoice/4611686018427/pdf/").status_code == 404
