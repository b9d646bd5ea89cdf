"""What a price is: its kind, its model, and what each model needs. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from billing.rating.aggregation import Aggregation, Filters
from billing.rating.periods import Timing


class PriceKind(StrEnum):
    """Recurring prices bill a quantity that is agreed, usage prices one that is measured."""

    RECURRING = "recurring"
    USAGE = "usage"


class PriceModel(StrEnum):
    """How a quantity becomes an amount."""

    FLAT = "flat"
    UNIT = "unit"
    GRADUATED = "graduated"
    VOLUME = "volume"
    PACKAGE = "package"
    PERCENTAGE = "percentage"
    GRADUATED_PERCENTAGE = "graduated_percentage"


class Proration(StrEnum):
    """How a part of a period is measured against the full one."""

    DAY = "day"
    SECOND = "second"
    NONE = "none"
    FIXED_30 = "fixed_30"


PERCENTAGES = frozenset({PriceModel.PERCENTAGE, PriceModel.GRADUATED_PERCENTAGE})


@dataclass(frozen=True, slots=True)
class Tier:
    """The units above the tier before, up to and including `up_to` (cumulative); the last has none.

    Args:
        unit_amount: money per unit, for `graduated` and `volume`.
        rate: percent, for `graduated_percentage`.
        flat_amount: money, owed once when the tier is entered.
    """

    up_to: Decimal | None
    unit_amount: Decimal | None = None
    flat_amount: Decimal | None = None
    rate: Decimal | None = None

    @property
    def per_unit(self) -> Fraction:
        """Money per unit of quantity, whichever way the tier says it."""
        return Fraction(self.rate) / 100 if self.rate is not None else Fraction(self.unit_amount or 0)


@dataclass(frozen=True, slots=True)
class CreditPrice:
    """That units of a price are paid in credits of the holder first, and in money where those do not reach.

    Args:
        per_unit: credits per unit, above 0; a unit is what `unit_amount` is the price of.
    """

    credit_type: str
    per_unit: Decimal


@dataclass(frozen=True, slots=True)
class Price:
    """One price of a plan, as the REST contract names its fields; None is "not given". Made by `price_input.parse_price`.

    Args:
        unit_amount, fixed_amount, free_amount, minimum, maximum: money in major units.
        rate, tax_rate: percent.
        filters: see `aggregation.Filters`.
        credits: see `billing.rating.prepaid_units`.
    """

    key: str
    kind: PriceKind
    model: PriceModel
    timing: Timing
    unit_amount: Decimal | None = None
    tiers: tuple[Tier, ...] = ()
    free_units: Decimal | None = None
    package_size: Decimal | None = None
    rate: Decimal | None = None
    fixed_amount: Decimal | None = None
    free_events: int | None = None
    free_amount: Decimal | None = None
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    meter: str | None = None
    aggregation: Aggregation | None = None
    property: str | None = None
    filters: Filters = ()
    credits: CreditPrice | None = None
    proration: Proration = Proration.DAY
    bill_last_day: bool = False
    tax_category: str = "S"
    tax_rate: Decimal = Decimal(0)
