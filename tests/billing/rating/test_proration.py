"""Parts of a period by calendar days in the billing zone, and what a change gives back."""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.periods import Period, Schedule, first_charged_instant, periods
from billing.rating.prices.price import Proration
from billing.rating.proration import (
    NOTHING,
    WHOLE,
    BilledLine,
    Share,
    prorated_minor,
    share,
    unused_credit_minor,
)
from tests.billing.rating.builders import PROPERTY, ZONES_WITH_DST, change, in_zone, part, schedule, unused_share, utc
from tests.billing.rating.test_periods import instants, schedules

FIRST = schedule("2026-01-01")


# Days ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "start", "end", "expected"),
    [
        (FIRST, "2026-01-20", "2026-02-01", Share(12, 31)),  # Jan 20 .. 31
        (FIRST, "2026-02-15", "2026-03-01", Share(14, 28)),
        (schedule("2024-01-01"), "2024-02-15", "2024-03-01", Share(15, 29)),  # a leap year
        (FIRST, "2026-04-01", "2026-04-11", Share(10, 30)),
        (FIRST, "2026-01-01", "2026-02-01", Share(31, 31)),
        (schedule("2026-01-31"), "2026-02-28", "2026-03-10", Share(10, 31)),  # Feb 28 .. Mar 9 of Feb 28 .. Mar 30
        (schedule("2026-01-01", unit="quarter"), "2026-02-10", "2026-04-01", Share(50, 90)),  # 19 + 31 of 31 + 28 + 31
        (schedule("2026-01-01", unit="year"), "2026-07-01", "2027-01-01", Share(184, 365)),  # 31+31+30+31+30+31
        (schedule("2026-01-05", unit="week"), "2026-01-07", "2026-01-12", Share(5, 7)),
    ],
)
def test_a_part_is_its_days_of_the_days_of_the_full_period(of: Schedule, start: str, end: str, expected: Share) -> None:
    assert share(of, part(of, utc(start), utc(end)), Proration.DAY) == expected


@pytest.mark.parametrize(
    ("start", "days"),
    [("2026-01-20T00:00", 12), ("2026-01-20T00:01", 12), ("2026-01-20T23:59:59", 12), ("2026-01-21T00:00", 11)],
)
def test_a_day_that_has_begun_counts_whole_never_by_hours(start: str, days: int) -> None:
    assert share(FIRST, part(FIRST, utc(start), utc("2026-02-01")), Proration.DAY) == Share(days, 31)


@pytest.mark.parametrize(
    ("zone", "days"),
    [("UTC", 12), ("Europe/Berlin", 11), ("America/New_York", 12)],
)
def test_days_are_those_of_the_billing_zone(zone: str, days: int) -> None:
    # 23:30 UTC on Jan 20 is Jan 21 in Berlin, and 18:30 on Jan 20 in New York.
    of = schedule("2026-01-01", zone)
    leading = part(of, utc("2026-01-20T23:30"), of.boundary(1))
    assert share(of, leading, Proration.DAY) == Share(days, 31)


@pytest.mark.parametrize(
    ("zone", "start", "end", "seconds", "of_hours"),
    [
        # The last three days of March in Berlin have 71 hours, the month 743.
        ("Europe/Berlin", "2026-03-29T00:00", "2026-04-01T00:00", 71 * 3600, 743),
        # The first day of November in New York has 25 hours, the month 721.
        ("America/New_York", "2026-11-01T00:00", "2026-11-02T00:00", 25 * 3600, 721),
        ("UTC", "2026-04-01T00:00", "2026-04-01T00:00:30", 30, 720),
    ],
)
def test_by_seconds_a_clock_change_counts_and_by_days_it_does_not(
    zone: str, start: str, end: str, seconds: int, of_hours: int
) -> None:
    of = schedule("2026-01-01", zone)
    piece = part(of, in_zone(start, zone), in_zone(end, zone))
    assert share(of, piece, Proration.SECOND).fraction == Fraction(seconds, of_hours * 3600)
    by_days = share(of, piece, Proration.DAY)
    assert by_days.of in (30, 31)
    assert by_days.used == (datetime.fromisoformat(end).date() - datetime.fromisoformat(start).date()).days


