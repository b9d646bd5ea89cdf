"""What an operator can do with a document: finalise, mark as paid, void, give up, delete. Each with a reason, each once."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from billing.admin.cells import money
from billing.documents import transitions
from billing.documents.invoices import came_to_nothing
from billing.models import DocumentMove, Invoice, Subscription
from ledger.admin.kit.idempotent_forms import Done, KeyedForm, operation_view
from ledger.admin.kit.pages import ReadOnlyAdmin, moment, row_url, table

NOTES_SHOWN = 100


@dataclass(frozen=True)
class Words:
    """A move as an operator meets it: what the button says, what comes of it, and from which states it is possible."""

    title: str
    explanation: str
    origins: Collection[str]


WORDS: Final = {
    "finalize": Words(
        "Finalise",
        "The invoice uses the available credits, gets its number and becomes final.",
        {"draft"},
    ),
    "pay": Words("Mark as paid", "The customer has paid the amount due by other means than credits.", {"open", "uncollectible"}),
    "void": Words(
        "Void",
        "Voiding returns the credits that paid part of the invoice and frees its periods for billing. The invoice keeps its "
        "number. Later invoices of 0 that correct it become void too.",
        {"open", "uncollectible"},
    ),
    "give_up": Words(
        "Mark as uncollectible",
        "You no longer expect this payment. You can still mark the invoice as paid, or void it.",
        {"open"},
    ),
    "delete": Words(
        "Delete draft",
        "Deleting returns the credits the draft used and frees its periods for billing. Your name and reason stay on record.",
        {"draft"},
    ),
}


def move_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice, move: str) -> HttpResponse:
    """Show the form of a move of this invoice, or make it."""
    words = WORDS[move]
    return operation_view(
        model_admin,
        request,
        form_class=KeyedForm,
        operation=_made,
        fixed={"invoice_id": invoice.pk, "move": move, "subscription_id": invoice.subscription_id},
        title=f"{words.title}: {invoice}",
        button=words.title,
        explanation=format_html(
            "{} for {}, {} due. {}",
            invoice.customer_ref,
            invoice.subscription_ref,
            money(invoice.amount_due_minor, invoice.currency),
            words.explanation,
        ),
        back=row_url(Invoice, invoice.pk),
    )


def deletion_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice_id: int) -> HttpResponse | None:
    """As `move_view` for a draft that is deleted: the second click of two is told so. None when there was no such draft."""
    kept = DocumentMove.objects.filter(invoice_id=invoice_id, move=transitions.DELETE).first()
    if kept is None:
        return None
    words = WORDS[transitions.DELETE]
    return operation_view(
        model_admin,
        request,
        form_class=KeyedForm,
        operation=_made,
        fixed={"invoice_id": invoice_id, "move": transitions.DELETE, "subscription_id": kept.subscription_id},
        title=f"{words.title}: draft {invoice_id}",
        button=words.title,
        explanation=f"{kept.actor} has deleted this draft.",
        back=row_url(Subscription, kept.subscription_id),
    )


ACTIONS: Final = {transitions.DELETE: "delete_draft"}
"""What the action of a move is called, where it is not as the move."""


def impossible(invoice: Invoice) -> list[str]:
    """The actions that the invoice's state does not allow."""
    return [ACTIONS.get(name, name) for name, words in WORDS.items() if not _is_possible(invoice, name, words)]


def _is_possible(invoice: Invoice, move: str, words: Words) -> bool:
    return invoice.state in words.origins or (move == "void" and came_to_nothing(invoice))


def moves_table(invoice: Invoice) -> dict[str, Any]:
    """Who moved the document, in the admin or over REST, and why, the latest first."""
    rows = DocumentMove.objects.filter(invoice_id=invoice.pk).order_by("-pk")[:NOTES_SHOWN]
    return table(
        ["Move", "Reason", "Actor", "Recorded (UTC)"],
        [(WORDS[row.move].title, row.reason, row.actor, moment(row.recorded_at)) for row in rows],
    )


def deletions_table(subscription_id: int) -> dict[str, Any]:
    """The drafts of a subscription that somebody deleted, and why, the latest first."""
    rows = DocumentMove.objects.filter(subscription_id=subscription_id).order_by("-pk")[:NOTES_SHOWN]
    return table(
        ["Draft", "Total", "Reason", "Actor", "Deleted (UTC)"],
        [
            (
                f"draft {row.invoice_id}",
                money(row.draft["total_minor"], row.draft["currency"]) if row.draft else "",
                row.reason,
                row.actor,
                moment(row.recorded_at),
            )
            for row in rows
        ],
    )


def _made(**asked: Any) -> Done:
    subscription_id = asked.pop("subscription_id")
    moved = transitions.move(**asked)
    is_deleted = asked["move"] == transitions.DELETE
    return Done(
        f"“{WORDS[asked['move']].title}” of {moved.number or f'draft {moved.invoice_id}'}",
        f"the invoice is {moved.state}",
        row_url(Subscription, subscription_id) if is_deleted else row_url(Invoice, moved.invoice_id),
        moved.replayed,
    )
