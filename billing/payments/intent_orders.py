"""Records that a provider is asked for money, to give an intent up, or to send money back. `advancing` sends it."""

import uuid
from dataclasses import dataclass
from typing import Annotated, Final

from django.db.models import Sum
from django.utils import timezone

from billing.models import Customer, Invoice
from billing.models.columns import first_of
from billing.orders.erasure import is_erased
from billing.payments.advancing import advance_soon, purchase_of, returned_minor_of
from billing.payments.errors import InvoiceInCollection, NotPayable, PaymentIntentClosed, RefundExceedsIntent
from billing.payments.models import OPEN_INTENT, PaymentIntent, ProviderRefund
from billing.payments.packs import MAX_PACKS, MAX_VERSION, ensure_quantity, pack_on_sale
from billing.payments.providers.configured import able, provider
from billing.payments.providers.interface import FAILED, STRIPE, SUCCEEDED, KeepsMethods, SendsMoneyBack
from billing.rating.limits import MAX_MINOR
from billing.rating.values import MANUAL, Ref
from ledger.database.lock_names import PAYMENT_INTENT
from ledger.database.transactions import locked_transaction, own_or_joined
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCE_CHARACTERS,
    Boolean,
    EntryNumber,
    Holder,
    Integer,
    Text,
)

MAX_URL_CHARACTERS: Final = 2000


