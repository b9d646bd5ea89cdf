"""The times in which items counted and in which a plan had bounds, and the next due instants. Pure."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby, islice

from billing.rating.periods import Period, Schedule, periods
from billing.rating.prices.price import Price
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.tax_sales import Taxed


@dataclass(frozen=True, slots=True)
class ItemSpan:
    """An item counted at a price and quantity in `[start, end)`; an end of None is open.

    Args:
        schedule: the price's periods.
        plan_schedule: the plan's: coupons count these, and they contain whole periods of the price.
        terminates: it ends because the subscription ends, not because of a change.
        continues: the item counted earlier in the full period in which the span begins.
        list_price: the plan's price, if the subscription has negotiated another.
    """

    item_id: int
    price_id: int
    price: Price
    plan_code: str
    currency: str
    schedule: Schedule
    plan_schedule: Schedule
    quantity: Decimal
    start: datetime
    end: datetime | None
    terminates: bool = False
    continues: bool = False
    list_price: Price | None = None


def next_due(spans: Iterable[ItemSpan], as_of: datetime) -> datetime | None:
    """Return the first instant after `as_of` at which a period of these spans becomes due; None if there is no such instant."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, _floor(span, as_of)), span.end):
            instant = part.start if span.price.is_due_at_start() else part.end
            if instant > as_of:
                instants.append(instant)
                break
    return min(instants, default=None)


def due_instants(spans: Iterable[ItemSpan], as_of: datetime, *, most: int) -> list[datetime]:
    """Return the first `most` instants up to `as_of` at which periods of these spans became due, the oldest first."""
    by_time = heapq.merge(*(_due_instants(span, as_of) for span in spans))
    return list(islice((instant for instant, _ in groupby(by_time)), most))


def _due_instants(span: ItemSpan, as_of: datetime) -> Iterator[datetime]:
    for part in parts_until(span, as_of):
        instant = part.start if span.price.is_due_at_start() else part.end
        if instant <= as_of:
            yield instant


def _floor(span: ItemSpan, instant: datetime) -> datetime:
    """Return the start of the period that contains an instant."""
    return span.schedule.period_at(instant).start


def parts_until(span: ItemSpan, horizon: datetime) -> Iterator[Period]:
    """Return the periods of a span that begin up to the horizon: at most one more than is due."""
    for part in periods(span.schedule, span.start, span.end, continues=span.continues):
        if part.start > horizon:
            return
        yield part


def recent_periods(billed: Iterable[tuple[Period, datetime]], lookback: int) -> set[tuple[datetime, datetime]]:
    """Return the last `lookback` billed full periods of a usage item, as start and end.

    The billed periods count. So after a change of plan a longer period may begin before periods that had ended by then, and
    periods that this run gives back or bills again count too.

    Args:
        billed: of each claim the full period in which it begins, and its start.
    """
    if not lookback:
        return set()
    latest: dict[tuple[datetime, datetime], datetime] = {}
    for period, start in billed:
        full = (period.start, period.end)
        latest[full] = max(start, latest.get(full, start))
    return set(sorted(latest, key=lambda full: latest[full])[-lookback:])


@dataclass(frozen=True, slots=True)
class BoundTerms:
    """The plan of a bound and the tax of its line. A line can correct another line only if these agree."""

    plan_code: str
    currency: str
    tax_category: str
    tax_rate: Decimal
    tax_class: str = STANDARD_CLASS


@dataclass(frozen=True, slots=True)
class BoundedSpan:
    """The subscription was on a plan with a minimum or maximum in `[start, end)`; money in major units."""

    item_id: int
    terms: BoundTerms
    minimum: Decimal | None
    maximum: Decimal | None
    schedule: Schedule
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """The amount of the bounds of a period: above zero a minimum fee, below zero a reduction; and how it was taxed."""

    id: int
    item_id: int
    start: datetime
    end: datetime
    amount_minor: int
    terms: BoundTerms
    taxed: Taxed | None = None


def next_bound(spans: Iterable[BoundedSpan], as_of: datetime) -> datetime | None:
    """Return the first instant after `as_of` at which a period with bounds ends."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, span.schedule.period_at(as_of).start), span.end):
            if part.end > as_of:
                instants.append(part.end)
                break
    return min(instants, default=None)