def test_a_period_without_a_midnight_is_measured_by_time() -> None:
    # In Nuuk the clocks went from 23:00 on Mar 28 to 00:00 on Mar 29: the day that should begin at 23:30 begins at 00:30.
    of = schedule("2026-03-01T23:30", "America/Nuuk", "day")
    short = of.period_at(utc("2026-03-29T12:00"))
    assert (short.start, short.end) == (utc("2026-03-29T01:30"), utc("2026-03-30T00:30"))
    assert share(of, short, Proration.DAY).fraction == 1
    # It has 23 hours, of which the first 11½ are a half.
    assert share(of, part(of, short.start, utc("2026-03-29T13:00")), Proration.DAY).fraction == Fraction(1, 2)


# Changes and ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["2026-01-20T00:00", "2026-01-20T08:00", "2026-01-20T23:59"])
def test_the_day_of_a_change_belongs_to_the_new_version(at: str) -> None:
    old, new = part(FIRST, utc("2026-01-01"), utc(at)), part(FIRST, utc(at), utc("2026-02-01"))
    assert share(FIRST, old, Proration.DAY) == Share(19, 31)
    assert share(FIRST, new, Proration.DAY) == Share(12, 31)


def test_of_two_changes_on_one_day_the_later_has_the_day() -> None:
    times = ["2026-01-01", "2026-01-20T09:00", "2026-01-20T17:00", "2026-02-01"]
    used = [share(FIRST, part(FIRST, utc(a), utc(b)), Proration.DAY).used for a, b in itertools.pairwise(times)]
    assert used == [19, 0, 12]


@pytest.mark.parametrize(
    ("ends", "bill_last_day", "days"),
    [
        ("2026-01-20T15:00", False, 19),
        ("2026-01-20T15:00", True, 20),
        ("2026-01-20T00:00", False, 19),
        ("2026-01-20T00:00", True, 19),  # nothing of Jan 20 was active
        ("2026-01-01T15:00", False, 0),
        ("2026-01-01T15:00", True, 1),
        ("2026-01-31T15:00", True, 31),
    ],
)
def test_the_day_of_termination_is_not_billed_unless_asked_for(ends: str, bill_last_day: bool, days: int) -> None:
    last = part(FIRST, utc("2026-01-01"), utc(ends))
    assert share(FIRST, last, Proration.DAY, terminated=True, bill_last_day=bill_last_day) == Share(days, 31)


def test_the_last_day_is_billed_for_terminations_only() -> None:
    changed = part(FIRST, utc("2026-01-01"), utc("2026-01-20T15:00"))
    assert share(FIRST, changed, Proration.DAY, bill_last_day=True) == Share(19, 31)


def test_the_last_day_never_makes_more_than_the_period() -> None:
    # From 10:00 on the 15th to 10:00 on the 15th: an end at 08:00 on the last day is 31 of 31 days already.
    of = schedule("2026-01-15T10:00")
    last = part(of, utc("2026-01-15T10:00"), utc("2026-02-15T08:00"))
    assert share(of, last, Proration.DAY, terminated=True, bill_last_day=True) == Share(31, 31)


def test_by_days_of_30_the_last_day_counts_too() -> None:
    last = part(FIRST, utc("2026-01-01"), utc("2026-01-20T15:00"))
    assert share(FIRST, last, Proration.FIXED_30, terminated=True, bill_last_day=True) == Share(20, 30)


# Stubs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchor", "start", "expected", "minor"),
    [
        ("2025-12-01", "2026-01-20", Share(12, 31), 1200),  # 31.00 × 12/31
        ("2026-02-01", "2026-01-20", Share(12, 31), 1200),  # the anchor after the start: the same period ends at it
        ("2026-02-15", "2026-02-01", Share(14, 31), 1400),  # Jan 15 .. Feb 14 has 31 days
    ],
)
def test_a_leading_stub_is_measured_against_the_period_that_ends_at_its_end(
    anchor: str, start: str, expected: Share, minor: int
) -> None:
    of = schedule(anchor)
    stub = next(periods(of, utc(start)))
    found = share(of, stub, Proration.DAY)
    assert found == expected
    assert prorated_minor(Decimal(31), found, "EUR") == minor


