"""Fields of forms, made from the types of values that requests declare; see `ledger.values`.

A field turns the typed text into the request's JSON and does not check it: the declaration reads the JSON, so a form refuses what
the API refuses, in the same words.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import singledispatch
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.forms.utils import pretty_name
from django.utils import timezone
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
)
from unfold.widgets import UnfoldAdminTextInputWidget as TextInput

from ledger.values import Boolean, Choice, Day, Holder, Integer, Number, Text, Time, Value


@dataclass(frozen=True, kw_only=True)
class Display:
    """How a form shows a field of its request.

    Args:
        label: by default the field's name.
        at: the place of the value in the request's JSON, as a pointer; by default the field's name.
        words: the names of choices, in their order on the form; an empty name leaves a choice out.
        unset: the words for no choice; without them, a choice is selected from the start.
        required: by default, fields without an empty default.
        initial: by default, the declaration's default.
        value: the type of a value that is not a field of the request.
        make: makes the field if the type does not determine it.
        refers_to: the noun of the rows among which the field searches, if its name does not say it.
    """

    label: str | None = None
    help: str = ""
    at: str = ""
    words: Mapping[Any, str] = field(default_factory=dict)
    unset: str | None = None
    required: bool | None = None
    initial: Any = None
    placeholder: str = ""
    value: Value | None = None
    make: Callable[[Any, "Display"], forms.Field] | None = None
    refers_to: str = ""


def made(name: str, value: Value, shown: Display, *, required: bool = False, default: Any = None) -> forms.Field:
    """Return the form's field for a value of that type; it shows the limits, and the declaration refuses what exceeds them."""
    found = (shown.make or field_for)(value, shown)
    found.label, found.help_text = shown.label or pretty_name(name), shown.help
    if isinstance(found, UTCField) and "UTC" not in found.label:
        found.label = f"{found.label} (UTC)"
    found.initial = shown.initial if shown.initial is not None or shown.unset is not None else default
    found.required = shown.required if shown.required is not None else required or default not in (None, "")
    found.widget.is_required = found.required
    found.references = shown.refers_to  # type: ignore[attr-defined]
    found.validators = [each for each in found.validators if isinstance(each, ProhibitNullCharactersValidator)]
    return found


@singledispatch
def field_for(value: Value, shown: Display) -> forms.Field:
    """Return an empty form field for values of that type. A module with further types registers them."""
    raise TypeError(f"no form field for {type(value).__name__}")


@field_for.register
def _(value: Text, shown: Display) -> forms.Field:
    return forms.CharField(max_length=value.most, widget=TextInput())


@field_for.register
def _(value: Holder, shown: Display) -> forms.Field:
    return forms.CharField(max_length=value.most, widget=TextInput(attrs={"autocomplete": "off"}))


@field_for.register
def _(value: Choice, shown: Display) -> forms.Field:
    unset = [] if shown.unset is None else [("", shown.unset)]
    ordered = dict.fromkeys(choice for choice in (*shown.words, *value.choices) if choice in value.choices)
    named = [(choice, words) for choice in ordered if (words := shown.words.get(choice, choice))]
    return forms.ChoiceField(choices=[*unset, *named], widget=UnfoldAdminSelectWidget())


@field_for.register
def whole_number(value: Integer, shown: Display) -> forms.Field:
    """A whole number within the bounds of the type."""
    widget = UnfoldAdminIntegerFieldWidget(attrs={"min": value.least, "autocomplete": "off"})
    return forms.IntegerField(min_value=value.least, max_value=value.most, widget=widget)


@field_for.register
def _(value: Number, shown: Display) -> forms.Field:
    widget = UnfoldAdminDecimalFieldWidget(attrs={"autocomplete": "off", "step": "any"})
    return PlainDecimalField(min_value=value.least, max_value=value.most, widget=widget)


@field_for.register
def _(value: Time, shown: Display) -> forms.Field:
    widget = TextInput()
    widget.input_type = "datetime-local"
    return UTCField(widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@field_for.register
def _(value: Day, shown: Display) -> forms.Field:
    widget = TextInput()
    widget.input_type = "date"
    return forms.CharField(widget=widget)


@field_for.register
def _(value: Boolean, shown: Display) -> forms.Field:
    unset = [] if shown.unset is None else [("", shown.unset)]
    words = [("yes", shown.words[True]), ("no", shown.words[False])]
    return YesNoField(choices=[*unset, *words], widget=UnfoldAdminSelectWidget())


class PlainDecimalField(forms.DecimalField):
    """A decimal number in plain notation, without exponent; the form shows it again as typed."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and "e" in value.lower():
            raise ValidationError("Enter a number.")
        return super().to_python(value)


class UTCField(forms.DateTimeField):
    """A time that is typed in UTC, whatever zone the operator's pages use."""

    def to_python(self, value: Any) -> datetime | None:
        """Read it as UTC."""
        with timezone.override(UTC):
            return super().to_python(value)

    def prepare_value(self, value: Any) -> Any:
        """Return it in UTC, in the typed form."""
        with timezone.override(UTC):
            return super().prepare_value(value)


class YesNoField(forms.TypedChoiceField):
    """A choice of two words for true and false."""

    def __init__(self, **options: Any) -> None:
        super().__init__(coerce=lambda value: value == "yes", empty_value=None, **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the choice of a boolean."""
        return ("no", "yes")[value] if isinstance(value, bool) else value


def as_json(value: Any) -> Any:
    """Return the request's JSON for a field's cleaned value."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, datetime) else value


def as_typed(value: Any) -> str:
    """Return the text that the field reads as this value."""
    if value is None:
        return ""
    if isinstance(value, list):
        return json.dumps(value)
    return value.strftime("%Y-%m-%dT%H:%M:%S") if isinstance(value, datetime) else str(value)
