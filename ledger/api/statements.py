"""Statements of an account on paper."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from ledger.api.kit.authentication import LEDGER_READ
from ledger.api.kit.endpoint import Endpoint, QueuedRequest
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import HOLDER_PATH, ResponseBody, operation
from ledger.api.kit.writing.rendering import PDF, Response, pdf_response
from ledger.api.request_schemas import EntryQuery
from ledger.statements.statements import statement_file_name, statement_pdf
from ledger.typesetting.languages import LANGUAGES
from ledger.typesetting.typeset import DOCUMENTS
from ledger.values import Choice

MONTH_PATTERN = "2[01][0-9]{2}-(?:0[1-9]|1[0-2])"
MONTH_PATH = OpenApiParameter(
    "month",
    {"type": "string", "pattern": f"^{MONTH_PATTERN}$"},
    OpenApiParameter.PATH,
    description="The month, in UTC.",
    examples=[OpenApiExample("month", "2026-01")],
)


@dataclass(frozen=True, kw_only=True)
class StatementQuery(EntryQuery):
    """Which account, in which language."""

    language: Annotated[
        str | None, Choice([one.code for one in LANGUAGES], "Of words and numbers; default: the customer's, else en.")
    ] = None


class StatementPdf(Endpoint):
    """The statement of an account for a month."""

    in_loop = frozenset({"get"})
    served: ClassVar[str] = PDF

    @operation(
        "printStatement",
        "Print a statement",
        "The month of an account on paper: credits at its start, each entry, credits at its end, and the digest of its last "
        "entry. Once the month is over, the bytes change only with the seller or the customer's language; before, it says "
        "PRELIMINARY. A month with more than 500 entries is summed up by day and kind.",
        tag="History",
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, MONTH_PATH],
        query=StatementQuery,
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The statement as PDF.", media_type=PDF)},
    )
    def get(self, request: HttpRequest, holder: str, month: date) -> QueuedRequest:
        """Print a statement."""
        query = read_query(StatementQuery, request)
        make = partial(statement_pdf, holder, month, **query)
        return QueuedRequest(DOCUMENTS, make, partial(_response, statement_file_name(holder, month, query["credit_type"])))


def _response(file_name: str, content: bytes) -> Response:
    return pdf_response(content, file_name=file_name)
