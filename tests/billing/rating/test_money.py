"""Money is rounded in one place, half up, and split without losing a unit."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.money import MINOR_DIGITS, decimal_text, from_minor, minor_digits, round_half_up, spread, to_decimal, to_minor
from tests.billing.rating.builders import PROPERTY


@pytest.mark.parametrize(
    ("currency", "digits"),
    [("EUR", 2), ("USD", 2), ("GBP", 2), ("JPY", 0), ("KRW", 0), ("ISK", 0), ("KWD", 3), ("BHD", 3), ("TND", 3), ("HUF", 2)],
)
def test_currencies_have_the_decimals_of_iso_4217(currency: str, digits: int) -> None:
    assert minor_digits(currency) == digits


def test_every_currency_has_0_2_or_3_decimals() -> None:
    assert set(MINOR_DIGITS.values()) == {0, 2, 3}
    assert (sum(d == 0 for d in MINOR_DIGITS.values()), sum(d == 3 for d in MINOR_DIGITS.values())) == (16, 7)
    assert all(len(code) == 3 and code.isupper() for code in MINOR_DIGITS)


@pytest.mark.parametrize("code", ["XXX", "XAU", "CLF", "UYW", "EURO", "eur", "", "DEM"])
def test_what_cannot_be_billed_in_is_no_currency(code: str) -> None:
    with pytest.raises(ValueError, match="unknown currency"):
        minor_digits(code)


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [
        ("1.005", "EUR", 101),  # a float would say 100: 1.005 is 1.00499999999999989…
        ("1.004999999999", "EUR", 100),
        ("0.005", "EUR", 1),
        ("0.004999999999", "EUR", 0),
        ("2.675", "USD", 268),
        ("-0.005", "EUR", -1),
        ("-0.0049", "EUR", 0),
        ("0.5", "JPY", 1),
        ("1.5", "JPY", 2),
        ("2.5", "JPY", 3),  # half to even would say 2
        ("0.0005", "KWD", 1),
        ("12.3455", "KWD", 12346),
    ],
)
def test_rounding_is_half_up_to_the_currencys_minor_unit(amount: str, currency: str, minor: int) -> None:
    assert to_minor(Decimal(amount), currency) == minor


def test_thirds_are_exact_until_they_are_rounded() -> None:
    third = Fraction(100, 3)
    assert to_minor(third, "EUR") == 3333
    assert to_minor(third + third + third, "EUR") == 10000


def test_minor_units_go_back_exactly() -> None:
    assert from_minor(-12345, "EUR") == Fraction(-12345, 100)
    assert from_minor(12345, "JPY") == 12345
    assert from_minor(12345, "KWD") == Fraction(12345, 1000)


@PROPERTY
@given(st.integers(-(10**30), 10**30), st.integers(1, 10**12))
def test_rounding_mirrors_at_zero_and_is_at_most_a_half_away(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert round_half_up(-exact) == -round_half_up(exact)
    assert abs(round_half_up(exact) - exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Decimal("12.50"), "12.5"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.00"), "0"),
        (Fraction(1, 3), "0.333333333333"),
        (Fraction(-2, 3), "-0.666666666667"),
        (Fraction(1, 2**20), "0.00000095367431640625"),
        (Fraction(1, 10**15), "0.000000000000001"),
        (10**25, "1" + "0" * 25),
    ],
)
def test_numbers_are_written_plainly(number: Decimal | Fraction | int, text: str) -> None:
    assert decimal_text(number) == text


@PROPERTY
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=12))
def test_a_decimal_reads_back_as_written(number: Decimal) -> None:
    assert Decimal(decimal_text(number)) == number


def test_a_column_gets_its_scale() -> None:
    assert str(to_decimal(Fraction(2, 3))) == "0.666666666667"
    assert str(to_decimal(Fraction(5, 1000), 2)) == "0.01"


# Spreading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        (100, [1, 1, 1], [34, 33, 33]),  # 33⅓ each; the unit left over goes to the first of equals
        (1000, [5000, 3000, 2000], [500, 300, 200]),
        (10, [333, 333, 334], [3, 3, 4]),  # 3.33, 3.33, 3.34: the largest remainder
        (2, [1, 1, 1], [1, 1, 0]),
        (7, [0, 3, 0, 4], [0, 3, 0, 4]),
        (0, [5, 5], [0, 0]),
        (0, [], []),
        (0, [0, 0], [0, 0]),
    ],
)
def test_parts_follow_the_largest_remainder(amount: int, weights: list[int], parts: list[int]) -> None:
    assert spread(amount, weights) == parts


def test_what_has_nowhere_to_go_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to spread 5 on"):
        spread(5, [0, 0])
    with pytest.raises(ValueError, match="negative"):
        spread(-1, [1])
    with pytest.raises(ValueError, match="negative"):
        spread(1, [2, -1])


@PROPERTY
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=30), st.fractions(0, 1))
def test_parts_add_up_exactly_and_none_exceeds_its_weight(weights: list[int], of: Fraction) -> None:
    amount = int(sum(weights) * of)
    parts = spread(amount, weights)
    assert sum(parts) == amount
    assert all(0 <= part <= weight for part, weight in zip(parts, weights, strict=True))
    total = sum(weights)
    assert all(abs(part * total - amount * weight) < total or total == 0 for part, weight in zip(parts, weights, strict=True))
