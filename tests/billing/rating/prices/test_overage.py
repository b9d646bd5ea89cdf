"""A cap in money is the largest number of credits up to which none costs more; the price of an overage is read strictly."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.prices.overage import OVERAGE_MODELS, OveragePrice, affordable, credit_type_of, definition, is_overage
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import parse_price
from ledger.values import FieldError

AMOUNTS = st.integers(0, 300).map(lambda cents: f"{cents / 100:.2f}")
TIERS = st.lists(st.integers(1, 40), max_size=3, unique=True).flatmap(
    lambda ends: st.tuples(*(st.tuples(st.just(end), AMOUNTS, AMOUNTS) for end in [*sorted(ends), None]))
)


@st.composite
def prices(draw: Any) -> dict[str, Any]:
    """The price of an overage, of any model."""
    model = draw(st.sampled_from(OVERAGE_MODELS))
    if model in ("unit", "package"):
        package = {"package_size": draw(st.integers(1, 30))} if model == "package" else {}
        return {"model": model, "unit_amount": draw(AMOUNTS), "free_units": draw(st.integers(0, 20))} | package
    tiers = [{"up_to": end, "unit_amount": unit, "flat_amount": flat} for end, unit, flat in draw(TIERS)]
    return {"model": model, "tiers": tiers}


@given(price=prices(), limit_minor=st.integers(0, 3_000))
def test_no_number_of_credits_up_to_the_cap_costs_more_and_the_next_one_does(price: dict[str, Any], limit_minor: int) -> None:
    parsed = parse_price(definition(price, "credits"))
    costs = [rate(parsed, Fraction(number), "EUR").amount_minor for number in range(1, 400)]
    expected = next((number for number, minor in enumerate(costs) if minor > limit_minor), None)
    found = affordable(parsed, limit_minor, "EUR")
    assert found == expected if expected is not None else (found is None or found >= len(costs))


def test_the_price_says_by_its_meter_what_it_counts() -> None:
    price = parse_price(definition({"model": "unit", "unit_amount": "1"}, "sms"))
    assert is_overage(price)
    assert (price.key, credit_type_of(price)) == ("overage", "sms")
    assert not is_overage(parse_price({**definition({"model": "unit", "unit_amount": "1"}, "sms"), "meter": "overages"}))


@pytest.mark.parametrize(
    ("price", "pointer"),
    [
        ([], "/p"),
        ({}, "/p/model"),
        ({"model": "flat", "unit_amount": "1"}, "/p/model"),
        ({"model": "percentage", "rate": "1"}, "/p/model"),
        ({"model": "unit"}, "/p/unit_amount"),
        ({"model": "unit", "unit_amount": 1}, "/p/unit_amount"),
        ({"model": "unit", "unit_amount": "1", "meter": "calls"}, "/p/meter"),
        ({"model": "unit", "unit_amount": "1", "key": "x"}, "/p/key"),
        ({"model": "unit", "unit_amount": "1", "credits": None}, "/p/credits"),
        ({"model": "unit", "unit_amount": "1", "colour": "red"}, "/p/colour"),
        ({"model": "volume", "tiers": []}, "/p/tiers"),
    ],
)
def test_what_is_no_price_of_an_overage_is_refused_by_field(price: Any, pointer: str) -> None:
    field_errors: list[FieldError] = []
    assert OveragePrice().take(price, "/p", field_errors) is None
    assert [error.pointer for error in field_errors] == [pointer]
