"""Billing periods: where one ends and the next begins. Pure, exact, and independent of the clock.

Boundary n of a schedule is anchor + n intervals, counted in local time and always from the anchor, never from the
boundary before: Jan 31, Feb 28, Mar 31. Periods are half-open, `[start, end)`, and their ends are UTC instants.

A **part** is the active and unbilled part of a full period: a leading stub, a trailing stub, the rest after a change, or the
whole period. It keeps the full period that it is measured against.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo


class IntervalUnit(StrEnum):
    """What a billing interval is counted in."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    HALF_YEAR = "half_year"
    YEAR = "year"


class Timing(StrEnum):
    """When a period is billed: at its start or at its end."""

    ADVANCE = "advance"
    ARREARS = "arrears"


MONTHS_PER_UNIT = {IntervalUnit.MONTH: 1, IntervalUnit.QUARTER: 3, IntervalUnit.HALF_YEAR: 6, IntervalUnit.YEAR: 12}
DAYS_PER_UNIT = {IntervalUnit.DAY: 1, IntervalUnit.WEEK: 7}
MAX_INTERVAL_COUNT = 1_000
SCHEDULES_KEPT = 4_096
KEPT_OF_A_SCHEDULE = 512
"""How many schedules a process keeps, and how many periods of each: about 4 MB where each has billed two years of months."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The length of a billing period: `count` units, each of some months or some days.

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
        """Whole months of this interval, 0 when it is counted in days."""
        return MONTHS_PER_UNIT.get(self.unit, 0) * self.count

    @property
    def days(self) -> int:
        """Whole days of this interval, 0 when it is counted in months."""
        return DAYS_PER_UNIT.get(self.unit, 0) * self.count


class TimeSpan(NamedTuple):
    """A stretch of time `[start, end)`."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Period:
    """A part `[start, end)` of the full period number `index`; the whole of it when the ends agree.

    Args:
        index: n of the boundary that the full period starts at; 0 starts at the anchor, and it may be negative.
        start, end: UTC instants of the part; `start < end`.
        full_start, full_end: UTC instants of the full period around it.
        continues: an earlier part of the same full period was billed, or will be, separately.
    """

    index: int
    start: datetime
    end: datetime
    full_start: datetime
    full_end: datetime
    continues: bool = False

    @property
    def is_full(self) -> bool:
        """True when the part is the whole period."""
        return self.start == self.full_start and self.end == self.full_end

    def clip(self, start: datetime | None = None, end: datetime | None = None) -> "Period | None":
        """The part of this one inside `[start, end)`, or None when nothing is left.

        The part that is cut off in front is another part of the same full period, so the result then `continues`.
        """
        new_start = self.start if start is None else max(self.start, start)
        new_end = self.end if end is None else min(self.end, end)
        if new_start >= new_end:
            return None
        return replace(self, start=new_start, end=new_end, continues=self.continues or new_start > self.start)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All boundaries of a subscription: an anchor in local time, its zone and the interval.

    A boundary is computed once: bills need the same few boundaries repeatedly. See `SCHEDULES_KEPT`.

    Args:
        anchor: naive local date and time, the clock on the wall of `zone`.
        zone: the subscription's time zone.
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
        """The schedule whose anchor is what the clocks of `zone` show at an aware instant."""
        return _anchored_at(_aware(instant), zone, interval)

    def boundary(self, n: int) -> datetime:
        """The UTC instant of boundary n; n may be negative.

        A local time inside a DST gap moves forward by the gap; one that exists twice is the first.

        Raises:
            OverflowError: the boundary lies outside years 1 .. 9999.
        """
        return instant_of(self.local_boundary(n), self.zone)

    def local_boundary(self, n: int) -> datetime:
        """Boundary n on the wall clock (naive), before gaps and repeated hours are considered."""
        if self.interval.months:
            return add_months(self.anchor, n * self.interval.months)
        return self.anchor + timedelta(days=n * self.interval.days)

    def index_at(self, instant: datetime) -> int:
        """The n with `boundary(n) <= instant < boundary(n + 1)`, found without walking from the anchor."""
        instant = _aware(instant)
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
        # The estimate knows neither day nor time of day: it is off by one or two at most.
        while self.period(n).start > instant:
            n -= 1
        while self.period(n).end <= instant:
            n += 1
        return n

    def period(self, n: int) -> Period:
        """The full period from boundary n to boundary n + 1."""
        known = self._periods.get(n)
        if known is None:
            before, after = self._periods.get(n - 1), self._periods.get(n + 1)
            start = self.boundary(n) if before is None else before.end
            end = self.boundary(n + 1) if after is None else after.start
            known = Period(n, start, end, start, end)
            _remember(self._periods, n, known)
        return known

    def period_at(self, instant: datetime) -> Period:
        """The full period that contains an instant."""
        return self.period(self.index_at(instant))

    def local_date(self, instant: datetime) -> date:
        """The calendar day of an instant in the billing zone."""
        return _aware(instant).astimezone(self.zone).date()