@pytest.mark.parametrize(
    ("anchor", "ends", "expected", "minor"),
    [
        ("2026-01-01", "2026-04-11", Share(10, 30), 1033),  # 31.00 × 10/30 = 10.333…
        ("2026-01-31", "2026-03-10", Share(10, 31), 1000),  # from Feb 28, of Feb 28 .. Mar 30
        ("2026-01-15", "2026-02-20", Share(5, 28), 554),  # Feb 15 .. Mar 14 has 28 days; 31 × 5/28 = 5.5357…
    ],
)
def test_a_trailing_stub_is_measured_against_the_period_that_starts_at_its_start(
    anchor: str, ends: str, expected: Share, minor: int
) -> None:
    of = schedule(anchor)
    *_, stub = periods(of, of.boundary(0), utc(ends))
    found = share(of, stub, Proration.DAY, terminated=True)
    assert found == expected
    assert prorated_minor(Decimal(31), found, "EUR") == minor


@pytest.mark.parametrize(
    ("trial_end", "expected", "minor"),
    [("2026-01-15", Share(17, 31), 1700), ("2026-01-31", Share(1, 31), 100), ("2026-02-01", Share(28, 28), 3100)],
)
def test_the_first_period_after_a_trial_is_prorated_from_its_end(trial_end: str, expected: Share, minor: int) -> None:
    first = next(periods(FIRST, first_charged_instant(utc("2026-01-01"), utc(trial_end))))
    found = share(FIRST, first, Proration.DAY)
    assert found == expected
    assert prorated_minor(Decimal(31), found, "EUR") == minor


# Months of 30 days -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "start", "end", "expected"),
    [
        (FIRST, "2026-01-16", "2026-02-01", Share(15, 30)),
        (FIRST, "2026-01-30", "2026-02-01", Share(1, 30)),
        (FIRST, "2026-01-31", "2026-02-01", Share(1, 30)),  # day 31 is day 30
        (FIRST, "2026-02-15", "2026-03-01", Share(16, 30)),  # February has 30 days here
        (FIRST, "2026-02-28", "2026-03-01", Share(3, 30)),
        (FIRST, "2026-02-01", "2026-03-01", Share(30, 30)),
        (schedule("2026-01-31"), "2026-02-15", "2026-02-28", Share(15, 30)),  # clamped: Feb 28 stands for day 30
        (schedule("2026-01-31"), "2026-02-28", "2026-03-31", Share(30, 30)),
        (schedule("2026-01-31"), "2026-02-28", "2026-03-15", Share(15, 30)),
        (schedule("2026-01-01", unit="quarter"), "2026-02-10", "2026-04-01", Share(51, 90)),  # 21 + 30
        (schedule("2026-01-01", unit="year"), "2026-07-01", "2027-01-01", Share(180, 360)),
        (schedule("2026-01-05", unit="week"), "2026-01-07", "2026-01-12", Share(5, 7)),  # weeks have no months
    ],
)
def test_with_fixed_30_every_month_has_30_days(of: Schedule, start: str, end: str, expected: Share) -> None:
    assert share(of, part(of, utc(start), utc(end)), Proration.FIXED_30) == expected


# No proration ----------------------------------------------------------------------------------------


def test_without_proration_a_stub_is_owed_whole() -> None:
    assert share(FIRST, next(periods(FIRST, utc("2026-01-20"))), Proration.NONE) == WHOLE


def test_without_proration_what_continues_a_period_owes_nothing_more() -> None:
    first, rest = part(FIRST, utc("2026-01-01"), utc("2026-01-20")), part(FIRST, utc("2026-01-20"), utc("2026-02-01"))
    assert (share(FIRST, first, Proration.NONE), share(FIRST, rest, Proration.NONE)) == (WHOLE, NOTHING)


def test_without_proration_nothing_is_given_back_once_the_period_began() -> None:
    whole = FIRST.period(0)
    assert unused_share(FIRST, whole, utc("2026-01-20"), Proration.NONE).used == 0
    assert unused_share(FIRST, whole, utc("2026-01-01"), Proration.NONE) == WHOLE


# Rounding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("full", "used", "of", "currency", "minor"),
    [
        ("100", 10, 30, "EUR", 3333),
        ("100", 20, 30, "EUR", 6667),
        ("0.05", 15, 30, "EUR", 3),  # 0.025 is a half of a cent
        ("100.01", 15, 30, "EUR", 5001),  # 50.005
        ("1000", 1, 31, "JPY", 32),  # 32.258…
        ("100", 1, 3, "KWD", 33333),
    ],
)
def test_a_part_is_rounded_once(full: str, used: int, of: int, currency: str, minor: int) -> None:
    assert prorated_minor(Decimal(full), Share(used, of), currency) == minor


