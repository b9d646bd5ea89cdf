"""The price of a plan's overage: a usage price of the credits that the ledger granted on overage; and its cap in credits. Pure.

Its meter has a name that no event can have: the ledger's entries are measured instead. See docs/explanation/billing.md.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from billing.rating.prices import models  # noqa: F401 - each model registers itself
from billing.rating.prices.price import MODELS, Price
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import PriceInvalid, parse_price
from ledger.records import OneOf, Shape, field_of
from ledger.values import MAX_AMOUNT, Constant, FieldError, Value, json_name

OVERAGE_KEY: Final = "overage"
"""The key of the price in its plan."""
METER_PREFIX: Final = "overage:"
OVERAGE_MODELS: Final = ("unit", "graduated", "volume", "package")
"""The models that price a number of credits."""
NOT_OF_OVERAGE: Final = frozenset(
    {
        "key", "kind", "timing", "interval", "minimum", "maximum", "meter", "aggregation", "billed_by", "entries", "property",
        "filters", "group_by", "proration", "bill_last_day", "buckets", "conversion", "credits",
    }
)  # fmt: skip
"""What other prices may have: of an overage the ledger says it, or the plan."""
_SHAPES: Final = {
    name: Shape(
        MODELS[name],
        name=f"Overage{MODELS[name].__name__}",
        without=NOT_OF_OVERAGE,
        before=[field_of("model", Constant(name, "How a number of credits becomes an amount."), required=True)],
    )
    for name in OVERAGE_MODELS
}


def is_overage(price: Price) -> bool:
    """Return whether the price is that of a plan's overage."""
    return price.meter is not None and price.meter.startswith(METER_PREFIX)


def credit_type_of(price: Price) -> str:
    """Return what the overage of a price counts."""
    assert price.meter is not None
    return price.meter.removeprefix(METER_PREFIX)


def definition(price: Mapping[str, Any], credit_type: str) -> dict[str, Any]:
    """Return the price of an overage in the JSON form of a price.

    Args:
        price: as in `overage.price` of a plan.
    """
    whole = {"key": OVERAGE_KEY, "kind": "usage", "timing": "arrears", "aggregation": "sum"}
    return {**price, **whole, "meter": f"{METER_PREFIX}{credit_type}"}


class OveragePrice(OneOf):
    """The price of each credit beyond the others: a price without what the plan and the ledger say of it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, by="model", shapes=_SHAPES, item_name="OveragePrice")

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if value is None:
            return Value.take(self, value, pointer, field_errors)
        if type(value) is not dict:
            field_errors.append(FieldError(pointer, "not-an-object", f"This must be an object, not {json_name(value)}."))
            return None
        before = len(field_errors)
        field_errors += [
            FieldError(f"{pointer}/{name}", "not-used", f"the price of an overage has no `{name}`")
            for name in sorted(NOT_OF_OVERAGE & value.keys())
        ]
        model = value.get("model")
        if type(model) is str and model in MODELS and model not in OVERAGE_MODELS:
            detail = f"must be one of {', '.join(OVERAGE_MODELS)}"
            field_errors.append(FieldError(f"{pointer}/model", "choice", detail))
        if len(field_errors) == before:
            try:
                parse_price(definition(value, "credits"), pointer=pointer)
            except PriceInvalid as invalid:
                field_errors += invalid.errors
        return value if len(field_errors) == before else None

    def check(self, value: Any) -> Any:
        field_errors: list[FieldError] = []
        if self.take(value, "", field_errors) is None:
            raise PriceInvalid(field_errors)
        return value


def affordable(price: Price, limit_minor: int, currency: str) -> int | None:
    """Return how many credits can be used so that no number of them up to it costs more than the limit; None: any number.

    The amount of the line is compared, rounded as it will be. It grows within a tier; at the beginning of a tier of a `volume`
    price it may fall, so the first tier that exceeds the limit counts.
    """

    def exceeds(number: int) -> bool:
        return rate(price, Fraction(number), currency).amount_minor > limit_minor

    ends = [int(tier.up_to) for tier in getattr(price, "tiers", ()) if tier.up_to is not None]
    first = 1
    for last in [*ends, MAX_AMOUNT]:
        if first <= last and (exceeds(first) or exceeds(last)):
            return _last_within(exceeds, first, last)
        first = max(first, last + 1)
    return None


def _last_within(exceeds: Any, first: int, last: int) -> int:
    """Return the last number below the first that exceeds, of numbers of which all later ones exceed too."""
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if exceeds(middle) else (middle + 1, last)
    return first - 1
