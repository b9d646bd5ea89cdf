"""Sets credit of a customer against an invoice that is open: credit that was not there when the invoice was finalised.

The credit leaves its notes and deposits as a refund, and comes in as a payment of the provider `credit`, in one transaction: so
all sums of both hold, and no money moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from django.utils import timezone

from billing.documents.credit_refunds import NewCreditRefund, take
from billing.documents.credit_rests import Rest, account_turn, open_credit
from billing.documents.invoice_locks import payment_key
from billing.documents.invoice_payments import set_paid_under
from billing.errors import CreditPaymentExceeds, InvalidTransition
from billing.models import INVOICE, CreditNote, Customer, Invoice, InvoicePayment
from billing.models.columns import first_of
from billing.rating.limits import MAX_MINOR
from billing.rating.values import CREDIT
from ledger.database.locks import Lock
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REASON_CHARACTERS, EntryNumber, Integer, Text

PAYABLE = (Invoice.State.OPEN, Invoice.State.UNCOLLECTIBLE)


@dataclass(frozen=True, kw_only=True)
class NewCreditPayment(Record):
    """Credit of a customer that is set against an invoice."""

    invoice: Annotated[int, EntryNumber("The invoice, by its id.")]
    credit_note: Annotated[
        int | None,
        EntryNumber("The credit note or deposit to take it from, by its id; by default, the oldest come first.", null=True),
    ] = None
    amount_minor: Annotated[
        int | None,
        Integer(
            "In minor units; by default as much as is left of the credit and still to be paid.",
            least=1,
            most=MAX_MINOR,
            null=True,
        ),
    ] = None
    reason: Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _pay(request: NewCreditPayment) -> InvoicePayment:
    """Set credit of the customer against an invoice, and return the payment; or raise and write nothing.

    Raises:
        NotFound: the invoice does not exist.
        InvalidTransition: it is neither open nor uncollectible.
        Invalid: the customer has no such credit note or deposit in the invoice's currency.
        CreditPaymentExceeds: less than the amount is left of the credit, or still to be paid.
        HolderBusy: another process has the invoice's payments or the customer's credit; nothing was written.
    """
    with locked_transaction(payment_key(request.invoice)) as lock:
        invoice = first_of(Invoice.objects.filter(pk=request.invoice), INVOICE.word, request.invoice)
        if invoice.state not in PAYABLE:
            raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="paid")
        customer = Customer.objects.get(pk=invoice.customer_id)
        with account_turn(customer.ref):
            rests = _rests_of(invoice, request.credit_note)
            most_minor = min(sum(rest.left_minor for rest in rests), invoice.amount_remaining_minor)
            amount_minor = request.amount_minor or most_minor
            if not 1 <= amount_minor <= most_minor:
                raise CreditPaymentExceeds(
                    invoice=invoice.pk,
                    remaining_minor=invoice.amount_remaining_minor,
                    left_minor=sum(rest.left_minor for rest in rests),
                )
            return _write(lock, invoice, customer, rests, amount_minor, reason=request.reason, actor=request.actor)


pay_with_credit = UseCase(NewCreditPayment, _pay)


def pay_with_deposits_under(lock: Lock, invoice_id: int, *, actor: str) -> InvoicePayment | None:
    """Set the customer's deposits against what an invoice is due again; return the payment, or None if there is no deposit.

    Args:
        lock: of the invoice's payments.
    """
    lock.ensure_held(payment_key(invoice_id))
    invoice = Invoice.objects.get(pk=invoice_id)
    if invoice.state not in PAYABLE or not _has_deposit(invoice):
        return None
    customer = Customer.objects.get(pk=invoice.customer_id)
    with account_turn(customer.ref):
        rests = open_credit(invoice.customer_id, invoice.currency)
        deposits = CreditNote.objects.filter(pk__in=[rest.note_id for rest in rests], kind=CreditNote.Kind.DEPOSIT)
        kept = set(deposits.values_list("pk", flat=True))
        rests = [rest for rest in rests if rest.note_id in kept]
        amount_minor = min(sum(rest.left_minor for rest in rests), invoice.amount_remaining_minor)
        if amount_minor < 1:
            return None
        return _write(lock, invoice, customer, rests, amount_minor, reason="", actor=actor)


def _has_deposit(invoice: Invoice) -> bool:
    """Return whether the customer seems to have a deposit: seen before the lock, which others need not wait for then."""
    notes = CreditNote.objects.filter(customer_id=invoice.customer_id, currency=invoice.currency, kind=CreditNote.Kind.DEPOSIT)
    return notes.filter(left_minor__gt=0, released_at=None).exists()


def _rests_of(invoice: Invoice, note_id: int | None) -> list[Rest]:
    rests = open_credit(invoice.customer_id, invoice.currency)
    if note_id is None:
        return rests
    notes = CreditNote.objects.filter(pk=note_id, customer_id=invoice.customer_id, currency=invoice.currency)
    if not notes.exists():
        detail = f"the customer of invoice {invoice.pk} has no credit note or deposit in {invoice.currency} with this id"
        raise Invalid(pointer="/credit_note", rule="exists", detail=detail)
    return [rest for rest in rests if rest.note_id == note_id]


def _write(
    lock: Lock, invoice: Invoice, customer: Customer, rests: Sequence[Rest], amount_minor: int, *, reason: str, actor: str
) -> InvoicePayment:
    number = invoice.number or str(invoice.pk)
    request = NewCreditRefund(amount_minor=amount_minor, reason=reason or f"Set against {number}", reference=number)
    refund = take(customer, invoice.currency, rests, request, actor)
    made = InvoicePayment.objects.create(
        invoice_id=invoice.pk,
        customer_id=invoice.customer_id,
        provider=CREDIT,
        payment=f"credit-refund-{refund.pk}",
        currency=invoice.currency,
        amount_minor=amount_minor,
        applied_minor=amount_minor,
        credit_refund_id=refund.pk,
        paid_at=timezone.now(),
        reference=reason[:200],
        actor=actor,
    )
    set_paid_under(lock, invoice.pk)
    made.refresh_from_db()
    return made
