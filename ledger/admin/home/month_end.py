"""The month-end page: what there was of each credit type, what came and went, what is left and when it expires."""

from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger import operator_pages, staff_log
from ledger.admin.kit.cells import digits, number, signed, table, timestamp
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.errors import Invalid
from ledger.rules.kinds import LINES
from ledger.rules.texts.credit_units import CreditUnit, plain_unit
from ledger.totals import MonthReport, TypeReport, month_report
from ledger.totals.closing import month_after, month_before
from ledger.units import units_of

TIED = ("documents", "entries")


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Where the page is."""
    return path("month-end/", model_admin.admin_site.admin_view(partial(page, model_admin)), name="ledger_month_end")


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show a month, the last one with credits that is over unless another is asked for; `format=csv` gives it as a file."""
    if not request.user.has_perm("ledger.view_dailytotal"):
        raise PermissionDenied
    this_month = datetime.now(UTC).date().replace(day=1)
    month = _asked(request.GET.get("month", "")) if "month" in request.GET else month_before(this_month)
    try:
        if month is None:
            raise Invalid(pointer="/month", rule="not-a-month", detail="a month is written as 2026-01")
        report = month_report(month)
        if "month" not in request.GET and not report.types:
            # Nothing was granted before: show what has begun.
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
            ("of it expired and not booked yet", written(one.expired_unbooked)),
            _strong("Outstanding", written(one.closing - one.expired_unbooked)),
        ]
    rows += [("Paid for them", digits(operator_pages.money(minor, currency))) for currency, minor in (one.paid or {}).items()]
    rows += [(f"{tie['name'].capitalize()}, by the {of}", written(tie[of])) for tie in one.ties or [] for of in TIED]
    rows += [("Entries", number(one.entries)), ("of them refusals", number(one.refusals))]
    rows += [("of them late, with a time in a closed month", number(one.late_entries))] if one.late_entries else []
    is_named = unit != plain_unit(one.credit_type)
    name = f"{unit.name} ({one.credit_type}), in {unit.unit}" if is_named else one.credit_type
    return {"credit_type": name, "movements": table(["What", "Credits"], rows), "outstanding": _outstanding(one, unit)}


def _strong(words: str, written: SafeString) -> tuple[SafeString, SafeString]:
    """A row that the others add up to."""
    return format_html("<strong>{}</strong>", words), format_html("<strong>{}</strong>", written)


def _movement(amount: int, unit: CreditUnit) -> SafeString:
    return signed(amount, unit.signed(amount))


def _outstanding(one: TypeReport, unit: CreditUnit) -> dict[str, Any] | None:
    if one.outstanding is None:
        return None
    rows = [
        (
            bucket["expires"] or "never",
            bucket["source"],
            "held" if bucket["is_held"] else "",
            digits(unit.number(bucket["amount"])),
        )
        for bucket in one.outstanding
    ]
    rows += [("", "owed on overdrafts", "", _movement(-one.owed, unit))] if one.owed else []
    return table(["Expires in", "Source", "State", "Credits"], [*rows, ("", "", "Closing", digits(unit.number(one.closing)))])


def _file(report: MonthReport) -> HttpResponse:
    response = HttpResponse(report.as_csv(), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="credits-{report.month:%Y-%m}.csv"'
    return response


def _asked(text: str) -> date | None:
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        return None
