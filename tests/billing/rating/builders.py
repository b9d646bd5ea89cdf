"""Short ways to write down the instants, schedules and prices of a worked example."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import settings

from billing.rating.periods import Interval, IntervalUnit, Period, Schedule, Timing, due, periods
from billing.rating.prices.price import Price, Proration
from billing.rating.prices.reading import parse_price
from billing.rating.proration import BilledLine, Share, prorated_minor, share, unused_credit_minor

PROPERTY = settings(derandomize=True, database=None)
"""The same examples on every run, so that a failure is the code's and never the day's."""

# Northern and southern summers, a half-hour shift, an offset of 45 minutes, clocks that change at midnight, negative DST.
ZONES_WITH_DST = (
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Asia/Beirut",
    "America/Nuuk",
    "Europe/Dublin",
)


def utc(text: str) -> datetime:
    """An instant: "2026-01-31" or "2026-01-31T09:00", in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def in_zone(text: str, zone: str) -> datetime:
    """The instant at which the clocks of a zone show a time (the first, if twice)."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def schedule(anchor: str, zone: str = "UTC", unit: str = "month", count: int = 1) -> Schedule:
    """A schedule from a local anchor."""
    return Schedule(datetime.fromisoformat(anchor), ZoneInfo(zone), Interval(IntervalUnit(unit), count))


def part(of: Schedule, start: datetime, end: datetime) -> Period:
    """The part `[start, end)` of the period that contains its start."""
    clipped = of.period_at(start).clip(start, end)
    assert clipped is not None
    return clipped


def usage_price(model: str, **given: Any) -> Price:
    """A usage price that sums a meter."""
    fields = {"key": "api", "kind": "usage", "model": model, "meter": "calls", "aggregation": "sum"}
    return parse_price(fields | given)


def recurring_price(model: str = "flat", **given: Any) -> Price:
    """A recurring price."""
    return parse_price({"key": "seat", "kind": "recurring", "model": model} | given)


def periods_due(
    of: Schedule, *, timing: Timing, start: datetime, end: datetime | None, as_of: datetime, continues: bool = False
) -> Iterator[Period]:
    """The periods from `start` on that are due at `as_of`, oldest first."""
    return takewhile(lambda period: due(timing, period, as_of), periods(of, start, end, continues=continues))


def unused_share(of: Schedule, whole: Period, instant: datetime, mode: Proration, **end: bool) -> Share:
    """The share of a billed part that is left when it ends or changes at an instant."""
    billed, used = share(of, whole, mode), whole.clip(end=instant)
    return billed if used is None else Share(max(billed.used - share(of, used, mode, **end).used, 0), billed.of)


def change(line: BilledLine, unused: Share, new_full_amount: Decimal) -> tuple[int, int]:
    """The credit for what a line leaves unused, and the charge for the same time at another price, in minor units."""
    return -unused_credit_minor(line, unused, "EUR"), prorated_minor(new_full_amount, unused, "EUR")
