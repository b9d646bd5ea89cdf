"""A plan with budgets over REST: written, read, refused by field; and what the holder's account shows of it."""

from collections.abc import Callable
from typing import Any

import pytest

from billing.models import Plan
from tests.billing.factories import recurring, unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

POOL = {"budget": "pool", "limit": 100, "per_quantity_of": "seats", "window": "day"}
MEMBER = {"budget": "member", "limit": 30, "window": "rolling", "hours": 24, "by": "label", "label": "member", "mode": "soft"}
LEFT_OUT = {
    "credit_type": "credits", "per_quantity_of": None, "hours": None, "by": "holder", "label": None, "subject": None,
    "mode": "hard", "parent": None,
}  # fmt: skip


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may read and write in billing, and read the ledger."""
    return make_api("billing:read", "billing:write", "ledger:read")


def plan_body(*budgets: Any) -> dict[str, Any]:
    return {
        "ref": unique("plan"), "name": "Team", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [recurring("seats", model="unit")], "budgets": list(budgets),
    }  # fmt: skip


def test_the_budgets_are_read_back_and_a_plan_without_them_has_an_empty_list(api: ApiClient) -> None:
    made = api.post("/v1/plans", plan_body(POOL, MEMBER)).json()
    assert made["budgets"] == [LEFT_OUT | POOL, LEFT_OUT | MEMBER]
    assert api.get(f"/v1/plans/{made['ref']}").json()["budgets"] == made["budgets"]
    # What is read can be written.
    assert api.post("/v1/plans", plan_body(*made["budgets"])).json()["budgets"] == made["budgets"]
    assert api.post("/v1/plans", plan_body()).json()["budgets"] == []
    assert api.post("/v1/plans", plan_body() | {"budgets": None}).json()["budgets"] == []
    retired = api.post(f"/v1/plans/{made['ref']}/sale", {"on_sale": False})
    assert (retired.status_code, retired.json()["budgets"]) == (201, made["budgets"])


@pytest.mark.parametrize(
    ("budgets", "pointer"),
    [
        ([POOL | {"limit": -1}], "/budgets/0/limit"),
        ([POOL | {"limit": "5"}], "/budgets/0/limit"),
        ([POOL | {"budget": "No!"}], "/budgets/0/budget"),
        ([POOL | {"window": "year"}], "/budgets/0/window"),
        ([POOL | {"window": "rolling"}], "/budgets/0/hours"),
        ([POOL | {"hours": 5}], "/budgets/0/hours"),
        ([POOL | {"by": "label"}], "/budgets/0/label"),
        ([POOL | {"by": "reference"}], "/budgets/0/subject"),
        ([POOL | {"subject": "ann"}], "/budgets/0/subject"),
        ([POOL | {"per_quantity_of": "other"}], "/budgets/0/per_quantity_of"),
        ([POOL | {"time_zone": "UTC"}], "/budgets/0/time_zone"),
        ([POOL, POOL], "/budgets/1/budget"),
        ([MEMBER | {"parent": "pool"}, POOL], "/budgets/0/parent"),
        ([POOL | {"credit_type": "sms"}, MEMBER | {"parent": "pool"}], "/budgets/1/parent"),
        ([MEMBER, MEMBER | {"budget": "again", "parent": "member"}], "/budgets/1/parent"),
        ([POOL | {"budget": f"b{number}"} for number in range(11)], "/budgets"),
        ("pool", "/budgets"),
    ],
)
def test_wrong_budgets_are_refused_by_field(api: ApiClient, budgets: Any, pointer: str) -> None:
    before = Plan.objects.count()
    response = api.post("/v1/plans", plan_body() | {"budgets": budgets})
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (400, [pointer])
    assert Plan.objects.count() == before


def test_budgets_nest_at_most_five_deep(api: ApiClient) -> None:
    nested = [MEMBER | {"budget": f"b{n}", "label": f"l{n}", "parent": f"b{n - 1}" if n else None} for n in range(6)]
    assert api.post("/v1/plans", plan_body(*nested[:5])).status_code == 201
    response = api.post("/v1/plans", plan_body(*nested))
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/budgets/5/parent")


def test_the_account_says_who_set_its_budget(api: ApiClient, django_capture_on_commit_callbacks: Any) -> None:
    holder, customer, plan = unique("holder"), unique("CUST"), api.post("/v1/plans", plan_body(POOL)).json()["ref"]
    api.post("/v1/customers", {"ref": customer, "name": "Ada", "currency": "EUR", "holder_id": holder})
    order = {
        "ref": unique("SUB"), "customer": customer, "plan": plan, "started_at": "2026-01-01T00:00:00Z",
        "quantities": {"seats": "4"}, "time_zone": "Europe/Berlin",
    }  # fmt: skip
    with django_capture_on_commit_callbacks(execute=True):
        assert api.post("/v1/subscriptions", order).status_code == 201
    found = api.get(f"/v1/holders/{holder}/budgets/pool").json()
    expected = {"limit": 400, "set_by": "billing", "reference": order["ref"], "time_zone": "Europe/Berlin", "window": "day"}
    assert found.items() >= expected.items()
