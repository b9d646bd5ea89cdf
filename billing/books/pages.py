"""The journal of a closed month as a file; the figures are on the page of the month."""

from functools import partial

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse

from billing.books import journal
from billing.books.journal import AccountMap
from billing.books.roll_forward import book_of
from billing.permissions import VIEW_INVOICE
from ledger.errors import Invalid
from ledger.months import month_of
from ledger.operators import staff_log
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the file."""
    return guarded(model_admin, "journal/", partial(_send, model_admin), name="billing_journal", permission=VIEW_INVOICE)


def _send(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Send the journal of a month with the accounts that are there by default; or say on the month's page why there is none."""
    given = request.GET.get("month", "")
    try:
        month = month_of(given)
        if month is None:
            raise Invalid(pointer="/month", rule="not-a-month", detail="a month is written as 2026-01")
        content = journal.as_csv(book_of(month), AccountMap())
    except Invalid as invalid:
        messages.error(request, f"There is no journal of “{given[:20]}”: {invalid.facts['detail']}.")
        return HttpResponseRedirect(reverse("admin:ledger_month_end"))
    name = f"journal-{month:%Y-%m}.csv"
    staff_log.record(request, "exported", about=name)
    file = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="text/csv; charset=utf-8", headers=file)
