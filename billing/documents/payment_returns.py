"""Records money of a payment that went back: a refund, or a dispute."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import Sum
from django.utils import timezone

from billing.documents.credit_payments import pay_with_deposits_under
from billing.documents.credit_refunds import NewCreditRefund, take
from billing.documents.credit_rests import Rest, account_turn, open_credit
from billing.documents.invoice_locks import payment_key
from billing.documents.invoice_payments import set_paid_under
from billing.errors import AlreadyExists, ReturnExceedsPayment
from billing.models import CreditNote, CreditNoteUse, Customer, InvoicePayment, PaymentReturn
from billing.models.columns import first_of
from billing.rating.limits import MAX_MINOR, check_past
from billing.rating.values import CREDIT, PaymentId
from ledger.database.transactions import locked_transaction
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REASON_CHARACTERS, Choice, EntryNumber, Integer, Text, Time


@dataclass(frozen=True, kw_only=True)
class NewPaymentReturn(Record):
    """Money of an invoice's payment that went back."""

    invoice_payment: Annotated[int, EntryNumber("The payment, by its id.")]
    kind: Annotated[
        str,
        Choice(
            PaymentReturn.Kind.values,
            "`refund`: you returned money. `dispute`: the customer's bank took it. A dispute that you won is a new payment.",
        ),
    ]
    payment: Annotated[str, PaymentId("The provider's or bank's id of the refund or dispute.")]
    amount_minor: Annotated[
        int | None,
        Integer("In minor units; by default all that was not returned yet.", least=1, most=MAX_MINOR, null=True),
    ] = None
    returned_at: Annotated[datetime | None, Time("When; now by default.", null=True)] = None
    reason: Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        check_past("/returned_at", self.returned_at)


def payment_of(payment_id: int) -> InvoicePayment:
    """Return the payment that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(InvoicePayment.objects.filter(pk=payment_id), "payment", payment_id)


def returned_minor(payment_id: int) -> int:
    """Return how much of a payment went back, in minor units."""
    found: int | None = PaymentReturn.objects.filter(invoice_payment_id=payment_id).aggregate(sum=Sum("amount_minor"))["sum"]
    return found or 0


def _record(request: NewPaymentReturn) -> PaymentReturn:
    """Record returned money of a payment, or return the row that this refund or dispute has; or raise and write nothing.

    It takes the credit that the money has become: the payment's deposit, then credit notes about the invoice. After that the
    invoice is due again, and other deposits of the customer pay it. What is more than both is a claim: its credit has paid other
    invoices, or was paid out. A payment by credit moved no money, so nothing of it goes back.

    Raises:
        NotFound: the payment does not exist.
        ReturnExceedsPayment: less of the payment is left.
        AlreadyExists: this refund or dispute was recorded with another amount.
        HolderBusy: another process has the invoice's payments or the customer's credit; nothing was written.
    """
    paid = payment_of(request.invoice_payment)
    with locked_transaction(payment_key(paid.invoice_id)) as lock:
        named = PaymentReturn.objects.filter(invoice_payment_id=paid.pk, kind=request.kind, payment=request.payment)
        known = named.first()
        if known is not None:
            if request.amount_minor not in (None, known.amount_minor):
                raise AlreadyExists(resource=f"{known.kind} of payment", ref=str(paid.pk))
            return known
        left_minor = 0 if paid.provider == CREDIT else paid.amount_minor - returned_minor(paid.pk)
        amount_minor = request.amount_minor or left_minor
        if not 1 <= amount_minor <= left_minor:
            raise ReturnExceedsPayment(payment=paid.pk, returnable_minor=left_minor)
        credit_minor, refund_id = _taken_from_credit(paid, amount_minor, request)
        reopened_minor = min(amount_minor - credit_minor, _applied_left(paid))
        made = PaymentReturn.objects.create(
            invoice_payment_id=paid.pk,
            kind=request.kind,
            payment=request.payment,
            amount_minor=amount_minor,
            credit_minor=credit_minor,
            credit_refund_id=refund_id,
            reopened_minor=reopened_minor,
            claim_minor=amount_minor - credit_minor - reopened_minor,
            returned_at=request.returned_at or timezone.now(),
            reason=request.reason,
            actor=request.actor,
        )
        if reopened_minor:
            set_paid_under(lock, paid.invoice_id)
            pay_with_deposits_under(lock, paid.invoice_id, actor=request.actor)
        made.refresh_from_db()
        return made


record_payment_return = UseCase(NewPaymentReturn, _record)


def _taken_from_credit(paid: InvoicePayment, amount_minor: int, request: NewPaymentReturn) -> tuple[int, int | None]:
    """Pay out credit that the payment has become, as far as it is there. Return the amount, and the refund's id.

    Credit of the invoice's notes belongs to the money that paid the invoice, so a void invoice and a payment that paid nothing
    of it take none.
    """
    customer = Customer.objects.get(pk=paid.customer_id)
    with account_turn(customer.ref):
        rests = {rest.note_id: rest for rest in open_credit(paid.customer_id, paid.currency)}
        notes = CreditNote.objects.filter(pk__in=rests, invoice_id=paid.invoice_id).order_by("pk").values_list("pk", flat=True)
        own: list[Rest] = [rests[pk] for pk in (paid.deposit_id,) if pk in rests]
        wanted = [(own, amount_minor), ([rests[pk] for pk in notes], _applied_left(paid))]
        taken: list[Rest] = []
        left_minor = amount_minor
        for found, most_minor in wanted:
            room_minor = min(left_minor, most_minor)
            for rest in found:
                part_minor = min(rest.left_minor, room_minor)
                if part_minor:
                    taken.append(Rest(rest.note_id, part_minor))
                    room_minor, left_minor = room_minor - part_minor, left_minor - part_minor
        if not taken:
            return 0, None
        refund = NewCreditRefund(
            amount_minor=amount_minor - left_minor,
            reason=request.reason or f"{request.kind} of payment {paid.pk}",
            reference=request.payment,
        )
        return refund.amount_minor, take(customer, paid.currency, taken, refund, request.actor).pk


def _applied_left(paid: InvoicePayment) -> int:
    """Return what the payment still pays of the invoice: without what went back of that, due again or as credit of a note."""
    returns = PaymentReturn.objects.filter(invoice_payment_id=paid.pk)
    reopened = returns.aggregate(sum=Sum("reopened_minor"))["sum"] or 0
    noted = CreditNoteUse.objects.filter(refund_id__in=returns.values("credit_refund_id"))
    if paid.deposit_id is not None:
        noted = noted.exclude(credit_note_id=paid.deposit_id)
    return paid.applied_minor - int(reopened) - int(noted.aggregate(sum=Sum("amount_minor"))["sum"] or 0)
