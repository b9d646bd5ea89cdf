"""A price as form fields: converts the fields to the price of the REST contract, and back."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.forms.utils import pretty_name
from unfold.widgets import UnfoldBooleanWidget

from billing.rating.aggregation import Aggregation
from billing.rating.periods import MAX_INTERVAL_COUNT, IntervalUnit, Timing
from billing.rating.prices.price import MODELS, USUAL_TIMING, PriceKind, Proration
from billing.rating.prices.reading import COMMON, SHAPES, USAGE_FIELDS
from billing.rating.prices.reading import FIELDS as DECLARED
from billing.rating.prices.values import (
    BUCKET_AMOUNTS,
    DECIMAL_PLACES,
    BilledBy,
    Buckets,
    CreditsPerUnit,
    PriceNumber,
    Rounding,
)
from ledger.staff.credit_amounts import CreditRateField
from ledger.staff.kit.form_fields import Display, as_json, made
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.rows import NamesField, RowsField, price_cell, text_cell
from ledger.values import Boolean, Choice, CreditType, Integer, Number, RateCode, Text

KINDS: Final = {PriceKind.RECURRING: "every period", PriceKind.USAGE: "by usage"}
AGGREGATIONS: Final = {
    Aggregation.SUM: "sum of the values",
    Aggregation.COUNT: "number of events",
    Aggregation.MAX: "highest value",
    Aggregation.LAST: "last value",
    Aggregation.UNIQUE: "number of different values",
    Aggregation.WEIGHTED_SUM: "average over time",
    Aggregation.DAILY_LEVEL: "level of each day",
}
UNITS: Final = {unit: unit.replace("_", " ") for unit in IntervalUnit}
TIMINGS: Final = {Timing.ADVANCE: "in advance", Timing.ARREARS: "in arrears"}
PRORATIONS: Final = {
    Proration.DAY: "by days",
    Proration.SECOND: "by seconds",
    Proration.FIXED_30: "by thirtieths of a month",
    Proration.NONE: "not divided: changes within it are free",
}
ROUNDINGS: Final = {Rounding.NONE: "", Rounding.UP: "up", Rounding.DOWN: "down", Rounding.HALF_UP: "half up"}
FACTOR_WORDS: Final = {"divide_by": "divided by", "multiply_by": "multiplied by"}


def _column(model: str) -> str:
    """Return the field of a bucket for the amount of a line; a price without buckets refuses both."""
    fields = SHAPES[model].fields if model in SHAPES else ()
    declared = [field.value for field in fields if isinstance(field.value, Buckets)]
    return declared[0].column if declared else ""


def _filter_cells() -> dict[str, Any]:
    return {"property": text_cell("Property", placeholder="region"), "value": text_cell("Value", placeholder="eu", strip=False)}


class FiltersField(RowsField):
    """The properties that events have: a row has a property and one of its values."""

    def __init__(self) -> None:
        super().__init__(_filter_cells(), noun="Value")

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
        return _filters_of(rows)

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        return _rows_of_filters(value)

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        lacking = (number for number, row in enumerate(rows) if len(row) < 2)
        number = next(lacking, None)
        return None if number is None else (number, "value" if "property" in rows[number] else "property")


class BucketsField(RowsField):
    """Prices of some events: a row has a name, the price, and a property with a value. A further value has a row."""

    def __init__(self) -> None:
        cells: dict[str, Any] = {
            "key": text_cell("Name", placeholder="eu"),
            "unit_amount": price_cell("Price"),
            "rate": text_cell("Percent", inputmode="decimal"),
            **_filter_cells(),
        }
        for column in BUCKET_AMOUNTS:
            cells[column].models = [name for name in SHAPES if _column(name) == column]
        super().__init__(cells, noun="Row")

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        buckets = []
        for first, own in _buckets(rows):
            amounts = {name: rows[first][name] for name in ("key", *BUCKET_AMOUNTS) if rows[first].get(name)}
            for number in own[1:]:
                for name in (name for name in BUCKET_AMOUNTS if rows[number].get(name)):
                    self.refuse(number, name, "Leave this empty: the first row of this name has it.")
            filters = _filters_of([rows[number] for number in own if rows[number].keys() & _filter_cells()])
            buckets.append(amounts | ({"filters": filters} if filters else {}))
        return buckets

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for bucket in value:
            first, *others = _rows_of_filters(bucket["filters"])
            amounts = {name: bucket.get(name) for name in BUCKET_AMOUNTS}
            rows += [{"key": bucket["key"]} | amounts | first, *({"key": bucket["key"]} | each for each in others)]
        return rows

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        buckets = list(_buckets(rows))
        if not parts or not parts[0].isdecimal() or int(parts[0]) >= len(buckets):
            return None
        named = {"filters": "property"}.get("".join(parts[1:2]), "".join(parts[1:2]))
        return buckets[int(parts[0])][0], named if named in self.columns else "key"


def _buckets(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[int]]]:
    """Return the number of the first row of each bucket, and those of its rows. A row without a name continues the one above."""
    buckets: list[tuple[int, list[int]]] = []
    for number, row in enumerate(rows):
        if buckets and row.get("key") in (None, "", rows[buckets[-1][0]].get("key")):
            buckets[-1][1].append(number)
        else:
            buckets.append((number, [number]))
    return buckets


def _filters_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    filters: dict[str, list[str]] = {}
    for row in rows:
        values = filters.setdefault(row.get("property", ""), [])
        values += [row["value"]] if row.get("value") else []
    return filters


def _rows_of_filters(filters: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    lists = {name: [values] if isinstance(values, str) else values for name, values in filters.items()}
    return [{"property": name, "value": each} for name, values in lists.items() for each in values]


class GroupsField(NamesField):
    """Properties of usage events; a property that stands in two rows is refused."""

    def __init__(self) -> None:
        super().__init__({"name": text_cell("Property", placeholder="region")}, noun="Property")

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        return [row["name"] for row in rows]


def _check(value: Boolean, shown: Display) -> forms.Field:
    return forms.BooleanField(widget=UnfoldBooleanWidget())


def _rate(value: PriceNumber, shown: Display) -> forms.Field:
    return CreditRateField(least=value.least, most=value.most)


def _price(value: PriceNumber, shown: Display) -> forms.Field:
    return MoneyField(least=value.least, most=value.most, is_minor=False)


TITLES: Final = {name: model.title for name, model in MODELS.items()}
AT_FIELD: Final = {
    "conversion": "conversion_factor",
    "conversion/divide_by": "conversion_factor",
    "conversion/multiply_by": "conversion_factor",
    "conversion/way": "conversion_way",
    "conversion/rounding": "conversion_rounding",
    "conversion/decimals": "conversion_decimals",
    "interval": "interval_unit",
    "interval/unit": "interval_unit",
    "interval/count": "interval_count",
    "credits": "credits_per_unit",
    "credits/per_unit": "credits_per_unit",
    "credits/credit_type": "credits_type",
    "credits/also_spent": "credits_also_spent",
    "entries": "entries_rate",
    "entries/rate": "entries_rate",
    "entries/component": "entries_component",
    "entries/credit_type": "entries_type",
}
"""The fields of the form for what is in an object of the price, by its pointer."""
OBJECT_OF: Final = {name: pointer.partition("/")[0] for pointer, name in AT_FIELD.items()}
FIELDS: Final[dict[str, Display]] = {
    "key": Display(required=True, help="Its name within the plan, such as seats or tokens."),
    "name": Display(label="Name on invoices", help="Behind the plan's name. Default: the key in words."),
    "kind": Display(label="Charged", required=True, words=KINDS, initial="recurring"),
    "model": Display(required=True, words=TITLES, initial="flat"),
    "unit_amount": Display(label="Price", make=_price, help="The fixed amount, or that of a unit or a package."),
    "meter": Display(help="For a usage price: the meter that usage events name."),
    "aggregation": Display(label="Quantity", unset="—", words=AGGREGATIONS, help="For a usage price."),
    "billed_by": Display(
        label="Measured by",
        value=Choice([BilledBy.ENTRIES]),
        unset="usage events of the meter",
        words={BilledBy.ENTRIES: "spends and holds by a rate"},
        help="By a rate, each use is told once, when it is decided: usage events of the meter are refused.",
    ),
    "entries_rate": Display(
        label="The rate", value=RateCode(), refers_to="rate_code", help="For a price that is measured by a rate: its name."
    ),
    "entries_component": Display(
        label="Its component", value=Text(most=40), help="Such as output. Empty: all its components together."
    ),
    "entries_type": Display(label="Credits of the rate", value=CreditType(), initial="credits", refers_to="credit_type"),
    "tax_rate": Display(label="Tax in percent", value=Number(least=0, most=100)),
    "tiers": Display(help="Each tier begins where the one above ends. The last one has no end."),
    "flat_fee_at_zero": Display(label="The first tier's fixed amount is due without usage", make=_check, initial=False),
    "free_units": Display(help="Per unit and per package."),
    "package_size": Display(label="Units in a package"),
    "rate": Display(label="Percent", help="Of a percentage."),
    "fixed_amount": Display(make=_price, label="Price of an event", help="Beside the percentage."),
    "event_minimum": Display(make=_price, label="At least, an event", help="Of a percentage: the least that each event costs."),
    "event_maximum": Display(make=_price, label="At most, an event"),
    "free_events": Display(),
    "free_amount": Display(make=_price, help="For a percentage: the part of the sum that is free."),
    "property": Display(help="The property of usage events that counts instead of the value."),
    "filters": Display(
        label="Only events where",
        value=Text(most=10_000),
        make=lambda value, shown: FiltersField(),
        help="Properties of usage events, and the values that count. Each further value of a property has a row.",
    ),
    "group_by": Display(
        label="A line for each",
        value=Text(most=1_000),
        make=lambda value, shown: GroupsField(),
        help="Properties of usage events: each combination of their values has its own line, tiers and free units.",
    ),
    "buckets": Display(
        label="Another price for some events",
        value=Text(most=10_000),
        make=lambda value, shown: BucketsField(),
        help="A name, the price, and the values of properties that these events have. Each further value has a row below. "
        "The price above is for all other events.",
    ),
    "conversion_way": Display(
        label="Before tiers count, the quantity is", value=Choice(FACTOR_WORDS), words=FACTOR_WORDS, initial="divide_by"
    ),
    "conversion_factor": Display(
        label="this number", value=Text(most=40), help="Divided by 1000000000, bytes become GB. Empty: it stays as it is."
    ),
    "conversion_rounding": Display(label="and round it", value=Choice(Rounding), unset="not", words=ROUNDINGS),
    "conversion_decimals": Display(label="to this number of decimals", value=Integer(least=0, most=DECIMAL_PLACES)),
    "credits_per_unit": Display(
        label="Credits a unit",
        value=CreditsPerUnit(),
        make=_rate,
        help="The holder's credits pay for units first. In the unit of the credit type, with its decimals.",
    ),
    "credits_type": Display(label="Of the credit type", value=CreditType(), initial="credits", refers_to="credit_type"),
    "credits_also_spent": Display(
        label="Callers also spend them, for something else",
        value=Boolean(),
        make=_check,
        initial=False,
        help="Otherwise spends of the plan's allowance tell this use, and usage events beside them are refused.",
    ),
    "minimum": Display(make=_price, label="At least", help="Each period, before tax unless the amounts include it."),
    "maximum": Display(make=_price, label="At most", help="Each period, before tax unless the amounts include it."),
    "interval_unit": Display(
        label="Billed every",
        value=Choice(IntervalUnit),
        unset="as the plan",
        words=UNITS,
        help="If more often than the plan, such as usage each month of a yearly plan.",
    ),
    "interval_count": Display(label="How many of them", value=Integer(least=1, most=MAX_INTERVAL_COUNT), help="Empty: 1."),
    "timing": Display(
        label="Billed",
        unset="as usual",
        words=TIMINGS,
        help="Usage in advance is charged as it is recorded.",
    ),
    "proration": Display(label="Part of a period", words=PRORATIONS, initial="day"),
    "bill_last_day": Display(label="Charge the last day of a cancelled period", make=_check, initial=False),
    "tax_category": Display(initial="S", refers_to="tax_category", help="As e-invoices name it; S, taxed, by default."),
    "tax_class": Display(
        initial="standard", refers_to="tax_class", help="What is sold: for sellers whose rules find the tax of category S."
    ),
    "names": Display(label="Name in other languages"),
}
FIELDS.update(
    {name: Display(help=each.value.text) for name, each in DECLARED.items() if name not in {*FIELDS, *OBJECT_OF.values()}}
)
"""How the form shows the fields of prices; what a model declares beyond those is shown by its name and its text."""
WORDS: Final[dict[str, str]] = {
    **{name: shown.label or pretty_name(name) for name, shown in FIELDS.items()},
    **{pointer.rpartition("/")[2]: FIELDS[name].label or pretty_name(name) for pointer, name in AT_FIELD.items()},
    **{str(each): text for words in (KINDS, AGGREGATIONS, TIMINGS, FACTOR_WORDS, TITLES) for each, text in words.items()},
}
"""What the form calls the names in a fault of a price: of fields, models, kinds and quantities."""
OWN: Final = tuple(name for name in FIELDS if name in DECLARED and name not in COMMON)
"""The fields that only some models have."""
MAIN: Final = (
    "key", "name", "kind", "model", *OWN, "meter", "aggregation", "billed_by", "entries_rate", "entries_component", "tax_rate",
)  # fmt: skip
"""The fields that are always shown, of a model that has them; the others are folded."""
EXAMPLE: Final = "example"
"""The name of the field with the quantity of which the form shows the cost."""
FIRST_VALUES: Final = {name: shown.initial for name, shown in FIELDS.items() if shown.initial}
CHECKED: Final = tuple(name for name, shown in FIELDS.items() if shown.make is _check)
ROWS: Final = ("tiers", "filters", "group_by", "buckets")
"""The fields with tables of rows, which are left out of a price if they have no rows."""
PLAIN: Final = tuple(name for name in FIELDS if name in DECLARED and name not in (*ROWS, *CHECKED))
"""The fields whose value in the form is the price's."""
TELLING: Final = ("key", "meter", *(name for name, field in DECLARED.items() if field.required and name not in COMMON))
"""The fields of which a price needs at least one; without them it is empty."""


