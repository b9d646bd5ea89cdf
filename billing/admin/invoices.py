"""Invoices with their lines, taxes and what paid them."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing.admin.cells import by_pk, customer_link, invoice_link, list_url, money, pairs, period, plain, subscription_link
from billing.admin.credit_notes import can_be_credited, credit_view, notes_table
from billing.admin.moves import deletion_view, impossible, move_view, moves_table
from billing.models import (
    Coupon,
    CouponUse,
    CreditNoteUse,
    CreditPayment,
    Customer,
    CustomerCoupon,
    Invoice,
    InvoiceTax,
    Line,
    Run,
    Subscription,
)
from billing.rating.tax import NOTES
from ledger.admin.kit.pages import ReadOnlyAdmin, choice, moment, number, row_link, table
from ledger.admin.links import account_link, entry_link

STATE_COLOURS = {
    "draft": "warning",
    "open": "info",
    "paid": "success",
    "void": "danger",
    "uncollectible": "danger",
}


def invoices_table(invoices: Sequence[Invoice]) -> dict[str, Any]:
    """Invoices in short, inside another page."""
    return table(
        ["Invoice", "State", "Issued", "Total", "Due", "Created (UTC)"],
        [
            (
                invoice_link(row.pk, str(row)),
                row.state,
                row.issue_date.isoformat() if row.issue_date else "",
                money(row.total_minor, row.currency),
                money(row.amount_due_minor, row.currency),
                moment(row.created_at),
            )
            for row in invoices
        ],
    )


@admin.register(Invoice)
class InvoiceAdmin(ReadOnlyAdmin):
    """Documents, newest first. What stands in them nobody changes here; they are moved from state to state."""

    list_display = ("name", "state_label", "subscription_cell", "customer_cell", "issued", "total", "due", "due_on", "made")
    list_display_links = ("name",)
    list_filter = (choice("state", Invoice.State.values, of_column="state"),)
    search_fields = ("number",)
    search_help_text = "Number, subscription or customer"
    actions_detail = ("finalize", "pay", "credit", "void", "give_up", "delete_draft")
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("state_label", "total", "due"), ("subscription_cell", "customer_cell"), ("issued", "due_on"))}),
        ("Buyer at that time", {"classes": ("collapse",), "fields": ("buyer_text",)}),
        (
            "History (UTC)",
            {"classes": ("collapse",), "fields": (("made", "until"), ("finalized", "paid"), ("voided", "uncollectible"), "run")},
        ),
    )
    readonly_fields = (
        "name",
        "state_label",
        "issued",
        "due_on",
        "total",
        "due",
        "subscription_cell",
        "customer_cell",
        "buyer_text",
        "made",
        "finalized",
        "paid",
        "voided",
        "uncollectible",
        "until",
        "run",
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Invoice], search_term: str
    ) -> tuple[QuerySet[Invoice], bool]:
        """By number, or by the subscription or customer of that reference: each has its index."""
        word = search_term.strip()
        if not word:
            return queryset, False
        subscription = Subscription.objects.filter(ref=word).values_list("pk", flat=True).first()
        customer = Customer.objects.filter(ref=word).values_list("pk", flat=True).first()
        found = Q(number=word)
        if subscription is not None:
            found |= Q(subscription_id=subscription)
        if customer is not None:
            found |= Q(customer_id=customer)
        return queryset.filter(found), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The invoice as a document: lines, taxes, totals."""
        context = {**(extra_context or {}), "subtitle": ""}
        invoice = self.get_object(request, unquote(object_id))
        if invoice is not None:
            lines = list(Line.objects.filter(invoice_id=invoice.pk).order_by("position"))
            taxes = list(InvoiceTax.objects.filter(invoice_id=invoice.pk).order_by("category", "rate"))
            paid = CreditPayment.objects.filter(invoice_id=invoice.pk).first()
            context |= {
                "title": f"Invoice {invoice.number}" if invoice.number else f"Draft {invoice.pk}",
                "parts": [
                    ("Lines", lines_table(lines, invoice.currency)),
                    ("Taxes", _taxes_table(taxes, invoice.currency)),
                    ("Totals", _totals_table(invoice)),
                    *([("Paid with credits", _payment_table(paid, invoice.currency))] if paid else []),
                    ("Coupons used", _coupons_table(invoice)),
                    ("Credit notes used", _notes_used_table(invoice)),
                    ("Credit notes about this invoice", notes_table(invoice)),
                    ("State changes", moves_table(invoice)),
                ],
                "links": [(list_url(Invoice, q=invoice.subscription_ref), "All invoices of this subscription")],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # What can be done ---------------------------------------------------------------------------------

    def has_finalize_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """By a method, as those below: a permission by name would have Django's checks ask the database for it."""
        return bool(request.user.has_perm("billing.finalize_invoice"))

    def has_pay_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who may note that the money has arrived."""
        return bool(request.user.has_perm("billing.pay_invoice"))

    def has_void_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who may take a document back."""
        return bool(request.user.has_perm("billing.void_invoice"))

    def has_give_up_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who may expect the money no more."""
        return bool(request.user.has_perm("billing.give_up_invoice"))

    def has_credit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who may give back what was charged."""
        return bool(request.user.has_perm("billing.credit_invoice"))

    def has_delete_draft_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who may take a draft away."""
        return bool(request.user.has_perm("billing.delete_draft"))

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """What the state does not allow is not offered."""
        invoice = self.get_object(request, unquote(object_id))
        if invoice is None:
            return []
        return [*impossible(invoice), *([] if can_be_credited(invoice) else ["credit"])]

    @action(description="Finalise", icon="task_alt", permissions=["finalize"])
    def finalize(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make a draft a document."""
        return move_view(self, request, self._of(request, object_id), "finalize")

    @action(description="Mark as paid", icon="payments", permissions=["pay"])
    def pay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Note that the money has arrived."""
        return move_view(self, request, self._of(request, object_id), "pay")

    @action(description="Credit", icon="undo", permissions=["credit"])
    def credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give back what was charged, line by line or all that is left."""
        return credit_view(self, request, self._of(request, object_id))

    @action(description="Void", icon="block", permissions=["void"])
    def void(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the document back."""
        return move_view(self, request, self._of(request, object_id), "void")

    @action(description="Mark as uncollectible", icon="money_off", permissions=["give_up"], url_path="give-up")
    def give_up(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Expect the money no more."""
        return move_view(self, request, self._of(request, object_id), "give_up")

    @action(description="Delete draft", icon="delete", permissions=["delete_draft"], url_path="delete-draft")
    def delete_draft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take a draft away; that it was there stays on record."""
        draft = self.get_object(request, unquote(object_id))
        if draft is not None:
            return move_view(self, request, draft, "delete")
        deleted = deletion_view(self, request, int(object_id)) if object_id.isdecimal() else None
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
    def customer_cell(self, row: Invoice) -> SafeString:
        return customer_link(row.customer_id, row.customer_ref)

    @display(description="Total")
    def total(self, row: Invoice) -> SafeString | str:
        return money(row.total_minor, row.currency)

    @display(description="Amount due")
    def due(self, row: Invoice) -> SafeString | str:
        return money(row.amount_due_minor, row.currency)

    @display(description="Issued")
    def issued(self, row: Invoice) -> str:
        return row.issue_date.isoformat() if row.issue_date else ""

    @display(description="Payable until")
    def due_on(self, row: Invoice) -> str:
        return row.due_date.isoformat() if row.due_date else ""

    @display(description="Buyer")
    def buyer_text(self, row: Invoice) -> SafeString:
        return pairs(row.buyer)

    @display(description="Created")
    def made(self, row: Invoice) -> SafeString | str:
        return moment(row.created_at)

    @display(description="Finalised")
    def finalized(self, row: Invoice) -> SafeString | str:
        return moment(row.finalized_at)

    @display(description="Paid")
    def paid(self, row: Invoice) -> SafeString | str:
        return moment(row.paid_at)

    @display(description="Voided")
    def voided(self, row: Invoice) -> SafeString | str:
        return moment(row.voided_at)

    @display(description="Uncollectible since")
    def uncollectible(self, row: Invoice) -> SafeString | str:
        return moment(row.uncollectible_at)

    @display(description="Bills up to")
    def until(self, row: Invoice) -> SafeString | str:
        return moment(row.as_of)

    @display(description="Run")
    def run(self, row: Invoice) -> SafeString | str:
        return "" if row.run_id is None else row_link(Run, row.run_id, row.run_id)


def covered_cell(line: Line) -> SafeString | str:
    """What of a line is paid in credits, with the entries of the ledger."""
    covered = line.rating.get("covered")
    if not covered or not (covered["credits"] or covered["entries"]):
        return ""
    what = f"{covered['units']} units for {covered['credits']} {covered['credit_type']}".replace("-", "−")
    entries = [(entry_link(covered["holder_id"], covered["credit_type"], sequence),) for sequence in covered["entries"]]
    return format_html("{} {}", what, format_html_join(" ", "{}", entries))


def lines_table(lines: Sequence[Line], currency: str) -> dict[str, Any]:
    """The lines in the order in which they are printed."""
    return table(
        ["", "Description", "Period (UTC)", "Quantity", "In credits", "Unit price", "Amount", "Discount", "Tax"],
        [
            (
                line.position,
                format_html('{} <span class="text-subtle">{}</span>', line.description, line.kind),
                period(line.starts_at, line.ends_at),
                plain(line.quantity),
                covered_cell(line),
                plain(line.unit_amount),
                money(line.amount_minor, currency),
                money(line.discount_minor, currency) if line.discount_minor else "",
                f"{line.tax_category} {plain(line.tax_rate)} %",
            )
            for line in lines
        ],
    )


def _taxes_table(taxes: Sequence[InvoiceTax], currency: str) -> dict[str, Any]:
    return table(
        ["Category", "Rate", "Base", "Tax", "Note"],
        [
            (
                tax.category,
                f"{plain(tax.rate)} %",
                money(tax.base_minor, currency),
                money(tax.amount_minor, currency),
                NOTES.get(tax.category, ""),
            )
            for tax in taxes
        ],
    )


def _totals_table(invoice: Invoice) -> dict[str, Any]:
    currency = invoice.currency
    steps = [
        ("Subtotal", invoice.subtotal_minor, True),
        ("Discounts", -invoice.discount_minor, False),
        ("Tax", invoice.tax_minor, True),
        ("Total", invoice.total_minor, True),
        ("Credit notes", -invoice.credit_notes_minor, False),
        ("Paid with credits", -invoice.credits_applied_minor, False),
        ("Amount due", invoice.amount_due_minor, True),
    ]
    return table(["", "Amount"], [(words, money(amount, currency)) for words, amount, is_always in steps if amount or is_always])


def _payment_table(paid: CreditPayment, currency: str) -> dict[str, Any]:
    def entry(sequence: int | None) -> SafeString | str:
        return "" if sequence is None else entry_link(paid.holder_id, paid.credit_type, sequence)

    return table(
        ["Holder", "Credits", "Amount", "Spend", "Returned by"],
        [
            (
                account_link(paid.holder_id, paid.credit_type),
                number(paid.credits),
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
        ["Coupon", "Discount", "Times", "Used (UTC)", "Returned (UTC)"],
        [
            (coupon(use), money(use.amount_minor, use.currency), use.periods, moment(use.used_at), moment(use.released_at))
            for use in uses
        ],
    )


def _notes_used_table(invoice: Invoice) -> dict[str, Any]:
    uses = CreditNoteUse.objects.filter(invoice_id=invoice.pk).select_related("credit_note").order_by("pk")
    return table(
        ["Source invoice", "Used on this invoice", "Used (UTC)", "Returned (UTC)"],
        [
            (
                "this invoice" if use.credit_note.invoice_id == invoice.pk else invoice_link(use.credit_note.invoice_id),
                money(use.amount_minor, use.credit_note.currency),
                moment(use.recorded_at),
                moment(use.released_at),
            )
            for use in uses
        ],
    )
