"""The states of an invoice: finalising and voiding it, marking it as uncollectible, and deleting a draft."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Final

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from billing.documents.credit_rests import account_turn
from billing.documents.credits_used import covered_claims, undo
from billing.documents.finalisation import finalize_under, finalizing
from billing.documents.invoice_locks import key_of, locked_invoice
from billing.errors import (
    InvalidTransition,
    InvoiceCorrectedLater,
    InvoiceCreditRefunded,
    InvoicePartlyPaid,
    SubscriptionNotStarted,
)
from billing.models import (
    Activation,
    Claim,
    CouponUse,
    CreditNote,
    CreditNoteUse,
    CreditPayment,
    Invoice,
    InvoicedSubscription,
    InvoiceTax,
    Line,
)
from billing.rating.values import OneLine
from ledger import services as ledger
from ledger.database.locks import Lock, holder_key, holder_lock
from ledger.records import Record

State = Invoice.State

# Zero-amount claims without a line: they are released in favour of the restored claims.
RELEASE_ZERO_AMOUNT = """
    UPDATE billing_claim AS zero
    SET released_at = clock_timestamp(), released_by = %(invoice)s
    FROM billing_claim AS back
    WHERE back.released_by = %(invoice)s AND %(invoice)s NOT IN (coalesce(back.invoice_id, 0), coalesce(back.made_by, 0))
        AND zero.released_at IS NULL AND zero.invoice_id IS NULL
        AND zero.subscription_id = back.subscription_id AND zero.item_id = back.item_id AND zero.kind = back.kind
        AND tstzrange(zero.starts_at, zero.ends_at) && tstzrange(back.starts_at, back.ends_at)
    RETURNING zero.id
"""

# Later claims, with a line, of the time that an invoice gave back: both cannot hold at once.
BILLED_AGAIN_BY = """
    SELECT DISTINCT coalesce(again.made_by, again.invoice_id)
    FROM billing_claim AS back
    JOIN billing_claim AS again
        ON again.subscription_id = back.subscription_id AND again.item_id = back.item_id AND again.kind = back.kind
        AND tstzrange(again.starts_at, again.ends_at) && tstzrange(back.starts_at, back.ends_at)
    WHERE back.released_by = %(invoice)s AND %(invoice)s NOT IN (coalesce(back.invoice_id, 0), coalesce(back.made_by, 0))
        AND again.released_at IS NULL AND again.invoice_id IS NOT NULL
        AND %(invoice)s NOT IN (again.invoice_id, coalesce(again.made_by, 0))
"""

# Claims that a voided or deleted invoice had corrected count again. The next run looks for their late usage again.
RESTORE_CLAIMS = """
    INSERT INTO billing_claim (subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, snapshot, made_by, restores, created_at, measure_again)
    SELECT subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, snapshot, made_by, id, created_at, CASE WHEN kind = 2 THEN 'restored' ELSE '' END
    FROM billing_claim
    WHERE released_by = %(invoice)s AND %(invoice)s NOT IN (coalesce(invoice_id, 0), coalesce(made_by, 0))
        AND NOT id = ANY(%(zero_amount)s)
    RETURNING id
"""

# The next run starts at the earliest time that is not billed any more, or that counts as billed before.
SET_CURSOR_BACK = """
    UPDATE billing_cursor AS cursor
    SET recurring_due_at = least(cursor.recurring_due_at, earliest.due_at),
        usage_due_at = least(cursor.usage_due_at, earliest.due_at),
        charges_seen = least(cursor.charges_seen, earliest.charges_seen),
        claims_from = CASE WHEN cursor.claims_from IS NOT NULL THEN least(cursor.claims_from, earliest.starts_at) END
    FROM (
        SELECT billed.subscription_id, min(c.starts_at) AS starts_at, least(billed.as_of, min(c.starts_at)) AS due_at, (
                SELECT min(o.sequence) - 1
                FROM billing_charge AS o
                JOIN billing_claim AS one_off ON one_off.subscription_id = o.subscription_id AND one_off.item_id = o.id
                    AND one_off.kind = 3 AND one_off.invoice_id = %(invoice)s
                WHERE o.subscription_id = billed.subscription_id
            ) AS charges_seen
        FROM (
            SELECT %(subscription)s::bigint AS subscription_id, %(as_of)s::timestamptz AS as_of
            UNION ALL
            SELECT subscription_id, as_of FROM billing_invoicedsubscription WHERE invoice_id = %(invoice)s
        ) AS billed
        LEFT JOIN billing_claim AS c ON c.subscription_id = billed.subscription_id AND c.kind <> 3
            AND (c.invoice_id = %(invoice)s OR c.made_by = %(invoice)s OR c.released_by = %(invoice)s)
        GROUP BY billed.subscription_id, billed.as_of
    ) AS earliest
    WHERE cursor.subscription_id = earliest.subscription_id
