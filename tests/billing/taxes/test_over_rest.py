"""Declaring taxes over REST and in the admin: whole, in versions, once per key; bad members are named."""

import re

import pytest

from billing.models import Tax
from tests.billing.admin.test_order_forms import hidden_values
from tests.billing.factories import unique
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
GST = {"name": "GST", "rate": "5", "category": "O", "country": "CA", "valid_from": "2008-01-01"}


def test_a_tax_is_declared_read_and_listed_with_its_versions(api):
    assert api.get("/v1/taxes/ca-gst").status_code == 404
    first = api.put("/v1/taxes/ca-gst", GST)
    assert first.status_code == 200
    assert (first.json()["code"], first.json()["classes"], first.json()["valid_until"]) == ("ca-gst", ["standard"], None)
    assert api.put("/v1/taxes/ca-gst", GST).json() == first.json()
    second = api.put("/v1/taxes/ca-gst", {**GST, "rate": "6.5", "valid_from": "2027-01-01"}).json()
    assert api.get("/v1/taxes/ca-gst").json() == second
    assert api.get("/v1/taxes?code=ca-gst").json()["results"] == [second, first.json()]
    assert second in api.get("/v1/taxes?country=CA").json()["results"]
    assert Tax.objects.filter(code="ca-gst").count() == 2


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"rate": "101"}, "/rate", "too-large"), ({"rate": "1.23456"}, "/rate", "too-many-decimals"),
        ({"rate": 5}, "/rate", "not-a-decimal"),
        ({"category": "AE"}, "/category", "not-of-a-tax"), ({"category": "Z"}, "/rate", "rate-not-for-category"),
        ({"country": "Canada"}, "/country", "too-long"), ({"subdivision": "qc"}, "/subdivision", "pattern"),
        ({"classes": []}, "/classes", "too-few"), ({"postal_codes": [""]}, "/postal_codes/0", "too-short"),
        ({"valid_from": "1999-12-31"}, "/valid_from", "out-of-range"),
        ({"valid_until": "2008-01-01"}, "/valid_until", "after-start"),
        ({"valid_until": "9999-12-31"}, "/valid_until", "out-of-range"),
        ({"names": {"xx": "GST"}}, "/names/xx", "unknown-language"),
        ({"colour": "red"}, "/colour", "unknown-field"), ({"is_compound": 1}, "/is_compound", "not-a-boolean"),
    ],
)  # fmt: skip
def test_a_bad_member_is_named_and_nothing_is_written(api, change, pointer, rule):
    refused = api.put("/v1/taxes/ca-bad", {**GST, **change})
    assert refused.status_code == 400
    assert (pointer, rule) in [(one["pointer"], one["code"]) for one in refused.json()["errors"]]
    assert not Tax.objects.filter(code="ca-bad").exists()


def test_a_dry_run_writes_nothing(api):
    assert api.put("/v1/taxes/ca-dry?dry_run=true", GST).status_code == 200
    assert not Tax.objects.filter(code="ca-dry").exists()


def test_rules_of_the_eu_are_for_sellers_there(api):
    body = {"name": "Nimbus Inc", "line1": "1", "city": "X", "country": "US", "invoice_prefix": "US", "credit_note_prefix": "USC"}
    refused = api.put("/v1/sellers/us", body | {"tax_rules": "eu_oss"})
    assert [(one["pointer"], one["code"]) for one in refused.json()["errors"]] == [("/tax_rules", "needs-eu-country")]
    assert api.put("/v1/sellers/us", body | {"tax_rules": "region"}).json()["tax_rules"] == "region"


def test_an_operator_declares_and_changes_a_tax():
    client = operator()
    typed = {"code": "ca-gst", "name": "GST", "rate": "5", "country": "CA", "valid_from": "2008-01-01", "reason": "New"}
    shown = client.post("/admin/billing/tax/add/", {"idempotency_key": unique("key"), **typed, "category": "O"})
    assert "GST of 5 % is due in CA from 1 Jan 2008." in shown.content.decode().replace("\xa0", " ")
    assert not Tax.objects.filter(code="ca-gst").exists()
    done = client.post("/admin/billing/tax/add/", hidden_values(shown) | {"confirmed": "yes"})
    row = Tax.objects.get(code="ca-gst")
    assert done.status_code == 302
    assert (row.rate, row.category, row.classes, row.recorded_by) == (5, "O", ["standard"], "admin:mara")
    edited = client.get(f"/admin/billing/tax/{row.pk}/edit/").content.decode()
    [rate] = re.findall(r'<input[^>]*name="rate"[^>]*>', edited)
    assert 'value="5"' in rate
    for url in ("/admin/billing/tax/", f"/admin/billing/tax/{row.pk}/change/", f"/admin/billing/tax/{row.pk}/edit/"):
        assert "ca-gst" in client.get(url).content.decode()
