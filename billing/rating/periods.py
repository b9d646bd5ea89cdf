"""Billing periods: what is due when, by the periods of the calendar (`ledger.periods`). Pure, and independent of the clock.

A **part** is the active and unbilled part of a full period: a leading stub, a trailing stub, the rest after a change, or the
whole period. A part keeps the full period against which it is prorated.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

from ledger.periods import (
    DAYS_PER_UNIT,
    MAX_INTERVAL_COUNT,
    MONTHS_PER_UNIT,
    Interval,
    IntervalUnit,
    Period,
    Schedule,
    TimeSpan,
    add_months,
    aware,
    instant_of,
)

__all__ = [
    "MAX_INTERVAL_COUNT",
    "Interval",
    "IntervalUnit",
    "Period",
    "Schedule",
    "TimeSpan",
    "Timing",
    "add_months",
    "due",
    "first_charged_instant",
    "instant_of",
    "months_of",
    "periods",
]


class Timing(StrEnum):
    """When a period is billed: at its start or at its end."""

    ADVANCE = "advance"
    ARREARS = "arrears"


def periods(schedule: Schedule, start: datetime, end: datetime | None = None, *, continues: bool = False) -> Iterator[Period]:
    """Yield every period from `start` on, the oldest first: a leading stub, full periods, and a trailing stub at `end`.

    From the end of the last claim on, it yields the periods after that claim, whatever the claim's shape: billed periods do not
    change.

    Args:
        start: the first active instant that is not billed yet.
        end: the end of the active time; None: it has no end, and the iterator has none either.
        continues: the time before `start` was billed separately; marks a first period that begins inside a full period.
    """
    n, cursor = schedule.index_at(start), aware(start)
    while end is None or cursor < end:
        full = schedule.period(n)
        n += 1
        # A calendar day that a zone skipped as a whole (Samoa, 2011-12-30) makes two boundaries equal: there is no period
        # between.
        if full.end <= cursor:
            continue
        part_end = full.end if end is None else min(full.end, end)
        is_whole = cursor == full.start and part_end == full.end
        yield full if is_whole else replace(full, start=cursor, end=part_end, continues=continues and cursor > full.start)
        cursor = full.end


def due(timing: Timing, period: Period, as_of: datetime) -> bool:
    """Return whether the period can be billed at `as_of`: in advance from its start on, in arrears from its end on."""
    return as_of >= (period.start if timing == Timing.ADVANCE else period.end)


def months_of(interval: Interval) -> Fraction:
    """Return how many months an interval has; weeks and days by a year of 365 days."""
    if interval.unit in MONTHS_PER_UNIT:
        return Fraction(MONTHS_PER_UNIT[interval.unit] * interval.count)
    return Fraction(DAYS_PER_UNIT[interval.unit] * interval.count * 12, 365)


def first_charged_instant(started_at: datetime, trial_end: datetime | None) -> datetime:
    """Return when billing begins: at the start, or at the end of the trial if that is later."""
    return started_at if trial_end is None else max(started_at, trial_end)
