"""Records money that came in for an invoice. What exceeds the amount due becomes a deposit of the customer.

Note [The lock of payments]
    Whatever changes what is due or paid of a finalised invoice holds `payment/<invoice>`: a payment, its return, a void, a credit
    note. A payment waits for no lock of the subscription, so it never meets a run of the generator.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from billing import additions
from billing.documents.credit_refunds import deposit_in
from billing.documents.invoice_locks import locked_invoice, payment_key
from billing.documents.payment_matching import invoices_named_in
from billing.errors import AlreadyExists, InvalidTransition, PaymentNotMatched
from billing.models import INVOICE, Invoice, InvoicePayment
from billing.models.columns import first_of
from billing.orders.starting import starting_if_paid
from billing.rating.limits import MAX_MINOR, check_past
from billing.rating.values import CREDIT, MANUAL, Currency, PaymentId, Provider
from ledger.database.lock_names import PURCHASE_PAYMENT
from ledger.database.locks import Lock, advisory_lock
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REFERENCE_CHARACTERS, EntryNumber, Integer, Text, Time

# The state follows from what is paid; a trigger compares both with the payments.
SET_PAID = """
    UPDATE billing_invoice AS invoice
    SET amount_paid_minor = paid.minor, payment_changes = payment_changes + 1,
        state = CASE
            WHEN paid.minor = amount_due_minor THEN 'paid' WHEN uncollectible_at IS NOT NULL THEN 'uncollectible' ELSE 'open' END,
        paid_at = CASE WHEN paid.minor = amount_due_minor THEN coalesce(paid_at, clock_timestamp()) END
    FROM (SELECT billing_paid_minor(%(id)s) AS minor) AS paid
    WHERE invoice.id = %(id)s
