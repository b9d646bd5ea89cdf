"""The models of prices, one class each: its fields, the rating of a quantity, and the sentence for people. Pure.

Each class registers itself by its name in `MODELS`; no other place lists the models.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, ClassVar

from billing.rating.aggregation import Aggregation, Event, Usage, percentage_usage
from billing.rating.money import Exact
from billing.rating.prices.price import Misfit, Price, PriceKind
from billing.rating.prices.steps import Step, exact, free_then, units_used
from billing.rating.prices.tiers import Tier, Tiers, tiers_text
from billing.rating.prices.values import CreditPrice, CreditsOfPrice, EventCount, Money, PackageSize, Units
from billing.rating.prices.wording import Wording, number

Credits = Annotated[
    CreditPrice | None,
    CreditsOfPrice("Usage prices only: the holder's credits pay for units first; the invoice charges the rest."),
]


@dataclass(frozen=True, kw_only=True)
class FlatPrice(Price, model="flat", title="a fixed amount"):
    """One amount a period, whatever the usage; of a recurring price, for each ordered unit."""

    unit_amount: Annotated[Decimal, Money("Money a period.")]

    def steps(self, usage: Usage) -> list[Step]:
        units = units_used(usage) if self.kind == PriceKind.RECURRING else Fraction(1)
        return [Step(Fraction(0), units, units, Fraction(self.unit_amount))]

    def cost(self, say: Wording) -> str:
        return f"{say.amount(self.unit_amount)} a {say.period}"


@dataclass(frozen=True, kw_only=True)
class UnitPrice(Price, model="unit", title="per unit"):
    """A price for each unit beyond the free units."""

    unit_amount: Annotated[Decimal, Money("Money per unit.")]
    free_units: Annotated[Decimal | None, Units("How many units at the beginning are free.")] = None
    credits: Credits = None

    def steps(self, usage: Usage) -> list[Step]:
        quantity = units_used(usage)
        free = min(exact(self.free_units), quantity)
        return free_then(free, Step(free, quantity, self.units_in(quantity - free), Fraction(self.unit_amount)))

    def free_quantity(self) -> Fraction:
        return exact(self.free_units)

    def cost(self, say: Wording) -> str:
        return f"{say.amount(self.unit_amount)} per {say.unit}"

    def free(self, say: Wording) -> list[str]:
        return [f"the first {number(self.free_units)} free"] if self.free_units else []


def graduated(tiers: Sequence[Tier], usage: Usage) -> list[Step]:
    """Rate each part of the usage by its tier."""
    quantity, steps, lower = units_used(usage), [], Fraction(0)
    for tier in tiers:
        if quantity <= lower:
            break
        upper = quantity if tier.up_to is None else min(quantity, Fraction(tier.up_to))
        steps.append(Step(lower, upper, upper - lower, tier.per_unit(), exact(tier.flat_amount)))
        lower = upper
    return steps


@dataclass(frozen=True, kw_only=True)
class GraduatedPrice(Price, model="graduated", title="per unit in tiers, each part at its own price"):
    """A price per unit that depends on the tier that the unit is in."""

    tiers: Annotated[tuple[Tier, ...], Tiers("unit_amount", "Each tier prices its own units.", model="graduated")]
    credits: Credits = None

    def steps(self, usage: Usage) -> list[Step]:
        return graduated(self.tiers, usage)

    def free_quantity(self) -> Fraction | None:
        free = Fraction(0)
        for tier in self.tiers:
            if tier.per_unit() or tier.flat_amount:
                return free
            free = exact(tier.up_to)
        return None

    def cost(self, say: Wording) -> str:
        return f"per {say.unit}, each part at its own price: {tiers_text(self.tiers, say)}"


@dataclass(frozen=True, kw_only=True)
class VolumePrice(Price, model="volume", title="per unit in tiers, all at the price that is reached"):
    """A price for all units; it depends on the tier that their number reaches."""

    tiers: Annotated[
        tuple[Tier, ...], Tiers("unit_amount", "The tier that the quantity reaches prices all units.", model="volume")
    ]

    def steps(self, usage: Usage) -> list[Step]:
        quantity = units_used(usage)
        tier = next(tier for tier in self.tiers if tier.up_to is None or quantity <= tier.up_to)
        return [Step(Fraction(0), quantity, quantity, tier.per_unit(), exact(tier.flat_amount))]

    def cost(self, say: Wording) -> str:
        return f"per {say.unit}, all at the price of the tier that is reached: {tiers_text(self.tiers, say)}"


@dataclass(frozen=True, kw_only=True)
class PackagePrice(UnitPrice, model="package", title="per package"):
    """A price for each started package of units beyond the free units."""

    unit_amount: Annotated[Decimal, Money("Money per package.")]
    package_size: Annotated[Decimal, PackageSize("Units in a package, 0.001 or more.")]

    def units_in(self, quantity: Fraction) -> Fraction:
        return Fraction(ceil(quantity / Fraction(self.package_size)))

    def quantity_of(self, units: Fraction) -> Fraction:
        return Fraction(self.package_size) * units

    def cost(self, say: Wording) -> str:
        return f"{say.amount(self.unit_amount)} per started package of {number(self.package_size)} {say.units}"


@dataclass(frozen=True, kw_only=True)
class PriceOfMoney(Price):
    """A price of usage whose units are money."""

    counts_money: ClassVar[bool] = True

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        yield from super().misfits(taken, given)
        if taken["kind"] != PriceKind.USAGE:
            yield "model", "model-needs-usage", f"model {cls.model} needs kind usage"
        elif taken.get("aggregation") not in (None, Aggregation.SUM):
            yield "aggregation", "aggregation-not-for-model", f"model {cls.model} needs the aggregation sum"

    def usage_of(self, events: Sequence[Event], **period: Any) -> Usage:
        return percentage_usage(
            events,
            free_events=self.free_events,
            free_amount=self.free_amount,
            property_name=self.property,
            filters=self.filters,
        )

    def usage_of_amount(self, amount: Exact) -> Usage:
        """One event of that amount, within the free amount and count of the price."""
        quantity = super().usage_of_amount(amount).quantity
        if quantity == 0:
            return Usage(quantity)
        if self.free_events == 0 or (self.free_events is None and self.free_amount is None):
            return Usage(quantity, 1)
        free = quantity if self.free_amount is None else min(quantity, Fraction(self.free_amount))
        return Usage(quantity, 1, free, 1 if free == quantity else 0)


@dataclass(frozen=True, kw_only=True)
class PercentagePrice(PriceOfMoney, model="percentage", title="a percentage"):
    """A percentage of the money that usage events carry, and an amount per event."""

    rate: Annotated[Decimal, Money("Percent.")]
    fixed_amount: Annotated[Decimal | None, Money("Money per event.")] = None
    free_events: Annotated[int | None, EventCount("The first events, free until `free_amount` is reached.")] = None
    free_amount: Annotated[Decimal | None, Money("The first money, free until `free_events` are reached.")] = None

    def steps(self, usage: Usage) -> list[Step]:
        quantity = units_used(usage)
        free = min(max(usage.free_quantity, Fraction(0)), quantity)
        fees = max(usage.events - usage.free_events, 0) * exact(self.fixed_amount)
        return free_then(free, Step(free, quantity, quantity - free, Fraction(self.rate) / 100, fees))

    def cost(self, say: Wording) -> str:
        fixed = f" plus {say.amount(self.fixed_amount)} an event" if self.fixed_amount else ""
        return f"{number(self.rate)} % of {say.units}{fixed}"

    def free(self, say: Wording) -> list[str]:
        events = [f"the first {self.free_events:,} events free"] if self.free_events else []
        return [*events, *([f"the first {say.amount(self.free_amount)} free"] if self.free_amount else [])]


@dataclass(frozen=True, kw_only=True)
class GraduatedPercentagePrice(PriceOfMoney, model="graduated_percentage", title="a percentage in tiers"):
    """A percentage that depends on the tier of the money."""

    tiers: Annotated[tuple[Tier, ...], Tiers("rate", "Each tier prices its own money.", model="graduated_percentage")]

    def steps(self, usage: Usage) -> list[Step]:
        return graduated(self.tiers, usage)

    def cost(self, say: Wording) -> str:
        return f"a percentage of {say.units}, each part at its own rate: {tiers_text(self.tiers, say)}"
