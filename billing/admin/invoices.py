"""Pages of invoices with their lines, taxes and payments."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action

from billing.additions import INVOICE_PAGE
from billing.admin import debts
from billing.admin.added import add_operations
from billing.admin.cells import (
    by_pk,
    credits_text,
    customer_link,
    document_link,
    list_url,
    money,
    money_column,
    pdf_link,
    subscription_link,
    with_customers,
)
from billing.admin.credit_notes import can_be_credited, credit_view, notes_table
from billing.admin.credit_payments import can_be_paid_with_credit, pay_with_credit_view
from billing.admin.document_page import invoice_document, invoice_sentences
from billing.admin.document_pdfs import e_invoice_view, pdf_view
from billing.admin.invoice_lists import STILL_DUE, due_cell, state_cell, state_text, totals_of, wanted_invoices, with_lateness
from billing.admin.payment_forms import payments_table, record_payment_view
from billing.admin.search import customers_of
from billing.admin.transitions import WORDS, deletion_view, impossible, note_view, transition_view, transitions_table
from billing.documents.printing import invoice_pdf, invoice_xml
from billing.models import (
    Coupon,
    CouponUse,
    CreditNote,
    CreditNoteUse,
    CreditPayment,
    CustomerCoupon,
    Invoice,
    Run,
    Subscription,
)
from billing.permissions import (
    CREDIT_INVOICE,
    DELETE_DRAFT,
    FINALIZE_INVOICE,
    MARK_INVOICE_UNCOLLECTIBLE,
    PAY_INVOICE,
    VOID_INVOICE,
)
from billing.reads.documents import bills
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import order_of
from ledger.staff.kit.cells import contract_day, day_words, digits, link, row_link, row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, day, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.saved_lists import ListTotals
from ledger.staff.links import account_link, entry_link

MAX_ID_DIGITS = 19
STATE_COLOURS = {
    "draft": "warning",
    "open": "info",
    "overdue": "danger",
    "paid": "success",
    "void": "danger",
    "uncollectible": "danger",
}


def _run(row: Invoice) -> SafeString | str:
    run = Run.objects.filter(pk=row.run_id).first() if row.run_id else None
    return "" if run is None else row_link(Run, run.pk, run)


def _transition(kind: str, icon: str, permission: str) -> Callable[..., HttpResponse]:
    """The action for a transition."""

    @operation(WORDS[kind].title, icon=icon, permission=permission, url_path=kind.replace("_", "-"))
    def make(self: "InvoiceAdmin", request: HttpRequest, object_id: str) -> HttpResponse:
        return transition_view(self, request, self.row_of(request, object_id), kind)

    return make


@admin.register(Invoice)
class InvoiceAdmin(ReadOnlyAdmin):
    """The invoices, newest first. Operators can change their state, never their content."""

    name = Column("Invoice", str, "number")
    state_label = Column("State", state_text, "state", colours=STATE_COLOURS)
    state_of_one = Column("State", state_cell)
    subscription_cell = Column(
        "Subscription", lambda row: subscription_link(row.subscription_id, row.subscription_ref), "subscription_ref"
    )
    customer_cell = Column(
        "Customer", lambda row: customer_link(row.customer_id, row.customer_ref, row.customer_name), "customer_ref"
    )
    customer_name = Column("Customer name", "customer_name")
    issued = Column("Issued", lambda row: day_words(row.issue_date), "issue_date", ordering="issue_date")
    due_on = Column("Due", due_cell, "due_date")
    subtotal = money_column("Subtotal", "subtotal_minor")
    discounts = money_column("Discounts", "discount_minor")
    tax = money_column("Tax", "tax_minor")
    total = money_column("Total", "total_minor")
    credit_notes = money_column("Credit notes", "credit_notes_minor")
    paid_with_credits = money_column("Paid with credits", "credits_applied_minor")
    rounding = money_column("Rounding", "rounding_minor")
    due = money_column("Due in all", "amount_due_minor")
    paid_so_far = money_column("Paid by payments", "amount_paid_minor")
    remaining = money_column("Amount due", "amount_remaining_minor")
    made = columns.instant("Created", "created_at")
    made_day = Column("Created", lambda row: contract_day(row.created_at, row.customer_zone), ordering="id")
    finalized = columns.instant("Finalised", "finalized_at")
    paid = columns.instant("Paid", "paid_at")
    voided = columns.instant("Voided", "voided_at")
    uncollectible = columns.instant("Uncollectible since", "uncollectible_at")
    until = columns.instant("Bills up to", "as_of")
    run = Column("Run", _run)

    list_display = (
        "name", "customer_cell", "state_label", "issued", "total", "remaining", "due_on", "subscription_cell", "made_day",
    )  # fmt: skip
    list_display_links = ("name",)
    sortable_by = ("issued", "made_day")
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
    csv_columns = (
        "name", "state_label", "customer_cell", "customer_name", "subscription_cell", "issued", "due_on", "currency", "subtotal",
        "discounts", "tax", "total", "credit_notes", "paid_with_credits", "rounding", "due",
        "paid_so_far", "remaining", "paid", "made",
    )  # fmt: skip
    starts = "A run of the generator makes the invoices of subscriptions: manage.py generate_invoices."
    search_fields = ("number",)
    search_help_text = "Number, subscription or customer"
    actions_detail = (
        "show_pdf",
        "finalize",
        "note",
        "record_payment",
        "pay",
        "credit",
        *INVOICE_PAGE.operation_names(stands_out=True),
        {
            "title": "More",
            "icon": "more_horiz",
            "items": [
                "show_e_invoice",
                "pay_with_credit",
                *INVOICE_PAGE.operation_names(stands_out=False),
                "void",
                "mark_uncollectible",
            ],
        },
        "delete_draft",
    )
    change_form_outer_before_template = "admin/billing/document.html"
    fieldsets = (
        (None, {"fields": (("state_of_one", "subscription_cell", "customer_cell"),)}),
        (
            "History",
            {"classes": ("collapse",), "fields": (("made", "until"), ("finalized", "paid"), ("voided", "uncollectible"), "run")},
        ),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the rows by the index that serves the filters best."""
        page = wanted_invoices(cl.queryset, cl.values(), order_of(cl)).page(cursor, most=cl.page_rows)
        if cl.values().get("overdue") == "yes":
            listed = INVOICE_PAGE.listed_for(page.rows)
            for row in page.rows:
                row.listed = listed[row.pk]
        return page

    def prepare(self, rows: Sequence[Any]) -> None:
        """With the name and zone of each customer, and whether the invoice is overdue."""
        with_customers(rows)
        with_lateness(rows)

    def get_list_display(self, request: HttpRequest) -> Sequence[Any]:
        """Return the columns; of overdue invoices also with what other applications do about them."""
        columns = super().get_list_display(request)
        return (*columns[:-1], _operations_column(request)) if request.GET.get("overdue") == "yes" else columns

    def totals(self, request: HttpRequest, cl: UncountedList) -> ListTotals:
        """The invoiced amount and the amount due for each currency."""
        sums = wanted_invoices(cl.queryset, cl.values()).sums(by="currency", of=(Sum("total_minor"), STILL_DUE))
        return totals_of(sums, "invoice", ("in total", "due"))

    def searched(self, word: str) -> Q:
        """By number, or by a subscription or customer: each has its index."""
        subscription = Subscription.objects.filter(ref=word).values_list("pk", flat=True).first()
        found = Q(number=word) | Q(customer_id__in=customers_of(word))
        return found if subscription is None else found | bills(subscription)

    def get_urls(self) -> list[URLPattern]:
        """Add the page of debts."""
        return [debts.url(self), *super().get_urls()]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The invoice as a document: lines, taxes, totals."""
        paid = CreditPayment.objects.filter(invoice_id=row.pk).first()
        return {
            "title": f"Invoice {row.number}" if row.number else f"Draft for {row.subscription_ref or row.customer_ref}",
            "sentences": invoice_sentences(row),
            "is_bad": row.is_late,
            "document": invoice_document(row),
            "parts": [
                *([("Paid with credits", _payment_table(paid, row.currency))] if paid else []),
                ("Payments", payments_table(row)),
                ("Coupons used", _coupons_table(row)),
                ("Credit notes used", _notes_used_table(row)),
                ("Credit notes about this invoice", notes_table(row)),
                *INVOICE_PAGE.parts_of(row),
                ("State changes", transitions_table(row)),
            ],
            "links": [
                (list_url(Invoice, subscription=row.subscription_ref), "All invoices of this subscription")
                if row.subscription_ref
                else (list_url(Invoice, customer=row.customer_ref), "All invoices of this customer")
            ],
        }

    # What can be done ---------------------------------------------------------------------------------

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the actions that the invoice's state does not allow."""
        invoice = self.get_object(request, unquote(object_id))
        if invoice is None:
            return []
        hidden = [] if can_be_credited(invoice) else ["credit"]
        hidden += ["record_payment"] if invoice.state == Invoice.State.DRAFT else []
        hidden += [] if can_be_paid_with_credit(invoice) else ["pay_with_credit"]
        hidden += INVOICE_PAGE.impossible_on(invoice)
        return [*impossible(invoice), *hidden, *([] if invoice.state == Invoice.State.DRAFT else ["note"])]

    @action(description="PDF", icon="picture_as_pdf", permissions=["view"], url_path="pdf", attrs={"target": "_blank"})
    def show_pdf(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the invoice's PDF."""
        invoice = self.row_of(request, object_id)
        return pdf_view(request, partial(invoice_pdf, invoice.pk), back=row_url(Invoice, invoice.pk))

    @action(description="E-invoice", icon="code", permissions=["view"], url_path="e-invoice")
    def show_e_invoice(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the e-invoice as XML."""
        invoice = self.row_of(request, object_id)
        return e_invoice_view(request, partial(invoice_xml, invoice.pk), back=row_url(Invoice, invoice.pk))

    finalize = _transition("finalize", "task_alt", FINALIZE_INVOICE)

    @operation("Record a payment", icon="account_balance", permission=PAY_INVOICE, url_path="record-payment")
    def record_payment(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record money that came in for the invoice."""
        return record_payment_view(self, request, self.row_of(request, object_id))

    @operation("Pay with credit", icon="savings", permission=PAY_INVOICE, url_path="pay-with-credit")
    def pay_with_credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Set credit of the customer against the invoice."""
        return pay_with_credit_view(self, request, self.row_of(request, object_id))

    pay = _transition("pay", "payments", PAY_INVOICE)
    void = _transition("void", "block", VOID_INVOICE)
    mark_uncollectible = _transition("mark_uncollectible", "money_off", MARK_INVOICE_UNCOLLECTIBLE)

    @operation("Credit", icon="undo", permission=CREDIT_INVOICE)
    def credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Credit lines of the invoice, or its whole rest."""
        return credit_view(self, request, self.row_of(request, object_id))

    @operation("Note", icon="edit_note", permission=FINALIZE_INVOICE)
    def note(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the draft a note."""
        return note_view(self, request, self.row_of(request, object_id))

    @operation("Delete draft", icon="delete", permission=DELETE_DRAFT, url_path="delete-draft")
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


add_operations(InvoiceAdmin, INVOICE_PAGE)


def _operations_column(request: HttpRequest) -> Callable[[Any], SafeString | str]:
    """Return the column of links to the forms that a list offers, as far as the operator may use them."""

    @admin.display(description="Reminders")
    def links(row: Any) -> SafeString | str:
        permitted = [each for each in row.listed if request.user.has_perm(each.permission)]
        addresses = [(reverse(f"admin:billing_invoice_{each.name}", args=[row.pk]), each.title) for each in permitted]
        return format_html_join(", ", "{}", ((link(address, title),) for address, title in addresses))

    return links


def invoices_table(invoices: Iterable[Invoice]) -> dict[str, Any]:
    """A short table of invoices for other pages."""
    invoices = list(invoices)
    with_lateness(invoices)
    return table_of(
        invoices,
        ("Invoice", document_link),
        ("State", state_cell),
        InvoiceAdmin.issued,
        InvoiceAdmin.total,
        InvoiceAdmin.remaining,
        InvoiceAdmin.made,
        ("File", pdf_link),
    )


def _payment_table(paid: CreditPayment, currency: str) -> dict[str, Any]:
    def entry(sequence: int | None) -> SafeString | str:
        return "" if sequence is None else entry_link(paid.holder_id, paid.credit_type, sequence)

    return table_of(
        [paid],
        ("Holder", lambda row: account_link(row.holder_id, row.credit_type)),
        ("Credits", lambda row: digits(credits_text(row.credits, row.credit_type))),
        ("Amount", lambda row: money(row.amount_minor, currency)),
        ("Spend", lambda row: entry(row.spend_sequence)),
        ("Returned by", lambda row: entry(row.refund_sequence)),
    )


def _coupons_table(invoice: Invoice) -> dict[str, Any]:
    uses = list(CouponUse.objects.filter(invoice_id=invoice.pk).order_by("pk"))
    given = by_pk(CustomerCoupon, [use.customer_coupon_id for use in uses]) if uses else {}
    coupons = by_pk(Coupon, [each.coupon_id for each in given.values()]) if uses else {}

    def coupon(use: CouponUse) -> SafeString | str:
        held = given.get(use.customer_coupon_id)
        found = None if held is None else coupons.get(held.coupon_id)
        return "" if found is None else row_link(Coupon, found.pk, found.code)

    return table_of(
        uses,
        ("Coupon", coupon),
        money_column("Discount", "amount_minor"),
        ("Periods", lambda use: len(use.periods) or ""),
        columns.instant("Used", "used_at"),
        columns.instant("Returned", "released_at"),
    )


def _notes_used_table(invoice: Invoice) -> dict[str, Any]:
    uses = CreditNoteUse.objects.filter(invoice_id=invoice.pk).select_related("credit_note").order_by("pk")
    sources = by_pk(Invoice, [use.credit_note.invoice_id for use in uses])

    def source(use: CreditNoteUse) -> SafeString | str:
        invoice_id = use.credit_note.invoice_id
        if invoice_id is None:
            return row_link(CreditNote, use.credit_note_id, str(use.credit_note))
        return "this invoice" if invoice_id == invoice.pk else document_link(sources.get(invoice_id))

    return table_of(
        uses,
        ("Source invoice", source),
        ("Used on this invoice", lambda use: money(use.amount_minor, use.credit_note.currency)),
        columns.instant("Used", "recorded_at"),
        columns.instant("Returned", "released_at"),
    )