@lru_cache(maxsize=SCHEDULES_KEPT)
def _anchored_at(instant: datetime, zone: ZoneInfo, interval: Interval) -> Schedule:
    return Schedule(instant.astimezone(zone).replace(tzinfo=None), zone, interval)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value, up to a bound; beyond it, values are computed again."""
    if len(known) >= KEPT_OF_A_SCHEDULE:
        known.clear()
    known[key] = value


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """The UTC instant of a naive wall-clock time; forward by the gap if it does not exist, the first if it exists twice.

    Source: PEP 495: with fold=0 a missing time takes the offset before the gap (so it lands as much after it as
    it was inside), and a repeated time is the earlier one.
    """
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def add_months(local: datetime, months: int) -> datetime:
    """The same day and time `months` later (or earlier), clamped to the last day of a shorter month.

    Raises:
        OverflowError: the result lies outside years 1 .. 9999.
    """
    year, month0 = divmod(local.year * 12 + local.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError(f"year {year} is outside the calendar")
    day = min(local.day, monthrange(year, month0 + 1)[1])
    return local.replace(year=year, month=month0 + 1, day=day)


def periods(schedule: Schedule, start: datetime, end: datetime | None = None, *, continues: bool = False) -> Iterator[Period]:
    """Every period from `start` on, oldest first: a leading stub, full ones, and a trailing stub at `end`.

    From the end of the last claim on, this yields what comes after it, whatever the shape of that claim: billed periods do not
    change.

    Args:
        start: the first active (or not yet billed) instant.
        end: the end of the active time; None for no end, and then the iterator has no end either.
        continues: the time before `start` was billed separately; marks a first period that begins inside a full one.
    """
    n, cursor = schedule.index_at(start), _aware(start)
    while end is None or cursor < end:
        full = schedule.period(n)
        n += 1
        # A calendar day that a zone skipped as a whole (Samoa, 2011-12-30) makes two boundaries one: no period.
        if full.end <= cursor:
            continue
        part_end = full.end if end is None else min(full.end, end)
        is_whole = cursor == full.start and part_end == full.end
        yield full if is_whole else replace(full, start=cursor, end=part_end, continues=continues and cursor > full.start)
        cursor = full.end


def due(timing: Timing, period: Period, as_of: datetime) -> bool:
    """True when the period can be billed at `as_of`: in advance from its start on, in arrears from its end on."""
    return as_of >= (period.start if timing == Timing.ADVANCE else period.end)


def first_charged_instant(started_at: datetime, trial_end: datetime | None) -> datetime:
    """When billing begins: at the start, or at the end of the trial where that is later."""
    return started_at if trial_end is None else max(started_at, trial_end)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is UTC:
        return instant
    if instant.tzinfo is None:
        raise ValueError("an instant needs an offset")
    return instant.astimezone(UTC)
