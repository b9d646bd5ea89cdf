"""Documents: writing a draft, giving it its number, and where it goes from there.

The number is taken last in the transaction: the row of the series stays locked until COMMIT, so whatever comes before it would
be done by one process at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from billing.documents.credits_used import covered_claims, undo
from billing.errors import InvalidTransition, InvoiceCorrectedLater, InvoiceGenerationBusy, NotFound
from billing.models import (
    Claim,
    CouponUse,
    CreditNote,
    CreditNoteUse,
    CreditPayment,
    Cursor,
    Customer,
    Invoice,
    InvoiceTax,
    Line,
    NumberSeries,
)
from billing.rating.totals import CreditNote as NoteLeft
from billing.rating.totals import apply_credit_notes, credits_for
from ledger import services as ledger
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locks import Lock, holder_key, holder_lock, try_advisory_lock
from ledger.errors import LockBusy

State = Invoice.State

# The number and all that it freezes in one statement, also for the first number of a series: from here to COMMIT the row of the
# series is locked, and everybody else's finalisation waits.
FINALIZE = """
    WITH taken AS (
        INSERT INTO billing_numberseries AS series (name, last_value) VALUES (%(series)s, 1)
        ON CONFLICT (name) DO UPDATE SET last_value = series.last_value + 1
        RETURNING last_value
    )
    UPDATE billing_invoice
    SET state = 'open', series_value = taken.last_value,
        number = %(series)s || '-' || lpad(taken.last_value::text, greatest(6, length(taken.last_value::text)), '0'),
        issue_date = %(issue_date)s, due_date = %(due_date)s,
        credit_notes_minor = %(credit_notes_minor)s, credits_applied_minor = %(credits_applied_minor)s,
        amount_due_minor = total_minor - %(credit_notes_minor)s - %(credits_applied_minor)s,
        finalized_at = %(finalized_at)s
    FROM taken
    WHERE id = %(id)s
    RETURNING number
"""

PAID = "UPDATE billing_invoice SET state = 'paid', paid_at = %s WHERE id = %s"

# What a dry run shows of a finalisation, on a draft that is about to be rolled back.
SETTLE = """
    UPDATE billing_invoice
    SET issue_date = %(issue_date)s, due_date = %(due_date)s,
        credit_notes_minor = %(credit_notes_minor)s, credits_applied_minor = %(credits_applied_minor)s,
        amount_due_minor = total_minor - %(credit_notes_minor)s - %(credits_applied_minor)s
    WHERE id = %(id)s
"""

NOTES_LEFT = """
    SELECT note.id, note.amount_minor - note.credits_returned_minor - coalesce(
        (SELECT sum(used.amount_minor) FROM billing_creditnoteuse AS used
         WHERE used.credit_note_id = note.id AND used.released_at IS NULL), 0)
    FROM billing_creditnote AS note
    WHERE note.subscription_id = %s AND note.currency = %s AND note.released_at IS NULL
    ORDER BY note.id
"""

# Claims on which nothing was owed and so no line stands: they give way to what comes back in their place.
RELEASE_SILENT = """
    UPDATE billing_claim AS silent
    SET released_at = clock_timestamp(), released_by = %(invoice)s
    FROM billing_claim AS back
    WHERE back.released_by = %(invoice)s AND %(invoice)s NOT IN (coalesce(back.invoice_id, 0), coalesce(back.made_by, 0))
        AND silent.released_at IS NULL AND silent.invoice_id IS NULL
        AND silent.subscription_id = back.subscription_id AND silent.item_id = back.item_id AND silent.kind = back.kind
        AND tstzrange(silent.starts_at, silent.ends_at) && tstzrange(back.starts_at, back.ends_at)
    RETURNING silent.id
"""

# What a voided or deleted invoice had corrected counts again as it did before.
RESTORE_CLAIMS = """
    INSERT INTO billing_claim (subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, basis, made_by, restores)
    SELECT subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, basis, made_by, id
    FROM billing_claim
    WHERE released_by = %(invoice)s AND %(invoice)s NOT IN (coalesce(invoice_id, 0), coalesce(made_by, 0))
        AND NOT id = ANY(%(silent)s)
    RETURNING id