def test_a_part_that_continues_another_takes_up_its_rounding() -> None:
    # Thirds of 100: 33.33, then 66.67 less 33.33, then 100 less 66.67.
    parts = [prorated_minor(Decimal(100), Share(10, 30), "EUR", before=Share(used, 30)) for used in (0, 10, 20)]
    assert parts == [3333, 3334, 3333]


@pytest.mark.parametrize(("used", "of"), [(-1, 3), (4, 3), (0, 0)])
def test_a_share_is_between_nothing_and_the_whole(used: int, of: int) -> None:
    with pytest.raises(ValueError, match="not a share"):
        Share(used, of)


# A change in a period billed in advance --------------------------------------------------------------


def unused_from(day: str, start: str = "2026-01-01") -> Share:
    """The share that is left of a part of January from that day on."""
    return unused_share(FIRST, part(FIRST, utc(start), utc("2026-02-01")), utc(day), Proration.DAY)


HUNDRED = BilledLine(full_amount=Decimal(100), share=Share(31, 31), amount_minor=10000)


@pytest.mark.parametrize(
    ("day", "new_full", "expected"),
    [
        # Jan 11 .. 31 are 21 of 31 days. 100 × 21/31 = 67.7419…; 200 × 21/31 = 135.4838…
        ("2026-01-11", "200", (-6774, 13548)),
        # A downgrade: 50 × 21/31 = 33.8709…
        ("2026-01-11", "50", (-6774, 3387)),
        # From the first instant on: all of it.
        ("2026-01-01", "200", (-10000, 20000)),
        # On the last day: 1 of 31. 100/31 = 3.2258…; 200/31 = 6.4516…
        ("2026-01-31T18:00", "200", (-323, 645)),
        # To the same price: what goes out comes in.
        ("2026-01-11", "100", (-6774, 6774)),
        # At the end: nothing is left.
        ("2026-02-01", "200", (0, 0)),
    ],
)
def test_a_change_credits_the_unused_part_and_charges_the_rest(day: str, new_full: str, expected: tuple[int, int]) -> None:
    assert change(HUNDRED, unused_from(day), Decimal(new_full)) == expected


def test_the_credit_is_of_the_price_less_the_discount_of_the_line() -> None:
    # 10 off 100: 67.7419… − 6.7741… = 60.9677…
    discounted = BilledLine(Decimal(100), Share(31, 31), amount_minor=10000, discount_minor=1000)
    assert unused_credit_minor(discounted, unused_from("2026-01-11"), "EUR") == 6097
    assert unused_credit_minor(discounted, unused_from("2026-01-01"), "EUR") == 9000
    free = BilledLine(Decimal(100), Share(31, 31), amount_minor=10000, discount_minor=10000)
    assert unused_credit_minor(free, unused_from("2026-01-11"), "EUR") == 0


def test_the_credit_on_a_stub_counts_in_days_of_the_full_period() -> None:
    # Jan 20 .. 31 of a price of 31.00 cost 12.00; from Jan 22 on 10 days are unused.
    stub = BilledLine(Decimal(31), Share(12, 31), amount_minor=1200)
    assert unused_from("2026-01-22", start="2026-01-20") == Share(10, 31)
    assert unused_credit_minor(stub, Share(10, 31), "EUR") == 1000
    # Its discount of 1.20 was for 12 days: 10 of them give 1.00 of it back.
    discounted = BilledLine(Decimal(31), Share(12, 31), amount_minor=1200, discount_minor=120)
    assert unused_credit_minor(discounted, Share(10, 31), "EUR") == 900


@pytest.mark.parametrize(("credited", "expected"), [(0, 6774), (3000, 6774), (4000, 6000), (9999, 1), (10000, 0), (20000, 0)])
def test_credits_never_exceed_what_is_left_of_the_line(credited: int, expected: int) -> None:
    line = BilledLine(Decimal(100), Share(31, 31), amount_minor=10000, credited_minor=credited)
    assert unused_credit_minor(line, unused_from("2026-01-11"), "EUR") == expected


