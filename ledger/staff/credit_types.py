"""Credit types: their names, units and decimals, and how pages write amounts of them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from ledger import values
from ledger.errors import LedgerError
from ledger.models import CreditType
from ledger.rules.credit_units import MAX_SCALE, CreditUnit
from ledger.staff.kit.cells import digits, instant_words
from ledger.staff.kit.columns import Column, NamedColumns
from ledger.staff.kit.form_fields import Display, made
from ledger.units import unit_in
from ledger.values import Credits, Time, annotations_of

EXAMPLE = 1_234_567


def fact_writer(error_class: type[LedgerError], unit: CreditUnit) -> Callable[[str, Any], Any]:
    """Return a function that writes the facts of an error: amounts with decimals, times in the operator's zone, counts, ids."""
    declared = annotations_of(error_class)

    def write(name: str, value: Any) -> Any:
        match declared[name].value if name in declared else None:
            case Credits():
                return unit.number(value)
            case Time():
                return instant_words(datetime.fromisoformat(value))
        return value

    return write


DECLARED: Mapping[str, values.Value] = {"code": values.CreditType(), "scale": values.Integer(least=0, most=MAX_SCALE)}


class CreditTypeForm(forms.ModelForm):
    """The name of a credit type, its unit and its decimals."""

    class Meta:
        model = CreditType
        fields = ("code", "name", "unit", "scale")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in DECLARED.keys() & self.fields.keys():
            shown = Display(label=str(self.fields[name].label), help=str(self.fields[name].help_text))
            self.fields[name] = made(name, DECLARED[name], shown, required=True)

    def clean(self) -> dict[str, Any]:
        """Refuse what the ledger refuses, in the same words."""
        for name in DECLARED.keys() & self.cleaned_data.keys():
            try:
                DECLARED[name].check(self.cleaned_data[name])
            except values.InvalidValue as invalid:
                self.add_error(name, invalid.detail)
        return self.cleaned_data


@admin.register(CreditType)
class CreditTypeAdmin(NamedColumns):
    """How credit types are shown. Nothing that the ledger counts or decides depends on it."""

    example = Column("Shown as", lambda row: digits(f"{EXAMPLE:,} is {unit_in(row).amount(EXAMPLE)}"))

    form = CreditTypeForm
    list_display = ("code", "name", "unit", "scale", "example")
    fields = ("code", "name", "unit", "scale")
    show_facets = admin.ShowFacets.NEVER
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the code as read-only for an existing row: it is the row's key."""
        return () if obj is None else ("code",)
