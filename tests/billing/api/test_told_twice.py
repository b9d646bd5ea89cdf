"""A call that is asked (spent) and told (reported) while the plan's allowance pays for reported calls: nothing is paid twice."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.models import Invoice, UsageEvent, UsageKey
from billing.orders.suspension import resume
from ledger import reads, services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, unique, use
from tests.billing.findings import findings_of
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
THIS_MONTH = datetime(NOW.year, NOW.month, 1, tzinfo=UTC)
LAST_MONTH = (THIS_MONTH - timedelta(days=1)).replace(day=1)
OVER = THIS_MONTH.isoformat()
"""When the last month is over. Its allowance lasts to the end of this one, as it pays for usage."""


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    return make_api("billing:read", "billing:write", "ledger:spend", "ledger:read")


class Team:
    """A customer with 1,000 calls a month included, each further one 0.02, who has the credits of the last month."""

    def __init__(self, api: ApiClient, **terms: Any) -> None:
        self.api, self.holder = api, unique("holder")
        price = metered(unit_amount="0.02", credits={"per_unit": "1"} | terms)
        plan = PlanFactory(prices=[price], allowance={"amount": 1000, "rollover_cap": None})
        self.subscription = SubscriptionFactory(
            customer=CustomerFactory(holder_id=self.holder).ref, plan=plan.code, started_at=LAST_MONTH
        )
        assert self.run(LAST_MONTH.isoformat()).status_code == 200

    def run(self, as_of: str) -> Any:
        return self.api.post(f"/v1/subscriptions/{self.subscription.ref}/invoices", {"as_of": as_of})

    def spend(self, amount: int) -> Any:
        return services.spend(holder_id=self.holder, amount=amount, idempotency_key=unique("spend"))

    def tell(self, calls: int, at: datetime = LAST_MONTH + timedelta(days=9)) -> Any:
        return use(self.subscription, str(calls), at)

    def billed(self, as_of: str = OVER) -> list[int]:
        answer = self.run(as_of)
        assert answer.status_code in (200, 201), answer.content
        return [invoice["total_minor"] for invoice in answer.json()["invoices"]]


def test_a_call_that_was_spent_cannot_be_reported_too_and_costs_nothing_more(api):
    team = Team(api)
    team.spend(600)
    told = team.tell(600)
    assert (told.result, told.code, told.pointer) == ("refused", "told-by-spends", "/meter")
    assert "either spend or send events" in told.detail
    assert (UsageEvent.objects.count(), UsageKey.objects.count()) == (0, 0)
    assert team.billed() == []
    assert reads.balance(team.holder).balance == 400 + 1000
    assert findings_of("credits spent", "usage", "allowance") == []


def test_the_refund_of_the_spend_lets_the_event_tell_the_call(api):
    team = Team(api)
    spent = team.spend(600)
    services.refund(holder_id=team.holder, spend=spent.sequence, amount=200, idempotency_key="part")
    assert team.tell(600).code == "told-by-spends"
    services.refund(holder_id=team.holder, spend=spent.sequence, idempotency_key="rest")
    assert team.tell(1200).result == "accepted"
    assert team.billed() == [400]


def test_a_price_may_say_that_the_credits_are_spent_on_something_else(api):
    team = Team(api, also_spent=True)
    team.spend(600)
    assert team.tell(600).result == "accepted"
    assert team.billed() == [400]


def test_events_of_other_months_meters_and_customers_are_accepted(api):
    team, other = Team(api), Team(api)
    team.spend(600)
    assert use(other.subscription, "600", LAST_MONTH).result == "accepted"
    assert use(team.subscription, "600", LAST_MONTH, "storage").code == "unknown-meter"
    assert team.tell(600, THIS_MONTH).result == "accepted"


def test_credits_that_the_customer_bought_may_be_spent_and_pay_for_events(api):
    team = Team(api)
    services.grant(holder_id=team.holder, amount=100, priority=1, idempotency_key="pack")
    team.spend(100)
    assert team.tell(1100).result == "accepted"
    assert team.billed() == [200]


@pytest.mark.parametrize("way_out", ["cancel", "refund"])
def test_a_run_that_finds_both_asks_a_person(api, way_out):
    team = Team(api)
    key = unique("event")
    event = {"idempotency_key": key, "subscription": team.subscription.ref, "meter": "calls", "value": "600"}
    taken = api.post("/v1/usage-events", {"events": [event | {"occurred_at": LAST_MONTH.isoformat()}]})
    assert taken.json()["results"][0]["result"] == "accepted"
    spent = team.spend(600)
    before = reads.balance(team.holder)
    refused = team.run(OVER)
    assert (refused.status_code, refused.json()["reason"]) == (409, "told-twice")
    facts = {"price": "calls", "start": LAST_MONTH.isoformat(), "credit_type": "credits"}
    assert facts.items() <= refused.json().items()
    assert reads.balance(team.holder).balance == before.balance
    assert not Invoice.objects.filter(subscription=team.subscription.pk).exists()
    if way_out == "cancel":
        cancellation = {"idempotency_key": unique("c"), "subscription": team.subscription.ref, "cancels": key}
        assert api.post("/v1/usage-events", {"events": [cancellation]}).json()["results"][0]["result"] == "accepted"
    else:
        services.refund(holder_id=team.holder, spend=spent.sequence, idempotency_key="refund")
    resume(ref=team.subscription.ref, reason="told once", actor="ada")
    assert team.billed() == ([] if way_out == "cancel" else [0])
