"""Shadow over REST: each observation is judged by itself, lists have pages, and holders move once."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger.database.statements import fetch_value
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client of an operator."""
    return make_api("ledger:observe", "ledger:read", "ledger:admin", name="shop")


def one(key: str = "1", **fields: Any) -> dict[str, Any]:
    return {"holder": "ada", "idempotency_key": key, "operation": "spend", "amount": 3, "balance": 41, **fields}


def send(api: ApiClient, *observations: Any, query: str = "") -> list[dict[str, Any]]:
    response = api.post(f"/v1/observations{query}", {"observations": list(observations)}, key=None)
    assert response.status_code == 200, response.content
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def rows() -> int:
    return fetch_value(int, "SELECT (SELECT count(*) FROM ledger_observation) + (SELECT count(*) FROM ledger_promotion)")


def test_each_observation_has_its_own_result(api: ApiClient) -> None:
    found = send(api, one(), one("2", amount="3"), one("3", allowed=False, amount=41, balance=41), one(), "x", {})
    assert [each["result"] for each in found] == ["recorded", "invalid", "recorded", "duplicate", "invalid", "invalid"]
    assert found[1]["idempotency_key"] == "2"
    assert found[1]["detail"].startswith("/amount: ")
    assert (found[2]["difference"], found[2]["ledger_allows"], found[2]["ledger_balance"]) == ("decision", True, 0)
    assert rows() == 2
    listed = api.get("/v1/observations?different=true").json()["results"]
    assert [(each["idempotency_key"], each["detail"], each["recorded_by"]) for each in listed] == [
        ("3", found[2]["detail"], "key:shop")
    ]


def test_a_dry_run_records_nothing(api: ApiClient) -> None:
    assert send(api, one(), query="?dry_run=true")[0]["id"] is None
    assert rows() == 0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, ("/observations", "required")),
        ({"observations": []}, ("/observations", "too-few")),
        ({"observations": [one()] * 1001}, ("/observations", "too-many")),
        ({"observations": {}}, ("/observations", "not-a-list")),
    ],
)
def test_a_wrong_body_is_refused(api: ApiClient, body: dict[str, Any], error: tuple[str, str]) -> None:
    problem_of_refusal(api.post("/v1/observations", body, key=None), 400, error)
    assert rows() == 0


def test_a_key_without_the_scope_or_for_one_holder_records_nothing(make_api: Callable[..., ApiClient], db: None) -> None:
    body = {"observations": [one()]}
    problem_of_refusal(make_api("ledger:spend", name="a").post("/v1/observations", body, key=None), 403)
    confined = make_api("ledger:observe", name="b", holder_id="ada")
    problem_of_refusal(confined.post("/v1/observations", body, key=None), 404)
    assert rows() == 0


def test_holders_are_listed_by_state_in_pages(api: ApiClient) -> None:
    for name in "abcde":
        send(api, one(holder=name), one("2", holder=name, balance=38 if name in "ac" else 37))
    different = api.get("/v1/observations/holders?state=different&limit=2").json()
    assert [each["holder_id"] for each in different["results"]] == ["b", "d"]
    assert different["results"][0]["first_difference"]["number"] == 2
    last = api.get(different["next"]).json()
    assert [each["holder_id"] for each in last["results"]] == ["e"]
    assert api.get(last["previous"]).json()["results"] == different["results"]
    same = api.get("/v1/observations/holders?state=same").json()["results"]
    assert [(each["holder_id"], each["first_difference"]) for each in same] == [("a", None), ("c", None)]
    assert len(api.get("/v1/observations/holders").json()["results"]) == 5
    assert [each["holder_id"] for each in api.get("/v1/observations/holders?holder=e").json()["results"]] == ["e"]
    problem_of_refusal(api.get("/v1/observations/holders?state=new"), 400, ("/state", "not-a-choice"))


def test_holders_move_and_go_back(api: ApiClient) -> None:
    send(api, one())
    body = {"holders": [{"holder": "ada", "balances": {"credits": 41}}, {"holder": "bob"}]}
    tried = api.post("/v1/observations/promotions?dry_run=true", body, key=None).json()["results"]
    assert [each["result"] for each in tried] == ["moved", "not observed"]
    assert (rows(), api.get("/v1/holders/ada/balance").json()["available"]) == (1, 0)
    found = api.post("/v1/observations/promotions", body, key=None).json()["results"]
    assert [(each["holder_id"], each["result"]) for each in found] == [("ada", "moved"), ("bob", "not observed")]
    assert api.get("/v1/holders/ada/balance").json()["available"] == 41
    back = api.post("/v1/observations/returns", {"holders": ["ada"]}, key=None).json()["results"]
    assert (back[0]["result"], back[0]["accounts"][0]["balance"]) == ("moved", 41)
    assert api.get("/v1/holders/ada/balance").json()["available"] == 0


@pytest.mark.parametrize(
    ("holders", "error"),
    [
        ([], ("/holders", "too-few")),
        (["ada"], ("/holders/0", "not-an-object")),
        ([{"holder": " ada"}], ("/holders/0/holder", "pattern")),
        ([{"holder": "ada", "balances": {"credits": 1.5}}], ("/holders/0/balances/credits", "not-an-integer")),
        ([{"holder": "a", "x": 1}], ("/holders/0/x", "unknown-field")),
    ],
)
def test_a_wrong_promotion_moves_nobody(api: ApiClient, holders: list[Any], error: tuple[str, str]) -> None:
    send(api, one())
    problem_of_refusal(api.post("/v1/observations/promotions", {"holders": holders}, key=None), 400, error)
    assert rows() == 1
