"""The paths of the calls about the books."""

from django.urls import URLPattern, path

from billing.books import api
from billing.books.months import api as months
from ledger.typesetting.typeset import IS_INSTALLED

urlpatterns: list[URLPattern] = [
    path("tax-summary", api.TaxSummary.as_view()),
    path("books/<book_month:month>", api.OneBook.as_view()),
    path("deferred-revenue", api.DeferredRevenue.as_view()),
    path("months/<book_month:month>", months.OneMonth.as_view()),
    path("months/<book_month:month>/rows", months.MonthRows.as_view()),
    path("months/<book_month:month>.csv", months.MonthCsv.as_view()),
]
if IS_INSTALLED:
    urlpatterns.append(path("months/<book_month:month>.pdf", months.MonthPdf.as_view()))
