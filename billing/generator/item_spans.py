"""When an item counted, at which price and quantity, and when something of it is due. Pure."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby, islice

from billing.rating.periods import Period, Schedule, Timing, periods
from billing.rating.prices import Price


@dataclass(frozen=True, slots=True)
class ItemSpan:
    """An item counted at a price and quantity in `[start, end)`; an end of None is open.

    Args:
        terminates: it ends with the subscription, not by a change.
        continues: the item counted earlier in the full period that the span begins in.
    """

    item_id: int
    price_id: int
    price: Price
    plan_code: str
    currency: str
    schedule: Schedule
    quantity: Decimal
    start: datetime
    end: datetime | None
    terminates: bool = False
    continues: bool = False


def next_due(spans: Iterable[ItemSpan], as_of: datetime) -> datetime | None:
    """The first instant after `as_of` at which a period of these spans becomes due; None where none will."""
    instants: list[datetime] = []
    for span in spans:
        for part in periods(span.schedule, max(span.start, _floor(span, as_of)), span.end):
            instant = part.start if span.price.timing == Timing.ADVANCE else part.end
            if instant > as_of:
                instants.append(instant)
                break
    return min(instants, default=None)


def due_instants(spans: Iterable[ItemSpan], as_of: datetime, *, most: int) -> list[datetime]:
    """The first `most` instants up to `as_of` at which periods of these spans became due, oldest first."""
    by_time = heapq.merge(*(_due_instants(span, as_of) for span in spans))
    return list(islice((instant for instant, _ in groupby(by_time)), most))


def _due_instants(span: ItemSpan, as_of: datetime) -> Iterator[datetime]:
    for part in parts_until(span, as_of):
        instant = part.start if span.price.timing == Timing.ADVANCE else part.end
        if instant <= as_of:
            yield instant


def _floor(span: ItemSpan, instant: datetime) -> datetime:
    """The start of the period that contains an instant."""
    return span.schedule.period_at(instant).start


def parts_until(span: ItemSpan, horizon: datetime) -> Iterator[Period]:
    """The periods of a span that begin up to the horizon: at most one more than is due."""
    for part in periods(span.schedule, span.start, span.end, continues=span.continues):
        if part.start > horizon:
            return
        yield part


def recent_periods(billed: Iterable[tuple[Period, datetime]], lookback: int) -> set[tuple[datetime, datetime]]:
    """The last `lookback` full periods of a usage item that are billed, as start and end.

    They are counted by what has been billed. So after a change of plan a longer period may begin before ones that were over by
    then, and what this run gives back or bills again counts as well.

    Args:
        billed: of each claim the full period that it begins in, and where it begins.
    """
    if not lookback:
        return set()
    latest: dict[tuple[datetime, datetime], datetime] = {}
    for period, start in billed:
        full = (period.start, period.end)
        latest[full] = max(start, latest.get(full, start))
    return set(sorted(latest, key=lambda full: latest[full])[-lookback:])