def test_two_changes_in_one_period_each_credit_the_line_before() -> None:
    # 100 until Jan 10, 200 until Jan 20, 300 from Jan 21.
    first = change(HUNDRED, unused_from("2026-01-11"), Decimal(200))
    second_line = BilledLine(Decimal(200), Share(21, 31), amount_minor=first[1])
    second = change(second_line, unused_from("2026-01-21", start="2026-01-11"), Decimal(300))
    assert first == (-6774, 13548)
    assert second == (-7097, 10645)  # 200 × 11/31 = 70.9677…; 300 × 11/31 = 106.4516…
    # 100 × 10/31 + 200 × 10/31 + 300 × 11/31 = 203.2258…
    assert 10000 + sum(first) + sum(second) == 20322


def test_an_end_gives_back_what_is_unused_and_keeps_the_last_day_if_billed() -> None:
    whole = FIRST.period(0)
    at = utc("2026-01-20T15:00")
    assert unused_share(FIRST, whole, at, Proration.DAY, terminated=True) == Share(12, 31)
    assert unused_share(FIRST, whole, at, Proration.DAY, terminated=True, bill_last_day=True) == Share(11, 31)


def test_a_line_that_billed_nothing_gives_nothing_back() -> None:
    assert unused_credit_minor(BilledLine(Decimal(100), Share(0, 31), 0), Share(10, 31), "EUR") == 0


# Properties ------------------------------------------------------------------------------------------


def cut_into_parts(of: Schedule, whole: Period, cuts: Sequence[Fraction]) -> list[Period]:
    """The period in parts, cut at these shares of its length."""
    length = (whole.end - whole.start) // timedelta(microseconds=1)
    marks = sorted({whole.start, whole.end, *(whole.start + timedelta(microseconds=int(length * c)) for c in cuts)})
    return [part(of, a, b) for a, b in itertools.pairwise(marks)]


@PROPERTY
@given(
    schedules,
    instants,
    st.lists(st.fractions(0, 1), max_size=5),
    st.sampled_from(list(Proration)),
    st.decimals(0, 10_000, places=4),
    st.sampled_from(["EUR", "JPY", "KWD"]),
)
def test_a_period_split_anywhere_bills_the_same_sum_as_whole(
    of: Schedule, instant: datetime, cuts: list[Fraction], mode: Proration, full: Decimal, currency: str
) -> None:
    whole = of.period_at(instant)
    total = share(of, whole, mode)
    assert total.fraction == 1
    billed, before = 0, Share(0, total.of)
    for piece in cut_into_parts(of, whole, cuts):
        one = share(of, piece, mode)
        assert one.of == total.of
        billed += prorated_minor(full, one, currency, before=before)
        before = Share(before.used + one.used, one.of)
    assert before == total
    assert billed == prorated_minor(full, WHOLE, currency)


@PROPERTY
@given(schedules, instants, st.fractions(0, 1), st.sampled_from(list(Proration)), st.decimals(0, 10_000, places=4))
def test_a_change_to_the_same_price_costs_nothing(
    of: Schedule, instant: datetime, at: Fraction, mode: Proration, full: Decimal
) -> None:
    whole = of.period_at(instant)
    line = BilledLine(full, share(of, whole, mode), prorated_minor(full, WHOLE, "EUR"))
    moment = whole.start + (whole.end - whole.start) * float(at)
    assert sum(change(line, unused_share(of, whole, moment, mode), full)) == 0


@PROPERTY
@given(
    st.lists(st.integers(0, 31), max_size=6),
    st.integers(0, 100_000),
    st.fractions(0, 1),
)
def test_however_often_a_line_is_credited_it_gives_back_no_more_than_it_took(
    unused_days: list[int], amount_minor: int, discount: Fraction
) -> None:
    discount_minor, credited = int(amount_minor * discount), 0
    for unused in unused_days:
        line = BilledLine(Fraction(amount_minor, 100), Share(31, 31), amount_minor, discount_minor, credited)
        credit = unused_credit_minor(line, Share(unused, 31), "EUR")
        assert credit >= 0
        credited += credit
    assert credited <= amount_minor - discount_minor


@pytest.mark.parametrize("zone", ZONES_WITH_DST)
def test_the_days_of_thirty_years_are_each_counted_once(zone: str) -> None:
    of = schedule("2004-01-31T12:00", zone)
    start, end = of.boundary(0), of.boundary(360)
    total = sum(share(of, period, Proration.DAY).of for period in periods(of, start, end))
    assert total == (of.local_date(end) - of.local_date(start)).days == 10958
