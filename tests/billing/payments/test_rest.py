"""Purchases over REST: recorded once, shown with what became of the credits, refused by field."""

from typing import Any

import pytest

from billing.payments.models import DuePurchase, Purchase, PurchaseReturn
from billing.payments.testing import PackFactory, PurchaseFactory
from billing.testing import CustomerFactory
from ledger import reads as ledger_reads
from ledger.testing import unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


def test_a_purchase_over_rest_is_recorded_once_and_read_with_its_credits(api: ApiClient) -> None:
    pack, customer = PackFactory(), CustomerFactory()
    body = {"pack": pack.code, "holder_id": "ada", "customer": customer.ref, "provider": "paypal", "payment": "p-1"}
    made = api.post("/v1/purchases", body, key="one")
    assert (made.status_code, made["Location"]) == (201, f"/v1/purchases/{made.json()['id']}")
    assert (made.json()["state"], made.json()["granted"], made.json()["actor"]) == ("paid", None, "key:shop")
    again = api.post("/v1/purchases", body, key="one")
    assert (again.content, again["Idempotency-Replayed"]) == (made.content, "true")
    assert api.post("/v1/purchases", body, key="two").json()["id"] == made.json()["id"]
    assert (Purchase.objects.count(), ledger_reads.balance("ada").balance) == (1, 0)
    read = api.get(made["Location"]).json()
    assert (read["state"], read["waiting"], read["granted"]["credits"], read["granted"]["bonus"]) == ("granted", None, 1000, 100)
    assert ledger_reads.balance("ada").balance == 1100
    assert api.get(made["Location"]).json() == read
    found = (f"pack={pack.code}", "holder_id=ada", f"customer={customer.ref}")
    not_found = (f"pack={PackFactory().code}", "waiting=true", "payment=p-2")
    for query, count in [(query, 1) for query in found] + [(query, 0) for query in not_found]:
        assert len(api.get(f"/v1/purchases?{query}").json()["results"]) == count, query


def test_another_purchase_for_the_same_payment_is_refused(api: ApiClient) -> None:
    known = PurchaseFactory()
    body = {"pack": PackFactory().code, "holder_id": "bob", "payment": known.payment}
    refused = api.post("/v1/purchases", body)
    assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[1]) == (409, "already-exists")
    assert refused.json()["ref"] == str(known.pk)
    assert Purchase.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"pack": "none"}, "/pack"),
        ({"version": 9}, "/version"),
        ({"customer": "none"}, "/customer"),
        ({"paid_minor": 20.0}, "/paid_minor"),
        ({"paid_at": "2199-01-01T00:00:00Z"}, "/paid_at"),
        ({"payment": "\u0000"}, "/payment"),
        ({"actor": "me"}, "/actor"),
        ({"credits": 5}, "/credits"),
    ],
)
def test_bad_fields_of_a_purchase_are_refused_and_nothing_is_written(
    api: ApiClient, change: dict[str, Any], pointer: str
) -> None:
    response = api.post("/v1/purchases", {"pack": PackFactory().code, "holder_id": "ada", "payment": "p-1"} | change)
    assert response.status_code == 400
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert not Purchase.objects.exists()


def test_a_dry_run_of_a_purchase_writes_nothing(api: ApiClient) -> None:
    body = {"pack": PackFactory().code, "holder_id": "ada", "payment": "p-1"}
    assert api.post("/v1/purchases?dry_run=true", body).json()["credits"] == 1000
    assert (Purchase.objects.count(), DuePurchase.objects.count(), ledger_reads.balance("ada").balance) == (0, 0, 0)


def test_a_return_over_rest_is_settled_when_the_purchase_is_read(api: ApiClient) -> None:
    purchase = PurchaseFactory(holder_id="ada")
    url = f"/v1/purchases/{purchase.pk}"
    made = api.post(f"{url}/returns", {"kind": "refund", "payment": "r-1", "amount_minor": 500, "reason": "Not as agreed"})
    assert (made.status_code, made.json()["settled"]) == (201, None)
    read = api.get(url).json()
    assert (read["returned_minor"], read["claim_minor"], read["returns"][0]["settled"]["credits"]) == (500, 0, 250)
    assert [entry["source"] for entry in read["returns"][0]["settled"]["entries"]] == ["purchased", "promotional"]
    too_much = api.post(f"{url}/returns", {"kind": "refund", "payment": "r-2", "amount_minor": 1501})
    assert (too_much.status_code, too_much.json()["returnable_minor"]) == (409, 1500)
    assert api.post("/v1/purchases/999999/returns", {"kind": "refund", "payment": "r-1"}).status_code == 404
    for body in ({"kind": "gift", "payment": "r"}, {"kind": "refund"}, {"kind": "reinstated", "payment": "none"}):
        assert api.post(f"{url}/returns", body).status_code == 400
    assert PurchaseReturn.objects.count() == 1


@pytest.mark.parametrize("path", ["/v1/purchases", "/v1/packs", "/v1/purchases/1/returns"])
def test_writing_needs_the_scope(make_api: Any, path: str) -> None:
    response = make_api("billing:read", name=unique("reader")).post(path, {})
    assert response.status_code == 403
