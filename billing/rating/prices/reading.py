"""Reads prices of the REST contract strictly: every fault names its field or tier. Pure.

A price is a JSON object. Money, rates and percentages are decimal strings; quantities (`up_to`, `free_units`, `package_size`) are
JSON numbers or decimal strings. A price may have only the fields that its model and kind use; null is the same as absent.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any

from billing.rating.money import decimal_text
from billing.rating.periods import Interval
from billing.rating.prices import models  # noqa: F401 - each model registers itself
from billing.rating.prices.price import MODELS, USUAL_TIMING, Misfit, Price, PriceKind
from billing.rating.prices.tiers import Tiers
from billing.rating.prices.values import Buckets, one_of, take_fields, unknown_fields
from ledger.records import OneOf, Record, Shape, declared_fields, field_of
from ledger.values import Constant, FieldError, ListOf

MAX_PRICES = 100
USAGE_FIELDS = frozenset(
    {
        "meter", "aggregation", "billed_by", "entries", "property", "filters", "group_by", "buckets", "conversion", "credits",
    }
)  # fmt: skip


class PriceInvalid(ValueError):
    """The input is not a price. `errors` lists every fault."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))


SHAPES = {
    name: Shape(declared, before=[field_of("model", Constant(name, "How a quantity becomes an amount."), required=True)])
    for name, declared in MODELS.items()
}
"""The JSON object of each model."""
FIELDS = {field.name: field for shape in SHAPES.values() for field in shape.fields}
FIELDS |= {"model": field_of("model", one_of(MODELS), required=True)}
"""All fields that a price of any model can have."""
COMMON = {"model", *(field.name for field in declared_fields(Price))}
"""The fields that prices of all models have."""


class PriceValue(OneOf):
    """A price. `take` checks it and returns it as given, because a request's digest covers that form; `made` reads it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, by="model", shapes=SHAPES, item_name="Price")

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        return None if _read(value, pointer, field_errors) is None else value

    def made(self, item: Any) -> Price:
        return parse_price(item)


class PriceList(ListOf):
    """The prices of a plan, 1 to 100 with distinct keys."""

    def __init__(self, text: str) -> None:
        super().__init__(PriceValue(), text, least=1, most=MAX_PRICES)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        taken = super().take(value, pointer, field_errors)
        keys: set[str] = set()
        for index, item in enumerate(taken or ()):
            if item is not None and item["key"] in keys:
                detail = f"another price has the key {item['key']!r}"
                field_errors.append(FieldError(f"{pointer}/{index}/key", "duplicate", detail))
            keys |= {item["key"]} if item is not None else set()
        return taken

    def check(self, value: Any) -> list[Price]:
        """Return the prices; Python code passes them in their JSON form."""
        return parse_prices(value)


def parse_price(data: Any, *, pointer: str = "/price") -> Price:
    """Return one price of its JSON form.

    Args:
        data: the decoded JSON value.
        pointer: its place in the request; the pointer of every fault begins with it.

    Raises:
        PriceInvalid: with all faults at once.
    """
    field_errors: list[FieldError] = []
    price = _read(data, pointer, field_errors)
    if price is None:
        raise PriceInvalid(field_errors)
    return price


def parse_prices(data: Any, *, pointer: str = "/prices") -> list[Price]:
    """Return the prices of a plan.

    Raises:
        PriceInvalid: with the faults of all prices at once.
    """
    prices, field_errors = PriceList(""), list[FieldError]()
    taken = prices.take(data, pointer, field_errors)
    if taken is None or field_errors:
        raise PriceInvalid(field_errors)
    made: list[Price] = prices.made(taken)
    return made


def price_dict(price: Price) -> dict[str, Any]:
    """Return the JSON form of a price with the fields that were given or matter; `parse_price` reads the same price from it."""
    return {"key": price.key, "kind": price.kind.value, "model": price.model, **_dict(price)}


def _dict(record: Record) -> dict[str, Any]:
    known = {field: getattr(record, field.name) for field in declared_fields(type(record))}
    return {field.name: _json(value) for field, value in known.items() if value not in (None, ()) or field.value.null}


def _json(value: Any) -> Any:
    match value:
        case Decimal():
            return decimal_text(value)
        case StrEnum():
            return value.value
        case Interval():
            return {"unit": value.unit.value, "count": value.count}
        case Record():
            return _dict(value)
        case (Record(), *_):
            return [_dict(tier) for tier in value]
        case (str(), *_):
            return list(value)
        case tuple():
            return {name: one if isinstance(one, str) else list(one) for name, one in value}
    return value


def _read(data: Any, pointer: str, field_errors: list[FieldError]) -> Price | None:
    if not isinstance(data, Mapping):
        field_errors.append(FieldError(pointer, "type", "must be an object"))
        return None
    before = len(field_errors)
    field_errors += unknown_fields(data, FIELDS, pointer, "a price has")
    given = {name: value for name, value in data.items() if value is not None}
    missing = [name for name in ("kind", "model") if name not in given]
    field_errors += [FieldError(f"{pointer}/{name}", "required", f"`{name}` is required") for name in missing]
    chosen = take_fields([FIELDS["kind"], FIELDS["model"]], given, pointer, field_errors)
    if len(chosen) < 2:
        return None
    kind, shape = chosen["kind"], SHAPES[chosen["model"]]
    for name, code, detail in _misused_fields(shape, kind, given):
        field_errors.append(FieldError(f"{pointer}/{name}", code, detail))
    # Of fields that the model does not use, tiers and buckets are not checked: the model decides which are possible.
    unused = [field for name, field in FIELDS.items() if name not in shape.names and not isinstance(field.value, Tiers | Buckets)]
    taken = take_fields([*shape.fields, *unused], given, pointer, field_errors)
    for name, code, detail in shape.declared.misfits(taken, given):
        field_errors.append(FieldError(f"{pointer}/{name}", code, detail))
    if len(field_errors) > before:
        return None
    return shape.make({"timing": USUAL_TIMING[kind], **taken})


def _misused_fields(shape: Shape[Price], kind: PriceKind, given: Mapping[str, Any]) -> Iterator[Misfit]:
    """Yield the fields that the model and kind need and the price lacks, and those that it has and they do not use."""
    model = shape.declared.model
    for field in shape.fields:
        if field.required and field.name not in given:
            yield field.name, "required", _requirement(model, field.name, is_common=field.name in COMMON)
    for name in (name for name in given if name in FIELDS):
        if name in USAGE_FIELDS and kind != PriceKind.USAGE:
            yield name, "not-used", f"a price of kind `{kind}` has no `{name}`"
        elif name == "credits" and name not in shape.names:
            payable = " or ".join(f"`{model}`" for model, each in SHAPES.items() if name in each.names)
            yield name, "credits-not-for-model", f"credits cannot pay for a price of model `{model}`, only for {payable}"
        elif name not in shape.names:
            yield name, "not-used", f"a price of model `{model}` has no `{name}`"


def _requirement(model: str, name: str, *, is_common: bool) -> str:
    return f"`{name}` is required" if is_common else f"a price of model `{model}` needs `{name}`"
