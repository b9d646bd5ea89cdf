"""Use that the ledger's entries bill: no usage event tells it again, whichever way it comes in."""

import json
from datetime import timedelta
from typing import Any

import pytest

from billing.metering.corrections import EventCancellation, EventCorrection, take_in_all
from billing.metering.usage import EventStatus, NewEvent
from billing.models import Subscription, UsageEvent, UsageKey
from ledger import services
from ledger.errors import Invalid
from tests.billing.factories import JAN_1, CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, unique, use
from tests.billing.findings import findings_of
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


@pytest.fixture
def rate() -> str:
    code = unique("rate").lower()
    services.publish_rate(code=code, price=1, per=1)
    return code


def by_entries(rate: str, **price: Any) -> dict[str, Any]:
    return metered(unit_amount="0.02", billed_by="entries", entries={"rate": rate} | price.pop("entries", {})) | price


def subscribed(*prices: dict[str, Any], holder_id: str | None = None, **order: Any) -> Subscription:
    customer = CustomerFactory(holder_id=unique("holder") if holder_id is None else holder_id)
    return SubscriptionFactory(customer=customer.ref, plan=PlanFactory(prices=list(prices)).code, **order)


def nothing_is_recorded() -> bool:
    return not UsageEvent.objects.exists() and not UsageKey.objects.exists()


def test_events_are_refused_by_name_and_nothing_is_written(rate):
    subscription = subscribed(by_entries(rate), metered(key="storage", meter="gb"))
    result = use(subscription, "600", at(1, 10))
    assert (result.result, result.code, result.pointer, result.rate) == ("refused", "billed-by-entries", "/meter", rate)
    assert result.detail == (
        f"the spends, holds and captures by the rate {rate} bill this use; an event would tell it twice, so send none"
    )
    assert nothing_is_recorded()
    assert use(subscription, "1", at(1, 10), "gb").result == EventStatus.ACCEPTED
    assert use(subscription, "1", at(1, 10), "other").code == "unknown-meter"


def test_each_event_of_a_request_and_of_cloud_events_is_refused_by_itself(rate, make_api):
    api: ApiClient = make_api("billing:read", "billing:write")
    subscription = subscribed(by_entries(rate), metered(key="storage", meter="gb"))
    event = {"subscription": subscription.ref, "value": "1", "occurred_at": "2026-01-10T00:00:00Z"}
    events = [event | {"idempotency_key": unique("e"), "meter": meter} for meter in ("calls", "gb")]
    answer = api.post("/v1/usage-events", {"events": events})
    refused, accepted = json.loads(answer.content)["results"]
    assert (answer.status_code, accepted["result"]) == (200, "accepted")
    assert refused == {
        "idempotency_key": events[0]["idempotency_key"],
        "result": "refused",
        "detail": "/meter: the spends, holds and captures by the rate "
        f"{rate} bill this use; an event would tell it twice, so send none",
        "code": "billed-by-entries",
        "rate": rate,
    }
    assert [event.meter for event in UsageEvent.objects.all()] == ["gb"]


def test_an_event_at_a_time_that_events_bill_is_accepted_and_its_correction_too(rate):
    subscription = subscribed(metered())
    first = unique("first")
    amend(subscription, at(2), plan=PlanFactory(prices=[by_entries(rate)]).code)
    event = NewEvent(first, subscription.ref, "calls", value=5, occurred_at=at(1, 31))
    correction = EventCorrection(idempotency_key=unique("c"), subscription=subscription.ref, corrects=first, value=4)
    results = take_in_all([event, correction])
    assert [one.result for one in results] == ["accepted", "accepted"]
    assert use(subscription, "1", at(2)).code == "billed-by-entries"
    assert use(subscription, "1", at(2) - timedelta(microseconds=1)).result == "accepted"


def test_events_before_a_back_dated_change_of_plan_are_reported_and_cannot_be_corrected(rate):
    subscription = subscribed(metered())
    first = unique("first")
    assert take_in_all([NewEvent(first, subscription.ref, "calls", value=5, occurred_at=at(1, 31))])[0].code == ""
    amend(subscription, JAN_1, plan=PlanFactory(prices=[by_entries(rate)]).code)
    correction = EventCorrection(idempotency_key=unique("c"), subscription=subscription.ref, corrects=first, value=4)
    [result] = take_in_all([correction])
    assert (result.result, result.code, result.rate) == ("refused", "billed-by-entries", rate)
    assert UsageEvent.objects.count() == 1
    again = take_in_all([NewEvent(first, subscription.ref, "calls", value=5, occurred_at=at(1, 31))])
    assert [one.result for one in again] == ["duplicate"]
    cancellation = EventCancellation(idempotency_key=unique("x"), subscription=subscription.ref, cancels=first)
    assert [one.result for one in take_in_all([cancellation])] == ["accepted"]


def test_a_plan_bills_the_use_of_a_meter_in_one_way_and_by_a_rate_that_exists(rate):
    wrong = [
        ([by_entries("nobodys")], "/prices/0/entries/rate", "exists"),
        ([by_entries(rate, entries={"component": "output"})], "/prices/0/entries/component", "exists"),
        ([by_entries(rate, entries={"credit_type": "other"})], "/prices/0/entries/rate", "exists"),
        ([metered(), by_entries(rate, key="again")], "/prices/1/billed_by", "one-way-of-a-meter"),
        ([by_entries(rate), metered(key="again", meter="calls")], "/prices/1/billed_by", "one-way-of-a-meter"),
    ]
    for prices, pointer, rule in wrong:
        with pytest.raises(Invalid) as refused:
            PlanFactory(prices=prices)
        assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    PlanFactory(prices=[by_entries(rate), by_entries(rate, key="again"), metered(key="other", meter="other")])


def test_one_subscription_of_a_holder_bills_an_entry(rate):
    holder = unique("holder")
    first = subscribed(by_entries(rate), holder_id=holder)
    for price in (by_entries(rate), by_entries(rate, filters={"team": ["a"]}, entries={"component": "quantity"})):
        with pytest.raises(Invalid) as refused:
            subscribed(price, holder_id=holder)
        assert refused.value.facts["rule"] == "entries-taken"
        assert first.ref in refused.value.facts["detail"]
    assert Subscription.objects.count() == 1
    amend(first, at(2), sets_end=True, ends_at=at(2))
    subscribed(by_entries(rate, filters={"team": ["a"]}), holder_id=holder, started_at=at(2))
    subscribed(by_entries(rate, filters={"team": ["b"]}), holder_id=holder, started_at=at(2))
    with pytest.raises(Invalid):
        subscribed(by_entries(rate, filters={"team": ["b", "c"]}), holder_id=holder, started_at=at(2))
    subscribed(by_entries(rate))
    assert findings_of("two subscriptions") == []
