"""Moving a document on somebody's word: from state to state, or away with a draft; with the name of who did it and why."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from billing.documents import invoices
from billing.models import DocumentMove, Invoice
from billing.request_keys import Answer, answer_once
from ledger.errors import Invalid

COLLECTION: Final = "document-moves"
DELETE: Final = "delete"

MOVES: Final[dict[str, Callable[[int], Invoice]]] = {
    "finalize": invoices.finalize,
    "pay": invoices.pay,
    "void": invoices.void,
    "give_up": invoices.mark_uncollectible,
}


@dataclass(frozen=True, slots=True)
class Moved:
    """The invoice after the move; `replayed` when an earlier request with the key made it."""

    invoice_id: int
    number: str | None
    state: str
    replayed: bool


def move(*, invoice_id: int, move: str, actor: str, reason: str, idempotency_key: str) -> Moved:
    """Move an invoice and note who did it and why, in one transaction; or raise, with only the refusal kept under the key.

    Args:
        move: finalize, pay, void, give_up or delete.
        actor: who, such as `admin:mara`.
        reason: 1 to 500 characters.

    Returns:
        The invoice as it is then; the state of a draft that was deleted is `deleted`.

    Raises:
        Invalid: there is no reason.
        Refused: as the move's own use-case in `documents` says.
        InvoiceGenerationBusy, HolderBusy: nothing was written; repeat it with the same key.
        IdempotencyKeyReused: the key belongs to another move.
    """
    if not reason.strip():
        raise Invalid(pointer="/reason", rule="required", detail="is required")
    facts = {"invoice": invoice_id, "move": move, "reason": reason, "actor": actor}

    def act() -> Answer:
        if move == DELETE:
            delete_draft_in(invoice_id=invoice_id, actor=actor, reason=reason)
            return Answer(200, {"state": "deleted", "number": None})
        invoice = move_in(invoice_id=invoice_id, move=move, actor=actor, reason=reason)
        return Answer(200, {"state": invoice.state, "number": invoice.number})

    answer = answer_once(
        collection=COLLECTION,
        idempotency_key=idempotency_key,
        request_digest=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest(),
        act=act,
    )
    return Moved(invoice_id, answer.body["number"], answer.body["state"], answer.replayed)


def move_in(*, invoice_id: int, move: str, actor: str, reason: str = "") -> Invoice:
    """As `move`, inside the transaction of a caller who remembers the key; the reason may be empty.

    What is voided with an invoice has the same name and reason on record.
    """
    # The note first: finalisation takes the number last, whose row others wait for. Voiding what is void changes nothing.
    if move != "void" or not Invoice.objects.filter(pk=invoice_id, state=Invoice.State.VOID).exists():
        DocumentMove.objects.create(invoice_id=invoice_id, move=move, actor=actor, reason=reason)
    if move != "void":
        return MOVES[move](invoice_id)
    *corrections, invoice = invoices.void_with_corrections(invoice_id)
    DocumentMove.objects.bulk_create(
        DocumentMove(invoice_id=other.pk, move=move, actor=actor, reason=reason) for other in corrections
    )
    return invoice


def delete_draft_in(*, invoice_id: int, actor: str, reason: str = "") -> DocumentMove:
    """Delete a draft and keep on record what it was, who deleted it and why; inside the caller's transaction.

    Raises: as `documents.delete_draft`.
    """
    draft: dict[str, Any] = Invoice.objects.filter(pk=invoice_id).values(*KEPT_OF_A_DRAFT).first() or {}
    invoices.delete_draft(invoice_id)
    noted = DocumentMove.objects.create(
        invoice_id=invoice_id,
        move=DELETE,
        actor=actor,
        reason=reason,
        subscription_id=draft["subscription_id"],
        draft={**draft, "as_of": draft["as_of"].isoformat()},
    )
    noted.refresh_from_db()
    return noted


KEPT_OF_A_DRAFT: Final = (
    "subscription_id", "subscription_ref", "customer_ref", "currency", "as_of", "subtotal_minor", "discount_minor", "tax_minor",
    "total_minor",
)  # fmt: skip
