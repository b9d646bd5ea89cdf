"""The cost of a part of a period, and the credit for the unused part after a change. Pure and exact.

A part is measured in calendar days of the billing zone against its full period, never in hours / 24. The day of a change belongs
to the part that begins on it, so the days of the parts add up to the days of the whole.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

from billing.rating.money import Exact, from_minor, to_minor
from billing.rating.periods import Period, Schedule
from billing.rating.prices.price import Proration

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Share:
    """`used` of `of` days (or microseconds) of a full period, or all of it; 0 <= used <= of."""

    used: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.used <= self.of or self.of == 0:
            raise ValueError(f"{self.used} of {self.of} is not a share")

    @property
    def fraction(self) -> Fraction:
        """Return the share as an exact number between 0 and 1."""
        return Fraction(self.used, self.of)


WHOLE = Share(1, 1)
NOTHING = Share(0, 1)


@dataclass(frozen=True, slots=True)
class BilledLine:
    """A line that was billed in advance. A change or an early end gives a part of it back.

    Args:
        full_amount: exact price of a full period at the line's quantity, in major units.
        share: the part of the full period that the line billed.
        amount_minor, discount_minor: the amount of the line and its discounts.
        credited_minor: the amount that earlier lines gave back on it, 0 or more.
    """

    full_amount: Exact
    share: Share
    amount_minor: int
    discount_minor: int = 0
    credited_minor: int = 0

    @property
    def left_minor(self) -> int:
        """The amount that later lines can still give back on this line."""
        return max(self.amount_minor - self.discount_minor - self.credited_minor, 0)


def share(schedule: Schedule, part: Period, mode: Proration, *, terminated: bool = False, bill_last_day: bool = False) -> Share:
    """Return the share of a part in its full period.

    - `day`: calendar days in the billing zone. The first day of the part counts. The day of its end does not: it belongs to the
      next part, or is the day of termination.
    - `second`: elapsed time, so an hour that a clock change adds or removes counts.
    - `fixed_30`: days of the 30E/360 calendar, in which each month has 30; periods of days or weeks count as `day`.
    - `none`: a part that begins the billing of the period costs all of it, a part that continues costs 0.

    Args:
        part: a part of a period of the schedule.
        terminated: the part ends because the subscription ends.
        bill_last_day: in that case bill the last day too (only by days, and never more than the full period).
    """
    if mode == Proration.NONE:
        return NOTHING if part.continues else WHOLE
    if mode != Proration.SECOND:
        of = _position(schedule, part, part.full_end, mode)
        if of > 0:
            last = _position(schedule, part, part.end, mode, include_day=terminated and bill_last_day)
            return Share(last - _position(schedule, part, part.start, mode), of)
    # This also applies if the period contains no midnight, because the zone's clocks skipped a day.
    return Share((part.end - part.start) // MICROSECOND, (part.full_end - part.full_start) // MICROSECOND)


def prorated_minor(full_amount: Exact, part: Share, currency: str, *, before: Share = NOTHING) -> int:
    """Return a part's amount in minor units: exact price × share, rounded once.

    Args:
        full_amount: exact price of a full period, in major units.
        before: the share of the same period that earlier lines billed at the same price. The part continues there, so that all
            lines together have the amount of a single line.
    """
    exact = Fraction(full_amount)
    start = exact * before.fraction
    return to_minor(start + exact * part.fraction, currency) - to_minor(start, currency)


def unused_credit_minor(line: BilledLine, unused: Share, currency: str) -> int:
    """Return the credit of a line for its unused part: the price of that part less its discount; at most what is left.

    Args:
        unused: the unused share of the same full period as the line's share.

    Returns:
        0 or more, rounded once.
    """
    if not line.share.used:
        return 0
    discount = from_minor(line.discount_minor, currency) * unused.fraction / line.share.fraction
    exact = Fraction(line.full_amount) * unused.fraction - discount
    return min(max(to_minor(exact, currency), 0), line.left_minor)


def _position(schedule: Schedule, part: Period, instant: datetime, mode: Proration, *, include_day: bool = False) -> int:
    """Return the days from the full period's start to an instant of it, counted as `mode` says.

    Args:
        include_day: count the day of the instant itself, unless the instant is the start of that day.
    """
    day, first = schedule.local_date(instant), schedule.local_date(part.full_start)
    if include_day and schedule.local_date(instant - MICROSECOND) == day:
        day += timedelta(days=1)
    day = min(day, schedule.local_date(part.full_end))
    if mode == Proration.FIXED_30 and schedule.interval.months:
        return _position_360(schedule, part, day)
    return (day - first).days


def _position_360(schedule: Schedule, part: Period, day: date) -> int:
    """Return the days from the full period's start to `day` if every month has 30, 0 .. 30 × months.

    Boundaries count as the anchor's day even if a short month clamped them, so a period never has 28 or 32 days.

    Source: 30E/360 (ISDA 2006, section 4.16 (g)): day 31 counts as day 30.
    """
    first, whole = schedule.local_boundary(part.index), 30 * schedule.interval.months
    if day >= schedule.local_date(part.full_end):
        return whole
    months = (day.year - first.year) * 12 + day.month - first.month
    days = 30 * months + min(day.day, 30) - min(schedule.anchor.day, 30)
    return min(max(days, 0), whole)
