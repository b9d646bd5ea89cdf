"""Fields for values that only orders have (see `billing.rating.values`), and the base of all forms about orders."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.forms.utils import pretty_name
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from billing.admin.order_forms import prices
from billing.admin.references import LANGUAGE_NAMES
from billing.nouns import NounField
from billing.orders.phases import PhaseList
from billing.orders.plans import PlanBudgets
from billing.rating.names import Names
from billing.rating.names_of_codes import COUNTRY_NAMES, CURRENCY_NAMES
from billing.rating.prices.reading import SHAPES
from billing.rating.prices.tiers import Tier, Tiers
from billing.rating.prices.values import MAX_FREE_EVENTS, EventCount, Worded
from billing.rating.values import Country, Currency, Money
from ledger.records import shape_of
from ledger.staff.credit_amounts import DEFAULT_TYPE, CreditAmountField
from ledger.staff.kit.form_fields import Display, field_for
from ledger.staff.kit.idempotent_forms import KeyedForm
from ledger.staff.kit.money_fields import money
from ledger.staff.kit.rows import KeysField, NamesField, RowsField, RowsInput, choice_cell, price_cell, text_cell, time_cell
from ledger.units import CreditUnit, units_of
from ledger.values import CREDIT_TYPE, MAX_AMOUNT, MAX_REASON_CHARACTERS, Integer, ListOf, MapOf, Text

CODE_LENGTH: Final = 3
"""Of currencies; those of countries have one letter less."""
REASON: Final = forms.CharField(
    required=False,
    max_length=MAX_REASON_CHARACTERS,
    widget=UnfoldAdminTextInputWidget(),
    help_text="The staff log records it with your name.",
)


def shows_of(fields: Iterable[NounField]) -> dict[str, Display]:
    """Return how forms show the fields of a noun; not its objects, which have fields of their own."""
    return {
        each.name: Display(
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

    def words_at(self, name: str) -> dict[str, str]:
        """Return also the names that the faults of prices have."""
        return prices.WORDS | super().words_at(name)


class CodeField(forms.CharField):
    """A code that one may type in lower case, or by its name: "EUR", "eur" or "Euro".

    Args:
        names: by the codes. The declaration refuses what is neither.
    """

    def __init__(self, names: Mapping[str, str], **options: Any) -> None:
        super().__init__(widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "spellcheck": "false"}), **options)
        self._codes = {name.casefold(): code for code, name in names.items()}

    def to_python(self, value: Any) -> str:
        """Return the code in capitals, as ISO writes it."""
        typed = str(super().to_python(value) or "")
        return self._codes.get(typed.casefold(), typed.upper() if len(typed) <= CODE_LENGTH else typed)

    def prepare_value(self, value: Any) -> Any:
        """Return what stands for a code as the code."""
        return self.to_python(value) if isinstance(value, str) else value


def currency_cell() -> forms.Field:
    """Return a cell of a row for a currency, which searches among their codes and names."""
    cell = CodeField(CURRENCY_NAMES, label="Currency", required=False)
    cell.references = "currency"  # type: ignore[attr-defined]
    return cell


@field_for.register
def _(value: Currency, shown: Display) -> forms.Field:
    return CodeField(CURRENCY_NAMES)


@field_for.register
def _(value: Country, shown: Display) -> forms.Field:
    return CodeField(COUNTRY_NAMES)


@field_for.register
def _(value: Money, shown: Display) -> forms.Field:
    return money(value, shown)


@field_for.register
def _(value: Worded, shown: Display) -> forms.Field:
    return field_for(value.inner, shown)


@field_for.register
def _(value: EventCount, shown: Display) -> forms.Field:
    return field_for(Integer(least=0, most=MAX_FREE_EVENTS), shown)


@field_for.register
def _(value: ListOf, shown: Display) -> forms.Field:
    return NamesField({"name": text_cell("Name", placeholder=shown.placeholder)}, noun="Name")


def names_of(references: str, label: str) -> Any:
    """Return what makes a field for a list of references to rows of that noun."""
    return lambda value, shown: NamesField({"name": text_cell(label, references=references)}, noun=label)


@field_for.register
def _(value: MapOf, shown: Display) -> forms.Field:
    return KeysField(
        {
            "key": text_cell("Price", references="price_key", placeholder="seats"),
            "quantity": text_cell("Quantity", inputmode="decimal"),
        }
    )


class NamesInLanguages(KeysField):
    """A text in each language of documents in which it differs."""

    def __init__(self, languages: Iterable[str], label: str = "Name", **options: Any) -> None:
        words = {code: LANGUAGE_NAMES.get(code, code) for code in languages}
        cells = {"language": choice_cell("Language", words), "name": text_cell(label)}
        super().__init__(cells, noun="Language", **options)


@field_for.register
def _(value: Names, shown: Display) -> forms.Field:
    return NamesInLanguages(value.languages)


# Phases ----------------------------------------------------------------------------------------------

ENDS: Final = {
    "periods": "after periods",
    "until": "at a time",
    "then": "does not end: the last phase",
    "also": "the phase above: another quantity",
}
PHASE_PRICES: Final = {
    "percent": "percent off",
    "list_prices": "the plan's prices",
    "trial": "free: a trial",
}


class PhasesField(RowsField):
    """Phases, one after the other: how long each lasts, and what changes in it. A further quantity of a phase has its own row."""

    def __init__(self, **options: Any) -> None:
        cells = {
            "ends": choice_cell("It ends", ENDS),
            "intervals": text_cell("Periods", inputmode="numeric"),
            "ends_at": time_cell("At (UTC)"),
            "prices": choice_cell("Prices", PHASE_PRICES, unset="go on"),
            "percent_off": text_cell("Percent off", inputmode="decimal"),
            "plan": text_cell("Plan", references="plan"),
            "key": text_cell("Price", references="price_key", placeholder="seats"),
            "quantity": text_cell("Quantity", inputmode="decimal"),
        }
        super().__init__(cells, noun="Phase", **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        phases: list[dict[str, Any]] = []
        for number, row in enumerate(rows):
            if row.get("ends") == "also" and phases:
                self._add_quantity(phases[-1], number, row, is_further=True)
            else:
                phases.append(self._phase(number, row))
        return phases

    def _phase(self, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        phase: dict[str, Any] = {}
        self._set_length(phase, number, row)
        percent, prices = row.get("percent_off"), row.get("prices") or ("percent" if row.get("percent_off") else "")
        if percent and prices != "percent":
            self.refuse(number, "percent_off", "Leave this empty, or choose “percent off”.")
        if prices == "percent":
            phase["price_override"] = {"percent_off": percent or ""}
        elif prices:
            phase[prices] = True
        if row.get("plan"):
            phase["plan"] = row["plan"]
        self._add_quantity(phase, number, row, is_further=False)
        return phase

    def _set_length(self, phase: dict[str, Any], number: int, row: Mapping[str, Any]) -> None:
        ends = row.get("ends") or ("periods" if row.get("intervals") else "until" if row.get("ends_at") else "")
        needed = {"periods": "intervals", "until": "ends_at"}.get(ends)
        if ends not in ENDS or ends == "also":
            self.refuse(number, "ends", "Choose when the phase ends.")
        elif needed and not row.get(needed):
            self.refuse(number, needed, "This is missing.")
        for name in ("intervals", "ends_at"):
            if row.get(name) and name != needed:
                self.refuse(number, name, "Leave this empty: the phase ends otherwise.")
        if needed == "intervals":
            typed = str(row.get("intervals", ""))
            phase["intervals"] = int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 9 else typed
        elif needed:
            phase["ends_at"] = row.get("ends_at")

    def _add_quantity(self, phase: dict[str, Any], number: int, row: Mapping[str, Any], *, is_further: bool) -> None:
        other = [name for name in row if name not in ("ends", "key", "quantity")]
        if is_further and other:
            self.refuse(number, other[0], "Leave this empty: the phase above has it.")
        if not (row.get("key") or row.get("quantity") or is_further):
            return
        quantities = phase.setdefault("quantities", {})
        if not row.get("key"):
            self.refuse(number, "key", "Name the price that has this quantity.")
        elif row["key"] in quantities:
            self.refuse(number, "key", f"The phase has a quantity of {row['key'][:60]} already.")
        quantities[row.get("key", "")] = row.get("quantity", "")

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        return [row for phase in value for row in self._rows_of_phase(phase)]

    def _rows_of_phase(self, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
        override = phase.get("price_override") or {}
        chosen = next((name for name in ("trial", "list_prices") if phase.get(name)), "percent" if override else "")
        row = {
            "ends": "periods" if phase.get("intervals") else "until" if phase.get("ends_at") else "then",
            "prices": chosen,
            "percent_off": override.get("percent_off"),
            **{name: phase.get(name) for name in ("intervals", "ends_at", "plan")},
        }
        quantities = [{"key": key, "quantity": each} for key, each in (phase.get("quantities") or {}).items()]
        first, *others = quantities or [{}]
        return [row | first, *({"ends": "also"} | each for each in others)]

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        begins = [number for number, row in enumerate(rows) if row.get("ends") != "also" or number == 0]
        if not parts or not parts[0].isdecimal() or int(parts[0]) >= len(begins):
            return None
        first = begins[int(parts[0])]
        end = next((number for number in begins if number > first), len(rows))
        if parts[1:2] == ["quantities"]:
            named = [number for number in range(first, end) if rows[number].get("key", "") == "".join(parts[2:3])]
            return named[0] if named else first, "quantity"
        column = {"list_prices": "prices", "trial": "prices", "price_override": "percent_off"}.get("".join(parts[1:2]))
        return first, column or (parts[1] if parts[1:2] and parts[1] in self.columns else "ends")


@field_for.register
def _(value: PhaseList, shown: Display) -> forms.Field:
    return PhasesField()


# Budgets ---------------------------------------------------------------------------------------------

BUDGET_WINDOWS: Final = {"day": "a day", "week": "a week", "month": "a month", "rolling": "the last hours"}
BUDGET_SCOPES: Final = {
    "holder": "everything",
    "label": "by a label",
    "actor": "by who asks (API key)",
    "reference": "by the reference",
}
BUDGET_MODES: Final = {"hard": "is refused", "soft": "is spent and shown"}


class BudgetsField(RowsField):
    """The budgets of a plan: how much in which window, and whose spending counts together. Parents first."""

    plan_type = DEFAULT_TYPE
    """The credit type of rows that name no other."""

    def __init__(self, **options: Any) -> None:
        cells = {
            "budget": text_cell("Name", placeholder="member"),
            "limit": text_cell("At most", inputmode="decimal"),
            "credit_type": text_cell("Credit type", placeholder="the plan's", references="credit_type"),
            "per_quantity_of": text_cell("For each unit of", placeholder="seats"),
            "window": choice_cell("In", BUDGET_WINDOWS),
            "hours": text_cell("Hours", inputmode="numeric"),
            "by": choice_cell("Counts", BUDGET_SCOPES, unset="everything"),
            "label": text_cell("Label", placeholder="member"),
            "subject": text_cell("Only", placeholder="each"),
            "mode": choice_cell("What is more", BUDGET_MODES, unset="is refused"),
            "parent": text_cell("Within", placeholder="a row above"),
        }
        cells["by"].widget.choices = [("", "everything"), *list(BUDGET_SCOPES.items())[1:]]
        cells["mode"].widget.choices = [("", "is refused"), *list(BUDGET_MODES.items())[1:]]
        super().__init__(cells, noun="Budget", **options)

    def types_in(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the credit type of each row; the plan's if the typed text is no type, which the declaration refuses."""
        typed = [str(row.get("credit_type") or self.plan_type) for row in rows]
        return [each if CREDIT_TYPE.fullmatch(each) else self.plan_type for each in typed]

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        types = self.types_in(rows)
        units = units_of(types)
        return [self._budget(number, row, units[types[number]]) for number, row in enumerate(rows)]

    def _budget(self, number: int, row: Mapping[str, Any], unit: CreditUnit) -> dict[str, Any]:
        budget = {"credit_type": self.plan_type} | dict(row)
        if "limit" in row:
            limit = CreditAmountField(least=0, most=MAX_AMOUNT, label="At most")
            limit.set_unit(unit, "")
            try:
                budget["limit"] = limit.to_python(row["limit"])
            except ValidationError as wrong:
                self.refuse(number, "limit", wrong.messages[0])
        hours = str(row.get("hours", ""))
        if hours.isascii() and hours.isdecimal() and len(hours) < 9:
            budget["hours"] = int(hours)
        return budget

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        units = units_of(budget["credit_type"] for budget in value)
        return [
            {name: each for name, each in budget.items() if (name, each) not in (("by", "holder"), ("mode", "hard"))}
            | {"limit": units[budget["credit_type"]].typed(budget["limit"])}
            for budget in value
        ]


