"""What was paid and what is recognised, over REST: entries, lots, explanations, and what is refused."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from ledger import services
from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient, entry_of_201, nothing_written

SALE = {"amount": 3, "paid_minor": 100, "currency": "EUR", "sold_at": "2026-01-01T00:00:00Z", "document": "INV-7"}


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with all scopes."""
    return make_api(*ALL_SCOPES)


def body_of(response: Any) -> Any:
    assert response.status_code == 200, response.content
    return json.loads(response.content)


def test_entries_lots_and_explanations_say_what_was_paid_and_what_is_recognised(api: ApiClient) -> None:
    grant = entry_of_201(api.post("/v1/holders/ann/grants", SALE, key="g"), "sale", "cost_changes")
    assert grant["sale"] == {"paid_minor": 100, "currency": "EUR", "sold_at": "2026-01-01T00:00:00.000000Z", "document": "INV-7"}
    assert grant["cost_changes"] == [{"grant": 1, "change_minor": 100, "currency": "EUR"}]
    spend = entry_of_201(api.post("/v1/holders/ann/spends", {"amount": 1}, key="s"), "cost_changes", "recognised")
    assert spend["recognised"] == [{"amount_minor": 33, "currency": "EUR"}]
    refund = entry_of_201(
        api.post("/v1/holders/ann/refunds", {"spend": 2}, key="r"), "cost_changes", "recognised", "refunded_total"
    )
    assert refund["recognised"] == [{"amount_minor": -33, "currency": "EUR"}]
    services.spend(holder_id="ann", amount=1, idempotency_key="s2")
    lots = body_of(api.get("/v1/holders/ann/lots"))["results"]
    assert [lot["cost"] for lot in lots] == [{"left_minor": 67, "currency": "EUR"}]
    assert body_of(api.get("/v1/holders/ann/balance"))["lots"][0]["cost"] == {"left_minor": 67, "currency": "EUR"}
    explained = body_of(api.get("/v1/holders/ann/entries/2/explanation"))
    text = "0.33 EUR of the cost of lot 1 are recognised. 0.67 EUR are left."
    change = {"grant": 1, "change_minor": -33, "left_minor": 67, "currency": "EUR", "text": text}
    assert explained["costs"] == [change]
    assert body_of(api.get("/v1/holders/ann/entries/2"))["recognised"] == spend["recognised"]


def test_without_a_sale_nothing_speaks_of_costs(api: ApiClient) -> None:
    entry_of_201(api.post("/v1/holders/ann/grants", {"amount": 3}, key="g"))
    entry_of_201(api.post("/v1/holders/ann/spends", {"amount": 1}, key="s"))
    assert "cost" not in body_of(api.get("/v1/holders/ann/lots"))["results"][0]
    assert body_of(api.get("/v1/holders/ann/entries/2/explanation"))["costs"] == []


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"currency": None}, "/currency"),
        ({"paid_minor": None}, "/paid_minor"),
        ({"paid_minor": -1}, "/paid_minor"),
        ({"paid_minor": 1.5}, "/paid_minor"),
        ({"paid_minor": 2**53}, "/paid_minor"),
        ({"currency": "eur"}, "/currency"),
        ({"currency": "XYZ"}, "/currency"),
        ({"source": "promotional"}, "/paid_minor"),
        ({"document": "x" * 201}, "/document"),
        ({"sold_at": "yesterday"}, "/sold_at"),
    ],
)
def test_a_wrong_sale_names_its_field_and_writes_nothing(api: ApiClient, change: dict[str, Any], pointer: str) -> None:
    with nothing_written("ann"):
        response = api.post("/v1/holders/ann/grants", SALE | change, key="g")
    assert response.status_code == 400, response.content
    assert json.loads(response.content)["errors"][0]["pointer"] == pointer


def test_expired_credits_are_breakage_and_the_key_stays_with_its_sale(api: ApiClient) -> None:
    soon = (timezone.now() + timedelta(days=1)).isoformat()
    first = api.post("/v1/holders/ann/grants", SALE | {"expires_at": soon}, key="g")
    assert api.post("/v1/holders/ann/grants", SALE | {"expires_at": soon}, key="g").content == first.content
    other = api.post("/v1/holders/ann/grants", SALE | {"expires_at": soon, "paid_minor": 101}, key="g")
    assert other.status_code == 422
    assert json.loads(other.content)["type"].endswith("idempotency-key-reused")
