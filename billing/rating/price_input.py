"""Reading prices as the REST contract writes them, strictly: every fault is named by field or tier.

A price is a JSON object. Money, rates and percentages are decimal strings; quantities (`up_to`, `free_units`,
`package_size`) are JSON numbers or decimal strings; `filters` maps a property's name to the value, or list of values,
that passes; `credits` has a `credit_type` and a decimal string `per_unit`. Only what the model and kind use may be given;
null is the same as absent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any

from billing.rating.aggregation import Aggregation, Filters
from billing.rating.limits import SMALLEST_PACKAGE
from billing.rating.money import MINOR_DIGITS, decimal_text
from billing.rating.periods import Timing
from billing.rating.price_fields import FieldReader, PriceInvalid, pointer_part
from billing.rating.prices import PERCENTAGES, CreditPrice, Price, PriceKind, PriceModel, Proration, Tier
from ledger.errors import FieldError

MAX_TIERS = 100
MAX_PRICES = 100
MAX_FILTERS = 20
MAX_FILTER_VALUES = 100
MAX_FREE_EVENTS = 2**53 - 1

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)
_CREDIT_TYPE = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
_CATEGORY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}", re.ASCII)
# UNTDID 5305: zero rated, exempt, reverse charge, intra-community, export, outside the scope of tax.
UNTAXED_CATEGORIES = frozenset({"Z", "E", "AE", "K", "G", "O"})

_COMMON = frozenset({
    "key", "kind", "timing", "model", "minimum", "maximum", "proration", "bill_last_day", "tax_category", "tax_rate",
})  # fmt: skip
_USAGE = frozenset({"meter", "aggregation", "property", "filters", "credits"})
_REQUIRED_BY_MODEL = {
    PriceModel.FLAT: frozenset({"unit_amount"}),
    PriceModel.UNIT: frozenset({"unit_amount"}),
    PriceModel.GRADUATED: frozenset({"tiers"}),
    PriceModel.VOLUME: frozenset({"tiers"}),
    PriceModel.PACKAGE: frozenset({"unit_amount", "package_size"}),
    PriceModel.PERCENTAGE: frozenset({"rate"}),
    PriceModel.GRADUATED_PERCENTAGE: frozenset({"tiers"}),
}
_OPTIONAL_BY_MODEL = {
    PriceModel.UNIT: frozenset({"free_units"}),
    PriceModel.PACKAGE: frozenset({"free_units"}),
    PriceModel.PERCENTAGE: frozenset({"fixed_amount", "free_events", "free_amount"}),
}
# The models in which each unit has a separate price. In `volume` a covered unit would change the price of all others, `flat`
# has one price for all units, and the units of a percentage are money.
IN_CREDITS = frozenset({PriceModel.UNIT, PriceModel.GRADUATED, PriceModel.PACKAGE})
_FIELDS = frozenset(field.name for field in fields(Price))
_MONEY = ("unit_amount", "fixed_amount", "free_amount", "minimum", "maximum")


def parse_price(data: Any, *, pointer: str = "/price") -> Price:
    """One price from its JSON form.

    Args:
        data: the decoded JSON value.
        pointer: its place in the request; the pointer of every fault begins with it.

    Raises:
        PriceInvalid: with all faults at once.
    """
    reader = FieldReader(pointer)
    price = _read_price(reader, data)
    if price is None or reader.errors:
        raise PriceInvalid(reader.errors)
    return price


def parse_prices(data: Any, *, pointer: str = "/prices") -> tuple[Price, ...]:
    """The prices of a plan, 1 .. 100 with distinct keys.

    Raises:
        PriceInvalid: with the faults of all of them at once.
    """
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        raise PriceInvalid([FieldError(pointer, "type", "must be a list of prices")])
    if not 1 <= len(data) <= MAX_PRICES:
        raise PriceInvalid([FieldError(pointer, "length", f"a plan has 1..{MAX_PRICES} prices, not {len(data)}")])
    errors: list[FieldError] = []
    prices: list[Price] = []
    keys: set[str] = set()
    for index, item in enumerate(data):
        try:
            price = parse_price(item, pointer=f"{pointer}/{index}")
        except PriceInvalid as fault:
            errors += fault.errors
            continue
        if price.key in keys:
            errors.append(FieldError(f"{pointer}/{index}/key", "duplicate", f"another price has the key {price.key!r}"))
        keys.add(price.key)
        prices.append(price)
    if errors:
        raise PriceInvalid(errors)
    return tuple(prices)


def price_dict(price: Price) -> dict[str, Any]:
    """The JSON form of a price with only what was given or matters; `parse_price` reads it back to the same price."""
    known: dict[str, Any] = {
        field.name: _jsonable(getattr(price, field.name))
        for field in fields(Price)
        if field.name not in ("tiers", "filters", "credits")
    }
    if price.tiers:
        known["tiers"] = [_tier_dict(tier) for tier in price.tiers]
    if price.filters:
        known["filters"] = {name: list(values) for name, values in price.filters}
    if price.credits is not None:
        known["credits"] = {"credit_type": price.credits.credit_type, "per_unit": decimal_text(price.credits.per_unit)}
    return {name: value for name, value in known.items() if value is not None}


def currency_fault(currency: Any, *, pointer: str = "/currency") -> FieldError | None:
    """What is wrong with a currency code, or None: it has to be one of ISO 4217 with 0, 2 or 3 decimals."""
    if isinstance(currency, str) and currency in MINOR_DIGITS:
        return None
    return FieldError(pointer, "unknown-currency", "must be an active ISO 4217 code such as EUR, with 0, 2 or 3 decimals")


def _read_price(reader: FieldReader, data: Any) -> Price | None:
    if not isinstance(data, Mapping):
        reader.fault("", "type", "must be an object")
        return None
    given = {name: value for name, value in data.items() if value is not None}
    _refuse_unknown(reader, data)
    kind = reader.choice(given, "kind", PriceKind)
    model = reader.choice(given, "model", PriceModel)
    if kind is None or model is None:
        return None
    _refuse_unused(reader, given, kind, model)
    default_timing = Timing.ADVANCE if kind == PriceKind.RECURRING else Timing.ARREARS
    money = {name: reader.amount(given, name) for name in _MONEY}
    price = Price(
        key=_read_key(reader, given),
        kind=kind,
        model=model,
        timing=reader.choice(given, "timing", Timing, default_timing),
        tiers=_read_tiers(reader, given, model),
        free_units=reader.quantity(given, "free_units"),
        package_size=reader.quantity(given, "package_size"),
        rate=reader.amount(given, "rate"),
        free_events=_read_free_events(reader, given),
        meter=reader.pattern(given, "meter", _KEY),
        aggregation=reader.choice(given, "aggregation", Aggregation) if "aggregation" in given else None,
        property=_read_property(reader, given),
        filters=_read_filters(reader, given),
        credits=_read_credits(reader, given),
        proration=reader.choice(given, "proration", Proration, Proration.DAY),
        bill_last_day=_read_flag(reader, given, "bill_last_day"),
        tax_category=reader.pattern(given, "tax_category", _CATEGORY, "S") or "S",
        tax_rate=reader.amount(given, "tax_rate") or Decimal(0),
        **money,
    )
    _check_whole(reader, price, given)
    return price


def _refuse_unknown(reader: FieldReader, data: Mapping[str, Any]) -> None:
    for name in data:
        if name not in _FIELDS:
            reader.fault(pointer_part(name), "unknown-field", "a price has no such field")


def _refuse_unused(reader: FieldReader, given: Mapping[str, Any], kind: PriceKind, model: PriceModel) -> None:
    required = _REQUIRED_BY_MODEL[model]
    usage = _USAGE if kind == PriceKind.USAGE else frozenset()
    allowed = _COMMON | required | _OPTIONAL_BY_MODEL.get(model, frozenset()) | usage
    for name in sorted(required - given.keys()):
        reader.fault(name, "required", f"model {model} needs {name}")
    for name in sorted((given.keys() & _FIELDS) - allowed):
        what = f"kind {kind}" if name in _USAGE else f"model {model}"
        reader.fault(name, "not-used", f"{what} does not use {name}")


def _check_whole(reader: FieldReader, price: Price, given: Mapping[str, Any]) -> None:
    """The rules that look at more than one field."""
    if price.kind == PriceKind.USAGE:
        _check_usage(reader, price, given)
    elif price.model in PERCENTAGES:
        reader.fault("model", "model-needs-usage", f"model {price.model} is for usage prices")
    if price.package_size is not None and price.package_size <= 0:
        reader.fault("package_size", "not-positive", "a package has more than 0 units")
    elif price.package_size is not None and price.package_size < SMALLEST_PACKAGE:
        reader.fault("package_size", "too-small", f"a package has at least {SMALLEST_PACKAGE} units")
    if price.minimum is not None and price.maximum is not None and price.minimum > price.maximum:
        reader.fault("maximum", "below-minimum", "the maximum is below the minimum")
    if price.tax_rate > 100:
        reader.fault("tax_rate", "too-large", "a tax rate is 0..100 percent")
    if price.tax_category in UNTAXED_CATEGORIES and price.tax_rate:
        reader.fault("tax_rate", "rate-not-for-category", f"category {price.tax_category} needs a rate of 0")


def _check_usage(reader: FieldReader, price: Price, given: Mapping[str, Any]) -> None:
    if price.timing == Timing.ADVANCE:
        reader.fault("timing", "usage-in-advance", "usage is known, and billed, in arrears")
    if "meter" not in given:
        reader.fault("meter", "required", "a usage price needs a meter")
    if "aggregation" not in given:
        reader.fault("aggregation", "meter-without-aggregation", "a meter needs an aggregation")
    if price.aggregation == Aggregation.COUNT and price.property is not None:
        reader.fault("property", "not-used", "aggregation count does not use property")
    if "credits" in given and price.model not in IN_CREDITS:
        allowed = ", ".join(sorted(IN_CREDITS))
        reader.fault("credits", "credits-not-for-model", f"credits cannot pay for model {price.model}, only for {allowed}")
    if price.model in PERCENTAGES and price.aggregation not in (None, Aggregation.SUM):
        reader.fault("aggregation", "aggregation-not-for-model", f"model {price.model} needs the aggregation sum")


def _read_key(reader: FieldReader, given: Mapping[str, Any]) -> str:
    if "key" not in given:
        reader.fault("key", "required", "key is required")
    return reader.pattern(given, "key", _KEY) or ""


def _read_tiers(reader: FieldReader, given: Mapping[str, Any], model: PriceModel) -> tuple[Tier, ...]:
    items = given.get("tiers")
    if items is None or "tiers" not in _REQUIRED_BY_MODEL[model]:
        return ()
    if not isinstance(items, Sequence) or isinstance(items, str | bytes) or not 1 <= len(items) <= MAX_TIERS:
        reader.fault("tiers", "type", f"must be a list of 1..{MAX_TIERS} tiers")
        return ()
    tiers = [_read_tier(reader, item, index, model) for index, item in enumerate(items)]
    known = [tier for tier in tiers if tier is not None]
    if len(known) == len(tiers):
        _check_tiers(reader, known)
    return tuple(known)


def _read_tier(reader: FieldReader, item: Any, index: int, model: PriceModel) -> Tier | None:
    at = f"tiers/{index}/"
    if not isinstance(item, Mapping):
        reader.fault(f"tiers/{index}", "type", "must be an object")
        return None
    price_field = "rate" if model == PriceModel.GRADUATED_PERCENTAGE else "unit_amount"
    before = len(reader.errors)
    for name, value in item.items():
        if name not in ("up_to", "unit_amount", "flat_amount", "rate"):
            reader.fault(at + str(name), "unknown-field", "a tier has no such field")
        elif value is not None and name not in ("up_to", "flat_amount", price_field):
            reader.fault(at + name, "not-used", f"the tiers of model {model} do not use {name}")
    if item.get(price_field) is None and item.get("flat_amount") is None:
        reader.fault(at + price_field, "required", f"a tier needs {price_field} or flat_amount")
    up_to = reader.quantity(item, "up_to", at)
    price = reader.amount(item, price_field, at)
    flat_amount = reader.amount(item, "flat_amount", at)
    if len(reader.errors) > before:
        return None
    if price_field == "rate":
        return Tier(up_to, None, flat_amount, price if price is not None else Decimal(0))
    return Tier(up_to, price if price is not None else Decimal(0), flat_amount)


def _check_tiers(reader: FieldReader, tiers: Sequence[Tier]) -> None:
    """Each tier begins where the one before ends, and the last takes all that is above."""
    lower = Decimal(0)
    for index, tier in enumerate(tiers):
        last = index == len(tiers) - 1
        at = f"tiers/{index}/up_to"
        if last and tier.up_to is not None:
            above = decimal_text(tier.up_to)
            reader.fault(at, "no-last-tier", f"no tier prices units above {above}: the last tier must have up_to null")
        if not last and tier.up_to is None:
            reader.fault(at, "tier-overlap", f"tier {index} has no upper end, so tier {index + 1} overlaps it")
        if tier.up_to is None:
            continue
        if tier.up_to <= lower:
            what = f"ends at {decimal_text(tier.up_to)}, not above {decimal_text(lower)} where it begins"
            reader.fault(at, "tier-overlap" if index else "tier-empty", f"tier {index} {what}")
        lower = max(lower, tier.up_to)


def _read_free_events(reader: FieldReader, given: Mapping[str, Any]) -> int | None:
    number = reader.quantity(given, "free_events")
    if number is None:
        return None
    if number != number.to_integral_value() or number > MAX_FREE_EVENTS:
        reader.fault("free_events", "format", "must be a whole number of events")
        return None
    return int(number)


def _read_property(reader: FieldReader, given: Mapping[str, Any]) -> str | None:
    value = given.get("property")
    if value is None or _is_property_name(value):
        return value
    reader.fault("property", "format", "must be a property's name of 1..64 characters")
    return None


def _read_filters(reader: FieldReader, given: Mapping[str, Any]) -> Filters:
    value = given.get("filters")
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) > MAX_FILTERS:
        reader.fault("filters", "type", f"must be an object of at most {MAX_FILTERS} properties, each with its allowed values")
        return ()
    filters: list[tuple[str, tuple[str, ...]]] = []
    for name, allowed in value.items():
        values = [allowed] if isinstance(allowed, str) else allowed
        if not _is_property_name(name) or not _is_filter_list(values):
            reader.fault("filters", "format", f"each property has 1..{MAX_FILTER_VALUES} text values of at most 200 characters")
            return ()
        filters.append((name, tuple(values)))
    return tuple(sorted(filters))


def _read_credits(reader: FieldReader, given: Mapping[str, Any]) -> CreditPrice | None:
    value = given.get("credits")
    if value is None:
        return None
    if not isinstance(value, Mapping):
        reader.fault("credits", "type", "must be an object with per_unit, and credit_type unless it is credits")
        return None
    at = "credits/"
    for name in value:
        if name not in ("credit_type", "per_unit"):
            reader.fault(at + pointer_part(name), "unknown-field", "credits have no such field")
    credit_type = "credits" if value.get("credit_type") is None else value["credit_type"]
    if not isinstance(credit_type, str) or not _CREDIT_TYPE.fullmatch(credit_type):
        reader.fault(at + "credit_type", "format", f"must match {_CREDIT_TYPE.pattern}")
        return None
    if value.get("per_unit") is None:
        reader.fault(at + "per_unit", "required", "credits need per_unit")
    per_unit = reader.amount(value, "per_unit", at)
    if per_unit is not None and per_unit <= 0:
        reader.fault(at + "per_unit", "not-positive", "a unit takes more than 0 credits")
        return None
    return None if per_unit is None else CreditPrice(credit_type, per_unit)


def _is_property_name(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 64 and "\0" not in value


def _is_filter_list(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not 1 <= len(values) <= MAX_FILTER_VALUES:
        return False
    return all(isinstance(value, str) and len(value) <= 200 and "\0" not in value for value in values)


def _read_flag(reader: FieldReader, given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        reader.fault(name, "type", "must be true or false")
        return False
    return value


def _jsonable(value: Any) -> Any:
    if isinstance(value, Decimal):
        return decimal_text(value)
    return value.value if isinstance(value, Timing | PriceKind | PriceModel | Proration | Aggregation) else value


def _tier_dict(tier: Tier) -> dict[str, Any]:
    known = {name: _jsonable(getattr(tier, name)) for name in ("unit_amount", "flat_amount", "rate")}
    return {"up_to": _jsonable(tier.up_to), **{name: value for name, value in known.items() if value is not None}}
