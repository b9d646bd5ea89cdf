"""The forms that have a provider send money back, and that give an open payment intent up."""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse

from billing.admin.cells import money_text
from billing.admin.documents.of_customers.amounts import AmountForm
from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.models import PaymentIntent, ProviderRefund
from billing.payments.collecting.orders import (
    NewCancellation,
    NewProviderRefund,
    cancel_intent,
    refund_intent,
    refundable_minor,
)
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.forms.idempotent import DryRun, RequestForm
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.operators.approvals import Stake


class ProviderRefundForm(OrderForm, AmountForm[NewProviderRefund]):
    """Money of a payment intent to send back."""

    declared = NewProviderRefund


def refund_view(model_admin: ReadOnlyAdmin, request: HttpRequest, intent: PaymentIntent) -> HttpResponse:
    """Show the form of a refund, then its effect, then record it; the provider is asked after that."""

    def describe(made: ProviderRefund, form: ProviderRefundForm) -> DryRun:
        amount = money_text(made.amount_minor, intent.currency)
        what = "The credits that it had bought are revoked, as far as they are unspent."
        return DryRun(sentences=[f"{intent.provider} is asked to send {amount} back.", *([] if intent.invoice_id else [what])])

    return OrderPage(
        form=ProviderRefundForm.in_currency(
            intent.currency, "Empty: all that was not sent back yet.", required=False, reason=REASON
        ),
        collection="payment-intent-refunds",
        about=intent,
        pointer="/amount_minor",
        stake_of=lambda made: Stake(intent.currency, made.amount_minor),
        write=lambda form: refund_intent.execute(replace(form.request, actor=form.actor)),
        describe=describe,
        done=lambda _, form: ("The refund", f"of {intent}"),
        fixed={"intent": intent.pk},
        title=f"Refund {intent}",
        button="Send the money back",
        explanation=f"{money_text(refundable_minor(intent), intent.currency)} can be sent back.",
        back=row_url(PaymentIntent, intent.pk),
    ).view(model_admin, request)


class CancellationForm(OrderForm, RequestForm[NewCancellation]):
    """An intent to give up."""

    declared = NewCancellation
    shows = {"reason": REASON}


def cancel_view(model_admin: ReadOnlyAdmin, request: HttpRequest, intent: PaymentIntent) -> HttpResponse:
    """Show the form of a cancellation, then its effect, then record it; the provider is asked after that."""
    return OrderPage(
        form=CancellationForm,
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
