"""Pages of mails with documents: what was sent, what bounced, and the button that sends one again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from billing.admin.cells import by_pk, customer_link, document_link, ids_of_customer, money
from billing.dunning.models import Mail, Reminder
from billing.dunning.outcomes import STOPPED, send_again
from billing.dunning.permissions import SEND_MAIL_AGAIN
from billing.models import Customer, Invoice
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.idempotent_forms import Done, FormPage, KeyedForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation

STATE_COLOURS: Final = {
    "waiting": "info", "handed_over": "info", "sent": "success", "bounced": "danger", "failed": "danger", "unknown": "warning",
}  # fmt: skip
WORDS: Final = {
    "waiting": "It waits for a worker.",
    "handed_over": "A worker is handing it to the mail server.",
    "sent": "The mail server has accepted it.",
    "bounced": "It came back.",
    "failed": "It was given up.",
    "unknown": "The worker ended, or the connection broke, before the mail server had answered: the customer may have it.",
}


class AgainForm(KeyedForm):
    """Why a mail is sent again."""

    stake = NoStake("It moves no money: it sends a document that exists.")


@dataclass(frozen=True, kw_only=True)
class AgainPage(FormPage[AgainForm]):
    """The page that has a mail sent again."""

    mail: Mail

    def operation(self, form: AgainForm) -> Done:
        """Have it sent again, once."""
        result = execute_once(
            collection="mails",
            idempotency_key=form.key,
            request_digest=request_digest_of({"mail": self.mail.pk, "reason": form.cleaned_data["reason"]}),
            act=lambda: WriteResult(200, {"id": send_again(self.mail.pk).pk}),
        )
        return Done(f"Mail {self.mail.pk}", "it waits for a worker", self.back, result.replayed)


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin):
    """The mails, newest first."""

    number = Column("Mail", "pk")
    state_label = columns.badge("State", "state", STATE_COLOURS)
    invoice_cell = Column("Invoice", lambda row: document_link(row.invoice), lambda row: str(row.invoice))
    customer_cell = Column("Customer", lambda row: customer_link(row.customer_id, row.owner.ref), lambda row: row.owner.ref)
    why = Column("Error", "error")
    queued = columns.instant("Queued", "queued_at")
    ended = columns.instant("Ended", "ended_at")

    list_display = ("number", "state_label", "invoice_cell", "customer_cell", "recipient", "queued", "ended", "why")
    list_display_links = ("number",)
    list_filter = (choice("state", Mail.State.values), text("customer"))
    search_fields = ("recipient",)
    search_help_text = "The number of the invoice"
    csv_columns = ("number", "state_label", "invoice_cell", "customer_cell", "recipient", "tries", "queued", "ended", "why")
    starts = "A seller that mails invoices has each finalised invoice sent to the e-mail address of its customer."
    actions_detail = ("again",)
    fields = (("state_label", "invoice_cell", "customer_cell"), ("recipient", "identity", "tries"), ("queued", "ended", "why"))

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first, by the index on the customer or the state."""
        values = cl.values()
        rows = cl.queryset
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        fits = Q(state=values["state"]) if "state" in values else Q()
        return FilteredRows(rows=rows.filter(fits), fits=Q()).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """By the number of the invoice."""
        return Q(invoice_id__in=Invoice.objects.filter(number=word).values("pk"))

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row its invoice and customer."""
        invoices, customers = by_pk(Invoice, [r.invoice_id for r in rows]), by_pk(Customer, [r.customer_id for r in rows])
        for row in rows:
            row.invoice, row.owner = invoices[row.invoice_id], customers[row.customer_id]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The mail in a sentence."""
        return {"title": f"Mail {row.pk}", "sentences": [WORDS[row.state]]}

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the button while the mail waits, and when it was sent."""
        mail = self.get_object(request, unquote(object_id))
        return [] if mail is not None and mail.state in STOPPED else ["again"]

    @operation("Send again", icon="forward_to_inbox", permission=SEND_MAIL_AGAIN, url_path="send-again")
    def again(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have the mail sent again."""
        mail = self.row_of(request, object_id)
        return AgainPage(
            form=AgainForm,
            mail=mail,
            title=f"Send mail {mail.pk} again",
            button="Send it again",
            explanation=f"{WORDS[mail.state]} It goes to the present e-mail address of the customer.",
            back=row_url(Mail, mail.pk),
        ).view(self, request)


def reminders_table(invoice: Invoice) -> dict[str, Any]:
    """Return the reminders of an invoice."""
    return table_of(
        Reminder.objects.filter(invoice_id=invoice.pk).order_by("step"),
        ("Reminder", "step"),
        columns.day("On", "reminded_on"),
        ("Amount due", lambda row: money(row.remaining_minor, invoice.currency)),
        ("Fee", lambda row: money(row.fee_minor, invoice.currency) if row.fee_minor else ""),
        ("Suspends", lambda row: "yes" if row.suspends else ""),
        ("By", "actor"),
    )


def mails_table(invoice: Invoice) -> dict[str, Any]:
    """Return the mails with an invoice."""
    return table_of(
        Mail.objects.filter(invoice_id=invoice.pk).order_by("pk"),
        MailAdmin.number,
        MailAdmin.state_label,
        ("To", "recipient"),
        MailAdmin.why,
        MailAdmin.queued,
        MailAdmin.ended,
    )
