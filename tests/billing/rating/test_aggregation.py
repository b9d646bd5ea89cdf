"""Events of a meter become one quantity, in the way that the price names."""

import itertools
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.aggregation import Aggregation, Event, RatingInput, aggregate, event_number, matches, percentage_usage
from tests.billing.rating.builders import PROPERTY, utc

APRIL = (utc("2026-04-01"), utc("2026-05-01"))


def event(value: str, at: str, sequence: int = 0, **properties: Any) -> Event:
    """An event with this value at that time (UTC)."""
    return Event(Decimal(value), utc(at), properties, sequence)


EVENTS = [
    event("5", "2026-04-20", region="eu", user="b", size=7),
    event("2.5", "2026-04-01", region="us", user="a", size=1),
    event("9", "2026-04-11", region="eu", user="a", size="0.5"),
    event("2.5", "2026-04-11", 1, region="ap", user="c"),
]


@pytest.mark.parametrize(
    ("aggregation", "quantity"),
    [
        (Aggregation.COUNT, 4),
        (Aggregation.SUM, 19),  # 5 + 2.5 + 9 + 2.5
        (Aggregation.MAX, 9),
        (Aggregation.LAST, 5),  # that of Apr 20, wherever it stands in the list
        (Aggregation.UNIQUE, 3),  # 5, 2.5 and 9
    ],
)
def test_each_aggregation_of_the_value(aggregation: Aggregation, quantity: int) -> None:
    assert aggregate(aggregation, EVENTS) == quantity


@pytest.mark.parametrize(
    ("aggregation", "property_name", "quantity"),
    [
        (Aggregation.SUM, "size", Fraction("8.5")),  # 7 + 1 + 0.5; the event without it adds nothing
        (Aggregation.MAX, "size", 7),
        (Aggregation.LAST, "size", 7),
        (Aggregation.UNIQUE, "user", 3),
        (Aggregation.UNIQUE, "region", 3),
        (Aggregation.UNIQUE, "absent", 0),
        (Aggregation.SUM, "region", 0),  # text is no number
    ],
)
def test_each_aggregation_of_a_property(aggregation: Aggregation, property_name: str, quantity: Fraction) -> None:
    assert aggregate(aggregation, EVENTS, property_name=property_name) == quantity


@pytest.mark.parametrize("aggregation", [a for a in Aggregation if a != Aggregation.WEIGHTED_SUM])
def test_no_events_are_nothing(aggregation: Aggregation) -> None:
    assert aggregate(aggregation, []) == 0


def test_the_last_of_two_at_one_instant_is_the_later_written() -> None:
    both = [event("1", "2026-04-11", 8), event("2", "2026-04-11", 7)]
    assert aggregate(Aggregation.LAST, both) == 1


def test_filters_choose_events_by_their_properties() -> None:
    assert aggregate(Aggregation.SUM, EVENTS, filters=(("region", ("eu",)),)) == 14
    assert aggregate(Aggregation.SUM, EVENTS, filters=(("region", ("eu", "ap")),)) == Fraction("16.5")
    assert aggregate(Aggregation.SUM, EVENTS, filters=(("region", ("eu",)), ("user", ("a",)))) == 9
    assert aggregate(Aggregation.COUNT, EVENTS, filters=(("size", ("7",)),)) == 1


@pytest.mark.parametrize(
    ("properties", "passes"),
    [
        ({"on": True}, True),
        ({"on": "true"}, True),
        ({"on": False}, False),
        ({"on": None}, False),
        ({}, False),
        ({"on": ["true"]}, False),
    ],
)
def test_properties_are_compared_as_json_text(properties: dict[str, Any], passes: bool) -> None:
    assert matches((("on", ("true",)),), properties) is passes


@pytest.mark.parametrize("text", ["1_000", " 1", "1e", "NaN", "Infinity", "١", "", ".", "1\n", True, None, [1], "9" * 201])
def test_a_property_that_is_no_number_does_not_count(text: Any) -> None:
    assert event_number(event("1", "2026-04-01", size=text), "size") is None