"""


def invoice_key(subscription_ref: str) -> str:
    """The name of the lock under which everything that is billed to a subscription is decided."""
    return INVOICE_GENERATION(subscription_ref)


@dataclass(frozen=True, slots=True)
class Finalizing:
    """What finalisation has to know of a draft and its customer."""

    invoice_id: int
    subscription_id: int
    subscription_ref: str
    currency: str
    total_minor: int
    own_note_minor: int
    series: str
    terms_days: int
    time_zone: str
    holder_id: str
    credit_type: str
    credit_unit_value: Decimal | None
    has_notes: bool = True
    """False: it is known that no credit note of the subscription stands."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What was set against a draft, and from when it counts; all but its number is known."""

    draft: Finalizing
    credit_notes_minor: int
    credits_applied_minor: int
    issue_date: date
    finalized_at: datetime

    @property
    def amount_due_minor(self) -> int:
        """What is left to be paid."""
        return self.draft.total_minor - self.credit_notes_minor - self.credits_applied_minor


def finalize_under(lock: Lock, draft: Finalizing) -> str:
    """Settle a draft, give it its number and freeze it, or raise and change nothing; returns the number."""
    return number_under(lock, settle_under(lock, draft))


def settle_under(lock: Lock, draft: Finalizing) -> Settled:
    """Set credit notes and prepaid credits against a draft, or raise and change nothing.

    Lock order: the subscription's is held, then the holder's. Whoever finalises several settles all of them before the first
    number is taken: the holder's lock is never waited for while the series is held.
    """
    lock.ensure_held(invoice_key(draft.subscription_ref))
    notes_minor = _apply_notes(draft)
    credits_minor = _pay_with_credits(draft, draft.total_minor - notes_minor)
    now = timezone.now()
    return Settled(draft, notes_minor, credits_minor, now.astimezone(ZoneInfo(draft.time_zone)).date(), now)


def number_under(lock: Lock, settled: Settled) -> str:
    """Give a settled draft its number and freeze it; nothing but COMMIT should follow. Returns the number."""
    lock.ensure_held(invoice_key(settled.draft.subscription_ref))
    with connection.cursor() as cursor:
        cursor.execute(FINALIZE, _facts(settled))
        number: str = cursor.fetchone()[0]
        if not settled.amount_due_minor:
            cursor.execute(PAID, [settled.finalized_at, settled.draft.invoice_id])
    return number


def show_settled(lock: Lock, settled: Settled) -> None:
    """Write into the draft of a dry run what finalising it would, but for the number, for which others would have to wait."""
    lock.ensure_held(invoice_key(settled.draft.subscription_ref))
    with connection.cursor() as cursor:
        cursor.execute(SETTLE, _facts(settled))


def _facts(settled: Settled) -> dict[str, Any]:
    return {
        "id": settled.draft.invoice_id,
        "series": settled.draft.series,
        "credit_notes_minor": settled.credit_notes_minor,
        "credits_applied_minor": settled.credits_applied_minor,
        "issue_date": settled.issue_date,
        "due_date": settled.issue_date + timedelta(days=settled.draft.terms_days),
        "finalized_at": settled.finalized_at,
    }


def _apply_notes(draft: Finalizing) -> int:
    """Use up credit notes, the one that this invoice brings first, then the oldest."""
    if not draft.has_notes and not draft.own_note_minor:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(NOTES_LEFT, [draft.subscription_id, draft.currency])
        notes = [(note_id, int(left)) for note_id, left in cursor.fetchall()]
    if draft.own_note_minor:
        own = CreditNote.objects.create(
            subscription_id=draft.subscription_id,
            invoice_id=draft.invoice_id,
            currency=draft.currency,
            amount_minor=draft.own_note_minor,
        )
        notes.insert(0, (own.pk, draft.own_note_minor))
    applied = apply_credit_notes(draft.total_minor, [NoteLeft(str(note_id), left) for note_id, left in notes])
    if applied:
        CreditNoteUse.objects.bulk_create(
            CreditNoteUse(credit_note_id=int(one.ref), invoice_id=draft.invoice_id, amount_minor=one.amount_minor)
            for one in applied
        )
    return sum(one.amount_minor for one in applied)


def _pay_with_credits(draft: Finalizing, due_minor: int) -> int:
    """Spend the holder's credits on what is due, as far as they reach; the balance is read under the holder's lock."""
    if not (draft.holder_id and draft.credit_type and draft.credit_unit_value) or due_minor <= 0:
        return 0
    with holder_lock(draft.holder_id) as holder:
        available = ledger.available_under(holder, holder_id=draft.holder_id, credit_type=draft.credit_type)
        used = credits_for(due_minor, available_units=available, unit_value=draft.credit_unit_value, currency=draft.currency)
        if not used.amount_minor:
            return 0
        entry = ledger.spend_under(
            holder,
            holder_id=draft.holder_id,
            amount=used.units,
            credit_type=draft.credit_type,
            idempotency_key=f"invoice/{draft.invoice_id}/pay",
            reason="Invoice payment",
            reference=f"invoice {draft.invoice_id}",
            actor="billing",
        )
    CreditPayment.objects.create(
        invoice_id=draft.invoice_id,
        holder_id=draft.holder_id,
        credit_type=draft.credit_type,
        credits=used.units,
        amount_minor=used.amount_minor,
        spend_sequence=entry.sequence,
    )
    return used.amount_minor


