"""A holder's statement of a month as PDF, as the REST API has it."""

from datetime import UTC, date, datetime
from functools import partial

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from ledger import staff_log
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.admin.links import holder_url
from ledger.errors import Invalid
from ledger.statements.statements import statement_file_name, statement_pdf
from ledger.totals.closing import month_before
from ledger.values import CREDIT_TYPE, HOLDER_ID


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Where a statement is; before a holder's page, whose address takes all that follows."""
    view = model_admin.admin_site.admin_view(partial(_page, model_admin))
    return path("holders/<path:holder_id>/statement/", view, name="ledger_statement")


def last_month() -> date:
    """The first day of the month that ended last, in UTC."""
    return month_before(datetime.now(UTC).date().replace(day=1))


def statement_url(holder_id: str, *, month: date | None = None, **wanted: str) -> str:
    """Where the statement of a month is, of the last one by default.

    Args:
        wanted: `type`, the credit type, and `language`.
    """
    query = urlencode({**wanted, "month": f"{month or last_month():%Y-%m}"})
    return f"{reverse('admin:ledger_statement', args=[holder_id])}?{query}"


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest, holder_id: str) -> HttpResponse:
    """Show the statement; or say on the holder's page why there is none."""
    if not request.user.has_perm("ledger.view_entrylisting"):
        raise PermissionDenied
    credit_type = request.GET.get("type", "credits")
    if not (HOLDER_ID.fullmatch(holder_id) and CREDIT_TYPE.fullmatch(credit_type)):
        raise Http404
    asked = request.GET.get("month", "")
    try:
        month = datetime.strptime(asked, "%Y-%m").replace(tzinfo=UTC).date() if asked else last_month()
        content = statement_pdf(holder_id, month, credit_type=credit_type, language=request.GET.get("language", "")[:16] or None)
    except ValueError:
        messages.error(request, f"There is no statement of “{asked[:20]}”: a month is written as 2026-01.")
    except Invalid as invalid:
        messages.error(request, f"There is no statement of {asked[:20]}: {invalid.facts['detail']}.")
    else:
        name = statement_file_name(holder_id, month, credit_type)
        staff_log.record(request, "exported", about=name, details=f"{holder_id}, {credit_type}")
        file = f'inline; filename="{name}"'
        return HttpResponse(
            content, content_type="application/pdf", headers={"Content-Disposition": file, "Cache-Control": "no-store"}
        )
    return HttpResponseRedirect(holder_url(holder_id, type=credit_type))
