"""Form fields for credits, typed in the unit of their credit type: 12.50 of a type with two decimals is 1,250 for the ledger.

Note [What a form says is what it writes]
    A form converts by the type's row. If somebody changes the row while the form is open, the same text would be another amount.
    So the form carries the units with which it was shown, and refuses text that was typed under another unit.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.models import CreditType
from ledger.staff.kit.form_fields import Display, field_for
from ledger.staff.kit.idempotent_forms import RecordT, RequestForm
from ledger.staff.kit.money_fields import NotOneNumber, decimal_sign, read_typed
from ledger.units import CreditUnit, plain_unit, unit_in, units_of
from ledger.values import CREDIT_TYPE, Amount, Number

DEFAULT_TYPE: Final = "credits"
MAX_DECIMALS: Final = 12
"""The decimals of a price or of credits for a unit of usage, as the REST API takes them."""
MAX_CHARACTERS: Final = 60
MAX_TYPES_NAMED: Final = 200
"""For how many types a page has the units, to show that of the typed one; the server converts all types."""
TYPED: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
EXACT: Final = Context(prec=2 * MAX_CHARACTERS)


class AmountInput(UnfoldAdminTextInputWidget):
    """A text field with the unit beside it. Not a number field: a browser empties a number field with text that it refuses."""

    template_name = "admin/ledger/forms/amount_input.html"
    unit = ""
    type_field = ""
    """The name of the field with the credit type; empty if the type is fixed."""
    is_of_one = False
    """Whether the number is money for one of the unit."""
    currency = ""
    currency_field = ""
    """The name of the field with the currency of that money."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Name the unit also to screen readers."""
        context: dict[str, Any] = super().get_context(name, value, attrs)
        widget = context["widget"]
        if "id" in widget["attrs"]:
            widget["attrs"]["aria-describedby"] = f"{widget['attrs']['id']}_unit"
        widget |= {"unit": self.unit, "type_field": self.type_field, "is_of_one": self.is_of_one}
        widget |= {"currency": self.currency, "currency_field": self.currency_field}
        return context


class CreditNumberField(forms.Field):
    """A number that is typed in the unit of a credit type; its cleaned value is in the smallest unit, exactly.

    An initial number is in the smallest unit; an initial text is shown unchanged.

    Args:
        least, most: in the smallest unit.
    """

    def __init__(self, *, least: Decimal | int, most: Decimal | int, **options: Any) -> None:
        widget = AmountInput(attrs={"inputmode": "decimal", "autocomplete": "off", "spellcheck": "false"})
        super().__init__(widget=widget, **options)
        self._least, self._most = least, most
        self.unit = plain_unit(DEFAULT_TYPE)

    def set_unit(self, unit: CreditUnit, type_field: str) -> None:
        """Use this unit from now on."""
        self.unit = self.widget.unit = unit
        self.widget.type_field = type_field

    def shift(self) -> int:
        """By how many places the decimal point moves to the right towards the smallest unit."""
        return self.unit.scale

    def places(self) -> int:
        """How many decimals can be typed."""
        return self.unit.scale

    def to_python(self, value: Any) -> Any:
        """Return the number in the smallest unit; None if the field is empty."""
        text = str(value or "").strip()
        if not text:
            return None
        if not TYPED.fullmatch(text) or len(text) > MAX_CHARACTERS:
            example = f"1250.{'5'.ljust(self.places(), '0')}" if self.places() else "1250"
            raise ValidationError(f"{self.label}: type digits, with a point before decimals and no commas, such as {example}.")
        decimals = len(text.partition(".")[2])
        if decimals > self.places():
            raise ValidationError(self._too_many(decimals))
        return self._whole(Decimal(text).scaleb(self.shift(), context=EXACT))

    def validate(self, value: Any) -> None:
        """Refuse a number outside of its range."""
        super().validate(value)
        if value is not None and value < self._least:
            raise ValidationError(f"{self.label} must be at least {self.words(self._least)}.")
        if value is not None and value > self._most:
            raise ValidationError(f"{self.label} must be at most {self.words(self._most)}.")

    def prepare_value(self, value: Any) -> Any:
        """Return the value in its typed form."""
        return value if value is None or isinstance(value, str) else self.typed(value)

    def typed(self, value: Decimal | int) -> str:
        """Return a number of the smallest unit in its typed form."""
        exact = Decimal(value).scaleb(-self.shift(), context=EXACT).normalize(EXACT)
        return f"{exact:f}"

    def words(self, value: Decimal | int) -> str:
        """Return a bound of the range, with the unit."""
        return f"{self.typed(value)} {self.unit.unit}"

    def _whole(self, value: Decimal) -> Any:
        return value

    def _too_many(self, decimals: int) -> str:
        has = f"{self.label} has {decimals} decimal{'' if decimals == 1 else 's'}"
        return f"{has}; {self.unit.unit} can have {self.places()} here."


class CreditAmountField(CreditNumberField):
    """An amount of credits: a whole number of the smallest unit."""

    def typed(self, value: Decimal | int) -> str:
        """All decimals of the type."""
        return self.unit.typed(int(value))

    def words(self, value: Decimal | int) -> str:
        return self.unit.amount(int(value))

    def _whole(self, value: Decimal) -> int:
        return int(value)

    def _too_many(self, decimals: int) -> str:
        if not self.unit.scale:
            return f"{self.label} must be a whole number of {self.unit.unit}."
        has = f"{self.label} has {decimals} decimals"
        return f"{has}; an amount of {self.unit.unit} has at most {self.unit.scale}."


