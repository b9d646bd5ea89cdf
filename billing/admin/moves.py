"""What an operator can do with a document: finalise, mark as paid, void, give up. Each with a reason, each once."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from billing import moves
from billing.admin.cells import money
from billing.models import DocumentMove, Invoice
from ledger.admin.keyed_forms import Done, KeyedForm, operation_view
from ledger.admin.pages import ReadOnlyAdmin, moment, row_url, table

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
        "Credits are set against it, it gets its number, and from then on it cannot be changed.",
        {"draft"},
    ),
    "pay": Words("Mark as paid", "For money that arrived in another way than by credits.", {"open", "uncollectible"}),
    "void": Words(
        "Void",
        "Its periods can be billed again, and the credits that paid part of it are given back. It keeps its number.",
        {"open", "uncollectible"},
    ),
    "give_up": Words("Mark as uncollectible", "Nobody expects the money any more. It can still be paid or voided.", {"open"}),
}


def move_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice, move: str) -> HttpResponse:
    """Show the form of a move of this invoice, or make it."""
    words = WORDS[move]
    return operation_view(
        model_admin,
        request,
        form_class=KeyedForm,
        operation=_made,
        fixed={"invoice_id": invoice.pk, "move": move},
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


def impossible(invoice: Invoice) -> list[str]:
    """The moves that the invoice's state does not allow."""
    return [name for name, words in WORDS.items() if invoice.state not in words.origins]


def moves_table(invoice: Invoice) -> dict[str, Any]:
    """Who moved the document by hand, and why, the latest first."""
    rows = DocumentMove.objects.filter(invoice_id=invoice.pk).order_by("-pk")[:NOTES_SHOWN]
    return table(
        ["By hand", "Reason", "Actor", "Recorded (UTC)"],
        [(WORDS[row.move].title, row.reason, row.actor, moment(row.recorded_at)) for row in rows],
    )


def _made(**asked: Any) -> Done:
    moved = moves.move(**asked)
    return Done(
        f"“{WORDS[asked['move']].title}” of {moved.number or f'draft {moved.invoice_id}'}",
        f"the invoice is {moved.state}",
        row_url(Invoice, moved.invoice_id),
        moved.replayed,
    )
