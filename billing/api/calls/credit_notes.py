"""Calls about credit notes, and the credit of customers."""

from operator import itemgetter
from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import BUSY, INVOICES, NO_CUSTOMER, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import CREDIT_NOTE_PATH, INVOICE_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine, NewCreditNote
from billing.documents.credit_refunds import NewCreditRefund, refund_in
from billing.errors import CreditExceedsInvoice, InvalidTransition, RefundExceedsCredit
from billing.reads import document_schemas
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class InvoiceCreditNotes(WriteEndpoint):
    """Credit notes on request, which correct a finalised invoice."""

    collection = "credit-notes"
    location = "/v1/credit-notes/{id}"

    @operation(
        "creditInvoice", "Credit an invoice",
        "Issues a credit note for some lines or for the whole rest. It first lowers the amount due. Of the paid part, money pays "
        "for the next invoices of the customer, and prepaid credits go back to the holder.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INVOICE_PATH],
        takes=RequestBody(
            shape_of(NewCreditNote), {"a line": examples.CREDIT_NOTE_BODY,
            "the rest": {"reason": "Cancelled as agreed"}}
        ),
        responses={201: ResponseBody(document_schemas.CreditNoteSerializer, examples.CREDIT_NOTE, "The credit note.")},
        problems=[
            INVOICE_PATH.missing,
            InvalidTransition(invoice=1, state="draft", wanted="credited"),
            CreditExceedsInvoice(invoice=1, creditable_minor=480, lines=[{"position": 1, "creditable_minor": 400}]),
            BUSY,
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            lines = fields.get("lines")
            requested = None if lines is None else [CreditLine(**line) for line in lines]
            note = credit_notes.issue_in(invoice_id=invoice_id, lines=requested, reason=fields["reason"], actor=self.key.actor)
            return 201, reads.credit_note_document(note.pk)

        return self.once(request, NewCreditNote, act)


class CreditNotes(BillingEndpoint):
    """All credit notes."""

    get = list_operation(
        "listCreditNotes", "List credit notes", "Newest first; credit notes on request, and those of invoices whose credits "
        "exceeded their charges (`carried`, without number and lines).",
        tag=INVOICES, path="/v1/credit-notes",
        query=request_schemas.CreditNotesQuery, shape=document_schemas.CreditNoteSerializer, example=examples.CREDIT_NOTE,
        rows=reads.credit_notes, body=dict, row_id=itemgetter("id"),
    )  # fmt: skip


class OneCreditNote(BillingEndpoint):
    """One credit note."""

    @operation(
        "readCreditNote", "Read a credit note", tag=INVOICES, scope=BILLING_READ, parameters=[CREDIT_NOTE_PATH],
        responses={200: ResponseBody(document_schemas.CreditNoteSerializer, examples.CREDIT_NOTE, "The credit note.")},
        problems=[CREDIT_NOTE_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, credit_note_id: int) -> Response:
        return json_response(reads.credit_note_document(credit_note_id))


class CreditBalance(BillingEndpoint):
    """The credit of a customer in money."""

    @operation(
        "readCreditBalance", "Read a customer's credit balance",
        "The credit in money, per currency: what is left of credit notes and deposits. It pays for the next invoices of the "
        "customer in its currency, the oldest first.",
        tag=INVOICES, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(document_schemas.CreditBalanceSerializer, examples.CREDIT_BALANCE, "The credit.")},
        problems=[NO_CUSTOMER],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(reads.credit_balance(ref))


class CreditRefunds(WriteEndpoint):
    """Credit of a customer that was paid out in money."""

    collection = "credit-refunds"
    location = "/v1/customers/{customer}/credit-refunds"
    get = list_operation(
        "listCreditRefunds", "List the refunds of a customer's credit", "Newest first.", tag=INVOICES,
        path="/v1/customers/CUST-7/credit-refunds", parameters=[REF_PATH], problems=[NO_CUSTOMER],
        query=request_schemas.AllQuery, shape=document_schemas.CreditRefundSerializer, example=examples.CREDIT_REFUND,
        rows=reads.credit_refunds, body=lambda row, ref: row, row_id=itemgetter("id"),
    )  # fmt: skip

    @operation(
        "refundCredit", "Record that credit was paid out",
        "Records that you paid out credit of a customer in money, outside this system: the oldest credit first, or that of one "
        "credit note. The credit then no longer pays for invoices. A refund is permanent.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(shape_of(NewCreditRefund), {"a transfer": examples.CREDIT_REFUND_BODY}),
        responses={201: ResponseBody(document_schemas.CreditRefundSerializer, examples.CREDIT_REFUND, "The refund.")},
        problems=[
            NO_CUSTOMER, RefundExceedsCredit(customer="CUST-7", currency="EUR", left_minor=1500, requested_minor=2000),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            refund = refund_in(customer_ref=ref, request=shape_of(NewCreditRefund).make(fields), actor=self.key.actor)
            [document] = reads.credit_refund_documents([refund], ref)
            return 201, document

        return self.once(request, NewCreditRefund, act)
