"""Calls about a month for finance: its figures, the same as CSV and PDF, and the rows that a figure is the sum of."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes

from billing.api.endpoints import BOOKS, BillingEndpoint
from billing.api.paths import MONTH_PATH
from billing.books import examples, responses
from billing.errors import NotFound
from ledger.errors import DocumentTooLong, Invalid
from ledger.months import month_of
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import BILLING_READ
from ledger.rest.kit.endpoint import QueuedRequest
from ledger.rest.kit.queries import ListQuery, read_query
from ledger.rest.kit.rendering import CSV, PDF, Response, csv_response, json_response, pdf_response
from ledger.rest.kit.schema import ResponseBody, operation
from ledger.totals.figures import Month, Rows
from ledger.totals.month_figures import month_figures, rows_of
from ledger.totals.month_pdf import month_file_name, month_pdf
from ledger.typesetting.typeset import DOCUMENTS, MAX_ROWS
from ledger.values import Text

NO_MONTH = NotFound(resource="month", ref="2026-10")
NO_FIGURE = NotFound(resource="figure", ref="sales/all/EUR/net")


@dataclass(frozen=True, kw_only=True)
class MonthRowsQuery(ListQuery):
    """The figure of a month whose rows are listed."""

    section: Annotated[str, Text("The section of the figure.", least=1, most=64)]
    figure: Annotated[str, Text("The key of the figure.", least=1, most=200)]
    column: Annotated[str, Text("The key of the column.", least=1, most=64)]


def _read(month: str) -> Month:
    """Return a month, or raise NotFound."""
    first: date | None = month_of(month)
    try:
        if first is None:
            raise NotFound(resource="month", ref=month)
        return month_figures(first)
    except Invalid as invalid:
        raise NotFound(resource="month", ref=month) from invalid


def _rows(month: str, *, section: str, figure: str, column: str) -> Rows:
    """Return the rows of a figure, or raise NotFound."""
    first = month_of(month)
    try:
        rows = None if first is None else rows_of(first, section, figure, column)
    except Invalid as invalid:
        raise NotFound(resource="month", ref=month) from invalid
    if rows is None:
        raise NotFound(resource="figure", ref=f"{section}/{figure}/{column}")
    return rows


class OneMonth(BillingEndpoint):
    """The figures of a month."""

    @operation(
        "readMonth", "Read a month for finance",
        "Sales, taxes by country and rate, unpaid invoices with their age, credits, deferred revenue and revenue, recurring "
        "revenue with its movement and cohorts; by currency or credit type. Once the month is final, the response is the same "
        "every time; what is recorded later counts in an open month.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(responses.FinanceMonthSerializer, examples.MONTH, "The month.")},
        problems=[NO_MONTH],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        return json_response(responses.FinanceMonthSerializer.body(_read(month)))


class MonthCsv(BillingEndpoint):
    """The figures of a month as a table."""

    served: ClassVar[str] = CSV

    @operation(
        "saveMonth", "Save a month for finance",
        "The figures of `GET /v1/months/{month}` as CSV (RFC 4180, UTF-8), a row for each; text that looks like a formula has an "
        "apostrophe before it. Once the month is final, the bytes are the same every time.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(OpenApiTypes.STR, examples.MONTH_CSV, "The month as CSV.", media_type=CSV)},
        problems=[NO_MONTH],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        figures = _read(month)
        return csv_response(figures.as_csv(), file_name=month_file_name(figures.month, "csv"))


class MonthRows(BillingEndpoint):
    """The rows of a figure of a month."""

    @operation(
        "listMonthRows", "List the rows of a figure",
        "The documents, customers, holders, days or months that a figure of a month is the sum of. The figure is named by "
        "`section`, `figure` and `column`, as `GET /v1/months/{month}` has them. `total` is the figure. 404 for a rate in "
        "percent, which is no sum. A figure of 0 may have no rows.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH], query=MonthRowsQuery,
        responses={200: ResponseBody(responses.MonthRowsSerializer, examples.MONTH_ROWS, "A page of the rows.")},
        problems=[NO_FIGURE],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        query = read_query(MonthRowsQuery, request)
        page = cursors.requested_page(request, query)
        figures = _rows(month, **query)
        body = page.response_body(
            figures.page(page.rows_wanted, **page.ascending()),
            keyset=lambda row: row.key,
            body=partial(responses.month_row_body, figures.headings),
        )
        return json_response({"title": figures.title, "total": str(figures.total), **body})


class MonthPdf(BillingEndpoint):
    """The figures of a month on paper."""

    in_loop = frozenset({"get"})
    served: ClassVar[str] = PDF

    @operation(
        "printMonth", "Print a month for finance",
        "The figures of `GET /v1/months/{month}` as PDF. Once the month is final, its bytes change only with the letterhead of "
        "the seller and the names of credit types; until then, each page says PRELIMINARY.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The month as PDF.", media_type=PDF)},
        problems=[NO_MONTH, DocumentTooLong(rows=3_000, limit=MAX_ROWS)],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> QueuedRequest:
        return QueuedRequest(DOCUMENTS, partial(_print, month), _send_pdf)


def _print(month: str) -> tuple[str, bytes]:
    figures = _read(month)
    return month_file_name(figures.month, "pdf"), month_pdf(figures)


def _send_pdf(file: tuple[str, bytes]) -> Response:
    name, content = file
    return pdf_response(content, file_name=name)
