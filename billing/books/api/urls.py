"""The paths of the calls about the books."""

from django.urls import URLPattern, path

from billing.api.paths import MONTH_PATH
from billing.books.api import calls, months
from ledger.typesetting.typeset import IS_INSTALLED

urlpatterns: list[URLPattern] = [
    path("tax-summary", calls.TaxSummary.as_view()),
    path(f"books/{MONTH_PATH}", calls.OneBook.as_view()),
    path("deferred-revenue", calls.DeferredRevenue.as_view()),
    path(f"months/{MONTH_PATH}", months.OneMonth.as_view()),
    path(f"months/{MONTH_PATH}/rows", months.MonthRows.as_view()),
    path(f"months/{MONTH_PATH}.csv", months.MonthCsv.as_view()),
]
if IS_INSTALLED:
    urlpatterns.append(path(f"months/{MONTH_PATH}.pdf", months.MonthPdf.as_view()))
