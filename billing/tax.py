"""Tax per category and rate: on the category's base, rounded once, never per line. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.money import round_half_up


@dataclass(frozen=True, slots=True)
class Taxable:
    """Something that belongs to a tax category.

    Args:
        category: e.g. S, Z, E, AE (UNTDID 5305).
        rate: percent.
        amount_minor: net amount after discounts; negative for a credit.
    """

    category: str
    rate: Decimal
    amount_minor: int


@dataclass(frozen=True, slots=True)
class TaxLine:
    """The tax of one category and rate on one document, in minor units."""

    category: str
    rate: Decimal
    base_minor: int
    tax_minor: int


def tax_minor(base_minor: int, rate: Decimal) -> int:
    """base × rate percent, rounded half up once; of a negative base the mirror image.

    Source: EN 16931 BR-CO-17.
    """
    return round_half_up(base_minor * Fraction(rate) / 100)


def taxes(amounts: Iterable[Taxable]) -> tuple[TaxLine, ...]:
    """One tax line per category and rate, ordered by both; also for a base of 0 and a rate of 0.

    The base is the sum of lines that are rounded already, hence whole minor units.
    """
    bases: dict[tuple[str, Decimal], int] = {}
    for amount in amounts:
        group = (amount.category, amount.rate)
        bases[group] = bases.get(group, 0) + amount.amount_minor
    return tuple(TaxLine(category, rate, base, tax_minor(base, rate)) for (category, rate), base in sorted(bases.items()))
