"""The SQL that measures usage agrees with the pure reference, event by event."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.metering import measuring, usage
from billing.rating.aggregation import Days, Event, RatingInput
from billing.rating.prices.reading import parse_price
from tests.billing.factories import SubscriptionFactory, at, metered, unique

pytestmark = pytest.mark.django_db

START, END = at(1, 1), at(2, 1)
JANUARY = Days(START.date(), END.date(), 31, ZoneInfo("UTC"))

REGION_EU = {"key": "eu", "filters": {"region": ["eu", "ap"]}, "unit_amount": "2"}
SIZE_5 = {"key": "five", "filters": {"size": ["5", "7.5"]}, "unit_amount": "3"}

PRICES = [
    *(metered(aggregation=name) for name in ("count", "sum", "max", "last", "unique", "weighted_sum", "daily_level")),
    *(metered(aggregation=name, property="size") for name in ("sum", "max", "last", "unique")),
    metered(filters={"region": ["eu", "us"]}),
    metered(aggregation="unique", property="region", filters={"region": "eu"}),
    *(
        metered(model="percentage", unit_amount=None, rate="3", **free)
        for free in ({}, {"free_events": 2}, {"free_amount": "50"}, {"free_events": 3, "free_amount": "25"})
    ),
    *(
        metered(model="percentage", unit_amount=None, rate="3.3", **bounds)
        for bounds in (
            {"event_minimum": "0.5"},
            {"event_maximum": "0.7", "free_amount": "50"},
            {"fixed_amount": "0.1", "event_minimum": "0.4", "event_maximum": "0.9", "free_events": 2},
            {"event_minimum": "0.4", "event_maximum": "0.4", "free_events": 3, "free_amount": "25"},
        )
    ),
    *(
        metered(buckets=[REGION_EU, SIZE_5], aggregation=aggregation, filters=filters, unit_amount="1")
        for aggregation in ("sum", "count", "max", "weighted_sum", "daily_level")
        for filters in ({}, {"region": ["eu", "us"]})
    ),
    metered(
        model="percentage",
        unit_amount=None,
        rate="3.3",
        event_minimum="0.5",
        buckets=[{"key": "eu", "filters": {"region": "eu"}, "rate": "1"}],
    ),
    *(
        metered(group_by=["region", "size"], aggregation=aggregation, filters=filters, **fields)
        for aggregation, fields in (
            ("count", {}),
            ("sum", {"free_units": 3}),
            ("max", {"property": "size"}),
            ("last", {}),
            ("unique", {"property": "region"}),
            ("sum", {"buckets": [SIZE_5]}),
            ("sum", {"conversion": {"divide_by": "7", "rounding": "up"}}),
        )
        for filters in ({}, {"region": ["eu", "us"]})
    ),
    *(
        metered(model="percentage", unit_amount=None, rate="3.3", group_by=["region"], **free)
        for free in ({}, {"free_events": 1, "free_amount": "25", "event_minimum": "0.4"}, {"property": "size"})
    ),
    metered(group_by=["a", "b", "c", "d", "region"]),
    metered(conversion={"divide_by": "7", "rounding": "up"}),
    metered(aggregation="weighted_sum", conversion={"multiply_by": "0.3", "rounding": "half_up", "decimals": 2}),
]

events = st.lists(
    st.tuples(
        st.decimals(min_value=-5, max_value=40, places=2),
        st.integers(min_value=0, max_value=31 * 24 * 3600 - 1),
        st.sampled_from(
            [
                {},
                {"region": "eu"},
                {"region": True, "size": "x" * 300},
                {"region": "", "size": 1.5},
                {"region": {}, "size": "5"},
                {"region": "us", "size": 5},
                {"region": "ap", "size": "7.5"},
                {"size": None},
                {"size": [5]},
            ]
        ),
    ),
    max_size=12,
    unique_by=lambda event: event[1],
)


def without_events(found: RatingInput) -> RatingInput:
    """Usage without the number of events, which the reference counts before it filters."""
    groups = tuple((group, without_events(usage)) for group, usage in found.groups)
    return replace(found, events=0, parts=tuple(map(without_events, found.parts)), groups=groups)


@pytest.mark.slow
@pytest.mark.check
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events)
def test_sql_and_reference_agree(drawn: list[tuple[Decimal, int, dict[str, Any]]]) -> None:
    subscription = SubscriptionFactory()
    known = [Event(value, START + timedelta(seconds=second), properties) for value, second, properties in drawn]
    usage.take_in(
        [
            usage.NewEvent(
                unique("e"), subscription.ref, "calls", value=e.value, occurred_at=e.occurred_at, properties=e.properties
            )
            for e in known
        ]
        + [
            usage.NewEvent(
                unique("e"), subscription.ref, "calls", value=Decimal(99), occurred_at=END, properties={"region": "eu"}
            )
        ]
    )
    prices = [parse_price({name: value for name, value in price.items() if value is not None}) for price in PRICES]
    measured = measuring.measure(subscription.pk, [measuring.Measure(price, START, END) for price in prices])
    for price, found in zip(prices, measured, strict=True):
        expected = price.usage_of(known, period=(START, END), days=JANUARY)
        assert without_events(found) == without_events(expected), price


def test_days_are_those_of_the_billing_zone_and_each_has_the_last_level_of_it() -> None:
    subscription = SubscriptionFactory()
    price = parse_price(metered(aggregation="daily_level"))
    zone = ZoneInfo("America/New_York")
    reported = {(12, 31, 12): 3, (1, 9, 23): 9, (1, 10, 4): 10, (1, 10, 12): 4, (1, 11, 4): 20, (2, 1, 4): 50, (2, 1, 6): 70}
    known = [
        Event(Decimal(level), at(month, day, year=2025 if month == 12 else 2026) + timedelta(hours=hour))
        for (month, day, hour), level in reported.items()
    ]
    usage.take_in(
        [
            usage.NewEvent(unique("e"), subscription.ref, "calls", value=e.value, occurred_at=e.occurred_at, properties={})
            for e in known
        ]
    )
    # From noon to noon, local time: 1 January counts, 1 February does not. The events at 04:00 UTC belong to the day before.
    window = (at(1, 1) + timedelta(hours=17), at(2, 1) + timedelta(hours=17))
    [found] = measuring.measure(subscription.pk, [measuring.Measure(price, *window, *window, zone)])
    assert {level: share * 31 for level, share in found.levels} == {3: 8, 10: 1, 20: 21, 50: 1}
    days = Days(date(2026, 1, 1), date(2026, 2, 1), 31, zone)
    assert without_events(price.usage_of(known, days=days, held_before=Decimal(3))) == without_events(found)
    # The next period begins with what was reported last before its first day ended.
    [later] = measuring.measure(subscription.pk, [measuring.Measure(price, window[1], window[1] + timedelta(days=28), zone=zone)])
    assert later.levels == ((70, 1),)


def test_days_are_those_that_billing_knows_where_the_server_takes_the_name_for_another_zone() -> None:
    """For PostgreSQL, CET is an hour from UTC in summer too."""
    subscription = SubscriptionFactory()
    price = parse_price(metered(aggregation="daily_level"))
    july, august, zone = at(7, 1), at(8, 1), ZoneInfo("CET")
    known = [Event(Decimal(10), july - timedelta(days=1)), Event(Decimal(20), july + timedelta(days=9, hours=22, minutes=30))]
    usage.take_in(
        [
            usage.NewEvent(unique("e"), subscription.ref, "calls", value=e.value, occurred_at=e.occurred_at, properties={})
            for e in known
        ]
    )
    [found] = measuring.measure(subscription.pk, [measuring.Measure(price, july, august, zone=zone)])
    # Half past midnight of 11 July.
    assert {level: share * 31 for level, share in found.levels} == {10: 10, 20: 21}
    days = Days(date(2026, 7, 1), date(2026, 8, 1), 31, zone)
    assert without_events(price.usage_of(known, days=days, held_before=Decimal(10))) == without_events(found)


ODD_NUMBERS = [
    "1e1", "+5", ".5", "5.", "-1e-3", 1e-7, 1e22, 2**53 - 1, "9" * 200, "1e999", "1e-999", "9" * 201, "9" * 5_000, "0x1", "1_0",
    " 5", "5\n", "\u0661", "NaN", "Infinity", "--5", ".", "1e", "", True, [5],
]  # fmt: skip


@pytest.mark.products(most=8)
@pytest.mark.parametrize("odd", ODD_NUMBERS, ids=lambda odd: repr(odd)[:12])
def test_a_number_in_a_property_is_the_same_for_billing_and_the_ratings_call(odd: Any) -> None:
    subscription = SubscriptionFactory()
    price = parse_price(metered(property="size"))
    properties = [{"size": odd}, {"size": "0.25"}]
    known = [Event(Decimal(1), START, each, number) for number, each in enumerate(properties)]
    usage.take_in(
        [
            usage.NewEvent(
                unique("e"), subscription.ref, "calls", value=e.value, occurred_at=e.occurred_at, properties=dict(e.properties)
            )
            for e in known
        ]
    )
    [measured] = measuring.measure(subscription.pk, [measuring.Measure(price, START, END)])
    assert measured.quantity == price.usage_of(known).quantity


def test_what_held_before_the_period_weighs_in_it() -> None:
    subscription = SubscriptionFactory()
    price = parse_price(metered(aggregation="weighted_sum"))
    usage.take_in(
        [
            usage.NewEvent(
                unique("e"), subscription.ref, "calls", value=Decimal(10), occurred_at=START - timedelta(days=1), properties={}
            )
        ]
    )
    usage.take_in(
        [
            usage.NewEvent(
                unique("e"),
                subscription.ref,
                "calls",
                value=Decimal(20),
                occurred_at=START + timedelta(days=15, hours=12),
                properties={},
            )
        ]
    )
    [measured] = measuring.measure(subscription.pk, [measuring.Measure(price, START, END)])
    assert measured.quantity == 15


@pytest.mark.parametrize("level", [10, "10", "1e1"])
def test_a_level_in_a_property_holds_into_the_next_period_however_the_number_is_written(level: int | str) -> None:
    subscription = SubscriptionFactory()
    price = parse_price(metered(aggregation="weighted_sum", property="level", filters={"region": ["eu"]}))
    known = {"level": level, "region": "eu"}
    later = [{"level": "much", "region": "eu"}, {"level": [7], "region": "eu"}, {"level": 7, "region": ["eu"]}, {}]
    for day, properties in enumerate([known, *later]):
        occurred_at = START + timedelta(days=day)
        usage.take_in(
            [
                usage.NewEvent(
                    unique("e"), subscription.ref, "calls", value=Decimal(1), occurred_at=occurred_at, properties=properties
                )
            ]
        )
    [measured] = measuring.measure(subscription.pk, [measuring.Measure(price, END, at(3, 1))])
    assert measured.quantity == 10
