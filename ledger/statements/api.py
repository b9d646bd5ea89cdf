"""The call that prints a statement, and its path."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, ClassVar

from django.http import HttpRequest
from django.urls import URLPattern, path, register_converter
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from ledger.rest import paths  # noqa: F401 - registers the converters
from ledger.rest.kit.authentication import LEDGER_READ
from ledger.rest.kit.endpoint import Endpoint, QueuedRequest
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import PDF, Response, pdf_response
from ledger.rest.kit.schema import ResponseBody, operation
from ledger.rest.schemas.parameters import HOLDER_PATH
from ledger.rest.schemas.request_schemas import EntryQuery
from ledger.statements.statements import statement_file_name, statement_pdf
from ledger.typesetting.languages import LANGUAGES
from ledger.typesetting.typeset import DOCUMENTS, IS_INSTALLED
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
    """The query of a statement."""

    language: Annotated[
        str | None,
        Choice([one.code for one in LANGUAGES], "The language of words and numbers; by default the customer's, otherwise en."),
    ] = None


class StatementPdf(Endpoint):
    """Prints the statement of an account for a month."""

    in_loop = frozenset({"get"})
    served: ClassVar[str] = PDF

    @operation(
        "printStatement",
        "Print a statement",
        "The statement of an account for a month: credits at its start, each entry, credits at its end, and the digest of "
        "its last entry. Once the month is over, the bytes change only with the seller or the customer's language; "
        "until then, each page says PRELIMINARY. The statement sums up more than 500 entries by day and kind.",
        tag="History",
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, MONTH_PATH],
        query=StatementQuery,
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The statement as PDF.", media_type=PDF)},
    )
    def get(self, request: HttpRequest, holder: str, month: date) -> QueuedRequest:
        query = read_query(StatementQuery, request)
        make = partial(statement_pdf, holder, month, **query)
        return QueuedRequest(DOCUMENTS, make, partial(_response, statement_file_name(holder, month, query["credit_type"])))


def _response(file_name: str, content: bytes) -> Response:
    return pdf_response(content, file_name=file_name)


class MonthConverter:
    """A month in a path."""

    regex = MONTH_PATTERN

    def to_python(self, value: str) -> date:
        """Return its first day."""
        return date.fromisoformat(f"{value}-01")

    def to_url(self, value: date) -> str:
        """Return the month for a path."""
        return f"{value:%Y-%m}"


register_converter(MonthConverter, "month")

urlpatterns: list[URLPattern] = [path("holders/<holder:holder>/statements/<month:month>.pdf", StatementPdf.as_view())]
if not IS_INSTALLED:
    urlpatterns = []
