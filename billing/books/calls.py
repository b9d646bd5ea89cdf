"""Calls about the books: a month of deferred revenue, deferred revenue at an instant, and the taxes of a month."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone

from billing.api.endpoints import BOOKS, INVOICES, BillingEndpoint
from billing.api.paths import MONTH_PATH
from billing.books import examples, responses
from billing.books.roll_forward import book_of, deferred_at
from billing.books.tax_summary import tax_summary
from billing.errors import NotFound
from billing.rating.values import Ref
from ledger.errors import Invalid
from ledger.json_values import time_text
from ledger.months import month_of
from ledger.records import Record
from ledger.rest.kit.authentication import BILLING_READ
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import ResponseBody, operation
from ledger.values import Text, Time


@dataclass(frozen=True, kw_only=True)
class DeferredQuery(Record):
    """The instant of deferred revenue."""

    at: Annotated[datetime | None, Time("Now by default.")] = None


class OneBook(BillingEndpoint):
    """The books of a month."""

    @operation(
        "readBook", "Read the books of a month",
        "Deferred revenue from opening to closing, by credit type and currency: what was sold, recognised, expired and revoked. "
        "Once the month is closed, the response is the same every time; what appears later is in an open month, under `late`.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(responses.BookSerializer, examples.BOOK, "The month.")},
        problems=[NotFound(resource="month", ref="2026-10")],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        first = month_of(month)
        try:
            if first is None:
                raise NotFound(resource="month", ref=month)
            return json_response(responses.BookSerializer.body(book_of(first)))
        except Invalid as invalid:
            raise NotFound(resource="month", ref=month) from invalid


class DeferredRevenue(BillingEndpoint):
    """Deferred revenue at an instant."""

    @operation(
        "readDeferredRevenue", "Read deferred revenue",
        "What unused credits were sold for, by credit type, currency and month of expiry, at any instant that has passed. It "
        "reads the last entry of each account before the instant.",
        tag=BOOKS, scope=BILLING_READ, query=DeferredQuery,
        responses={200: ResponseBody(responses.DeferredRevenueSerializer, examples.DEFERRED, "At that instant.")},
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        at = read_query(DeferredQuery, request).get("at") or timezone.now()
        rows = [responses.DeferredSerializer.body(each) for each in deferred_at(at)]
        return json_response({"at": time_text(at), "results": rows})


@dataclass(frozen=True, kw_only=True)
class TaxSummaryQuery(Record):
    """The month of a summary, and its filter."""

    month: Annotated[
        str,
        Text(
            "The month, by the days of issue, such as 2026-02.", most=7, pattern="2[01][0-9]{2}-(?:0[1-9]|1[0-2])",
            rule="a month such as 2026-02",
        ),
    ]  # fmt: skip
    seller: Annotated[str | None, Ref("Only documents of this seller.")] = None


class TaxSummary(BillingEndpoint):
    """The taxes of a month."""

    @operation(
        "readTaxSummary", "Read the taxes of a month",
        "Net and tax by seller, currency, country, tax and rate, of the invoices issued in the month less its credit "
        "notes. A document that is voided lowers the month in which it is voided, so a month that is over does not change.",
        tag=INVOICES, scope=BILLING_READ, query=TaxSummaryQuery,
        responses={200: ResponseBody(responses.TaxSummarySerializer, examples.TAX_SUMMARY, "The taxes.")},
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        query = read_query(TaxSummaryQuery, request)
        rows = tax_summary(date.fromisoformat(f"{query['month']}-01"), seller=query.get("seller"))
        bodies = [responses.TaxRowSerializer.body(row) for row in rows]
        return json_response({"month": query["month"], "rows": bodies})
