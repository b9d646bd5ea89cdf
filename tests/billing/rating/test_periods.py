"""Boundaries are counted from the anchor in local time, and periods leave neither gap nor overlap."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from dateutil import tz
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.periods import (
    Interval,
    IntervalUnit,
    Period,
    Schedule,
    Timing,
    due,
    first_charged_instant,
    instant_of,
    months_of,
    periods,
)
from ledger.periods import KEPT_OF_A_SCHEDULE
from tests.billing.rating.builders import PROPERTY, ZONES_WITH_DST, periods_due, schedule, utc


def local_starts(of: Schedule, count: int) -> list[str]:
    """The first boundaries of a schedule, as local time."""
    return [of.boundary(n).strftime("%Y-%m-%dT%H:%M") for n in range(count)]


# From the anchor, clamped ----------------------------------------------------------------------------


def test_a_month_end_anchor_is_clamped_and_comes_back() -> None:
    assert local_starts(schedule("2026-01-31"), 6) == [
        "2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00", "2026-04-30T00:00", "2026-05-31T00:00", "2026-06-30T00:00",
    ]  # fmt: skip


def test_a_leap_year_clamps_to_the_29th() -> None:
    assert local_starts(schedule("2023-12-30"), 4) == [
        "2023-12-30T00:00",
        "2024-01-30T00:00",
        "2024-02-29T00:00",
        "2024-03-30T00:00",
    ]


def test_a_leap_day_anchor_is_the_28th_in_common_years() -> None:
    assert local_starts(schedule("2024-02-29", unit="year"), 5) == [
        "2024-02-29T00:00", "2025-02-28T00:00", "2026-02-28T00:00", "2027-02-28T00:00", "2028-02-29T00:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "count", "expected"),
    [
        ("day", 10, ["2026-01-31", "2026-02-10", "2026-02-20"]),
        ("week", 1, ["2026-01-31", "2026-02-07", "2026-02-14"]),
        ("week", 2, ["2026-01-31", "2026-02-14", "2026-02-28"]),
        ("month", 1, ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("month", 2, ["2026-01-31", "2026-03-31", "2026-05-31"]),
        ("quarter", 1, ["2026-01-31", "2026-04-30", "2026-07-31"]),
        ("half_year", 1, ["2026-01-31", "2026-07-31", "2027-01-31"]),
        ("year", 1, ["2026-01-31", "2027-01-31", "2028-01-31"]),
        ("year", 2, ["2026-01-31", "2028-01-31", "2030-01-31"]),
    ],
)
def test_boundaries_are_one_interval_apart(unit: str, count: int, expected: list[str]) -> None:
    boundaries = schedule("2026-01-31", unit=unit, count=count)
    assert [boundaries.boundary(n).date().isoformat() for n in range(3)] == expected


def test_a_quarter_is_three_months_a_half_year_six_and_a_year_twelve() -> None:
    months = schedule("2024-08-31T17:45", "Europe/Berlin")
    for unit, length in (("quarter", 3), ("half_year", 6), ("year", 12)):
        longer = schedule("2024-08-31T17:45", "Europe/Berlin", unit)
        assert [longer.boundary(n) for n in range(-8, 9)] == [months.boundary(n * length) for n in range(-8, 9)]


def test_boundaries_before_the_anchor_have_negative_numbers() -> None:
    of = schedule("2026-01-31")
    assert [of.boundary(n).date().isoformat() for n in (-1, -2, -11, -23)] == [
        "2025-12-31", "2025-11-30", "2025-02-28", "2024-02-29",
    ]  # fmt: skip


@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.0])
def test_an_interval_has_a_sensible_count(count: object) -> None:
    with pytest.raises(ValueError, match="interval count"):
        Interval(IntervalUnit.MONTH, count)  # type: ignore[arg-type]


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="fortnight"):
        Interval("fortnight")  # type: ignore[arg-type]


def test_boundaries_end_with_the_calendar() -> None:
    with pytest.raises(OverflowError):
        schedule("9999-12-01").boundary(1)
    with pytest.raises(OverflowError):
        schedule("0001-01-01").boundary(-1)


# Local time ------------------------------------------------------------------------------------------


def test_the_anchors_time_of_day_is_kept_over_clock_changes() -> None:
    # 09:00 in Berlin is 08:00 UTC in winter and 07:00 UTC in summer.
    assert local_starts(schedule("2026-02-15T09:00", "Europe/Berlin"), 3) == [
        "2026-02-15T08:00",
        "2026-03-15T08:00",
        "2026-04-15T07:00",
    ]
    # New York changes three weeks before Berlin does.
    assert local_starts(schedule("2026-02-15T09:00", "America/New_York"), 3) == [
        "2026-02-15T14:00",
        "2026-03-15T13:00",
        "2026-04-15T13:00",
    ]
    # In Santiago the summer ends in April.
    assert local_starts(schedule("2026-03-15T09:00", "America/Santiago"), 3) == [
        "2026-03-15T12:00",
        "2026-04-15T13:00",
        "2026-05-15T13:00",
    ]


@pytest.mark.parametrize(
    ("zone", "missing", "shown_then", "instant"),
    [
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T03:30", "2026-03-29T01:30"),
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T03:30", "2026-03-08T07:30"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-04T02:45", "2026-10-03T15:45"),
        ("Asia/Beirut", "2026-03-29T00:10", "2026-03-29T01:10", "2026-03-28T22:10"),
        ("America/Nuuk", "2026-03-28T23:30", "2026-03-29T00:30", "2026-03-29T01:30"),
    ],
)
def test_a_time_that_does_not_exist_moves_forward_by_the_gap(zone: str, missing: str, shown_then: str, instant: str) -> None:
    found = instant_of(datetime.fromisoformat(missing), ZoneInfo(zone))
    assert found == utc(instant)
    assert found.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == datetime.fromisoformat(shown_then)


@pytest.mark.parametrize(
    ("zone", "twice", "first"),
    [
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30"),
        ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45"),
        ("America/Santiago", "2026-04-04T23:15", "2026-04-05T02:15"),
    ],
)
def test_a_time_that_exists_twice_is_the_first(zone: str, twice: str, first: str) -> None:
    assert instant_of(datetime.fromisoformat(twice), ZoneInfo(zone)) == utc(first)


def test_after_a_gap_the_anchors_time_is_back() -> None:
    of = schedule("2026-01-29T02:30", "Europe/Berlin")
    local = [of.boundary(n).astimezone(of.zone).strftime("%m-%d %H:%M") for n in range(4)]
    assert local == ["01-29 02:30", "02-28 02:30", "03-29 03:30", "04-29 02:30"]


def test_an_anchor_read_from_the_second_of_two_equal_times_counts_from_the_first() -> None:
    second = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    of = Schedule.anchored_at(second, ZoneInfo("Europe/Berlin"), Interval(IntervalUnit.MONTH))
    assert of.anchor == datetime(2026, 10, 25, 2, 30)
    assert of.boundary(0) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_an_anchor_given_as_an_instant_is_read_in_the_billing_zone() -> None:
    of = Schedule.anchored_at(utc("2026-01-31T23:30"), ZoneInfo("Europe/Berlin"), Interval(IntervalUnit.MONTH))
    assert of.anchor == datetime(2026, 2, 1, 0, 30)
    assert of.boundary(1) == utc("2026-02-28T23:30")


def test_naive_instants_and_aware_anchors_are_refused() -> None:
    with pytest.raises(ValueError, match="local time"):
        Schedule(utc("2026-01-01"), ZoneInfo("UTC"), Interval(IntervalUnit.DAY))
    with pytest.raises(ValueError, match="offset"):
        schedule("2026-01-01").index_at(datetime(2026, 1, 1))


# Periods ---------------------------------------------------------------------------------------------


def test_periods_are_half_open() -> None:
    of = schedule("2026-01-31")
    assert of.index_at(utc("2026-02-28")) == 1
    assert of.index_at(utc("2026-02-28") - timedelta(microseconds=1)) == 0
    assert of.period_at(utc("2026-01-31")) == of.period(0)


def test_an_anchor_before_the_start_makes_a_stub_up_to_the_first_boundary() -> None:
    first, second = islice(periods(schedule("2025-12-01"), utc("2026-01-20T14:00")), 2)
    assert (first.start, first.end) == (utc("2026-01-20T14:00"), utc("2026-02-01"))
    assert (first.full_start, first.full_end) == (utc("2026-01-01"), utc("2026-02-01"))
    assert (second.start, second.end) == (second.full_start, second.full_end) == (utc("2026-02-01"), utc("2026-03-01"))


def test_an_anchor_after_the_start_makes_a_stub_up_to_the_anchor() -> None:
    first, second = islice(periods(schedule("2026-02-01"), utc("2026-01-20")), 2)
    assert (first.index, first.start, first.end) == (-1, utc("2026-01-20"), utc("2026-02-01"))
    assert (first.full_start, first.full_end) == (utc("2026-01-01"), utc("2026-02-01"))
    assert second == schedule("2026-02-01").period(0)


def test_an_anchor_far_after_the_start_has_full_periods_before_it() -> None:
    found = list(islice(periods(schedule("2026-03-31"), utc("2026-01-10")), 4))
    assert [(p.index, p.start.date().isoformat()) for p in found] == [
        (-3, "2026-01-10"), (-2, "2026-01-31"), (-1, "2026-02-28"), (0, "2026-03-31"),
    ]  # fmt: skip


def test_a_start_on_a_boundary_has_no_stub() -> None:
    assert next(periods(schedule("2026-01-31"), utc("2026-02-28"))) == schedule("2026-01-31").period(1)


def test_an_end_inside_a_period_makes_a_trailing_stub() -> None:
    *_, last = periods(schedule("2026-01-31"), utc("2026-01-31"), utc("2026-03-10"))
    assert (last.start, last.end, last.full_end) == (utc("2026-02-28"), utc("2026-03-10"), utc("2026-03-31"))


def test_an_end_on_a_boundary_leaves_no_empty_period() -> None:
    assert [p.index for p in periods(schedule("2026-01-31"), utc("2026-01-31"), utc("2026-02-28"))] == [0]
    assert list(periods(schedule("2026-01-31"), utc("2026-01-31"), utc("2026-01-31"))) == []


def test_what_was_billed_wrongly_is_not_rewritten() -> None:
    # Somebody billed up to Mar 3 instead of Feb 28: the next period is what is left of March.
    following = next(periods(schedule("2026-01-31"), utc("2026-03-03"), continues=True))
    assert following == Period(1, utc("2026-03-03"), utc("2026-03-31"), utc("2026-02-28"), utc("2026-03-31"), True)


def test_only_what_begins_inside_a_period_continues_it() -> None:
    inside, after = islice(periods(schedule("2026-01-01"), utc("2026-01-05"), continues=True), 2)
    assert (inside.continues, after.continues) == (True, False)
    assert next(periods(schedule("2026-01-01"), utc("2026-01-05"))).continues is False


def test_a_day_that_a_zone_skipped_is_no_period() -> None:
    # Samoa went from Dec 29 to Dec 31, 2011.
    of = schedule("2011-12-28", "Pacific/Apia", "day")
    assert of.boundary(2) == of.boundary(3)
    found = list(islice(periods(of, of.boundary(0)), 4))
    assert [p.index for p in found] == [0, 1, 3, 4]
    assert all(p.start < p.end for p in found)


# Due -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timing", "as_of", "expected"),
    [
        (Timing.ADVANCE, "2025-12-31T23:59:59.999999", False),
        (Timing.ADVANCE, "2026-01-01", True),
        (Timing.ADVANCE, "2026-06-01", True),
        (Timing.ARREARS, "2026-01-01", False),
        (Timing.ARREARS, "2026-01-31T23:59:59.999999", False),
        (Timing.ARREARS, "2026-02-01", True),
    ],
)
def test_in_advance_is_due_at_the_start_and_in_arrears_at_the_end(timing: Timing, as_of: str, expected: bool) -> None:
    assert due(timing, schedule("2026-01-01").period(0), utc(as_of)) is expected


def test_a_run_catches_up_all_missed_periods_oldest_first() -> None:
    missed = list(
        periods_due(
            schedule("2026-01-31"), timing=Timing.ARREARS, start=utc("2026-01-31"), end=None, as_of=utc("2026-06-29T23:59")
        )
    )
    assert [p.start.date().isoformat() for p in missed] == ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]


def test_the_end_of_a_subscription_is_the_end_of_its_last_period() -> None:
    found = list(
        periods_due(
            schedule("2026-01-01"), timing=Timing.ARREARS, start=utc("2026-01-01"), end=utc("2026-02-10"), as_of=utc("2026-02-10")
        )
    )
    assert [(p.start, p.end) for p in found] == [
        (utc("2026-01-01"), utc("2026-02-01")),
        (utc("2026-02-01"), utc("2026-02-10")),
    ]


def test_a_trial_moves_the_first_charge_to_its_end() -> None:
    assert first_charged_instant(utc("2026-01-01"), None) == utc("2026-01-01")
    assert first_charged_instant(utc("2026-01-01"), utc("2026-01-15")) == utc("2026-01-15")
    assert first_charged_instant(utc("2026-01-20"), utc("2026-01-15")) == utc("2026-01-20")


# Inactive time ---------------------------------------------------------------------------------------


# Properties ------------------------------------------------------------------------------------------


def independent_boundary(anchor: datetime, zone: str, step: relativedelta) -> datetime:
    """The same convention by another library: dateutil's arithmetic and its own time zone reader."""
    local = (anchor + step).replace(tzinfo=tz.gettz(zone), fold=0)
    return tz.resolve_imaginary(local).astimezone(UTC)


