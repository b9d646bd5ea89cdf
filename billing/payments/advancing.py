"""Takes payment intents and refunds further: sends what is to be sent, asks how it stands, and applies what is found.

Note [Ask, then apply]
    The provider is asked without a transaction and without a lock; what it says is applied in one transaction under the lock of
    the intent. An event decides nothing but that it is time to ask. So events may come in any order, late, twice or never, and a
    process may end anywhere: the intent is due again, and the next process asks. What was applied once is not applied again,
    because a purchase is named by its payment, and a return by its refund or dispute.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from django.db import Error, transaction
from django.db.models import F, Q
from django.utils import timezone

from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.errors import AlreadyExists, ReturnExceedsPayment
from billing.models import Customer, Invoice, InvoicePayment
from billing.payments.buyers import buyer_of
from billing.payments.errors import ProviderRefused, ReturnExceedsPurchase
from billing.payments.models import OPEN_INTENT, Pack, PaymentIntent, ProviderRefund, Purchase, PurchaseReturn
from billing.payments.providers.configured import able, is_local, provider
from billing.payments.providers.interface import (
    CANCELED,
    FAILED,
    PROCESSING,
    REQUESTED,
    SUCCEEDED,
    Found,
    MoneyBack,
    Order,
    Provider,
    SendsMoneyBack,
)
from billing.payments.purchase_recording import record_purchase, record_return
from billing.payments.purchase_settling import failure_text, wait_after
from billing.rating.money import money_text
from ledger.database.lock_names import PAYMENT_INTENT, PURCHASE_PAYMENT
from ledger.database.locks import Lock
from ledger.database.transactions import after_commit, locked_transaction
from ledger.errors import LedgerError, Misuse

log = logging.getLogger(__name__)

LEASE_S: Final = 60
"""For how long other processes leave an intent to the one that asks about it."""
FRESH_S: Final = 5
"""For how long a reader is content with the last answer."""
Kind = PurchaseReturn.Kind


# Payment intents -------------------------------------------------------------------------------------


def advance(intent_id: int, *, now: bool = False) -> bool:
    """Take an intent a step further, if it is due and no other process has it; return whether that failed.

    See Note [Ask, then apply].

    Args:
        now: ask even if it is not due, because there is news.
    """
    intent = _lease(PaymentIntent, intent_id, now=now)
    return intent is not None and not _try(PaymentIntent, intent_id, lambda: _advance(intent))


def refresh(intent_id: int) -> None:
    """Have an open intent asked about soon, because somebody reads it; not if the last answer is fresh, or is just waited for.

    The reader does not wait: a provider that does not answer holds workers up, and nobody else.
    """
    now = timezone.now()
    stale = PaymentIntent.objects.filter(pk=intent_id, state__in=OPEN_INTENT).exclude(
        asked_at__gt=now - timedelta(seconds=FRESH_S)
    )
    name = stale.values_list("provider", flat=True).first()
    if name is not None and is_local(name):
        advance(intent_id, now=True)
    elif name is not None:
        is_leased = Q(due_at=F("asked_at") + timedelta(seconds=LEASE_S))
        stale.filter(due_at__gt=now).exclude(is_leased).update(due_at=now)


def advance_soon(intent: PaymentIntent) -> None:
    """Have an intent that is due asked about as soon as the open transaction has committed.

    Workers do that for providers on other machines: `collect_payments` looks twice a second.
    """
    if is_local(intent.provider):
        after_commit(advance, intent.pk)


def _advance(intent: PaymentIntent) -> None:
    adapter = provider(intent.provider)
    try:
        answer = _next(intent, adapter, order_of(intent))
    except ProviderRefused as refused:
        if PaymentIntent.objects.filter(pk=intent.pk).exclude(checkout="", payment="").exists():
            raise
        answer = Found(state=FAILED, error=refused.facts["why"])
    apply(intent.pk, answer)


def _next(intent: PaymentIntent, adapter: Provider, order: Order) -> Found:
    """Ask what comes next, and return how the order stands then."""
    is_given_up = intent.is_canceled or _is_void(intent.invoice_id)
    if not order.checkout and not order.payment:
        if is_given_up:
            # What a lost answer made, nobody can pay: its address was never shown, and a charge is not confirmed.
            return Found(state=CANCELED)
        answer = adapter.start(order)
        intent = _remember(intent.pk, answer)
        order = replace(order, checkout=answer.checkout, payment=answer.payment)
        if not intent.is_canceled and order.method:
            return _confirm(adapter, order)
        if not intent.is_canceled:
            return answer
    if intent.is_canceled or is_given_up:
        with suppress(ProviderRefused):  # it is over: find says how
            adapter.cancel(order)
        return adapter.find(order)
    answer = adapter.find(order)
    return _confirm(adapter, order) if answer.state == REQUESTED and order.method else answer


def _is_void(invoice_id: int | None) -> bool:
    """Return whether nobody is to pay the invoice of an intent any more."""
    return invoice_id is not None and Invoice.objects.filter(pk=invoice_id, state=Invoice.State.VOID).exists()


def _confirm(adapter: Provider, order: Order) -> Found:
    """Confirm a charge; a charge that the provider refuses to confirm takes no money."""
    try:
        return adapter.start(order)
    except ProviderRefused as refused:
        answer = adapter.find(order)
        return replace(answer, state=FAILED, error=refused.facts["why"]) if answer.state == REQUESTED else answer


def _remember(intent_id: int, answer: Found) -> PaymentIntent:
    """Put the provider's ids on record before anything further is asked, and return the intent as it is then."""
    with locked_transaction(PAYMENT_INTENT(str(intent_id))):
        # A transfer that was booked by now has named its payment.
        named = PaymentIntent.objects.filter(pk=intent_id, state__in=OPEN_INTENT)
        named.update(checkout=answer.checkout, payment=answer.payment)
        return PaymentIntent.objects.get(pk=intent_id)


