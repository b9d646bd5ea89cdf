"""Usage events: one by its idempotency key, and lists of them: all, or those of a subscription, a customer or a meter."""

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db import connection

from billing.errors import NotFound
from billing.models import Customer, Subscription
from billing.models.columns import first_of

COLUMNS: Final = """e.idempotency_key, s.ref, e.meter, e.value, e.occurred_at, e.properties, e.recorded_at,
    e.meter_version, CASE WHEN e.counts THEN e.corrects END, CASE WHEN NOT e.counts THEN e.corrects END,
    (SELECT later.idempotency_key FROM billing_usageevent AS later
        WHERE later.subscription_id = e.subscription_id AND later.meter = e.meter AND later.occurred_at = e.occurred_at
            AND later.corrects = e.idempotency_key)"""

# The row of the key has the event's subscription and time, so the query reads only one partition.
BY_KEY: Final = f"""
SELECT {COLUMNS}
FROM billing_usagekey AS k
JOIN billing_subscription AS s ON s.id = k.subscription_id
JOIN billing_usageevent AS e
    ON e.subscription_id = k.subscription_id AND e.occurred_at = k.occurred_at AND e.idempotency_key = k.idempotency_key
WHERE k.idempotency_key = %s
"""

# One meter of one subscription after the other; each gives a page of events, by the index.
METERS: Final = """
WITH RECURSIVE meters (subscription_id, meter) AS (
    SELECT s.id, (SELECT min(e.meter) FROM billing_usageevent e WHERE e.subscription_id = s.id)
    FROM unnest(%(subscription_ids)s::bigint[]) AS s (id)
    UNION ALL
    SELECT
        meters.subscription_id,
        (
            SELECT min(e.meter)
            FROM billing_usageevent e
            WHERE e.subscription_id = meters.subscription_id AND e.meter > meters.meter
        )
    FROM meters
    WHERE meters.meter IS NOT NULL
)
"""
OF_SUBSCRIPTIONS: Final = """
{meters}
SELECT {columns}
FROM meters
CROSS JOIN LATERAL (
    SELECT *
    FROM billing_usageevent AS e
    WHERE e.subscription_id = meters.subscription_id AND e.meter = meters.meter
        AND (%(since)s::timestamptz IS NULL OR e.occurred_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR e.occurred_at < %(until)s)
        AND (
            %(at)s::timestamptz IS NULL
            OR (e.occurred_at, e.meter, e.idempotency_key) {beyond} (%(at)s, %(at_meter)s, %(at_key)s)
        )
    ORDER BY e.occurred_at {direction}, e.idempotency_key {direction}
    LIMIT %(limit)s
) AS e
JOIN billing_subscription AS s ON s.id = e.subscription_id
WHERE %(meter)s::text IS NULL OR meters.meter = %(meter)s
ORDER BY e.occurred_at {direction}, e.meter {direction}, e.idempotency_key {direction}
LIMIT %(limit)s
"""
# The newest events of each meter, summed by day; a correction counts instead of what it corrects.
BY_DAY: Final = f"""
{METERS}
SELECT meters.meter, (e.occurred_at AT TIME ZONE %(zone)s)::date AS day, sum(e.value) FILTER (WHERE e.stands), bool_or(e.is_last)
FROM meters
CROSS JOIN LATERAL (
    SELECT e.occurred_at, e.value, e.counts AND NOT EXISTS (
        SELECT FROM billing_usageevent AS later
        WHERE later.subscription_id = e.subscription_id AND later.meter = e.meter AND later.occurred_at = e.occurred_at
            AND later.corrects = e.idempotency_key
    ) AS stands, row_number() OVER (ORDER BY e.occurred_at DESC) = %(limit)s AS is_last
    FROM billing_usageevent AS e
    WHERE e.subscription_id = meters.subscription_id AND e.meter = meters.meter AND e.occurred_at >= %(since)s
        AND e.occurred_at < %(until)s
    ORDER BY e.occurred_at DESC
    LIMIT %(limit)s
) AS e
GROUP BY meters.meter, day
ORDER BY meters.meter, day
"""
# The index on meter and time gives the events of each month in order, so a page reads few more rows than it has.
OF_METER: Final = """
SELECT {columns}
FROM (
    SELECT *
    FROM billing_usageevent AS e
    WHERE e.meter = %(meter)s
        AND (%(since)s::timestamptz IS NULL OR e.occurred_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR e.occurred_at < %(until)s)
        AND (%(at)s::timestamptz IS NULL OR (e.occurred_at, e.idempotency_key) {beyond} (%(at)s, %(at_key)s))
    ORDER BY e.occurred_at {direction}, e.idempotency_key {direction}
    LIMIT %(limit)s
) AS e
JOIN billing_subscription AS s ON s.id = e.subscription_id
ORDER BY e.occurred_at {direction}, e.idempotency_key {direction}
"""

