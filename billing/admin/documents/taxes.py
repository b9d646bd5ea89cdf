"""The page of the taxes of a month, and its file."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse

from billing import reads
from billing.admin.cells import money_column, plain
from billing.permissions import VIEW_INVOICE
from ledger.admin.kit.columns import Column, table_of
from ledger.admin.kit.csv_files import csv_response
from ledger.admin.kit.pages import ReadOnlyAdmin, guarded
from ledger.operators import staff_log

COLUMNS = (
    Column("Seller", "seller"),
    Column("Country", "country"),
    Column("Currency", "currency"),
    Column("Category", "category"),
    Column("Rate (%)", lambda row: plain(row.rate)),
    money_column("Net", "base_minor"),
    money_column("Tax", "tax_minor"),
)
EARLIEST = date(2000, 1, 1)


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "tax-summary/", partial(page, model_admin), name="billing_tax_summary", permission=VIEW_INVOICE)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show a month, by default the last one that is over; `format=csv` sends it as a file."""
    last = datetime.now(UTC).date().replace(day=1) - timedelta(days=1)
    month = _read_month(request.GET["month"]) if "month" in request.GET else last
    if month is None:
        messages.error(request, f"“{request.GET['month'][:20]}” is not a month: a month is written as 2026-01.")
        month = last
    rows = reads.tax_summary(month)
    if request.GET.get("format") == "csv":
        staff_log.record(request, "exported", about=f"taxes-{month:%Y-%m}.csv")
        return csv_response(f"taxes-{month:%Y-%m}.csv", [column.in_file for column in COLUMNS], [rows])
    own, start = reverse("admin:billing_tax_summary"), month.replace(day=1)
    before, after = start - timedelta(days=1), (start + timedelta(days=31)).replace(day=1)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"Taxes of {month:%B %Y}",
        "tabs": [(f"{own}?{urlencode({'month': f'{month:%Y-%m}', 'format': 'csv'})}", "CSV file", False)],
        "tabs_label": "Files",
        "rows_table": table_of(rows, *COLUMNS),
        "first_words": f"‹ {before:%B %Y}",
        "first_link": f"{own}?month={before:%Y-%m}",
        "next_words": f"{after:%B %Y}",
        "next_link": f"{own}?month={after:%Y-%m}",
        "back": reverse("admin:billing_invoice_changelist"),
        "back_words": "Invoices",
    }
    return TemplateResponse(request, "admin/billing/rows.html", context)


def _read_month(text: str) -> date | None:
    try:
        month = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        return None
    return month if EARLIEST <= month < date(2200, 1, 1) else None
