"""Usage that no run will ever bill: too late, of an unknown meter, before the start, after the end. Reads only, without locks.

Usage that is still due is not part of it, and late usage only if runs leave it out: the next run bills the rest.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from billing.generator.state.spans import recent_periods
from billing.metering.filters import PASSES
from billing.metering.measuring import COUNTS
from billing.metering.uncounted import REASON, left_over_of
from billing.orders import plans
from billing.rating.money import decimal_text
from billing.rating.periods import Period, Schedule
from ledger.database.statements import fetch_rows

TOO_LATE = "too-late"

_IN_SCOPE = """
        (%(subscriptions)s::bigint[] IS NULL OR e.subscription_id = ANY(%(subscriptions)s))
        AND (%(since)s::timestamptz IS NULL OR e.recorded_at > %(since)s)
"""
_COUNTS = COUNTS.format(event="e")

_COUNTING = f"SELECT e.* FROM billing_usageevent AS e WHERE {_IN_SCOPE} AND {_COUNTS}"
NOT_COUNTED = f"""
    {left_over_of(_COUNTING, columns="e.subscription_id, e.meter, e.occurred_at, e.value")}
    SELECT s.ref, e.meter, {REASON}, count(*), sum(e.value), min(e.occurred_at), max(e.occurred_at)
    FROM left_over AS e JOIN billing_subscription AS s ON s.id = e.subscription_id
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

# Events recorded after the claim of their period, and whether a run can or may still bill them. A cancellation has the value 0
# and no properties: it may cancel an event of every price of the meter.
AFTER_THE_CLAIM = f"""
    SELECT s.id, s.ref, coalesce((c.snapshot ->> 'anchor_at')::timestamptz, s.anchor_at), s.time_zone, c.item_id,
        c.starts_at, c.price_id, p.meter,
        c.measure_again = 'left-out' OR EXISTS (
            SELECT FROM billing_droppedmonth AS d
            WHERE d.month::timestamp AT TIME ZONE 'UTC' < c.ends_at
                AND (d.month + interval '1 month') AT TIME ZONE 'UTC' > c.starts_at),
        count(*), sum(e.value), min(e.occurred_at), max(e.occurred_at)
    FROM billing_usageevent AS e
    JOIN billing_subscription AS s ON s.id = e.subscription_id
    JOIN billing_claim AS c ON c.subscription_id = e.subscription_id AND c.kind = 2 AND c.released_at IS NULL
        AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at AND c.created_at < e.recorded_at
    JOIN billing_price AS p ON p.id = c.price_id AND p.meter = e.meter
    WHERE {_IN_SCOPE} AND (NOT e.counts
        OR {_COUNTS} AND {PASSES.format(event="e", filters="coalesce(p.definition -> 'filters', '{}')")})
    GROUP BY s.id, c.id, p.meter
"""
BILLED_STARTS = """
    SELECT c.item_id, c.starts_at, c.price_id, coalesce((c.snapshot ->> 'anchor_at')::timestamptz, s.anchor_at), s.time_zone
    FROM billing_claim AS c JOIN billing_subscription AS s ON s.id = c.subscription_id
    WHERE c.subscription_id = ANY(%s) AND c.item_id = ANY(%s) AND c.kind = 2 AND c.released_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class UnbilledUsage:
    """Events of a meter of a subscription that no run will bill, with the reason.

    Args:
        reason: too-late, not-started, unknown-meter, before-start, in-trial, in-pause, after-end, filtered-out (no price's
            filters accept it) or not-counted-then (a plan without the meter).
        value: the sum of the events' values.
        first, last: the times of the first and last event.
    """

    subscription: str
    meter: str
    reason: str
    events: int
    value: Decimal
    first: datetime
    last: datetime

    def as_dict(self) -> dict[str, Any]:
        """The usage as the command prints it."""
        return {
            "subscription": self.subscription,
            "reason": self.reason,
            "meter": self.meter,
            "events": self.events,
            "value": decimal_text(self.value),
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
        }


class _LateUsage(NamedTuple):
    """A row of AFTER_THE_CLAIM: events recorded after the claim of their time, and the place of that claim."""

    subscription_id: int
    ref: str
    anchor_at: datetime
    time_zone: str
    item_id: int
    starts_at: datetime
    price_id: int
    meter: str
    is_left_out: bool
    events: int
    value: Decimal
    first: datetime
    last: datetime


class _BilledStart(NamedTuple):
    """A row of BILLED_STARTS."""

    item_id: int
    starts_at: datetime
    price_id: int
    anchor_at: datetime
    time_zone: str


def find_unbilled_usage(
    *, lookback: int | None, subscription_ids: Sequence[int] | None = None, recorded_since: datetime | None = None
) -> list[UnbilledUsage]:
    """Return the usage that no run will bill, by subscription, meter and reason.

    Args:
        lookback: for how many billed periods runs bill late usage; None: for all, except usage that an earlier run left out.
        subscription_ids: only these subscriptions; None: all.
        recorded_since: only events recorded after this instant; None: all.
    """
    only = None if subscription_ids is None else list(subscription_ids)
    scope: dict[str, Any] = {"subscriptions": only, "since": recorded_since}
    unbilled_usage = fetch_rows(UnbilledUsage, NOT_COUNTED, scope)
    late = fetch_rows(_LateUsage, AFTER_THE_CLAIM, scope)
    return sorted([*unbilled_usage, *_too_late(late, lookback)], key=lambda one: (one.subscription, one.reason, one.meter))


def sum_by_reason(found: Iterable[UnbilledUsage]) -> list[dict[str, Any]]:
    """Return the sums over all subscriptions, by reason and meter."""
    sums: dict[tuple[str, str], list[UnbilledUsage]] = defaultdict(list)
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


def _too_late(late: Sequence[_LateUsage], lookback: int | None) -> Iterator[UnbilledUsage]:
    """Yield late usage in periods that runs leave out, summed up per subscription and meter."""
    if not late:
        return
    items = _Items(late)
    merged: dict[tuple[str, str], UnbilledUsage] = {}
    for row in late:
        if not row.is_left_out and (lookback is None or items.is_recent(row, lookback)):
            continue
        one = UnbilledUsage(row.ref, row.meter, TOO_LATE, row.events, row.value, row.first, row.last)
        known = merged.get((row.ref, row.meter))
        merged[row.ref, row.meter] = one if known is None else replace(
            known, events=known.events + one.events, value=known.value + one.value,
            first=min(known.first, one.first), last=max(known.last, one.last),
        )  # fmt: skip
    yield from merged.values()


class _Items:
    """Return the billed periods of the items that have late usage."""

    def __init__(self, late: Sequence[_LateUsage]) -> None:
        named = [sorted({row.subscription_id for row in late}), sorted({row.item_id for row in late})]
        self._billed: dict[int, list[tuple[Period, datetime]]] = defaultdict(list)
        for claim in fetch_rows(_BilledStart, BILLED_STARTS, named):
            self._billed[claim.item_id].append((_period(claim), claim.starts_at))

    def is_recent(self, row: _LateUsage, lookback: int) -> bool:
        """Return whether the period of the row's claim is one of the last billed periods."""
        period = _period(row)
        return (period.start, period.end) in recent_periods(self._billed[row.item_id], lookback)


def _period(claim: _LateUsage | _BilledStart) -> Period:
    """Return the full period in which a claim begins."""
    terms, price = plans.price_of(claim.price_id)
    return Schedule.anchored_at(claim.anchor_at, ZoneInfo(claim.time_zone), terms.interval_of(price)).period_at(claim.starts_at)
