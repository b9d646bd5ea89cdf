"""The second step of a plan's next version: what changes for existing subscriptions, from when, for how many, and how much."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.generator.run.price_trials import compute_version_trials
from billing.models import Amendment, Claim, Plan, Price, Subscription
from tests.billing.admin.test_order_forms import BILLING, hidden_values, send_first_step, text_of_response
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return operator()


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan for 10.00 a month and 0.02 a call; two subscriptions to it had 600 and 100 calls in January. It is February."""
    made = PlanFactory(code=unique("plan"), prices=[recurring(unit_amount="10.00"), metered("calls", unit_amount="0.02")])
    for calls in ("600", "100"):
        subscription = SubscriptionFactory(plan=made.code, customer=CustomerFactory().ref)
        use(subscription, calls, at(1, 10))
        bill(subscription, at(2, 1))
    monkeypatch.setattr(timezone, "now", lambda: at(2, 1) + timedelta(hours=1))
    return made


def rows() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Plan, Price, Subscription, Amendment, Claim)]


def first_step(client: Client, plan: Plan, **changed: str) -> Any:
    """Send the form of the next version with other values than the form has."""
    url = f"{BILLING}/plan/{plan.pk}/new-version/"
    return send_first_step(client, url, client.get(url).context_data["form"].typed() | changed)


def test_the_second_step_says_what_would_change_and_writes_nothing(client: Client, plan: Plan) -> None:
    before = rows()
    text = text_of_response(first_step(client, plan, price_0_unit_amount="12.00", price_1_unit_amount="0.03"))
    assert "This is version 2. New orders take it as soon as it is saved. Nothing changes for existing subscriptions" in text
    assert "2 in EUR: 20.00 EUR a month so far, 24.00 EUR then; the difference is 4.00 EUR." in text
    # 700 calls: 14.00 at 0.02, 21.00 at 0.03.
    assert (
        "Of calls, the 2 periods that were invoiced in the last 3 months brought 14.00 EUR; this version would have brought "
        "21.00 EUR for the same use, 7.00 EUR more." in text
    )
    assert "base base: 10.00 EUR a month, in advance. No tax. base: 12.00 EUR a month, in advance. No tax." in text
    for subscription in Subscription.objects.all():
        assert f"{subscription.ref}" in text
    assert rows() == before


def test_the_confirmed_version_is_written_and_moves_nobody(client: Client, plan: Plan) -> None:
    step = first_step(client, plan, price_0_unit_amount="12.00")
    amendments = list(Amendment.objects.order_by("pk").values())
    url = f"{BILLING}/plan/{plan.pk}/new-version/"
    assert client.post(url, hidden_values(step) | {"confirmed": "yes"}).status_code == 302
    assert list(Plan.objects.filter(code=plan.code).order_by("version").values_list("version", flat=True)) == [1, 2]
    assert list(Amendment.objects.order_by("pk").values()) == amendments


def test_a_price_that_stays_has_no_sentence_and_one_that_measures_otherwise_says_so(client: Client, plan: Plan) -> None:
    same = text_of_response(first_step(client, plan, price_0_unit_amount="12.00"))
    assert "Of calls" not in same
    other = text_of_response(first_step(client, plan, price_1_aggregation="max"))
    assert "calls measures in another way than before: what it would have brought cannot be computed." in other


def test_a_plan_without_subscriptions_says_so(client: Client) -> None:
    made = PlanFactory(prices=[recurring(unit_amount="10.00"), metered("calls", unit_amount="0.02")])
    text = text_of_response(first_step(client, made, price_1_unit_amount="0.03"))
    assert "No subscription is on an earlier version now. calls was not invoiced in the last 3 months." in text


def test_a_version_in_another_currency_is_not_compared(plan: Plan) -> None:
    dollars = PlanFactory(
        code=plan.code, currency="USD", prices=[recurring(unit_amount="10.00"), metered("calls", unit_amount="0.03")]
    )
    assert compute_version_trials(dollars, timezone.now()) == {"calls": None}


def test_the_first_version_of_a_plan_has_no_comparison(client: Client) -> None:
    made = PlanFactory(prices=[recurring()])
    url = f"{BILLING}/plan/{made.pk}/copy/"
    typed = client.get(url).context_data["form"].typed() | {"code": unique("plan")}
    text = text_of_response(send_first_step(client, url, typed))
    assert "This is a new plan." in text
    assert "What changes" not in text
