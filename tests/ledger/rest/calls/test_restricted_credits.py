"""Credits for some things only, over the API: what is granted, shown, taken and refused."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import services
from tests.ledger.rest.conftest import ApiClient, entry_of_201, nothing_written, problem_of_refusal

MakeApi = Callable[..., ApiClient]
PATH = "/v1/holders/nora"
IMAGES = {"rates": ["image"]}
ADA = {"labels": {"member": ["ada", "bob"]}}


@pytest.fixture
def nora(db: None, make_api: MakeApi) -> ApiClient:
    """A client that may all, and a holder with 20 credits, 100 for images and 30 for two members; an image costs 4."""
    services.publish_rate(code="image", price=4, per=1)
    services.publish_rate(code="chat", price=1, per=1)
    api = make_api("ledger:admin", name="admin")
    for amount, applies_to in ((20, None), (100, IMAGES), (30, {"labels": {"member": ["bob", "ada", "bob"]}})):
        entry_of_201(api.post(f"{PATH}/grants", {"amount": amount, "priority": 200 if applies_to is None else 100,
                                                 "applies_to": applies_to}))  # fmt: skip
    return api


def balance(api: ApiClient, query: str = "") -> dict[str, Any]:
    """The balance of the holder."""
    found: dict[str, Any] = api.get(f"{PATH}/balance{query}").json()
    return found


def test_the_balance_says_what_every_spend_can_use_and_what_there_is_for_other_things(nora: ApiClient) -> None:
    whole = balance(nora)
    others = [{"applies_to": IMAGES, "available": 100}, {"applies_to": ADA, "available": 30}]
    assert (whole["available"], whole["balance"], whole["for_other_things"]) == (20, 150, others)
    assert [lot.get("applies_to") for lot in whole["lots"]] == [IMAGES, ADA, None]
    assert nora.get(f"{PATH}/lots").json()["results"][1]["applies_to"] == IMAGES
    assert nora.get(f"{PATH}/grants").json()["results"][1]["lot"]["applies_to"] == IMAGES
    for query, available, rest in (
        ("?rate=image", 120, [others[1]]),
        ("?rate=chat", 20, others),
        ("?label=member:bob", 50, [others[0]]),
        ("?label=member:cy", 20, others),
        ("?rate=image&label=member:ada", 150, None),
    ):
        found = balance(nora, query)
        assert (found["available"], found.get("for_other_things")) == (available, rest), query
        at = balance(nora, f"{query}&by=effective")
        assert (at["available"], at.get("for_other_things")) == (available, rest), query
    assert nora.get(f"{PATH}/balance?rate=Image").status_code == 400


def test_spends_and_holds_take_from_what_applies_to_their_rate_and_labels(nora: ApiClient) -> None:
    spend = nora.post(f"{PATH}/spends", {"rate": "image", "quantity": 3}).json()
    assert spend["drawn"] == [{"grant": 2, "amount": 12}]
    spend = nora.post(f"{PATH}/spends", {"amount": 35, "metadata": {"member": "ada"}}).json()
    assert spend["drawn"] == [{"grant": 3, "amount": 30}, {"grant": 1, "amount": 5}]
    held = nora.post(f"{PATH}/holds", {"rate": "image", "quantity": 20}).json()
    assert held["drawn"] == [{"grant": 2, "amount": 80}]
    captured = nora.post(f"{PATH}/holds/{held['sequence']}/captures", {"amount": 90, "over_capture": "if_available"}).json()
    assert captured["drawn"] == [{"grant": 2, "amount": 88}, {"grant": 1, "amount": 2}]
    refund = nora.post(f"{PATH}/refunds", {"spend": captured["sequence"]}).json()
    assert refund["drawn"] == [{"grant": 1, "amount": 2}, {"grant": 2, "amount": 88}]
    assert balance(nora)["for_other_things"] == [{"applies_to": IMAGES, "available": 88}]
    explained = nora.get(f"{PATH}/entries/{spend['sequence']}/explanation").json()
    assert [(lot["grant"], lot["decision"]) for lot in explained["lots"]] == [(2, "for_other_things"), (3, "drawn"), (1, "drawn")]
    assert explained["lots"][0]["text"] == "Skipped: its credits are only for the rate image."


@pytest.mark.parametrize("scopes", [("ledger:admin",), ("ledger:spend",)])
def test_a_refusal_says_what_there_is_for_other_things(nora: ApiClient, make_api: MakeApi, scopes: tuple[str, ...]) -> None:
    api = make_api(*scopes, name="other")
    problem = problem_of_refusal(api.post(f"{PATH}/spends", {"rate": "chat", "quantity": 21}, key="k"), 402)
    assert (problem["available"], problem["shortfall"]) == (20, 1)
    assert problem["for_other_things"] == [{"applies_to": IMAGES, "available": 100}, {"applies_to": ADA, "available": 30}]
    again = api.post(f"{PATH}/spends", {"rate": "chat", "quantity": 21}, key="k")
    assert (again["Idempotency-Replayed"], again.json()["for_other_things"]) == ("true", problem["for_other_things"])
    assert balance(nora)["available"] == 20


def test_a_batch_and_a_dry_run_take_from_what_applies(nora: ApiClient) -> None:
    operation = {"operation": "spend", "holder": "nora", "rate": "image", "quantity": 25}
    with nothing_written("nora"):
        tried = nora.post(f"{PATH}/spends?dry_run=true", {"rate": "image", "quantity": 25}, key=None).json()
    done = nora.post("/v1/batches", {"mode": "each", "operations": [operation, operation]}).json()["results"]
    assert tried["drawn"] == done[0]["body"]["drawn"] == [{"grant": 2, "amount": 100}]
    assert (done[1]["status"], done[1]["problem"]["available"]) == (402, 20)


def test_a_capture_by_a_rate_for_which_the_held_credits_cannot_pay_writes_nothing(nora: ApiClient) -> None:
    held = nora.post(f"{PATH}/holds", {"rate": "image", "quantity": 2}).json()
    with nothing_written("nora"):
        response = nora.post(f"{PATH}/holds/{held['sequence']}/captures", {"rate": "chat", "quantity": 2})
        problem_of_refusal(response, 400, ("/rate", "restricted"))
    taken = nora.post(f"{PATH}/holds/{held['sequence']}/captures", {"quantity": 1}).json()
    assert taken["drawn"] == [{"grant": 2, "amount": 4}]


def test_a_transfer_leaves_them_where_they_are(nora: ApiClient) -> None:
    problem = problem_of_refusal(nora.post(f"{PATH}/transfers", {"to": "kim", "amount": 21}), 402)
    assert problem["available"] == 20
    assert nora.post(f"{PATH}/transfers", {"to": "kim", "amount": 20}).json()["drawn"] == [{"grant": 1, "amount": 20}]


def test_a_recurring_grant_and_another_expiry_keep_what_they_are_for(nora: ApiClient) -> None:
    body = {"amount": 5, "interval": "month", "applies_to": IMAGES}
    assert nora.put(f"{PATH}/recurring-grants/images", body).status_code == 201
    assert nora.get(f"{PATH}/recurring-grants/images").json()["applies_to"] == IMAGES
    services.grant_all_due()
    renewed = nora.post(f"{PATH}/reissues", {"lot": 2, "priority": 1}).json()
    lots = {lot["grant"]: lot.get("applies_to") for lot in balance(nora)["lots"]}
    assert list(lots.values()).count(IMAGES) == 2
    assert lots[renewed["sequence"]] == IMAGES
