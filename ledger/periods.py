"""Periods of the calendar: where each ends and the next begins. Pure, exact, and independent of the clock.

Subscriptions and recurring grants share these rules.

Boundary n of a schedule is anchor + n intervals, in local time and always counted from the anchor, never from the previous
boundary: Jan 31, Feb 28, Mar 31. Periods are half-open, `[start, end)`, and their ends are UTC instants.
"""

from calendar import monthrange
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo


class IntervalUnit(StrEnum):
    """The unit of an interval."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    HALF_YEAR = "half_year"
    YEAR = "year"


MONTHS_PER_UNIT = {IntervalUnit.MONTH: 1, IntervalUnit.QUARTER: 3, IntervalUnit.HALF_YEAR: 6, IntervalUnit.YEAR: 12}
DAYS_PER_UNIT = {IntervalUnit.DAY: 1, IntervalUnit.WEEK: 7}
MAX_INTERVAL_COUNT = 1_000
SCHEDULES_KEPT = 4_096
KEPT_OF_A_SCHEDULE = 512
"""How many schedules a process keeps, and how many periods of each: about 4 MB if each billed two years of months."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The length of a period: `count` units, each of some months or some days.

    Args:
        unit: day, week, month, quarter (3 months), half_year (6) or year (12).
        count: 1 .. 1000.

    Raises:
        ValueError: the unit is unknown or the count is outside its range.
    """

    unit: IntervalUnit
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", IntervalUnit(self.unit))
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 1 <= self.count <= MAX_INTERVAL_COUNT:
            raise ValueError(f"interval count must be 1..{MAX_INTERVAL_COUNT}, not {self.count!r}")

    @property
    def months(self) -> int:
        """The months of this interval; 0 if its unit is days or weeks."""
        return MONTHS_PER_UNIT.get(self.unit, 0) * self.count

    @property
    def days(self) -> int:
        """The days of this interval; 0 if its unit is a number of months."""
        return DAYS_PER_UNIT.get(self.unit, 0) * self.count

    def parts_of(self, whole: "Interval") -> int:
        """Return into how many of this interval a longer one divides; 0 if it does not divide evenly."""
        mine, theirs = (self.months, whole.months) if self.months else (self.days, whole.days)
        return theirs // mine if theirs % mine == 0 else 0


class TimeSpan(NamedTuple):
    """A stretch of time `[start, end)`."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Period:
    """A part `[start, end)` of the full period number `index`; all of it if the ends are equal.

    Args:
        index: n of the boundary at which the full period starts; 0 starts at the anchor, and n may be negative.
        start, end: UTC instants of the part; `start < end`.
        full_start, full_end: UTC instants of the full period around it.
        continues: another line bills an earlier part of the same full period, or has billed it.
    """

    index: int
    start: datetime
    end: datetime
    full_start: datetime
    full_end: datetime
    continues: bool = False

    def clip(self, start: datetime | None = None, end: datetime | None = None) -> "Period | None":
        """Return the part of this period inside `[start, end)`, or None if they do not overlap.

        If something is cut off at the front, the result `continues` the same full period.
        """
        new_start = self.start if start is None else max(self.start, start)
        new_end = self.end if end is None else min(self.end, end)
        if new_start >= new_end:
            return None
        return replace(self, start=new_start, end=new_end, continues=self.continues or new_start > self.start)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All boundaries: an anchor in local time, its zone and the interval.

    Each boundary is computed once, because bills need the same few boundaries repeatedly. See `SCHEDULES_KEPT`.

    Args:
        anchor: naive local date and time, on the clocks of `zone`.
        zone: the zone whose clocks count.
        interval: the length of a full period.
    """

    anchor: datetime
    zone: ZoneInfo
    interval: Interval
    _periods: dict[int, "Period"] = field(default_factory=dict, init=False, repr=False, compare=False)
    _indexes: dict[datetime, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.anchor.tzinfo is not None:
            raise ValueError("the anchor is a local time without offset; use Schedule.anchored_at for an instant")

    @classmethod
    def anchored_at(cls, instant: datetime, zone: ZoneInfo, interval: Interval) -> "Schedule":
        """Return the schedule whose anchor is the local time of an aware instant in `zone`."""
        return _anchored_at(aware(instant), zone, interval)

    def boundary(self, n: int) -> datetime:
        """Return the UTC instant of boundary n; n may be negative.

        A local time inside a DST gap moves forward by the gap; of a local time that exists twice, the first counts.

        Raises:
            OverflowError: the boundary lies outside years 1 .. 9999.
        """
        return instant_of(self.local_boundary(n), self.zone)

    def local_boundary(self, n: int) -> datetime:
        """Return boundary n as naive local time, before gaps and repeated hours are considered."""
        if self.interval.months:
            return add_months(self.anchor, n * self.interval.months)
        return self.anchor + timedelta(days=n * self.interval.days)

    def index_at(self, instant: datetime) -> int:
        """Return the n with `boundary(n) <= instant < boundary(n + 1)`, without a walk from the anchor."""
        instant = aware(instant)
        known = self._indexes.get(instant)
        if known is None:
            known = self._find_index(instant)
            _remember(self._indexes, instant, known)
        return known

    def _find_index(self, instant: datetime) -> int:
        local = instant.astimezone(self.zone)
        if self.interval.months:
            n = ((local.year - self.anchor.year) * 12 + local.month - self.anchor.month) // self.interval.months
        else:
            n = (local.date() - self.anchor.date()).days // self.interval.days
        # The estimate ignores day and time of day, so it is off by at most two.
        while self.period(n).start > instant:
            n -= 1
        while self.period(n).end <= instant:
            n += 1
        return n

    def period(self, n: int) -> Period:
        """Return the full period from boundary n to boundary n + 1."""
        known = self._periods.get(n)
        if known is None:
            before, after = self._periods.get(n - 1), self._periods.get(n + 1)
            start = self.boundary(n) if before is None else before.end
            end = self.boundary(n + 1) if after is None else after.start
            known = Period(n, start, end, start, end)
            _remember(self._periods, n, known)
        return known

    def period_at(self, instant: datetime) -> Period:
        """Return the full period that contains an instant."""
        return self.period(self.index_at(instant))

    def local_date(self, instant: datetime) -> date:
        """Return the calendar day of an instant in the zone."""
        return aware(instant).astimezone(self.zone).date()


@lru_cache(maxsize=SCHEDULES_KEPT)
def _anchored_at(instant: datetime, zone: ZoneInfo, interval: Interval) -> Schedule:
    return Schedule(instant.astimezone(zone).replace(tzinfo=None), zone, interval)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value while there is room; otherwise it is computed again."""
    if len(known) >= KEPT_OF_A_SCHEDULE:
        known.clear()
    known[key] = value


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a naive local time: forward by the gap if it does not exist, the first if it exists twice.

    Source: PEP 495: with fold=0 a missing time takes the offset before the gap, so it lands as far behind the gap as it was
        inside; a repeated time is the earlier one.
    """
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def add_months(local: datetime, months: int) -> datetime:
    """Return the same day and time `months` later (or earlier), clamped to the last day of a shorter month.

    Raises:
        OverflowError: the result lies outside years 1 .. 9999.
    """
    year, month0 = divmod(local.year * 12 + local.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"year {year} is outside the calendar")
    day = min(local.day, monthrange(year, month0 + 1)[1])
    return local.replace(year=year, month=month0 + 1, day=day)


def aware(instant: datetime) -> datetime:
    """Return an instant in UTC, or raise ValueError if it has no offset."""
    if instant.tzinfo is UTC:
        return instant
    if instant.tzinfo is None:
        raise ValueError("an instant needs an offset")
    return instant.astimezone(UTC)
