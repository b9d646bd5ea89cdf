"""Windows of budgets, compared with a clock that is wound forward minute by minute: days with 23 and 25 hours, ends of months."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.rules.budget_windows import HOUR_US, ROLLING_STEPS, end_of, oldest_of, step_of
from ledger.rules.instants import from_us, to_us

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "America/Sao_Paulo",
    "America/Havana", "Asia/Beirut", "Africa/Casablanca", "Pacific/Kiritimati",
)  # fmt: skip
INSTANTS = st.datetimes(datetime(2011, 1, 1), datetime(2037, 12, 31)).map(lambda each: to_us(each.replace(tzinfo=UTC)))
MINUTE_US = 60 * 1_000_000


def window_of_date(window: str, day: date) -> tuple[int, ...]:
    """What the dates of a window have in common."""
    return {"day": (day.toordinal(),), "week": day.isocalendar()[:2], "month": (day.year, day.month)}[window]


@pytest.mark.parametrize("window", ["day", "week", "month"])
@given(now_us=INSTANTS, zone=st.sampled_from(ZONES))
def test_a_window_of_the_calendar_has_exactly_the_instants_of_its_dates(window: str, now_us: int, zone: str) -> None:
    start_us = step_of(window, None, zone, now_us)
    end_us = end_of(window, None, zone, start_us)
    assert start_us <= now_us < end_us
    assert end_of(window, None, zone, now_us) == end_us
    assert oldest_of(window, None, zone, now_us) == start_us

    def common(instant_us: int) -> tuple[int, ...]:
        return window_of_date(window, from_us(instant_us).astimezone(ZoneInfo(zone)).date())

    assert common(start_us) == common(now_us) == common(end_us - 1)
    assert common(start_us - 1) != common(now_us) != common(end_us)
    assert (start_us % MINUTE_US, end_us % MINUTE_US) == (0, 0)


@given(now_us=INSTANTS, hours=st.integers(1, 744))
def test_a_rolling_window_never_forgets_what_is_younger_than_it(now_us: int, hours: int) -> None:
    start_us = step_of("rolling", hours, "UTC", now_us)
    assert start_us <= now_us < start_us + hours * HOUR_US // ROLLING_STEPS
    end_us = end_of("rolling", hours, "UTC", start_us)
    for instant_us in (end_us - 1, end_us):
        assert (start_us >= oldest_of("rolling", hours, "UTC", instant_us)) == (instant_us < end_us)
    assert now_us + hours * HOUR_US < end_us <= now_us + hours * HOUR_US * (ROLLING_STEPS + 1) // ROLLING_STEPS


@pytest.mark.parametrize(
    ("window", "zone", "now", "start", "end"),
    [
        ("day", "Europe/Berlin", "2026-03-29T12:00+00:00", "2026-03-28T23:00+00:00", "2026-03-29T22:00+00:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00+00:00", "2026-10-24T22:00+00:00", "2026-10-25T23:00+00:00"),
        ("week", "America/New_York", "2026-11-01T12:00+00:00", "2026-10-26T04:00+00:00", "2026-11-02T05:00+00:00"),
        ("day", "Africa/Monrovia", "1971-06-01T00:44:40+00:00", "1971-06-01T00:44:30+00:00", "1971-06-02T00:44:30+00:00"),
        ("month", "UTC", "2028-02-29T23:59:59+00:00", "2028-02-01T00:00+00:00", "2028-03-01T00:00+00:00"),
        ("month", "Asia/Kathmandu", "2026-12-31T18:15+00:00", "2026-12-31T18:15+00:00", "2027-01-31T18:15+00:00"),
        # The midnight of 2017-10-15 did not exist: the clocks went from 24:00 to 01:00.
        ("day", "America/Sao_Paulo", "2017-10-15T12:00+00:00", "2017-10-15T03:00+00:00", "2017-10-16T02:00+00:00"),
        # 2011-12-30 did not exist there: its day is left out.
        ("day", "Pacific/Apia", "2011-12-30T09:59+00:00", "2011-12-29T10:00+00:00", "2011-12-30T10:00+00:00"),
    ],
)
def test_days_of_23_and_25_hours_and_days_that_do_not_exist(window: str, zone: str, now: str, start: str, end: str) -> None:
    start_us = step_of(window, None, zone, to_us(datetime.fromisoformat(now)))
    assert from_us(start_us) == datetime.fromisoformat(start)
    assert from_us(end_of(window, None, zone, start_us)) == datetime.fromisoformat(end)


def test_a_rolling_day_counts_a_spend_for_24_hours_and_up_to_an_hour_more() -> None:
    spent = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    start_us = step_of("rolling", 24, "UTC", to_us(spent))
    assert from_us(start_us) == datetime(2026, 5, 1, 9, tzinfo=UTC)
    assert from_us(end_of("rolling", 24, "UTC", start_us)) - spent == timedelta(hours=24, minutes=30)