"""


@dataclass(frozen=True, kw_only=True)
class NewPayment(Record):
    """Money that came in for an invoice."""

    invoice: Annotated[
        int | None,
        EntryNumber("The invoice, by its id; by default the one whose number stands in `reference`.", null=True),
    ] = None
    provider: Annotated[str, Provider("Who took the money, such as paypal; `manual` for money that somebody booked by hand.")] = (
        MANUAL
    )
    payment: Annotated[str, PaymentId("The provider's or bank's id of the payment. It is recorded once.")]
    amount_minor: Annotated[int, Integer("In minor units.", least=1, most=MAX_MINOR)]
    currency: Annotated[str | None, Currency("That of the invoice, which is the default.", null=True)] = None
    paid_at: Annotated[datetime | None, Time("When the money was in; now by default.", null=True)] = None
    reference: Annotated[str, Text("The text of the payment.", most=MAX_REFERENCE_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        check_past("/paid_at", self.paid_at)
        if self.provider == CREDIT:
            raise Invalid(pointer="/provider", rule="reserved", detail="credit of the customer is set against an invoice")


def _record(request: NewPayment) -> InvoicePayment:
    """Record the payment of an invoice, or return the one with this id; or raise and write nothing.

    It pays the invoice as far as something is due; the rest is a deposit, which pays the customer's next invoices.

    Raises:
        NotFound, InvalidTransition: the invoice does not exist, or is a draft.
        PaymentNotMatched: the request names no invoice, and the text names none or several.
        Invalid: the invoice is in another currency.
        AlreadyExists: the payment is recorded with other content, or has paid for something else, such as a purchase.
        HolderBusy: another process has the invoice's payments, for longer than lock_timeout; nothing was written.
    """
    with locked_transaction(PURCHASE_PAYMENT(request.provider, request.payment)):
        known = InvoicePayment.objects.filter(provider=request.provider, payment=request.payment).first()
        if known is not None:
            return _ensure_same(known, request)
        other = additions.find_payment(request.provider, request.payment)
        if other is not None:
            raise AlreadyExists(resource=other[0], ref=other[1])
        invoice_id = request.invoice or _match_invoice(request.reference)
        with advisory_lock(payment_key(invoice_id)) as lock:
            return record_under(lock, first_of(Invoice.objects.filter(pk=invoice_id), INVOICE.word, invoice_id), request)


record_payment = UseCase(NewPayment, _record)


def record_under(lock: Lock, invoice: Invoice, request: NewPayment) -> InvoicePayment:
    """Record a new payment of an invoice, which was read under the lock of its payments; or raise and write nothing."""
    lock.ensure_held(payment_key(invoice.pk))
    if invoice.state == Invoice.State.DRAFT:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="paid")
    if request.currency not in (None, invoice.currency):
        raise Invalid(pointer="/currency", rule="other-currency", detail=f"the invoice is in {invoice.currency}")
    applied_minor = min(request.amount_minor, invoice.amount_remaining_minor)
    deposit = None
    if applied_minor < request.amount_minor:
        deposit = deposit_in(
            customer_id=invoice.customer_id,
            currency=invoice.currency,
            amount_minor=request.amount_minor - applied_minor,
            reference=f"{request.provider} {request.payment}"[:MAX_REFERENCE_CHARACTERS],
            actor=request.actor,
        )
    made = InvoicePayment.objects.create(
        invoice_id=invoice.pk,
        customer_id=invoice.customer_id,
        provider=request.provider,
        payment=request.payment,
        currency=invoice.currency,
        amount_minor=request.amount_minor,
        applied_minor=applied_minor,
        deposit_id=None if deposit is None else deposit.pk,
        paid_at=request.paid_at or timezone.now(),
        reference=request.reference,
        actor=request.actor,
    )
    if applied_minor:
        set_paid_under(lock, invoice.pk)
    made.refresh_from_db()
    return made


def set_paid_under(lock: Lock, invoice_id: int) -> None:
    """Write what is paid of an invoice, and the state that follows from it, after a payment or return was written."""
    lock.ensure_held(payment_key(invoice_id))
    with starting_if_paid(invoice_id), connection.cursor() as cursor:
        cursor.execute(SET_PAID, {"id": invoice_id})


def pay_rest(invoice_id: int, actor: str = "billing") -> Invoice:
    """Mark an open or uncollectible invoice as paid: record a payment of what is due; or raise and change nothing.

    Raises:
        NotFound, InvalidTransition: the invoice does not exist, or is neither open nor uncollectible.
        InvoiceGenerationBusy: another process makes invoices of the subscription.
    """
    with locked_invoice(invoice_id) as (_, invoice), advisory_lock(payment_key(invoice_id)) as lock:
        pay_rest_under(lock, invoice, actor=actor)
        invoice.refresh_from_db()
    return invoice


def pay_rest_under(lock: Lock, invoice: Invoice, *, actor: str) -> InvoicePayment:
    """Record that all that is due of an invoice was paid by other means, or raise and write nothing.

    Raises:
        InvalidTransition: the invoice is neither open nor uncollectible.
    """
    if invoice.state not in {Invoice.State.OPEN, Invoice.State.UNCOLLECTIBLE}:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="paid")
    request = NewPayment(
        payment=f"marked-{uuid4()}",
        amount_minor=invoice.amount_remaining_minor,
        actor=actor,
    )
    return record_under(lock, invoice, request)


def _match_invoice(text: str) -> int:
    invoices = invoices_named_in(text)
    if len(invoices) != 1:
        raise PaymentNotMatched(invoices=[invoice.pk for invoice in invoices])
    return invoices[0].pk


def _ensure_same(known: InvoicePayment, request: NewPayment) -> InvoicePayment:
    given = (
        (request.invoice, known.invoice_id), (request.currency, known.currency), (request.paid_at, known.paid_at),
        (request.amount_minor, known.amount_minor), (request.reference, known.reference),
    )  # fmt: skip
    if any(wanted not in (None, found) for wanted, found in given):
        raise AlreadyExists(resource="payment", ref=str(known.pk))
    return known
