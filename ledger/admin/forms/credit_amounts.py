"""Form fields for credits, typed in the unit of their credit type: 12.50 of a type with two decimals is 1,250 to the ledger.

Note [What a form says is what it writes]
    A form converts by the type's row. Somebody may change the row while the form is open, and the same text would be another
    amount. So the form carries the units that it was shown with, and refuses what was typed under another unit.
"""

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.admin.kit.idempotent_forms import KeyedForm
from ledger.models import CreditType
from ledger.units import CreditUnit, plain_unit, unit_in, units_of
from ledger.values import CREDIT_TYPE, MAX_AMOUNT

DEFAULT_TYPE: Final = "credits"
MAX_DECIMALS: Final = 12
"""The decimals of a price or of credits for a unit of usage, as the REST API takes them."""
MAX_CHARACTERS: Final = 60
MAX_TYPES_NAMED: Final = 200
"""How many types a page knows the units of, to show the one that is typed; the others are converted as well."""
TYPED: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
EXACT: Final = Context(prec=2 * MAX_CHARACTERS)


class AmountInput(UnfoldAdminTextInputWidget):
    """A text field with the unit beside it. Not a number field: a browser empties that where it does not like what is typed."""

    template_name = "admin/ledger/forms/amount_input.html"
    unit = ""
    type_field = ""
    """The name of the field that says which credit type it is; empty where the type is fixed."""
    is_of_one = False
    """Whether the number is for one of the unit."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Name the unit to screen readers as well."""
        context: dict[str, Any] = super().get_context(name, value, attrs)
        widget = context["widget"]
        if "id" in widget["attrs"]:
            widget["attrs"]["aria-describedby"] = f"{widget['attrs']['id']}_unit"
        widget |= {"unit": self.unit, "type_field": self.type_field, "is_of_one": self.is_of_one}
        return context


class CreditNumberField(forms.Field):
    """A number that is typed in the unit of a credit type; its cleaned value is in the smallest unit, exactly.

    An initial value that is a number is in the smallest unit; a text is shown as it is.

    Args:
        least, most: in the smallest unit.
    """

    def __init__(self, *, least: Decimal | int, most: Decimal | int, **options: Any) -> None:
        widget = AmountInput(attrs={"inputmode": "decimal", "autocomplete": "off", "spellcheck": "false"})
        super().__init__(widget=widget, **options)
        self._least, self._most = least, most
        self.unit = plain_unit(DEFAULT_TYPE)

    def set_unit(self, unit: CreditUnit, type_field: str) -> None:
        """Convert and show in this unit."""
        self.unit = self.widget.unit = unit
        self.widget.type_field = type_field

    def shift(self) -> int:
        """By how many places the decimal point moves to the right on the way to the smallest unit."""
        return self.unit.scale

    def places(self) -> int:
        """How many decimals can be typed."""
        return self.unit.scale

    def to_python(self, value: Any) -> Any:
        """The number in the smallest unit; None where the field is empty."""
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
        """Hold the number to its range."""
        super().validate(value)
        if value is not None and value < self._least:
            raise ValidationError(f"{self.label} must be at least {self.words(self._least)}.")
        if value is not None and value > self._most:
            raise ValidationError(f"{self.label} must be at most {self.words(self._most)}.")

    def prepare_value(self, value: Any) -> Any:
        """As it is typed."""
        return value if value is None or isinstance(value, str) else self.typed(value)

    def typed(self, value: Decimal | int) -> str:
        """A number of the smallest unit as it is typed."""
        exact = Decimal(value).scaleb(-self.shift(), context=EXACT).normalize(EXACT)
        return f"{exact:f}"

    def words(self, value: Decimal | int) -> str:
        """A bound of the range, with the unit."""
        return f"{self.typed(value)} {self.unit.unit}"

    def _whole(self, value: Decimal) -> Any:
        return value

    def _too_many(self, decimals: int) -> str:
        has = f"{self.label} has {decimals} decimal{'' if decimals == 1 else 's'}"
        return f"{has}; {self.unit.unit} can have {self.places()} here."


