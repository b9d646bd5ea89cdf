"""Two subscriptions of a holder that are ordered at once, with the same entries, overage or budget: one is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from billing.models import Subscription
from billing.orders import billed_once, stored_versions
from ledger import services
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, unique
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")


def billed_by_entries() -> dict[str, Any]:
    """Return the terms of a plan that bills the entries of a rate of its own."""
    rate = unique("rate").lower()
    services.publish_rate(code=rate, price=1, per=1)
    return {"prices": [metered(billed_by="entries", entries={"rate": rate})]}


def with_overage() -> dict[str, Any]:
    """Return the terms of a plan that bills overage."""
    price = {"model": "unit", "unit_amount": "0.02", "tax_rate": "19"}
    return {"overage": {"credit_type": "credits", "price": price, "limit_credits": 500}}


def with_budgets() -> dict[str, Any]:
    """Return the terms of a plan that brings a budget."""
    return {"budgets": [{"budget": "pool", "credit_type": "credits", "limit": 100, "window": "day"}]}


TAKEN = [(billed_by_entries, "entries-taken"), (with_overage, "overage-taken"), (with_budgets, "budget-taken")]


@pytest.mark.parametrize(("terms", "rule"), TAKEN)
@LOCKED
def test_of_two_orders_at_once_that_would_bill_the_same_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, run_threads: Callable[..., list[Any]], is_locked: bool, terms: Callable[[], Any], rule: str
) -> None:
    holder = unique("holder")
    plan = PlanFactory(**terms()).code
    customers = [CustomerFactory(holder_id=holder).ref for _ in range(2)]
    if not is_locked:
        monkeypatch.setattr(billed_once, "holder_lock", no_lock)
    meet(monkeypatch, (stored_versions, "ensure_billed_once"), is_locked=is_locked, has_read=True)

    def order(number: int) -> str:
        try:
            SubscriptionFactory(customer=customers[number], plan=plan)
        except Invalid as refused:
            return str(refused.facts["rule"])
        return "ordered"

    wanted = sorted([rule, "ordered"]) if is_locked else ["ordered", "ordered"]
    assert sorted(run_threads(order, 2)) == wanted
    assert Subscription.objects.filter(customer__ref__in=customers).count() == wanted.count("ordered")
