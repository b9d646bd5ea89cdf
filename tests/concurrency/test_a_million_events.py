"""A period with a million events is billed by the database: the memory of the process does not grow with the events."""

import os
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.metering import usage
from billing.metering.usage import NewEvent
from billing.models import Line, Subscription
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, unique
from tests.concurrency.test_invoices_races import start_generate_invoices

pytestmark = [pytest.mark.slow, pytest.mark.deployment]

COPIES_AT_ONCE = 25
SENT = 1_000
"""How many events are sent; copies with keys of their own make the others, because the digest of the content has no key."""
COPY = """
    WITH keys AS (
        INSERT INTO billing_usagekey (idempotency_key, content_digest, subscription_id, occurred_at, recorded_at)
        SELECT k.idempotency_key || '/' || n, k.content_digest, k.subscription_id, k.occurred_at, k.recorded_at
        FROM billing_usagekey AS k, generate_series(%(first)s, %(last)s) AS n WHERE k.idempotency_key = ANY(%(keys)s)
    )
    INSERT INTO billing_usageevent (subscription_id, meter, occurred_at, idempotency_key, value, properties, recorded_at)
    SELECT e.subscription_id, e.meter, e.occurred_at, e.idempotency_key || '/' || n, e.value, e.properties, e.recorded_at
    FROM billing_usageevent AS e, generate_series(%(first)s, %(last)s) AS n WHERE e.subscription_id = %(subscription)s
        AND e.idempotency_key = ANY(%(keys)s)
"""
EU = {"key": "eu", "filters": {"region": "eu"}, "unit_amount": "0.01"}
PRICES = [
    metered("calls", "0.02", buckets=[EU]),
    metered("by-user", "0.01", meter="calls", group_by=["region", "user"]),
    metered("users", "1.00", meter="calls", aggregation="unique", property="user"),
    metered("seats", "1.00", meter="calls", aggregation="daily_level"),
    {
        "key": "fee", "kind": "usage", "model": "percentage", "rate": "1", "event_minimum": "0.02", "free_events": 10,
        "meter": "calls", "aggregation": "sum",
    },
]  # fmt: skip


def subscription_with(events: int) -> Subscription:
    """A subscription with as many events in January, of a thousand users in two regions."""
    subscription: Subscription = SubscriptionFactory(plan=PlanFactory(prices=PRICES).code)
    sent = [
        NewEvent(
            unique("e"), subscription.ref, "calls", value=Decimal(1), occurred_at=at(1, 1 + number % 31),
            properties={"user": f"u{number}", "region": "eu" if number % 2 else "us"},
        )
        for number in range(SENT)
    ]  # fmt: skip
    usage.take_in(sent)
    named = {"subscription": subscription.pk, "keys": [event.idempotency_key for event in sent]}
    with connection.cursor() as cursor:
        for first in range(2, events // SENT + 1, COPIES_AT_ONCE):
            last = min(first + COPIES_AT_ONCE - 1, events // SENT)
            cursor.execute(COPY, {**named, "first": first, "last": last})
        cursor.execute("ANALYZE billing_usageevent")
    return subscription


def peak_kib_of_billing(subscription: Subscription) -> int:
    """Bill January in a process; return the most memory that it had."""
    arguments = ("--as-of", "2026-02-01", "--subscription", subscription.ref, "--no-progress")
    process = start_generate_invoices(*arguments, PGOPTIONS="-c statement_timeout=0")
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        out = process.stdout.read() + process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, out
    return used.ru_maxrss


def test_the_memory_of_a_run_does_not_grow_with_the_events_of_a_period(committed_db: None, capsys: Any) -> None:
    peaks: dict[int, int] = {}
    for events in (10_000, 1_000_000):
        subscription = subscription_with(events)
        peaks[events] = peak_kib_of_billing(subscription)
        of_groups = Line.objects.filter(invoice__subscription_id=subscription.pk, price_key="by-user")
        assert {*of_groups.values_list("amount_minor", flat=True)} == {events // SENT}
        assert of_groups.count() == SENT
        others = Line.objects.filter(invoice__subscription_id=subscription.pk).exclude(price_key="by-user")
        lines = dict(others.values_list("price_key", "amount_minor"))
        # Half of the events at 0.02, half at 0.01; a thousand users; one kept for 31 of 31 days; 0.02 instead of 0.01 an event.
        assert lines == {"calls": events * 3 // 2, "users": 100_000, "seats": 100, "fee": (events - 10) * 2}
    with capsys.disabled():
        print("".join(f"\n{events:,} events: {peak / 1024:.0f} MiB at most" for events, peak in peaks.items()))
    assert peaks[1_000_000] < peaks[10_000] * 1.05
