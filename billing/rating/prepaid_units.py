"""Which units of a usage period are paid in credits, and how many credits that takes. Pure.

Covered units are stretches `(from, to]` of the period's quantity. Free units come first and take no credits. Covered units come
before the others, so the overage continues in the tier that it falls in. A part that is billed later begins where the first
stopped: its own units are covered first, and invoiced units stay invoiced.

`unit_amount` is the price of a unit: one of the quantity, or a started package. Either all units are covered, even where the last
one is not whole, or a number of whole ones. The credits of a period are rounded up once, in any number of spends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from billing.rating.aggregation import Usage
from billing.rating.money import Exact
from billing.rating.prices import Price, PriceModel
from billing.rating.pricing import Rating, quote

Stretch = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The covered units of a period: stretches that do not overlap, lowest first, and the credits that were spent on them."""

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


def free_quantity(price: Price) -> Fraction | None:
    """The quantity up to which nothing is owed: the free units, or the first tiers without an amount. None: all is free."""
    free = Fraction(price.free_units or 0)
    for tier in price.tiers:
        if tier.per_unit or tier.flat_amount:
            break
        if tier.up_to is None:
            return None
        free = Fraction(tier.up_to)
    return free


def units_at(price: Price, quantity: Fraction) -> Fraction:
    """The number of units to pay, in money or credits: those beyond the free units; of packages, the started ones."""
    free = free_quantity(price)
    beyond = Fraction(0) if free is None else max(quantity - free, Fraction(0))
    if price.model != PriceModel.PACKAGE:
        return beyond
    return Fraction(ceil(beyond / Fraction(price.package_size or 1)))


def units_of(price: Price, coverage: Coverage) -> Fraction:
    """The number of covered units."""
    return sum((units_at(price, upper) - units_at(price, lower) for lower, upper in coverage.stretches), Fraction(0))


def credits_for(price: Price, units: Fraction) -> int:
    """The credits that this number of units of a period takes, rounded up."""
    assert price.credits is not None
    return ceil(Fraction(price.credits.per_unit) * units)


def extend(price: Price, coverage: Coverage, *, billed: Fraction, total: Fraction, available: int) -> Coverage:
    """Cover the usage beyond `billed`, as far as the credits reach.

    Args:
        billed: the quantity up to which the period was billed before, in money or credits.
        available: credits that can be spent, 0 or more.

    Returns:
        The coverage with the new stretch; its credits exceed those before by `available` at most.
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
    """The coverage after the quantity of the period has shrunk to `total`."""
    kept = tuple((lower, min(upper, total)) for lower, upper in coverage.stretches)
    return _priced(price, kept, coverage.credits)


def afford(price: Price, coverage: Coverage, available: int) -> Coverage:
    """The coverage where only a part of its credits could be spent again: the lowest units."""
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
    return _priced(price, tuple(kept), available)


def joined(price: Price, coverages: Iterable[Coverage], total: Fraction) -> Coverage:
    """The coverage of a period whose parts were billed as separate periods: the same number of units, from the first on."""
    known = [one for one in coverages if one.stretches]
    units = sum((units_of(price, one) for one in known), Fraction(0))
    if not units:
        return NOTHING_COVERED
    reached = min(_reach(price, Fraction(0), units), total)
    return _priced(price, ((_start(price, Fraction(0)), reached),), sum(one.credits for one in known))


def quote_covered(price: Price, usage: Usage | Exact, currency: str, *, billed: Exact, available: int) -> tuple[Rating, Coverage]:
    """What a customer with these credits would pay for the usage beyond `billed`, in money and in credits."""
    total = max(usage.quantity if isinstance(usage, Usage) else Fraction(usage), Fraction(0))
    before = min(Fraction(billed), total)
    coverage = extend(price, NOTHING_COVERED, billed=before, total=total, available=available)
    return quote(price, usage, currency, billed or None, covered=coverage.stretches), coverage


def _with(price: Price, coverage: Coverage, billed: Fraction, reached: Fraction, units: Fraction) -> Coverage:
    start = _start(price, billed)
    stretches = coverage.stretches
    if stretches and stretches[-1][1] == start:
        start, stretches = stretches[-1][0], stretches[:-1]
    return Coverage((*stretches, (start, reached)), credits_for(price, units))


def _priced(price: Price, stretches: tuple[Stretch, ...], at_most: int) -> Coverage:
    kept = tuple((lower, upper) for lower, upper in stretches if lower < upper)
    if not kept:
        return NOTHING_COVERED
    return Coverage(kept, min(credits_for(price, units_of(price, Coverage(kept))), at_most))


def _start(price: Price, billed: Fraction) -> Fraction:
    return max(billed, free_quantity(price) or Fraction(0))


def _reach(price: Price, lower: Fraction, units: Fraction) -> Fraction:
    """The quantity with this number of units more to pay than at `lower`."""
    free = free_quantity(price) or Fraction(0)
    if price.model != PriceModel.PACKAGE:
        return max(lower, free) + units
    return free + Fraction(price.package_size or 1) * (units_at(price, lower) + units)


# As a claim stores it --------------------------------------------------------------------------------


def covered_snapshot(coverage: Coverage, spends: Sequence[CreditSpend], short_of: Sequence[Stretch] = ()) -> dict[str, Any]:
    """What a usage claim stores of its coverage.

    Args:
        short_of: the units that were covered when its money was billed, where not all of their credits could be spent again; the
            next run rates the period again.
    """
    snapshot = {"stretches": _texts(coverage.stretches), "spends": [list(astuple(spent)) for spent in spends]}
    return snapshot | ({"short_of": _texts(short_of)} if short_of else {})


def covered_of(snapshot: Mapping[str, Any]) -> tuple[Coverage, tuple[CreditSpend, ...]]:
    """What `covered_snapshot` stored; the credits are the sum of the spends."""
    spends = tuple(CreditSpend(*spent) for spent in snapshot["spends"])
    return Coverage(stretches_of(snapshot["stretches"]), sum(spent.credits for spent in spends)), spends


def stretches_of(texts: Iterable[Sequence[str]]) -> tuple[Stretch, ...]:
    """The stretches from the form in which a claim stores them."""
    return tuple((Fraction(lower), Fraction(upper)) for lower, upper in texts)


def _texts(stretches: Iterable[Stretch]) -> list[list[str]]:
    return [[str(lower), str(upper)] for lower, upper in stretches]