@pytest.mark.parametrize("zone", ZONES_WITH_DST)
@pytest.mark.parametrize("day", [28, 29, 30, 31])
def test_thirty_years_of_months_have_no_gap_and_no_overlap(zone: str, day: int) -> None:
    # 02:30 falls into a gap or a repeated hour somewhere in most of the zones; leap years 2004 .. 2032 are among these.
    anchor = datetime(2004, 1, day, 2, 30)
    of = Schedule(anchor, ZoneInfo(zone), Interval(IntervalUnit.MONTH))
    found = list(islice(periods(of, of.boundary(0)), 360))
    assert found[0].start == of.boundary(0)
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all((p.start, p.end) == (p.full_start, p.full_end) and p.start < p.end for p in found)
    assert [p.index for p in found] == list(range(360))
    assert [p.start for p in found] == [independent_boundary(anchor, zone, relativedelta(months=n)) for n in range(360)]


@pytest.mark.parametrize("zone", ZONES_WITH_DST)
def test_days_over_every_clock_change_have_no_gap_and_no_overlap(zone: str) -> None:
    for hour, minute in ((0, 0), (0, 30), (1, 45), (2, 15), (2, 30), (23, 30)):
        anchor = datetime(2026, 1, 1, hour, minute)
        of = Schedule(anchor, ZoneInfo(zone), Interval(IntervalUnit.DAY))
        found = list(islice(periods(of, of.boundary(0)), 366))
        assert all(a.end == b.start for a, b in pairwise(found))
        assert [p.start for p in found] == [independent_boundary(anchor, zone, relativedelta(days=n)) for n in range(366)]


