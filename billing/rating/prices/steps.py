"""The lines of a calculation: the exact cost of stretches of a quantity. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from billing.rating.aggregation import RatingInput
from billing.rating.money import decimal_text

STEP_MEMBERS: Final = {
    "from": "lower",
    "to": "upper",
    "units": "units",
    "unit_amount": "unit_amount",
    "flat_amount": "flat_amount",
    "amount": "amount",
}
"""The members of every step in JSON, in their order, each with the attribute of `Step`; billing/api documents the same."""


class StepReason(StrEnum):
    """Why a step adds or takes off money that no stretch of the quantity costs."""

    EVENT_MINIMUM = "event_minimum"
    EVENT_MAXIMUM = "event_maximum"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the calculation: the units between `lower` and `upper` and their exact cost.

    Args:
        lower, upper: the stretch of quantity (exclusive, inclusive) that this step prices; None for a step with a reason.
        units: the units, packages or money that were multiplied; negative if a step is taken back.
        amount: `units × unit_amount + flat_amount`.
        reason: the bound that adds or takes off the amount; None: the stretch costs it.
        bucket: the key of the bucket whose usage it prices; None: the price has no buckets, or no bucket takes the usage.
    """

    lower: Fraction | None
    upper: Fraction | None
    units: Fraction
    unit_amount: Fraction
    flat_amount: Fraction = Fraction(0)
    reason: StepReason | None = None
    bucket: str | None = None

    @property
    def amount(self) -> Fraction:
        """Exact money in major units."""
        return self.units * self.unit_amount + self.flat_amount

    def of_share(self, share: Fraction) -> "Step":
        """Return the step for a share of a period."""
        return replace(self, units=self.units * share, flat_amount=self.flat_amount * share)

    def as_dict(self) -> dict[str, str | None]:
        """Return the step with the names of the REST contract, numbers as decimal strings; reason and bucket if it has them."""
        numbers = {member: getattr(self, field) for member, field in STEP_MEMBERS.items()}
        texts = {member: None if number is None else decimal_text(number) for member, number in numbers.items()}
        further = {"reason": self.reason and self.reason.value, "bucket": self.bucket}
        return texts | {member: text for member, text in further.items() if text is not None}


def added_up(steps: Iterable[Step]) -> list[Step]:
    """Return one step for each stretch and price, with the units and amounts of all steps that begin and cost the same."""
    found: dict[tuple[Fraction | None, Fraction], Step] = {}
    for step in steps:
        place = (step.lower, step.unit_amount)
        before = found.get(place, replace(step, units=Fraction(0), flat_amount=Fraction(0)))
        upper = max(before.upper or Fraction(0), step.upper or Fraction(0))
        units, flat_amount = before.units + step.units, before.flat_amount + step.flat_amount
        found[place] = replace(step, upper=upper, units=units, flat_amount=flat_amount)
    ordered = sorted(found.values(), key=lambda step: (step.lower or Fraction(0), step.upper or Fraction(0)))
    return [step for step in ordered if step.units or step.flat_amount] or ordered[:1]


def units_used(usage: RatingInput) -> Fraction:
    """Return the quantity to rate: below zero it counts as zero."""
    return max(usage.quantity, Fraction(0))


def exact(amount: Decimal | None) -> Fraction:
    """Return an amount of a price; zero if the price has no such amount."""
    return Fraction(amount) if amount is not None else Fraction(0)


def corrections(**amounts: Fraction) -> list[Step]:
    """Return a step for each bound, by the name of its reason, that adds or takes off money."""
    steps = ((StepReason(name), amount) for name, amount in amounts.items() if amount)
    return [Step(None, None, Fraction(0), Fraction(0), amount, reason) for reason, amount in steps]


def free_then(free: Fraction, charged: Step) -> list[Step]:
    """Return a step for the free units, if there are any, and one for the others, unless they cost nothing."""
    if not free:
        return [charged]
    free_step = Step(Fraction(0), free, free, Fraction(0))
    return [free_step, charged] if charged.units or charged.flat_amount else [free_step]
