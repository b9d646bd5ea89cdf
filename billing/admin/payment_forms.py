"""The forms that record the payment of an invoice and money that went back, and the tables of both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Sum
from django.http import HttpRequest, HttpResponse

from billing.admin.amount_forms import AMOUNT_WRITTEN, AmountForm, major
from billing.admin.cells import money
from billing.documents.invoice_payments import NewPayment, record_payment
from billing.documents.payment_returns import NewPaymentReturn, record_payment_return
from billing.models import Invoice, InvoicePayment, PaymentReturn
from billing.rating.money import money_text
from billing.rating.values import CREDIT
from billing.reads import invoice_payments as reads
from billing.reads.invoice_payments import PaymentRow
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.services import preview
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_link, row_url
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage
from ledger.staff.kit.pages import ReadOnlyAdmin

Result = TypeVar("Result")


class PaymentForm(AmountForm[NewPayment]):
    """Money that came in for an invoice by other means than a provider that reports it."""

    stake = AMOUNT_WRITTEN
    declared = NewPayment
    folded = ("provider", "paid_at")


@dataclass(frozen=True, kw_only=True)
class PaymentPage(FormPage[PaymentForm]):
    """The page that records a payment of an invoice: first its effect, then done."""

    invoice: Invoice

    is_tried = True

    def try_out(self, form: PaymentForm, look: Callable[[PaymentForm, InvoicePayment], Result]) -> Result:
        """Record the payment in a preview."""
        with preview():
            return look(form, record_payment.execute(form.request))

    def dry_run(self, form: PaymentForm) -> DryRun:
        """Describe what the payment pays."""

        def described(form: PaymentForm, made: InvoicePayment) -> DryRun:
            return DryRun(sentences=payment_sentences(reads.payment(made.pk), Invoice.objects.get(pk=self.invoice.pk)))

        return self.try_out(form, described)

    def operation(self, form: PaymentForm) -> Done:
        """Record the payment, once."""
        result = execute_once(
            collection="payments",
            idempotency_key=form.key,
            request_digest=request_digest_of({**vars(form.request), "reason": form.cleaned_data["reason"]}),
            act=lambda: WriteResult(201, {"id": record_payment.execute(form.request).pk}),
        )
        amount = money_text(form.request.amount_minor, self.invoice.currency)
        return Done(f"Payment {result.body['id']}", f"{amount} for {self.invoice}", self.back, result.replayed)


def record_payment_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form of a payment of an invoice, then its effect, then record it."""
    rest = money_text(invoice.amount_remaining_minor, invoice.currency)
    return PaymentPage(
        form=PaymentForm.in_currency(
            invoice.currency,
            f"{rest} is still to be paid; what is more becomes credit of the customer.",
            payment=Display(label="Payment", help="The bank's or provider's id of the payment. It is recorded once."),
            reference=Display(help="The text of the payment."),
            provider=Display(required=False, help="Who took the money; manual: you have seen it in the account."),
            paid_at=Display(label="Paid on", help="When the money was in; empty: now."),
        ),
        invoice=invoice,
        fixed={"invoice": invoice.pk},
        initial={"amount": major(invoice.amount_remaining_minor, invoice.currency) or ""},
        title=f"Record a payment of {invoice}",
        button="Record the payment",
        explanation="Record it when the money is in.",
        back=row_url(Invoice, invoice.pk),
    ).view(model_admin, request)


def payment_sentences(row: PaymentRow, invoice: Invoice) -> list[str]:
    """Return what a payment paid, what became credit, and what went back, in sentences."""
    currency = row.row.currency
    amount = money_text(row.row.amount_minor, currency)
    came_in = f"{amount} came in for {row.number} of {row.customer}."
    sentences = [came_in if row.row.credit_refund_id is None else f"{amount} of {row.customer}'s credit paid {row.number}."]
    if row.deposit_minor:
        paid = money_text(row.row.applied_minor, currency)
        sentences.append(f"{paid} paid the invoice, {money_text(row.deposit_minor, currency)} became credit of the customer.")
    if row.returned_minor:
        sentences.append(f"{money_text(row.returned_minor, currency)} went back.")
    rest = money_text(invoice.amount_remaining_minor, currency)
    sentences.append(f"{row.number} is {invoice.state}; {rest} is still to be paid.")
    return sentences


class PaymentReturnForm(AmountForm[NewPaymentReturn]):
    """Money of a payment that went back."""

    stake = AMOUNT_WRITTEN
    declared = NewPaymentReturn
    folded = ("returned_at",)


