"""A price as form fields: converts the fields to the price of the REST contract, and back."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms

from billing.admin.order_forms.fields import check_field, choice_field, credit_type_field, decimal_field, lines_field, ref_field
from billing.rating.aggregation import Aggregation
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, SMALLEST_PACKAGE
from billing.rating.periods import Timing
from billing.rating.price_input import MAX_FREE_EVENTS
from billing.rating.prices import PriceKind, PriceModel, Proration
from ledger.admin.forms.credit_amounts import CreditRateField
from ledger.admin.kit.idempotent_forms import amount_field, text_field

KINDS: Final = [(PriceKind.RECURRING.value, "every period"), (PriceKind.USAGE.value, "by usage")]
MODELS: Final = [
    (PriceModel.FLAT.value, "a fixed amount"),
    (PriceModel.UNIT.value, "per unit"),
    (PriceModel.GRADUATED.value, "per unit in tiers, each part at its own price"),
    (PriceModel.VOLUME.value, "per unit in tiers, all at the price that is reached"),
    (PriceModel.PACKAGE.value, "per package"),
    (PriceModel.PERCENTAGE.value, "a percentage"),
    (PriceModel.GRADUATED_PERCENTAGE.value, "a percentage in tiers"),
]
AGGREGATIONS: Final = [
    ("", "—"),
    (Aggregation.SUM.value, "sum of the values"),
    (Aggregation.COUNT.value, "number of events"),
    (Aggregation.MAX.value, "highest value"),
    (Aggregation.LAST.value, "last value"),
    (Aggregation.UNIQUE.value, "number of different values"),
    (Aggregation.WEIGHTED_SUM.value, "average over time"),
]
TIMINGS: Final = [("", "as usual"), (Timing.ADVANCE.value, "in advance"), (Timing.ARREARS.value, "in arrears")]
PRORATIONS: Final = [
    (Proration.DAY.value, "by days"),
    (Proration.SECOND.value, "by seconds"),
    (Proration.FIXED_30.value, "by thirtieths of a month"),
    (Proration.NONE.value, "not divided"),
]
BEYOND: Final = "beyond"

MAIN: Final = ("key", "kind", "model", "unit_amount", "meter", "aggregation", "tax_rate")
"""Fields that most prices need; the others are folded."""
FIELDS: Final[Mapping[str, Callable[[], forms.Field]]] = {
    "key": lambda: ref_field(label="Key", help_text="Its name within the plan, such as seats or tokens."),
    "kind": lambda: choice_field(label="Charged", choices=KINDS),
    "model": lambda: choice_field(label="Model", choices=MODELS),
    "unit_amount": lambda: decimal_field(label="Price", help_text="For the whole, a unit or a package, in major units."),
    "meter": lambda: ref_field(label="Meter", required=False, help_text="For a usage price: the meter that usage events name."),
    "aggregation": lambda: choice_field(label="Quantity", choices=AGGREGATIONS, required=False, help_text="For a usage price."),
    "tax_rate": lambda: decimal_field(label="Tax in percent", most=Decimal(100)),
    "tiers": lambda: lines_field(
        label="Tiers",
        placeholder="1000 0.05\n10000 0.03\nbeyond 0.02",
        help_text="One per line: up to, price of a unit (or percent), and optionally a fixed amount for entering the tier. "
        "The last line begins with “beyond”.",
    ),
    "free_units": lambda: decimal_field(label="Free units", most=MAX_QUANTITY, help_text="Per unit and per package."),
    "package_size": lambda: decimal_field(label="Units in a package", least=SMALLEST_PACKAGE, most=MAX_QUANTITY),
    "rate": lambda: decimal_field(label="Percent", help_text="Of a percentage."),
    "fixed_amount": lambda: decimal_field(label="Price of an event", help_text="Beside the percentage."),
    "free_events": lambda: amount_field(label="Free events", required=False, least=0, most=MAX_FREE_EVENTS),
    "free_amount": lambda: decimal_field(label="Free amount", help_text="For a percentage: the part of the sum that is free."),
    "property": lambda: text_field(label="Property", most=64, help_text="Of usage events: counted instead of the value."),
    "filters": lambda: lines_field(
        label="Only events where", placeholder="region = eu, us", help_text="One property per line, with the values that count."
    ),
    "credits_per_unit": lambda: CreditRateField(
        label="Credits a unit",
        least=Decimal(0),
        most=MAX_MONEY,
        required=False,
        help_text="The holder's credits pay for units first. In the unit of the credit type, with its decimals.",
    ),
    "credits_type": lambda: credit_type_field(label="Of the credit type"),
    "minimum": lambda: decimal_field(label="At least", help_text="Each period, before tax."),
    "maximum": lambda: decimal_field(label="At most", help_text="Each period, before tax."),
    "timing": lambda: choice_field(
        label="Billed", choices=TIMINGS, required=False, help_text="Every period in advance, usage in arrears."
    ),
    "proration": lambda: choice_field(label="Part of a period", choices=PRORATIONS, required=False),
    "bill_last_day": lambda: check_field(label="Charge the last day of a cancelled period"),
    "tax_category": lambda: text_field(label="Tax category", most=32, help_text="UNTDID 5305; S by default."),
}
MONEY: Final = ("unit_amount", "rate", "fixed_amount", "free_amount", "minimum", "maximum", "tax_rate")
PLAIN: Final = ("key", "kind", "model", "meter", "aggregation", "property", "timing", "proration", "tax_category", "free_events")
FIRST_VALUES: Final = {"kind": "recurring", "model": "flat", "proration": "day", "tax_category": "S", "credits_type": "credits"}
AT_FIELD: Final = {"credits": "credits_per_unit", "credits/per_unit": "credits_per_unit", "credits/credit_type": "credits_type"}


def fields_of_price(index: int) -> dict[str, forms.Field]:
    """The fields of the price number `index`, each with its initial value."""
    fields = {}
    for name, make in FIELDS.items():
        field = make()
        field.initial = FIRST_VALUES.get(name, False if name == "bill_last_day" else None)
        fields[name_of(index, name)] = field
    return fields


def name_of(index: int, name: str) -> str:
    """The name of a price's field in the form."""
    return f"price_{index}_{name}"