# From state to state ---------------------------------------------------------------------------------


def finalize(invoice_id: int) -> Invoice:
    """Finalise a draft, or raise and change nothing.

    Raises:
        NotFound, InvalidTransition: there is no such invoice, or it is no draft.
        InvoiceGenerationBusy: invoices of the subscription are being made.
    """

    def act(lock: Lock, invoice: Invoice) -> None:
        if invoice.state != State.DRAFT:
            raise InvalidTransition(invoice=invoice_id, state=invoice.state, wanted="open")
        finalize_under(lock, finalizing(invoice))

    return _moved(invoice_id, act)


def pay(invoice_id: int) -> Invoice:
    """Mark an open or uncollectible invoice as paid, or raise and change nothing. Raises: as `finalize`."""
    return _moved(invoice_id, lambda lock, invoice: _move(invoice, State.PAID, "paid_at", {State.OPEN, State.UNCOLLECTIBLE}))


def mark_uncollectible(invoice_id: int) -> Invoice:
    """Give an open invoice up, or raise and change nothing. Raises: as `finalize`."""
    return _moved(invoice_id, lambda lock, invoice: _move(invoice, State.UNCOLLECTIBLE, "uncollectible_at", {State.OPEN}))


def came_to_nothing(invoice: Invoice) -> bool:
    """True for an invoice with a number that nobody had to pay."""
    return invoice.state == State.PAID and invoice.total_minor == 0


def void(invoice_id: int) -> Invoice:
    """Make an invoice void that nobody has paid, or raise and change nothing; see `void_with_corrections`."""
    return void_with_corrections(invoice_id)[-1]


def void_with_corrections(invoice_id: int) -> list[Invoice]:
    """Make an open or uncollectible invoice void, or one of 0 that nobody had to pay; or raise and change nothing.

    Its periods can be billed again, what it corrected counts as before, the credits that paid part of it are given back, and
    credit notes about it end. Later invoices of 0 that correct it, where charges and credits came to nothing, are voided first.
    Voiding what is void changes nothing, however often.

    Returns:
        What became void, the invoice itself last; that alone where it was void already.

    Raises:
        NotFound, InvalidTransition: there is no such invoice, or it is a draft or was paid.
        InvoiceCorrectedLater: a later invoice credits or continues a line of this one; void that first.
        InvoiceGenerationBusy: invoices of the subscription are being made.
    """
    voided: list[Invoice] = []

    def act(lock: Lock, invoice: Invoice) -> None:
        if invoice.state != State.VOID:
            voided.extend(_void_under(lock, invoice))

    invoice = _moved(invoice_id, act)
    return [*voided[:-1], invoice]


def _void_under(lock: Lock, invoice: Invoice) -> list[Invoice]:
    origins = {State.OPEN, State.UNCOLLECTIBLE} | ({State.PAID} if came_to_nothing(invoice) else set())
    _move(invoice, State.VOID, "voided_at", origins)
    netted = [other for other in _corrected_by(invoice) if came_to_nothing(other)]
    voided = [one for other in reversed(netted) for one in _void_under(lock, other)]
    release_under(lock, invoice)
    _give_credits_back(invoice)
    return [*voided, invoice]


def delete_draft(invoice_id: int) -> None:
    """Delete a draft and release what it claimed, or raise and change nothing. Raises: as `finalize`."""

    def act(lock: Lock, invoice: Invoice) -> None:
        if invoice.state != State.DRAFT:
            raise InvalidTransition(invoice=invoice_id, state=invoice.state, wanted="deleted")
        delete_draft_under(lock, invoice)

    _moved(invoice_id, act, reload=False)


def delete_draft_under(lock: Lock, invoice: Invoice) -> None:
    """Delete a draft and release what it claimed, or raise and change nothing. Raises: as `release_under`."""
    release_under(lock, invoice)
    Line.objects.filter(invoice_id=invoice.pk).delete()
    InvoiceTax.objects.filter(invoice_id=invoice.pk).delete()
    Invoice.objects.filter(pk=invoice.pk).delete()


