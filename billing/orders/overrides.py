"""Negotiated prices: the prices of a plan as one subscription pays them. Pure.

An override names amounts for prices of one plan, and takes a percentage off every price that it does not name. Named amounts
hold on every version of that plan; the percentage holds on every plan.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from billing.rating.money import to_decimal
from billing.rating.prices.price import Price
from billing.rating.prices.reading import FIELDS, PriceInvalid, parse_price, price_dict
from billing.rating.prices.tiers import Tier, Tiers
from billing.rating.prices.values import Bucket, Buckets, Charged
from ledger.errors import Invalid
from ledger.records import Field, Record, declared_fields
from ledger.values import AnyObject, InvalidValue, MapOf, Number, pointer_part

Override = Mapping[str, Any]
"""An override as an amendment stores it: `plan` (a ref), `prices` by key, `percent_off`."""
CHARGED = Charged, Tiers, Buckets
BOUNDS = ("minimum", "maximum")


def _is_amount(field: Field) -> bool:
    return isinstance(field.value, CHARGED) or field.name in BOUNDS


AMOUNTS = tuple(name for name, field in FIELDS.items() if _is_amount(field))
"""The fields of a price that can be negotiated."""


class Amounts(AnyObject):
    """The negotiated fields of a price. The price checks their values."""

    def read(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict or not value:
            raise InvalidValue("not-an-object", "This must be an object with at least one amount.")
        for name in value:
            if name not in AMOUNTS:
                detail = f"This is not an amount of a price: {', '.join(AMOUNTS)}."
                raise InvalidValue("unknown-field", detail, pointer_part(name))
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "object", "minProperties": 1, "propertyNames": {"enum": list(AMOUNTS)}}


@dataclass(frozen=True, kw_only=True)
class PriceOverride(Record):
    """Negotiated prices: at least one of these fields."""

    prices: Annotated[
        dict[str, dict[str, Any]] | None,
        MapOf(Amounts(), "By price key, the fields that replace those of the plan's price.", max_keys=100),
    ] = None
    percent_off: Annotated[Decimal | None, Number("Off every other price of the plan, above 0.", least=0, most=100)] = None

    def check_whole(self) -> None:
        if not self.prices and self.percent_off is None:
            raise Invalid(pointer="/price_override", rule="required", detail="give prices, percent_off, or both")
        if self.percent_off == 0:
            raise Invalid(pointer="/price_override/percent_off", rule="not-positive", detail="a percentage off is above 0")


def stored(override: PriceOverride, plan_code: str, prices: Mapping[str, Price]) -> dict[str, Any]:
    """Return an override as an amendment stores it.

    Args:
        plan_code: the plan that the named amounts belong to.
        prices: its prices by key.

    Raises:
        Invalid: an unknown price key, or an amount that the price's model does not use or refuses.
    """
    named: dict[str, Any] = {}
    for key, amounts in (override.prices or {}).items():
        at = f"/price_override/prices{pointer_part(key)}"
        if key not in prices:
            raise Invalid(pointer=at, rule="price", detail="the plan has no price of this key")
        try:
            definition = price_dict(parse_price(price_dict(prices[key]) | amounts, pointer=at))
        except PriceInvalid as invalid:
            first = invalid.errors[0]
            raise Invalid(pointer=first.pointer, rule=first.code, detail=first.detail) from invalid
        named[key] = {name: definition.get(name) for name in amounts}
    percent = None if override.percent_off is None else format(override.percent_off, "f")
    return {"plan": plan_code, "prices": named, "percent_off": percent}


def overridden(price: Price, plan_code: str, override: Override) -> Price:
    """Return a price of a plan as the subscription pays it; the same price if the override does not concern it."""
    amounts = override["prices"].get(price.key) if override["plan"] == plan_code else None
    if amounts is not None:
        try:
            return parse_price(price_dict(price) | amounts)
        except PriceInvalid:
            # A later version of the plan gave the key another model, which does not use these amounts.
            pass
    percent = override["percent_off"]
    return price if percent is None else lowered(price, Decimal(percent))


def lowered(price: Price, percent: Decimal) -> Price:
    """Return a price with a percentage off what it charges, each amount rounded half up to 12 decimals.

    Free units, and minimums and maximums of a period, stay.
    """
    keep = (100 - Fraction(percent)) / 100
    return replace(price, **{name: _lower_value(value, keep) for name, value in _charged_fields(price)})


def _charged_fields(record: Record) -> list[tuple[str, Any]]:
    values = [(field, getattr(record, field.name)) for field in declared_fields(type(record))]
    return [(field.name, value) for field, value in values if value is not None and isinstance(field.value, CHARGED)]


def _lower_value(value: Any, keep: Fraction) -> Any:
    if isinstance(value, Decimal):
        return to_decimal(Fraction(value) * keep)
    parts: tuple[Tier | Bucket, ...] = value
    return tuple(_part(each, {name: _lower_value(amount, keep) for name, amount in _charged_fields(each)}) for each in parts)


def _part(part: Record, amounts: Mapping[str, Any]) -> Record:
    """Return a tier or bucket with other amounts. Its other fields were read already, so nothing checks them again."""
    other = copy(part)
    vars(other).update(amounts)
    return other


def amounts_of(price: Price) -> dict[str, Any]:
    """Return the amounts of a price in their JSON form."""
    return {name: value for name, value in price_dict(price).items() if name in AMOUNTS}
