"""Documents as PDF. A separate thread makes them, one at a time in each process."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes

from billing.api.endpoints import CREDIT_NOTE_PATH, INVOICE_PATH, INVOICES, NO_CREDIT_NOTE, NO_INVOICE, BillingEndpoint
from billing.documents.printing.printed import PrintedDocument, credit_note_pdf, invoice_pdf
from billing.errors import SellerMissing
from ledger.api.kit.authentication import BILLING_READ
from ledger.api.kit.endpoint import QueuedRequest
from ledger.api.kit.schema import ResponseBody, operation
from ledger.api.kit.writing.rendering import PDF, Response, pdf_response
from ledger.errors import DocumentTooLong
from ledger.typesetting.typeset import DOCUMENTS, MAX_ROWS

PROBLEMS = (SellerMissing(), DocumentTooLong(rows=3_000, limit=MAX_ROWS))


class _Pdf(BillingEndpoint):
    in_loop = frozenset({"get"})
    served: ClassVar[str] = PDF


class InvoicePdf(_Pdf):
    """An invoice on paper."""

    @operation(
        "printInvoice", "Print an invoice",
        "As it was issued, in the customer's language (`en`, `de`), with the same bytes every time; a draft and a void invoice "
        "say so across each page. PDF/A-3; one in euro has Factur-X (EN 16931) inside, where both sides' data suffice.",
        tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The invoice as PDF.", media_type=PDF)},
        problems=[NO_INVOICE, *PROBLEMS],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> QueuedRequest:
        """Print an invoice."""
        return _queued(partial(invoice_pdf, invoice_id))


class CreditNotePdf(_Pdf):
    """A credit note on paper."""

    @operation(
        "printCreditNote", "Print a credit note",
        "As it was issued. Only credit notes on request are documents: 404 for one that was carried.",
        tag=INVOICES, scope=BILLING_READ, parameters=[CREDIT_NOTE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The credit note as PDF.", media_type=PDF)},
        problems=[NO_CREDIT_NOTE, *PROBLEMS],
    )  # fmt: skip
    def get(self, request: HttpRequest, credit_note_id: int) -> QueuedRequest:
        """Print a credit note."""
        return _queued(partial(credit_note_pdf, credit_note_id))


def _queued(make: Callable[[], PrintedDocument]) -> QueuedRequest:
    return QueuedRequest(DOCUMENTS, make, _answer)


def _answer(printed: PrintedDocument) -> Response:
    return pdf_response(printed.content, file_name=printed.file_name)
