"""What customers get to see: statements of an account as PDFs, and links to the customer's page."""

from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from ledger import customer_page
from ledger.api.kit.authentication import LEDGER_READ, PAGES_WRITE
from ledger.api.kit.endpoint import Endpoint, QueuedRequest
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import PDF, Response, json_response, pdf_response
from ledger.api.schemas import examples
from ledger.api.schemas.parameters import HOLDER_PATH
from ledger.api.schemas.request_schemas import PAGE_LINK, EntryQuery
from ledger.api.schemas.response_schemas import PageLinkSerializer
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


class PageLinks(Endpoint):
    """Makes links to the page of a holder."""

    in_loop = frozenset({"post"})

    @operation(
        "createPageLink",
        "Make a link to the customer's page",
        "The link shows the holder's balance, expiring credits, history, usage by day, and invoices, and nothing else, to anyone "
        "who has it. The call stores nothing, so it needs no Idempotency-Key; each call makes another link. The holder need not "
        "have credits yet. 404 on a server that does not serve the page.",
        tag="Customer's page",
        scope=PAGES_WRITE,
        parameters=[HOLDER_PATH],
        takes=RequestBody(PAGE_LINK, {"15 minutes, in German": examples.PAGE_LINK_BODY}),
        responses={200: ResponseBody(PageLinkSerializer, examples.PAGE_LINK, "The link.")},
    )
    def post(self, request: HttpRequest, holder: str) -> Response:
        fields = self.body(request, PAGE_LINK)
        if not customer_page.is_served():
            raise NotFound
        made = customer_page.link_of(PAGE_LINK.make(fields | {"holder_id": holder}), request)
        return json_response(PageLinkSerializer.body(made))
