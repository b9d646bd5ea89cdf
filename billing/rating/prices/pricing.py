"""The cost of a quantity: the price models, exact until the line is rounded.

`rate` is amount(q) of one price for one period. `quote` continues where an earlier part of the period stopped: amount(total) −
amount(first), in minor units the difference of the two rounded amounts, so that two parts bill as much as one would. Every step
has `amount = units × unit_amount + flat_amount`, and the steps add up to `exact`.

Arithmetic is in `Fraction`, which rounds nothing; money is in major units until `Rating.amount_minor`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from billing.rating.aggregation import Group, RatingInput, in_order
from billing.rating.money import Exact, decimal_text, to_minor
from billing.rating.prices.price import Price
from billing.rating.prices.steps import Step, StepReason, corrections, units_used

Covered = Sequence[tuple[Fraction, Fraction]]


@dataclass(frozen=True, slots=True)
class Rating:
    """The cost of a quantity, and the steps that lead to it.

    Args:
        exact: money in major units, unrounded.
        amount_minor: the line's amount, rounded once; of a later part, the difference of two rounded amounts.
        steps: they add up to `exact`.
    """

    exact: Fraction
    amount_minor: int
    steps: tuple[Step, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the rating with the field names of the REST contract."""
        return {
            "amount_minor": self.amount_minor,
            "exact": decimal_text(self.exact),
            "steps": [step.as_dict() for step in self.steps],
        }


NOTHING_RATED = Rating(Fraction(0), 0, ())


def usage_of_quantity(price: Price, quantity: Exact) -> RatingInput:
    """Return the usage of a price that measured a quantity in one event, converted if the price converts."""
    measured = price.converted(RatingInput(Fraction(quantity)))
    return replace(price.usage_of_amount(measured.quantity), measured=measured.measured)


def rate(price: Price, usage: RatingInput | Exact, currency: str) -> Rating:
    """Return amount(q) of a price for one full period, without its minimum and maximum.

    Args:
        usage: a quantity (0 or more; below zero counts as zero), or usage with its events for percentages.

    Returns:
        The rating; `amount_minor` is 0 or more.
    """
    known = usage if isinstance(usage, RatingInput) else price.usage_of_amount(usage)
    if known.groups:
        return in_all(rate_groups(price, known, currency).values())
    return _rating(price.all_steps(known), currency)


def rate_groups(price: Price, usage: RatingInput, currency: str, first: RatingInput | None = None) -> dict[Group, Rating]:
    """Return the cost of each group of usage, in their order, rounded by itself; without minimum and maximum of the price.

    Args:
        first: the usage that was billed already: the ratings are the differences, also of groups that are gone.
    """
    ratings = {group: rate(price, of_group, currency) for group, of_group in usage.groups}
    if first is None:
        return ratings
    billed = rate_groups(price, first, currency)
    groups = in_order({*ratings, *billed})
    return {group: _difference(ratings.get(group, NOTHING_RATED), billed.get(group, NOTHING_RATED)) for group in groups}


def in_all(ratings: Iterable[Rating]) -> Rating:
    """Return the cost of all groups: the sum of their amounts. Each group has its own steps."""
    known = list(ratings)
    return Rating(sum((one.exact for one in known), Fraction(0)), sum(one.amount_minor for one in known), ())


def rate_uncovered(price: Price, usage: RatingInput | Exact, covered: Covered, currency: str) -> Rating:
    """Return the cost of the units without credits: amount(usage) less, for each covered stretch, amount(upper) − amount(lower).

    Args:
        covered: stretches `(lower, upper]` within the quantity, the lowest first; see `prepaid_units`.

    Returns:
        The rating, rounded once; its steps are those of the uncovered units, each in its own tier.
    """
    known = usage if isinstance(usage, RatingInput) else price.usage_of_amount(usage)
    if not covered:
        return rate(price, known, currency)
    edges = [*(edge for stretch in covered for edge in stretch), units_used(known)]
    steps = list(rate(price, edges[0], currency).steps)
    for lower, upper in zip(edges[1::2], edges[2::2], strict=True):
        steps += _difference(rate(price, upper, currency), rate(price, lower, currency)).steps
    return _rating([step for step in steps if step.units or step.flat_amount], currency)


def quote(
    price: Price,
    usage: RatingInput | Exact,
    currency: str,
    first: RatingInput | Exact | None = None,
    *,
    covered: Covered = (),
    covered_first: Covered = (),
) -> Rating:
    """Return what a customer would pay for the usage, with the price's own minimum and maximum as a step.

    An invoice shows those as separate lines (`totals.Limit`), because discounts come in between.

    Args:
        usage: of the whole period so far, the first part included.
        first: the usage that was billed already; None if not even a flat fee was billed.
        covered, covered_first: the parts of the usage and of `first` that credits pay, as for `rate_uncovered`.

    Returns:
        With `first`, the difference, step by step. It is negative if more units made all of them cheaper (`volume`), or if the
        usage shrank. The parts always add up to the amount of one line for the whole.
    """
    whole = _limit_rating(price, rate_uncovered(price, usage, covered, currency), currency)
    if first is None:
        return whole
    return _difference(whole, _limit_rating(price, rate_uncovered(price, first, covered_first, currency), currency))


# Adding up -------------------------------------------------------------------------------------------


def _rating(steps: Sequence[Step], currency: str) -> Rating:
    exact = sum((step.amount for step in steps), Fraction(0))
    return Rating(exact, to_minor(exact, currency), tuple(steps))


def _limit_rating(price: Price, rating: Rating, currency: str) -> Rating:
    lowered = rating.exact if price.maximum is None else min(rating.exact, Fraction(price.maximum))
    bounded = lowered if price.minimum is None else max(lowered, Fraction(price.minimum))
    if bounded == rating.exact:
        return rating
    added = corrections(maximum=lowered - rating.exact, minimum=bounded - lowered)
    return Rating(bounded, to_minor(bounded, currency), (*rating.steps, *added))


def _difference(whole: Rating, first: Rating) -> Rating:
    """Return the steps of the whole less those of the first part. Steps that the whole does not have become negative."""
    taken = {_place(step): step for step in first.steps}
    steps = [_step_rest(step, taken.pop(_place(step), None)) for step in whole.steps]
    steps += [replace(before, units=-before.units, flat_amount=-before.flat_amount) for before in taken.values()]
    shown = tuple(step for step in steps if step.units or step.flat_amount)
    return Rating(whole.exact - first.exact, whole.amount_minor - first.amount_minor, shown)


def _place(step: Step) -> tuple[Fraction | None, Fraction, StepReason | None, str | None]:
    return step.lower, step.unit_amount, step.reason, step.bucket


def _step_rest(step: Step, before: Step | None) -> Step:
    if before is None:
        return step
    flat_amount = step.flat_amount - before.flat_amount
    return replace(step, lower=before.upper, units=step.units - before.units, flat_amount=flat_amount)
