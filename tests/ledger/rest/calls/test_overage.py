"""Overage over REST: set, used, read, ended; and what entries, balances and refusals say of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient, entry_of_201, nothing_written, problem_of_refusal

TERMS = {"limit": 50, "anchor_at": "2026-01-15T00:00:00+01:00", "time_zone": "Europe/Berlin", "reference": "SUB-1"}


@pytest.fixture
def admin(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with all scopes."""
    return make_api(*ALL_SCOPES, "ledger:admin")


def read(api: ApiClient, path: str) -> Any:
    response = api.get(path)
    assert response.status_code == 200
    return json.loads(response.content)


def test_an_overage_is_set_used_read_and_ended(admin: ApiClient) -> None:
    holder = "/v1/holders/acme"
    response = admin.put(f"{holder}/overage", TERMS, key="k")
    entry = entry_of_201(response, "overage")
    assert (entry["kind"], entry["overage"]["limit"], entry["overage"]["used"]) == ("adjust", 50, 0)
    assert admin.put(f"{holder}/overage", TERMS, key="k").content == response.content
    admin.post(f"{holder}/grants", {"amount": 10}, key="g")
    spend = entry_of_201(admin.post(f"{holder}/spends", {"amount": 30}, key="s"), "postpaid")
    assert (spend["amount"], spend["postpaid"], spend["balance"]) == (-30, 20, 0)
    balance = read(admin, f"{holder}/balance")
    assert (balance["available"], balance["overage"]["used"], balance["overage"]["limit"]) == (0, 20, 50)
    grant = read(admin, f"{holder}/entries/3")
    assert (grant["kind"], grant["postpaid"], grant["overage"]["used"], grant["idempotency_key"]) == ("grant", 20, 20, None)
    found = read(admin, f"{holder}/overage")
    assert {name: found[name] for name in ("used", "interval", "anchor_at", "reference", "set_by")} == {
        "used": 20, "interval": "month", "anchor_at": "2026-01-14T23:00:00.000000Z", "reference": "SUB-1", "set_by": 1,
    }  # fmt: skip
    assert found["until"] == balance["overage"]["until"]
    problem = problem_of_refusal(admin.post(f"{holder}/spends", {"amount": 31}, key="s2"), 402)
    assert (problem["available"], problem["shortfall"], problem["overage"]) == (30, 1, balance["overage"])
    refund = entry_of_201(admin.post(f"{holder}/refunds", {"spend": 4}, key="r"), "refunded_total", "postpaid")
    assert refund["postpaid"] == 20
    assert read(admin, f"{holder}/balance")["overage"]["used"] == 0
    problem = problem_of_refusal(admin.delete(f"{holder}/overage", key="other"), 409)
    assert (problem["type"].split("/")[-1], problem["reference"]) == ("overage-taken", "SUB-1")
    ended = admin.delete(f"{holder}/overage?reference=SUB-1", key="end")
    assert (ended.status_code, json.loads(ended.content)["kind"]) == (200, "adjust")
    assert read(admin, f"{holder}/balance")["overage"] is None
    assert admin.get(f"{holder}/overage").status_code == 404
    problem_of_refusal(admin.delete(f"{holder}/overage?reference=SUB-1", key="end-2"), 404)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"limit": -1}, "/limit"),
        ({"limit": "5"}, "/limit"),
        ({"interval": "minute"}, "/interval"),
        ({"interval_count": 0}, "/interval_count"),
        ({"time_zone": "Mars"}, "/time_zone"),
        ({"anchor_at": "2026-01-15"}, "/anchor_at"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "/ends_at"),
        ({"used": 3}, "/used"),
    ],
)
def test_terms_that_are_none_are_refused_by_field(admin: ApiClient, body: dict[str, Any], pointer: str) -> None:
    with nothing_written("acme"):
        response = admin.put("/v1/holders/acme/overage", body)
    assert (response.status_code, json.loads(response.content)["errors"][0]["pointer"]) == (400, pointer)
