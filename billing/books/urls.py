"""The paths of the calls about the books."""

from django.urls import URLPattern, path

from billing.api.paths import MONTH_PATH
from billing.books import calls, month_calls
from ledger.typesetting.typeset import IS_INSTALLED

urlpatterns: list[URLPattern] = [
    path("tax-summary", calls.TaxSummary.as_view()),
    path(f"books/{MONTH_PATH}", calls.OneBook.as_view()),
    path("deferred-revenue", calls.DeferredRevenue.as_view()),
    path(f"months/{MONTH_PATH}", month_calls.OneMonth.as_view()),
    path(f"months/{MONTH_PATH}/rows", month_calls.MonthRows.as_view()),
    path(f"months/{MONTH_PATH}.csv", month_calls.MonthCsv.as_view()),
]
if IS_INSTALLED:
    urlpatterns.append(path(f"months/{MONTH_PATH}.pdf", month_calls.MonthPdf.as_view()))
