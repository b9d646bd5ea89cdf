"""Prices that are billed more often than their plan: how they are ordered, read, shown and found."""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from billing import reads
from billing.admin.prose import plan_sentences
from billing.generator.options import Options
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.generate import generate
from billing.models import Cursor, Line, Plan, Price
from billing.orders import plans
from billing.orders.plans import MAX_PRICE_PERIODS
from billing.rating.periods import Interval, IntervalUnit, Schedule
from billing.rating.prices.reading import PriceInvalid, parse_price, price_dict
from billing.reads.subscriptions import monthly_minor
from ledger.errors import Invalid
from tests.billing.factories import PlanFactory, SubscriptionFactory, metered, recurring, unique, use
from tests.billing.findings import findings_of

YEAR = Interval(IntervalUnit.YEAR)
MONTHLY: dict[str, Any] = {"interval": {"unit": "month"}}


def yearly(*prices: dict[str, Any], **terms: Any) -> Plan:
    """A yearly plan in EUR; by default 1,200.00 in advance and calls each month."""
    known = list(prices) or [recurring(unit_amount="1200.00"), metered(**MONTHLY)]
    plan: Plan = PlanFactory(interval=YEAR, prices=known, **terms)
    return plan


@pytest.mark.parametrize(
    ("of_price", "of_plan", "parts"),
    [
        (("month", 1), ("year", 1), 12),
        (("quarter", 1), ("half_year", 3), 6),
        (("month", 5), ("year", 1), 0),
        (("year", 1), ("month", 1), 0),
        (("day", 1), ("week", 2), 14),
        (("week", 1), ("day", 10), 0),
        (("week", 1), ("month", 1), 0),
        (("day", 30), ("month", 1), 0),
    ],
)
def test_an_interval_divides_another(of_price: tuple[str, int], of_plan: tuple[str, int], parts: int) -> None:
    one, whole = (Interval(IntervalUnit(unit), count) for unit, count in (of_price, of_plan))
    assert one.parts_of(whole) == parts


@pytest.mark.parametrize(
    "anchor", [datetime(2024, 1, 31), datetime(2024, 2, 29, 2, 30), datetime(2003, 12, 30), datetime(2196, 8, 31)]
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
def test_a_period_of_the_price_ends_wherever_one_of_the_plan_does(anchor: datetime, zone: str) -> None:
    whole = Schedule(anchor, ZoneInfo(zone), YEAR)
    for unit in (IntervalUnit.MONTH, IntervalUnit.QUARTER, IntervalUnit.HALF_YEAR):
        own = Schedule(anchor, ZoneInfo(zone), Interval(unit))
        parts = own.interval.parts_of(YEAR)
        assert [own.boundary(n * parts) for n in range(-3, 4)] == [whole.boundary(n) for n in range(-3, 4)]


def test_a_price_is_read_and_stored_with_its_interval() -> None:
    price = parse_price(metered(**MONTHLY))
    assert price.interval == Interval(IntervalUnit.MONTH)
    assert price_dict(price)["interval"] == {"unit": "month", "count": 1}
    assert parse_price(price_dict(price)) == price
    assert "interval" not in price_dict(parse_price(metered()))


@pytest.mark.parametrize(
    ("interval", "pointer"),
    [
        ("month", "/price/interval"),
        ({}, "/price/interval/unit"),
        ({"count": 1}, "/price/interval/unit"),
        ({"unit": "decade"}, "/price/interval/unit"),
        ({"unit": "month", "count": 0}, "/price/interval/count"),
        ({"unit": "month", "count": 1001}, "/price/interval/count"),
        ({"unit": "month", "count": True}, "/price/interval/count"),
        ({"unit": "month", "every": 1}, "/price/interval/every"),
    ],
)
def test_an_interval_that_is_none_is_refused_by_field(interval: Any, pointer: str) -> None:
    with pytest.raises(PriceInvalid) as refused:
        parse_price(metered(interval=interval))
    assert [error.pointer for error in refused.value.errors] == [pointer]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("own", "whole"),
    [
        ({"unit": "week"}, YEAR),
        ({"unit": "month", "count": 5}, YEAR),
        ({"unit": "year", "count": 2}, YEAR),
        ({"unit": "day"}, Interval(IntervalUnit.DAY, MAX_PRICE_PERIODS + 1)),
    ],
)
def test_an_interval_that_does_not_divide_the_plans_is_refused_at_its_price(own: dict[str, Any], whole: Interval) -> None:
    code = unique("plan")
    with pytest.raises(Invalid) as refused:
        plans.create_plan(code=code, name="P", currency="EUR", interval=whole, prices=[recurring(), metered(interval=own)])
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/prices/1/interval", "divides-the-plans")
    assert not Plan.objects.filter(code=code).exists()
    assert not Price.objects.filter(plan__code=code).exists()


