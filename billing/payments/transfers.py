"""Books a transfer that came in for an intent of the provider `manual`: it buys the pack, or pays the invoice."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.utils import timezone

from billing.documents.credit_refunds import deposit_in
from billing.documents.invoice_payments import record_payment
from billing.errors import AlreadyExists
from billing.models import CreditNote, InvoicePayment
from billing.payments.advancing import apply_under, order_of
from billing.payments.errors import PaymentIntentClosed, TransferTooSmall
from billing.payments.intent_orders import intent_of
from billing.payments.models import OPEN_INTENT, PaymentIntent, Purchase
from billing.payments.providers.configured import provider
from billing.payments.providers.interface import SUCCEEDED, Found
from billing.rating.limits import MAX_MINOR, check_past
from billing.rating.values import MANUAL, Currency, PaymentId
from ledger.database.lock_names import PAYMENT_INTENT, PURCHASE_PAYMENT
from ledger.database.locks import Lock
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REFERENCE_CHARACTERS, EntryNumber, Integer, Text, Time


@dataclass(frozen=True, kw_only=True)
class NewTransfer(Record):
    """A transfer that came in for a payment intent of the provider `manual`."""

    intent: Annotated[int, EntryNumber("The payment intent, by its id.")]
    payment: Annotated[str, PaymentId("The bank's id of the transfer. It is recorded once.")]
    amount_minor: Annotated[int, Integer("What came in, in minor units.", least=1, most=MAX_MINOR)]
    currency: Annotated[str | None, Currency("That of the intent, which is the default.", null=True)] = None
    paid_at: Annotated[datetime | None, Time("When the money was in; now by default.", null=True)] = None
    reference: Annotated[
        str, Text("The text of the transfer. A purchase has the reference of its intent.", most=MAX_REFERENCE_CHARACTERS)
    ] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        check_past("/paid_at", self.paid_at)


def _book(request: NewTransfer) -> PaymentIntent:
    """Book the transfer, or return the intent if that was done; or raise and write nothing.

    Of an invoice it pays what is due, also a part of it, and the intent succeeds when the invoice is paid. A pack is bought by
    one transfer of its price or more. What is more is the customer's credit.

    Raises:
        NotFound: the intent does not exist.
        Invalid: the intent belongs to another provider, or is in another currency.
        PaymentIntentClosed: the pack's intent is paid by another transfer, or was given up.
        TransferTooSmall: it is less than the pack costs.
        AlreadyExists: the payment is recorded for something else, or with other content.
    """
    intent_of(request.intent)
    with (
        locked_transaction(PAYMENT_INTENT(str(request.intent))) as lock,
        locked_transaction(PURCHASE_PAYMENT(MANUAL, request.payment)),
    ):
        intent = intent_of(request.intent)
        ensure_transferable(intent, request.currency)
        if intent.invoice_id is not None:
            _pay_invoice(lock, intent, request)
        elif not _is_booked(intent, request):
            ensure_buys(intent, request.amount_minor)
            _buy(lock, intent, request)
    return intent_of(request.intent)


book_transfer = UseCase(NewTransfer, _book)


def ensure_transferable(intent: PaymentIntent, currency: str | None) -> None:
    """Return if a transfer in this currency may be booked for an intent, or raise `Invalid`."""
    if intent.provider != MANUAL:
        raise Invalid(pointer="/intent", rule="other-provider", detail=f"{intent.provider} takes the money of {intent}")
    if currency not in (None, intent.currency):
        raise Invalid(pointer="/currency", rule="other-currency", detail=f"the intent is in {intent.currency}")


def ensure_buys(intent: PaymentIntent, amount_minor: int) -> None:
    """Return if a transfer of this amount buys the pack of an intent, or raise what `book_transfer` raises."""
    if intent.state not in OPEN_INTENT or intent.is_canceled:
        raise PaymentIntentClosed(payment_intent=intent.pk, state="canceled" if intent.is_canceled else intent.state)
    if amount_minor < intent.amount_minor:
        raise TransferTooSmall(payment_intent=intent.pk, asked_minor=intent.amount_minor, received_minor=amount_minor)


def _pay_invoice(lock: Lock, intent: PaymentIntent, request: NewTransfer) -> None:
    """Record the payment, whatever became of the intent: the money is for the invoice."""
    record_payment(
        invoice=intent.invoice_id, provider=MANUAL, payment=request.payment, amount_minor=request.amount_minor,
        currency=intent.currency, paid_at=request.paid_at, reference=request.reference, actor=request.actor,
    )  # fmt: skip
    if intent.state in OPEN_INTENT:
        apply_under(lock, intent, provider(MANUAL).find(order_of(intent)))


def _is_booked(intent: PaymentIntent, request: NewTransfer) -> bool:
    """Return whether this transfer has bought the pack; raise `AlreadyExists` if it has paid for something else."""
    named = {"provider": MANUAL, "payment": request.payment}
    recorded = Purchase.objects.filter(**named).first() or InvoicePayment.objects.filter(**named).first()
    if recorded is None:
        return False
    assert intent.customer_id is not None
    rest = CreditNote.objects.filter(customer_id=intent.customer_id, reference=_deposit_name(request.payment)).first()
    amount_minor = intent.amount_minor + (rest.amount_minor if rest else 0)
    is_same = (intent.payment, amount_minor) == (request.payment, request.amount_minor)
    if not is_same or request.paid_at not in (None, recorded.paid_at):
        raise AlreadyExists(resource="payment", ref=str(recorded.pk))
    return True


def _deposit_name(payment: str) -> str:
    return f"{MANUAL} {payment}"[:MAX_REFERENCE_CHARACTERS]


def _buy(lock: Lock, intent: PaymentIntent, request: NewTransfer) -> None:
    rest_minor = request.amount_minor - intent.amount_minor
    if rest_minor:
        assert intent.customer_id is not None
        deposit_in(
            customer_id=intent.customer_id, currency=intent.currency, amount_minor=rest_minor,
            reference=_deposit_name(request.payment), actor=request.actor,
        )  # fmt: skip
    apply_under(
        lock,
        intent,
        Found(
            state=SUCCEEDED, checkout=intent.checkout, payment=request.payment, received_minor=intent.amount_minor,
            currency=intent.currency, paid_at=request.paid_at or timezone.now(),
        ),
    )  # fmt: skip
