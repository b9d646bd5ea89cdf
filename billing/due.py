"""Which subscriptions have something to bill: hints for the generator, which looks again under the lock. Locks nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

CHUNK_ROWS = 200

# By keyset on the id and a chunk at a time: memory stays flat however many are due, what others have billed meanwhile drops
# out of the next chunk, and nothing is held open through a pooler between two transactions.
DUE = """
    SELECT s.id, s.ref
    FROM billing_subscription AS s
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE s.id > %(after)s AND s.id <= %(until)s
        AND (
            cursor.subscription_id IS NULL
            OR (%(recurring)s AND (
                cursor.recurring_due_at <= %(as_of)s
                OR EXISTS (SELECT FROM billing_amendment AS a
                    WHERE a.subscription_id = s.id AND a.sequence > cursor.recurring_amendments_seen)
                OR EXISTS (SELECT FROM billing_charge AS o
                    WHERE o.subscription_id = s.id AND o.sequence > cursor.charges_seen)))
            OR (%(usage)s AND (
                cursor.usage_due_at <= %(as_of)s
                OR EXISTS (SELECT FROM billing_amendment AS a
                    WHERE a.subscription_id = s.id AND a.sequence > cursor.usage_amendments_seen)))
        )
        AND (%(parked)s OR NOT EXISTS (
            SELECT FROM billing_parking AS p WHERE p.subscription_id = s.id AND p.unparked_at IS NULL))
        AND (%(customers)s::text[] IS NULL OR EXISTS (
            SELECT FROM billing_customer AS c WHERE c.id = s.customer_id AND c.ref = ANY(%(customers)s)))
        AND ((%(plans)s::text[] IS NULL AND %(currency)s::text IS NULL) OR EXISTS (
            SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id
            WHERE v.subscription_id = s.id AND v.superseded_at IS NULL
                AND (%(plans)s::text[] IS NULL OR p.code = ANY(%(plans)s))
                AND (%(currency)s::text IS NULL OR p.currency = %(currency)s)))
    ORDER BY s.id
    LIMIT %(rows)s
"""

BOUNDS = "SELECT coalesce(min(id), 0) - 1, coalesce(max(id), 0) FROM billing_subscription"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which subscriptions a run looks at; None is all.

    Args:
        recurring, usage: what is billed.
        parked: those that are parked as well.
    """

    as_of: datetime
    recurring: bool = True
    usage: bool = True
    parked: bool = False
    customers: tuple[str, ...] | None = None
    plans: tuple[str, ...] | None = None
    currency: str | None = None


def due_refs(wanted: Filter, *, share: int = 0, shares: int = 1) -> Iterator[str]:
    """The refs of subscriptions that may be due, all of them, beginning at the given share of the list and wrapping round.

    So N workers walk one list from N places and share it by skipping what is locked or done.
    """
    with connection.cursor() as cursor:
        cursor.execute(BOUNDS)
        low, high = cursor.fetchone()
    start = low + (high - low) * share // shares
    yield from _walk(wanted, start, high)
    yield from _walk(wanted, low, start)


def _walk(wanted: Filter, after: int, until: int) -> Iterator[str]:
    while after < until:
        with connection.cursor() as cursor:
            cursor.execute(
                DUE,
                {
                    "after": after,
                    "until": until,
                    "as_of": wanted.as_of,
                    "recurring": wanted.recurring,
                    "usage": wanted.usage,
                    "parked": wanted.parked,
                    "customers": list(wanted.customers) if wanted.customers else None,
                    "plans": list(wanted.plans) if wanted.plans else None,
                    "currency": wanted.currency,
                    "rows": CHUNK_ROWS,
                },
            )
            rows = cursor.fetchall()
        for _, ref in rows:
            yield ref
        if len(rows) < CHUNK_ROWS:
            return
        after = rows[-1][0]