"""


def finalize(invoice_id: int) -> Invoice:
    """Finalise a draft, or raise and change nothing.

    Raises:
        NotFound, InvalidTransition: the invoice does not exist, or is not a draft.
        InvoiceGenerationBusy: another process makes invoices of the subscription.
    """

    with locked_invoice(invoice_id) as (lock, invoice):
        if invoice.state != State.DRAFT:
            raise InvalidTransition(invoice=invoice_id, state=invoice.state, wanted="open")
        finalize_under(lock, finalizing(invoice))
        invoice.refresh_from_db()
    return invoice


MAX_NOTE_CHARACTERS: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class DraftNote(Record):
    """The note of a draft."""

    note: Annotated[str, OneLine("The document prints it; empty for none.", most=MAX_NOTE_CHARACTERS)]


def note_draft(invoice_id: int, note: str) -> Invoice:
    """Give a draft a note, which its document prints, or raise and change nothing. Raises: as `finalize`."""
    with locked_invoice(invoice_id) as (lock, invoice):
        if invoice.state != State.DRAFT:
            raise InvalidTransition(invoice=invoice_id, state=invoice.state, wanted="noted")
        note_drafts_under(lock, key_of(invoice), [invoice.pk], note)
        invoice.refresh_from_db()
    return invoice


def note_drafts_under(lock: Lock, key: str, invoice_ids: Collection[int], note: str) -> None:
    """Give drafts under the lock of this name a note."""
    lock.ensure_held(key)
    Invoice.objects.filter(pk__in=invoice_ids).update(note=note)


def mark_uncollectible(invoice_id: int) -> Invoice:
    """Mark an open invoice as uncollectible, or raise and change nothing. Raises: as `finalize`."""
    with locked_invoice(invoice_id) as (_, invoice):
        _change_state(invoice, State.UNCOLLECTIBLE, "uncollectible_at", {State.OPEN})
    return invoice


def came_to_nothing(invoice: Invoice) -> bool:
    """Return whether this is a finalised invoice with a total of 0."""
    return invoice.state == State.PAID and invoice.total_minor == 0


def void(invoice_id: int) -> Invoice:
    """Void an unpaid invoice, or raise and change nothing; see `void_with_corrections`."""
    return void_with_corrections(invoice_id)[-1]


def void_with_corrections(invoice_id: int) -> list[Invoice]:
    """Void an open or uncollectible invoice, or a paid one with a total of 0; or raise and change nothing.

    Its periods can be billed again, the claims that it had corrected count again, the credits that paid for it go back, and its
    credit notes end. Later invoices with a total of 0 that correct it are voided first. To void a void invoice changes nothing.

    Returns:
        The invoices that became void, this one last; only this one if it was void already.

    Raises:
        NotFound, InvalidTransition: the invoice does not exist, is a draft or was paid.
        InvoiceCorrectedLater: a later invoice corrects a line of this one, has billed time that this one gave back, or used its
            credit; void that invoice first.
        InvoiceCreditRefunded: credit from this invoice was paid out.
        InvoicePartlyPaid: payments paid a part of it.
        SubscriptionNotStarted: its subscription waits for its payment; cancel the subscription, which voids it.
        InvoiceGenerationBusy: another process makes invoices of the subscription.
    """
    with locked_invoice(invoice_id) as (lock, invoice):
        return [invoice] if invoice.state == State.VOID else _void_under(lock, invoice)


def _void_under(lock: Lock, invoice: Invoice) -> list[Invoice]:
    origins = {State.OPEN, State.UNCOLLECTIBLE} | ({State.PAID} if came_to_nothing(invoice) else set())
    state = invoice.state
    ensure_not_awaited(invoice)
    if state in origins and invoice.amount_paid_minor:
        raise InvoicePartlyPaid(invoice=invoice.pk, state=state, wanted=State.VOID.value, paid_minor=invoice.amount_paid_minor)
    _change_state(invoice, State.VOID, "voided_at", origins)
    voided: list[Invoice] = []
    # What becomes void gives claims back to earlier invoices, which may then correct this one: so they are looked up each time.
    while netted := [other for other in _corrected_by(invoice) if came_to_nothing(other)]:
        # A consolidated invoice bills other subscriptions, too.
        with locked_invoice(netted[-1].pk) as (its_lock, correction):
            voided += _void_under(its_lock, correction)
    _release(lock, invoice, state=state, target=State.VOID.value)
    _give_credits_back(invoice)
    return [*voided, invoice]


def ensure_not_awaited(invoice: Invoice) -> None:
    """Return, or refuse to void the first invoice of a subscription that waits for its payment.

    Raises:
        SubscriptionNotStarted: it waits; cancel the subscription, which voids the invoice.
    """
    waiting = Activation.objects.filter(invoice_id=invoice.pk, state=Activation.State.WAITING)
    if waiting.exists():
        raise SubscriptionNotStarted(subscription=invoice.subscription_ref, state=Activation.State.WAITING.value)


def delete_draft(invoice_id: int) -> None:
    """Delete a draft and release its claims, or raise and change nothing. Raises: as `finalize`."""

    with locked_invoice(invoice_id) as (lock, invoice):
        if invoice.state != State.DRAFT:
            raise InvalidTransition(invoice=invoice_id, state=invoice.state, wanted="deleted")
        delete_draft_under(lock, invoice)


def delete_draft_under(lock: Lock, invoice: Invoice) -> None:
    """Delete a draft and release its claims, or raise and change nothing. Raises: as `_release`."""
    _release(lock, invoice, state=invoice.state, target="deleted")
    Line.objects.filter(invoice_id=invoice.pk).delete()
    InvoiceTax.objects.filter(invoice_id=invoice.pk).delete()
    InvoicedSubscription.objects.filter(invoice_id=invoice.pk).delete()
    Invoice.objects.filter(pk=invoice.pk).delete()


def _release(lock: Lock, invoice: Invoice, *, state: str, target: str) -> None:
    """Release everything that an invoice claimed or used, with the credits on usage, and restore the claims that it had
    corrected.

    Args:
        state, target: the states before and after the transition.

    Raises:
        InvoiceCorrectedLater: a later invoice that is not void has corrected a claim of this one, billed time that it gave back,
            or used its credit note.
        InvoiceCreditRefunded: credit from this invoice was paid out.
    """
    lock.ensure_held(key_of(invoice))
    # The order of locks: the customer's account, whose credit notes may end, before the holders.
    with account_turn(invoice.customer_ref):
        _refuse_if_corrected(invoice, state, target)
    now = timezone.now()
    written = Claim.objects.filter(_written_by(invoice), released_at=None)
    covered = covered_claims(written)
    written.update(released_at=now, released_by=invoice.pk)
    with connection.cursor() as cursor:
        cursor.execute(RELEASE_ZERO_AMOUNT, {"invoice": invoice.pk})
        zero_amount = [claim_id for (claim_id,) in cursor.fetchall()]
        cursor.execute(RESTORE_CLAIMS, {"invoice": invoice.pk, "zero_amount": zero_amount})
        restored = [claim_id for (claim_id,) in cursor.fetchall()]
        cursor.execute(SET_CURSOR_BACK, {"invoice": invoice.pk, "as_of": invoice.as_of, "subscription": invoice.subscription_id})
    undo(invoice, covered, covered_claims(Claim.objects.filter(pk__in=restored)))
    CouponUse.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)
    CreditNoteUse.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)
    CreditNote.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)


def _refuse_if_corrected(invoice: Invoice, state: str, target: str) -> None:
    corrections = _corrected_by(invoice)
    if corrections:
        raise InvoiceCorrectedLater(invoice=invoice.pk, by=corrections[0].pk, state=state, wanted=target)
    if CreditNoteUse.objects.filter(credit_note__invoice_id=invoice.pk, refund_id__isnull=False).exists():
        raise InvoiceCreditRefunded(invoice=invoice.pk, state=state, wanted=target)


def _corrected_by(invoice: Invoice) -> list[Invoice]:
    """Return the valid invoices that corrected a claim of this one, billed time that it gave back, or used its credit note.

    The oldest comes first.
    """
    correcting = Claim.objects.filter(_written_by(invoice), released_by__isnull=False).exclude(released_by=invoice.pk)
    using = CreditNoteUse.objects.filter(credit_note__invoice_id=invoice.pk, released_at=None).exclude(invoice_id=invoice.pk)
    with connection.cursor() as cursor:
        cursor.execute(BILLED_AGAIN_BY, {"invoice": invoice.pk})
        billing_again = {invoice_id for (invoice_id,) in cursor.fetchall()}
    later = {*correcting.values_list("released_by", flat=True), *using.values_list("invoice_id", flat=True), *billing_again}
    known = [pk for pk in later if pk is not None]
    return list(Invoice.objects.filter(pk__in=known).exclude(state=State.VOID).order_by("id"))


def _written_by(invoice: Invoice) -> Q:
    return Q(invoice_id=invoice.pk) | Q(made_by=invoice.pk)


def _give_credits_back(invoice: Invoice) -> None:
    """Refund the credits that paid for the invoice, once. The ledger's idempotency key also refuses a second refund."""
    payment = CreditPayment.objects.filter(invoice_id=invoice.pk, refund_sequence=None).first()
    if payment is None:
        return
    with holder_lock(payment.holder_id) as holder:
        holder.ensure_held(holder_key(payment.holder_id))
        entry = ledger.refund_under(
            holder,
            holder_id=payment.holder_id,
            spend=payment.spend_sequence,
            credit_type=payment.credit_type,
            idempotency_key=f"invoice/{invoice.pk}/void",
            reason="Invoice voided",
            reference=f"invoice {invoice.pk}",
            actor="billing",
        )
    CreditPayment.objects.filter(pk=payment.pk).update(refund_sequence=entry.sequence)


def _change_state(invoice: Invoice, state: Invoice.State, at_column: str, origins: set[Invoice.State]) -> None:
    if invoice.state not in origins:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted=state.value)
    Invoice.objects.filter(pk=invoice.pk).update(**{"state": state, at_column: timezone.now()})
    invoice.refresh_from_db()
