"""The page of a month for finance, its files, and the rows that each of its numbers is the sum of."""

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ledger.errors import DocumentTooLong, Invalid
from ledger.months import BEGINNING, month_after, month_before, month_of
from ledger.operators import staff_log
from ledger.staff.kit.cells import day_words, digits, link, timestamp
from ledger.staff.kit.csv_files import csv_response
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded
from ledger.totals.figures import (
    Figure,
    FigureAmount,
    FigureLink,
    FigureQuantity,
    FigureRow,
    FigureSection,
    Month,
    Reference,
    Rows,
    rows_link,
)
from ledger.totals.month_figures import month_figures, rows_of
from ledger.totals.month_pdf import month_file_name, month_pdf
from ledger.totals.permissions import VIEW_DAILYTOTAL
from ledger.typesetting.typeset import IS_INSTALLED, NOT_INSTALLED
from ledger.units import CreditUnit

MOST_BESIDE: Final = 3
"""Columns of a section that has another one beside it."""
MOST_SHOWN: Final = 200
"""Rows on a page; the file has all of them."""


def urls(model_admin: ReadOnlyAdmin) -> list[URLPattern]:
    """Return the addresses of the page and of the rows."""
    return [
        guarded(model_admin, "month-end/", partial(page, model_admin), name="ledger_month_end", permission=VIEW_DAILYTOTAL),
        guarded(
            model_admin, "month-end/rows/", partial(rows_page, model_admin), name="ledger_month_rows", permission=VIEW_DAILYTOTAL
        ),
    ]


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show a month, by default the last ended one with figures; `format` csv or pdf sends it as a file."""
    this_month = datetime.now(UTC).date().replace(day=1)
    given = request.GET.get("month")
    try:
        figures = _read(request, this_month, given)
    except Invalid as invalid:
        if given is not None:
            messages.error(request, f"There is no report of “{given[:20]}”: {invalid.facts['detail']}.")
            return HttpResponseRedirect(reverse("admin:ledger_month_end"))
        figures = Month(month_before(this_month), is_final=False, as_of=BEGINNING, sections=())
    form = request.GET.get("format", "")
    if form in FILES and (sent := FILES[form](request, figures)) is not None:
        return sent
    own = reverse("admin:ledger_month_end")
    before, after = month_before(figures.month), month_after(figures.month)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"Month: {figures.month:%B %Y}",
        "month": figures,
        "is_over": figures.month < this_month,
        "as_of": None if figures.as_of == BEGINNING else timestamp(figures.as_of),
        "before": (f"{own}?month={before:%Y-%m}", f"{before:%B %Y}"),
        "after": (f"{own}?month={after:%Y-%m}", f"{after:%B %Y}") if after <= this_month else None,
        "files": _files(figures),
        "parts": [_part(figures.month, section) for section in figures.sections],
    }
    return TemplateResponse(request, "admin/ledger/totals/month_end.html", context)


def _read(request: HttpRequest, this_month: date, given: str | None) -> Month:
    month = month_before(this_month) if given is None else month_of(given)
    if month is None:
        raise Invalid(pointer="/month", rule="not-a-month", detail="a month is written as 2026-01")
    found = month_figures(month, may=request.user.has_perm)
    # Nothing was there before: show the current month.
    return found if found.sections or given is not None else month_figures(this_month, may=request.user.has_perm)


def _files(found: Month) -> list[tuple[str, str]]:
    own = f"{reverse('admin:ledger_month_end')}?month={found.month:%Y-%m}"
    added = [(words, _url(target)) for section in found.sections for words, target in section.files]
    return [("PDF", f"{own}&format=pdf"), ("CSV", f"{own}&format=csv"), *added]


def _csv(request: HttpRequest, found: Month) -> HttpResponse:
    name = month_file_name(found.month, "csv")
    staff_log.record(request, "exported", about=name)
    file = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(found.as_csv(), content_type="text/csv; charset=utf-8", headers=file)


def _pdf(request: HttpRequest, found: Month) -> HttpResponse | None:
    """Send the PDF; None if it cannot be made, with a message."""
    if not IS_INSTALLED:
        messages.error(request, NOT_INSTALLED)
        return None
    try:
        content = month_pdf(found)
    except DocumentTooLong as error:
        messages.error(request, f"{error.title}: {error.facts['rows']} rows, at most {error.facts['limit']}")
        return None
    name = month_file_name(found.month, "pdf")
    staff_log.record(request, "exported", about=name)
    file = {"Content-Disposition": f'inline; filename="{name}"', "Cache-Control": "no-store"}
    return HttpResponse(content, content_type="application/pdf", headers=file)


FILES: Final = {"csv": _csv, "pdf": _pdf}


# A section -------------------------------------------------------------------------------------------


def _part(month: date, section: FigureSection) -> dict[str, Any]:
    return {
        "key": section.key,
        "title": section.title,
        "note": section.note,
        "first": section.first,
        "columns": [column.title for column in section.columns],
        "is_wide": len(section.columns) > MOST_BESIDE,
        "rows": [_row(month, section, figure) for figure in section.figures if figure.is_shown],
    }


def _row(month: date, section: FigureSection, figure: Figure) -> dict[str, Any]:
    cells = [
        (column.title, _cell(amount, rows_link(month, section.key, figure.key, column.key)))
        for column, amount in zip(section.columns, figure.amounts, strict=True)
    ]
    return {"title": figure.title, "definition": figure.definition, "is_sum": figure.is_sum, "cells": cells}


def _cell(amount: FigureAmount | None, rows: FigureLink) -> SafeString | str:
    if amount is None:
        return ""
    written = digits(amount.text)
    return link(_url(rows), written) if amount.is_sum and amount.value else written


def _url(target: FigureLink) -> str:
    address = reverse(f"admin:{target.page}", args=[target.key] if target.key else [])
    return f"{address}?{urlencode(target.query)}" if target.query else address


# Rows ------------------------------------------------------------------------------------------------


def rows_page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show the rows of a figure and their sum; `format=csv` sends all of them. Without a figure, go to the month."""
    if not request.GET.get("figure"):
        return HttpResponseRedirect(reverse("admin:ledger_month_end"))
    month = month_of(request.GET.get("month", ""))
    keys = [request.GET.get(name, "") for name in ("section", "figure", "column")]
    try:
        rows = None if month is None or "\x00" in "".join(keys) else _rows(request, month, keys)
    except Invalid as invalid:
        raise Http404 from invalid
    if rows is None or month is None:
        raise Http404
    if request.GET.get("format") == "csv":
        name = f"{'-'.join([f'{month:%Y-%m}', *keys]).replace('/', '-')}.csv"
        staff_log.record(request, "exported", about=name)
        return csv_response(name, _file_columns(rows), [rows.rows])
    shown = rows.rows[:MOST_SHOWN]
    rest = len(rows.rows) - len(shown)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"{rows.title}, {month:%B %Y}",
        "found": rows,
        "total": digits(rows.unit.number(rows.total)),
        "rest": f"{rest:,}" if rest > 0 else "",
        "shown": len(shown),
        "rows": [_shown_row(rows, row) for row in shown],
        "back": (f"{reverse('admin:ledger_month_end')}?month={month:%Y-%m}", f"{month:%B %Y}"),
        "file": f"?{urlencode({**request.GET.dict(), 'format': 'csv'})}",
    }
    return TemplateResponse(request, "admin/ledger/totals/month_rows.html", context)


