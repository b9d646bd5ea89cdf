"""What people do with documents: change their state, or delete a draft. The actor and the reason are recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Max

from billing.documents import invoice_payments, invoices
from billing.documents.invoice_locks import key_of, locked_invoice, subscriptions_of
from billing.models import Invoice, Transition
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.database.locks import Lock
from ledger.errors import Invalid

COLLECTION: Final = "invoice-transitions"
DELETE: Final = "delete"
KEPT_OF_A_DRAFT: Final = (
    "subscription_id", "subscription_ref", "customer_ref", "currency", "subtotal_minor", "discount_minor", "tax_minor",
    "total_minor",
)  # fmt: skip

TRANSITIONS: Final[dict[str, Callable[[int], Invoice]]] = {
    "finalize": invoices.finalize,
    "void": invoices.void,
    "mark_uncollectible": invoices.mark_uncollectible,
}


@dataclass(frozen=True, slots=True)
class TransitionResult:
    """The invoice after the transition; `replayed` if an earlier request with the key made it."""

    invoice_id: int
    number: str | None
    state: str
    replayed: bool


def apply(*, invoice_id: int, kind: str, actor: str, reason: str, idempotency_key: str) -> TransitionResult:
    """Change the state of an invoice and record the actor and the reason; or raise, and only the refusal stays, under the key.

    Args:
        kind: finalize, pay, void, mark_uncollectible or delete.
        actor: the operator or program, such as `admin:mara`.
        reason: 1 to 500 characters.

    Returns:
        The invoice after the transition; the state of a deleted draft is `deleted`.

    Raises:
        Invalid: the reason is missing.
        Refused: see the use-case in `documents` that makes the transition.
        InvoiceGenerationBusy, HolderBusy: nothing was written; repeat it with the same key.
        IdempotencyKeyReused: the key belongs to another transition.
    """
    if not reason.strip():
        raise Invalid(pointer="/reason", rule="required", detail="is required")
    facts = {"invoice": invoice_id, "kind": kind, "reason": reason, "actor": actor}

    def act() -> WriteResult:
        if kind == DELETE:
            delete_draft_in(invoice_id=invoice_id, actor=actor, reason=reason)
            return WriteResult(200, {"state": "deleted", "number": None})
        invoice = apply_in(invoice_id=invoice_id, kind=kind, actor=actor, reason=reason)
        return WriteResult(200, {"state": invoice.state, "number": invoice.number})

    result = execute_once(
        collection=COLLECTION,
        idempotency_key=idempotency_key,
        request_digest=request_digest_of(facts),
        act=act,
    )
    return TransitionResult(invoice_id, result.body["number"], result.body["state"], result.replayed)


def apply_in(*, invoice_id: int, kind: str, actor: str, reason: str = "", note: str = "") -> Invoice:
    """Change the state as `apply` does, in the transaction of a caller that stores the key; the reason may be empty.

    Invoices that are voided with this one get the same actor and reason.

    Args:
        note: replaces the note of a draft that is finalised; empty: it keeps its note.
    """
    with locked_invoice(invoice_id) as (lock, invoice):
        # The record first: finalisation takes the number last, because others wait for its row. To void a void invoice changes
        # nothing.
        if kind != "void" or invoice.state != Invoice.State.VOID:
            _note(lock, invoice, kind=kind, actor=actor, reason=reason)
        if note and invoice.state == Invoice.State.DRAFT:
            invoices.note_drafts_under(lock, key_of(invoice), [invoice.pk], note)
        if kind == "pay":
            return invoice_payments.pay_rest(invoice_id, actor)
        if kind != "void":
            return TRANSITIONS[kind](invoice_id)
        *corrections, voided = invoices.void_with_corrections(invoice_id)
        for other in corrections:
            with locked_invoice(other.pk) as (its_lock, correction):
                _note(its_lock, correction, kind=kind, actor=actor, reason=reason)
    return voided


def delete_draft_in(*, invoice_id: int, actor: str, reason: str = "") -> Transition:
    """Delete a draft and record its data, the actor and the reason; in the caller's transaction.

    Raises: as `documents.delete_draft`.
    """
    with locked_invoice(invoice_id) as (lock, invoice):
        draft = {name: getattr(invoice, name) for name in KEPT_OF_A_DRAFT} | {"as_of": invoice.as_of.isoformat()}
        if not invoice.subscription_id and (refs := subscriptions_of(invoice_id)):
            draft["subscriptions"] = refs
        invoices.delete_draft(invoice_id)
        noted = _note(lock, invoice, kind=DELETE, actor=actor, reason=reason, draft=draft)
    noted.refresh_from_db()
    return noted


def _note(lock: Lock, invoice: Invoice, *, kind: str, actor: str, reason: str, draft: dict[str, Any] | None = None) -> Transition:
    """Record the actor and the reason of a transition, under the next number of its subscription or customer."""
    lock.ensure_held(key_of(invoice))
    owner = {"subscription_id": invoice.subscription_id, "customer_id": invoice.customer_id}
    owner["customer_id" if invoice.subscription_id else "subscription_id"] = None
    last = Transition.objects.filter(**owner).aggregate(last=Max("sequence"))["last"]
    return Transition.objects.create(
        **owner, sequence=(last or 0) + 1, invoice_id=invoice.pk,
        kind=kind, actor=actor, reason=reason, draft=draft,
    )  # fmt: skip
