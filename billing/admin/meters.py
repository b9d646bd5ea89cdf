"""Pages of meters, and the form that writes one, with a trial of its expression. A change is a new version."""

import json
import re
from typing import Any, NoReturn

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
from ledger.staff.kit.form_fields import Shown
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.values import MAX_METADATA_BYTES, InvalidValue, Metadata

VERSIONS_SHOWN = 50
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)


class PropertiesField(forms.CharField):
    """The properties of an event: a name and a value on each line, or an object as an event has it."""

    def clean(self, value: Any) -> str:
        """Return the properties as the text of an object, checked; empty without properties."""
        typed = str(super().clean(value) or "").strip()
        if typed and not typed.startswith(("{", "[")):
            typed = json.dumps(dict(map(self._property, filter(str.strip, typed.splitlines()))))
        kind = Metadata()
        if typed:
            try:
                kind.check(kind.read(json.loads(typed, parse_constant=_refuse)))
            except InvalidValue as error:
                raise ValidationError(error.detail) from None
            except (ValueError, RecursionError):
                raise ValidationError("This must have a name and a value on each line, such as input_tokens = 8.") from None
        return typed

    def _property(self, line: str) -> tuple[str, Any]:
        name, sign, value = (part.strip() for part in line.partition("="))
        if not (name and sign):
            raise ValidationError(f"“{line.strip()[:60]}” is not a name and a value, such as input_tokens = 8.")
        return name, (float(value) if "." in value else int(value)) if NUMBER.fullmatch(value) else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class MeterForm(OrderForm, RequestForm[NewMeter]):
    """A meter or its next version, and properties with which the operator tries it."""

    stake = NoStake("It moves no money: it says how usage is measured.")
    declared = NewMeter
    shows = {
        "code": Shown(label="Ref", help="As events and prices name it; an existing meter gets its next version."),
        "expression": Shown(
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
            max_length=MAX_METADATA_BYTES,
            help_text="A name and a value on each line. The next page shows the value of an event that has them.",
            widget=lines_widget("input_tokens = 8\noutput_tokens = 15"),
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


def _trial(meter: Meter, properties: str) -> list[str]:
    if not properties or not meter.expression:
        return []
    expression, typed = parse_expression(meter.expression), json.loads(properties)
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
