"""Pages of payments of invoices: the money, what it paid, and what went back."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from billing.admin import payment_forms as forms
from billing.admin.cells import customer_link, document_link, ids_of_customer, money_column
from billing.models import CreditNote, Invoice, InvoicePayment
from billing.permissions import RETURN_PAYMENT
from billing.rating.values import CREDIT
from billing.reads import invoice_payments as reads
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation


@admin.register(InvoicePayment)
class InvoicePaymentAdmin(ReadOnlyAdmin):
    """The payments of invoices, newest first."""

    number = Column("Payment", "pk")
    invoice_cell = Column("Invoice", lambda row: document_link(row.invoice), lambda row: row.found.number)
    customer_cell = Column(
        "Customer", lambda row: customer_link(row.customer_id, row.found.customer), lambda row: row.found.customer
    )
    amount = money_column("Amount", "amount_minor")
    applied = money_column("Paid the invoice", "applied_minor")
    deposit = money_column("Became credit", lambda row: row.found.deposit_minor)
    deposit_cell = Column(
        "Credit", lambda row: "" if row.deposit_id is None else row_link(CreditNote, row.deposit_id, row.deposit_id), "deposit_id"
    )
    returned = money_column("Went back", lambda row: row.found.returned_minor)
    paid_on = columns.instant("Paid on", "paid_at")
    recorded = columns.instant("Recorded", "recorded_at")

    list_display = ("number", "invoice_cell", "customer_cell", "amount", "applied", "deposit", "returned", "provider", "paid_on")
    list_display_links = ("number",)
    list_filter = (text("customer"), text("provider"))
    search_fields = ("payment",)
    search_help_text = "The provider's id of the payment"
    csv_columns = (
        "number", "invoice_cell", "customer_cell", "currency", "amount", "applied", "deposit", "returned", "provider", "payment",
        "reference", "paid_on", "recorded", "actor",
    )  # fmt: skip
    starts = "A payment is money for an invoice. Providers and programs record it; the page of an invoice has a form for it."
    actions_detail = ("record_return",)
    fields = (
        ("invoice_cell", "customer_cell", "deposit_cell"), ("provider", "payment", "reference"), ("paid_on", "recorded", "actor"),
    )  # fmt: skip

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those of a customer by their index."""
        values = cl.values()
        rows = cl.queryset
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        fits = Q(provider=values["provider"]) if "provider" in values else Q()
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """By the provider's id of the payment."""
        return Q(payment=word)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row its invoice, and what became of it."""
        found = {each.pk: each for each in reads.payment_rows(list(rows))}
        invoices = Invoice.objects.in_bulk({row.invoice_id for row in rows})
        for row in rows:
            row.found, row.invoice = found[row.pk], invoices[row.invoice_id]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The payment in sentences, with what went back of it."""
        return {
            "title": f"Payment {row.pk}",
            "sentences": forms.payment_sentences(row.found, row.invoice),
            "parts": [("Returns", forms.returns_table(row.found))],
        }

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Nothing goes back of a payment by credit, because no money came in."""
        paid = self.get_object(request, unquote(object_id))
        return ["record_return"] if paid is not None and paid.provider == CREDIT else []

    @operation("Record a return", icon="undo", permission=RETURN_PAYMENT, url_path="return")
    def record_return(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record money that went back."""
        return forms.record_return_view(self, request, self.row_of(request, object_id))