def fields_of_price(index: int) -> dict[str, forms.Field]:
    """Return the fields of the price number `index`, each with its initial value, and with the models and kinds that use it."""
    fields: dict[str, Any] = {}
    for name, shown in FIELDS.items():
        declared = OBJECT_OF.get(name, name)
        field: Any = made(name, shown.value or DECLARED[name].value, shown, required=bool(shown.required))
        field.models = [model for model, shape in SHAPES.items() if declared in shape.names]
        field.kinds = [kind.value for kind in PriceKind if kind == PriceKind.USAGE or declared not in USAGE_FIELDS]
        fields[name_of(index, name)] = field
    return fields


def show_used(index: int, fields: Mapping[str, Any], *, kind: str, model: str) -> None:
    """Mark the fields that a price of the kind and model uses; a page hides the others, and does not send them."""
    for name in FIELDS:
        field = fields[name_of(index, name)]
        field.is_used = model in field.models and kind in field.kinds
        field.widget.attrs |= {} if field.is_used else {"disabled": True}
        if isinstance(field, RowsField):
            field.widget.model = model


def name_of(index: int, name: str) -> str:
    """Return the name of a price's field in the form."""
    return f"price_{index}_{name}"


def field_at(pointer: str, indexes: Sequence[int]) -> str | None:
    """Return the field that shows a fault in a price, by its pointer in the REST contract; None if it is not a price's pointer.

    Args:
        indexes: the number in the form of each price that was sent.
    """
    parts = pointer.removeprefix("/").split("/")
    if len(parts) < 2 or parts[0] != "prices" or not parts[1].isdecimal() or int(parts[1]) >= len(indexes):
        return None
    rest = "/".join(parts[2:])
    return name_of(indexes[int(parts[1])], AT_FIELD.get(rest, parts[2] if len(parts) > 2 else "key"))


