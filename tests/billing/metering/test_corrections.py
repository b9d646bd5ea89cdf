"""Corrections and cancellations of usage events: what then counts, what is refused, and what a run bills of it."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.generator.difference import due_drafts
from billing.metering import measuring, usage
from billing.metering.corrections import EventCancellation, EventCorrection, take_in_all
from billing.metering.usage import EventStatus, NewEvent
from billing.models import Subscription, UsageEvent, UsageKey
from billing.rating.aggregation import RatingInput
from billing.rating.prices.reading import parse_price
from tests.billing.factories import SubscriptionFactory, at, metered, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

START, END = at(1, 1), at(2, 1)


def sent(subscription: Subscription, value: str, **properties: str) -> str:
    """The key of a new event of calls on 10 January."""
    key = unique("e")
    event = NewEvent(key, subscription.ref, "calls", value=Decimal(value), occurred_at=at(1, 10), properties=properties)
    assert [one.result for one in take_in_all([event])] == [EventStatus.ACCEPTED]
    return key


def correction(subscription: Subscription, key: str, value: str = "5", own: str | None = None) -> EventCorrection:
    """A correction of the event with this key."""
    return EventCorrection(
        idempotency_key=own or unique("fix"), subscription=subscription.ref, corrects=key, value=Decimal(value)
    )


def cancellation(subscription: Subscription, key: str) -> EventCancellation:
    """A cancellation of the event with this key."""
    return EventCancellation(idempotency_key=unique("fix"), subscription=subscription.ref, cancels=key)


def measured(subscription: Subscription, aggregation: str, **fields: Any) -> RatingInput:
    """The usage of January."""
    price = parse_price(metered(aggregation=aggregation, **fields))
    return measuring.measure(subscription.pk, [measuring.Measure(price, START, END)])[0]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("aggregation", "fields", "corrected", "cancelled"),
    [
        ("count", {}, 2, 1), ("sum", {}, 12, 7), ("max", {}, 7, 7), ("unique", {}, 2, 1),
        ("unique", {"property": "user"}, 1, 1), ("sum", {"filters": {"user": "b"}}, 7, 7),
    ],
)  # fmt: skip
def test_only_the_correction_counts_in_every_aggregation(
    aggregation: str, fields: dict[str, Any], corrected: int, cancelled: int
) -> None:
    subscription = SubscriptionFactory()
    wrong = sent(subscription, "100", user="a")
    sent(subscription, "7", user="b")
    fixed = correction(subscription, wrong)
    assert [one.result for one in take_in_all([fixed])] == [EventStatus.ACCEPTED]
    assert measured(subscription, aggregation, **fields).quantity == corrected
    take_in_all([cancellation(subscription, fixed.idempotency_key)])
    found = measured(subscription, aggregation, **fields)
    assert (found.quantity, found.events) == (cancelled, 1)


@pytest.mark.django_db
def test_a_level_that_was_corrected_does_not_hold_in_the_next_period() -> None:
    subscription = SubscriptionFactory()
    price = parse_price(metered(aggregation="weighted_sum"))
    take_in_all([cancellation(subscription, sent(subscription, "100"))])
    assert measuring.measure(subscription.pk, [measuring.Measure(price, END, at(3, 1))])[0].quantity == 0
    take_in_all([correction(subscription, sent(subscription, "100"), "8")])
    assert measuring.measure(subscription.pk, [measuring.Measure(price, END, at(3, 1))])[0].quantity == 8


@pytest.mark.django_db
def test_a_request_may_correct_what_it_sends_and_what_it_corrects() -> None:
    subscription = SubscriptionFactory()
    new = NewEvent(unique("e"), subscription.ref, "calls", value=Decimal(100), occurred_at=at(1, 10), properties={})
    first = correction(subscription, new.idempotency_key, "60")
    second = correction(subscription, first.idempotency_key, "70")
    assert {one.result for one in take_in_all([second, first, new])} == {EventStatus.ACCEPTED}
    assert measured(subscription, "sum").quantity == 70


@pytest.mark.django_db
def test_a_retry_is_a_duplicate_and_other_content_a_conflict() -> None:
    subscription = SubscriptionFactory()
    fixed = correction(subscription, sent(subscription, "100"))
    again = correction(subscription, fixed.corrects, own=fixed.idempotency_key)
    assert [one.result for one in take_in_all([fixed, again])] == [EventStatus.ACCEPTED, EventStatus.DUPLICATE]
    other = correction(subscription, fixed.corrects, "6", own=fixed.idempotency_key)
    assert [one.result for one in take_in_all([fixed, other])] == [EventStatus.DUPLICATE, EventStatus.CONFLICT]
    assert measured(subscription, "sum").quantity == 5


@pytest.mark.django_db
def test_what_cannot_be_corrected_is_refused_in_words_and_nothing_is_written() -> None:
    subscription, other = SubscriptionFactory(), SubscriptionFactory()
    key, theirs = sent(subscription, "100"), sent(other, "100")
    done = cancellation(subscription, key)
    take_in_all([done])
    before = (UsageEvent.objects.count(), UsageKey.objects.count())
    absent = EventCancellation(idempotency_key=unique("fix"), subscription="absent", cancels=key)
    own = unique("fix")
    refused = take_in_all([
        cancellation(subscription, "unknown"), cancellation(subscription, theirs),
        cancellation(subscription, done.idempotency_key),
        correction(subscription, key), absent, correction(subscription, own, own=own),
    ])  # fmt: skip
    assert [(one.result.value, one.detail) for one in refused] == [
        ("invalid", "there is no event with the key 'unknown'"),
        ("invalid", f"the event {theirs!r} is of another subscription"),
        ("invalid", f"{done.idempotency_key!r} is a cancellation, which cannot be corrected"),
        ("conflict", f"the event {key!r} is already corrected or cancelled by {done.idempotency_key!r}"),
        ("invalid", "there is no subscription 'absent'"),
        ("invalid", f"there is no event with the key {own!r}"),
    ]
    assert (UsageEvent.objects.count(), UsageKey.objects.count()) == before
    assert measured(other, "sum").quantity == 100


@pytest.mark.django_db
def test_two_corrections_of_an_event_in_one_request_are_one_and_a_conflict() -> None:
    subscription = SubscriptionFactory()
    key = sent(subscription, "100")
    results = take_in_all([correction(subscription, key, "5"), correction(subscription, key, "6")])
    assert [one.result for one in results] == [EventStatus.ACCEPTED, EventStatus.CONFLICT]
    assert measured(subscription, "sum").quantity == 5


@pytest.mark.django_db
def test_the_call_takes_corrections_and_the_event_names_them(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    key, other = sent(subscription, "100"), sent(subscription, "50")
    fix = {"idempotency_key": unique("fix"), "subscription": subscription.ref, "corrects": key, "value": "60"}
    cancel = {"idempotency_key": unique("fix"), "subscription": subscription.ref, "cancels": other}
    both = {**fix, "idempotency_key": unique("fix"), "cancels": other}
    response = api.post("/v1/usage-events", {"events": [fix, cancel, both]}).json()
    assert [one["result"] for one in response["results"]] == ["accepted", "accepted", "invalid"]
    shown = api.get(f"/v1/usage-events/{key}").json()
    assert (shown["value"], shown["corrected_by"], shown["corrects"]) == ("100", fix["idempotency_key"], None)
    fixed = api.get(f"/v1/usage-events/{fix['idempotency_key']}").json()
    assert (fixed["value"], fixed["corrects"], fixed["meter"]) == ("60", key, "calls")
    assert fixed["occurred_at"] == shown["occurred_at"]
    assert api.get(f"/v1/usage-events/{cancel['idempotency_key']}").json()["cancels"] == other


@pytest.mark.django_db
def test_a_cancellation_after_the_bill_is_billed_as_a_difference_and_the_check_accepts_it(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    key = sent(subscription, "100")
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    api.post(path, {"as_of": "2026-02-01T00:00:00Z"})
    take_in_all([cancellation(subscription, key)])
    assert findings_of("usage") == []
    assert api.post(path, {"as_of": "2026-02-02T00:00:00Z"}).json()["invoices"][0]["lines"][0]["amount_minor"] == -200
    assert findings_of("usage") == []


@pytest.mark.django_db
def test_a_correction_of_another_period_excuses_no_claim() -> None:
    subscription = SubscriptionFactory()
    january, february = sent(subscription, "100"), unique("e")
    take_in_all([NewEvent(february, subscription.ref, "calls", value=Decimal(50), occurred_at=at(2, 10), properties={})])
    bill(subscription, at(3, 1))
    take_in_all([cancellation(subscription, january)])
    assert findings_of("usage") == []
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_claim SET snapshot = jsonb_set(snapshot, '{usage,events}', '2') WHERE subscription_id = %s "
            "AND kind = 2 AND starts_at = '2026-02-01 00:00:00+00'", [subscription.pk]
        )  # fmt: skip
        assert cursor.rowcount == 1
    assert len(findings_of("usage differs")) == 1


@pytest.mark.django_db
def test_what_a_run_has_compared_since_excuses_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = SubscriptionFactory()
    key = sent(subscription, "100")
    bill(subscription, at(2, 1))
    take_in_all([cancellation(subscription, key)])
    # The generator fails to see it, and says that it has looked.
    monkeypatch.setattr(usage, "LONGEST_TRANSACTION", timedelta(0))
    with monkeypatch.context() as blind:
        blind.setattr(due_drafts, "read_late", lambda *_: {})
        bill(subscription, at(3, 1))
    assert len(findings_of("usage differs")) == 1


@pytest.mark.django_db
def test_a_correction_that_was_moved_to_another_meter_is_found() -> None:
    subscription = SubscriptionFactory()
    fixed = correction(subscription, sent(subscription, "100"))
    take_in_all([fixed])
    assert findings_of("usage event differs") == []
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_usageevent DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_usageevent SET meter = 'other' WHERE idempotency_key = %s", [fixed.idempotency_key])
        cursor.execute("ALTER TABLE billing_usageevent ENABLE TRIGGER USER")
    assert len(findings_of("usage event differs")) == 1
