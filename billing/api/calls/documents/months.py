"""Calls about a month for finance: its figures, and the same as a PDF."""

from datetime import date
from functools import partial
from typing import ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes

from billing.api.calls.books import MONTH_PATH
from billing.api.endpoints import BOOKS, BillingEndpoint
from billing.api.schemas import examples, response_schemas
from billing.errors import NotFound
from ledger.api.kit.authentication import BILLING_READ
from ledger.api.kit.endpoint import QueuedRequest
from ledger.api.kit.schema import ResponseBody, operation
from ledger.api.kit.writing.rendering import PDF, Response, json_response, pdf_response
from ledger.errors import DocumentTooLong, Invalid
from ledger.statements.months import month_file_name, month_pdf
from ledger.totals.figures import Month, month_figures
from ledger.totals.months import month_of
from ledger.typesetting.typeset import DOCUMENTS, MAX_ROWS

NO_MONTH = NotFound(resource="month", ref="2026-10")


def _read(month: str) -> Month:
    """Return a month, or raise NotFound."""
    first: date | None = month_of(month)
    try:
        if first is None:
            raise NotFound(resource="month", ref=month)
        return month_figures(first)
    except Invalid as invalid:
        raise NotFound(resource="month", ref=month) from invalid


class OneMonth(BillingEndpoint):
    """The figures of a month."""

    @operation(
        "readMonth", "Read a month for finance",
        "Sales, taxes by country and rate, unpaid invoices with their age, credits, deferred revenue and revenue, recurring "
        "revenue with its movement and cohorts; by currency or credit type. Once the month is final, the response is the same "
        "every time; what is recorded later counts in an open month.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(response_schemas.FinanceMonthSerializer, examples.MONTH, "The month.")},
        problems=[NO_MONTH],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        return json_response(response_schemas.FinanceMonthSerializer.body(_read(month)))


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
        return QueuedRequest(DOCUMENTS, partial(_print, month), _sent)


def _print(month: str) -> tuple[str, bytes]:
    found = _read(month)
    return month_file_name(found.month, "pdf"), month_pdf(found)


def _sent(made: tuple[str, bytes]) -> Response:
    name, content = made
    return pdf_response(content, file_name=name)
