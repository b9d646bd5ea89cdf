"""Months in UTC, by their first day."""

from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from typing import Final

BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""No entry is earlier."""


def month_after(month: date) -> date:
    """Return the first day of the next month."""
    return (month + timedelta(days=31)).replace(day=1)


def month_before(month: date) -> date:
    """Return the first day of the month before that of a day."""
    return (month.replace(day=1) - timedelta(days=1)).replace(day=1)


def starts(month: date) -> datetime:
    """Return the first instant of a month, in UTC."""
    return datetime(month.year, month.month, 1, tzinfo=UTC)


def month_of(text: str) -> date | None:
    """Return the first day of a month that is written as 2026-01, or None.

    None too for the first and the last year of the calendar, in which a month may have no other before or after it.
    """
    try:
        month = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date() if len(text) == len("2026-01") else None
    except ValueError:
        return None
    return month if month is None or MINYEAR < month.year < MAXYEAR else None
