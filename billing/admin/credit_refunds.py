"""The form that records that credit of a customer was paid out, and the tables of credit and refunds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse

from billing.admin.amount_forms import AMOUNT_WRITTEN, AmountForm, major
from billing.admin.cells import MORE_ROWS, by_pk, document_link, money_column
from billing.documents.credit_refunds import NewCreditRefund, refund, refund_in
from billing.models import CreditNote, CreditRefund, Customer, Invoice
from billing.rating.money import money_text
from billing.reads import open_credit_of
from ledger.services import preview
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_link, row_url
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage
from ledger.staff.kit.pages import ReadOnlyAdmin

Result = TypeVar("Result")


class PayOutForm(AmountForm[NewCreditRefund]):
    """Credit that was paid out."""

    stake = AMOUNT_WRITTEN
    declared = NewCreditRefund


@dataclass(frozen=True, kw_only=True)
class PayOutPage(FormPage[PayOutForm]):
    """The page that records that credit was paid out: first what would be left, then done."""

    customer: Customer
    currency: str
    left_minor: int

    is_tried = True

    def try_out(self, form: PayOutForm, look: Callable[[PayOutForm, CreditRefund], Result]) -> Result:
        """Record the refund in a preview."""
        with preview():
            return look(form, refund_in(customer_ref=self.customer.ref, request=form.request, actor=form.actor))

    def dry_run(self, form: PayOutForm) -> DryRun:
        """Describe the refund and what it leaves."""
        made = self.try_out(form, lambda form, made: made)
        amount, left = (money_text(m, self.currency) for m in (made.amount_minor, self.left_minor - made.amount_minor))
        return DryRun(
            sentences=[
                f"{amount} of the credit of {self.customer.ref} was paid out in money. {left} is left.",
                "This only records the payment. It is permanent.",
            ]
        )

    def operation(self, form: PayOutForm) -> Done:
        """Record the refund."""
        done = refund(customer_ref=self.customer.ref, request=form.request, actor=form.actor, idempotency_key=form.key)
        amount = money_text(form.request.amount_minor, self.currency)
        return Done(f"Refund {done.id}", f"{amount} of {self.customer.ref}'s credit", self.back, done.replayed)


def pay_out_view(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    customer: Customer,
    currency: str,
    left_minor: int,
    *,
    note: CreditNote | None = None,
) -> HttpResponse:
    """Show the form for the credit of a customer in a currency, or for the rest of a note; then record the refund."""
    of_note = {} if note is None else {"credit_note": note.pk}
    what = "credit" if note is None else f"what is left of {note}"
    return PayOutPage(
        form=PayOutForm.in_currency(
            currency,
            f"At most {money_text(left_minor, currency)}.",
            reference=Display(help="The payment, as your bank names it."),
        ),
        customer=customer,
        currency=currency,
        left_minor=left_minor,
        fixed={"currency": currency, **of_note},
        initial={"amount": major(left_minor, currency)},
        title=f"Pay out {what} of {customer.ref}",
        button="Record the payment",
        explanation="Pay the customer first, then record the payment here. Credit that was paid out pays for no invoice.",
        back=row_url(Customer, customer.pk) if note is None else row_url(CreditNote, note.pk),
    ).view(model_admin, request)


def balance_minor(customer: Customer, currency: str) -> int:
    """Return the customer's credit in a currency."""
    return sum(note.left_minor for note in open_credit_of(customer.pk) if note.currency == currency)


def credit_table(customer: Customer) -> dict[str, Any]:
    """Return the credit notes and deposits of a customer with a rest."""
    return table_of(
        open_credit_of(customer.pk)[:MORE_ROWS],
        ("Credit", lambda note: row_link(CreditNote, note.pk, str(note))),
        money_column("Left", "left_minor"),
        money_column("Of", "amount_minor"),
        columns.instant("Since", "recorded_at"),
    )


def refunds_table(customer: Customer) -> dict[str, Any]:
    """Return what was paid out to a customer, the newest first."""
    refunds = list(CreditRefund.objects.filter(customer_id=customer.pk).order_by("-pk")[:MORE_ROWS])
    invoices = by_pk(Invoice, [row.invoice_id for row in refunds])
    return table_of(
        refunds,
        ("Refund", "pk"),
        money_column("Paid out", "amount_minor"),
        ("Reference", "reference"),
        ("Reason", "reason"),
        ("Invoice", lambda row: document_link(invoices.get(row.invoice_id))),
        ("Actor", "actor"),
        columns.instant("Recorded", "recorded_at"),
    )


def refund_words(paid: CreditRefund) -> str:
    """Return a refund in words, for the table of what was taken from a note."""
    return f"refund {paid.pk}, {paid.reference}" if paid.reference else f"refund {paid.pk}"


def credit_sentences(customer: Customer) -> list[str]:
    """Return a customer's credit per currency, in a sentence."""
    sums: dict[str, int] = {}
    for note in open_credit_of(customer.pk):
        sums[note.currency] = sums.get(note.currency, 0) + note.left_minor
    if not sums:
        return []
    return [f"{' and '.join(money_text(minor, currency) for currency, minor in sums.items())} of credit pays next invoices."]
