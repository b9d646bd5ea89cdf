"""Fields for values that only orders have (see `billing.rating.values`), and the base of all forms about orders."""

from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from billing.rating.names import Names
from billing.rating.prices.values import MAX_FREE_EVENTS, EventCount, Worded
from billing.rating.values import Currency
from ledger.admin.kit.forms.fields import Shown, field_for
from ledger.admin.kit.forms.idempotent import KeyedForm
from ledger.values import MAX_REASON_CHARACTERS, Integer, ListOf, MapOf

REASON: Final = forms.CharField(
    required=False,
    max_length=MAX_REASON_CHARACTERS,
    widget=UnfoldAdminTextInputWidget(),
    help_text="The staff log records it with your name.",
)


class OrderForm(KeyedForm):
    """A form about orders. The rows of orders have no column for the reason: the staff log keeps it."""

    reason = REASON


class CurrencyField(forms.CharField):
    """The code of a currency, in upper or lower case."""

    def to_python(self, value: Any) -> str:
        """Return it in capitals, as ISO writes it."""
        return str(super().to_python(value) or "").upper()


@field_for.register
def _(value: Currency, shown: Shown) -> forms.Field:
    return CurrencyField(max_length=value.most, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}))


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


class LinesField(forms.CharField):
    """A key and a value on each line, such as "seats 5"."""

    def to_python(self, value: Any) -> Any:
        found: dict[str, str] = {}
        for line in filter(None, (line.strip() for line in str(super().to_python(value) or "").splitlines())):
            parts = line.replace(":", " ").replace("=", " ").split()
            if len(parts) != 2:
                raise ValidationError(f"“{line[:60]}” is not a key and a number, such as “seats 5”.")
            found[parts[0]] = parts[1]
        return found

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the typed form."""
        return "\n".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value


@field_for.register
def _(value: MapOf, shown: Shown) -> forms.Field:
    return LinesField(max_length=10_000, widget=lines_widget(shown.placeholder))


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


def lines_widget(placeholder: str) -> Any:
    """Return an input of several lines."""
    return UnfoldAdminTextareaWidget(attrs={"rows": 4, "placeholder": placeholder, "spellcheck": "false"})
