"""Usage that no run will ever bill: too late, of an unknown meter, before the start, after the end. Reads only, locks nothing.

What is still due, or late but within the look-back, is not among it: the next run bills that.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from billing.generator.reconcile import Counted, late_usage_until
from billing.orders import plans
from billing.rating.money import decimal_text
from billing.rating.periods import Schedule

TOO_LATE = "too-late"

# The prices that count a meter, from when until when; what is used in a trial is not counted.
_COUNTED = """
    counted AS (
        SELECT v.subscription_id, p.meter, coalesce(p.definition -> 'filters', '{}') AS filters,
            greatest(v.starts_at, s.trial_end) AS starts_at, coalesce(v.ends_at, 'infinity') AS ends_at
        FROM billing_itemversion AS v
        JOIN billing_price AS p ON p.id = v.price_id
        JOIN billing_subscription AS s ON s.id = v.subscription_id
        WHERE v.superseded_at IS NULL AND p.kind = 'usage'
            AND (%(subscription)s::bigint IS NULL OR v.subscription_id = %(subscription)s)
    )
"""
_IN_SCOPE = """
        (%(subscription)s::bigint IS NULL OR e.subscription_id = %(subscription)s)
        AND (%(since)s::timestamptz IS NULL OR e.recorded_at > %(since)s)
"""
_PASSES = """
        NOT EXISTS (
            SELECT FROM jsonb_each({filters}) AS filter
            WHERE NOT coalesce(
                jsonb_typeof(e.properties -> filter.key) NOT IN ('object', 'array', 'null')
                AND filter.value ? (e.properties ->> filter.key), false))
"""

# Events that no price counts are found first, as a set; only those are asked why.
NOT_COUNTED = f"""
    WITH {_COUNTED}, left_over AS MATERIALIZED (
        SELECT e.subscription_id, e.meter, e.occurred_at, e.value
        FROM billing_usageevent AS e
        WHERE {_IN_SCOPE} AND NOT EXISTS (
            SELECT FROM counted AS c
            WHERE c.subscription_id = e.subscription_id AND c.meter = e.meter
                AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at AND {_PASSES.format(filters="c.filters")})
    )
    SELECT s.ref, e.meter,
        CASE
            WHEN NOT EXISTS (SELECT FROM counted AS c WHERE c.subscription_id = s.id AND c.meter = e.meter) THEN 'unknown-meter'
            WHEN e.occurred_at < s.started_at THEN 'before-start'
            WHEN e.occurred_at < s.trial_end THEN 'in-trial'
            WHEN e.occurred_at >= (
                SELECT max(coalesce(v.ends_at, 'infinity')) FROM billing_itemversion AS v
                WHERE v.subscription_id = s.id AND v.superseded_at IS NULL AND v.price_id IS NULL) THEN 'after-end'
            WHEN EXISTS (
                SELECT FROM counted AS c WHERE c.subscription_id = s.id AND c.meter = e.meter
                    AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at) THEN 'filtered-out'
            ELSE 'not-counted-then'
        END AS reason,
        count(*), sum(e.value), min(e.occurred_at), max(e.occurred_at)
    FROM left_over AS e JOIN billing_subscription AS s ON s.id = e.subscription_id
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

# Events that came after the claim on their time was written. Whether a run still looks there follows from the item's periods.
AFTER_THE_CLAIM = f"""
    SELECT s.id, s.ref, s.anchor_at, s.time_zone, c.item_id, c.starts_at, c.price_id, p.meter,
        count(*), sum(e.value), min(e.occurred_at), max(e.occurred_at)
    FROM billing_usageevent AS e
    JOIN billing_subscription AS s ON s.id = e.subscription_id
    JOIN billing_claim AS c ON c.subscription_id = e.subscription_id AND c.kind = 2 AND c.released_at IS NULL
        AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at AND c.created_at < e.recorded_at
    JOIN billing_price AS p ON p.id = c.price_id AND p.meter = e.meter
    WHERE {_IN_SCOPE} AND {_PASSES.format(filters="coalesce(p.definition -> 'filters', '{}')")}
    GROUP BY s.id, s.ref, s.anchor_at, s.time_zone, c.item_id, c.starts_at, c.price_id, p.meter
"""
BILLED_STARTS = """
    SELECT item_id, starts_at, price_id FROM billing_claim
    WHERE subscription_id = ANY(%s) AND item_id = ANY(%s) AND kind = 2 AND released_at IS NULL
"""
VERSIONS = """
    SELECT item_id, price_id, quantity, starts_at, ends_at FROM billing_itemversion
    WHERE subscription_id = ANY(%s) AND item_id = ANY(%s) AND superseded_at IS NULL
    ORDER BY item_id, starts_at
"""


