"""The windows in which budgets count: days, weeks and months of a time zone, or the last hours.

What is used is counted in steps. The step of a day, week or month is the whole window: it counts until the next one begins. A
rolling window has 24 steps. A step counts until all of it is older than the window, so that no interval of the window's length
ever has more than the limit; what is used at the beginning of a step is given back up to a 24th of the window later.
"""

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from ledger.rules.instants import from_us, to_us

ROLLING: Final = "rolling"
WINDOWS: Final = (ROLLING, "day", "week", "month")
ROLLING_STEPS: Final = 24
MAX_HOURS: Final = 31 * 24
SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US


def step_of(window: str, hours: int | None, time_zone: str, now_us: int) -> int:
    """Return the start of the step to which `now_us` belongs."""
    if hours is None:
        return _calendar_step(window, time_zone, now_us // SECOND_US)[0]
    return now_us - now_us % _rolling_step_us(hours)


def end_of(window: str, hours: int | None, time_zone: str, start_us: int) -> int:
    """Return the instant from which the step that begins at `start_us` does not count any more."""
    if hours is None:
        return _calendar_step(window, time_zone, start_us // SECOND_US)[1]
    return start_us + _rolling_step_us(hours) + hours * HOUR_US


def oldest_of(window: str, hours: int | None, time_zone: str, now_us: int) -> int:
    """Return an instant: of all steps, those that begin at or after it still count at `now_us`, and no others."""
    if hours is None:
        return _calendar_step(window, time_zone, now_us // SECOND_US)[0]
    return now_us - _rolling_step_us(hours) - hours * HOUR_US + 1


def window_of(window: str, hours: int | None, time_zone: str, now_us: int) -> range:
    """Return the starts of the steps that count at `now_us`: one, or 25 of a rolling window."""
    if hours is None:
        start_us = _calendar_step(window, time_zone, now_us // SECOND_US)[0]
        return range(start_us, start_us + 1)
    step_us = _rolling_step_us(hours)
    last = now_us - now_us % step_us
    return range(last - hours * HOUR_US, last + 1, step_us)


def _rolling_step_us(hours: int) -> int:
    return hours * HOUR_US // ROLLING_STEPS


@lru_cache(maxsize=4096)
def _day_begins(time_zone: str, day: date) -> int:
    # A midnight that the clocks skip counts as the instant at which they do; of two midnights, the first begins the day.
    return to_us(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(time_zone)))


@lru_cache(maxsize=4096)
def _calendar_step(window: str, time_zone: str, second: int) -> tuple[int, int]:
    # Days begin at whole seconds in every zone, so all instants of a second have one step. A spend asks for it several times.
    today = from_us(second * SECOND_US).astimezone(ZoneInfo(time_zone)).date()
    if window == "day":
        first, following = today, today + timedelta(days=1)
    elif window == "week":
        first = today - timedelta(days=today.weekday())
        following = first + timedelta(days=7)
    else:
        first = today.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    return _day_begins(time_zone, first), _day_begins(time_zone, following)