@pytest.mark.django_db
def test_a_plan_says_how_often_each_price_is_billed() -> None:
    plan = yearly(recurring(unit_amount="1200.00"), recurring("seats", "5.00", **MONTHLY), metered(minimum="3.00", **MONTHLY))
    assert plan_sentences(plans.terms_of(plan.pk)) == [
        "Basic is billed every year in EUR.",
        "base: 1,200.00 EUR a year, in advance. No tax.",
        "seats: 5.00 EUR a month, in advance. No tax.",
        "calls: 0.02 EUR per unit of calls, billed every month. At least 3.00 EUR a month. No tax.",
    ]


@pytest.mark.django_db
def test_what_a_subscription_brings_a_month_divides_each_price_by_its_own_months() -> None:
    plan = yearly(recurring(unit_amount="1200.00"), recurring("seats", "12.00", **MONTHLY), metered(**MONTHLY))
    ref = SubscriptionFactory(plan=plan.code, quantities={"seats": 5}).ref
    [row] = reads.subscriptions(limit=1)
    assert row.id == reads.subscription(ref).row.id
    assert monthly_minor([row]) == {row.id: 10_000 + 6_000}


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
def test_a_run_reads_claims_of_three_plan_periods_however_long_the_history_is() -> None:
    """A bound of a year needs the claims of its months; older years are settled."""
    plan = PlanFactory(interval=Interval(IntervalUnit.QUARTER), prices=[metered(**MONTHLY)], minimum=Decimal("9.00"))
    subscription = SubscriptionFactory(plan=plan.code, started_at=datetime(2023, 1, 1, tzinfo=UTC))
    edges = [datetime(2023 + n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in range(37)]
    for start, end in pairwise(edges):
        use(subscription, "50", start)
        generate(ref=subscription.ref, options=Options(as_of=end))
    cursor = Cursor.objects.get(subscription_id=subscription.pk)
    assert cursor.claims_from == datetime(2025, 4, 1, tzinfo=UTC)
    assert cursor.usage_due_at == datetime(2026, 2, 1, tzinfo=UTC)
    amounts = Line.objects.filter(invoice__subscription_ref=subscription.ref).values_list("amount_minor", flat=True)
    assert sorted(amounts) == sorted([100] * 36 + [600] * 12)
    assert [what for what in findings_of("cursor", "usage", "claim") if subscription.ref in what] == []


@pytest.mark.django_db
def test_a_subscription_of_which_the_cursor_lies_is_found_by_the_month_of_its_usage() -> None:
    """The guard against a wrong cursor measures with the price's month, not the plan's year."""
    subscription = SubscriptionFactory(plan=yearly().code)
    generate(ref=subscription.ref, options=Options(as_of=datetime(2026, 1, 1, tzinfo=UTC)))
    Cursor.objects.filter(subscription_id=subscription.pk).update(
        recurring_due_at=datetime(2027, 1, 1, tzinfo=UTC), usage_due_at=None
    )
    due = {
        (month, day): subscription.ref in DueWalk(DueFilter(as_of=datetime(2026, month, day, tzinfo=UTC)))
        for month, day in ((1, 31), (2, 3))
    }
    assert due == {(1, 31): False, (2, 3): True}
