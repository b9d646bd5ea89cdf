"""Pages of invoices with their lines, taxes and payments."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing.admin.cells import (
    by_pk,
    credits_text,
    customer_link,
    customer_names,
    document_link,
    list_url,
    money,
    pdf_link,
    subscription_link,
)
from billing.admin.documents.credit_notes import can_be_credited, credit_view, notes_table
from billing.admin.documents.lists import CSV, STILL_DUE, totals_of, wanted_invoices
from billing.admin.documents.page import invoice_document, invoice_sentences
from billing.admin.documents.pdfs import pdf_view
from billing.admin.documents.transitions import deletion_view, impossible, transition_view, transitions_table
from billing.admin.search import customers_of
from billing.documents.printing.printed import invoice_pdf
from billing.models import (
    Coupon,
    CouponUse,
    CreditNoteUse,
    CreditPayment,
    CustomerCoupon,
    Invoice,
    Run,
    Subscription,
)
from ledger.admin.kit.cells import day_words, digits, row_link, row_url, table, timestamp
from ledger.admin.kit.filters import choice, day, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.kit.saved_lists import Totals
from ledger.admin.links import account_link, entry_link

MAX_ID_DIGITS = 19
STATE_COLOURS = {
    "draft": "warning",
    "open": "info",
    "paid": "success",
    "void": "danger",
    "uncollectible": "danger",
}


def invoices_table(invoices: Iterable[Invoice]) -> dict[str, Any]:
    """A short table of invoices for other pages."""
    return table(
        ["Invoice", "State", "Issued", "Total", "Due", "Created", "File"],
        [
            (
                document_link(row),
                row.state,
                day_words(row.issue_date),
                money(row.total_minor, row.currency),
                money(row.amount_due_minor, row.currency),
                timestamp(row.created_at),
                pdf_link(row),
            )
            for row in invoices
        ],
    )


def _attach_names(rows: Iterable[Any]) -> None:
    names = customer_names(rows)
    for row in rows:
        row.customer_name = names.get(row.customer_id, "")


@admin.register(Invoice)
class InvoiceAdmin(ReadOnlyAdmin):
    """The invoices, newest first. Operators can change their state, never their content."""

    list_display = ("name", "state_label", "subscription_cell", "customer_cell", "issued", "total", "due", "due_on", "made")
    list_display_links = ("name",)
    list_filter = (
        choice("state", Invoice.State.values),
        choice("overdue", ["yes"]),
        text("customer"),
        text("subscription"),
        text("plan"),
        text("currency"),
        day("since", title="issued from"),
        day("until", title="issued before"),
    )
    csv_columns = CSV
    starts = "A run of the generator makes invoices of what subscriptions owe: manage.py generate_invoices."
    search_fields = ("number",)
    search_help_text = "Number, subscription or customer"
    actions_detail = ("show_pdf", "finalize", "pay", "credit", "void", "mark_uncollectible", "delete_draft")
    change_form_outer_before_template = "admin/billing/document.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = (
        (None, {"fields": (("state_label", "subscription_cell", "customer_cell"),)}),
        (
            "History",
            {"classes": ("collapse",), "fields": (("made", "until"), ("finalized", "paid"), ("voided", "uncollectible"), "run")},
        ),
    )
    readonly_fields = (
        "name",
        "state_label",
        "subscription_cell",
        "customer_cell",
        "made",
        "finalized",
        "paid",
        "voided",
        "uncollectible",
        "until",
        "run",
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Read by the index that serves the filters best; the customers' names by one query."""
        page = wanted_invoices(cl.queryset, cl.values()).page(cursor, most=cl.page_rows)
        _attach_names(page.rows)
        return page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Invoice | None:
        """The invoice with its customer's name."""
        row: Invoice | None = super().get_object(request, object_id, from_field)
        if row is not None:
            _attach_names([row])
        return row

    def totals(self, request: HttpRequest, cl: UncountedList) -> Totals:
        """The invoiced amount and the amount due for each currency."""
        sums = wanted_invoices(cl.queryset, cl.values()).sums(by="currency", of=(Sum("total_minor"), STILL_DUE))
        return totals_of(sums, "invoice", ("in total", "due"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Invoice], search_term: str
    ) -> tuple[QuerySet[Invoice], bool]:
        """Search by number, or by a subscription or customer: each has its index."""
        word = search_term.strip()
        if not word:
            return queryset, False
        subscription = Subscription.objects.filter(ref=word).values_list("pk", flat=True).first()
        found = Q(number=word) | Q(customer_id__in=customers_of(word))
        if subscription is not None:
            found |= Q(subscription_id=subscription)
        return queryset.filter(found), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the invoice as a document: lines, taxes, totals."""
        context = {**(extra_context or {}), "subtitle": ""}
        invoice = self.get_object(request, unquote(object_id))
        if invoice is not None:
            paid = CreditPayment.objects.filter(invoice_id=invoice.pk).first()
            context |= {
                "title": f"Invoice {invoice.number}" if invoice.number else f"Draft for {invoice.subscription_ref}",
                "sentences": invoice_sentences(invoice),
                "document": invoice_document(invoice),
                "parts": [
                    *([("Paid with credits", _payment_table(paid, invoice.currency))] if paid else []),
                    ("Coupons used", _coupons_table(invoice)),
                    ("Credit notes used", _notes_used_table(invoice)),
                    ("Credit notes about this invoice", notes_table(invoice)),
                    ("State changes", transitions_table(invoice)),
                ],
                "links": [(list_url(Invoice, subscription=invoice.subscription_ref), "All invoices of this subscription")],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # What can be done ---------------------------------------------------------------------------------

    def has_finalize_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may finalise. For a permission by name, Django's checks would query the database."""
        return bool(request.user.has_perm("billing.finalize_invoice"))

    def has_pay_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may mark invoices as paid."""
        return bool(request.user.has_perm("billing.pay_invoice"))

    def has_void_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may void invoices."""
        return bool(request.user.has_perm("billing.void_invoice"))

    def has_mark_uncollectible_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may mark invoices as uncollectible."""
        return bool(request.user.has_perm("billing.mark_invoice_uncollectible"))

    def has_credit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may issue credit notes."""
        return bool(request.user.has_perm("billing.credit_invoice"))

    def has_delete_draft_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may delete drafts."""
        return bool(request.user.has_perm("billing.delete_draft"))

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the actions that the invoice's state does not allow."""
        invoice = self.get_object(request, unquote(object_id))
        if invoice is None:
            return []
        return [*impossible(invoice), *([] if can_be_credited(invoice) else ["credit"])]

    @action(description="PDF", icon="picture_as_pdf", permissions=["view"], url_path="pdf", attrs={"target": "_blank"})
    def show_pdf(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the invoice's PDF."""
        invoice = self._of(request, object_id)
        return pdf_view(request, partial(invoice_pdf, invoice.pk), back=row_url(Invoice, invoice.pk))

    @action(description="Finalise", icon="task_alt", permissions=["finalize"])
    def finalize(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Finalise a draft."""
        return transition_view(self, request, self._of(request, object_id), "finalize")

    @action(description="Mark as paid", icon="payments", permissions=["pay"])
    def pay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Mark the invoice as paid."""
        return transition_view(self, request, self._of(request, object_id), "pay")

    @action(description="Credit", icon="undo", permissions=["credit"])
    def credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Credit lines of the invoice, or its whole rest."""
        return credit_view(self, request, self._of(request, object_id))

    @action(description="Void", icon="block", permissions=["void"])
    def void(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Void the invoice."""
        return transition_view(self, request, self._of(request, object_id), "void")

    @action(
        description="Mark as uncollectible", icon="money_off", permissions=["mark_uncollectible"], url_path="mark-uncollectible"
    )
    def mark_uncollectible(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Mark the invoice as uncollectible."""
        return transition_view(self, request, self._of(request, object_id), "mark_uncollectible")

    @action(description="Delete draft", icon="delete", permissions=["delete_draft"], url_path="delete-draft")
    def delete_draft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Delete a draft; the deletion stays on record."""
        draft = self.get_object(request, unquote(object_id))
        if draft is not None:
            return transition_view(self, request, draft, "delete")
        is_id = object_id.isdecimal() and len(object_id) <= MAX_ID_DIGITS
        deleted = deletion_view(self, request, int(object_id)) if is_id else None
        if deleted is None:
            raise Http404
        return deleted

    def _of(self, request: HttpRequest, object_id: str) -> Invoice:
        invoice: Invoice | None = self.get_object(request, unquote(object_id))
        if invoice is None:
            raise Http404
        return invoice

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Invoice")
    def name(self, row: Invoice) -> str:
        return str(row)

    @display(description="State", label=STATE_COLOURS)
    def state_label(self, row: Invoice) -> str:
        return row.state

    @display(description="Subscription")
    def subscription_cell(self, row: Invoice) -> SafeString:
        return subscription_link(row.subscription_id, row.subscription_ref)

    @display(description="Customer")
    def customer_cell(self, row: Any) -> SafeString:
        return customer_link(row.customer_id, row.customer_ref, row.customer_name)

    @display(description="Total")
    def total(self, row: Invoice) -> SafeString | str:
        return money(row.total_minor, row.currency)

    @display(description="Amount due")
    def due(self, row: Invoice) -> SafeString | str:
        return money(row.amount_due_minor, row.currency)

    @display(description="Issued")
    def issued(self, row: Invoice) -> str:
        return day_words(row.issue_date)

    @display(description="Payable until")
    def due_on(self, row: Invoice) -> str:
        return day_words(row.due_date)

    @display(description="Created")
    def made(self, row: Invoice) -> SafeString | str:
        return timestamp(row.created_at)

    @display(description="Finalised")
    def finalized(self, row: Invoice) -> SafeString | str:
        return timestamp(row.finalized_at)

    @display(description="Paid")
    def paid(self, row: Invoice) -> SafeString | str:
        return timestamp(row.paid_at)

    @display(description="Voided")
    def voided(self, row: Invoice) -> SafeString | str:
        return timestamp(row.voided_at)

    @display(description="Uncollectible since")
    def uncollectible(self, row: Invoice) -> SafeString | str:
        return timestamp(row.uncollectible_at)

    @display(description="Bills up to")
    def until(self, row: Invoice) -> SafeString | str:
        return timestamp(row.as_of)

    @display(description="Run")
    def run(self, row: Invoice) -> SafeString | str:
        run = Run.objects.filter(pk=row.run_id).first() if row.run_id else None
        return "" if run is None else row_link(Run, run.pk, run)


def _payment_table(paid: CreditPayment, currency: str) -> dict[str, Any]:
    def entry(sequence: int | None) -> SafeString | str:
        return "" if sequence is None else entry_link(paid.holder_id, paid.credit_type, sequence)

    return table(
        ["Holder", "Credits", "Amount", "Spend", "Returned by"],
        [
            (
                account_link(paid.holder_id, paid.credit_type),
                digits(credits_text(paid.credits, paid.credit_type)),
                money(paid.amount_minor, currency),
                entry(paid.spend_sequence),
                entry(paid.refund_sequence),
            )
        ],
    )


def _coupons_table(invoice: Invoice) -> dict[str, Any]:
    uses = list(CouponUse.objects.filter(invoice_id=invoice.pk).order_by("pk"))
    given = by_pk(CustomerCoupon, [use.customer_coupon_id for use in uses]) if uses else {}
    coupons = by_pk(Coupon, [each.coupon_id for each in given.values()]) if uses else {}

    def coupon(use: CouponUse) -> SafeString | str:
        held = given.get(use.customer_coupon_id)
        found = None if held is None else coupons.get(held.coupon_id)
        return "" if found is None else row_link(Coupon, found.pk, found.code)

    return table(
        ["Coupon", "Discount", "Periods", "Used", "Returned"],
        [
            (
                coupon(use),
                money(use.amount_minor, use.currency),
                len(use.periods) or "",
                timestamp(use.used_at),
                timestamp(use.released_at),
            )
            for use in uses
        ],
    )


def _notes_used_table(invoice: Invoice) -> dict[str, Any]:
    uses = CreditNoteUse.objects.filter(invoice_id=invoice.pk).select_related("credit_note").order_by("pk")
    sources = by_pk(Invoice, [use.credit_note.invoice_id for use in uses])
    return table(
        ["Source invoice", "Used on this invoice", "Used", "Returned"],
        [
            (
                "this invoice"
                if use.credit_note.invoice_id == invoice.pk
                else document_link(sources.get(use.credit_note.invoice_id)),
                money(use.amount_minor, use.credit_note.currency),
                timestamp(use.recorded_at),
                timestamp(use.released_at),
            )
            for use in uses
        ],
    )
