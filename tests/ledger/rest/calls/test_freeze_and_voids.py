"""Freezing a holder and taking back everything, over HTTP."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ledger import reads, services
from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

pytestmark = pytest.mark.django_db

FREEZE, VOIDS = "/v1/holders/ada/freeze", "/v1/holders/ada/voids"


@pytest.fixture(autouse=True)
def _grant() -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")


@pytest.fixture
def admin(make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with the scope that freezing needs."""
    return make_api("ledger:admin")


def body_of(response: Any, status: int = 201) -> dict[str, Any]:
    """The JSON of a response with this status."""
    assert response.status_code == status, response.content
    body: dict[str, Any] = json.loads(response.content)
    return body


def test_a_holder_is_frozen_read_and_unfrozen(admin: ApiClient) -> None:
    assert body_of(admin.get(FREEZE), 200) == {
        "holder_id": "ada", "frozen": False, "credit_type": None, "changed_by": None, "changed_at": None,
    }  # fmt: skip
    entry = body_of(admin.put(FREEZE, {"frozen": True, "reason": "stolen card"}, key="f"))
    assert (entry["kind"], entry["amount"], entry["frozen"]) == ("adjust", 0, True)
    assert body_of(admin.get("/v1/holders/ada/entries/2"), 200)["frozen"] is True
    assert body_of(admin.get("/v1/holders/ada/entries"), 200)["results"][0]["frozen"] is True
    found = body_of(admin.get(FREEZE), 200)
    assert (found["frozen"], found["credit_type"], found["changed_by"]) == (True, "credits", 2)
    for call, body in {"spends": {}, "holds": {}, "transfers": {"to": "bob"}}.items():
        problem = problem_of_refusal(admin.post(f"/v1/holders/ada/{call}", {"amount": 1, **body}, key=call), 409)
        assert (problem["type"].rsplit("/")[-1], problem["holder_id"]) == ("holder-frozen", "ada")
        assert problem["detail"] == "ada is frozen: nothing can be spent, held or transferred until an operator ends the freeze."
    assert reads.balance("ada").available == 100
    assert body_of(admin.put(FREEZE, {"frozen": False}, key="t"))["frozen"] is False
    assert body_of(admin.post("/v1/holders/ada/spends", {"amount": 1}, key="s"))["amount"] == -1


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/frozen", "required"),
        ({"frozen": None}, "/frozen", "null"),
        ({"frozen": 1}, "/frozen", "not-a-boolean"),
        ({"frozen": "true"}, "/frozen", "not-a-boolean"),
        ({"frozen": True, "until": "2030-01-01"}, "/until", "unknown-field"),
    ],
)
def test_a_wrong_freeze_is_refused_and_writes_nothing(admin: ApiClient, body: dict[str, Any], pointer: str, code: str) -> None:
    with nothing_written("ada"):
        problem_of_refusal(admin.put(FREEZE, body, key="f"), 400, (pointer, code))


def test_everything_unspent_is_taken_back_once(api: ApiClient) -> None:
    response = api.post(VOIDS, {"reason": "closed"}, key="v")
    entry = body_of(response)
    assert (entry["kind"], entry["amount"], entry["refers_to"], entry["drawn"]) == (
        "revoke", -100, None, [{"grant": 1, "amount": 100}],
    )  # fmt: skip
    again = api.post(VOIDS, {"reason": "closed"}, key="v")
    assert (again["Idempotency-Replayed"], again.content) == ("true", response.content)
    nothing = problem_of_refusal(api.post(VOIDS, {}, key="v2"), 409)
    assert (nothing["type"].rsplit("/")[-1], nothing["held"]) == ("nothing-to-void", 0)
    assert reads.balance("ada").balance == 0


def test_a_void_takes_no_amount(api: ApiClient) -> None:
    with nothing_written("ada"):
        problem_of_refusal(api.post(VOIDS, {"amount": 1}, key="v"), 400, ("/amount", "unknown-field"))
