"""What the result of a usage event says: that no invoice will count it, or that it lies in the future."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.metering.corrections import EventCancellation, EventCorrection, take_in_all
from billing.metering.uncounted import SENTENCES
from billing.metering.usage import EventStatus, NewEvent, take_in
from billing.models import Subscription, UsageEvent, UsageKey
from ledger import services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, unique, use
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def event_of(subscription: Subscription, occurred_at: datetime, **fields: Any) -> dict[str, Any]:
    """The JSON of an event."""
    known = {"idempotency_key": unique("use"), "subscription": subscription.ref, "meter": "calls", "value": 1}
    return known | {"occurred_at": occurred_at.isoformat()} | fields


def taken(api: ApiClient, *events: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The results of a request, without their keys."""
    results: list[dict[str, Any]] = api.post("/v1/usage-events", {"events": list(events)} | more).json()["results"]
    return [{name: one[name] for name in one.keys() - {"idempotency_key"}} for one in results]


def uncounted(code: str) -> dict[str, str]:
    """The result of an event that no invoice will count."""
    return {"result": "accepted", "detail": f"no invoice will count this event: {SENTENCES[code]}", "code": code}


COUNTED = {"result": "accepted", "detail": ""}


# Not counted -----------------------------------------------------------------------------------------


def test_the_result_of_an_event_that_no_invoice_will_count_says_why(api: ApiClient) -> None:
    prices = [metered(filters={"region": ["eu"]})]
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=prices).code, started_at=at(1, 10), trial_end=at(2, 1), ends_at=at(7, 1)
    )
    amend(subscription, at(4, 1), paused=True)
    amend(subscription, at(5, 1), paused=False)
    amend(subscription, at(6, 1), plan=PlanFactory(prices=[metered("mails")]).code)
    eu = {"properties": {"region": "eu"}}
    asked = [
        (event_of(subscription, at(1, 9, 23), **eu), uncounted("before-start")),
        (event_of(subscription, at(1, 31, 23), **eu), uncounted("in-trial")),
        (event_of(subscription, at(2, 1), **eu), COUNTED),
        (event_of(subscription, at(3, 1)), uncounted("filtered-out")),
        (event_of(subscription, at(3, 31, 23), **eu), COUNTED),
        (event_of(subscription, at(4, 1), **eu), uncounted("in-pause")),
        (event_of(subscription, at(5, 1), **eu), COUNTED),
        (event_of(subscription, at(6, 1), **eu), uncounted("not-counted-then")),
        (event_of(subscription, at(6, 30, 23), meter="mails"), COUNTED),
        (event_of(subscription, at(7, 1), meter="mails"), uncounted("after-end")),
        (event_of(subscription, at(3, 1), meter="faxes"), uncounted("unknown-meter")),
    ]
    assert taken(api, *[event for event, _ in asked]) == [result for _, result in asked]
    assert UsageEvent.objects.filter(subscription_id=subscription.pk).count() == len(asked)


def test_a_correction_says_so_of_its_own_properties_and_a_cancellation_says_nothing() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(filters={"region": ["eu"]})]).code)
    key = use(subscription, "1", at(1, 5), region="eu").idempotency_key
    other = use(subscription, "1", at(1, 6), region="us").idempotency_key
    assert key
    assert other
    known = {"subscription": subscription.ref}
    wrong = EventCorrection(idempotency_key=unique("fix"), corrects=key, properties={"region": "us"}, value=1, **known)
    [result] = take_in_all([wrong])
    assert (result.result, result.code) == (EventStatus.ACCEPTED, "filtered-out")
    assert result.detail.endswith("it does not pass the filters of any price")
    [result] = take_in_all([EventCancellation(idempotency_key=unique("fix"), cancels=other, **known)])
    assert (result.result, result.code, result.detail) == (EventStatus.ACCEPTED, "", "")


# In the future ---------------------------------------------------------------------------------------


def test_an_event_more_than_a_day_ahead_is_recorded_only_for_who_asks_for_it(api: ApiClient) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    now = timezone.now()
    near, far = event_of(subscription, now + DAY - timedelta(minutes=5)), event_of(subscription, now + DAY + timedelta(minutes=5))
    latest = event_of(subscription, at(1, 1, year=2150))
    detail = "/occurred_at: lies more than a day in the future, which only a request with allow_future may record"
    refused = {"result": "invalid", "code": "in-the-future", "detail": detail}
    assert taken(api, near, far, latest) == [COUNTED, refused, refused]
    assert taken(api, far, allow_future=False) == [refused]
    keys = [event["idempotency_key"] for event in (near, far, latest)]
    assert UsageKey.objects.get(idempotency_key__in=keys).idempotency_key == near["idempotency_key"]
    assert UsageEvent.objects.get(subscription_id=subscription.pk).idempotency_key == near["idempotency_key"]
    # The keys are free.
    assert taken(api, far, latest, allow_future=True) == [COUNTED, COUNTED]
    # What is recorded is known, also to a request that does not ask.
    assert [one["result"] for one in taken(api, far, latest | {"value": 2})] == ["duplicate", "conflict"]


def test_a_question_for_the_future_is_true_or_false(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    refused = api.post("/v1/usage-events", {"events": [event_of(subscription, at(1, 5))], "allow_future": "true"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/allow_future")
    assert not UsageEvent.objects.filter(subscription_id=subscription.pk).exists()


def test_the_future_begins_at_the_time_of_the_holders_test_clock(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    start, holder = datetime(2040, 1, 1, tzinfo=UTC), unique("holder")
    services.set_clock(holder_id=holder, now=start - 9 * 365 * DAY, idempotency_key="clock-1")
    services.set_clock(holder_id=holder, now=start, idempotency_key="clock-2")
    plan = PlanFactory(prices=[metered()]).code
    of_clock = SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan)
    others = [SubscriptionFactory(customer=CustomerFactory(holder_id=id_).ref, plan=plan) for id_ in (unique("holder"), None)]

    def result(subscription: Subscription, occurred_at: datetime) -> tuple[str, str]:
        [one] = take_in([NewEvent(unique("use"), subscription.ref, "calls", occurred_at=occurred_at, value=1)])
        return one.result.value, one.code

    assert result(of_clock, start + DAY) == ("accepted", "")
    assert result(of_clock, start + DAY + timedelta(microseconds=1)) == ("invalid", "in-the-future")
    assert [result(other, start) for other in others] == [("invalid", "in-the-future")] * 2
