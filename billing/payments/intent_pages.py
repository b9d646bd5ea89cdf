"""Pages of payment intents: what a provider is asked for, how it stands, and what went back."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.admin.cells import customer_link, ids_of_customer, money, money_column
from billing.models import Invoice, InvoicePayment
from billing.payments import intent_forms, intent_reads
from billing.payments.advancing import refresh
from billing.payments.declines import WORDS as WORDS_OF_DECLINES
from billing.payments.declines import decline_of
from billing.payments.intent_orders import refundable_minor
from billing.payments.intent_reads import IntentRow
from billing.payments.models import OPEN_INTENT, Pack, PaymentIntent, ProviderEvent, Purchase
from billing.payments.permissions import ADD_PURCHASE, REFUND_PAYMENTINTENT
from billing.payments.providers.interface import STATES
from billing.permissions import PAY_INVOICE
from billing.rating.money import money_text
from billing.rating.values import MANUAL
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.links import holder_link

STATE_COLOURS = dict(zip(STATES, ("info", "warning", "info", "success", "danger", "info"), strict=True))
EVENTS_SHOWN = 50


def _target(row: Any) -> SafeString | str:
    if row.invoice_id:
        return row_link(Invoice, row.invoice_id, _target_text(row))
    return row_link(Pack, row.pack_id, str(row.intent.pack_row))


def _target_text(row: Any) -> str:
    return f"invoice {row.invoice}" if row.invoice_id else str(row.intent.pack_row)


@admin.register(PaymentIntent)
class PaymentIntentAdmin(ReadOnlyAdmin):
    """The payment intents, newest first."""

    number = Column("Payment", "pk")
    state_cell = columns.badge("State", "state", STATE_COLOURS)
    target = Column("For", _target, _target_text)
    holder = Column("Holder", lambda row: holder_link(row.holder_id) if row.holder_id else "", lambda row: row.holder_id or "")
    customer_cell = Column(
        "Customer",
        lambda row: customer_link(row.customer_id, row.intent.customer) if row.intent.customer else "",
        lambda row: row.intent.customer or "",
    )
    amount = money_column("Amount", "amount_minor")
    returned = money_column("Returned", "returned_minor")
    how = Column("By", lambda row: "a saved method" if row.method else "a transfer" if row.provider == MANUAL else "a checkout")
    problem = Column("Problem", "error")
    recorded = columns.instant("Recorded", "recorded_at")
    settled = columns.instant("Paid", "settled_at")
    next_try = columns.instant("Asked next", "due_at")

    list_display = ("number", "state_cell", "target", "holder", "customer_cell", "amount", "returned", "how", "recorded")
    list_display_links = ("number",)
    list_filter = (
        choice("state", list(STATES), title="state"), text("holder"), text("customer"), text("provider"),
        choice("problem", ["yes"], title="problem"),
    )  # fmt: skip
    search_fields = ("payment",)
    search_help_text = "The provider's id of the payment or of the checkout"
    csv_columns = (
        "number", "state_cell", "target", "holder", "customer_cell", "currency", "amount", "returned", "how", "provider",
        "payment", "checkout", "problem", "reference", "recorded", "settled", "actor",
    )  # fmt: skip
    starts = "A provider is asked for the money of a pack or of an invoice: POST /v1/payment-intents."
    actions_detail = ("book_transfer", "refund", "cancel")
    fields = (
        ("state_cell", "target", "holder", "customer_cell"),
        ("provider", "payment", "checkout", "reference"),
        ("recorded", "settled", "next_try", "actor"),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those of a holder by their index."""
        values = cl.values()
        rows = cl.queryset.filter(holder_id=values["holder"]) if "holder" in values else cl.queryset
        fits = Q(state=values["state"]) if "state" in values else Q()
        fits &= Q(provider=values["provider"]) if "provider" in values else Q()
        fits &= ~Q(error="") if "problem" in values else Q()
        if "customer" in values:
            fits &= Q(customer_id__in=ids_of_customer(values["customer"]))
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """By the provider's ids."""
        return Q(payment=word) | Q(checkout=word)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row what it is for, and what became of it."""
        intents = {each.pk: each for each in intent_reads.intent_rows(list(rows))}
        invoices = Invoice.objects.in_bulk({row.invoice_id for row in rows if row.invoice_id})
        for row in rows:
            row.intent, row.invoice = intents[row.pk], invoices.get(row.invoice_id)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The intent in sentences, with its refunds and events. Workers ask how an open one stands."""
        refresh(row.pk)
        row.refresh_from_db()
        self.prepare([row])
        return {
            "title": f"Payment intent {row.pk}",
            "sentences": _sentences(row.intent),
            "parts": [("Refunds", _refunds_table(row.intent)), ("Events", _events_table(row))],
        }

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide what the payment's state and provider do not allow."""
        intent = self.get_object(request, unquote(object_id))
        if intent is None:
            return []
        possible = {
            "book_transfer": intent.provider == MANUAL,
            "refund": intent.provider != MANUAL and refundable_minor(intent) > 0,
            "cancel": intent.state in OPEN_INTENT and not intent.is_canceled,
        }
        return [name for name, is_possible in possible.items() if not is_possible]

    @operation("Book a transfer", icon="account_balance", permission=PAY_INVOICE, url_path="transfer")
    def book_transfer(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Book money that the customer transferred."""
        intent = self.row_of(request, object_id)
        if intent.pack_id is not None and not request.user.has_perm(ADD_PURCHASE):
            raise PermissionDenied
        return intent_forms.transfer_view(self, request, intent)

    @operation("Refund", icon="undo", permission=REFUND_PAYMENTINTENT, url_path="refund")
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have the provider send money back."""
        return intent_forms.refund_view(self, request, self.row_of(request, object_id))

    @operation("Cancel", icon="cancel", permission=REFUND_PAYMENTINTENT, url_path="cancel")
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give an open payment up."""
        return intent_forms.cancel_view(self, request, self.row_of(request, object_id))


WORDS = {
    "requested": "{provider} is to be asked for {amount}.",
    "waiting": "{provider} waits for the customer to pay {amount}.",
    "processing": "{provider} is at work on {amount}.",
    "succeeded": "{amount} is in.",
    "failed": "{provider} could not take {amount}.",
    "canceled": "Nobody has paid {amount}, and nobody can any more.",
}


def _sentences(intent: IntentRow) -> list[Any]:
    row = intent.row
    sentences: list[Any] = [WORDS[row.state].format(provider=row.provider, amount=money_text(row.amount_minor, row.currency))]
    if intent.transfer is not None:
        amount = money_text(intent.transfer.amount_minor, row.currency)
        to = intent.transfer.seller.get("iban")
        sentences.append(f"The customer is to transfer {amount}{f' to {to}' if to else ''}: {intent.transfer.reference}.")
    if row.is_canceled and row.state in ("requested", "waiting", "processing"):
        sentences.append("It is to be given up.")
    decline = decline_of(row.error)
    if decline:
        again = " The customer can try again, also with another card." if row.state in OPEN_INTENT else ""
        sentences.append(f"The last try failed: {WORDS_OF_DECLINES[decline]}, and nothing was charged.{again}")
    if row.error:
        sentences.append(f"{row.provider.capitalize()}'s last answer: {row.error}")
    if row.returned_minor:
        sentences.append(f"{money_text(row.returned_minor, row.currency)} went back.")
    if intent.purchase:
        sentences.append(format_html("It made {}.", row_link(Purchase, intent.purchase, f"purchase {intent.purchase}")))
    if intent.invoice_payment:
        linked = row_link(InvoicePayment, intent.invoice_payment, f"payment {intent.invoice_payment}")
        sentences.append(format_html("It made {}.", linked))
    return sentences


def _refunds_table(intent: IntentRow) -> dict[str, Any]:
    return table_of(
        intent.refunds,
        ("State", "state"),
        ("Id", "refund"),
        ("Amount", lambda one: money(one.amount_minor, intent.row.currency)),
        ("Reason", "reason"),
        ("Problem", "error"),
        ("Actor", "actor"),
        columns.instant("Recorded", "recorded_at"),
    )


def _events_table(row: PaymentIntent) -> dict[str, Any]:
    return table_of(
        ProviderEvent.objects.filter(intent_id=row.pk).order_by("-pk")[:EVENTS_SHOWN],
        ("Event", "event"),
        ("Type", "type"),
        columns.instant("Received", "received_at"),
    )