class CreditAmountField(CreditNumberField):
    """An amount of credits: a whole number of the smallest unit."""

    def __init__(self, *, label: str = "Amount", least: int = 1, most: int = MAX_AMOUNT, **options: Any) -> None:
        super().__init__(label=label, least=least, most=most, **options)

    def typed(self, value: Decimal | int) -> str:
        """With all decimals of the type."""
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
    """How many credits something costs; it may be a part of the smallest unit."""

    def places(self) -> int:
        """Those of the type, and those of a price."""
        return self.unit.scale + MAX_DECIMALS


class CreditValueField(CreditNumberField):
    """What a credit is worth, in money: of the type's unit as it is typed, of its smallest unit as it is stored."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.widget.is_of_one = True

    def shift(self) -> int:
        """To the left: a cent is worth a hundredth of a dollar."""
        return -self.unit.scale

    def places(self) -> int:
        """As many as leave the value of the smallest unit with no more than those of a price."""
        return MAX_DECIMALS - self.unit.scale

    def words(self, value: Decimal | int) -> str:
        return self.typed(value)


class CreditAmountsForm(KeyedForm):
    """A form whose credits are typed in the unit of their type. See Note [What a form says is what it writes]."""

    shown_in = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._was_shown_in = _read_units(self.data.get("shown_in")) if self.is_bound else {}
        self.set_units()

    def type_field_of(self, name: str) -> str:
        """The field that says which credit type this field is in."""
        return "credit_type"

    def set_units(self) -> None:
        """Have each amount know its unit: of the type that the form is about, or that was typed in it."""
        types = {name: self._type_of(name) for name, field in self.fields.items() if isinstance(field, CreditNumberField)}
        units = units_of(types.values())
        for name, credit_type in types.items():
            self._amount(name).set_unit(units[credit_type], "" if "credit_type" in self.fixed else self.type_field_of(name))
        stated = json.dumps({unit.credit_type: [unit.unit, unit.scale] for unit in units.values()})
        self.initial["shown_in"] = stated
        if self.is_bound:
            self.data = self.data.copy()  # type: ignore[attr-defined]
            self.data["shown_in"] = stated  # type: ignore[index]

    @property
    def named_units(self) -> dict[str, tuple[str, str]] | None:
        """The units of the types that somebody may type, plural and singular; None where the type is fixed."""
        if "credit_type" in self.fixed:
            return None
        named = map(unit_in, CreditType.objects.order_by("code")[:MAX_TYPES_NAMED])
        return {unit.credit_type: (unit.unit, unit.singular) for unit in (plain_unit(DEFAULT_TYPE), *named)}

    def clean(self) -> dict[str, Any]:
        """Refuse amounts that were typed under another unit than they would be read in."""
        asked = super().clean() or {}
        asked["shown_in"] = ""
        for name, field in self.fields.items():
            if not isinstance(field, CreditNumberField) or asked.get(name) is None:
                continue
            unit = field.unit
            if self._was_shown_in.get(unit.credit_type, [unit.unit, unit.scale]) != [unit.unit, unit.scale]:
                now = f"{unit.unit} with {unit.scale} decimal{'' if unit.scale == 1 else 's'}"
                self.add_error(name, f"{unit.credit_type} is now shown in {now}. Check {field.label}.")
        return asked

    def hidden_values(self) -> dict[str, Any]:
        """Amounts as they are typed, and the units in which they are."""
        values = super().hidden_values()
        shown = {name: self._amount(name).prepare_value(values[name]) for name in values if self._is_amount(name)}
        return values | shown | {"shown_in": self.data["shown_in"]}

    def _is_amount(self, name: str) -> bool:
        return isinstance(self.fields[name], CreditNumberField)

    def _amount(self, name: str) -> CreditNumberField:
        field = self.fields[name]
        assert isinstance(field, CreditNumberField)
        return field

    def _type_of(self, name: str) -> str:
        """The type as it is known or typed; that of the form's default where it is no type, which its own field refuses."""
        fixed = self.fixed.get("credit_type")
        typed = fixed if fixed is not None else str(self[self.type_field_of(name)].value() or "").strip()
        return typed if CREDIT_TYPE.fullmatch(typed) else DEFAULT_TYPE


def _read_units(stated: str | None) -> Mapping[str, Any]:
    """What the form said of units; nothing where it says nothing that can be read."""
    try:
        found = json.loads(stated or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