def is_empty(index: int, typed: Mapping[str, Any]) -> bool:
    """Return whether the operator has filled in neither a key nor a price."""
    telling, of_tiers = {name_of(index, name) for name in TELLING}, f"{name_of(index, 'tiers')}-"
    filled = (name for name, text in typed.items() if str(text or "").strip() not in ("", "[]"))
    return not any(name in telling or name.startswith(of_tiers) for name in filled)


def price_typed(index: int, clean: Mapping[str, Any]) -> dict[str, Any]:
    """Return the price of the REST contract from the fields; `billing.rating.prices.reading` checks it."""

    def value(name: str) -> Any:
        found = clean.get(name_of(index, name))
        return None if found in ("", None) else found

    price: dict[str, Any] = {name: as_json(value(name)) for name in PLAIN}
    price |= {name: value(name) for name in ROWS if value(name)}
    conversion = conversion_typed(*(value(f"conversion_{name}") for name in ("way", "factor", "rounding", "decimals")))
    if conversion:
        price["conversion"] = conversion
    if value("credits_per_unit") is not None:
        price["credits"] = {"credit_type": value("credits_type"), "per_unit": f"{value('credits_per_unit'):f}"}
        price["credits"] |= {"also_spent": True} if value("credits_also_spent") else {}
    if value("entries_rate") is not None:
        named = {name: value(f"entries_{name}") for name in ("rate", "component")} | {"credit_type": value("entries_type")}
        price["entries"] = {name: each for name, each in named.items() if each is not None}
    interval = {"unit": value("interval_unit"), "count": value("interval_count")}
    if any(interval.values()):
        price["interval"] = {name: each for name, each in interval.items() if each is not None}
    price |= {name: True for name in CHECKED if name in DECLARED and value(name)}
    return {name: each for name, each in price.items() if each is not None}