@dataclass(frozen=True, slots=True)
class NeverBilled:
    """Events of one meter of a subscription that no run will bill, and why.

    Args:
        reason: too-late, unknown-meter, before-start, in-trial, after-end, filtered-out (no price's filters let it pass) or
            not-counted-then (a pause, or a plan without the meter).
        value: the sum of the events' values.
        first, last: when they occurred.
    """

    subscription: str
    meter: str
    reason: str
    events: int
    value: Decimal
    first: datetime
    last: datetime

    def as_dict(self) -> dict[str, Any]:
        """As the command shows it."""
        return {
            "subscription": self.subscription,
            "reason": self.reason,
            "meter": self.meter,
            "events": self.events,
            "value": decimal_text(self.value),
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
        }


def never_billed(
    *, as_of: datetime, lookback: int, subscription_id: int | None = None, recorded_since: datetime | None = None
) -> list[NeverBilled]:
    """Usage that no run will bill, by subscription, meter and reason.

    Args:
        as_of: when it is asked; what ended long before it is looked at no more.
        lookback: in how many billed periods runs look for late usage.
        subscription_id: of this subscription only; None: of all.
        recorded_since: of events that came in after this instant; None: of all.
    """
    scope = {"subscription": subscription_id, "since": recorded_since}
    with connection.cursor() as cursor:
        cursor.execute(NOT_COUNTED, scope)
        found = [NeverBilled(*row) for row in cursor.fetchall()]
        cursor.execute(AFTER_THE_CLAIM, scope)
        late = cursor.fetchall()
    return sorted([*found, *_too_late(late, as_of, lookback)], key=lambda one: (one.subscription, one.reason, one.meter))


def by_reason(found: Iterable[NeverBilled]) -> list[dict[str, Any]]:
    """The sums over all subscriptions, by reason and meter."""
    sums: dict[tuple[str, str], list[NeverBilled]] = defaultdict(list)
    for one in found:
        sums[one.reason, one.meter].append(one)
    return [
        {
            "reason": reason,
            "meter": meter,
            "subscriptions": len(those),
            "events": sum(one.events for one in those),
            "value": decimal_text(sum((one.value for one in those), Decimal(0))),
        }
        for (reason, meter), those in sorted(sums.items())
    ]


def _too_late(rows: Sequence[tuple[Any, ...]], as_of: datetime, lookback: int) -> Iterator[NeverBilled]:
    """Of what came after its claim, what lies in no period that a run still looks at; summed up per subscription and meter."""
    if not rows:
        return
    items = _Items(rows)
    merged: dict[tuple[str, str], NeverBilled] = {}
    for _, ref, _, _, item_id, starts_at, price_id, meter, *figures in rows:
        if items.is_looked_at(item_id, starts_at, price_id, as_of, lookback):
            continue
        one, known = NeverBilled(ref, meter, TOO_LATE, *figures), merged.get((ref, meter))
        merged[ref, meter] = one if known is None else replace(
            known, events=known.events + one.events, value=known.value + one.value,
            first=min(known.first, one.first), last=max(known.last, one.last),
        )  # fmt: skip
    yield from merged.values()


class _Items:
    """Of the items that have late usage: which periods are billed, and when they counted."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._places = {row[4]: (row[2], ZoneInfo(row[3])) for row in rows}
        named = [sorted({row[0] for row in rows}), sorted(self._places)]
        self._billed: dict[int, dict[tuple[datetime, datetime], datetime]] = defaultdict(dict)
        self._spans: dict[int, list[Counted]] = defaultdict(list)
        with connection.cursor() as cursor:
            cursor.execute(BILLED_STARTS, named)
            for item_id, starts_at, price_id in cursor.fetchall():
                period = self._schedule(item_id, price_id).period_at(starts_at)
                full = (period.start, period.end)
                self._billed[item_id][full] = max(starts_at, self._billed[item_id].get(full, starts_at))
            cursor.execute(VERSIONS, named)
            for row in cursor.fetchall():
                self._spans[row[0]].append(self._span(*row))

    def is_looked_at(self, item_id: int, starts_at: datetime, price_id: int, as_of: datetime, lookback: int) -> bool:
        """True when a run at `as_of` looks for late usage in the period that a claim lies in."""
        period = self._schedule(item_id, price_id).period_at(starts_at)
        billed = self._billed[item_id]
        recent = sorted(billed, key=lambda full: billed[full])[-lookback:] if lookback else []
        if (period.start, period.end) not in recent:
            return False
        spans = self._spans[item_id]
        here = next((one for one in spans if one.start <= starts_at and (one.end is None or one.end > starts_at)), None)
        until = None if here is None else late_usage_until(here, spans, lookback)
        return here is not None and (until is None or as_of < until)

    def _schedule(self, item_id: int, price_id: int) -> Schedule:
        anchor_at, zone = self._places[item_id]
        return Schedule.anchored_at(anchor_at, zone, plans.price_of(price_id)[0].interval)

    def _span(self, item_id: int, price_id: int, quantity: Decimal, starts_at: datetime, ends_at: datetime | None) -> Counted:
        terms, price = plans.price_of(price_id)
        schedule = self._schedule(item_id, price_id)
        return Counted(item_id, price_id, price, terms.code, terms.currency, schedule, quantity, starts_at, ends_at)
