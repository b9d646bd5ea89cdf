"""Pages of bank receipts: what statements say came in, what it paid, and what is left for a person."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from billing.additions import transfer_orders
from billing.admin.cells import by_pk, money_column
from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.models import Invoice
from billing.permissions import PAY_INVOICE
from billing.rating.money import money_text
from billing.statements_in.models import BankReceipt
from billing.statements_in.settling import ReceiptBooking, ReceiptSetAside, book_left_receipt, set_receipt_aside
from ledger.staff.approvals import Stake, StakeRule
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link, row_url
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation

COLOURS = {"left": "warning", "booked": "success", "put_aside": "info"}


def _link_to_paid(row: Any) -> Any:
    if row.invoice_id:
        return row_link(Invoice, row.invoice_id, f"invoice {row.invoice}")
    if row.payment_intent_id:
        orders, name = transfer_orders(), f"payment intent {row.payment_intent_id}"
        return name if orders is None else row_link(orders.model, row.payment_intent_id, name)
    return ""


@admin.register(BankReceipt)
class BankReceiptAdmin(ReadOnlyAdmin):
    """The receipts of bank statements, newest first."""

    number = Column("Receipt", "pk")
    state_cell = columns.badge("State", "state", COLOURS)
    amount = money_column("Amount", "amount_minor")
    day = Column("Booked on", "booked_on")
    value_day = Column("Value date", "value_on")
    words = Column("Text", "text")
    party_cell = Column("Payer", "party")
    account_cell = Column("Account", "account")
    reason = Column("Why it is left", "why")
    paid = Column("Paid", _link_to_paid, lambda row: row.invoice_id or row.payment_intent_id or "")
    recorded = columns.instant("Recorded", "recorded_at")
    settled = columns.instant("Settled", "settled_at")

    list_display = ("number", "state_cell", "day", "amount", "words", "reason", "paid")
    list_display_links = ("number",)
    list_filter = (choice("state", list(COLOURS), title="state"), text("account"))
    search_fields = ("name",)
    search_help_text = "The payment's id, or the bank's reference"
    csv_columns = (
        "number", "state_cell", "day", "value_day", "currency", "amount", "words", "party_cell", "account_cell", "name",
        "bank_reference", "reason", "paid", "recorded", "settled", "settled_by", "note",
    )  # fmt: skip
    starts = "A receipt is money that a bank statement says came in: manage.py book_bank_file."
    actions_detail = ("book_receipt", "set_aside")
    fields = (
        ("state_cell", "amount", "day", "value_day"), ("words", "party_cell"), ("account_cell", "bank_reference", "name"),
        ("paid", "settled", "settled_by", "note"), ("recorded", "actor"),
    )  # fmt: skip

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those that are left by their index."""
        values = cl.values()
        fits = Q(state=values["state"]) if "state" in values else Q()
        fits &= Q(account=values["account"]) if "account" in values else Q()
        return FilteredRows(rows=cl.queryset, fits=fits).page(cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """With the invoice that each receipt pays."""
        invoices = by_pk(Invoice, [row.invoice_id for row in rows])
        for row in rows:
            row.invoice = invoices.get(row.invoice_id)

    def searched(self, word: str) -> Q:
        """By its name, which is the payment's id, or by the bank's reference."""
        return Q(name=word) | Q(bank_reference=word)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The receipt in sentences."""
        sentences = [f"{money_text(row.amount_minor, row.currency)} came in on {row.booked_on}: {row.text or 'without a text'}."]
        if row.state == BankReceipt.State.LEFT:
            again = "" if row.waits_for_person else " It is tried again when its file is booked again."
            sentences.append(f"It is left for a person: {row.why}.{again}")
        elif row.state == BankReceipt.State.PUT_ASIDE:
            sentences.append(f"{row.settled_by} put it aside: {row.note}")
        return {"title": f"Bank receipt {row.pk}", "sentences": sentences}

    @operation("Book", icon="payments", permission=PAY_INVOICE, url_path="book")
    def book_receipt(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Book it for an invoice or an order."""
        return booking_view(self, request, self.row_of(request, object_id))

    @operation("Put aside", icon="inventory_2", permission=PAY_INVOICE, url_path="put-aside")
    def set_aside(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that it is for no invoice and no order."""
        return set_aside_view(self, request, self.row_of(request, object_id))


RECEIVED: Final = StakeRule(lambda form, receipt: [Stake(receipt.currency, receipt.amount_minor)])


class BookingForm(OrderForm, RequestForm[ReceiptBooking]):
    """What a receipt is booked for."""

    declared = ReceiptBooking
    stake = RECEIVED
    shows = {
        "target": Display(label="For", help="The number of the invoice, or the reference of the payment intent (RF…)."),
        "reason": REASON,
    }


def booking_view(model_admin: ReadOnlyAdmin, request: HttpRequest, receipt: BankReceipt) -> HttpResponse:
    """Show the form that books a receipt, then its effect, then book it."""
    amount = money_text(receipt.amount_minor, receipt.currency)

    def describe(booked: BankReceipt, form: BookingForm) -> DryRun:
        if booked.invoice_id is None:
            return DryRun(sentences=[f"{amount} pays payment intent {booked.payment_intent_id}."])
        invoice = Invoice.objects.get(pk=booked.invoice_id)
        rest = money_text(invoice.amount_remaining_minor, invoice.currency)
        return DryRun(sentences=[f"{amount} is recorded for {invoice}, which is then {invoice.state}; amount due: {rest}."])

    return OrderPage(
        form=BookingForm,
        collection="bank-receipts",
        about=receipt,
        pointer="/target",
        write=lambda form: book_left_receipt.execute(replace(form.request, actor=form.actor)),
        describe=describe,
        done=lambda _, form: (f"Bank receipt {receipt.pk}", f"for {form.request.target}"),
        fixed={"receipt": receipt.pk},
        title=f"Book bank receipt {receipt.pk}",
        button="Book the receipt",
        explanation=f"{amount} came in on {receipt.booked_on}: {receipt.text}",
        back=row_url(BankReceipt, receipt.pk),
    ).view(model_admin, request)


class SetAsideForm(OrderForm, RequestForm[ReceiptSetAside]):
    """Why a receipt is put aside."""

    declared = ReceiptSetAside
    stake = RECEIVED
    shows = {"reason": Display(label="Reason", help="What the money is, for later questions.")}


def set_aside_view(model_admin: ReadOnlyAdmin, request: HttpRequest, receipt: BankReceipt) -> HttpResponse:
    """Show the form that puts a receipt aside, then do it."""
    return OrderPage(
        form=SetAsideForm,
        collection="bank-receipts-aside",
        about=receipt,
        pointer="/reason",
        write=lambda form: set_receipt_aside.execute(replace(form.request, actor=form.actor)),
        describe=lambda _, form: DryRun(sentences=["No file and nobody books it any more."]),
        done=lambda _, form: (f"Bank receipt {receipt.pk}", "put aside"),
        fixed={"receipt": receipt.pk},
        title=f"Put bank receipt {receipt.pk} aside",
        button="Put it aside",
        explanation=f"{money_text(receipt.amount_minor, receipt.currency)} came in on {receipt.booked_on}: {receipt.text}",
        back=row_url(BankReceipt, receipt.pk),
    ).view(model_admin, request)
