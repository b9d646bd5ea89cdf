"""Meters that change while others write them, or while events are recorded. Each control lacks what protects."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from billing.metering import meters, usage
from billing.metering.meters import CountedEvent, CurrentMeters, create_meter
from billing.metering.usage import EventStatus, NewEvent, take_in
from billing.models import Meter, Subscription, UsageEvent
from tests.billing.factories import SubscriptionFactory, at, unique
from tests.billing.findings import findings_of
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")

OPERATORS = 4
LAW = "another value than its meter computes"


@pytest.fixture
def code() -> str:
    return unique("meter")


@pytest.fixture
def event(code: str) -> NewEvent:
    """One event with two numbers: v1 of the meter takes the first, v2 the second."""
    subscription: Subscription = SubscriptionFactory()
    create_meter(code=code, expression="properties.a")
    return NewEvent(unique("e"), subscription.ref, code, occurred_at=at(1, 10), properties={"a": 1, "b": 2})


@pytest.fixture
def apart(event: NewEvent, raw_connection: Callable[..., psycopg.Connection[Any]]) -> Iterator[str]:
    """The search path of a schema with its own tables of events, for what a control leaves behind."""
    owner, schema = raw_connection(autocommit=True), f"race_{event.subscription.lower().replace('-', '_')}"
    owner.execute(f"CREATE SCHEMA {schema}")
    owner.execute(f"CREATE TABLE {schema}.billing_usageevent (LIKE public.billing_usageevent INCLUDING DEFAULTS)")
    owner.execute(f"CREATE TABLE {schema}.billing_usagekey (LIKE public.billing_usagekey INCLUDING INDEXES)")
    read_from(f"{schema}, public")
    yield f"{schema}, public"
    read_from("public")
    owner.execute(f"DROP SCHEMA {schema} CASCADE")


def read_from(search_path: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path = {search_path}")


def stored(event: NewEvent) -> tuple[int, int | None]:
    row = UsageEvent.objects.get(idempotency_key=event.idempotency_key)
    return int(row.value), row.meter_version


# Versions --------------------------------------------------------------------------------------------


def write(code: str) -> Callable[[int], int | str]:
    """Returns the version that is written, or the refusal."""

    def one(number: int) -> int | str:
        try:
            return create_meter(code=code, expression=f"properties.a * {number}").version
        except IntegrityError:
            return "refused"

    return one


def test_first_versions_that_are_written_at_once_get_numbers_in_turn(code: str, run_threads: Callable[..., list[Any]]) -> None:
    assert sorted(run_threads(write(code), OPERATORS)) == [1, 2, 3, 4]


def test_control_without_the_lock_all_but_one_fail(code: str, run_threads: Callable[..., list[Any]]) -> None:
    together = threading.Barrier(OPERATORS)
    last = meters.last_version

    def read(code: str) -> int:
        found = last(code)
        together.wait(30)
        return found

    @contextmanager
    def without_lock(*names: str) -> Any:
        with transaction.atomic(), no_lock(*names) as lock:
            yield lock

    with mock.patch.object(meters, "locked_transaction", without_lock), mock.patch.object(meters, "last_version", read):
        results = run_threads(write(code), OPERATORS)
    assert sorted(map(str, results)) == ["1", "refused", "refused", "refused"]
    assert Meter.objects.filter(code=code).count() == 1


# A version against recording -------------------------------------------------------------------------


def record_during_a_change(
    event: NewEvent, run_threads: Any, then: Callable[[], Any] = lambda: None, *, search_path: str = "public"
) -> EventStatus:
    """Record the event in a thread that has read v1 when another writes v2 and does `then`. Return the result."""
    has_read, may_write = threading.Event(), threading.Event()
    real = usage.row_of

    def paused(*facts: Any) -> Any:
        if not has_read.is_set():
            has_read.set()
            assert may_write.wait(30)
        return real(*facts)

    def one(number: int) -> EventStatus | None:
        read_from(search_path)
        if number == 0:
            return take_in([event])[0].result
        try:
            assert has_read.wait(30)
            create_meter(code=event.meter, expression="properties.b")
            then()
        finally:
            may_write.set()
        return None

    with mock.patch.object(usage, "row_of", paused):
        result: EventStatus = run_threads(one, 2)[0]
    return result


def test_an_event_names_the_version_that_computed_it(event: NewEvent, run_threads: Any) -> None:
    assert record_during_a_change(event, run_threads) == EventStatus.ACCEPTED
    assert stored(event) == (1, 1)
    assert not [what for what in findings_of(LAW) if event.idempotency_key in what]
    after = replace(event, idempotency_key=unique("e"))
    assert take_in([after])[0].result == EventStatus.ACCEPTED
    assert stored(after) == (2, 2)


def test_control_an_event_that_names_the_version_of_its_writing_is_a_finding(
    event: NewEvent, run_threads: Any, apart: str
) -> None:
    real = usage.row_of

    def late(one: CountedEvent[Any], *facts: Any) -> Any:
        return real(one, *facts) | {"meter_version": meters.last_version(event.meter)}

    with mock.patch.object(usage, "row_of", late):
        record_during_a_change(event, run_threads, search_path=apart)
    assert stored(event) == (1, 2)
    assert [what for what in findings_of(LAW) if event.idempotency_key in what]


def test_the_same_event_twice_at_once_is_a_duplicate_though_two_versions_compute_it(event: NewEvent, run_threads: Any) -> None:
    again: list[EventStatus] = []
    first = record_during_a_change(event, run_threads, lambda: again.append(take_in([event])[0].result))
    assert (first, again) == (EventStatus.DUPLICATE, [EventStatus.ACCEPTED])
    assert stored(event) == (2, 2)


def test_control_with_a_digest_of_the_quantity_the_retry_is_a_conflict(event: NewEvent, run_threads: Any, apart: str) -> None:
    real, counted = NewEvent.content_digest, CurrentMeters.counted
    quantities = threading.local()

    def remembered(self: CurrentMeters, event: NewEvent, code: str) -> CountedEvent[NewEvent]:
        found = counted(self, event, code)
        quantities.own = found.quantity
        return found

    def of_quantity(self: NewEvent) -> bytes:
        return real(replace(self, value=quantities.own))

    again: list[EventStatus] = []
    with mock.patch.object(CurrentMeters, "counted", remembered), mock.patch.object(NewEvent, "content_digest", of_quantity):
        first = record_during_a_change(event, run_threads, lambda: again.append(take_in([event])[0].result), search_path=apart)
    assert (first, again) == (EventStatus.CONFLICT, [EventStatus.ACCEPTED])