def field_at(pointer: str, indexes: Sequence[int]) -> str | None:
    """The field that shows a mistake in a price, by its pointer in the REST contract; None if the pointer is not a price's.

    Args:
        indexes: the number in the form of each price that was sent.
    """
    parts = pointer.removeprefix("/").split("/")
    if len(parts) < 2 or parts[0] != "prices" or not parts[1].isdecimal() or int(parts[1]) >= len(indexes):
        return None
    rest = "/".join(parts[2:])
    return name_of(indexes[int(parts[1])], AT_FIELD.get(rest, parts[2] if len(parts) > 2 else "key"))


def is_empty(index: int, typed: Mapping[str, Any]) -> bool:
    """True if the operator has filled in neither a key nor a price."""
    return not any(
        str(typed.get(name_of(index, name)) or "").strip() for name in ("key", "unit_amount", "tiers", "rate", "meter")
    )


def price_typed(index: int, clean: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields to the price of the REST contract; `billing.rating.price_input` validates it."""

    def value(name: str) -> Any:
        found = clean.get(name_of(index, name))
        return None if found in ("", None) else found

    price: dict[str, Any] = {name: value(name) for name in PLAIN}
    price |= {name: None if value(name) is None else f"{value(name):f}" for name in MONEY}
    price |= {name: None if value(name) is None else f"{value(name):f}" for name in ("free_units", "package_size")}
    if value("tiers"):
        price["tiers"] = tiers_typed(value("tiers"), column="rate" if "percentage" in str(value("model")) else "unit_amount")
    if value("filters"):
        price["filters"] = filters_typed(value("filters"))
    if value("credits_per_unit") is not None:
        price["credits"] = {"credit_type": value("credits_type"), "per_unit": f"{value('credits_per_unit'):f}"}
    if value("bill_last_day"):
        price["bill_last_day"] = True
    return {name: each for name, each in price.items() if each is not None}


def tiers_typed(text: str, *, column: str) -> list[dict[str, Any]]:
    """Read tiers from their lines; a value that is not a number stays as it is, for the validation to refuse."""
    tiers = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        upper, *rest = line.split()
        tier: dict[str, Any] = {"up_to": None if upper.lower() == BEYOND else upper}
        tier[column] = rest[0] if rest else None
        if len(rest) > 1:
            tier["flat_amount"] = " ".join(rest[1:])
        tiers.append(tier)
    return tiers


def filters_typed(text: str) -> dict[str, list[str]]:
    """Read properties and the values that pass from their lines."""
    found: dict[str, list[str]] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, values = line.partition("=")
        found[name.strip()] = [value for value in (each.strip() for each in values.split(",")) if value]
    return found


def typed_of(index: int, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The initial values of the fields for an existing price; the inverse of `price_typed`."""
    typed: dict[str, Any] = {**FIRST_VALUES}
    typed |= {
        name: definition[name] for name in (*PLAIN, *MONEY, "free_units", "package_size") if definition.get(name) is not None
    }
    typed["bill_last_day"] = bool(definition.get("bill_last_day"))
    typed["tiers"] = "\n".join(_tier_line(tier) for tier in definition.get("tiers", []))
    typed["filters"] = "\n".join(
        f"{name} = {', '.join(_values(values))}" for name, values in definition.get("filters", {}).items()
    )
    paying = definition.get("credits")
    if paying:
        typed |= {"credits_per_unit": Decimal(paying["per_unit"]), "credits_type": paying["credit_type"]}
    return {name_of(index, name): value for name, value in typed.items()}


def _values(values: str | Sequence[str]) -> Sequence[str]:
    return [values] if isinstance(values, str) else values


def _tier_line(tier: Mapping[str, Any]) -> str:
    upper = BEYOND if tier.get("up_to") is None else tier["up_to"]
    price = tier.get("rate", tier.get("unit_amount", "0"))
    return " ".join(str(part) for part in (upper, price, tier.get("flat_amount")) if part is not None)