def order_of(intent: PaymentIntent) -> Order:
    """Return what is asked of the provider for an intent."""
    needs_buyer = bool(intent.method or intent.saves_method)
    title = f"Invoice {Invoice.objects.values_list('number', flat=True).get(pk=intent.invoice_id)}" if intent.invoice_id else ""
    return Order(
        key=intent.key,
        amount_minor=intent.amount_minor,
        currency=intent.currency,
        title=title or _pack_of(intent).name,
        buyer=buyer_of(intent.provider, intent.customer_id) if needs_buyer and intent.customer_id else "",
        method=intent.method,
        is_present=intent.customer_present,
        return_url=intent.return_url,
        saves_method=intent.saves_method,
        checkout=intent.checkout,
        payment=intent.payment,
    )


def apply(intent_id: int, answer: Found) -> None:
    """Apply how an intent stands with the provider; or raise and write nothing.

    Raises:
        LedgerError: a purchase, transition or lock refused it; try again.
    """
    with locked_transaction(PAYMENT_INTENT(str(intent_id))) as lock:
        intent = PaymentIntent.objects.get(pk=intent_id)
        _lock_payments(intent, answer)
        apply_under(lock, intent, answer)


def _lock_payments(intent: PaymentIntent, answer: Found) -> None:
    """Take the locks of all payments that may be recorded for an invoice: they come before that of the invoice's payments."""
    names = [answer.payment or intent.payment, *(dispute.id for dispute in answer.disputes if dispute.is_won)]
    if intent.invoice_id is not None and all(names):
        with locked_transaction(*(PURCHASE_PAYMENT(intent.provider, name) for name in names)):
            return  # they are held until the transaction ends


def apply_under(lock: Lock, intent: PaymentIntent, answer: Found) -> None:
    """Apply how an intent stands, which was read under its lock; or raise and write nothing. Raises: as `apply`."""
    lock.ensure_held(PAYMENT_INTENT(str(intent.pk)))
    intent.checkout, intent.payment = answer.checkout or intent.checkout, answer.payment or intent.payment
    if intent.state != SUCCEEDED:
        intent.state, intent.url, intent.error = answer.state, answer.url, answer.error[:500]
        if answer.state == SUCCEEDED:
            _collect(intent, answer)
    if intent.state == SUCCEEDED:
        _apply_money_back(intent, answer)
    intent.due_at = _due_at(intent) if intent.state in OPEN_INTENT else None
    intent.save(update_fields=[name for name in PaymentIntent.CHANGES if name not in ("asked_at", "tries", "is_canceled")])


def _due_at(row: Any) -> Any:
    return timezone.now() + wait_after(row.tries)


def _pack_of(intent: PaymentIntent) -> Pack:
    assert intent.pack_id is not None
    return Pack.objects.get(pk=intent.pack_id)


def _collect(intent: PaymentIntent, answer: Found) -> None:
    """The money is in: record the purchase, or pay the invoice."""
    if answer.is_recorded:
        intent.settled_at = timezone.now()
        return
    if (answer.received_minor, answer.currency) != (intent.amount_minor, intent.currency):
        intent.state = PROCESSING
        intent.error = f"the provider received {money_text(answer.received_minor, answer.currency)}"
        return
    intent.settled_at = timezone.now()
    if intent.invoice_id is None:
        assert intent.holder_id is not None
        pack = _pack_of(intent)
        record_purchase(
            pack=pack.code,
            version=pack.version,
            quantity=intent.quantity,
            holder_id=intent.holder_id,
            customer=Customer.objects.get(pk=intent.customer_id).ref if intent.customer_id else None,
            provider=intent.provider,
            payment=intent.payment,
            paid_minor=intent.amount_minor,
            paid_at=answer.paid_at,
            reference=intent.reference,
            actor=intent.actor,
        )
        return
    _pay_invoice(intent, intent.payment, intent.amount_minor)


def _pay_invoice(intent: PaymentIntent, payment: str, amount_minor: int) -> None:
    """Record money for the intent's invoice, once; what the invoice does not need is a deposit of the customer."""
    record_payment(
        invoice=intent.invoice_id,
        provider=intent.provider,
        payment=payment,
        amount_minor=amount_minor,
        currency=intent.currency,
        reference=intent.reference,
        actor=intent.actor,
    )


