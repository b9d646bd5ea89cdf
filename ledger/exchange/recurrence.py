"""Credits of another system that come again, as the terms of a recurring grant."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ledger.periods import Interval, IntervalUnit, Schedule

_NO_NAME = re.compile(r"[^a-z0-9._-]+")
LONGEST_NAME = 40


def recurring_name(source_id: str) -> str:
    """Return the name of a recurring grant for the id that it has in its source."""
    return _NO_NAME.sub("-", source_id.lower()).strip("._-")[:LONGEST_NAME]


def next_boundary(starts_at: datetime, unit: str, count: int, after: datetime) -> datetime:
    """Return the first date of a schedule that lies after an instant: its start, or a later one at the same time of day in UTC.

    Args:
        unit: day, week, month or year; count: how many of them a period has.
    """
    schedule = Schedule.anchored_at(starts_at.astimezone(UTC), ZoneInfo("UTC"), Interval(IntervalUnit(unit), count))
    return starts_at if starts_at > after else schedule.period_at(after).end
