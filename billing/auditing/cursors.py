"""The instant at which the generator looks at each subscription next, computed again from orders and claims.

A cursor is a hint. If it is too early, a run looks once for nothing. If it is too late, nobody bills the subscription: that is a
finding.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

from billing.orders import plans
from billing.rating.periods import Schedule

ROWS_PER_FETCH = 5_000

# Charges and amendments that a cursor has counted as seen although they do not exist, or although no claim bills them.
SEEN_LAWS = {
    "cursor has seen what does not exist": """
        SELECT format('subscription %s: %s %s are seen, there are %s; delete its row of billing_cursor, and the next run looks '
            'again', coalesce(s.ref, seen.subscription_id::text), seen.number, seen.what, seen.there)
        FROM (
            SELECT c.subscription_id, kind.what, kind.number, coalesce((
                SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = c.subscription_id), 0) AS there
            FROM billing_cursor AS c CROSS JOIN LATERAL (VALUES
                ('amendments (recurring)', c.recurring_amendments_seen), ('amendments (usage)', c.usage_amendments_seen)
            ) AS kind(what, number)
            UNION ALL
            SELECT c.subscription_id, 'charges', c.charges_seen, coalesce((
                SELECT max(o.sequence) FROM billing_charge AS o WHERE o.subscription_id = c.subscription_id), 0)
            FROM billing_cursor AS c
        ) AS seen
        LEFT JOIN billing_subscription AS s ON s.id = seen.subscription_id
        WHERE s.id IS NULL OR seen.number > seen.there
    """,
    "charge is seen and not billed": """
        SELECT format('subscription %s: charge %s; delete its row of billing_cursor, and the next run bills it', s.ref,
            o.sequence)
        FROM billing_charge AS o
        JOIN billing_cursor AS c ON c.subscription_id = o.subscription_id AND c.charges_seen >= o.sequence
        JOIN billing_subscription AS s ON s.id = o.subscription_id
        WHERE NOT EXISTS (
            SELECT FROM billing_claim AS claim WHERE claim.subscription_id = o.subscription_id AND claim.item_id = o.id
                AND claim.kind = 3 AND claim.released_at IS NULL)
    """,
    "cursor of a run that has not been": """
        SELECT format('subscription %s was looked at %s; delete its row of billing_cursor, and the next run looks again',
            c.subscription_id, c.looked_at)
        FROM billing_cursor AS c WHERE greatest(c.looked_at, c.usage_seen_until) > clock_timestamp()
            OR EXISTS (SELECT FROM billing_amendment AS a WHERE a.subscription_id = c.subscription_id
                AND a.sequence <= least(c.recurring_amendments_seen, c.usage_amendments_seen) AND a.recorded_at > c.looked_at)
    """,
}

# Each active version of an item, and the instant up to which the item is billed: its start if nothing of it is.
BILLED = """
    SELECT s.id, s.ref, coalesce(v.anchor_at, s.anchor_at), s.time_zone, cursor.recurring_due_at,
        cursor.usage_due_at, cursor.claims_from, p.kind,
        p.timing, p.id, greatest(v.starts_at, s.trial_end, billed.until) AS unbilled_from, v.ends_at
    FROM billing_cursor AS cursor
    JOIN billing_subscription AS s ON s.id = cursor.subscription_id
    JOIN billing_itemversion AS v ON v.subscription_id = s.id AND v.superseded_at IS NULL
    JOIN billing_price AS p ON p.id = v.price_id
    LEFT JOIN LATERAL (
        SELECT max(c.ends_at) AS until FROM billing_claim AS c
        WHERE c.subscription_id = s.id AND c.item_id = v.item_id AND c.released_at IS NULL
            AND c.kind = CASE p.kind WHEN 'recurring' THEN 1 ELSE 2 END
    ) AS billed ON true
    WHERE greatest(v.starts_at, s.trial_end, billed.until) < coalesce(v.ends_at, 'infinity')
        AND greatest(coalesce(CASE p.kind WHEN 'recurring' THEN cursor.recurring_due_at ELSE cursor.usage_due_at END, 'infinity'),
            cursor.claims_from) > greatest(v.starts_at, s.trial_end, billed.until)
    ORDER BY s.id, p.kind
"""


class _Unbilled(NamedTuple):
    """A row of BILLED."""

    subscription_id: int
    ref: str
    anchor_at: datetime
    time_zone: str
    recurring_due_at: datetime | None
    usage_due_at: datetime | None
    claims_from: datetime | None
    kind: str
    timing: str
    price_id: int
    unbilled_from: datetime
    ends_at: datetime | None

    @property
    def due_at(self) -> datetime:
        """The instant at which its next period is due: the period's start in advance, its end in arrears."""
        if self.kind == "recurring" and self.timing == "advance":
            return self.unbilled_from
        zone = ZoneInfo(self.time_zone)
        terms, price = plans.price_of(self.price_id)
        schedule = Schedule.anchored_at(self.anchor_at, zone, terms.interval_of(price))
        end = schedule.period_at(self.unbilled_from).end
        return end if self.ends_at is None else min(end, self.ends_at)

    @property
    def cursor(self) -> datetime | None:
        """The instant at which the generator looks at it."""
        return self.recurring_due_at if self.kind == "recurring" else self.usage_due_at


def late_cursors() -> Iterator[str]:
    """Yield the subscriptions whose cursor is later than the next due instant."""
    for _, group in groupby(_find_unbilled(), key=lambda row: (row.subscription_id, row.kind)):
        rows = list(group)
        due_at, cursor = min(row.due_at for row in rows), rows[0].cursor
        advice = "delete its row of billing_cursor, and the next run bills them"
        if cursor is None or cursor > due_at:
            text = cursor or "that none will be due"
            yield f"subscription {rows[0].ref}: {rows[0].kind} charges are due at {due_at}, the cursor says {text}; {advice}"
        claims_from, unbilled_from = rows[0].claims_from, min(row.unbilled_from for row in rows)
        if claims_from is not None and claims_from > unbilled_from:
            text = f"but the cursor says that everything before {claims_from} is billed"
            yield f"subscription {rows[0].ref}: {rows[0].kind} charges are not billed from {unbilled_from} on, {text}; {advice}"


def _find_unbilled() -> Iterable[_Unbilled]:
    with connection.chunked_cursor() as cursor:
        cursor.execute(BILLED)
        while rows := cursor.fetchmany(ROWS_PER_FETCH):
            yield from (_Unbilled(*row) for row in rows)
