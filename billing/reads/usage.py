"""Usage events: one by its idempotency key, and those of a subscription."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db import connection

from billing.errors import NotFound
from billing.models import Subscription
from billing.models.columns import first_of

COLUMNS: Final = "e.idempotency_key, s.ref, e.meter, e.value, e.occurred_at, e.properties, e.recorded_at"

# The row of the key has the event's subscription and time, so only one partition is read.
BY_KEY: Final = f"""
SELECT {COLUMNS}
FROM billing_usagekey AS k
JOIN billing_subscription AS s ON s.id = k.subscription_id
JOIN billing_usageevent AS e
    ON e.subscription_id = k.subscription_id AND e.occurred_at = k.occurred_at AND e.idempotency_key = k.idempotency_key
WHERE k.idempotency_key = %s
"""

# One meter after the other: each gives the number of events of the page, by the index.
OF_SUBSCRIPTION: Final = """
WITH RECURSIVE meters (meter) AS (
    SELECT min(meter) FROM billing_usageevent WHERE subscription_id = %(subscription_id)s
    UNION ALL
    SELECT (
        SELECT min(e.meter) FROM billing_usageevent e WHERE e.subscription_id = %(subscription_id)s AND e.meter > meters.meter
    )
    FROM meters
    WHERE meters.meter IS NOT NULL
)
SELECT {columns}
FROM meters
CROSS JOIN LATERAL (
    SELECT *
    FROM billing_usageevent AS e
    WHERE e.subscription_id = %(subscription_id)s AND e.meter = meters.meter
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
OLDER: Final = OF_SUBSCRIPTION.format(columns=COLUMNS, beyond="<", direction="DESC")
NEWER: Final = OF_SUBSCRIPTION.format(columns=COLUMNS, beyond=">", direction="ASC")

Keyset = tuple[datetime, str, str]
"""When it occurred, its meter, its key: unique among a subscription's events."""


class EventRow(NamedTuple):
    """One usage event."""

    idempotency_key: str
    subscription: str
    meter: str
    value: Decimal
    occurred_at: datetime
    properties: dict[str, Any]
    recorded_at: datetime

    @property
    def keyset(self) -> Keyset:
        """Its place among its subscription's events."""
        return self.occurred_at, self.meter, self.idempotency_key


def _event(row: tuple[Any, ...]) -> EventRow:
    """The row with its properties as they were sent: a cursor of Django's gives JSON as text."""
    event = EventRow(*row)
    return event._replace(properties=json.loads(row[EventRow._fields.index("properties")]))


def usage_event(idempotency_key: str) -> EventRow:
    """The event that was sent with the key.

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
    subscription: str,
    meter: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: Keyset | None = None,
    after: Keyset | None = None,
    limit: int,
) -> list[EventRow]:
    """The events of a subscription, the latest use first.

    Args:
        since, until: occurred in `[since, until)`.
        before: only those before this one; after: the ones next after it, still the latest first.

    Raises:
        NotFound: there is no such subscription.
    """
    subscription_id = first_of(
        Subscription.objects.filter(ref=subscription).values_list("pk", flat=True), "subscription", subscription
    )
    at, at_meter, at_key = after or before or (None, None, None)
    values = {
        "subscription_id": subscription_id, "meter": meter, "since": since, "until": until,
        "at": at, "at_meter": at_meter, "at_key": at_key, "limit": limit,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(OLDER if after is None else NEWER, values)
        rows = [_event(row) for row in cursor.fetchall()]
    return rows if after is None else rows[::-1]
