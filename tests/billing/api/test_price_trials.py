"""POST /v1/price-trials: what another price would have brought, over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.models import Claim
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill


def test_the_response_has_the_money_before_and_after(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PlanFactory(code=unique("plan"), prices=[recurring(), metered("calls", unit_amount="0.02")])
    customer = CustomerFactory()
    subscription = SubscriptionFactory(plan=plan.code, customer=customer.ref)
    use(subscription, "600", at(1, 10))
    bill(subscription, at(2, 1))
    monkeypatch.setattr(timezone, "now", lambda: at(2, 1) + timedelta(hours=1))
    claims = list(Claim.objects.order_by("pk").values())
    body = {"plans": [plan.code], "price": "calls", "replaced_by": {"model": "unit", "unit_amount": "0.03"}}
    response = api.post("/v1/price-trials", body, key=None)
    assert response.status_code == 200, response.json()
    sums = {"periods": 1, "before_minor": 1200, "after_minor": 1800, "difference_minor": 600}
    assert response.json() == {
        "currency": "EUR",
        "since": "2025-11-01T01:00:00.000000Z",
        "until": "2026-02-01T01:00:00.000000Z",
        "total": sums,
        "plans": [{**sums, "plan": plan.code, "version": 1}],
        "customers": [{**sums, "customer": customer.ref}],
        "subscriptions": 1,
        "negotiated_periods": 0,
        "is_whole": True,
    }
    assert list(Claim.objects.order_by("pk").values()) == claims


@pytest.mark.parametrize(
    ("wrong", "status", "pointers"),
    [
        ({"plans": []}, 400, ["/plans"]),
        ({"plans": ["nobody"]}, 404, []),
        ({"price": "base"}, 400, ["/price"]),
        ({"replaced_by": {"model": "percentage", "rate": "2"}}, 400, ["/replaced_by/model"]),
        ({"replaced_by": {"model": "unit", "unit_amount": "0.03", "meter": "other"}}, 400, ["/replaced_by/meter"]),
        ({"months": 13}, 400, ["/months"]),
        ({"until": "2026-01-01T00:00:00Z"}, 400, ["/until"]),
    ],
)
def test_what_makes_no_sense_is_refused(api: Any, wrong: dict[str, Any], status: int, pointers: list[str]) -> None:
    plan = PlanFactory(code=unique("plan"), prices=[recurring(), metered("calls", unit_amount="0.02")])
    body = {"plans": [plan.code], "price": "calls", "replaced_by": {"model": "unit", "unit_amount": "0.03"}}
    response = api.post("/v1/price-trials", body | wrong, key=None)
    assert response.status_code == status, response.json()
    assert [each["pointer"] for each in response.json().get("errors", [])] == pointers
