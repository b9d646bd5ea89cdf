"""Which units of a usage period credits pay for, and how many credits that takes. Pure.

Covered units are stretches `(from, to]` of the period's quantity. Free units come first and take no credits. Covered units come
before the others, so the overage continues in its own tier. A part that a later run bills begins where the first part stopped:
credits cover its units first, and units already invoiced stay invoiced.

`unit_amount` is the price of a unit: one of the quantity, or a started package. Credits cover all units, even if the last is not
    whole, or a number of whole units. The credits of a period are rounded up once, over any number of spends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from billing.rating.aggregation import RatingInput
from billing.rating.money import Exact
from billing.rating.prices.price import Price
from billing.rating.prices.pricing import Rating, quote

Stretch = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The covered units of a period: stretches that do not overlap, the lowest first, and the credits spent on them."""

    stretches: tuple[Stretch, ...] = ()
    credits: int = 0


@dataclass(frozen=True, slots=True)
class CreditSpend:
    """Credits of a spend in the ledger that still pay for a claim; `credits` is above 0."""

    holder_id: str
    credit_type: str
    sequence: int
    credits: int


NOTHING_COVERED = Coverage()


def units_at(price: Price, quantity: Fraction) -> Fraction:
    """Return the number of units to pay for, in money or credits: those beyond the free units; of packages, the started ones."""
    free = price.free_quantity()
    return price.units_in(Fraction(0) if free is None else max(quantity - free, Fraction(0)))


def units_of(price: Price, coverage: Coverage) -> Fraction:
    """The number of covered units."""
    return sum((units_at(price, upper) - units_at(price, lower) for lower, upper in coverage.stretches), Fraction(0))


def credits_for(price: Price, units: Fraction) -> int:
    """Return the credits that this number of units of a period takes, rounded up."""
    assert price.credits is not None
    return ceil(Fraction(price.credits.per_unit) * units)


def extend(price: Price, coverage: Coverage, *, billed: Fraction, total: Fraction, available: int) -> Coverage:
    """Return the coverage of the usage beyond `billed`, as far as the credits suffice.

    Args:
        billed: the quantity up to which earlier runs billed the period, in money or credits.
        available: the credits that can be spent, 0 or more.

    Returns:
        The coverage with the new stretch; it has at most `available` credits more than before.
    """
    new = units_at(price, total) - units_at(price, billed)
    if price.credits is None or new <= 0:
        return coverage
    before, purse = units_of(price, coverage), available + coverage.credits
    if credits_for(price, before + new) <= purse:
        return _with(price, coverage, billed, total, before + new)
    whole = floor(Fraction(purse) / Fraction(price.credits.per_unit) - before)
    if whole <= 0:
        return coverage
    return _with(price, coverage, billed, _reach(price, billed, Fraction(whole)), before + whole)


def cut(price: Price, coverage: Coverage, total: Fraction) -> Coverage:
    """Return the coverage after the quantity of the period has shrunk to `total`."""
    kept = tuple((lower, min(upper, total)) for lower, upper in coverage.stretches)
    return _price_stretches(price, kept, coverage.credits)


def afford(price: Price, coverage: Coverage, available: int) -> Coverage:
    """Return the coverage if only a part of its credits could be spent again: the lowest units stay."""
    if available >= coverage.credits:
        return coverage
    assert price.credits is not None
    left = Fraction(floor(Fraction(available) / Fraction(price.credits.per_unit)))
    kept: list[Stretch] = []
    for lower, upper in coverage.stretches:
        units = units_at(price, upper) - units_at(price, lower)
        if left >= units:
            kept.append((lower, upper))
        elif left > 0:
            kept.append((lower, _reach(price, lower, left)))
        left = max(left - units, Fraction(0))
    return _price_stretches(price, tuple(kept), available)


def joined(price: Price, coverages: Iterable[Coverage], total: Fraction) -> Coverage:
    """Return the coverage of a period that was billed as several periods: the same number of units, from the first on."""
    known = [one for one in coverages if one.stretches]
    units = sum((units_of(price, one) for one in known), Fraction(0))
    if not units:
        return NOTHING_COVERED
    reached = min(_reach(price, Fraction(0), units), total)
    return _price_stretches(price, ((_start(price, Fraction(0)), reached),), sum(one.credits for one in known))


def quote_covered(
    price: Price, usage: RatingInput | Exact, currency: str, *, billed: Exact, available: int
) -> tuple[Rating, Coverage]:
    """Return what a customer with these credits would pay for the usage beyond `billed`, in money and in credits."""
    total = max(usage.quantity if isinstance(usage, RatingInput) else Fraction(usage), Fraction(0))
    before = min(Fraction(billed), total)
    coverage = extend(price, NOTHING_COVERED, billed=before, total=total, available=available)
    return quote(price, usage, currency, billed or None, covered=coverage.stretches), coverage


def _with(price: Price, coverage: Coverage, billed: Fraction, reached: Fraction, units: Fraction) -> Coverage:
    start = _start(price, billed)
    stretches = coverage.stretches
    if stretches and stretches[-1][1] == start:
        start, stretches = stretches[-1][0], stretches[:-1]
    return Coverage((*stretches, (start, reached)), credits_for(price, units))


def _price_stretches(price: Price, stretches: tuple[Stretch, ...], at_most: int) -> Coverage:
    kept = tuple((lower, upper) for lower, upper in stretches if lower < upper)
    if not kept:
        return NOTHING_COVERED
    return Coverage(kept, min(credits_for(price, units_of(price, Coverage(kept))), at_most))


def _start(price: Price, billed: Fraction) -> Fraction:
    return max(billed, price.free_quantity() or Fraction(0))


def _reach(price: Price, lower: Fraction, units: Fraction) -> Fraction:
    """Return the quantity that has this number of units to pay for more than `lower` has."""
    return (price.free_quantity() or Fraction(0)) + price.quantity_of(units_at(price, lower) + units)


# As a claim stores it --------------------------------------------------------------------------------


def covered_snapshot(coverage: Coverage, spends: Sequence[CreditSpend], short_of: Sequence[Stretch] = ()) -> dict[str, Any]:
    """Return the data of a coverage that a usage claim stores.

    Args:
        short_of: the units that were covered when their money was billed, if only some of their credits could be spent again;
            then the next run rates the period again.
    """
    snapshot = {"stretches": _texts(coverage.stretches), "spends": [list(astuple(spent)) for spent in spends]}
    return snapshot | ({"short_of": _texts(short_of)} if short_of else {})


def covered_of(snapshot: Mapping[str, Any]) -> tuple[Coverage, tuple[CreditSpend, ...]]:
    """Return the coverage of the data that `covered_snapshot` made; its credits are the sum of the spends."""
    spends = tuple(CreditSpend(*spent) for spent in snapshot["spends"])
    return Coverage(stretches_of(snapshot["stretches"]), sum(spent.credits for spent in spends)), spends


def stretches_of(texts: Iterable[Sequence[str]]) -> tuple[Stretch, ...]:
    """Return the stretches of the data in a claim."""
    return tuple((Fraction(lower), Fraction(upper)) for lower, upper in texts)


def _texts(stretches: Iterable[Stretch]) -> list[list[str]]:
    return [[str(lower), str(upper)] for lower, upper in stretches]