class CreditRateField(CreditNumberField):
    """How many credits something costs, perhaps a part of the smallest unit."""

    def places(self) -> int:
        """The decimals of the type, and those of a price."""
        return self.unit.scale + MAX_DECIMALS


class CreditValueField(CreditNumberField):
    """The value of a credit in money: typed for one of the type's unit, stored for its smallest unit."""

    def __init__(self, *, least: Decimal | int, most: Decimal | int) -> None:
        super().__init__(least=least, most=most)
        self.widget.is_of_one = True

    def set_currency(self, currency: str, currency_field: str = "") -> None:
        """Use this currency from now on."""
        self.widget.currency, self.widget.currency_field = currency, currency_field

    def to_python(self, value: Any) -> Any:
        """Return the money for the smallest unit; None if the field is empty."""
        text = str(value or "").strip()
        try:
            plain = f"{read_typed(text, decimals=MAX_DECIMALS, decimal_sign=decimal_sign()):f}" if text else ""
        except NotOneNumber as refused:
            raise ValidationError(f"{self.label}: {refused}.") from None
        return super().to_python(plain)

    def shift(self) -> int:
        """To the left: a cent is worth a hundredth of a dollar."""
        return -self.unit.scale

    def places(self) -> int:
        """As many as give the value of the smallest unit no more decimals than a price has."""
        return MAX_DECIMALS - self.unit.scale

    def words(self, value: Decimal | int) -> str:
        return self.typed(value)


@field_for.register
def _(value: Amount, shown: Display) -> forms.Field:
    return CreditAmountField(least=value.least, most=value.most)


def value_of_a_credit(value: Number, shown: Display) -> forms.Field:
    """Return a field for the money that one credit is worth."""
    assert value.least is not None
    assert value.most is not None
    return CreditValueField(least=value.least, most=value.most)


class CreditAmountsForm(RequestForm[RecordT]):
    """A form whose credits are typed in the unit of their type. See Note [What a form says is what it writes]."""

    is_abstract = True
    shown_in = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._was_shown_in = _read_units(self.data.get("shown_in")) if self.is_bound else {}
        self.set_units()

    def type_field_of(self, name: str) -> str:
        """Return the field with the credit type of this field."""
        return "credit_type"

    def set_units(self) -> None:
        """Give each amount its unit: of the form's type, or of the typed one."""
        types = {name: self._type_of(name) for name, _ in self._amounts()}
        units = units_of([*types.values(), *self.types_in_rows()])
        for name, field in self._amounts():
            field.set_unit(units[types[name]], "" if "credit_type" in self.fixed else self.type_field_of(name))
        stated = json.dumps({unit.credit_type: [unit.unit, unit.scale] for unit in units.values()})
        self.initial["shown_in"] = stated
        if self.is_bound:
            self.data = self.data.copy()  # type: ignore[attr-defined]
            self.data["shown_in"] = stated  # type: ignore[index]

    def types_in_rows(self) -> Sequence[str]:
        """Return the credit types of amounts that are typed in rows, whose fields convert them."""
        return ()

    @property
    def named_units(self) -> dict[str, tuple[str, str]] | None:
        """Return the units of the types that can be typed, plural and singular; None if the type is fixed."""
        if "credit_type" in self.fixed:
            return None
        named = map(unit_in, CreditType.objects.order_by("code")[:MAX_TYPES_NAMED])
        return {unit.credit_type: (unit.unit, unit.singular) for unit in (plain_unit(DEFAULT_TYPE), *named)}

    def clean(self) -> dict[str, Any]:
        """Refuse amounts that were typed under another unit than the current one."""
        cleaned = super().clean() or {}
        for name, field in self._amounts():
            if cleaned.get(name) is not None:
                self.ensure_shown_in(name, field.unit)
        return cleaned

    def ensure_shown_in(self, name: str, unit: CreditUnit) -> None:
        """Refuse what a field has if it was typed under another unit of the type than this one."""
        if self._was_shown_in.get(unit.credit_type, [unit.unit, unit.scale]) != [unit.unit, unit.scale]:
            now = f"{unit.unit} with {unit.scale} decimal{'' if unit.scale == 1 else 's'}"
            self.add_error(name, f"{unit.credit_type} is now shown in {now}. Check {self.fields[name].label}.")

    def hidden_values(self) -> dict[str, Any]:
        """Return the hidden values with the units of the amounts."""
        return super().hidden_values() | {"shown_in": self.data["shown_in"]}

    def _amounts(self) -> list[tuple[str, CreditNumberField]]:
        return [(name, field) for name, field in self.fields.items() if isinstance(field, CreditNumberField)]

    def _type_of(self, name: str) -> str:
        """Return the fixed or typed type; the form's default if the typed text is not a type, which its own field refuses."""
        fixed = self.fixed.get("credit_type")
        typed = fixed if fixed is not None else str(self[self.type_field_of(name)].value() or "").strip()
        return typed if CREDIT_TYPE.fullmatch(typed) else DEFAULT_TYPE


def _read_units(stated: str | None) -> Mapping[str, Any]:
    """Return the units with which the form was shown; empty if they are missing or unreadable."""
    try:
        decoded = json.loads(stated or "{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
