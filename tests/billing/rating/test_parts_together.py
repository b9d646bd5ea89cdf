"""Periods, proration, prices and totals put together: a subscription's life, billed in one run or in many."""

from datetime import datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.rating.aggregation import Event
from billing.rating.periods import Schedule, Timing
from billing.rating.prices.price import Price, Proration
from billing.rating.prices.pricing import quote, rate
from billing.rating.proration import prorated_minor, share
from billing.rating.totals import FeeLine, compute_totals
from tests.billing.rating.builders import PROPERTY, periods_due, recurring_price, schedule, usage_price, utc
from tests.billing.rating.test_periods import instants, schedules

Billed = list[tuple[datetime, datetime, int]]


def bill(of: Schedule, price: Price, start: datetime, end: datetime, as_of: datetime, billed: Billed) -> Billed:
    """The lines that a run at `as_of` adds to those billed before."""
    since = billed[-1][1] if billed else start
    due = periods_due(of, timing=price.timing, start=since, end=end, as_of=as_of)
    full = rate(price, 3, "EUR").exact
    return [(p.start, p.end, prorated_minor(full, share(of, p, price.proration, terminated=p.end == end), "EUR")) for p in due]


def test_a_month_end_subscription_by_hand() -> None:
    # 3 seats at 10.00 from Jan 20 to Apr 10, billed on the 31st.
    of, price = schedule("2025-12-31", "Europe/Berlin"), recurring_price("unit", unit_amount="10", timing="arrears")
    lines = bill(of, price, utc("2026-01-19T23:00"), utc("2026-04-09T22:00"), utc("2026-12-31"), [])
    assert [(a.isoformat()[:16], b.isoformat()[:16], minor) for a, b, minor in lines] == [
        ("2026-01-19T23:00", "2026-01-30T23:00", 1065),  # Jan 20 .. 30 of Dec 31 .. Jan 30: 30 × 11/31 = 10.645…
        ("2026-01-30T23:00", "2026-02-27T23:00", 3000),
        ("2026-02-27T23:00", "2026-03-30T22:00", 3000),
        ("2026-03-30T22:00", "2026-04-09T22:00", 1000),  # Mar 31 .. Apr 9 of Mar 31 .. Apr 29: 30 × 10/30
    ]


def test_a_month_of_usage_and_seats_on_one_invoice_by_hand() -> None:
    seats = rate(recurring_price("unit", unit_amount="10"), 3, "EUR").amount_minor
    calls = usage_price("graduated", tiers=[{"up_to": 1000, "unit_amount": "0"}, {"up_to": None, "unit_amount": "0.0015"}])
    events = [Event(Decimal(400 * day), utc(f"2026-01-{day:02}")) for day in range(1, 11)]
    # 400 × 55 = 22,000 calls, 21,000 of them paid: 31.50. With the seats 61.50; 19 % are 11.685.
    usage = rate(calls, calls.usage_of(events), "EUR").amount_minor
    totals = compute_totals([FeeLine(1, seats, "S", Decimal(19)), FeeLine(2, usage, "S", Decimal(19))])
    assert (seats, usage, totals.tax_minor, totals.total_minor) == (3000, 3150, 1169, 7319)


def test_usage_that_comes_late_bills_the_difference() -> None:
    calls = usage_price("package", unit_amount="5", package_size=1000)
    on_time = [Event(Decimal(1500), utc("2026-01-10"))]
    late = [*on_time, Event(Decimal(700), utc("2026-01-05"))]
    first, total = calls.usage_of(on_time), calls.usage_of(late)
    # 1,500 are two packages, 2,200 are three.
    assert rate(calls, first, "EUR").amount_minor == 1000
    assert quote(calls, total, "EUR", first).amount_minor == 500


@PROPERTY
@given(
    schedules,
    instants,
    st.sampled_from(list(Timing)),
    st.sampled_from(list(Proration)),
    st.lists(st.integers(0, 900), min_size=1, max_size=6),
    st.decimals(0, 1000, places=4),
)
def test_catching_up_in_one_run_bills_what_many_runs_would(
    of: Schedule, start: datetime, timing: Timing, mode: Proration, days: list[int], amount: Decimal
) -> None:
    price = recurring_price("unit", unit_amount=str(amount), timing=timing.value, proration=mode.value)
    end, runs = start + timedelta(days=700), [start + timedelta(days=day) for day in sorted(days)]
    billed: Billed = []
    for as_of in runs:
        billed += bill(of, price, start, end, as_of, billed)
    assert billed == bill(of, price, start, end, runs[-1], [])