def release_under(lock: Lock, invoice: Invoice) -> None:
    """Release everything that an invoice claimed or used, credits on usage as well, and restore what it had corrected.

    Raises:
        InvoiceCorrectedLater: a later invoice that stands has corrected a claim of this one or used its credit note.
    """
    lock.ensure_held(invoice_key(invoice.subscription_ref))
    _refuse_if_corrected(invoice)
    now = timezone.now()
    written = Claim.objects.filter(_written_by(invoice), released_at=None)
    covered = covered_claims(written)
    written.update(released_at=now, released_by=invoice.pk)
    with connection.cursor() as cursor:
        cursor.execute(RELEASE_SILENT, {"invoice": invoice.pk})
        silent = [claim_id for (claim_id,) in cursor.fetchall()]
        cursor.execute(RESTORE_CLAIMS, {"invoice": invoice.pk, "silent": silent})
        restored = [claim_id for (claim_id,) in cursor.fetchall()]
    undo(invoice, covered, covered_claims(Claim.objects.filter(pk__in=restored)))
    CouponUse.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)
    CreditNoteUse.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)
    CreditNote.objects.filter(invoice_id=invoice.pk, released_at=None).update(released_at=now)
    # The cursor is only a hint; without one the next run looks at everything.
    Cursor.objects.filter(pk=invoice.subscription_id).delete()


def _refuse_if_corrected(invoice: Invoice) -> None:
    standing = _corrected_by(invoice)
    if standing:
        raise InvoiceCorrectedLater(invoice=invoice.pk, by=standing[0].pk, state=invoice.state, wanted="void")


def _corrected_by(invoice: Invoice) -> list[Invoice]:
    """The invoices that are not void and have corrected a claim of this one or used its credit note, oldest first."""
    correcting = Claim.objects.filter(_written_by(invoice), released_by__isnull=False).exclude(released_by=invoice.pk)
    using = CreditNoteUse.objects.filter(credit_note__invoice_id=invoice.pk, released_at=None).exclude(invoice_id=invoice.pk)
    later = set(correcting.values_list("released_by", flat=True)) | set(using.values_list("invoice_id", flat=True))
    known = [pk for pk in later if pk is not None]
    return list(Invoice.objects.filter(pk__in=known).exclude(state=State.VOID).order_by("id"))


def _written_by(invoice: Invoice) -> Q:
    return Q(invoice_id=invoice.pk) | Q(made_by=invoice.pk)


def _give_credits_back(invoice: Invoice) -> None:
    """Refund the credits that paid for the invoice, once: the ledger's idempotency key sees to it as well."""
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


def _moved(invoice_id: int, act: Callable[[Lock, Invoice], None], *, reload: bool = True) -> Invoice:
    """Run `act` under the lock of the invoice's subscription, on the row as it is after the lock was taken."""
    ref = Invoice.objects.filter(pk=invoice_id).values_list("subscription_ref", flat=True).first()
    if ref is None:
        raise NotFound(resource="invoice", ref=invoice_id)
    try:
        with transaction.atomic(), try_advisory_lock(invoice_key(ref)) as lock:
            invoice = Invoice.objects.filter(pk=invoice_id).first()
            if invoice is None:
                raise NotFound(resource="invoice", ref=invoice_id)
            act(lock, invoice)
            if reload:
                invoice.refresh_from_db()
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
    return invoice


def _move(invoice: Invoice, state: Invoice.State, at_column: str, origins: set[Invoice.State]) -> None:
    if invoice.state not in origins:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted=state.value)
    Invoice.objects.filter(pk=invoice.pk).update(**{"state": state, at_column: timezone.now()})


def finalizing(invoice: Invoice) -> Finalizing:
    """What finalisation has to know of a draft, read from its rows."""
    customer = Customer.objects.get(pk=invoice.customer_id)
    carried = Line.objects.filter(invoice_id=invoice.pk, kind="carried")
    return Finalizing(
        invoice_id=invoice.pk,
        subscription_id=invoice.subscription_id,
        subscription_ref=invoice.subscription_ref,
        currency=invoice.currency,
        total_minor=invoice.total_minor,
        own_note_minor=sum(line.amount_minor + int(line.rating["tax_minor"]) for line in carried),
        series=invoice.series,
        terms_days=customer.terms_days,
        time_zone=customer.time_zone,
        holder_id=customer.holder_id,
        credit_type=customer.credit_type,
        credit_unit_value=customer.credit_unit_value,
    )


def last_number(series: str = "INV") -> int:
    """The last number given in a series, 0 when there is none; for showing and checking."""
    row = NumberSeries.objects.filter(name=series).first()
    return row.last_value if row else 0
