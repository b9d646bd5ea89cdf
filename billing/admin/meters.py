"""Pages of meters, and the form that writes one, with a trial of its expression. A change is a new version."""

import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.cells import plain
from billing.admin.order_forms.fields import REASON, OrderForm, lines_widget
from billing.admin.order_forms.once import OrderPage
from billing.metering.expressions import NotComputable, parse_expression
from billing.metering.meters import NewMeter, create_meter
from billing.models import Meter
from billing.permissions import ADD_METER
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import text
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.rows import KeysField, text_cell
from ledger.values import InvalidValue, Metadata

VERSIONS_SHOWN = 50
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)


class PropertiesField(KeysField):
    """The properties of an event: a row has a name and a value. A value that is a number is one."""

    def __init__(self, **options: Any) -> None:
        cells = {"name": text_cell("Property", placeholder="input_tokens"), "value": text_cell("Value", placeholder="8")}
        super().__init__(cells, noun="Property", **options)

    def value_of(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        for number, row in enumerate(rows):
            if not row.get("name"):
                self.refuse(number, "name", "Type the name of the property.")
        properties = {name: _number_in(value) for name, value in super().value_of(rows).items()}
        kind = Metadata()
        try:
            kind.check(kind.read(properties))
        except InvalidValue as error:
            raise ValidationError(error.detail) from None
        return properties


def _number_in(value: str) -> Any:
    if not NUMBER.fullmatch(value):
        return value
    return float(value) if "." in value else int(value)


class MeterForm(OrderForm, RequestForm[NewMeter]):
    """A meter or its next version, and properties with which the operator tries it."""

    stake = NoStake("It moves no money: it says how usage is measured.")
    declared = NewMeter
    shows = {
        "code": Display(label="Ref", help="As events and prices name it; an existing meter gets its next version."),
        "expression": Display(
            required=False,
            help="Computes the value of an event from its properties, with + - * / ( ), round, ceil, floor, min and max. Empty: "
            "events send their value.",
            make=lambda value, shown: forms.CharField(
                max_length=value.most, widget=lines_widget("round(properties.input_tokens * 1.5 + properties.output_tokens, 2)")
            ),
        ),
        "properties": PropertiesField(
            label="Try it with these properties",
            required=False,
            help_text="The next page shows the value of an event that has them.",
        ),
        "reason": REASON,
    }

    def body(self) -> dict[str, Any]:
        """Return the request's JSON; an empty expression is one too."""
        return {"expression": ""} | super().body()


def create_meter_view(model_admin: ReadOnlyAdmin, request: HttpRequest, **initial: Any) -> HttpResponse:
    """Show the form of a meter, then its effect and the trial, then write it."""
    return OrderPage(
        form=MeterForm,
        collection="meters",
        pointer="/ref",
        rows=Meter,
        write=lambda form: create_meter.execute(form.request),
        describe=lambda meter, form: DryRun(
            sentences=[
                *sentences_of(meter),
                *_trial(meter, form.cleaned_data["properties"]),
                "Recorded events keep their value. Saved versions cannot be edited; create a new one.",
            ]
        ),
        done=lambda meter, form: (f"Meter {meter}", meter.expression or "events send their value"),
        initial=initial,
        title=f"New version of {initial['code']}" if initial else "New meter",
        button="Write the meter",
        explanation="It computes the value of the events that are recorded from then on.",
        back=reverse("admin:billing_meter_changelist"),
    ).view(model_admin, request)


def sentences_of(meter: Meter) -> list[str]:
    """Return what a version does, in sentences."""
    if not meter.expression:
        return [f"Events of {meter.code} send their value."]
    needed = parse_expression(meter.expression).properties
    return [
        f"The value of an event of {meter.code} is {meter.expression}.",
        *([f"An event without one of the properties {', '.join(needed)} is refused."] if needed else []),
    ]


def _trial(meter: Meter, typed: dict[str, Any] | None) -> list[str]:
    if not typed or not meter.expression:
        return []
    expression = parse_expression(meter.expression)
    try:
        quantity = expression.quantity_of(typed)
    except NotComputable as wrong:
        return [f"An event with these properties is refused: {wrong}."]
    used = ", ".join(f"{name} {typed[name]}" for name in expression.properties)
    return [f"With these properties{f' ({used})' if used else ''}: {plain(quantity)}."]


@admin.register(Meter)
class MeterAdmin(ReadOnlyAdmin):
    """One row per version of a meter."""

    create_view = create_meter_view
    meter = Column("Meter", "code")
    expression_cell = columns.code("Expression", "expression")
    created = columns.instant("Created", "created_at")

    list_display = ("code", "version", "expression_cell", "created")
    list_filter = (text("code", title="meter"),)
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a meter's ref"
    csv_columns = ("meter", "version", "expression", "created")
    starts = "A meter with an expression computes the value of usage events from their properties. Other meters need no row."
    actions_detail = ("new_version",)
    fields = (("code", "version", "created"),)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; the versions of a meter by their index."""
        values = cl.values()
        rows = cl.queryset.filter(code=values["code"]) if "code" in values else cl.queryset
        return FilteredRows(rows=rows, fits=Q()).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The meter in sentences, among its versions."""
        versions = Meter.objects.filter(code=row.code).order_by("-version")[:VERSIONS_SHOWN]
        link = ("Version", lambda row: row_link(Meter, row.pk, f"v{row.version}"))
        table = table_of(versions, link, MeterAdmin.expression_cell, MeterAdmin.created)
        return {"title": f"Meter {row}", "sentences": sentences_of(row), "parts": [("Versions", table)]}

    @operation("New version", icon="add", permission=ADD_METER, url_path="new-version")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Write the next version of the meter; the form has the expression of this one."""
        row = self.row_of(request, object_id)
        return create_meter_view(self, request, code=row.code, expression=row.expression)
