"""The month-end page: the credits of each type at the start, those that came and went, and the rest with its expiry."""

from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger.admin.kit.cells import digits, number, signed, timestamp
from ledger.admin.kit.columns import Column, table_of
from ledger.admin.kit.pages import ReadOnlyAdmin, guarded
from ledger.errors import Invalid
from ledger.operators import additions, staff_log
from ledger.operators.permissions import VIEW_DAILYTOTAL
from ledger.rules.kinds import LINES
from ledger.rules.texts.credit_units import CreditUnit, plain_unit
from ledger.totals import MonthReport, TypeReport, month_report
from ledger.totals.months import month_after, month_before, month_of
from ledger.units import units_of

TIED = ("documents", "entries")
SUMS = (Column("What", itemgetter(0)), Column("Credits", itemgetter(1)))


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "month-end/", partial(page, model_admin), name="ledger_month_end", permission=VIEW_DAILYTOTAL)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show a month, by default the last ended one with credits; `format=csv` sends it as a file."""
    this_month = datetime.now(UTC).date().replace(day=1)
    month = month_of(request.GET.get("month", "")) if "month" in request.GET else month_before(this_month)
    try:
        if month is None:
            raise Invalid(pointer="/month", rule="not-a-month", detail="a month is written as 2026-01")
        report = month_report(month)
        if "month" not in request.GET and not report.types:
            # Nothing was granted before: show the current month.
            report = month_report(this_month)
    except Invalid as invalid:
        messages.error(request, f"There is no report of “{request.GET.get('month', '')[:20]}”: {invalid.facts['detail']}.")
        if "month" in request.GET:
            return HttpResponseRedirect(reverse("admin:ledger_month_end"))
        report = MonthReport(month_before(this_month), is_closed=False, as_of=None, types=())
    if request.GET.get("format") == "csv":
        staff_log.record(request, "exported", about=f"credits-{report.month:%Y-%m}.csv")
        return _file(report)
    units = units_of(one.credit_type for one in report.types)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"Month-end {report.month:%B %Y}",
        "report": report,
        "is_over": report.as_of is not None and report.month < this_month,
        "as_of": None if report.as_of is None else timestamp(report.as_of),
        "before": f"{month_before(report.month):%Y-%m}",
        "after": f"{month_after(report.month):%Y-%m}" if month_after(report.month) <= this_month else "",
        "csv": f"?month={report.month:%Y-%m}&format=csv",
        "parts": [_part(one, units[one.credit_type]) for one in report.types],
    }
    return TemplateResponse(request, "admin/ledger/home/month_end.html", context)


def _part(one: TypeReport, unit: CreditUnit) -> dict[str, Any]:
    def written(amount: int) -> SafeString:
        return digits(unit.number(amount))

    rows: list[tuple[Any, ...]] = [_strong("Opening", written(one.opening))]
    rows += [
        (line.words, _movement(line.sign * one.movements[name], unit)) for name, line in LINES.items() if one.movements[name]
    ]
    rows += [_strong("Closing", written(one.closing)), ("of it held", written(one.held))]
    if one.expired_unbooked:
        rows += [
            ("of which expired, but not yet booked", written(one.expired_unbooked)),
            _strong("Outstanding", written(one.closing - one.expired_unbooked)),
        ]
    rows += [("Paid for them", digits(additions.money(minor, currency))) for currency, minor in (one.paid or {}).items()]
    rows += [(f"{tie['name'].capitalize()}, by the {of}", written(tie[of])) for tie in one.ties or [] for of in TIED]
    rows += [("Entries", number(one.entries)), ("of which refusals", number(one.refusals))]
    rows += [("of which late, with a time in a closed month", number(one.late_entries))] if one.late_entries else []
    is_named = unit != plain_unit(one.credit_type)
    name = f"{unit.name} ({one.credit_type}), in {unit.unit}" if is_named else one.credit_type
    return {"credit_type": name, "movements": table_of(rows, *SUMS), "outstanding": _outstanding(one, unit)}


def _strong(words: str, written: SafeString) -> tuple[SafeString, SafeString]:
    """A row with the sum of others."""
    return format_html("<strong>{}</strong>", words), format_html("<strong>{}</strong>", written)


def _movement(amount: int, unit: CreditUnit) -> SafeString:
    return signed(amount, unit.signed(amount))


def _outstanding(one: TypeReport, unit: CreditUnit) -> dict[str, Any] | None:
    if one.outstanding is None:
        return None
    left = [{**bucket, "written": digits(unit.number(bucket["amount"]))} for bucket in one.outstanding]
    left += [{"source": "owed on overdrafts", "written": _movement(-one.owed, unit)}] if one.owed else []
    return table_of(
        [*left, {"closes": "Closing", "written": digits(unit.number(one.closing))}],
        ("Expires in", lambda row: (row["expires"] or "never") if "expires" in row else ""),
        ("Source", lambda row: row.get("source", "")),
        ("State", lambda row: "held" if row.get("is_held") else row.get("closes", "")),
        ("Credits", itemgetter("written")),
    )


def _file(report: MonthReport) -> HttpResponse:
    response = HttpResponse(report.as_csv(), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="credits-{report.month:%Y-%m}.csv"'
    return response
