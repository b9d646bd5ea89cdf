"""The lines of a calculation: the exact cost of stretches of a quantity. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.rating.aggregation import Usage
from billing.rating.money import decimal_text

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
    """A line of the calculation: the units between `lower` and `upper` and their exact cost.

    Args:
        lower, upper: the stretch of quantity (exclusive, inclusive) that this step prices; None for the amount that a minimum
            adds.
        units: the units, packages or money that were multiplied; negative if a step is taken back.
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
        """Return the step with the field names of the REST contract, and numbers as decimal strings."""
        values = {member: getattr(self, field) for member, field in STEP_MEMBERS.items()}
        return {member: None if value is None else decimal_text(value) for member, value in values.items()}


def units_used(usage: Usage) -> Fraction:
    """Return the quantity to rate: below zero it counts as zero."""
    return max(usage.quantity, Fraction(0))


def exact(amount: Decimal | None) -> Fraction:
    """Return an amount of a price; zero if the price has no such amount."""
    return Fraction(amount) if amount is not None else Fraction(0)


def free_then(free: Fraction, charged: Step) -> list[Step]:
    """Return a step for the free units, if there are any, and one for the others, unless they cost nothing."""
    if not free:
        return [charged]
    free_step = Step(Fraction(0), free, free, Fraction(0))
    return [free_step, charged] if charged.units or charged.flat_amount else [free_step]