# One meter after the other; each gives a page of events, by the same index: a page costs what its meters cost, not its events.
OF_ALL: Final = """
WITH RECURSIVE meters (meter) AS (
    SELECT min(e.meter) FROM billing_usageevent e
    UNION ALL
    SELECT (SELECT min(e.meter) FROM billing_usageevent e WHERE e.meter > meters.meter) FROM meters WHERE meters.meter IS NOT NULL
)
SELECT {columns}
FROM (
    SELECT e.*
    FROM meters
    CROSS JOIN LATERAL (
        SELECT *
        FROM billing_usageevent AS e
        WHERE e.meter = meters.meter
            AND (%(since)s::timestamptz IS NULL OR e.occurred_at >= %(since)s)
            AND (%(until)s::timestamptz IS NULL OR e.occurred_at < %(until)s)
            AND (
                %(at)s::timestamptz IS NULL
                OR (e.occurred_at, e.meter, e.idempotency_key) {beyond} (%(at)s, %(at_meter)s, %(at_key)s)
            )
        ORDER BY e.occurred_at {direction}, e.idempotency_key {direction}
        LIMIT %(limit)s
    ) AS e
    ORDER BY e.occurred_at {direction}, e.meter {direction}, e.idempotency_key {direction}
    LIMIT %(limit)s
) AS e
JOIN billing_subscription AS s ON s.id = e.subscription_id
ORDER BY e.occurred_at {direction}, e.meter {direction}, e.idempotency_key {direction}
"""


def _in_both_directions(query: str) -> tuple[str, str]:
    """Return the query of older events, and that of newer ones."""
    return (
        query.format(meters=METERS, columns=COLUMNS, beyond="<", direction="DESC"),
        query.format(meters=METERS, columns=COLUMNS, beyond=">", direction="ASC"),
    )


BY_SUBSCRIPTION: Final = _in_both_directions(OF_SUBSCRIPTIONS)
BY_METER: Final = _in_both_directions(OF_METER)
BY_TIME: Final = _in_both_directions(OF_ALL)

Keyset = tuple[datetime, str, str]
"""Its time, meter and key: together unique."""


class EventRow(NamedTuple):
    """One usage event. With `corrected_by`, the key of a correction or cancellation, it no longer counts."""

    idempotency_key: str
    subscription: str
    meter: str
    value: Decimal
    occurred_at: datetime
    properties: dict[str, Any]
    recorded_at: datetime
    meter_version: int | None
    corrects: str | None
    cancels: str | None
    corrected_by: str | None

    @property
    def keyset(self) -> Keyset:
        """Its place in the list."""
        return self.occurred_at, self.meter, self.idempotency_key


def _event(row: tuple[Any, ...]) -> EventRow:
    """Return the row with its properties as they were sent: Django's cursor returns JSON as text."""
    event = EventRow(*row)
    return event._replace(properties=json.loads(row[EventRow._fields.index("properties")]))


def usage_event(idempotency_key: str) -> EventRow:
    """Return the event that was sent with the key.

    Raises:
        NotFound: it does not exist, or it was billed and its partition is dropped.
    """
    with connection.cursor() as cursor:
        cursor.execute(BY_KEY, [idempotency_key])
        row = cursor.fetchone()
    if row is None:
        raise NotFound(resource="usage event", ref=idempotency_key)
    return _event(row)


def usage_events(
    *,
    subscription: str | None = None,
    customer: str | None = None,
    meter: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: Keyset | None = None,
    after: Keyset | None = None,
    limit: int,
) -> list[EventRow]:
    """Return the events of a subscription, of all subscriptions of a customer, or of all customers, the latest use first.

    Args:
        subscription, customer: one of them, by its reference; neither for the events of all customers.
        meter: only its events.
        since, until: occurred in `[since, until)`.
        before: only events before this one; after: the next events after it, still with the latest first.

    Raises:
        NotFound: the subscription or customer does not exist.
    """
    at, at_meter, at_key = after or before or (None, None, None)
    values = {
        "subscription_ids": _subscriptions(subscription, customer), "meter": meter, "since": since, "until": until,
        "at": at, "at_meter": at_meter, "at_key": at_key, "limit": limit,
    }  # fmt: skip
    of_all = BY_TIME if meter is None else BY_METER
    older, newer = of_all if subscription is None and customer is None else BY_SUBSCRIPTION
    with connection.cursor() as cursor:
        cursor.execute(older if after is None else newer, values)
        rows = [_event(row) for row in cursor.fetchall()]
    return rows if after is None else rows[::-1]


def usage_by_day(
    subscription_ids: Sequence[int], *, since: datetime, until: datetime, zone: str, limit: int
) -> tuple[dict[str, dict[date, Decimal]], bool]:
    """Return the sums of the values of events by meter and day of the zone, of some subscriptions, and whether all were read.

    Args:
        limit: how many events of each meter of a subscription are read at most, the newest ones.
    """
    named: dict[str, Any] = {
        "subscription_ids": list(subscription_ids),
        "since": since,
        "until": until,
        "zone": zone,
        "limit": limit,
    }
    found: dict[str, dict[date, Decimal]] = {}
    is_whole = True
    with connection.cursor() as cursor:
        cursor.execute(BY_DAY, named)
        for meter, day, used, has_last in cursor.fetchall():
            found.setdefault(meter, {})[day] = used or Decimal(0)
            is_whole = is_whole and not has_last
    return found, is_whole


def _subscriptions(subscription: str | None, customer: str | None) -> list[int]:
    """Return the ids of the subscription, or of the customer's subscriptions; nothing without either."""
    if subscription is not None:
        rows = Subscription.objects.filter(ref=subscription).values_list("pk", flat=True)
        return [first_of(rows, "subscription", subscription)]
    if customer is None:
        return []
    customer_id = first_of(Customer.objects.filter(ref=customer).values_list("pk", flat=True), "customer", customer)
    return list(Subscription.objects.filter(customer_id=customer_id).values_list("pk", flat=True))
