"""A plan with overage over REST: written, read, refused by field; and what no event and no second subscription can do."""

from collections.abc import Callable
from typing import Any

import pytest

from billing.models import ItemVersion, Plan, UsageEvent
from tests.billing.factories import recurring, unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

PRICE = {"model": "unit", "unit_amount": "0.02", "tax_rate": "20"}


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may read and write in billing."""
    return make_api("billing:read", "billing:write")


def plan_body(**overage: Any) -> dict[str, Any]:
    return {
        "ref": unique("plan"), "name": "Team", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [recurring()], "overage": {"price": PRICE} | overage,
    }  # fmt: skip


def subscribe(api: ApiClient, plan: str, holder: str) -> Any:
    customer = unique("CUST")
    api.post("/v1/customers", {"ref": customer, "name": "Ada", "currency": "EUR", "holder_id": holder})
    body = {"ref": unique("SUB"), "customer": customer, "plan": plan, "started_at": "2026-01-01T00:00:00Z"}
    return api.post("/v1/subscriptions", body)


def test_the_terms_are_read_back_and_their_price_is_no_price_of_the_list(api: ApiClient) -> None:
    made = api.post("/v1/plans", plan_body(limit_credits=500)).json()
    expected = {"credit_type": "credits", "price": PRICE, "per_quantity_of": None, "limit_credits": 500, "limit_minor": None}
    assert (made["overage"], [price["key"] for price in made["prices"]]) == (expected, ["base"])
    assert api.get(f"/v1/plans/{made['ref']}").json()["overage"] == expected
    assert api.post("/v1/plans", {**plan_body(), "overage": None}).json()["overage"] is None


@pytest.mark.parametrize(
    ("overage", "pointer"),
    [
        ({"limit_credits": 5, "limit_minor": 5}, "/overage/limit_minor"),
        ({"limit_credits": -1}, "/overage/limit_credits"),
        ({"limit_minor": 1.5}, "/overage/limit_minor"),
        ({"credit_type": "No!"}, "/overage/credit_type"),
        ({"price": {"model": "flat", "unit_amount": "1"}}, "/overage/price/model"),
        ({"price": {**PRICE, "meter": "calls"}}, "/overage/price/meter"),
        ({"price": None}, "/overage/price"),
        ({"cap": 5}, "/overage/cap"),
    ],
)
def test_wrong_terms_are_refused_by_field(api: ApiClient, overage: dict[str, Any], pointer: str) -> None:
    before = Plan.objects.count()
    response = api.post("/v1/plans", plan_body(**overage))
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (400, [pointer])
    assert Plan.objects.count() == before


@pytest.mark.parametrize(
    ("price", "pointer"),
    [({"key": "overage"}, "/prices/0/key"), ({"kind": "usage", "timing": "arrears", "meter": "overage:x"}, "/prices/0/meter")],
)
def test_other_prices_cannot_have_its_key_or_its_meter(api: ApiClient, price: dict[str, Any], pointer: str) -> None:
    usage = {"model": "unit", "aggregation": "sum"} if "meter" in price else {}
    response = api.post("/v1/plans", plan_body() | {"prices": [recurring() | usage | price]})
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (400, [pointer])


def test_no_event_can_tell_of_it_again(api: ApiClient) -> None:
    holder = unique("holder")
    ref = subscribe(api, api.post("/v1/plans", plan_body()).json()["ref"], holder).json()["ref"]
    event = {
        "idempotency_key": unique("use"), "subscription": ref, "meter": "overage:credits", "value": "5",
        "occurred_at": "2026-01-10T00:00:00Z",
    }  # fmt: skip
    [result] = api.post("/v1/usage-events", {"events": [event]}).json()["results"]
    assert (result["result"], result["code"]) == ("refused", "billed-by-entries")
    assert not UsageEvent.objects.filter(subscription__ref=ref).exists()


def test_a_second_subscription_of_the_holder_cannot_have_overage_too(api: ApiClient) -> None:
    holder, plan = unique("holder"), api.post("/v1/plans", plan_body()).json()["ref"]
    first = subscribe(api, plan, holder).json()["ref"]
    before = ItemVersion.objects.count()
    response = subscribe(api, plan, holder)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/plan")
    assert first in response.json()["errors"][0]["detail"]
    assert ItemVersion.objects.count() == before
    assert subscribe(api, api.post("/v1/plans", plan_body(credit_type="sms")).json()["ref"], holder).status_code == 201
    assert subscribe(api, plan, unique("holder")).status_code == 201
