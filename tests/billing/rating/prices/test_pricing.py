"""Every price model, by hand: the arithmetic stands beside each number."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.aggregation import Event, RatingInput
from billing.rating.prices.price import Price
from billing.rating.prices.pricing import Rating, quote, rate
from billing.rating.prices.reading import parse_price
from tests.billing.rating.builders import PROPERTY, recurring_price, usage_price, utc

TIERS = [
    {"up_to": 100, "unit_amount": "1"},
    {"up_to": 500, "unit_amount": "0.5", "flat_amount": "10"},
    {"up_to": None, "unit_amount": "0.1", "flat_amount": "20"},
]


def cost_in_cents(price: Price, quantity: str | int | RatingInput, currency: str = "EUR") -> int:
    """What the quantity costs, in minor units."""
    usage = quantity if isinstance(quantity, RatingInput) else Decimal(quantity)
    return rate(price, usage, currency).amount_minor


def payments(*amounts: str) -> list[Event]:
    """An event of each amount, one a day."""
    return [Event(Decimal(amount), utc(f"2026-04-{day:02}")) for day, amount in enumerate(amounts, start=1)]


# Flat ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quantity", "minor"), [("1", 4900), ("3", 14700), ("0", 0), ("2.5", 12250)])
def test_flat_is_the_price_per_period_times_quantity_for_recurring(quantity: str, minor: int) -> None:
    assert cost_in_cents(recurring_price("flat", unit_amount="49"), quantity) == minor


@pytest.mark.parametrize("quantity", ["0", "1", "500"])
def test_flat_is_the_price_per_period_for_usage(quantity: str) -> None:
    assert cost_in_cents(usage_price("flat", unit_amount="49"), quantity) == 4900


# Unit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "minor"),
    [
        ("1500", 1000),  # (1500 − 1000) × 0.02 = 10.00
        ("1000", 0),
        ("0", 0),
        ("1001", 2),  # 1 × 0.02
        ("1500.5", 1001),  # 500.5 × 0.02 = 10.01
        ("-5", 0),  # never below zero
    ],
)
def test_unit_charges_what_exceeds_the_free_units(quantity: str, minor: int) -> None:
    assert cost_in_cents(usage_price("unit", unit_amount="0.02", free_units=1000), quantity) == minor


@pytest.mark.parametrize(
    ("unit_amount", "quantity", "currency", "minor"),
    [
        ("0.005", "1", "EUR", 1),  # 0.005 is a half and goes up
        ("0.0049", "1", "EUR", 0),
        ("0.005", "3", "EUR", 2),  # 0.015: once for the line; unit by unit it would be 3
        ("0.000000000001", "1000000000", "EUR", 0),  # 0.001
        ("0.000000000001", "5000000000", "EUR", 1),  # 0.005
        ("0.1", "25", "JPY", 3),  # 2.5
        ("0.0001", "12345", "KWD", 1235),  # 1.2345
        ("999999999999.99", "3", "EUR", 299999999999997),
    ],
)
def test_a_line_is_rounded_once_half_up(unit_amount: str, quantity: str, currency: str, minor: int) -> None:
    assert cost_in_cents(usage_price("unit", unit_amount=unit_amount), quantity, currency) == minor


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("unit", {"unit_amount": "1", "free_units": 2}),
        ("graduated", {"tiers": TIERS}),
        ("volume", {"tiers": TIERS}),
        ("package", {"unit_amount": "5", "package_size": 100}),
        ("percentage", {"rate": "1"}),
    ],
)
def test_usage_below_zero_costs_nothing(model: str, given: dict[str, Any]) -> None:
    assert cost_in_cents(usage_price(model, **given), RatingInput(Fraction(-250), events=1)) == 0


# Graduated -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "minor"),
    [
        ("0", 0),
        ("1", 100),
        ("100", 10000),  # 100 × 1, up_to is inclusive
        ("101", 11050),  # 100 + 1 × 0.5 + 10
        ("100.5", 11025),  # 100 + 0.5 × 0.5 + 10
        ("500", 31000),  # 100 + 400 × 0.5 + 10
        ("501", 33010),  # 310 + 1 × 0.1 + 20
        ("1500", 43000),  # 310 + 1000 × 0.1 + 20
    ],
)
def test_graduated_bills_the_units_that_fall_in_each_tier(quantity: str, minor: int) -> None:
    assert cost_in_cents(usage_price("graduated", tiers=TIERS), quantity) == minor


def test_graduated_owes_nothing_for_zero_units_even_with_a_flat_fee() -> None:
    price = usage_price("graduated", tiers=[{"up_to": None, "unit_amount": "1", "flat_amount": "5"}])
    assert cost_in_cents(price, "0") == 0
    assert cost_in_cents(price, "0.01") == 501


# Volume ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "minor"),
    [
        ("1", 100),
        ("100", 10000),  # 100 × 1
        ("101", 6050),  # 101 × 0.5 + 10: all units at the price of the tier that the quantity falls in
        ("500", 26000),  # 500 × 0.5 + 10
        ("501", 7010),  # 501 × 0.1 + 20
    ],
)
def test_volume_bills_all_units_in_the_tier_of_the_quantity(quantity: str, minor: int) -> None:
    assert cost_in_cents(usage_price("volume", tiers=TIERS), quantity) == minor


def test_volume_owes_the_first_tiers_flat_fee_for_zero_units() -> None:
    tiers = [{"up_to": 10, "unit_amount": "1", "flat_amount": "5"}, {"up_to": None, "unit_amount": "0.5"}]
    assert [cost_in_cents(usage_price("volume", tiers=tiers), q) for q in ("0", "10", "11")] == [500, 1500, 550]


# Package ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "minor"),
    [
        ("0", 0),
        ("50", 0),
        ("51", 500),  # one started package
        ("150", 500),  # 100 after the free units: exactly one
        ("150.000000000001", 1000),
        ("250", 1000),
        ("251", 1500),
    ],
)
def test_package_bills_started_packages_after_the_free_units(quantity: str, minor: int) -> None:
    assert cost_in_cents(usage_price("package", unit_amount="5", package_size=100, free_units=50), quantity) == minor


# Percentage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "amounts", "minor"),
    [
        ({"rate": "2.9", "fixed_amount": "0.30"}, ["100"], 320),  # 2.90 + 0.30
        ({"rate": "1", "fixed_amount": "0.10"}, ["10", "20", "30"], 90),  # 0.60 + 3 × 0.10
        ({"rate": "1"}, ["10", "20", "30"], 60),
        ({"rate": "1", "fixed_amount": "0.10", "free_events": 2}, ["10", "20", "30"], 40),  # 0.30 + 0.10
        # 10 is free, of 20 the 15 up to 25: 35 × 1 % + 2 × 0.10
        ({"rate": "1", "fixed_amount": "0.10", "free_amount": "25"}, ["10", "20", "30"], 55),
        ({"rate": "1", "fixed_amount": "0.10", "free_events": 1, "free_amount": "25"}, ["10", "20", "30"], 70),  # 0.50 + 0.20
        ({"rate": "1", "fixed_amount": "0.10", "free_events": 3, "free_amount": "25"}, ["10", "20", "30"], 55),
        ({"rate": "1", "fixed_amount": "0.10", "free_amount": "60"}, ["10", "20", "30"], 0),
        ({"rate": "1", "fixed_amount": "0.10"}, [], 0),
        ({"rate": "1", "fixed_amount": "0.10"}, ["0"], 10),  # an event of nothing is an event
        ({"rate": "1.5"}, ["33.33"], 50),  # 0.49995
    ],
)
def test_percentage_is_a_rate_of_the_amount_and_a_fee_per_event(given: dict[str, Any], amounts: list[str], minor: int) -> None:
    price = usage_price("percentage", **given)
    assert cost_in_cents(price, price.usage_of(payments(*amounts))) == minor


def test_a_bare_amount_is_one_event() -> None:
    price = usage_price("percentage", rate="2", fixed_amount="0.30", free_amount="100")
    assert [cost_in_cents(price, q) for q in ("0", "100", "101", "1100")] == [0, 0, 32, 2030]


@pytest.mark.parametrize(
    ("amounts", "minor"),
    [
        (["1000"], 2100),  # 1000 × 2 % + 1
        (["2000", "1000"], 4600),  # 21 + 2000 × 1 % + 5
        (["6000"], 7100),  # 21 + 4000 × 1 % + 5 + 1000 × 0.5 %
        (["999.99", "0.02"], 2600),  # 1000 × 2 % + 1 + 0.01 × 1 % + 5 = 26.0001
        ([], 0),
    ],
)
def test_graduated_percentage_goes_by_the_running_amount(amounts: list[str], minor: int) -> None:
    price = usage_price(
        "graduated_percentage",
        tiers=[
            {"up_to": 1000, "rate": "2", "flat_amount": "1"},
            {"up_to": 5000, "rate": "1", "flat_amount": "5"},
            {"up_to": None, "rate": "0.5"},
        ],
    )
    assert cost_in_cents(price, price.usage_of(payments(*amounts))) == minor


# What was billed before ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "given", "first", "total", "rest_minor"),
    [
        ("unit", {"unit_amount": "0.02", "free_units": 1000}, 800, 1500, 1000),  # 10.00 − 0
        ("unit", {"unit_amount": "0.005"}, 1, 2, 0),  # 0.01 − 0.01: the half went up in the first part
        ("graduated", {"tiers": TIERS}, 100, 101, 1050),  # 110.50 − 100
        ("graduated", {"tiers": TIERS}, 101, 500, 19950),  # 310 − 110.50: the tier's flat fee is owed once
        ("volume", {"tiers": TIERS}, 50, 100, 5000),  # 100 − 50
        ("volume", {"tiers": TIERS}, 100, 101, -3950),  # 60.50 − 100: one more unit made all of them cheaper
        ("package", {"unit_amount": "5", "package_size": 100}, 150, 200, 0),  # both are two packages
        ("package", {"unit_amount": "5", "package_size": 100}, 150, 201, 500),
        ("flat", {"unit_amount": "49"}, 3, 900, 0),
    ],
)
def test_a_second_part_is_the_total_less_the_first(
    model: str, given: dict[str, Any], first: int, total: int, rest_minor: int
) -> None:
    price = usage_price(model, **given)
    rest = quote(price, total, "EUR", first)
    assert rest.amount_minor == rest_minor
    assert sum(step.amount for step in rest.steps) == rest.exact


def test_late_payments_continue_the_percentage() -> None:
    price = usage_price("percentage", rate="1", fixed_amount="0.10", free_events=2)
    first = price.usage_of(payments("10", "20", "30"))
    total = price.usage_of(payments("10", "20", "30", "40"))
    assert cost_in_cents(price, first) == 40  # 30 × 1 % + 0.10
    assert quote(price, total, "EUR", first).amount_minor == 50  # 40 × 1 % + 0.10


def test_a_flat_fee_is_owed_once_also_without_usage() -> None:
    price = usage_price("flat", unit_amount="49")
    nothing_billed, billed_without_usage = None, 0
    assert quote(price, 0, "EUR", nothing_billed).amount_minor == 4900
    assert quote(price, 0, "EUR", billed_without_usage).amount_minor == 0


# Limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "minor"),
    [(10, 5000), (50, 5000), (51, 5100), (100, 10000), (101, 10000)],
)
def test_a_quote_is_held_between_minimum_and_maximum(quantity: int, minor: int) -> None:
    price = usage_price("unit", unit_amount="1", minimum="50", maximum="100")
    found = quote(price, quantity, "EUR")
    assert found.amount_minor == minor
    assert sum(step.amount for step in found.steps) == found.exact
    assert rate(price, quantity, "EUR").amount_minor == quantity * 100


def test_a_quote_for_a_rest_counts_the_limits_of_the_first_part() -> None:
    price = usage_price("unit", unit_amount="1", minimum="50", maximum="100")
    assert quote(price, 60, "EUR", 10).amount_minor == 1000  # 60 − 50
    assert quote(price, 200, "EUR", 70).amount_minor == 3000  # 100 − 70
    assert quote(price, 30, "EUR", 10).amount_minor == 0  # 50 − 50


# Steps -----------------------------------------------------------------------------------------------


def test_the_steps_of_a_graduated_price_read_as_the_contract_says() -> None:
    assert rate(usage_price("graduated", tiers=TIERS), 501, "EUR").as_dict() == {
        "amount_minor": 33010,
        "exact": "330.1",
        "steps": [
            {"from": "0", "to": "100", "units": "100", "unit_amount": "1", "flat_amount": "0", "amount": "100"},
            {"from": "100", "to": "500", "units": "400", "unit_amount": "0.5", "flat_amount": "10", "amount": "210"},
            {"from": "500", "to": "501", "units": "1", "unit_amount": "0.1", "flat_amount": "20", "amount": "20.1"},
        ],
    }


def test_the_steps_show_what_was_free() -> None:
    steps = rate(usage_price("package", unit_amount="5", package_size=100, free_units=50), 251, "EUR").as_dict()["steps"]
    assert steps == [
        {"from": "0", "to": "50", "units": "50", "unit_amount": "0", "flat_amount": "0", "amount": "0"},
        {"from": "50", "to": "251", "units": "3", "unit_amount": "5", "flat_amount": "0", "amount": "15"},
    ]


def test_the_steps_of_a_rest_begin_where_the_first_part_stopped() -> None:
    steps = quote(usage_price("graduated", tiers=TIERS), 501, "EUR", 150).as_dict()["steps"]
    assert steps == [
        {"from": "150", "to": "500", "units": "350", "unit_amount": "0.5", "flat_amount": "0", "amount": "175"},
        {"from": "500", "to": "501", "units": "1", "unit_amount": "0.1", "flat_amount": "20", "amount": "20.1"},
    ]


def test_a_rest_in_a_cheaper_volume_tier_takes_the_first_part_back() -> None:
    steps = quote(usage_price("volume", tiers=TIERS), 101, "EUR", 100).as_dict()["steps"]
    assert steps == [
        {"from": "0", "to": "101", "units": "101", "unit_amount": "0.5", "flat_amount": "10", "amount": "60.5"},
        {"from": "0", "to": "100", "units": "-100", "unit_amount": "1", "flat_amount": "0", "amount": "-100"},
    ]


def test_a_minimum_is_a_step_without_units() -> None:
    steps = quote(usage_price("unit", unit_amount="1", minimum="50"), 10, "EUR").as_dict()["steps"]
    nothing = {"from": None, "to": None, "units": "0", "unit_amount": "0"}
    assert steps[1] == nothing | {"flat_amount": "40", "amount": "40", "reason": "minimum"}


# Properties ------------------------------------------------------------------------------------------

money = st.decimals(0, 1000, places=4).map(str)
quantities = st.decimals(0, 5000, places=3)


@st.composite
def any_price(draw: st.DrawFn) -> Price:
    """A price of any usage model."""
    model = draw(st.sampled_from(["flat", "unit", "graduated", "volume", "package", "graduated_percentage"]))
    given: dict[str, Any] = {"key": "k", "kind": "usage", "model": model, "meter": "m", "aggregation": "sum"}
    if model in ("flat", "unit", "package"):
        given["unit_amount"] = draw(money)
    if model in ("unit", "package"):
        given["free_units"] = draw(st.integers(0, 300))
    if model == "package":
        given["package_size"] = draw(st.integers(1, 300))
    if "unit_amount" not in given:
        field = "rate" if model == "graduated_percentage" else "unit_amount"
        ends: list[int | None] = [*sorted(draw(st.sets(st.integers(1, 4000), max_size=4))), None]
        given["tiers"] = [{"up_to": end, field: draw(money), "flat_amount": draw(money)} for end in ends]
    return parse_price(given)


@PROPERTY
@given(any_price(), st.lists(quantities, min_size=1, max_size=6), st.sampled_from(["EUR", "JPY", "KWD"]))
def test_a_period_billed_in_any_number_of_parts_bills_what_one_line_would(
    price: Price, parts: list[Decimal], currency: str
) -> None:
    total, first = Decimal(0), None
    ratings: list[Rating] = []
    for more in parts:
        total += more
        ratings.append(quote(price, total, currency, first))
        first = total
    whole = rate(price, total, currency)
    assert sum(r.amount_minor for r in ratings) == whole.amount_minor
    assert sum(r.exact for r in ratings) == whole.exact
    assert all(sum((s.amount for s in r.steps), Fraction(0)) == r.exact for r in ratings)


@PROPERTY
@given(any_price(), quantities, st.sampled_from(["EUR", "JPY", "KWD"]))
def test_nothing_costs_less_than_nothing_and_steps_add_up(price: Price, quantity: Decimal, currency: str) -> None:
    found = rate(price, quantity, currency)
    assert found.amount_minor >= 0
    assert sum((step.amount for step in found.steps), Fraction(0)) == found.exact
    assert all(step.amount >= 0 for step in found.steps)


@PROPERTY
@given(any_price(), st.integers(0, 600))
def test_units_counted_one_by_one_cost_the_same(price: Price, quantity: int) -> None:
    assert rate(price, quantity, "EUR").exact == counted_one_by_one(price, quantity)


def counted_one_by_one(price: Price, quantity: int) -> Fraction:
    """The slow way: look at each unit and ask what it costs."""
    known = vars(price)
    unit_amount, free = Fraction(known.get("unit_amount") or 0), int(known.get("free_units") or 0)
    if price.model == "flat":
        return unit_amount
    if price.model == "unit":
        return sum((unit_amount for unit in range(1, quantity + 1) if unit > free), Fraction(0))
    if price.model == "package":
        size = int(known["package_size"])
        return sum((unit_amount for unit in range(1, quantity + 1) if unit > free and (unit - free - 1) % size == 0), Fraction(0))
    if price.model == "volume":
        tier = tier_of(price, max(quantity, 1))
        return sum((tier.per_unit() for _ in range(quantity)), Fraction(tier.flat_amount or 0))
    tiers = [tier_of(price, unit) for unit in range(1, quantity + 1)]
    return sum((tier.per_unit() for tier in tiers), sum((Fraction(tier.flat_amount or 0) for tier in set(tiers)), Fraction(0)))


def tier_of(price: Price, unit: int) -> Any:
    """The tier that a unit falls into."""
    return next(tier for tier in price.tiers if tier.up_to is None or unit <= tier.up_to)


@PROPERTY
@given(st.lists(st.decimals(0, 100, places=2), max_size=8), st.integers(0, 8), st.integers(0, 8), st.decimals(0, 300, places=2))
def test_payments_billed_in_two_parts_bill_what_one_line_would(
    amounts: list[Decimal], cut: int, free_events: int, free_amount: Decimal
) -> None:
    price = usage_price("percentage", rate="2.9", fixed_amount="0.3", free_events=free_events, free_amount=str(free_amount))
    events = payments(*map(str, amounts))
    first, total = price.usage_of(events[:cut]), price.usage_of(events)
    rest = quote(price, total, "EUR", first)
    assert rest.amount_minor >= 0
    assert cost_in_cents(price, first) + rest.amount_minor == cost_in_cents(price, total)


# Buckets ---------------------------------------------------------------------------------------------


def test_an_event_counts_in_the_first_bucket_that_takes_it_and_in_no_other() -> None:
    price = usage_price(
        "unit",
        unit_amount="1",
        buckets=[
            {"key": "eu", "filters": {"region": "eu"}, "unit_amount": "2"},
            {"key": "big", "filters": {"size": "big"}, "unit_amount": "3"},
            {"key": "night", "filters": {"time": "night"}, "unit_amount": "4"},
        ],
    )
    properties = [{"region": "eu"}, {"size": "big"}, {"time": "night"}, {"region": "eu", "size": "big"}, {}]
    events = [Event(Decimal(10), utc(f"2026-04-{day:02}"), each) for day, each in enumerate(properties, start=1)]

    # 10 in "eu" at 2, 10 in "big" at 3, 10 at "night" at 4, 10 of both in "eu" at 2, and 10 at 1.
    assert cost_in_cents(price, price.usage_of(events)) == 2000 + 3000 + 4000 + 2000 + 1000
