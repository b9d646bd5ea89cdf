"""Moving a document by hand, with the name of who did it and the reason, once per key."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from billing import documents
from billing.models import DocumentMove, Invoice
from billing.request_keys import Answer, answer_once
from ledger.errors import Invalid

COLLECTION: Final = "document-moves"

MOVES: Final[dict[str, Callable[[int], Invoice]]] = {
    "finalize": documents.finalize,
    "pay": documents.pay,
    "void": documents.void,
    "give_up": documents.mark_uncollectible,
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
        move: finalize, pay, void or give_up.
        actor: who, such as `admin:mara`.
        reason: 1 to 500 characters.

    Raises:
        Invalid: there is no reason.
        Refused: as the move's own use-case in `documents` says.
        InvoiceGenerationBusy, HolderBusy: nothing was written; repeat it with the same key.
        IdempotencyKeyReused: the key belongs to another move.
    """
    if not reason.strip():
        raise Invalid(pointer="/reason", rule="required", detail="is required")
    facts = {"invoice": invoice_id, "move": move, "reason": reason, "actor": actor}
    answer = answer_once(
        collection=COLLECTION,
        idempotency_key=idempotency_key,
        request_digest=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest(),
        act=lambda: _act(facts, MOVES[move]),
    )
    return Moved(invoice_id, answer.body["number"], answer.body["state"], answer.replayed)


def _act(facts: dict[str, Any], use_case: Callable[[int], Invoice]) -> Answer:
    # The note first: finalisation takes the number last, whose row others wait for.
    DocumentMove.objects.create(invoice_id=facts["invoice"], move=facts["move"], actor=facts["actor"], reason=facts["reason"])
    invoice = use_case(facts["invoice"])
    return Answer(200, {"state": invoice.state, "number": invoice.number})
