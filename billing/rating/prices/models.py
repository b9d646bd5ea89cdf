"""The models of prices, one class each: its fields, the rating of a quantity, and the sentence for people. Pure.

Each class registers itself by its name in `MODELS`; no other place lists the models.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, ClassVar

from billing.rating.aggregation import Aggregation, Event, EventCharge, RatingInput, bounded_usage, percentage_usage
from billing.rating.money import Exact
from billing.rating.periods import Timing
from billing.rating.prices.price import Misfit, Price, PriceKind
from billing.rating.prices.steps import Step, corrections, exact, free_then, units_used
from billing.rating.prices.tiers import Tier, Tiers, tiers_text
from billing.rating.prices.values import (
    Bucket,
    Buckets,
    Charged,
    Conversion,
    ConversionOfPrice,
    CreditPrice,
    CreditsOfPrice,
    EventCount,
    Money,
    PackageSize,
    Units,
    Worded,
)
from billing.rating.prices.wording import Wording, number
from ledger.values import Boolean

Credits = Annotated[
    CreditPrice | None,
    CreditsOfPrice("Usage prices only: the holder's credits pay for units first; the invoice charges the rest."),
]

BUCKETS_TEXT = "Usage prices only: events with some properties have another amount; the minimum and maximum are for all together."
Converted = Annotated[
    Conversion | None,
    ConversionOfPrice("Usage prices only: the quantity of the period is converted before free units and tiers count."),
]


@dataclass(frozen=True, kw_only=True)
class FlatPrice(Price, model="flat", title="a fixed amount"):
    """One amount a period, whatever the usage; of a recurring price, for each ordered unit."""

    unit_amount: Annotated[Decimal, Charged("Money a period.")]

    def steps(self, usage: RatingInput) -> list[Step]:
        units = units_used(usage) if self.kind == PriceKind.RECURRING else Fraction(1)
        return [Step(Fraction(0), units, units, Fraction(self.unit_amount))]

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        yield from super().misfits(taken, given)
        if taken["kind"] == PriceKind.USAGE and "group_by" in given:
            yield "group_by", "not-used", "a fixed amount is due whatever the usage, so no group has one"

    def cost(self, say: Wording) -> str:
        return f"{say.amount(self.unit_amount)} a {say.period}"


@dataclass(frozen=True, kw_only=True)
class UnitPrice(Price, model="unit", title="per unit"):
    """A price for each unit beyond the free units."""

    unit_amount: Annotated[Decimal, Charged("Money per unit.")]
    free_units: Annotated[Decimal | None, Units("How many units at the beginning are free.")] = None
    buckets: Annotated[tuple[Bucket, ...], Buckets("unit_amount", BUCKETS_TEXT)] = ()
    conversion: Converted = None
    credits: Credits = None

    def steps(self, usage: RatingInput) -> list[Step]:
        quantity = units_used(usage)
        free = min(exact(self.free_units), quantity)
        return free_then(free, Step(free, quantity, self.units_in(quantity - free), Fraction(self.unit_amount)))

    def free_quantity(self) -> Fraction:
        return exact(self.free_units)

    def cost(self, say: Wording) -> str:
        return f"{say.amount(self.unit_amount)} per {say.unit}"

    def free(self, say: Wording) -> list[str]:
        return [f"the first {number(self.free_units)} free"] if self.free_units else []


def graduated(tiers: Sequence[Tier], usage: RatingInput, *, flat_fee_at_zero: bool) -> list[Step]:
    """Rate each part of the usage by its tier.

    Args:
        flat_fee_at_zero: whether zero units owe the flat fee of the first tier.
    """
    quantity, steps, lower = units_used(usage), [], Fraction(0)
    if not quantity and flat_fee_at_zero and tiers[0].flat_amount:
        return [tiers[0].step(lower, lower)]
    for tier in tiers:
        if quantity <= lower:
            break
        upper = quantity if tier.up_to is None else min(quantity, Fraction(tier.up_to))
        steps.append(tier.step(lower, upper))
        lower = upper
    return steps


def at_zero(flat_fee_at_zero: bool) -> str:
    """Return the words for a flat fee that zero units owe."""
    return "; the amount of the first tier is due without usage too" if flat_fee_at_zero else ""


FlatFeeAtZero = Annotated[
    bool, Worded(Boolean("Whether zero units owe the flat fee of the first tier."), "type", "must be true or false")
]


@dataclass(frozen=True, kw_only=True)
class GraduatedPrice(Price, model="graduated", title="per unit in tiers, each part at its own price"):
    """A price per unit that depends on the tier that the unit is in."""

    tiers: Annotated[tuple[Tier, ...], Tiers("unit_amount", "Each tier prices its own units.", model="graduated")]
    flat_fee_at_zero: FlatFeeAtZero = False
    conversion: Converted = None
    credits: Credits = None

    def steps(self, usage: RatingInput) -> list[Step]:
        return graduated(self.tiers, usage, flat_fee_at_zero=self.flat_fee_at_zero)

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        yield from super().misfits(taken, given)
        if "credits" in given and any(tier.package_size for tier in taken.get("tiers", ())):
            yield "credits", "credits-not-for-packages", "credits cannot pay for packages in a tier"

    def free_quantity(self) -> Fraction | None:
        free = Fraction(0)
        for tier in self.tiers:
            if tier.per_unit() or tier.flat_amount:
                return free
            free = exact(tier.up_to)
        return None

    def cost(self, say: Wording) -> str:
        return f"per {say.unit}, each part at its own price: {tiers_text(self.tiers, say)}{at_zero(self.flat_fee_at_zero)}"


@dataclass(frozen=True, kw_only=True)
class VolumePrice(Price, model="volume", title="per unit in tiers, all at the price that is reached"):
    """A price for all units; it depends on the tier that their number reaches."""

    tiers: Annotated[
        tuple[Tier, ...], Tiers("unit_amount", "The tier that the quantity reaches prices all units.", model="volume")
    ]
    conversion: Converted = None

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        yield from super().misfits(taken, given)
        if taken["kind"] == PriceKind.USAGE and taken.get("timing") == Timing.ADVANCE:
            yield "timing", "not-as-recorded", "each event can change the price of all units, so the period must be over"

    def steps(self, usage: RatingInput) -> list[Step]:
        quantity = units_used(usage)
        tier = next(tier for tier in self.tiers if tier.up_to is None or quantity <= tier.up_to)
        return [tier.step(Fraction(0), quantity)]

    def cost(self, say: Wording) -> str:
        return f"per {say.unit}, all at the price of the tier that is reached: {tiers_text(self.tiers, say)}"


@dataclass(frozen=True, kw_only=True)
class PackagePrice(UnitPrice, model="package", title="per package"):
    """A price for each started package of units beyond the free units."""

    unit_amount: Annotated[Decimal, Charged("Money per package.")]
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
            yield "model", "model-needs-usage", f"a price of model `{cls.model}` is of kind `usage`"
        elif taken.get("aggregation") not in (None, Aggregation.SUM):
            yield "aggregation", "aggregation-not-for-model", f"a price of model `{cls.model}` needs the aggregation `sum`"

    def usage_of(self, events: Sequence[Event], **period: Any) -> RatingInput:
        if self.buckets or self.group_by:
            return super().usage_of(events, **period)
        return percentage_usage(
            self.of_bucket(events),
            free_events=self.free_events,
            free_amount=self.free_amount,
            property_name=self.property,
            filters=self.filters,
            charge=self.event_charge(),
        )

    def usage_of_amount(self, amount: Exact) -> RatingInput:
        """One event of that amount, within the free amount and count of the price."""
        quantity = super().usage_of_amount(amount).quantity
        if quantity == 0:
            return RatingInput(quantity)
        usage = RatingInput(quantity, 1)
        if self.free_events != 0 and (self.free_events is not None or self.free_amount is not None):
            free = quantity if self.free_amount is None else min(quantity, Fraction(self.free_amount))
            usage = RatingInput(quantity, 1, free, 1 if free == quantity else 0)
        charge = self.event_charge()
        return usage if charge is None else bounded_usage(usage, [quantity - usage.free_quantity], charge)


@dataclass(frozen=True, kw_only=True)
class PercentagePrice(PriceOfMoney, model="percentage", title="a percentage"):
    """A percentage of the money that usage events carry, and an amount per event."""

    rate: Annotated[Decimal, Charged("Percent.")]
    buckets: Annotated[tuple[Bucket, ...], Buckets("rate", BUCKETS_TEXT)] = ()
    fixed_amount: Annotated[Decimal | None, Charged("Money per event.")] = None
    event_minimum: Annotated[Decimal | None, Charged("The least that an event costs, its percentage and amount together.")] = None
    event_maximum: Annotated[Decimal | None, Charged("The most that an event costs.")] = None
    free_events: Annotated[int | None, EventCount("The first events, free until `free_amount` is reached.")] = None
    free_amount: Annotated[Decimal | None, Money("The first money, free until `free_events` are reached.")] = None

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        yield from super().misfits(taken, given)
        least, most = taken.get("event_minimum"), taken.get("event_maximum")
        if least is not None and most is not None and least > most:
            yield "event_maximum", "below-minimum", "the maximum of an event is below its minimum"

    def event_charge(self) -> EventCharge | None:
        if self.event_minimum is None and self.event_maximum is None:
            return None
        bounds = (None if bound is None else Fraction(bound) for bound in (self.event_minimum, self.event_maximum))
        return EventCharge(Fraction(self.rate) / 100, exact(self.fixed_amount), *bounds)

    def steps(self, usage: RatingInput) -> list[Step]:
        quantity = units_used(usage)
        free = min(max(usage.free_quantity, Fraction(0)), quantity)
        fees = max(usage.events - usage.free_events, 0) * exact(self.fixed_amount)
        charged = free_then(free, Step(free, quantity, quantity - free, Fraction(self.rate) / 100, fees))
        return [*charged, *corrections(event_minimum=usage.raised, event_maximum=-usage.lowered)]

    def cost(self, say: Wording) -> str:
        fixed = f" plus {say.amount(self.fixed_amount)} an event" if self.fixed_amount else ""
        bounds = [f"at least {say.amount(self.event_minimum)}"] if self.event_minimum else []
        bounds += [f"at most {say.amount(self.event_maximum)}"] if self.event_maximum is not None else []
        bounded = f", {' and '.join(bounds)} an event" if bounds else ""
        return f"{number(self.rate)} % of {say.units}{fixed}{bounded}"

    def free(self, say: Wording) -> list[str]:
        events = [f"the first {self.free_events:,} events free"] if self.free_events else []
        return [*events, *([f"the first {say.amount(self.free_amount)} free"] if self.free_amount else [])]


@dataclass(frozen=True, kw_only=True)
class GraduatedPercentagePrice(PriceOfMoney, model="graduated_percentage", title="a percentage in tiers"):
    """A percentage that depends on the tier of the money."""

    tiers: Annotated[tuple[Tier, ...], Tiers("rate", "Each tier prices its own money.", model="graduated_percentage")]
    flat_fee_at_zero: FlatFeeAtZero = False

    def steps(self, usage: RatingInput) -> list[Step]:
        return graduated(self.tiers, usage, flat_fee_at_zero=self.flat_fee_at_zero)

    def cost(self, say: Wording) -> str:
        tiers = f"{tiers_text(self.tiers, say)}{at_zero(self.flat_fee_at_zero)}"
        return f"a percentage of {say.units}, each part at its own rate: {tiers}"