@pytest.mark.parametrize(("text", "number"), [("1e3", 1000), ("1.", 1), (".5", 0.5), ("-5", -5), (1e-7, Decimal("1e-7"))])
def test_a_number_in_a_property_counts_however_it_is_written(text: Any, number: Any) -> None:
    assert event_number(event("1", "2026-04-01", size=text), "size") == number


# Weighted by time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "held_before", "quantity"),
    [
        # April has 30 days = 2,592,000 s. 10 from Apr 11 on: 20 of 30 days.
        ([event("10", "2026-04-11")], "0", Fraction(20, 3)),
        # 6 for 10 days, 12 for 20: (6×10 + 12×20) / 30 = 10.
        ([event("6", "2026-04-01"), event("12", "2026-04-11")], "0", Fraction(10)),
        # 3 held from before for 15 days, then 0: 1.5.
        ([event("0", "2026-04-16")], "3", Fraction(3, 2)),
        # Nothing happened: what held goes on.
        ([], "4", Fraction(4)),
        # One second of 2,592,000.
        ([event("1", "2026-04-30T23:59:59")], "0", Fraction(1, 2_592_000)),
    ],
)
def test_a_weighted_sum_counts_the_seconds_in_which_a_value_held(
    events: list[Event], held_before: str, quantity: Fraction
) -> None:
    assert aggregate(Aggregation.WEIGHTED_SUM, events, period=APRIL, held_before=Decimal(held_before)) == quantity


def test_a_weighted_sum_needs_its_period() -> None:
    with pytest.raises(ValueError, match="period"):
        aggregate(Aggregation.WEIGHTED_SUM, EVENTS)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 2_591_999), st.integers(0, 1000)), max_size=12))
def test_a_weighted_sum_equals_the_sum_over_every_second_that_matters(changes: list[tuple[int, int]]) -> None:
    start, end = APRIL
    events = [Event(Decimal(v), start + timedelta(seconds=s), {}, i) for i, (s, v) in enumerate(changes)]
    marks = sorted({0, 2_592_000, *(s for s, _ in changes)})
    slow = Fraction(0)
    for since, until in itertools.pairwise(marks):
        so_far = [(s, i, v) for i, (s, v) in enumerate(changes) if s <= since]
        slow += (max(so_far)[2] if so_far else 0) * (until - since)
    assert aggregate(Aggregation.WEIGHTED_SUM, events, period=(start, end)) == slow / 2_592_000


# The free part of a percentage -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_events", "free_amount", "free_quantity", "free_count"),
    [
        (None, None, 0, 0),
        (2, None, 30, 2),  # the first two events, 10 + 20
        (None, "25", 25, 1),  # 10 is inside; 20 reaches 30 and is free up to 25 only, so it is no free event
        (1, "25", 10, 1),  # the count is exceeded first
        (3, "25", 25, 1),  # the amount is exceeded first
        (None, "30", 30, 2),  # reaching the limit is not exceeding it
        (9, "1000", 60, 3),
        (0, None, 0, 0),
        (None, "0", 0, 0),
    ],
)
def test_events_are_free_until_either_allowance_is_exceeded(
    free_events: int | None, free_amount: str | None, free_quantity: int, free_count: int
) -> None:
    # Written down out of order: the allowance goes to the earliest.
    events = [event("30", "2026-04-03"), event("10", "2026-04-01"), event("20", "2026-04-02")]
    allowance = None if free_amount is None else Decimal(free_amount)
    usage = percentage_usage(events, free_events=free_events, free_amount=allowance)
    assert usage == RatingInput(Fraction(60), 3, Fraction(free_quantity), free_count)


def test_a_free_amount_once_exceeded_does_not_come_back() -> None:
    events = [event("30", "2026-04-01"), event("-20", "2026-04-02"), event("5", "2026-04-03")]
    usage = percentage_usage(events, free_amount=Decimal(20))
    # The first event exceeds the free 20. They stay used up, although the sum falls to 10 before it rises to 15.
    assert usage == RatingInput(quantity=Fraction(15), events=3, free_quantity=Fraction(20), free_events=0)
