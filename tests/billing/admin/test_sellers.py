"""Sellers in the admin: the form with its picture, the versions, and the logo that stays while the form is shown again."""

import base64

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from billing.documents.sellers import current_seller
from billing.models import Seller
from tests.billing.admin.test_order_forms import hidden_values, rows_typed, text_of_response
from tests.billing.documents.issued import SELLER
from tests.billing.documents.test_brand import SHAPE, SVG
from tests.billing.factories import unique
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

ADD = "/admin/billing/seller/add/"
TYPED = {
    "ref": "us", "name": "Nimbus Inc", "line1": "1 Main St", "city": "Springfield", "country": "US", "invoice_prefix": "US",
    "credit_note_prefix": "USC", "numbers_per_year": "yes", "numbers_per_customer": "no", "footer-0-language": "en",
    "footer-0-name": "A Delaware corporation",
}  # fmt: skip
LOGO = SVG.format(SHAPE)


def send(client, **more):
    """Send the form of a new seller."""
    return client.post(ADD, {"idempotency_key": unique("key"), **TYPED, **more})


def test_a_seller_is_seen_before_it_is_recorded(client):
    first = send(client, logo_file=SimpleUploadedFile("logo.svg", LOGO.encode()))
    page = first.content.decode()
    assert "Its documents have numbers such as US-2026-000001 and USC-2026-000001." in page
    assert 'src="data:image/png;base64,' in page
    assert not Seller.objects.exists()
    done = client.post(ADD, hidden_values(first) | {"confirmed": "yes"})
    seller = current_seller("us")
    assert seller is not None
    assert done["Location"] == f"/admin/billing/seller/{seller.pk}/change/"
    assert base64.b64decode(seller.details["logo"]).decode() == LOGO
    assert (seller.details["footer"], seller.details["numbers_per_year"]) == ({"en": "A Delaware corporation"}, True)
    shown = client.get(done["Location"])
    assert "Documents that are issued now name Nimbus Inc." in text_of_response(shown)
    assert "data:image/png;base64," in shown.content.decode()


def test_a_step_of_cash_payments_is_typed_in_a_row_with_its_currency(client):
    refused = send(client, **rows_typed("cash_rounding", {"currency": "CHF", "amount": "five"}))
    assert refused.status_code == 422
    assert refused.context_data["form"].errors["cash_rounding"]
    assert not Seller.objects.exists()
    steps = rows_typed("cash_rounding", {"currency": "swiss franc", "amount": "0.05"}, {"currency": "SEK", "amount": "1.00"})
    client.post(ADD, hidden_values(send(client, **steps)) | {"confirmed": "yes"})
    seller = current_seller("us")
    assert seller is not None
    assert seller.details["cash_rounding_minor"] == {"CHF": 5, "SEK": 100}
    form = client.get(f"/admin/billing/seller/{seller.pk}/edit/").context_data["form"]
    assert form["cash_rounding"].value() == [{"currency": "CHF", "amount": "0.05"}, {"currency": "SEK", "amount": "1.00"}]


def test_a_country_is_typed_by_its_name_or_its_letters_and_another_word_is_refused(client):
    refused = send(client, country="Atlantis")
    assert (refused.status_code, list(refused.context_data["form"].errors)) == (422, ["country"])
    assert not Seller.objects.exists()
    for ref, country in (("us", "Germany"), ("them", "de")):
        typed = send(client, ref=ref, country=country, invoice_prefix=ref.upper(), credit_note_prefix=f"{ref.upper()}C")
        client.post(ADD, hidden_values(typed) | {"confirmed": "yes"})
        seller = current_seller(ref)
        assert seller is not None
        assert seller.details["country"] == "DE"


def test_a_bad_logo_is_shown_at_its_field_and_nothing_recorded(client):
    refused = send(client, logo_file=SimpleUploadedFile("logo.svg", SVG.format("<script/>").encode()))
    assert refused.status_code == 422
    assert "save it as a plain SVG" in str(refused.context_data["form"].errors["logo"])
    assert not Seller.objects.exists()


@pytest.mark.parametrize("logo", ["!!!", "A", "ä", "PHN2Zz4="])
def test_a_logo_that_no_browser_sends_is_refused_at_its_field(client, logo):
    assert client.get(f"{ADD}?logo={logo}").status_code == 200
    refused = send(client, logo=logo)
    assert refused.status_code == 422
    assert refused.context_data["form"].errors["logo"]
    assert not Seller.objects.exists()


def test_an_edit_keeps_the_logo_or_removes_it_and_the_list_has_the_current_version(client):
    send_both = hidden_values(send(client, logo_file=SimpleUploadedFile("logo.svg", LOGO.encode())))
    client.post(ADD, send_both | {"confirmed": "yes"})
    first = current_seller("us")
    assert first is not None
    url = f"/admin/billing/seller/{first.pk}/edit/"
    form = client.get(url).context_data["form"]
    typed = {name: form[name].value() for name in TYPED if name in form.fields} | {"numbers_per_year": "yes"}
    typed |= {name: TYPED[name] for name in TYPED if name not in form.fields}
    typed |= {"logo": form["logo"].value(), "numbers_per_customer": "no", "name": "Nimbus LLC", "idempotency_key": unique("key")}
    client.post(url, hidden_values(client.post(url, typed)) | {"confirmed": "yes"})
    second = current_seller("us")
    assert second is not None
    assert (second.pk > first.pk, second.details["name"], second.details["logo"]) == (True, "Nimbus LLC", first.details["logo"])
    typed |= {"logo_removed": "yes", "idempotency_key": unique("key")}
    client.post(url, hidden_values(client.post(url, typed)) | {"confirmed": "yes"})
    third = current_seller("us")
    assert third is not None
    assert "logo" not in third.details
    listed = text_of_response(client.get("/admin/billing/seller/"))
    assert "us Nimbus LLC 1 Main St, Springfield, US" in listed
    assert "Nimbus Inc" not in listed
    assert "A later version has replaced this one." in text_of_response(client.get(f"/admin/billing/seller/{first.pk}/change/"))


def test_the_form_needs_its_permission():
    viewer = operator("billing.view_seller", name="viewer")
    assert viewer.get("/admin/billing/seller/").status_code == 200
    assert viewer.get(ADD).status_code == viewer.post(ADD, {**SELLER, "confirmed": "yes"}).status_code == 403
    assert operator("billing.view_seller", "billing.add_seller", name="finance").get(ADD).status_code == 200
    assert not Seller.objects.exists()
