"""Calls that read invoices and change their states."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import BUSY, INVOICES, NO_CUSTOMER, NO_TAXES, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import INVOICE_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.documents import transitions
from billing.documents.invoices import DraftNote, note_draft
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.errors import InvalidTransition
from billing.reads import document_schemas
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.parsing import BODY_LIMIT_BYTES
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Invoices(BillingEndpoint):
    """All invoices."""

    get = list_operation(
        "listInvoices", "List invoices", "Newest first.", tag=INVOICES, path="/v1/invoices",
        query=request_schemas.InvoicesQuery, shape=document_schemas.InvoiceSerializer, example=examples.INVOICE,
        rows=reads.invoices, body=dict, row_id=itemgetter("id"),
    )  # fmt: skip


class CustomerInvoices(WriteEndpoint):
    """One-off invoices: documents of a customer without a subscription."""

    collection = "customer-invoices"
    location = "/v1/invoices/{id}"

    @operation(
        "issueInvoice", "Issue a one-off invoice",
        "Makes an invoice of a customer without a subscription: finalised at once, or a draft. Credit of the customer and "
        "prepaid credits pay it as they pay every invoice.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(shape_of(NewOneOffInvoice), {"a workshop": examples.ONE_OFF_INVOICE_BODY}),
        responses={201: ResponseBody(document_schemas.InvoiceSerializer, examples.ONE_OFF_INVOICE, "The invoice.")},
        problems=[NO_CUSTOMER, *NO_TAXES],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            lines = [OneOffLine(**line) for line in fields.pop("lines")]
            made = issue_one_off_in(customer_ref=ref, request=NewOneOffInvoice(**fields, lines=lines))
            return 201, reads.invoice_document(made.pk)

        return self.once(request, NewOneOffInvoice, act)


class OneInvoice(WriteEndpoint):
    """One invoice."""

    collection = "invoices"
    takes_nothing = True

    @operation(
        "readInvoice", "Read an invoice", tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH],
        responses={200: ResponseBody(document_schemas.InvoiceSerializer, examples.INVOICE, "The invoice.")},
        problems=[INVOICE_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> Response:
        return json_response(reads.invoice_document(invoice_id))

    @operation(
        "changeDraft", "Give a draft a note",
        "Its document prints the note. A finalised invoice does not change.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INVOICE_PATH],
        takes=RequestBody(shape_of(DraftNote), {"an order": {"note": "Your order 4711 of 3 October"}}),
        responses={200: ResponseBody(document_schemas.InvoiceSerializer, examples.INVOICE, "The draft with the note.")},
        problems=[INVOICE_PATH.missing, InvalidTransition(invoice=1, state="open", wanted="noted"), BUSY],
    )  # fmt: skip
    def patch(self, request: HttpRequest, invoice_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            note_draft(invoice_id, fields["note"])
            return 200, reads.invoice_document(invoice_id)

        return self.once(request, DraftNote, act)

    @operation(
        "deleteDraft", "Delete a draft",
        "Returns the draft's credits and frees its periods for billing. The transitions of its id keep the actor and the "
        "reason.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        parameters=[INVOICE_PATH], query=request_schemas.DeletionQuery,
        responses={200: ResponseBody(response_schemas.InvoiceTransitionSerializer, examples.DELETION, "The data that stays.")},
        problems=[INVOICE_PATH.missing, InvalidTransition(invoice=1, state="open", wanted="deleted"), BUSY],
    )  # fmt: skip
    def delete(self, request: HttpRequest, invoice_id: int) -> Response:
        why = read_query(request_schemas.DeletionQuery, request)
        dry_run = why.pop("dry_run")

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, response_schemas.InvoiceTransitionSerializer.body(
                transitions.delete_draft_in(invoice_id=invoice_id, actor=self.key.actor, **why)
            )

        return self.once(request, request_schemas.Nothing, act, dry_run=dry_run)


class InvoiceTransitions(BillingEndpoint):
    """The transitions of an invoice, with actors and reasons."""

    get = list_operation(
        "listInvoiceTransitions", "List the transitions of an invoice",
        "Who finalised it, paid or voided it, marked it uncollectible, or deleted it as a draft, and why; newest first. What "
        "runs of the generator do is not in the list.",
        tag=INVOICES, path="/v1/invoices/1/transitions", parameters=[INVOICE_PATH], problems=[INVOICE_PATH.missing],
        query=request_schemas.TransitionsQuery, shape=response_schemas.InvoiceTransitionSerializer, example=examples.TRANSITION,
        rows=reads.transitions,
    )  # fmt: skip


class _TransitionEndpoint(WriteEndpoint):
    """A transition of an invoice; the body may give the reason."""

    collection = "invoices"
    body_limit_bytes = BODY_LIMIT_BYTES
    takes_nothing = True

    takes: type[request_schemas.Transition] = request_schemas.Transition

    def apply(self, request: HttpRequest, invoice_id: int, kind: str) -> Response:
        """Make the transition, and respond with the invoice after it."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            transitions.apply_in(invoice_id=invoice_id, kind=kind, actor=self.key.actor, **fields)
            return 200, reads.invoice_document(invoice_id)

        return self.once(request, self.takes, act)


def _transition_operation(
    name: str, summary: str, description: str, takes: type[request_schemas.Transition] = request_schemas.Transition
) -> Callable[[Any], Any]:
    return operation(
        name, summary, description, tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[INVOICE_PATH],
        takes=RequestBody(shape_of(takes), {"with a reason": {"reason": "Agreed by phone"}, "nothing": {}}),
        responses={200: ResponseBody(document_schemas.InvoiceSerializer, examples.INVOICE, "The invoice after the transition.")},
        problems=[INVOICE_PATH.missing, InvalidTransition(invoice=1, state="paid", wanted="void"), BUSY],
    )  # fmt: skip


class Finalize(_TransitionEndpoint):
    """Finalising a draft."""

    takes = request_schemas.Finalization

    @_transition_operation(
        "finalizeInvoice", "Finalise a draft", "Applies credits, assigns the number and freezes the invoice.",
        request_schemas.Finalization,
    )  # fmt: skip
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        return self.apply(request, invoice_id, "finalize")


class Pay(_TransitionEndpoint):
    """Marking an invoice as paid."""

    @_transition_operation("payInvoice", "Mark an invoice as paid", "Works for an open or uncollectible invoice.")
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        return self.apply(request, invoice_id, "pay")


class Void(_TransitionEndpoint):
    """Voiding an invoice."""

    @_transition_operation(
        "voidInvoice",
        "Void an invoice",
        "Frees the invoice's periods for billing and returns the credits that it used, once.",
    )
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        return self.apply(request, invoice_id, "void")


class MarkUncollectible(_TransitionEndpoint):
    """Marking an invoice as uncollectible."""

    @_transition_operation(
        "markInvoiceUncollectible", "Mark an invoice as uncollectible", "The invoice can still be paid or voided."
    )
    def post(self, request: HttpRequest, invoice_id: int) -> Response:
        return self.apply(request, invoice_id, "mark_uncollectible")
