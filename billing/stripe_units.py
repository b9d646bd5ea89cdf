"""Amounts as Stripe counts them. Pure."""

from fractions import Fraction
from typing import Final

FACTORS: Final = {"ISK": Fraction(100), "UGX": Fraction(100), "MGA": Fraction(1, 100)}
"""How many of Stripe's units one minor unit of ISO 4217 is, where they differ. Source: Stripe, Supported currencies."""


def units_of(amount_minor: int, currency: str) -> int:
    """Return an amount in Stripe's units.

    Raises:
        ValueError: it is no whole number of them.
    """
    units = amount_minor * FACTORS.get(currency, Fraction(1))
    if units.denominator != 1:
        raise ValueError(f"Stripe takes whole units of {currency} only.")
    return units.numerator


def minor_of(units: int, currency: str) -> int:
    """Return an amount of Stripe's in minor units of ISO 4217; one that has none is rounded down."""
    return int(units / FACTORS.get(currency.upper(), Fraction(1)))
