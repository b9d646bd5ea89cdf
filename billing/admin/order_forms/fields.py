"""Fields for values that only orders have (see `billing.rating.values`), and the base of all forms about orders."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.forms.utils import pretty_name
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from billing.nouns import NounField
from billing.orders.phases import PhaseList
from billing.rating.money import MINOR_DIGITS
from billing.rating.names import Names
from billing.rating.prices.reading import SHAPES
from billing.rating.prices.tiers import MAX_TIERS, Tier, Tiers
from billing.rating.prices.values import MAX_FREE_EVENTS, EventCount, Worded
from billing.rating.values import Currency, Money
from ledger.admin.kit.form_fields import Shown, field_for
from ledger.admin.kit.idempotent_forms import KeyedForm
from ledger.admin.kit.money_fields import MAX_PRICE_DECIMALS, MoneyField, NotOneNumber, decimal_sign, money, read_typed
from ledger.records import shape_of
from ledger.values import MAX_REASON_CHARACTERS, Integer, ListOf, MapOf, Text

REASON: Final = forms.CharField(
    required=False,
    max_length=MAX_REASON_CHARACTERS,
    widget=UnfoldAdminTextInputWidget(),
    help_text="The staff log records it with your name.",
)


def shows_of(fields: Iterable[NounField]) -> dict[str, Shown]:
    """Return how forms show the fields of a noun; not its objects, which have fields of their own."""
    return {
        each.name: Shown(
            label=each.out.label,
            help=each.out.help,
            words=each.out.words,
            required=_is_needed(each) if each.out.is_needed is None else each.out.is_needed,
            initial=each.default,
        )
        for each in fields
        if each.is_plain
    }


def _is_needed(field: NounField) -> bool:
    return field.declared.required or field.default not in (None, "")


class OrderForm(KeyedForm):
    """A form about orders. The rows of orders have no column for the reason: the staff log keeps it."""

    is_abstract = True
    reason = REASON


class CurrencyField(forms.ChoiceField):
    """The code of a currency, from a list; an address may name it in lower case."""

    def __init__(self) -> None:
        codes = [(code, code) for code in sorted(MINOR_DIGITS)]
        super().__init__(choices=[("", "Choose one"), *codes], widget=UnfoldAdminSelectWidget())

    def to_python(self, value: Any) -> str:
        """Return it in capitals, as ISO writes it."""
        return str(super().to_python(value) or "").upper()

    def prepare_value(self, value: Any) -> Any:
        """Return it in capitals, as the list has it."""
        return value.upper() if isinstance(value, str) else value

    def valid_value(self, value: Any) -> bool:
        """Leave it to the declaration, which refuses other codes."""
        return True


@field_for.register
def _(value: Currency, shown: Shown) -> forms.Field:
    return CurrencyField()


@field_for.register
def _(value: Money, shown: Shown) -> forms.Field:
    return money(value, shown)


@field_for.register
def _(value: Worded, shown: Shown) -> forms.Field:
    return field_for(value.inner, shown)


@field_for.register
def _(value: EventCount, shown: Shown) -> forms.Field:
    return field_for(Integer(least=0, most=MAX_FREE_EVENTS), shown)


class NamesField(forms.CharField):
    """Names with commas between them, each once."""

    def to_python(self, value: Any) -> Any:
        names = (part.strip() for part in str(super().to_python(value) or "").split(","))
        return list(dict.fromkeys(name for name in names if name))

    def prepare_value(self, value: Any) -> Any:
        """Return the names in the typed form."""
        return ", ".join(value) if isinstance(value, list) else value


@field_for.register
def _(value: ListOf, shown: Shown) -> forms.Field:
    return NamesField(max_length=1000, widget=UnfoldAdminTextInputWidget())


# A key may have colons.
_KEY_AND_NUMBER: Final = re.compile(r"(\S+?)\s*[:=\s]\s*([^\s:=]+)")


class LinesField(forms.CharField):
    """A key and a value on each line, such as "seats 5"."""

    def to_python(self, value: Any) -> Any:
        found: dict[str, str] = {}
        for line in filter(None, (line.strip() for line in str(super().to_python(value) or "").splitlines())):
            parts = _KEY_AND_NUMBER.fullmatch(line)
            if parts is None:
                raise ValidationError(f"“{line[:60]}” is not a key and a number, such as “seats 5”.")
            found[parts[1]] = parts[2]
        return found

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the typed form."""
        return "\n".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value


@field_for.register
def _(value: MapOf, shown: Shown) -> forms.Field:
    return LinesField(max_length=10_000, widget=lines_widget(shown.placeholder))


