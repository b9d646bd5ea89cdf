"""One holder: all accounts; and what there is under /v1."""

import pytest

from ledger import services
from tests.ledger.api.conftest import ApiClient

pytestmark = pytest.mark.django_db


def test_a_holder_has_all_its_accounts_and_when_it_was_seen(api: ApiClient, holder: str) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g1")
    services.grant(holder_id="ada", amount=7, idempotency_key="g2", credit_type="sms")
    services.grant(holder_id="ada.2", amount=9, idempotency_key="g3")
    body = api.get("/v1/holders/ada").json()
    assert (body["holder_id"], [(one["credit_type"], one["balance"]) for one in body["accounts"]]) == (
        "ada",
        [("credits", 5), ("sms", 7)],
    )
    assert body["first_seen_at"] == api.get("/v1/holders/ada/entries/1").json()["recorded_at"]
    assert body["last_seen_at"] == api.get("/v1/holders/ada/entries/1?credit_type=sms").json()["recorded_at"]
    assert body["accounts"][0] == api.get("/v1/holders/ada/balance").json() | {"as_of": body["accounts"][0]["as_of"]}


def test_a_holder_who_never_was_differs_from_an_empty_one(api: ApiClient) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    assert api.get("/v1/holders/ada").json()["accounts"][0]["balance"] == 0
    nobody = api.get("/v1/holders/nobody")
    assert (nobody.status_code, nobody.json()["type"].rsplit("/", 1)[1]) == (404, "not-found")


def test_a_key_confined_to_a_holder_sees_no_other(holder: str) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    _, secret = services.create_api_key(name="confined", scopes=["ledger:read"], holder_id="bob")
    assert ApiClient(secret).get("/v1/holders/ada").status_code == 404


def test_the_root_lists_every_path_with_its_methods_and_scopes(api: ApiClient) -> None:
    response = ApiClient(None).get("/v1/")
    assert response.status_code == 200
    resources = {one["path"]: one["methods"] for one in response.json()["resources"]}
    assert resources["/v1/holders/{holder}/spends"] == {"POST": {"summary": "Spend credits", "scope": "ledger:spend"}}
    assert {method: call["scope"] for method, call in resources["/v1/customers/{ref}"].items()} == {
        "GET": "billing:read", "PATCH": "billing:write",
    }  # fmt: skip
    assert set(resources) >= {
        "/v1/plans",
        "/v1/coupons",
        "/v1/subscriptions",
        "/v1/usage-events",
        "/v1/credit-notes",
        "/v1/batches",
    }