@dataclass(frozen=True, kw_only=True)
class PaymentReturnPage(FormPage[PaymentReturnForm]):
    """The page that records that money of a payment went back: first its effect, then done."""

    paid: InvoicePayment

    is_tried = True

    def try_out(self, form: PaymentReturnForm, look: Callable[[PaymentReturnForm, PaymentReturn], Result]) -> Result:
        """Record the return in a preview."""
        with preview():
            return look(form, record_payment_return.execute(form.request))

    def dry_run(self, form: PaymentReturnForm) -> DryRun:
        """Describe from what it is taken."""

        def described(form: PaymentReturnForm, made: PaymentReturn) -> DryRun:
            by_credit_minor = _paid_by_credit_minor(self.paid.invoice_id) - before_minor
            return DryRun(sentences=return_sentences(made, self.paid.currency, by_credit_minor=by_credit_minor))

        before_minor = _paid_by_credit_minor(self.paid.invoice_id)
        return self.try_out(form, described)

    def operation(self, form: PaymentReturnForm) -> Done:
        """Record the return, once."""
        result = execute_once(
            collection="payment-returns",
            idempotency_key=form.key,
            request_digest=request_digest_of(vars(form.request)),
            act=lambda: WriteResult(201, {"id": record_payment_return.execute(form.request).pk}),
        )
        return Done("The return", f"of payment {self.paid.pk}", self.back, result.replayed)


def _paid_by_credit_minor(invoice_id: int) -> int:
    by_credit = InvoicePayment.objects.filter(invoice_id=invoice_id, provider=CREDIT)
    paid: int | None = by_credit.aggregate(sum=Sum("applied_minor"))["sum"]
    return paid or 0


def record_return_view(model_admin: ReadOnlyAdmin, request: HttpRequest, paid: InvoicePayment) -> HttpResponse:
    """Show the form of a return, then its effect, then record it."""
    return PaymentReturnPage(
        form=PaymentReturnForm.in_currency(
            paid.currency,
            "Empty: all that was not returned yet.",
            required=False,
            kind=Display(label="What happened"),
            payment=Display(label="Its id", help="The bank's or provider's id of the refund or dispute."),
            returned_at=Display(label="When", help="Empty: now."),
        ),
        paid=paid,
        fixed={"invoice_payment": paid.pk},
        title=f"Record a return of payment {paid.pk}",
        button="Record the return",
        explanation="It sends no money: record what you or the bank have done.",
        back=row_url(InvoicePayment, paid.pk),
    ).view(model_admin, request)


def return_sentences(made: PaymentReturn, currency: str, *, by_credit_minor: int = 0) -> list[str]:
    """Return what went back, and from what it is taken, in sentences.

    Args:
        by_credit_minor: what deposits of the customer pay of the invoice that is due again.
    """
    sentences = [f"{money_text(made.amount_minor, currency)} went back."]
    if made.credit_minor:
        sentences.append(f"{money_text(made.credit_minor, currency)} of it is taken from credit of the customer.")
    if made.reopened_minor:
        sentences.append(f"By {money_text(made.reopened_minor, currency)} the invoice is due again.")
    if by_credit_minor:
        sentences.append(f"A deposit of the customer pays {money_text(by_credit_minor, currency)} of that.")
    if made.claim_minor:
        sentences.append(f"{money_text(made.claim_minor, currency)} is a claim: its credit has paid other invoices.")
    return sentences


def payments_table(invoice: Invoice) -> dict[str, Any]:
    """Return the payments of an invoice, the oldest first."""
    rows = reads.payment_rows(list(InvoicePayment.objects.filter(invoice_id=invoice.pk).order_by("pk")))
    return table_of(
        rows,
        ("Payment", lambda one: row_link(InvoicePayment, one.pk, one.pk)),
        ("Provider", lambda one: one.row.provider),
        ("Its id", lambda one: one.row.payment),
        ("Amount", lambda one: money(one.row.amount_minor, one.row.currency)),
        ("Paid the invoice", lambda one: money(one.row.applied_minor, one.row.currency)),
        ("Went back", lambda one: money(one.returned_minor, one.row.currency) if one.returned_minor else ""),
        ("Actor", lambda one: one.row.actor),
        columns.instant("Paid on", lambda one: one.row.paid_at),
    )


def returns_table(row: PaymentRow) -> dict[str, Any]:
    """Return what went back of a payment."""
    return table_of(
        row.returns,
        ("What", lambda one: one.kind),
        ("Id", lambda one: one.payment),
        ("Amount", lambda one: money(one.amount_minor, row.row.currency)),
        ("From credit", lambda one: money(one.credit_minor, row.row.currency)),
        ("Due again", lambda one: money(one.reopened_minor, row.row.currency)),
        ("Claim", lambda one: money(one.claim_minor, row.row.currency)),
        ("Reason", lambda one: one.reason),
        ("Actor", lambda one: one.actor),
        columns.instant("When", lambda one: one.returned_at),
    )
