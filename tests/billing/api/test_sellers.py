"""Sellers over REST: recorded whole, in versions, once per key; bad members are named."""

import pytest

from billing.admin.order_forms.customers import customer_sentences
from billing.documents.sellers import record_seller
from billing.models import Seller
from billing.orders.customers import change_customer
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory

pytestmark = pytest.mark.django_db

US = {**SELLER, "name": "Nimbus Inc", "invoice_prefix": "US", "credit_note_prefix": "USC"}


def test_a_seller_is_recorded_read_and_listed_in_its_current_version(api):
    assert api.get("/v1/sellers/us").status_code == 404
    first = api.put("/v1/sellers/us", US)
    assert first.status_code == 200
    assert (first.json()["ref"], first.json()["invoice_prefix"], first.json()["footer"]) == ("us", "US", {})
    changed = api.put("/v1/sellers/us", {**US, "city": "Potsdam", "footer": {"en": "Since 2019"}}).json()
    api.put("/v1/sellers/default", SELLER)
    assert api.get("/v1/sellers/us").json() == changed
    assert [row["ref"] for row in api.get("/v1/sellers").json()["results"]] == ["default", "us"]
    assert Seller.objects.count() == 3
    assert api.put("/v1/sellers/us", {**US, "city": "Potsdam", "footer": {"en": "Since 2019"}}).json() == changed
    assert Seller.objects.count() == 3


def test_a_dry_run_and_bad_members_record_nothing(api):
    assert api.put("/v1/sellers/us?dry_run=true", US).status_code == 200
    refused = api.put(
        "/v1/sellers/us", {**US, "name": "", "logo": "%", "accent_color": "red", "colour": "x", "numbers_per_year": 1}
    )
    assert refused.status_code == 400
    assert sorted((error["pointer"], error["code"]) for error in refused.json()["errors"]) == [
        ("/accent_color", "pattern"), ("/colour", "unknown-field"), ("/logo", "not-base64"), ("/name", "too-short"),
        ("/numbers_per_year", "not-a-boolean"),
    ]  # fmt: skip
    taken = api.put("/v1/sellers/us", {**SELLER, "name": "Nimbus Inc"})
    assert taken.status_code == 400
    assert taken.json()["errors"][0]["pointer"] == "/invoice_prefix"
    assert not Seller.objects.exists()


def test_a_customer_names_its_seller(api):
    api.put("/v1/sellers/us", US)
    body = {"ref": "C-1", "name": "Ada", "currency": "USD"}
    refused = api.post("/v1/customers", body | {"seller": "uk"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/seller")
    assert api.post("/v1/customers", body).json()["seller"] == "default"
    assert api.patch("/v1/customers/C-1", {"seller": "us"}).json()["seller"] == "us"


def test_a_wrong_vat_id_is_named_and_reverse_charge_suggested(api):
    body = {"ref": "C-1", "name": "Ada", "currency": "EUR"}
    for vat_id, code in (("DE123456789", "wrong-check-digits"), ("BE1", "wrong-form")):
        refused = api.post("/v1/customers", body | {"vat_id": vat_id})
        assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [("/vat_id", code)]
        assert api.put("/v1/sellers/default", {**SELLER, "vat_id": vat_id}).status_code == 400
    assert not Seller.objects.exists()
    assert api.get("/v1/customers/C-1").status_code == 404
    made = api.post("/v1/customers", body | {"vat_id": "be 0123.456.749"}).json()
    assert (made["vat_id"], made["suggested_vat_status"]) == ("BE0123456749", None)
    api.put("/v1/sellers/default", SELLER)
    assert api.get("/v1/customers/C-1").json()["suggested_vat_status"] == "reverse_charge"
    assert api.get("/v1/customers").json()["results"][0]["suggested_vat_status"] == "reverse_charge"
    assert api.patch("/v1/customers/C-1", {"vat_status": "reverse_charge"}).json()["suggested_vat_status"] is None


def test_the_customers_page_says_why_reverse_charge_is_suggested():
    record_seller(SELLER, actor="test")
    customer = CustomerFactory(vat_id="BE0123456749")
    words = "Suggestion: reverse charge, because the VAT id is of another member state (BE) than the seller (DE)."
    assert words in customer_sentences(customer)
    change_customer(ref=customer.ref, vat_status="reverse_charge")
    customer.refresh_from_db()
    assert words not in customer_sentences(customer)