def conversion_typed(way: str | None, factor: str | None, rounding: str | None, decimals: int | None) -> dict[str, Any]:
    """Return the conversion of the typed fields; empty if no field has a value."""
    typed: dict[str, Any] = {"rounding": rounding, "decimals": decimals}
    if factor is not None:
        typed[way or "divide_by"] = factor.strip()
    return {name: each for name, each in typed.items() if each is not None}


def typed_of(index: int, definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial values of the fields for an existing price; the inverse of `price_typed`."""
    typed: dict[str, Any] = {**FIRST_VALUES}
    typed |= {name: definition[name] for name in PLAIN if definition.get(name) is not None}
    if definition.get("timing") == USUAL_TIMING[definition["kind"]]:
        del typed["timing"]
    typed |= {name: bool(definition.get(name)) for name in CHECKED}
    typed |= {name: definition.get(name) or [] for name in ROWS}
    conversion = definition.get("conversion")
    if conversion:
        times = conversion.get("multiply_by")
        typed["conversion_way"] = "divide_by" if times is None else "multiply_by"
        typed["conversion_factor"] = conversion["divide_by"] if times is None else times
        rounding = conversion.get("rounding", Rounding.NONE)
        if rounding != Rounding.NONE:
            typed |= {"conversion_rounding": rounding, "conversion_decimals": conversion.get("decimals", 0)}
    own = definition.get("interval")
    if own:
        typed |= {"interval_unit": own["unit"], "interval_count": own["count"]}
    entries = definition.get("entries")
    if entries:
        typed |= {
            "entries_rate": entries["rate"],
            "entries_component": entries.get("component"),
            "entries_type": entries["credit_type"],
        }
    if definition.get("billed_by") == BilledBy.EVENTS:
        del typed["billed_by"]
    paying = definition.get("credits")
    if paying:
        typed |= {"credits_per_unit": Decimal(paying["per_unit"]), "credits_type": paying["credit_type"]}
        typed["credits_also_spent"] = bool(paying.get("also_spent"))
    return {name_of(index, name): value for name, value in typed.items()}