def _rows(request: HttpRequest, month: date, keys: list[str]) -> Rows | None:
    section, figure, column = keys
    return rows_of(month, section, figure, column, may=request.user.has_perm)


def _shown_row(found: Rows, row: FigureRow) -> list[tuple[str, Any]]:
    written = [*map(_show_value, row.cells), digits(found.unit.number(row.amount))]
    return list(zip(found.headings, written, strict=True))


def _show_value(value: Any) -> Any:
    if isinstance(value, Reference):
        return link(_url(value.link), value.text)
    if isinstance(value, FigureQuantity):
        return digits(value.unit.number(value.amount))
    return day_words(value) if isinstance(value, date) else value


def _file_columns(found: Rows) -> list[tuple[str, Any]]:
    *headings, of_amount = found.headings
    columns = [(heading, partial(_in_file, place)) for place, heading in enumerate(headings)]
    return [*columns, (of_amount, partial(_amount_in_file, found.unit))]


def _in_file(place: int, row: FigureRow) -> Any:
    value = row.cells[place]
    if isinstance(value, FigureQuantity):
        return value.unit.decimal(value.amount)
    return value.text if isinstance(value, Reference) else value


def _amount_in_file(unit: CreditUnit, row: FigureRow) -> Decimal:
    return unit.decimal(row.amount)