@dataclass(frozen=True, kw_only=True)
class NewPaymentIntent(Record):
    """Money that a provider is asked for: by a checkout, or from a saved method."""

    either = (("pack", "holder_id"), ("invoice",))

    pack: Annotated[str | None, Ref("The pack to pay for …")] = None
    holder_id: Annotated[str | None, Holder("… and who gets its credits.")] = None
    invoice: Annotated[int | None, EntryNumber("Instead of a pack: the open invoice to pay, by its id.")] = None
    version: Annotated[
        int | None,
        Integer("Of the pack; by default the one on sale.", least=1, most=MAX_VERSION, null=True),
    ] = None
    quantity: Annotated[int, Integer("How many packs.", least=1, most=MAX_PACKS)] = 1
    provider: Annotated[
        str, Text("Who takes the money; `manual`: the customer transfers it to the seller's account.", most=32, least=1)
    ] = STRIPE
    customer: Annotated[
        str | None, Ref("Who pays a pack; needed for a saved method, to save one, and for a transfer.", null=True)
    ] = None
    method: Annotated[
        str | None,
        Text("The saved method to charge, by the provider's id; without it, a checkout.", most=200, least=1, null=True),
    ] = None
    customer_present: Annotated[bool, Boolean("The customer is there to confirm a charge that the bank asks about.")] = False
    saves_method: Annotated[bool, Boolean("The checkout saves the method for later charges.")] = False
    return_url: Annotated[
        str | None,
        Text("Where the browser goes after the checkout or the confirmation; a checkout and `customer_present` need it.",
             most=MAX_URL_CHARACTERS, pattern="https?://[!-~]+", rule="url", null=True),
    ] = None  # fmt: skip
    top_up: Annotated[int | None, EntryNumber("The top-up that asks for it.", null=True)] = None
    reference: Annotated[str, Text("What it belongs to in your books.", most=MAX_REFERENCE_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        if self.method is not None and self.saves_method:
            raise Invalid(pointer="/saves_method", rule="not-both", detail="the method is saved already")
        if (self.method is not None or self.saves_method) and self.invoice is None and self.customer is None:
            raise Invalid(pointer="/customer", rule="required", detail="a saved method belongs to a customer")
        if self.invoice is not None and (self.customer is not None or self.version is not None or self.quantity != 1):
            raise Invalid(pointer="/invoice", rule="not-both", detail="an invoice has its customer, and no packs")


@dataclass(frozen=True, kw_only=True)
class NewCancellation(Record):
    """An intent to give up."""

    intent: Annotated[int, EntryNumber("The payment intent, by its id.")]


@dataclass(frozen=True, kw_only=True)
class NewProviderRefund(Record):
    """Money of a payment intent to send back."""

    intent: Annotated[int, EntryNumber("The payment intent, by its id.")]
    amount_minor: Annotated[
        int | None, Integer("In minor units; by default all that was not sent back.", least=1, most=MAX_MINOR, null=True)
    ] = None
    reason: Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _record(request: NewPaymentIntent) -> PaymentIntent:
    """Record the intent, which is due at once. Raises: as `order_payment`."""
    _ensure_possible(request)
    fields = _of_invoice(request) if request.invoice is not None else _of_pack(request)
    key = uuid.uuid4().hex
    new = PaymentIntent(
        key=key,
        provider=request.provider,
        method=request.method or "",
        customer_present=request.customer_present,
        saves_method=request.saves_method,
        top_up_id=request.top_up,
        return_url=request.return_url or "",
        reference=request.reference,
        actor=request.actor,
        due_at=timezone.now(),
        **fields,
    )
    with own_or_joined():
        # Of two intents for one invoice at the same time, the index on open ones takes one.
        PaymentIntent.objects.bulk_create([new], ignore_conflicts=True)
        intent = PaymentIntent.objects.filter(key=key).first()
        if intent is None:
            raise _in_collection(request.invoice)
    return intent


def _order(request: NewPaymentIntent) -> PaymentIntent:
    """Record the intent, or raise and write nothing. When it is committed, a worker asks the provider.

    Raises:
        Invalid: the pack, version, customer or provider does not exist.
        NotFound: the invoice does not exist.
        NotPayable: the invoice is not open, or nothing is due.
        InvoiceInCollection: an intent for the invoice is open.
    """
    with own_or_joined():
        intent = _record(request)
        advance_soon(intent)
    return intent


order_payment = UseCase(NewPaymentIntent, _order)


def _ensure_possible(request: NewPaymentIntent) -> None:
    """Return if the provider can take the money in this way, or raise `Invalid`."""
    if request.method is not None or request.saves_method:
        able(request.provider, KeepsMethods)
    if not provider(request.provider).has_page:
        if request.customer is None and request.invoice is None:
            detail = "what is transferred beyond the price becomes the customer's credit"
            raise Invalid(pointer="/customer", rule="required", detail=detail)
        if request.return_url is not None or request.customer_present:
            name = "customer_present" if request.customer_present else "return_url"
            raise Invalid(pointer=f"/{name}", rule="not-used", detail="the provider has no page to which the customer goes")
    elif (request.method is None or request.customer_present) and request.return_url is None:
        raise Invalid(pointer="/return_url", rule="required", detail="the customer comes back to it")


def _in_collection(invoice_id: int | None) -> InvoiceInCollection:
    intent_id = PaymentIntent.objects.filter(invoice_id=invoice_id, state__in=OPEN_INTENT).values_list("pk", flat=True).first()
    return InvoiceInCollection(invoice=invoice_id or 0, payment_intent=intent_id or 0)


def _of_pack(request: NewPaymentIntent) -> dict[str, object]:
    pack = pack_on_sale(request.pack or "", timezone.now(), request.version)
    customer = None
    if request.customer is not None:
        customer = Customer.objects.filter(ref=request.customer).first()
        if customer is None:
            raise Invalid(pointer="/customer", rule="exists", detail=f"customer {request.customer!r} does not exist")
        _ensure_not_erased(customer, request, "/customer")
    ensure_quantity(pack, request.quantity)
    return {
        "pack_id": pack.pk, "quantity": request.quantity, "holder_id": request.holder_id, "customer_id": customer and customer.pk,
        "currency": pack.currency, "amount_minor": pack.price_minor * request.quantity,
    }  # fmt: skip


def _of_invoice(request: NewPaymentIntent) -> dict[str, object]:
    assert request.invoice is not None
    invoice = first_of(Invoice.objects.filter(pk=request.invoice), "invoice", request.invoice)
    if invoice.state != Invoice.State.OPEN or not invoice.amount_remaining_minor:
        raise NotPayable(invoice=invoice.pk, state=invoice.state)
    _ensure_not_erased(Customer.objects.get(pk=invoice.customer_id), request, "/invoice")
    return {
        "invoice_id": invoice.pk, "customer_id": invoice.customer_id, "currency": invoice.currency,
        "amount_minor": invoice.amount_remaining_minor,
    }  # fmt: skip


def _ensure_not_erased(customer: Customer, request: NewPaymentIntent, pointer: str) -> None:
    """A checkout asks the person who pays; a saved method of somebody who was erased is neither charged nor kept."""
    if (request.method is not None or request.saves_method) and is_erased(customer):
        raise Invalid(pointer=pointer, rule="erased", detail=f"customer {customer.ref!r} was erased")


def intent_of(intent_id: int) -> PaymentIntent:
    """Return the intent that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(PaymentIntent.objects.filter(pk=intent_id), "payment intent", intent_id)


def _cancel(request: NewCancellation) -> PaymentIntent:
    """Record that an open intent is given up, or raise and write nothing. When it is committed, a worker asks the provider.

    If the customer has paid in the meantime, the intent succeeds all the same.

    Raises:
        NotFound: the intent does not exist.
        PaymentIntentClosed: it has succeeded, failed or was given up.
    """
    intent_of(request.intent)
    with locked_transaction(PAYMENT_INTENT(str(request.intent))):
        intent = intent_of(request.intent)
        if intent.state not in OPEN_INTENT:
            raise PaymentIntentClosed(payment_intent=intent.pk, state=intent.state)
        intent.is_canceled, intent.due_at = True, timezone.now()
        intent.save(update_fields=["is_canceled", "due_at"])
        advance_soon(intent)
    return intent


cancel_intent = UseCase(NewCancellation, _cancel)


def _refund(request: NewProviderRefund) -> ProviderRefund:
    """Record the refund, or raise and write nothing. When it is committed, a worker asks the provider to send the money.

    Raises:
        NotFound: the intent does not exist.
        Invalid: its provider sends no money back.
        RefundExceedsIntent: less of its money is here.
    """
    able(intent_of(request.intent).provider, SendsMoneyBack, "/intent")
    with locked_transaction(PAYMENT_INTENT(str(request.intent))):
        intent = intent_of(request.intent)
        left = refundable_minor(intent)
        amount = request.amount_minor or left
        if amount < 1 or amount > left:
            raise RefundExceedsIntent(payment_intent=intent.pk, refundable_minor=left)
        refund = ProviderRefund.objects.create(
            key=uuid.uuid4().hex, intent_id=intent.pk, amount_minor=amount, reason=request.reason, actor=request.actor,
            due_at=timezone.now(),
        )  # fmt: skip
        refund.refresh_from_db()
    return refund


refund_intent = UseCase(NewProviderRefund, _refund)


def refundable_minor(intent: PaymentIntent) -> int:
    """Return how much of an intent's money is here and not asked back, in minor units."""
    if intent.state != SUCCEEDED:
        return 0
    purchase = purchase_of(intent)
    returned = intent.returned_minor if purchase is None else returned_minor_of(purchase)
    asked = ProviderRefund.objects.filter(intent_id=intent.pk).exclude(state__in=(FAILED, SUCCEEDED))
    return max(0, intent.amount_minor - returned - (asked.aggregate(sum=Sum("amount_minor"))["sum"] or 0))


def refundable_intent_of(invoice: Invoice) -> PaymentIntent | None:
    """Return the newest intent that paid the invoice and of whose money something is here; None if there is no such intent."""
    paid = PaymentIntent.objects.filter(invoice_id=invoice.pk, state=SUCCEEDED).exclude(provider=MANUAL).order_by("-pk")
    return next((intent for intent in paid if refundable_minor(intent) > 0), None)
