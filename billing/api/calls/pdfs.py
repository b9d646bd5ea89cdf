"""Documents as PDFs and e-invoices. A separate thread makes them, one at a time in each process."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes

from billing.api.endpoints import INVOICES, BillingEndpoint
from billing.api.paths import CREDIT_NOTE_PATH, INVOICE_PATH
from billing.documents.printing import PrintedDocument, credit_note_pdf, credit_note_xml, invoice_pdf, invoice_xml
from billing.errors import EInvoiceMissing, SellerMissing
from ledger.errors import DocumentTooLong
from ledger.rest.kit.authentication import BILLING_READ
from ledger.rest.kit.endpoint import QueuedRequest
from ledger.rest.kit.rendering import PDF, XML, Response, pdf_response, xml_response
from ledger.rest.kit.schema import ResponseBody, operation
from ledger.typesetting.typeset import DOCUMENTS, MAX_ROWS

PROBLEMS = (SellerMissing(), DocumentTooLong(rows=3_000, limit=MAX_ROWS))


class _Pdf(BillingEndpoint):
    in_loop = frozenset({"get"})
    served: ClassVar[str] = PDF


class InvoicePdf(_Pdf):
    """An invoice as a PDF."""

    @operation(
        "printInvoice", "Print an invoice",
        "The invoice as issued, in the customer's language (`en`, `de`), with the same bytes every time; a draft and a void one "
        "say so across each page. PDF/A-3; in euro with Factur-X (EN 16931) inside, if the data of both sides suffice.",
        tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The invoice as PDF.", media_type=PDF)},
        problems=[INVOICE_PATH.missing, *PROBLEMS],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> QueuedRequest:
        return _queue_pdf(partial(invoice_pdf, invoice_id))


class CreditNotePdf(_Pdf):
    """A credit note as a PDF."""

    @operation(
        "printCreditNote", "Print a credit note",
        "The credit note as issued. Only credit notes on request are documents: 404 for a carried credit note.",
        tag=INVOICES, scope=BILLING_READ, parameters=[CREDIT_NOTE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The credit note as PDF.", media_type=PDF)},
        problems=[CREDIT_NOTE_PATH.missing, *PROBLEMS],
    )  # fmt: skip
    def get(self, request: HttpRequest, credit_note_id: int) -> QueuedRequest:
        return _queue_pdf(partial(credit_note_pdf, credit_note_id))


class _EInvoice(BillingEndpoint):
    in_loop = frozenset({"get"})
    served: ClassVar[str] = XML


NO_E_INVOICE = EInvoiceMissing(faults=[{"rule": "BR-11", "detail": "the buyer's address has no country of two letters."}])


class InvoiceXml(_EInvoice):
    """An invoice as an e-invoice."""

    @operation(
        "exportEInvoice", "Get the e-invoice of an invoice",
        "The invoice as issued, as XML for the buyer's software, in the form that the customer's `e_invoice_format` said then: "
        "EN 16931 or XRechnung in CII, Peppol BIS Billing 3 in UBL. An e-invoice that would break a rule is not made.",
        tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The e-invoice.", media_type=XML)},
        problems=[INVOICE_PATH.missing, SellerMissing(), NO_E_INVOICE],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> QueuedRequest:
        return QueuedRequest(DOCUMENTS, partial(invoice_xml, invoice_id), _xml_answer)


class CreditNoteXml(_EInvoice):
    """A credit note as an e-invoice."""

    @operation(
        "exportECreditNote", "Get the e-invoice of a credit note",
        "As that of an invoice. Only credit notes on request are documents: 404 for a carried credit note.",
        tag=INVOICES, scope=BILLING_READ, parameters=[CREDIT_NOTE_PATH],
        responses={200: ResponseBody(OpenApiTypes.BINARY, None, "The e-invoice.", media_type=XML)},
        problems=[CREDIT_NOTE_PATH.missing, SellerMissing(), NO_E_INVOICE],
    )  # fmt: skip
    def get(self, request: HttpRequest, credit_note_id: int) -> QueuedRequest:
        return QueuedRequest(DOCUMENTS, partial(credit_note_xml, credit_note_id), _xml_answer)


def _xml_answer(printed: PrintedDocument) -> Response:
    return xml_response(printed.content, file_name=printed.file_name)


def _queue_pdf(make: Callable[[], PrintedDocument]) -> QueuedRequest:
    return QueuedRequest(DOCUMENTS, make, _answer)


def _answer(printed: PrintedDocument) -> Response:
    return pdf_response(printed.content, file_name=printed.file_name)
