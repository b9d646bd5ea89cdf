"""Two requests correct the same usage event at once: one of them is refused. The control has no unique index."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection

from billing.metering import corrections, measuring
from billing.metering.corrections import EventCorrection, take_in_all
from billing.metering.usage import EventStatus, NewEvent
from billing.models import Subscription
from billing.rating.prices.reading import parse_price
from tests.billing.factories import SubscriptionFactory, at, metered, unique
from tests.concurrency.meetings import Meeting

Connect = Callable[..., psycopg.Connection[Any]]


def correct_twice(
    run_threads: Any, subscription: Subscription, event: NewEvent, search_path: str = "public"
) -> tuple[list[EventStatus], Decimal]:
    """Correct an event from 100 to 5 in two threads, which both read before either writes. Return the results and the usage."""
    both_have_read = Meeting()
    real = corrections._write

    def together(*facts: Any) -> Any:
        both_have_read.come()
        return real(*facts)

    def correct(index: int) -> EventStatus:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {search_path}")
        one = EventCorrection(
            idempotency_key=f"{event.idempotency_key}/{index}", subscription=subscription.ref, corrects=event.idempotency_key,
            value=Decimal(5),
        )  # fmt: skip
        return take_in_all([one])[0].result

    with mock.patch.object(corrections, "_write", together):
        results = run_threads(correct, 2)
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path = {search_path}")
    [measured] = measuring.measure(subscription.pk, [measuring.Measure(parse_price(metered()), at(1, 1), at(2, 1))])
    return results, measured.quantity


@pytest.fixture
def subscription(committed_db: None) -> Subscription:
    """A new subscription."""
    return SubscriptionFactory()


@pytest.fixture
def event(subscription: Subscription) -> NewEvent:
    """A hundred calls."""
    return NewEvent(unique("e"), subscription.ref, "calls", value=Decimal(100), occurred_at=at(1, 10), properties={})


def test_of_two_corrections_at_once_one_counts(run_threads: Any, subscription: Subscription, event: NewEvent) -> None:
    take_in_all([event])
    results, quantity = correct_twice(run_threads, subscription, event)
    assert sorted(results) == [EventStatus.ACCEPTED, EventStatus.CONFLICT]
    assert quantity == 5


def test_control_without_the_index_both_count(
    run_threads: Any, raw_connection: Connect, subscription: Subscription, event: NewEvent
) -> None:
    schema = f"race_{subscription.pk}"
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE SCHEMA {schema}")
    owner.execute(f"CREATE TABLE {schema}.billing_usageevent (LIKE public.billing_usageevent INCLUDING DEFAULTS)")
    owner.execute(f"CREATE TABLE {schema}.billing_usagekey (LIKE public.billing_usagekey INCLUDING INDEXES)")
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema}, public")
        take_in_all([event])
        results, quantity = correct_twice(run_threads, subscription, event, f"{schema}, public")
        assert results == [EventStatus.ACCEPTED, EventStatus.ACCEPTED]
        assert quantity == 10
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = public")
        owner.execute(f"DROP SCHEMA {schema} CASCADE")
