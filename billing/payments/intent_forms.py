"""The forms that have a provider send money back, and that give an open payment intent up."""

from dataclasses import replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from billing.admin.amount_forms import AMOUNT_WRITTEN, AmountForm
from billing.admin.cells import credits_text
from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.models import Invoice
from billing.payments.advancing import purchase_of
from billing.payments.intent_orders import (
    NewCancellation,
    NewProviderRefund,
    cancel_intent,
    refund_intent,
    refundable_intent_of,
    refundable_minor,
)
from billing.payments.models import PaymentIntent, ProviderRefund
from billing.payments.transfers import NewTransfer, book_transfer
from billing.rating.money import money_text
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin


class ProviderRefundForm(OrderForm, AmountForm[NewProviderRefund]):
    """Money of a payment intent to send back."""

    stake = AMOUNT_WRITTEN
    declared = NewProviderRefund


def refund_view(model_admin: ReadOnlyAdmin, request: HttpRequest, intent: PaymentIntent) -> HttpResponse:
    """Show the form of a refund, then its effect, then record it; the provider is asked after that."""

    what_follows = (
        "The credits that it had bought are revoked, as far as they are unspent."
        if intent.invoice_id is None
        else f"What the customer has no credit for is due again on {Invoice.objects.get(pk=intent.invoice_id)}. "
        "Credit the invoice first if the customer is not to pay it again."
    )

    def describe(refund: ProviderRefund, form: ProviderRefundForm) -> DryRun:
        amount = money_text(refund.amount_minor, intent.currency)
        return DryRun(sentences=[f"{intent.provider} is asked to send {amount} back.", what_follows])

    return OrderPage(
        form=ProviderRefundForm.in_currency(
            intent.currency, "Empty: all that was not sent back yet.", required=False, reason=REASON
        ),
        collection="payment-intent-refunds",
        about=intent,
        pointer="/amount_minor",
        write=lambda form: refund_intent.execute(replace(form.request, actor=form.actor)),
        describe=describe,
        done=lambda _, form: ("The refund", f"of {intent}"),
        fixed={"intent": intent.pk},
        title=f"Refund {intent}",
        button="Send the money back",
        explanation=f"{money_text(refundable_minor(intent), intent.currency)} can be sent back.",
        back=row_url(PaymentIntent, intent.pk),
    ).view(model_admin, request)


def invoice_refund_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Lead to the form of the refund of the payment that paid the invoice."""
    intent = refundable_intent_of(invoice)
    if intent is None:
        raise Http404
    return HttpResponseRedirect(reverse("admin:billing_payments_paymentintent_refund", args=[intent.pk]))


def _came_in(form: Any, booked: PaymentIntent) -> list[Stake]:
    """Return the money, all of which pays or becomes credit, and the credits that it buys."""
    purchase = purchase_of(booked)
    bought = [] if purchase is None else [Stake(purchase.credit_type, purchase.credits + purchase.bonus)]
    return [Stake(booked.currency, form.request.amount_minor), *bought]


class IntentTransferForm(OrderForm, AmountForm[NewTransfer]):
    """A transfer that came in for a payment intent."""

    stake = StakeRule(_came_in)
    declared = NewTransfer
    folded = ("paid_at", "reference")


def transfer_view(model_admin: ReadOnlyAdmin, request: HttpRequest, intent: PaymentIntent) -> HttpResponse:
    """Show the form of a transfer, then its effect, then book it."""

    def describe(booked: PaymentIntent, form: IntentTransferForm) -> DryRun:
        paid = money_text(form.request.amount_minor, booked.currency)
        purchase = purchase_of(booked)
        if purchase is None:
            assert booked.invoice_id is not None
            invoice = Invoice.objects.get(pk=booked.invoice_id)
            rest = money_text(invoice.amount_remaining_minor, booked.currency)
            return DryRun(sentences=[f"{paid} pays {invoice}; {rest} is still to be paid."])
        rest = money_text(form.request.amount_minor - booked.amount_minor, booked.currency)
        credits_ = credits_text(purchase.credits + purchase.bonus, purchase.credit_type)
        return DryRun(sentences=[f"{paid} buys {credits_} for {purchase.holder_id}; {rest} becomes credit of the customer."])

    return OrderPage(
        form=IntentTransferForm.in_currency(
            intent.currency,
            "What came in.",
            payment=Display(label="Transfer", help="The bank's id of the transfer. It is recorded once."),
            reason=REASON,
            paid_at=Display(label="Paid on", help="When the money was in; empty: now."),
            reference=Display(help="The text of the transfer."),
        ),
        collection="payment-intent-transfers",
        about=intent,
        pointer="/payment",
        write=lambda form: book_transfer.execute(replace(form.request, actor=form.actor)),
        describe=describe,
        done=lambda _, form: ("The transfer", f"for {intent}"),
        fixed={"intent": intent.pk},
        title=f"Book a transfer for {intent}",
        button="Book the transfer",
        explanation="Book it when the money is in. It buys the pack, or pays the invoice.",
        back=row_url(PaymentIntent, intent.pk),
    ).view(model_admin, request)


class IntentCancellationForm(OrderForm, RequestForm[NewCancellation]):
    """An intent to give up."""

    stake = NoStake("It moves no money: the provider is asked to take none.")
    declared = NewCancellation
    shows = {"reason": REASON}


def cancel_view(model_admin: ReadOnlyAdmin, request: HttpRequest, intent: PaymentIntent) -> HttpResponse:
    """Show the form of a cancellation, then its effect, then record it; the provider is asked after that."""
    return OrderPage(
        form=IntentCancellationForm,
        collection="payment-intent-cancellations",
        about=intent,
        pointer="/intent",
        write=lambda form: cancel_intent.execute(form.request),
        describe=lambda _, form: DryRun(sentences=[f"{intent.provider} is asked to end the checkout or the charge."]),
        done=lambda _, form: ("The cancellation", f"of {intent}"),
        fixed={"intent": intent.pk},
        title=f"Cancel {intent}",
        button="Cancel the payment",
        explanation="If the customer has paid in the meantime, the payment succeeds all the same.",
        back=row_url(PaymentIntent, intent.pk),
    ).view(model_admin, request)