@field_for.register
def _(value: PlanBudgets, shown: Display) -> forms.Field:
    return BudgetsField()


# Tiers -----------------------------------------------------------------------------------------------

COLUMN_TITLES: Final[Mapping[str, str]] = {"up_to": "Up to", "flat_amount": "Fixed amount", "rate": "Percent"}
"""The titles of the columns whose field has another name than people would say."""
MONEY_COLUMNS: Final = ("unit_amount", "flat_amount")
LEAST_ROWS: Final = 2


def used_by(column: str) -> list[str]:
    """Return the models of prices whose tiers have the column."""
    tiers = {name: shape.fields for name, shape in SHAPES.items()}
    values_with_tiers = {name: [each.value for each in fields if isinstance(each.value, Tiers)] for name, fields in tiers.items()}
    return [name for name, values in values_with_tiers.items() if any(column in value.shape.names for value in values)]


class TiersInput(RowsInput):
    """A table of tiers: two rows at first, since one tier alone is a unit price."""

    least_rows = LEAST_ROWS


class TiersField(RowsField):
    """The tiers of a price as they are typed, with money as people write it; the declaration reads the rest."""

    widget_class = TiersInput

    def __init__(self, **options: Any) -> None:
        cells: dict[str, Any] = {}
        for field in shape_of(Tier).fields:
            title = COLUMN_TITLES.get(field.name, pretty_name(field.name))
            cell = price_cell(title) if field.name in MONEY_COLUMNS else text_cell(title, inputmode="decimal")
            cells[field.name] = cell
            cells[field.name].models = used_by(field.name)
        cells["up_to"].widget.attrs["placeholder"] = "no end"
        super().__init__(cells, noun="Tier", **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"up_to": None, **row} for row in rows]

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        return list(value)

    def validate(self, value: Any) -> None:
        """Leave it to the declaration."""


