"""What a quantity costs: the price models, exact until the line is rounded.

`rate` is amount(q) of one price for one period. `quote` continues where an earlier part of the period stopped:
amount(total) − amount(first), in minor units the difference of the two rounded amounts, so that two parts bill what
one would have. Every step holds `amount = units × unit_amount + flat_amount`, and the steps add up to `exact`.

Arithmetic is in `Fraction`, which rounds nothing; money is in major units until `Rating.amount_minor`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from billing.rating.aggregation import Event, Usage, aggregate, percentage_usage
from billing.rating.money import Exact, decimal_text, to_minor
from billing.rating.prices import PERCENTAGES, Price, PriceKind, PriceModel

Covered = Sequence[tuple[Fraction, Fraction]]

STEP_MEMBERS: Final = {
    "from": "lower",
    "to": "upper",
    "units": "units",
    "unit_amount": "unit_amount",
    "flat_amount": "flat_amount",
    "amount": "amount",
}
"""The members of a step in JSON, in their order, each with the attribute of `Step`; billing/api documents the same."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the calculation: the units between `lower` and `upper` and what they cost, exact.

    Args:
        lower, upper: the stretch of quantity (exclusive, inclusive) that this step prices; None for what a minimum adds.
        units: what was multiplied: units, packages or money, and negative where a step is taken back.
        amount: `units × unit_amount + flat_amount`.
    """

    lower: Fraction | None
    upper: Fraction | None
    units: Fraction
    unit_amount: Fraction
    flat_amount: Fraction = Fraction(0)

    @property
    def amount(self) -> Fraction:
        """Exact money in major units."""
        return self.units * self.unit_amount + self.flat_amount

    def as_dict(self) -> dict[str, str | None]:
        """The step in the words of the REST contract, numbers as decimal strings."""
        values = {member: getattr(self, field) for member, field in STEP_MEMBERS.items()}
        return {member: None if value is None else decimal_text(value) for member, value in values.items()}


@dataclass(frozen=True, slots=True)
class Rating:
    """What a quantity costs and how that came about.

    Args:
        exact: money in major units, unrounded.
        amount_minor: the line's amount, rounded once; for a rest the difference of two rounded amounts.
        steps: they add up to `exact`.
    """

    exact: Fraction
    amount_minor: int
    steps: tuple[Step, ...]

    def as_dict(self) -> dict[str, Any]:
        """The rating in the words of the REST contract."""
        return {
            "amount_minor": self.amount_minor,
            "exact": decimal_text(self.exact),
            "steps": [step.as_dict() for step in self.steps],
        }


def usage_of(
    price: Price,
    events: Sequence[Event],
    *,
    period: tuple[datetime, datetime] | None = None,
    held_before: Decimal = Decimal(0),
) -> Usage:
    """The usage of a price: its events, filtered and aggregated as the price says.

    Args:
        period: `[start, end)` of the full period, for `weighted_sum`.
        held_before: the value that holds when the period starts, for `weighted_sum`.

    Raises:
        ValueError: the price has no aggregation, or `weighted_sum` is asked without a period.
    """
    if price.aggregation is None:
        raise ValueError(f"price {price.key!r} has no aggregation")
    if price.model in PERCENTAGES:
        return percentage_usage(
            events,
            free_events=price.free_events,
            free_amount=price.free_amount,
            property_name=price.property,
            filters=price.filters,
        )
    quantity = aggregate(
        price.aggregation,
        events,
        property_name=price.property,
        filters=price.filters,
        period=period,
        held_before=held_before,
    )
    return Usage(quantity, len(events))


def usage_of_amount(price: Price, amount: Exact) -> Usage:
    """A bare quantity as usage: for percentages one event of that amount, inside what the price leaves free."""
    quantity = max(Fraction(amount), Fraction(0))
    if price.model not in PERCENTAGES or quantity == 0:
        return Usage(quantity)
    if price.free_events is None and price.free_amount is None:
        return Usage(quantity, 1)
    if price.free_events == 0:
        return Usage(quantity, 1)
    free = quantity if price.free_amount is None else min(quantity, Fraction(price.free_amount))
    return Usage(quantity, 1, free, 1 if free == quantity else 0)


def rate(price: Price, usage: Usage | Exact, currency: str) -> Rating:
    """amount(q) of a price for one full period, without its minimum and maximum.

    Args:
        usage: a quantity (0 or more; below zero counts as zero), or usage with its events for percentages.

    Returns:
        The rating; `amount_minor` is 0 or more.
    """
    known = usage if isinstance(usage, Usage) else usage_of_amount(price, usage)
    return _rating(_MODELS[price.model](price, known), currency)


def rate_uncovered(price: Price, usage: Usage | Exact, covered: Covered, currency: str) -> Rating:
    """What the units cost that no credits cover: amount(usage) less, for each covered stretch, amount(upper) − amount(lower).

    Args:
        covered: stretches `(lower, upper]` of the quantity, lowest first, none beyond it; see `billing.rating.prepaid_units`.

    Returns:
        The rating, rounded once; its steps are those of the uncovered units, each in the tier that it falls in.
    """
    known = usage if isinstance(usage, Usage) else usage_of_amount(price, usage)
    if not covered:
        return rate(price, known, currency)
    edges = [Fraction(0), *(edge for stretch in covered for edge in stretch), _units(known)]
    steps: list[Step] = []
    for lower, upper in zip(edges[::2], edges[1::2], strict=True):
        steps += _difference(rate(price, upper, currency), rate(price, lower, currency)).steps
    return _rating(steps, currency)


def quote(
    price: Price,
    usage: Usage | Exact,
    currency: str,
    first: Usage | Exact | None = None,
    *,
    covered: Covered = (),
    covered_first: Covered = (),
) -> Rating:
    """What a customer would pay for the usage, the price's own minimum and maximum included as a step.

    An invoice shows those as separate lines (`totals.Limit`) because discounts come in between.

    Args:
        usage: of the whole period so far, the first part included.
        first: what was billed already; None when nothing was, not even a flat fee.
        covered, covered_first: what of the usage, and of `first`, is paid in credits, as for `rate_uncovered`.

    Returns:
        With `first` the difference, step by step. It is negative where more units made all of them cheaper (`volume`), or
        usage shrank; the parts always add up to what one line for the whole would be.
    """
    whole = _limited(price, rate_uncovered(price, usage, covered, currency), currency)
    if first is None:
        return whole
    return _difference(whole, _limited(price, rate_uncovered(price, first, covered_first, currency), currency))


# The models ------------------------------------------------------------------------------------------


def _flat(price: Price, usage: Usage) -> list[Step]:
    units = _units(usage) if price.kind == PriceKind.RECURRING else Fraction(1)
    return [Step(Fraction(0), units, units, _money(price.unit_amount))]


def _unit(price: Price, usage: Usage) -> list[Step]:
    return _after_free(price, _units(usage), lambda chargeable: chargeable)


def _package(price: Price, usage: Usage) -> list[Step]:
    size = Fraction(price.package_size or 1)
    return _after_free(price, _units(usage), lambda chargeable: Fraction(-(-chargeable // size)))


def _graduated(price: Price, usage: Usage) -> list[Step]:
    quantity, steps, lower = _units(usage), [], Fraction(0)
    for tier in price.tiers:
        if quantity <= lower:
            break
        upper = quantity if tier.up_to is None else min(quantity, Fraction(tier.up_to))
        steps.append(Step(lower, upper, upper - lower, tier.per_unit, _money(tier.flat_amount)))
        lower = upper
    return steps


def _volume(price: Price, usage: Usage) -> list[Step]:
    quantity = _units(usage)
    tier = next(tier for tier in price.tiers if tier.up_to is None or quantity <= tier.up_to)
    return [Step(Fraction(0), quantity, quantity, tier.per_unit, _money(tier.flat_amount))]


def _percentage(price: Price, usage: Usage) -> list[Step]:
    quantity = _units(usage)
    free = min(max(usage.free_quantity, Fraction(0)), quantity)
    paying_events = max(usage.events - usage.free_events, 0)
    fees = paying_events * _money(price.fixed_amount)
    return _free_then(free, Step(free, quantity, quantity - free, _money(price.rate) / 100, fees))


_MODELS = {
    PriceModel.FLAT: _flat,
    PriceModel.UNIT: _unit,
    PriceModel.GRADUATED: _graduated,
    PriceModel.VOLUME: _volume,
    PriceModel.PACKAGE: _package,
    PriceModel.PERCENTAGE: _percentage,
    PriceModel.GRADUATED_PERCENTAGE: _graduated,
}


def _after_free(price: Price, quantity: Fraction, count: Callable[[Fraction], Fraction]) -> list[Step]:
    free = min(_money(price.free_units), quantity)
    return _free_then(free, Step(free, quantity, count(quantity - free), _money(price.unit_amount)))


def _free_then(free: Fraction, charged: Step) -> list[Step]:
    if not free:
        return [charged]
    free_step = Step(Fraction(0), free, free, Fraction(0))
    return [free_step, charged] if charged.units or charged.flat_amount else [free_step]


def _units(usage: Usage) -> Fraction:
    return max(usage.quantity, Fraction(0))


def _money(amount: Decimal | None) -> Fraction:
    return Fraction(amount) if amount is not None else Fraction(0)


# Adding up -------------------------------------------------------------------------------------------


def _rating(steps: Sequence[Step], currency: str) -> Rating:
    exact = sum((step.amount for step in steps), Fraction(0))
    return Rating(exact, to_minor(exact, currency), tuple(steps))


def _limited(price: Price, rating: Rating, currency: str) -> Rating:
    bounded = rating.exact
    if price.maximum is not None:
        bounded = min(bounded, Fraction(price.maximum))
    if price.minimum is not None:
        bounded = max(bounded, Fraction(price.minimum))
    if bounded == rating.exact:
        return rating
    correction = Step(None, None, Fraction(0), Fraction(0), bounded - rating.exact)
    return Rating(bounded, to_minor(bounded, currency), (*rating.steps, correction))


def _difference(whole: Rating, first: Rating) -> Rating:
    """Subtract the steps of the first part from those of the whole. Steps that the whole does not have become negative."""
    taken = {(step.lower, step.unit_amount): step for step in first.steps}
    steps = [_step_rest(step, taken.pop((step.lower, step.unit_amount), None)) for step in whole.steps]
    steps += [replace(before, units=-before.units, flat_amount=-before.flat_amount) for before in taken.values()]
    shown = tuple(step for step in steps if step.units or step.flat_amount)
    return Rating(whole.exact - first.exact, whole.amount_minor - first.amount_minor, shown)


def _step_rest(step: Step, before: Step | None) -> Step:
    if before is None:
        return step
    flat_amount = step.flat_amount - before.flat_amount
    return replace(step, lower=before.upper, units=step.units - before.units, flat_amount=flat_amount)
