"""Fields of forms about orders: they accept the same values as the REST API, and refuse others in its words."""

import re
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from billing.rating.limits import MAX_MONEY, zones
from billing.rating.money import MINOR_DIGITS
from ledger.admin.kit.idempotent_forms import KeyedForm
from ledger.admin.kit.pages import MAX_REASON_CHARACTERS
from ledger.values import HOLDER_ID

DECIMAL_PLACES: Final = 12
CREDIT_TYPE: Final = r"[a-z0-9_]{1,32}"


class OrderForm(KeyedForm):
    """The fields of every form about orders. Rows of orders have no column for the reason: the staff log keeps it."""

    reason = forms.CharField(
        required=False,
        max_length=MAX_REASON_CHARACTERS,
        widget=UnfoldAdminTextInputWidget(),
        help_text="The staff log keeps it with your name.",
    )


def _pattern(pattern: str, message: str) -> RegexValidator:
    return RegexValidator(re.compile(rf"\A(?:{pattern})\Z", re.ASCII), message)


def ref_field(*, label: str, required: bool = True, help_text: str = "", **options: Any) -> forms.CharField:
    """A name: 1-64 of letters, digits and `. _ : @ -`."""
    return forms.CharField(
        label=label,
        required=required,
        help_text=help_text,
        max_length=64,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        validators=[_pattern(HOLDER_ID.pattern, "Use 1 to 64 letters, digits and . _ : @ -, without spaces.")],
        **options,
    )


def credit_type_field(*, label: str = "Credit type", required: bool = False, **options: Any) -> forms.CharField:
    """What is counted."""
    return forms.CharField(
        label=label,
        required=required,
        max_length=32,
        widget=UnfoldAdminTextInputWidget(),
        validators=[_pattern(CREDIT_TYPE, "Use 1 to 32 characters of a-z 0-9 _.")],
        **options,
    )


class CurrencyField(forms.CharField):
    """An ISO 4217 code with 0, 2 or 3 decimals."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=3, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}), **options)

    def to_python(self, value: Any) -> str:
        """In capitals, as ISO writes it."""
        return str(super().to_python(value) or "").upper()

    def validate(self, value: str) -> None:
        super().validate(value)
        if value and value not in MINOR_DIGITS:
            raise ValidationError("This must be an active ISO 4217 code such as EUR.")


class ZoneField(forms.CharField):
    """A time zone of the IANA database."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=64, widget=UnfoldAdminTextInputWidget(), **options)

    def validate(self, value: str) -> None:
        super().validate(value)
        if value and value not in zones():
            raise ValidationError("This must be a zone of the IANA database such as Europe/Berlin.")


class PlainDecimalField(forms.DecimalField):
    """A decimal number as people type it, without exponent; the form shows it again as typed."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and "e" in value.lower():
            raise ValidationError("Enter a number.")
        return super().to_python(value)


def decimal_field(
    *,
    label: str,
    required: bool = False,
    help_text: str = "",
    most: Decimal = MAX_MONEY,
    least: Decimal = Decimal(0),
    **options: Any,
) -> PlainDecimalField:
    """Money in major units, a rate or a number of units."""
    return PlainDecimalField(
        label=label,
        required=required,
        help_text=help_text,
        min_value=least,
        max_value=most,
        decimal_places=DECIMAL_PLACES,
        max_digits=38,
        widget=UnfoldAdminDecimalFieldWidget(attrs={"autocomplete": "off", "step": "any"}),
        **options,
    )


def choice_field(
    *, label: str, choices: list[tuple[str, str]], required: bool = True, help_text: str = "", **options: Any
) -> forms.ChoiceField:
    """One of a few."""
    return forms.ChoiceField(
        label=label, choices=choices, required=required, help_text=help_text, widget=UnfoldAdminSelectWidget(), **options
    )


def lines_field(*, label: str, help_text: str, placeholder: str = "", **options: Any) -> forms.CharField:
    """Several lines of text, one thing each."""
    widget = UnfoldAdminTextareaWidget(attrs={"rows": 4, "placeholder": placeholder, "spellcheck": "false"})
    return forms.CharField(label=label, required=False, help_text=help_text, max_length=10_000, widget=widget, **options)


def check_field(*, label: str, help_text: str = "") -> forms.BooleanField:
    """Yes or no."""
    return forms.BooleanField(label=label, required=False, help_text=help_text, widget=UnfoldBooleanWidget())
