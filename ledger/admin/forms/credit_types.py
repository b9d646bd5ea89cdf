"""Credit types: what each is called, its unit and its decimals, and how pages write amounts of it."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.admin.kit.cells import digits, instant_words
from ledger.admin.kit.columns import Column, NamedColumns
from ledger.models import CreditType
from ledger.rules.texts.credit_units import MAX_SCALE, CreditUnit
from ledger.rules.texts.refusal_texts import AMOUNTS
from ledger.units import unit_in
from ledger.values import CREDIT_TYPE

EXAMPLE = 1_234_567


def fact_writer(unit: CreditUnit) -> Callable[[str, Any], Any]:
    """Write the facts of a refusal: amounts with their decimals, times in the operator's zone, counts and ids as they are."""

    def write(name: str, value: Any) -> Any:
        if name in AMOUNTS:
            return unit.number(value)
        at = parse_datetime(value) if name.endswith("_at") and isinstance(value, str) else None
        return value if at is None else instant_words(at)

    return write


class CreditTypeForm(forms.ModelForm):
    """What a credit type is called, and its decimals."""

    code = forms.CharField(
        label="Credit type",
        max_length=32,
        widget=UnfoldAdminTextInputWidget(),
        help_text="The type as requests name it, such as usd_cents.",
    )

    class Meta:
        model = CreditType
        fields = ("code", "name", "unit", "scale")

    def clean_code(self) -> str:
        """Take what the ledger takes as a credit type."""
        code: str = self.cleaned_data["code"]
        if not CREDIT_TYPE.fullmatch(code):
            raise forms.ValidationError("Use 1 to 32 characters of a-z 0-9 _, as requests name the type.")
        return code

    def clean_scale(self) -> int:
        """Take as many decimals as the database does."""
        scale: int = self.cleaned_data["scale"]
        if not 0 <= scale <= MAX_SCALE:
            raise forms.ValidationError(f"Use 0 to {MAX_SCALE} decimals.")
        return scale


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
        """The code is the row's key: another code is another type."""
        return () if obj is None else ("code",)
