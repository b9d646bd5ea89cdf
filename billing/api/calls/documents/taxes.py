"""The call that sums up the taxes of a month."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import INVOICES, BillingEndpoint
from billing.api.schemas import examples, response_schemas
from billing.rating.values import Ref
from ledger.api.kit.authentication import BILLING_READ
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.records import Record
from ledger.values import Text


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
        "Net and tax by seller, currency, country, category and rate, of the invoices issued in the month less its credit "
        "notes. A document that is voided lowers the month in which it is voided, so a month that is over does not change.",
        tag=INVOICES, scope=BILLING_READ, query=TaxSummaryQuery,
        responses={200: ResponseBody(response_schemas.TaxSummarySerializer, examples.TAX_SUMMARY, "The taxes.")},
    )  # fmt: skip
    def get(self, request: HttpRequest) -> Response:
        query = read_query(TaxSummaryQuery, request)
        rows = reads.tax_summary(date.fromisoformat(f"{query['month']}-01"), seller=query.get("seller"))
        shown = [response_schemas.TaxRowSerializer.body(row) for row in rows]
        return json_response({"month": query["month"], "rows": shown})