schedules = st.builds(
    Schedule,
    st.datetimes(datetime(1995, 1, 1), datetime(2045, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    st.sampled_from(ZONES_WITH_DST).map(ZoneInfo),
    st.builds(Interval, st.sampled_from(list(IntervalUnit)), st.integers(1, 13)),
)
instants = st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@PROPERTY
@given(schedules, instants)
def test_every_instant_is_in_exactly_the_period_found_for_it(of: Schedule, instant: datetime) -> None:
    n = of.index_at(instant)
    assert of.boundary(n) <= instant < of.boundary(n + 1)


@PROPERTY
@given(schedules, instants)
def test_a_search_from_every_boundary_finds_it(of: Schedule, near: datetime) -> None:
    n = of.index_at(near)
    assert of.index_at(of.boundary(n)) == n
    assert of.index_at(of.boundary(n) - timedelta(microseconds=1)) < n


@PROPERTY
@given(schedules, instants, st.integers(1, 1500), st.data())
def test_stopping_anywhere_and_going_on_covers_the_same_time(
    of: Schedule, start: datetime, days: int, data: st.DataObject
) -> None:
    end = start + timedelta(days=days)
    whole = list(periods(of, start, end))
    stop = start + (end - start) * data.draw(st.integers(1, 999)) / 1000
    pieces = [*periods(of, start, stop), *periods(of, stop, end, continues=True)]
    assert (whole[0].start, whole[-1].end) == (start, end) == (pieces[0].start, pieces[-1].end)
    assert all(a.end == b.start for a, b in pairwise(whole))
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert {p.start for p in whole} | {stop} == {p.start for p in pieces}


@PROPERTY
@given(schedules, instants, st.sampled_from(list(Timing)), st.lists(st.integers(0, 900), min_size=1, max_size=8))
def test_one_run_for_all_finds_what_many_runs_would(of: Schedule, start: datetime, timing: Timing, days: list[int]) -> None:
    runs = [start + timedelta(days=day) for day in sorted(days)]
    end = start + timedelta(days=700)
    at_once = list(periods_due(of, timing=timing, start=start, end=end, as_of=runs[-1]))
    billed: list[Period] = []
    for as_of in runs:
        since = billed[-1].end if billed else start
        billed += periods_due(of, timing=timing, start=since, end=end, as_of=as_of)
    assert billed == at_once


def test_a_boundary_is_worked_out_once_and_no_more_of_them_are_kept_than_are_said() -> None:
    schedule = Schedule.anchored_at(datetime(2026, 1, 31, tzinfo=UTC), ZoneInfo("Europe/Berlin"), Interval(IntervalUnit.DAY))
    again = Schedule.anchored_at(datetime(2026, 1, 31, tzinfo=UTC), ZoneInfo("Europe/Berlin"), Interval(IntervalUnit.DAY))
    assert again is schedule
    assert again.period(7) is schedule.period(7)
    assert schedule.period_at(schedule.period(7).start) is schedule.period(7)
    # A neighbour shares its boundary, and what was forgotten is worked out again as it was.
    known = [schedule.period(n) for n in range(2 * KEPT_OF_A_SCHEDULE)]
    assert all(one.end is following.start for one, following in pairwise(known) if following.index != KEPT_OF_A_SCHEDULE)
    assert len(schedule._periods) <= KEPT_OF_A_SCHEDULE
    assert [schedule.period(n) for n in range(20)] == known[:20]
    assert schedule == Schedule(schedule.anchor, schedule.zone, schedule.interval)


def test_an_interval_has_months_on_average() -> None:
    assert months_of(Interval(IntervalUnit.QUARTER, 2)) == 6
    assert months_of(Interval(IntervalUnit.YEAR)) == 12
    assert months_of(Interval(IntervalUnit.WEEK)) * 365 == 7 * 12
    assert months_of(Interval(IntervalUnit.DAY, 365)) == 12