# Money that goes back --------------------------------------------------------------------------------


def _apply_money_back(intent: PaymentIntent, answer: Found) -> None:
    for refund in answer.refunds:
        asked = (
            ProviderRefund.objects.filter(intent_id=intent.pk, key=refund.key) if refund.key else ProviderRefund.objects.none()
        )
        if refund.is_final:
            _return(intent, Kind.REFUND, refund, next(iter(asked.values_list("reason", flat=True)), ""))
            asked.update(state=SUCCEEDED, refund=refund.id, due_at=None, error="")
        elif refund.is_failed:
            failed = asked.exclude(state=SUCCEEDED)
            failed.update(state=FAILED, refund=refund.id, due_at=None, error="the provider could not send it")
        else:
            asked.filter(state=REQUESTED).update(state=PROCESSING, refund=refund.id)
    for dispute in answer.disputes:
        _return(intent, Kind.DISPUTE, dispute)
        if dispute.is_won:
            _return(intent, Kind.REINSTATED, dispute)
    purchase = purchase_of(intent)
    intent.returned_minor = _returned_minor(answer) if purchase is None else returned_minor_of(purchase)


def purchase_of(intent: PaymentIntent) -> Purchase | None:
    """Return the purchase that an intent made."""
    return Purchase.objects.filter(provider=intent.provider, payment=intent.payment).first() if intent.payment else None


def _return(intent: PaymentIntent, kind: str, back: MoneyBack, reason: str = "") -> None:
    """Record it for the purchase or the payment of the invoice that the intent made, once."""
    fields: dict[str, Any] = {"kind": kind, "payment": back.id, "reason": reason, "actor": f"provider:{intent.provider}"}
    try:
        with transaction.atomic():
            if intent.invoice_id is None:
                amount = None if kind == Kind.REINSTATED else back.amount_minor
                purchase = Purchase.objects.get(provider=intent.provider, payment=intent.payment)
                record_return(purchase=purchase.pk, amount_minor=amount, **fields)
            elif kind == Kind.REINSTATED:
                # A dispute that was won is a new payment of the invoice, named by the dispute.
                _pay_invoice(intent, back.id, back.amount_minor)
            else:
                paid = InvoicePayment.objects.get(provider=intent.provider, payment=intent.payment)
                record_payment_return(invoice_payment=paid.pk, amount_minor=back.amount_minor, **fields)
    except (ReturnExceedsPurchase, ReturnExceedsPayment, AlreadyExists) as error:
        intent.error = f"{kind} {back.id} of {money_text(back.amount_minor, intent.currency)}: {error.title}"[:500]


def returned_minor_of(purchase: Purchase) -> int:
    """Return the money of a purchase that went back, also what was recorded by hand."""
    return sum(one.signed_minor for one in PurchaseReturn.objects.filter(purchase_id=purchase.pk))


def _returned_minor(answer: Found) -> int:
    refunds = sum(one.amount_minor for one in answer.refunds if one.is_final)
    return refunds + sum(one.amount_minor for one in answer.disputes if not one.is_won)


def send_refund(refund_id: int) -> bool:
    """Ask the provider to send money back, if that is due; return whether that failed."""
    refund = _lease(ProviderRefund, refund_id)
    return refund is not None and not _try(ProviderRefund, refund_id, lambda: _send_refund(refund))


def _send_refund(refund: ProviderRefund) -> None:
    intent = PaymentIntent.objects.get(pk=refund.intent_id)
    adapter = provider(intent.provider)
    try:
        able(intent.provider, SendsMoneyBack).refund(intent.payment, refund.amount_minor, intent.currency, refund.key)
    except ProviderRefused as refused:
        ProviderRefund.objects.filter(pk=refund.pk).update(state=FAILED, error=refused.facts["why"][:500], due_at=None)
        return
    # It stays due until the provider says that the money went back.
    ProviderRefund.objects.filter(pk=refund.pk, state=REQUESTED).update(state=PROCESSING, due_at=_due_at(refund), error="")
    apply(intent.pk, adapter.find(order_of(intent)))


# Both ------------------------------------------------------------------------------------------------


def _lease(model: Any, pk: int, *, now: bool = False) -> Any:
    """Take a row that is due, so that no other process asks at the same time; return None if there is no such row."""
    at = timezone.now()
    due = model.objects.filter(pk=pk) if now else model.objects.filter(pk=pk, due_at__lte=at)
    taken = due.update(due_at=at + timedelta(seconds=LEASE_S), asked_at=at, tries=F("tries") + 1)
    return model.objects.get(pk=pk) if taken else None


def _try(model: Any, pk: int, act: Callable[[], None]) -> bool:
    """Act; if that fails, note why, and when to try again; return whether it succeeded."""
    try:
        act()
    except Misuse:
        raise
    except (LedgerError, Error) as error:
        log.info("%s %s: %s: %s", model.__name__, pk, type(error).__name__, error)
        with suppress(Error):
            row = model.objects.get(pk=pk)
            model.objects.filter(pk=pk, due_at__isnull=False).update(due_at=_due_at(row), error=failure_text(error))
        return False
    return True
