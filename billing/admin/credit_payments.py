"""The form that sets credit of a customer against an open invoice."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django import forms
from django.http import HttpRequest, HttpResponse
from unfold.widgets import UnfoldAdminSelectWidget

from billing.admin.amount_forms import AMOUNT_WRITTEN, AmountForm
from billing.documents.credit_payments import PAYABLE, NewCreditPayment, pay_with_credit
from billing.models import CreditNote, Invoice, InvoicePayment
from billing.rating.money import money_text
from billing.reads import open_credit_of
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.services import preview
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage
from ledger.staff.kit.pages import ReadOnlyAdmin

Result = TypeVar("Result")


class CreditPaymentForm(AmountForm[NewCreditPayment]):
    """Credit of the customer that pays an invoice."""

    stake = AMOUNT_WRITTEN
    declared = NewCreditPayment


@dataclass(frozen=True, kw_only=True)
class CreditPaymentPage(FormPage[CreditPaymentForm]):
    """The page that sets credit against an invoice: first its effect, then done."""

    invoice: Invoice

    is_tried = True

    def try_out(self, form: CreditPaymentForm, look: Callable[[CreditPaymentForm, InvoicePayment], Result]) -> Result:
        """Set the credit against the invoice in a preview."""
        with preview():
            return look(form, pay_with_credit.execute(form.request))

    def dry_run(self, form: CreditPaymentForm) -> DryRun:
        """Describe what the credit pays, and what is left of it."""

        def described(form: CreditPaymentForm, made: InvoicePayment) -> DryRun:
            currency, invoice = made.currency, Invoice.objects.get(pk=made.invoice_id)
            left_minor = sum(note.left_minor for note in _open_credit(invoice))
            rest, left, paid = (
                money_text(minor, currency) for minor in (invoice.amount_remaining_minor, left_minor, made.amount_minor)
            )
            return DryRun(
                sentences=[
                    f"{paid} of the customer's credit pays {invoice}; {left} of credit is left.",
                    f"{invoice} is {invoice.state}; {rest} is still to be paid.",
                ]
            )

        return self.try_out(form, described)

    def operation(self, form: CreditPaymentForm) -> Done:
        """Set the credit against the invoice, once."""
        result = execute_once(
            collection="credit-payments",
            idempotency_key=form.key,
            request_digest=request_digest_of(vars(form.request)),
            act=lambda: _write_result(pay_with_credit.execute(form.request)),
        )
        amount = money_text(result.body["amount_minor"], self.invoice.currency)
        return Done(f"Payment {result.body['id']}", f"{amount} of credit for {self.invoice}", self.back, result.replayed)


def _write_result(made: InvoicePayment) -> WriteResult:
    return WriteResult(201, {"id": made.pk, "amount_minor": made.amount_minor})


def pay_with_credit_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form that sets credit of the customer against an invoice, then its effect, then do it."""
    credit = _open_credit(invoice)
    rest = money_text(invoice.amount_remaining_minor, invoice.currency)
    left = money_text(sum(note.left_minor for note in credit), invoice.currency)
    return CreditPaymentPage(
        form=CreditPaymentForm.in_currency(
            invoice.currency,
            f"Empty: as much as possible. {rest} is still to be paid, and {left} of credit is there.",
            required=False,
            credit_note=_choice_of(credit),
        ),
        invoice=invoice,
        fixed={"invoice": invoice.pk},
        title=f"Pay {invoice} with credit",
        button="Pay with credit",
        explanation="Credit pays an invoice by itself when it is finalised. Here you use credit that came later. No money moves.",
        back=row_url(Invoice, invoice.pk),
    ).view(model_admin, request)


def can_be_paid_with_credit(invoice: Invoice) -> bool:
    """Return whether something is to be paid of the invoice, and the customer has credit in its currency."""
    return invoice.state in PAYABLE and bool(_open_credit(invoice))


def _open_credit(invoice: Invoice) -> list[CreditNote]:
    return [note for note in open_credit_of(invoice.customer_id) if note.currency == invoice.currency]


def _choice_of(credit: list[CreditNote]) -> forms.Field:
    named: list[tuple[Any, str]] = [("", "The oldest first")]
    named += [
        (note.pk, f"{note} {note.pk}: {money_text(note.left_minor, note.currency)}{f', {note.reference}' * bool(note.reference)}")
        for note in credit
    ]
    return forms.TypedChoiceField(
        label="Credit", coerce=int, empty_value=None, required=False, choices=named, widget=UnfoldAdminSelectWidget()
    )
