"""Calls about the books: a month of deferred revenue, and deferred revenue at an instant."""

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from billing.api.endpoints import BOOKS, BillingEndpoint
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.books.roll_forward import book_of, deferred_at
from billing.errors import NotFound
from ledger.api.kit.authentication import BILLING_READ
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response, time_text
from ledger.errors import Invalid
from ledger.months import month_of

MONTH_PATH = OpenApiParameter(
    "month",
    {"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"},
    OpenApiParameter.PATH,
    description="A month (UTC).",
    examples=[OpenApiExample("month", "2026-10")],
)


class OneBook(BillingEndpoint):
    """The books of a month."""

    @operation(
        "readBook", "Read the books of a month",
        "Deferred revenue from opening to closing, by credit type and currency: what was sold, recognised, expired and revoked. "
        "Once the month is closed, the response is the same every time; what appears later is in an open month, under `late`.",
        tag=BOOKS, scope=BILLING_READ, parameters=[MONTH_PATH],
        responses={200: ResponseBody(response_schemas.BookSerializer, examples.BOOK, "The month.")},
        problems=[NotFound(resource="month", ref="2026-10")],
    )  # fmt: skip
    def get(self, request: HttpRequest, month: str) -> Response:
        first = month_of(month)
        try:
            if first is None:
                raise NotFound(resource="month", ref=month)
            return json_response(response_schemas.BookSerializer.body(book_of(first)))
        except Invalid as invalid:
            raise NotFound(resource="month", ref=month) from invalid


class DeferredRevenue(BillingEndpoint):
    """Deferred revenue at an instant."""

    @operation(
        "readDeferredRevenue", "Read deferred revenue",
        "What unused credits were sold for, by credit type, currency and month of expiry, at any instant that has passed. It "
        "reads the last entry of each account before the instant.",
        tag=BOOKS, scope=BILLING_READ, query=request_schemas.DeferredQuery,
        responses={200: ResponseBody(response_schemas.DeferredRevenueSerializer, examples.DEFERRED, "At that instant.")},
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        at = read_query(request_schemas.DeferredQuery, request).get("at") or timezone.now()
        rows = [response_schemas.DeferredSerializer.body(each) for each in deferred_at(at)]
        return json_response({"at": time_text(at), "results": rows})
