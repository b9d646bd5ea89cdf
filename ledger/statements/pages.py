"""A holder's statement of a month as PDF, the same as over REST."""

from datetime import UTC, date, datetime
from functools import partial

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ledger.errors import Invalid
from ledger.months import month_before
from ledger.operators import staff_log
from ledger.operators.permissions import VIEW_ENTRYLISTING
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded
from ledger.staff.links import holder_url
from ledger.statements.statements import statement_file_name, statement_pdf
from ledger.typesetting.typeset import IS_INSTALLED, NOT_INSTALLED
from ledger.values import CREDIT_TYPE, HOLDER_ID


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """The path of a statement; it comes before the holder's page, whose path takes everything that follows."""
    view, route = partial(_page, model_admin), "holders/<path:holder_id>/statement/"
    return guarded(model_admin, route, view, name="ledger_statement", permission=VIEW_ENTRYLISTING)


def last_month() -> date:
    """Return the first day of the last month that has ended, in UTC."""
    return month_before(datetime.now(UTC).date().replace(day=1))


def statement_url(holder_id: str, *, month: date | None = None, **options: str) -> str:
    """Return the address of the statement of a month, by default the last one.

    Args:
        options: `type`, the credit type, and `language`.
    """
    query = urlencode({**options, "month": f"{month or last_month():%Y-%m}"})
    return f"{reverse('admin:ledger_statement', args=[holder_id])}?{query}"


def form(holder_id: str, credit_type: str) -> SafeString:
    """Return the form that opens the statement of a month."""
    address = reverse("admin:ledger_statement", args=[holder_id])
    context = {"address": address, "credit_type": credit_type, "month": f"{last_month():%Y-%m}"}
    return render_to_string("admin/ledger/statements/form.html", context)


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest, holder_id: str) -> HttpResponse:
    """Show the statement, or say on the holder's page why it cannot be made."""
    credit_type = request.GET.get("type", "credits")
    if not (HOLDER_ID.fullmatch(holder_id) and CREDIT_TYPE.fullmatch(credit_type)):
        raise Http404
    given = request.GET.get("month", "")
    if not IS_INSTALLED:
        messages.error(request, NOT_INSTALLED)
        return HttpResponseRedirect(holder_url(holder_id, type=credit_type))
    try:
        month = datetime.strptime(given, "%Y-%m").replace(tzinfo=UTC).date() if given else last_month()
        content = statement_pdf(holder_id, month, credit_type=credit_type, language=request.GET.get("language", "")[:16] or None)
    except ValueError:
        messages.error(request, f"There is no statement of “{given[:20]}”: a month is written as 2026-01.")
    except Invalid as invalid:
        messages.error(request, f"There is no statement of {given[:20]}: {invalid.facts['detail']}.")
    else:
        name = statement_file_name(holder_id, month, credit_type)
        staff_log.record(request, "exported", about=name, details=f"{holder_id}, {credit_type}")
        file = f'inline; filename="{name}"'
        return HttpResponse(
            content, content_type="application/pdf", headers={"Content-Disposition": file, "Cache-Control": "no-store"}
        )
    return HttpResponseRedirect(holder_url(holder_id, type=credit_type))
