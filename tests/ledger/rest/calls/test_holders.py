"""One holder: all accounts; and what there is under /v1."""

from collections.abc import Callable

import pytest

from ledger import services
from ledger.keys import api_keys
from tests.ledger.rest.conftest import ApiClient

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


@pytest.mark.slow
@pytest.mark.check
def test_fifty_mistyped_ids_make_no_holder_and_their_keys_are_answered_again(api: ApiClient, holder: str) -> None:
    before = api.get("/v1/holders").json()
    mistyped = [f"{holder}-{number}" for number in range(50)]
    first = {each: api.post(f"/v1/holders/{each}/spends", {"amount": 1}, key="k") for each in mistyped}

    assert {response.status_code for response in first.values()} == {402}
    # The first page alone would have had them, as they sort behind the one holder that there is.
    listed, of_prefix = api.get("/v1/holders").json(), api.get(f"/v1/holders?prefix={holder}&limit=1").json()
    assert [account["holder_id"] for account in listed["results"]] == [holder]
    assert (len(of_prefix["results"]), of_prefix["next"], of_prefix["previous"]) == (1, None, None)
    assert listed["results"][0]["balance"] == before["results"][0]["balance"]
    for each in mistyped:
        assert api.get(f"/v1/holders/{each}").status_code == 404
        again = api.post(f"/v1/holders/{each}/spends", {"amount": 1}, key="k")
        assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (402, first[each].content, "true")
        assert [refused["idempotency_key"] for refused in api.get(f"/v1/holders/{each}/refusals").json()["results"]] == ["k"]
        assert api.get(f"/v1/holders/{each}/balance").json()["balance"] == 0


def test_a_mistyped_credit_type_makes_no_account(api: ApiClient, holder: str) -> None:
    assert api.post(f"/v1/holders/{holder}/spends", {"amount": 1, "credit_type": "credist"}).status_code == 402

    assert [account["credit_type"] for account in api.get(f"/v1/holders/{holder}").json()["accounts"]] == ["credits"]
    assert api.get("/v1/holders?credit_type=credist").json()["results"] == []
    assert [refused["problem"]["status"] for refused in api.get(f"/v1/holders/{holder}/refusals").json()["results"]] == [402]


@pytest.mark.parametrize("first_movement", ["grants", "overdraft", "transfers"])
def test_an_account_that_begins_with_refusals_is_listed_from_its_first_movement_on(
    make_api: Callable[..., ApiClient], holder: str, first_movement: str
) -> None:
    admin = make_api("ledger:admin")
    for number in range(3):
        assert admin.post("/v1/holders/bob/spends", {"amount": 1 + number}).status_code == 402
    assert admin.get("/v1/holders?prefix=bob").json()["results"] == []
    path, body = {
        "grants": ("/v1/holders/bob/grants", {"amount": 5}),
        "overdraft": ("/v1/holders/bob/overdraft", {"limit": 5}),
        "transfers": (f"/v1/holders/{holder}/transfers", {"to": "bob", "amount": 5}),
    }[first_movement]
    write = admin.put if first_movement == "overdraft" else admin.post
    assert write(path, body).status_code == 201

    for _ in range(2):
        [account] = admin.get("/v1/holders?prefix=bob").json()["results"]
        assert (account["holder_id"], account["available"]) == ("bob", 5)
        assert admin.get("/v1/holders/bob").status_code == 200
        # Nor does a refusal behind the movement end that.
        assert admin.post("/v1/holders/bob/spends", {"amount": 100}).status_code == 402


def test_pages_of_holders_are_full_whatever_was_refused_between_them(api: ApiClient) -> None:
    for number in range(12):
        services.grant(holder_id=f"h-{number:02}", amount=1, idempotency_key="g")
        for typo in "xyz":
            api.post(f"/v1/holders/h-{number:02}{typo}/spends", {"amount": 1})
    found, url = [], "/v1/holders?prefix=h-&limit=5"
    sizes = []
    while url:
        page = api.get(url).json()
        sizes.append(len(page["results"]))
        found += [account["holder_id"] for account in page["results"]]
        url = page["next"]
    assert (sizes, found) == ([5, 5, 2], [f"h-{number:02}" for number in range(12)])
    back = api.get(page["previous"]).json()
    assert [account["holder_id"] for account in back["results"]] == [f"h-{number:02}" for number in range(5, 10)]


def test_a_key_confined_to_a_holder_sees_no_other(holder: str) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    _, secret = api_keys.create_api_key(name="confined", scopes=["ledger:read"], holder_id="bob")
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