class PhasesField(forms.CharField):
    """A phase on each line: how long, then its terms: "3: plan team, seats 5, 20 % off". The last one: "then: list prices"."""

    def to_python(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().to_python(value) or "").splitlines() if line.strip()]
        return [self._phase(number, line) for number, line in enumerate(lines, 1)]

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the typed form."""
        return "\n".join(_phase_line(each) for each in value) if isinstance(value, list) else value

    def _phase(self, number: int, line: str) -> dict[str, Any]:
        length, _, terms = line.partition(": ") if ": " in line else (line.rstrip(":"), "", "")
        phase: dict[str, Any] = {}
        if length.isascii() and length.isdecimal():
            phase["intervals"] = int(length)
        elif length.startswith("until "):
            phase["ends_at"] = f"{length.removeprefix('until ').removesuffix('Z')}Z"
        elif length != "then":
            raise ValidationError(f"Line {number} begins with a number of periods, “until” and a time, or “then”.")
        for term in filter(None, (part.strip() for part in terms.split(","))):
            phase |= self._term(number, term, phase)
        return phase

    def _term(self, number: int, term: str, phase: dict[str, Any]) -> dict[str, Any]:
        words = term.split()
        if term in ("trial", "list prices"):
            return {term.replace(" ", "_"): True}
        if len(words) == 3 and words[1:] == ["%", "off"]:
            return {"price_override": {"percent_off": words[0]}}
        if len(words) != 2:
            raise ValidationError(
                f"Line {number}: “{term[:60]}” is not “trial”, “plan team”, “seats 5”, “20 % off” or “list prices”."
            )
        if words[0] == "plan":
            return {"plan": words[1]}
        return {"quantities": phase.get("quantities", {}) | {words[0]: words[1]}}


def _phase_line(phase: Mapping[str, Any]) -> str:
    length = phase.get("intervals") or (f"until {phase['ends_at'].removesuffix('Z')}" if "ends_at" in phase else "then")
    terms = [name.replace("_", " ") for name in ("trial", "list_prices") if phase.get(name)]
    terms += [f"plan {phase['plan']}"] if "plan" in phase else []
    terms += [f"{key} {quantity}" for key, quantity in phase.get("quantities", {}).items()]
    terms += [f"{phase['price_override']['percent_off']} % off"] if "price_override" in phase else []
    return f"{length}: {', '.join(terms)}"


@field_for.register
def _(value: PhaseList, shown: Shown) -> forms.Field:
    return PhasesField(max_length=10_000, widget=lines_widget("3: 20 % off"))


class TranslationsField(forms.CharField):
    """A language and a name on each line, such as "de = Plätze"."""

    def to_python(self, value: Any) -> Any:
        lines = (line.partition("=") for line in str(super().to_python(value) or "").splitlines() if line.strip())
        return {code.strip(): name.strip() for code, _, name in lines}

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the typed form."""
        return "\n".join(f"{code} = {name}" for code, name in value.items()) if isinstance(value, dict) else value


@field_for.register
def _(value: Names, shown: Shown) -> forms.Field:
    return TranslationsField(max_length=10_000, widget=lines_widget("de = Plätze"))


# Tiers -----------------------------------------------------------------------------------------------

COLUMN_TITLES: Final[Mapping[str, str]] = {"up_to": "Up to", "flat_amount": "Fixed amount", "rate": "Percent"}
"""The titles of the columns whose field has another name than people would say."""
MONEY_COLUMNS: Final = ("unit_amount", "flat_amount")
LEAST_ROWS: Final = 2


def used_by(column: str) -> list[str]:
    """Return the models of prices whose tiers have the column."""
    tiers = {name: shape.fields for name, shape in SHAPES.items()}
    found = {name: [each.value for each in fields if isinstance(each.value, Tiers)] for name, fields in tiers.items()}
    return [name for name, values in found.items() if any(column in value.shape.names for value in values)]


