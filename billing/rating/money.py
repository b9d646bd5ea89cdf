"""Currencies, exact amounts and the only place where money is rounded.

Amounts are exact (`Fraction` or `Decimal` in major units) until they become lines. Then `to_minor` rounds once, half up, to the
currency's minor unit. Fractions, because a month of 30 days brings thirds.
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from ledger.values import MINOR_DIGITS

Exact = Fraction | Decimal | int

# Wide enough for every sum of (38,12) numbers that is written out; the exact value stays a Fraction.
_WIDE = Context(prec=120)
_EXACT_TEXT_DECIMALS = 12


def minor_digits(currency: str) -> int:
    """Return the decimals of a currency by ISO 4217: 0, 2 or 3.

    Raises:
        ValueError: the code is unknown, or billing does not support the currency.
    """
    try:
        return MINOR_DIGITS[currency]
    except KeyError:
        raise ValueError(f"unknown currency {currency!r}") from None


def money_text(amount_minor: int, currency: str) -> str:
    """Return an amount of minor units in words, with its currency; in minor units if billing does not support the currency."""
    if currency not in MINOR_DIGITS:
        return f"{amount_minor:,} {currency} in minor units"
    major, decimals = Decimal(amount_minor).scaleb(-minor_digits(currency)), minor_digits(currency)
    return f"{major:,.{decimals}f} {currency}".replace("-", "−")


def to_minor(amount: Exact, currency: str) -> int:
    """Return an exact amount in major units as whole minor units, rounded half up (away from zero on both sides)."""
    return round_half_up(Fraction(amount) * 10 ** minor_digits(currency))


def from_minor(amount_minor: int, currency: str) -> Fraction:
    """Return whole minor units as an exact amount in major units."""
    return Fraction(amount_minor, 10 ** minor_digits(currency))


def round_half_up(amount: Exact) -> int:
    """Return the nearest integer; a half goes away from zero, so that a credit mirrors its charge.

    Source: `decimal.ROUND_HALF_UP`, which rounds ties away from zero.
    """
    numerator, denominator = amount.as_integer_ratio()
    whole, rest = divmod(abs(numerator), denominator)
    magnitude = whole + (2 * rest >= denominator)
    return magnitude if numerator >= 0 else -magnitude


def round_to_step(amount_minor: int, step_minor: int) -> int:
    """Return the nearest multiple of a step; a half goes away from zero."""
    return round_half_up(Fraction(amount_minor, step_minor)) * step_minor


def decimal_text(amount: Exact) -> str:
    """Return a number in plain notation without trailing zeros; exact, or rounded to 12 decimals if it has no exact form.

    Returns:
        "12.5", "0", "-0.333333333333"; never an exponent.
    """
    numerator, denominator = amount.as_integer_ratio()
    if denominator == 1:
        return str(numerator)
    scaled = numerator * 10**_EXACT_TEXT_DECIMALS
    if scaled % denominator and _terminates(denominator):
        return _plain(_WIDE.divide(Decimal(numerator), Decimal(denominator)))
    return _plain(Decimal(round_half_up(Fraction(scaled, denominator))).scaleb(-_EXACT_TEXT_DECIMALS, _WIDE))


def to_decimal(amount: Exact, places: int = _EXACT_TEXT_DECIMALS) -> Decimal:
    """Return an exact number as a Decimal of at most `places` decimals, rounded half up, for a column of that scale."""
    exact = Fraction(amount)
    quotient = _WIDE.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return quotient.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _WIDE)


def spread(amount: int, weights: Sequence[int]) -> list[int]:
    """Split `amount` in proportion to `weights`, in whole units that add up to it exactly.

    Each part is the proportional share rounded down or up. The units left over go to the largest remainders, and among equal
    remainders to the earlier part. While `amount` does not exceed the sum of the weights, no part exceeds its weight.

    Args:
        amount: 0 or more.
        weights: each 0 or more; a weight of 0 gets 0.

    Raises:
        ValueError: a number is negative, or all weights are 0 and the amount is not.

    Source: the largest remainder method (Hamilton).
    """
    total = sum(weights)
    if amount < 0 or any(weight < 0 for weight in weights):
        raise ValueError("cannot spread negative numbers")
    if total == 0:
        if amount:
            raise ValueError(f"nothing to spread {amount} on")
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(amount * weights[i] % total), i))
    for i in by_remainder[: amount - sum(parts)]:
        parts[i] += 1
    return parts


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text
