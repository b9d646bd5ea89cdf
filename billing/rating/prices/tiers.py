"""Tiers of a price: stretches of a quantity, each with its own price. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Annotated, Any

from billing.rating.money import decimal_text
from billing.rating.prices.steps import Step, exact
from billing.rating.prices.values import Charged, PackageSize, Units, take_fields, unknown_fields
from billing.rating.prices.wording import Wording, number
from ledger.records import Record, Shape, shape_of
from ledger.values import FieldError, Value, too_few, too_many

MAX_TIERS = 100


@dataclass(frozen=True, kw_only=True)
class Tier(Record):
    """The units above the previous tier, up to and including `up_to` (cumulative). It has a price, `flat_amount`, or both."""

    up_to: Annotated[Decimal | None, Units("The last unit of the tier, inclusive; null in the last tier.", null=True)] = None
    unit_amount: Annotated[Decimal | None, Charged("Money per unit.")] = None
    flat_amount: Annotated[Decimal | None, Charged("Money, charged once when the quantity enters the tier.")] = None
    package_size: Annotated[
        Decimal | None, PackageSize("Units in a package: `unit_amount` is then the price of each started package.")
    ] = None
    rate: Annotated[Decimal | None, Charged("Percent of the tier's money.")] = None

    def per_unit(self) -> Fraction:
        """The money per unit of quantity or package, from either field."""
        return Fraction(self.rate) / 100 if self.rate is not None else exact(self.unit_amount)

    def step(self, lower: Fraction, upper: Fraction) -> Step:
        """Return the cost of a stretch at the price of the tier."""
        units = upper - lower
        if self.package_size is not None:
            units = Fraction(ceil(units / Fraction(self.package_size)))
        return Step(lower, upper, units, self.per_unit(), exact(self.flat_amount))


TIER_FIELDS = shape_of(Tier).names
SHAPES = {
    "unit_amount": Shape(Tier, name="UnitTier", without={"rate"}),
    "rate": Shape(Tier, name="PercentageTier", without={"unit_amount", "package_size"}),
}
"""Tiers by the field that prices their units."""


class Tiers(Value):
    """1 to 100 tiers; each begins where the previous one ends, and the last has no end."""

    def __init__(self, column: str, text: str, *, model: str) -> None:
        super().__init__(text)
        self.column = column
        self.shape = SHAPES[column]
        self.model = model

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> tuple[Tier, ...] | None:
        if not isinstance(value, list | tuple):
            field_errors.append(FieldError(pointer, "type", f"must be a list of 1..{MAX_TIERS} tiers"))
            return None
        if not 1 <= len(value) <= MAX_TIERS:
            field_errors.append(FieldError(pointer, *(too_many(MAX_TIERS) if value else too_few(1))))
            return None
        tiers = [self._tier(item, f"{pointer}/{index}", field_errors) for index, item in enumerate(value)]
        known = tuple(tier for tier in tiers if tier is not None)
        if len(known) < len(tiers):
            return None
        field_errors.extend(_misplaced_tiers(known, pointer))
        return known

    def _tier(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Tier | None:
        if not isinstance(value, Mapping):
            field_errors.append(FieldError(pointer, "type", "must be an object"))
            return None
        before = len(field_errors)
        field_errors += unknown_fields(value, TIER_FIELDS, pointer, "a tier has")
        for name in value.keys() & TIER_FIELDS - self.shape.names:
            if value[name] is not None:
                detail = f"a tier of a price of model `{self.model}` has no `{name}`"
                field_errors.append(FieldError(f"{pointer}/{name}", "not-used", detail))
        if value.get(self.column) is None and value.get("flat_amount") is None:
            detail = f"a tier needs `{self.column}` or `flat_amount`"
            field_errors.append(FieldError(f"{pointer}/{self.column}", "required", detail))
        taken = take_fields(self.shape.fields, value, pointer, field_errors)
        return self.shape.make({self.column: Decimal(0), **taken}) if len(field_errors) == before else None

    def openapi(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "maxItems": MAX_TIERS, "items": self.shape}


def _misplaced_tiers(tiers: Sequence[Tier], pointer: str) -> Iterator[FieldError]:
    """Yield the faults of the tiers: gaps, overlaps and empty tiers."""
    lower = Decimal(0)
    for index, tier in enumerate(tiers):
        last = index == len(tiers) - 1
        at = f"{pointer}/{index}/up_to"
        if last and tier.up_to is not None:
            above = decimal_text(tier.up_to)
            yield FieldError(at, "no-last-tier", f"no tier prices units above {above}: the last tier has no `up_to`")
        if not last and tier.up_to is None:
            yield FieldError(at, "tier-overlap", f"tier {index} has no upper end, so tier {index + 1} overlaps it")
        if tier.up_to is None:
            continue
        if tier.up_to <= lower:
            what = f"ends at {decimal_text(tier.up_to)}, not above {decimal_text(lower)} where it begins"
            yield FieldError(at, "tier-overlap" if index else "tier-empty", f"tier {index} {what}")
        lower = max(lower, tier.up_to)


def tiers_text(tiers: Sequence[Tier], say: Wording) -> str:
    """Return the end of each tier and its price, in words."""
    parts = []
    for index, tier in enumerate(tiers):
        where = "any quantity" if tier.up_to is None and not index else "beyond"
        where = where if tier.up_to is None else f"up to {number(tier.up_to)}"
        flat = f" plus {say.amount(tier.flat_amount)} once" if tier.flat_amount else ""
        cost = f"{number(tier.rate)} %" if tier.rate is not None else say.amount(tier.unit_amount or Decimal(0))
        package = f" per started package of {number(tier.package_size)}" if tier.package_size is not None else ""
        parts.append(f"{where} at {cost}{package}{flat}")
    return "; ".join(parts)
