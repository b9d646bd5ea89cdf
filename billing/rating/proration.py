"""What a part of a period costs, and what a change within a period gives back. Pure and exact.

A part is measured in calendar days of the billing zone against its full period, never in hours / 24: the days of its
parts add up to the days of the whole, because the day of a change belongs to the part that begins on it.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

from billing.rating.money import Exact, from_minor, to_minor
from billing.rating.periods import Period, Schedule
from billing.rating.prices import Proration

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Share:
    """`used` of `of` days (or microseconds, or the whole) of a full period; 0 <= used <= of."""

    used: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.used <= self.of or self.of == 0:
            raise ValueError(f"{self.used} of {self.of} is not a share")

    @property
    def fraction(self) -> Fraction:
        """The share as an exact number between 0 and 1."""
        return Fraction(self.used, self.of)


WHOLE = Share(1, 1)
NOTHING = Share(0, 1)


@dataclass(frozen=True, slots=True)
class BilledLine:
    """A line that was billed in advance. A change or an early end gives a part of it back.

    Args:
        full_amount: exact price of a full period at the line's quantity, major units.
        share: what of the full period the line billed.
        amount_minor, discount_minor: the line and the discounts that it got.
        credited_minor: what was given back on it before, 0 or more.
    """

    full_amount: Exact
    share: Share
    amount_minor: int
    discount_minor: int = 0
    credited_minor: int = 0

    @property
    def left_minor(self) -> int:
        """What can still be given back on this line."""
        return max(self.amount_minor - self.discount_minor - self.credited_minor, 0)


def share(schedule: Schedule, part: Period, mode: Proration, *, terminated: bool = False, bill_last_day: bool = False) -> Share:
    """How much of its full period a part is.

    - `day`: calendar days in the billing zone. The first day of the part counts, the day of its end does not: it
      belongs to what comes next, or is the day of termination.
    - `second`: elapsed time, so that an hour that a clock change adds or takes counts.
    - `fixed_30`: days of the 30E/360 calendar, where each month has 30; periods of days or weeks count as `day`.
    - `none`: the whole for the part that begins the period's billing, nothing for one that continues it.

    Args:
        part: of one of the schedule's periods.
        terminated: the part ends because the subscription does.
        bill_last_day: then bill the day on which it ends too (by days only, and never more than the full period).
    """
    if mode == Proration.NONE:
        return NOTHING if part.continues else WHOLE
    if mode != Proration.SECOND:
        of = _position(schedule, part, part.full_end, mode)
        if of > 0:
            last = _position(schedule, part, part.end, mode, include_day=terminated and bill_last_day)
            return Share(last - _position(schedule, part, part.start, mode), of)
    # Also where no midnight lies inside the period: a day that the zone's clocks jumped over.
    return Share((part.end - part.start) // MICROSECOND, (part.full_end - part.full_start) // MICROSECOND)


def prorated_minor(full_amount: Exact, part: Share, currency: str, *, before: Share = NOTHING) -> int:
    """A part's amount in minor units: exact price × share, rounded once.

    Args:
        full_amount: exact price of a full period, major units.
        before: what of the same period at the same price was billed in earlier lines; the part then continues where
            they stopped, so that all of them together are what one line would have been.
    """
    exact = Fraction(full_amount)
    start = exact * before.fraction
    return to_minor(start + exact * part.fraction, currency) - to_minor(start, currency)


def unused_credit_minor(line: BilledLine, unused: Share, currency: str) -> int:
    """What a line gives back for its unused part: of its price, less that part's discount; never more than is left.

    Args:
        unused: what is not used of the same full period as the line's share.

    Returns:
        0 or more, rounded once.
    """
    if not line.share.used:
        return 0
    discount = from_minor(line.discount_minor, currency) * unused.fraction / line.share.fraction
    exact = Fraction(line.full_amount) * unused.fraction - discount
    return min(max(to_minor(exact, currency), 0), line.left_minor)


def _position(schedule: Schedule, part: Period, instant: datetime, mode: Proration, *, include_day: bool = False) -> int:
    """Days from the full period's start to an instant of it, counted as `mode` does.

    Args:
        include_day: count the day of the instant itself, unless the instant is the first of that day.
    """
    day, first = schedule.local_date(instant), schedule.local_date(part.full_start)
    if include_day and schedule.local_date(instant - MICROSECOND) == day:
        day += timedelta(days=1)
    day = min(day, schedule.local_date(part.full_end))
    if mode == Proration.FIXED_30 and schedule.interval.months:
        return _position_360(schedule, part, day)
    return (day - first).days


def _position_360(schedule: Schedule, part: Period, day: date) -> int:
    """Days from the full period's start to `day` when every month has 30, 0 .. 30 × months.

    The boundaries count as the anchor's day even where a short month clamped them, so a period is never 28 or 32 days.

    Source: 30E/360 (ISDA 2006, section 4.16 (g)): day 31 is day 30.
    """
    first, whole = schedule.local_boundary(part.index), 30 * schedule.interval.months
    if day >= schedule.local_date(part.full_end):
        return whole
    months = (day.year - first.year) * 12 + day.month - first.month
    days = 30 * months + min(day.day, 30) - min(schedule.anchor.day, 30)
    return min(max(days, 0), whole)