@field_for.register
def _(value: Tiers, shown: Display) -> forms.Field:
    return TiersField()


def lines_widget(placeholder: str) -> Any:
    """Return an input of several lines."""
    return UnfoldAdminTextareaWidget(attrs={"rows": 4, "placeholder": placeholder, "spellcheck": "false"})


# Negotiated amounts ----------------------------------------------------------------------------------

TIER: Final = "tiers"
AMOUNT_WORDS: Final = {
    "unit_amount": "Price",
    TIER: "A tier",
    "rate": "Percent",
    "fixed_amount": "Price of an event",
    "event_minimum": "At least, an event",
    "event_maximum": "At most, an event",
    "minimum": "At least",
    "maximum": "At most",
}
"""What can be negotiated of a price, in words. Buckets cannot: an order over REST names them."""
IN_PERCENT: Final = "rate"


class AmountsField(RowsField):
    """Negotiated amounts: the key of a price, which of its amounts, and the amount. Tiers of a price are rows in their order."""

    def __init__(self, **options: Any) -> None:
        cells = {
            "key": text_cell("Price", references="price_key", placeholder="seats"),
            "what": choice_cell("What", AMOUNT_WORDS),
            "up_to": text_cell("Up to", placeholder="no end", inputmode="decimal"),
            "amount": price_cell("Amount"),
            "rate": text_cell("Percent", inputmode="decimal"),
            "flat_amount": price_cell("Fixed amount"),
        }
        super().__init__(cells, noun="Amount", **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for number, row in enumerate(rows):
            amounts, what = found.setdefault(row.get("key", ""), {}), row.get("what", "")
            if not row.get("key"):
                self.refuse(number, "key", "Name the price.")
            if what not in AMOUNT_WORDS:
                self.refuse(number, "what", "Choose which amount is negotiated.")
            elif what == TIER:
                named = {"up_to": row.get("up_to"), "unit_amount": row.get("amount"), IN_PERCENT: row.get("rate")}
                tier = named | {"flat_amount": row.get("flat_amount")}
                amounts.setdefault("tiers", []).append({name: each for name, each in tier.items() if each or name == "up_to"})
            else:
                self._set(amounts, number, what, row)
        return found

    def _set(self, amounts: dict[str, Any], number: int, what: str, row: Mapping[str, Any]) -> None:
        own = "rate" if what == IN_PERCENT else "amount"
        for name in ("up_to", "amount", "rate", "flat_amount"):
            if row.get(name) and name != own:
                self.refuse(number, name, f"Leave this empty: it is not used by “{AMOUNT_WORDS[what]}”.")
        if not row.get(own):
            self.refuse(number, own, "Type the amount.")
        if what in amounts:
            self.refuse(number, "what", "The price has this amount in a row above.")
        amounts[what] = row.get(own)

    def rows_of(self, value: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for key, amounts in value.items():
            for name, amount in amounts.items():
                tiers = amount if name == "tiers" else []
                rows += [
                    {"key": key, "what": TIER, "amount": tier.get("unit_amount")}
                    | {column: tier.get(column) for column in ("up_to", "rate", "flat_amount")}
                    for tier in tiers
                ]
                if name in AMOUNT_WORDS and not tiers:
                    rows.append({"key": key, "what": name, "rate" if name == IN_PERCENT else "amount": amount})
        return rows

    def place_of(self, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> tuple[int, str] | None:
        key, what, *within = [*parts, "", ""][: max(len(parts), 2)]
        named = [number for number, row in enumerate(rows) if row.get("key", "") == key]
        numbers = [number for number in named if rows[number].get("what") == what]
        if not numbers:
            return (named[0], "key") if named else None
        number = (
            numbers[min(int(within[0]), len(numbers) - 1)] if what == TIER and within and within[0].isdecimal() else numbers[0]
        )
        column = {"unit_amount": "amount"}.get(within[-1], within[-1]) if len(within) > 1 else ""
        return number, column if column in self.columns else ("rate" if what == IN_PERCENT else "amount")


OVERRIDE: Final[Mapping[str, Display]] = {
    "percent_off": Display(at="/price_override/percent_off", label="Percent off", help="Every price that is not named below."),
    "prices": Display(
        at="/price_override/prices",
        value=Text(most=10_000),
        make=lambda value, shown: AmountsField(),
        label="Negotiated amounts",
        help="The key of a price, which of its amounts, and the amount. Each tier of a price has a row.",
    ),
}
"""The fields for negotiated prices."""