class TiersInput(forms.Widget):
    """A table with a row for each tier. One more row is empty, for pages without scripts; empty rows are left out."""

    template_name = "admin/billing/order_forms/tiers.html"
    model = ""
    """The model that is chosen: other columns are hidden."""
    currency = ""
    currency_field = ""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Return the columns, and a row of cells for each tier."""
        context = super().get_context(name, value, attrs)
        columns: list[dict[str, Any]] = [
            {
                "name": field.name,
                "title": COLUMN_TITLES.get(field.name, pretty_name(field.name)),
                "models": " ".join(used_by(field.name)),
                "is_hidden": self.model not in used_by(field.name),
                "is_money": field.name in MONEY_COLUMNS,
            }
            for field in shape_of(Tier).fields
        ]
        tiers: list[Mapping[str, Any]] = [*(_tiers_of(value) if isinstance(value, str) else value or [])]
        tiers += [{}] * max(LEAST_ROWS - len(tiers), 1)
        rows = [
            [column | {"value": "" if tier.get(column["name"]) is None else tier[column["name"]]} for column in columns]
            for tier in tiers[:MAX_TIERS]
        ]
        context["widget"] |= {"columns": columns, "rows": rows, "css": UnfoldAdminTextInputWidget().attrs["class"]}
        context["widget"] |= {"currency": self.currency, "currency_field": self.currency_field}
        return context

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Any:
        """Return the tiers with the texts that were typed; or those of a hidden field, which has them as JSON."""
        if isinstance(data.get(name), str):
            return _tiers_of(data[name])
        rows: list[dict[str, Any]] = []
        for row in range(MAX_TIERS + 1):
            typed = {field.name: str(data.get(f"{name}-{row}-{field.name}") or "").strip() for field in shape_of(Tier).fields}
            if any(typed.values()):
                rows.append({column: text or None for column, text in typed.items() if text or column == "up_to"})
        return rows

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return not any(key == name or key.startswith(f"{name}-") for key in data)

    def id_for_label(self, id_: str) -> str:
        return f"{id_}-0-up_to"


def _tiers_of(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


class TiersField(MoneyField):
    """The tiers of a price as they are typed, with money as people write it; the declaration reads the rest."""

    def __init__(self) -> None:
        super().__init__(least=0, most=0, is_minor=False)
        self.widget = TiersInput()

    def to_python(self, value: Any) -> Any:
        """Return the tiers with their money in plain notation."""
        return [self._tier(number, tier) for number, tier in enumerate(value or [], 1)]

    def validate(self, value: Any) -> None:
        """Leave it to the declaration."""

    def prepare_value(self, value: Any) -> Any:
        """Return the tiers as they stand in the table."""
        return value

    def _tier(self, number: int, tier: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {
                name: f"{read_typed(text, decimals=MAX_PRICE_DECIMALS, decimal_sign=decimal_sign()):f}"
                if name in MONEY_COLUMNS and isinstance(text, str) and text
                else text
                for name, text in tier.items()
            }
        except NotOneNumber as refused:
            raise ValidationError(f"Tier {number}: {refused}.") from None


@field_for.register
def _(value: Tiers, shown: Shown) -> forms.Field:
    return TiersField()


def lines_widget(placeholder: str) -> Any:
    """Return an input of several lines."""
    return UnfoldAdminTextareaWidget(attrs={"rows": 4, "placeholder": placeholder, "spellcheck": "false"})


# Negotiated amounts ----------------------------------------------------------------------------------

TIERS_OF: Final = {"tiers": "unit_amount", "rates": "rate"}
"""The words for tiers in a line, by the field that prices their units."""
BEYOND: Final = "beyond"


class AmountsField(forms.CharField):
    """The key of a price, the name of one of its amounts, and the amount on each line."""

    def to_python(self, value: Any) -> Any:
        found: dict[str, dict[str, Any]] = {}
        for line in filter(None, (line.strip() for line in str(super().to_python(value) or "").splitlines())):
            key, _, rest = line.partition(" ")
            name, _, amount = rest.strip().partition(" ")
            if not amount:
                detail = f"“{line[:60]}” is not a key, the name of an amount and the amount, such as “seats unit_amount 9.00”."
                raise ValidationError(detail)
            if name in TIERS_OF:
                tiers = [_tier_typed(part.split(), TIERS_OF[name]) for part in amount.split(",") if part.strip()]
                found.setdefault(key, {})["tiers"] = tiers
            else:
                found.setdefault(key, {})[name] = amount.strip()
        return found

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the typed form."""
        if not isinstance(value, dict):
            return value
        words = {column: word for word, column in TIERS_OF.items()}
        return "\n".join(
            f"{key} {name} {amount}"
            if isinstance(amount, str)
            else f"{key} {words['rate' if 'rate' in amount[0] else 'unit_amount']} {', '.join(map(_tier_line, amount))}"
            for key, amounts in value.items()
            for name, amount in amounts.items()
        )


def _tier_typed(parts: list[str], column: str) -> dict[str, Any]:
    """Read the end of a tier, its amount and its fixed amount; the declaration refuses what is no number."""
    upper, amount, flat = (*parts, None, None)[:3]
    tier = {"up_to": None if str(upper).lower() == BEYOND else upper, column: amount}
    return tier if flat is None else tier | {"flat_amount": " ".join(parts[2:])}


def _tier_line(tier: dict[str, Any]) -> str:
    upper = BEYOND if tier["up_to"] is None else tier["up_to"]
    return " ".join(str(part) for part in (upper, tier.get("rate", tier.get("unit_amount")), tier.get("flat_amount")) if part)


OVERRIDE: Final[Mapping[str, Shown]] = {
    "percent_off": Shown(at="/price_override/percent_off", label="Percent off", help="Every price that is not named below."),
    "prices": Shown(
        at="/price_override/prices",
        value=Text(most=10_000),
        make=lambda value, shown: AmountsField(max_length=value.most, widget=lines_widget(shown.placeholder)),
        label="Negotiated amounts",
        placeholder="seats unit_amount 9.00\ntokens tiers 1000 0.05, beyond 0.02",
        help="One per line: the key of a price, the name of its amount, and the amount. Tiers follow each other with commas; "
        "tiers of a percentage are called rates.",
    ),
}
"""The fields for negotiated prices."""
