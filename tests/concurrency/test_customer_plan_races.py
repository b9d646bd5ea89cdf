"""A customer presses two buttons that were shown beside each other: one change is written, and the other is told of it."""

from typing import Any

import pytest

from billing import customer_plans
from billing.customer_plans import CustomerPlans
from billing.models import Amendment, Customer, Subscription
from billing.testing import CustomerFactory, PlanFactory, SubscriptionFactory
from ledger.portal.parts import IntermediatePage, PageDisplay
from ledger.testing import unique
from ledger.typesetting.languages import ENGLISH
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock


def pressed(customer: Customer, name: str, plans: list[str]) -> IntermediatePage | str | None:
    """What a customer gets who presses a button."""

    def address(name: str) -> str:
        return f"/{name}"

    shown = PageDisplay(
        language=ENGLISH,
        hides_amounts=False,
        document_url=address,
        action_url=address,
        back_url=address,
        allows_plan_changes=True,
        plans=plans,
    )
    return CustomerPlans(customer).act(name, shown)


@pytest.fixture
def subscription(committed_db: None) -> Subscription:
    return SubscriptionFactory(customer=CustomerFactory(holder_id=unique("holder")).ref)


@LOCKED
def test_a_move_and_a_cancellation_at_the_same_time(
    subscription: Subscription, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """Without the lock, both find the subscription as it was shown, and both are written."""
    customer, plan = Customer.objects.get(pk=subscription.customer_id), PlanFactory()
    names = [f"plan_move-{subscription.pk}_{plan.pk}_1", f"plan_cancel-{subscription.pk}_1"]
    if not is_locked:
        monkeypatch.setattr(customer_plans, "locked_transaction", no_lock)
    meet(monkeypatch, (customer_plans, "_amend"), is_locked=is_locked)
    results = run_threads(lambda index: pressed(customer, names[index], [plan.code]), 2)
    refusals = [each for each in results if isinstance(each, IntermediatePage)]
    written = Amendment.objects.filter(subscription_id=subscription.pk).count() - 1
    assert (len(refusals), written) == ((1, 1) if is_locked else (0, 2))
    assert all("has changed since this was shown" in each.text for each in refusals)


def test_a_double_click_writes_one_change(subscription: Subscription, run_threads: Any) -> None:
    customer = Customer.objects.get(pk=subscription.customer_id)
    name = f"plan_cancel-{subscription.pk}_1"
    assert run_threads(lambda index: pressed(customer, name, []), 2) == ["", ""]
    assert Amendment.objects.filter(subscription_id=subscription.pk).count() == 2
