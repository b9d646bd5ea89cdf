"""The form that sends a reminder of an overdue invoice at once."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from billing.dunning.errors import WHY_NOT_REMINDED, NotReminded
from billing.dunning.models import Reminder
from billing.dunning.reminding import remind_now
from billing.models import Customer, Invoice
from billing.rating.money import money_text
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.errors import LedgerError
from ledger.services import preview
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, KeyedForm
from ledger.staff.kit.pages import ReadOnlyAdmin, describe


class ReminderForm(KeyedForm):
    """Why a reminder is sent at once."""

    stake = NoStake("It asks for money that is owed already; the fee of a step is that of the seller.")


@dataclass(frozen=True, kw_only=True)
class ReminderPage(FormPage[ReminderForm]):
    """The page that sends a reminder: first what it says and does, then done."""

    invoice: Invoice

    is_tried = True

    def dry_run(self, form: ReminderForm) -> DryRun:
        """Say what would be sent, to whom, and what it costs the customer."""
        with preview():
            reminder = remind_now(invoice=self.invoice.pk, actor=form.actor)
            return DryRun(sentences=reminder_sentences(reminder, self.invoice))

    def operation(self, form: ReminderForm) -> Done:
        """Send it, once."""
        result = execute_once(
            collection="reminders",
            idempotency_key=form.key,
            request_digest=request_digest_of({"invoice": self.invoice.pk, "reason": form.cleaned_data["reason"]}),
            act=lambda: WriteResult(201, {"step": remind_now(invoice=self.invoice.pk, actor=form.actor).step}),
        )
        return Done(f"Reminder {result.body['step']} of {self.invoice}", "its mail is sent", self.back, result.replayed)

    def explain(self, error: LedgerError, form: ReminderForm) -> str:
        """Say why there is no reminder."""
        if isinstance(error, NotReminded):
            return f"There is no reminder of {self.invoice} now, because {WHY_NOT_REMINDED[error.facts['reason']]}."
        return describe(error)


def remind_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form of a reminder; then what it would do; then send it."""
    return ReminderPage(
        form=ReminderForm,
        invoice=invoice,
        title=f"Remind of {invoice} now",
        button="Send the reminder",
        explanation="The mail has the amount, the day it was due, the way to pay, and the invoice as PDF. It counts as the next "
        "reminder; the one after it keeps its distance.",
        back=row_url(Invoice, invoice.pk),
    ).view(model_admin, request)


def reminder_sentences(reminder: Reminder, invoice: Invoice) -> list[str]:
    """Return what a reminder does, in sentences."""
    address = Customer.objects.values_list("email", flat=True).get(pk=invoice.customer_id)
    amount = money_text(reminder.remaining_minor, invoice.currency)
    fee = money_text(reminder.fee_minor, invoice.currency) if reminder.fee_minor else ""
    return [
        f"Reminder {reminder.step} asks for {amount} and goes to {address}.",
        f"It costs the customer {fee}, on the next invoice of the subscription." if fee else "It costs the customer nothing.",
        *(["It suspends the billing of the subscription until the invoice is paid."] if reminder.suspends else []),
    ]
