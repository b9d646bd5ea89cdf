"""Credit notes: shown, and issued from the page of the invoice that they correct."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from billing.admin.cells import by_pk, customer_link, invoice_link, money, plain, subscription_link
from billing.documents import credit_notes
from billing.documents.credit_notes import Wanted
from billing.models import (
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    CreditPayment,
    Customer,
    Invoice,
    Line,
    Subscription,
)
from billing.rating.money import minor_digits
from billing.reads import note_left_minor
from ledger.admin.kit.idempotent_forms import Done, KeyedForm, operation_view
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList, choice, moment, number, row_link, row_url, table
from ledger.admin.links import entry_link

LINES_SHOWN = 100
STATE_COLOURS = {"issued": "success", "void": "danger"}


@admin.register(CreditNote)
class CreditNoteAdmin(ReadOnlyAdmin):
    """What invoices gave back, newest first."""

    list_display = ("name", "kind", "state_label", "invoice_cell", "subscription_cell", "total", "left", "issued", "reason")
    list_display_links = ("name",)
    list_filter = (choice("kind", CreditNote.Kind.values, of_column="kind"),)
    search_fields = ("number",)
    search_help_text = "Number of the note or its invoice, subscription or customer"
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("state_label", "kind", "issued"), ("total", "left"), ("invoice_cell", "subscription_cell"))}),
        ("Who, why, when (UTC)", {"fields": (("actor", "recorded", "released"), "reason")}),
        ("Use", {"fields": (("lowered", "returned"),)}),
    )
    readonly_fields = (
        "name",
        "state_label",
        "issued",
        "total",
        "left",
        "invoice_cell",
        "subscription_cell",
        "recorded",
        "released",
        "lowered",
        "returned",
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """With what has been used of each, its invoice and subscription, by one query each."""
        page = super().read_page(request, cl, cursor)
        _attach(page.rows)
        return page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> CreditNote | None:
        """With what has been used of it."""
        row: CreditNote | None = super().get_object(request, object_id, from_field)
        if row is not None:
            _attach([row])
        return row

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[CreditNote], search_term: str
    ) -> tuple[QuerySet[CreditNote], bool]:
        """By number, or by the invoice, subscription or customer of that name: each has its index."""
        word = search_term.strip()
        if not word:
            return queryset, False
        found = Q(number=word) | Q(subscription_id__in=_subscriptions(word))
        invoice = Invoice.objects.filter(number=word).values_list("pk", flat=True).first()
        if invoice is not None:
            found |= Q(invoice_id=invoice)
        return queryset.filter(found), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The note as a document: lines, taxes, and which invoices used it."""
        context = {**(extra_context or {}), "subtitle": ""}
        note = self.get_object(request, unquote(object_id))
        if note is not None:
            context |= {
                "title": f"Credit note {note.number}" if note.number else f"Credit note {note.pk}, carried",
                "parts": [
                    ("Lines", _lines_table(note)),
                    ("Taxes", _taxes_table(note)),
                    ("Used on invoices", _uses_table(note)),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Credit note")
    def name(self, row: CreditNote) -> str:
        return str(row)

    @display(description="State", label=STATE_COLOURS)
    def state_label(self, row: CreditNote) -> str:
        return "void" if row.released_at else "issued"

    @display(description="Invoice")
    def invoice_cell(self, row: Any) -> SafeString | str:
        return invoice_link(row.invoice_id, str(row.invoice_row) if row.invoice_row else "")

    @display(description="Subscription")
    def subscription_cell(self, row: Any) -> SafeString | str:
        found = row.invoice_row
        if found is None:
            return ""
        return format_html(
            "{} ({})",
            subscription_link(row.subscription_id, found.subscription_ref),
            customer_link(found.customer_id, found.customer_ref),
        )

    @display(description="Total")
    def total(self, row: CreditNote) -> SafeString | str:
        return money(row.amount_minor, row.currency)

    @display(description="Left for next invoices")
    def left(self, row: Any) -> SafeString | str:
        return money(note_left_minor(row, sum(row.used.values())), row.currency)

    @display(description="Lowered the amount due by")
    def lowered(self, row: Any) -> SafeString | str:
        return money(row.used.get(row.invoice_id, 0), row.currency)

    @display(description="Prepaid credits returned")
    def returned(self, row: CreditNote) -> SafeString | str:
        paid = CreditPayment.objects.filter(invoice_id=row.invoice_id).first() if row.refund_sequence else None
        if paid is None or row.refund_sequence is None:
            return ""
        return format_html(
            "{} for {} by {}",
            number(row.credits_returned),
            money(row.credits_returned_minor, row.currency),
            entry_link(paid.holder_id, paid.credit_type, row.refund_sequence),
        )

    @display(description="Issued")
    def issued(self, row: CreditNote) -> str:
        return row.issue_date.isoformat() if row.issue_date else ""

    @display(description="Recorded")
    def recorded(self, row: CreditNote) -> SafeString | str:
        return moment(row.recorded_at)

    @display(description="Void since")
    def released(self, row: CreditNote) -> SafeString | str:
        return moment(row.released_at)


def _subscriptions(word: str) -> QuerySet[Any]:
    customer = Customer.objects.filter(ref=word).values("pk")
    return Subscription.objects.filter(Q(ref=word) | Q(customer_id__in=customer)).values("pk")


def _attach(rows: Sequence[Any]) -> None:
    invoices = by_pk(Invoice, [row.invoice_id for row in rows])
    used: dict[int, dict[int, int]] = {row.pk: {} for row in rows}
    for use in CreditNoteUse.objects.filter(credit_note_id__in=list(used), released_at=None):
        used[use.credit_note_id][use.invoice_id] = use.amount_minor
    for row in rows:
        row.invoice_row, row.used = invoices.get(row.invoice_id), used[row.pk]


def _lines_table(note: CreditNote) -> dict[str, Any]:
    lines = CreditNoteLine.objects.filter(credit_note_id=note.pk).order_by("position")
    return table(
        ["Line", "Description", "Amount", "Tax"],
        [
            (
                line.position,
                line.description,
                money(line.amount_minor, note.currency),
                f"{line.tax_category} {plain(line.tax_rate)} %",
            )
            for line in lines
        ],
    )


def _taxes_table(note: CreditNote) -> dict[str, Any]:
    taxes = CreditNoteTax.objects.filter(credit_note_id=note.pk).order_by("category", "rate")
    return table(
        ["Category", "Rate", "Base", "Tax"],
        [
            (tax.category, f"{plain(tax.rate)} %", money(tax.base_minor, note.currency), money(tax.amount_minor, note.currency))
            for tax in taxes
        ],
    )


def _uses_table(note: CreditNote) -> dict[str, Any]:
    uses = list(CreditNoteUse.objects.filter(credit_note_id=note.pk).order_by("pk"))
    invoices = by_pk(Invoice, [use.invoice_id for use in uses])
    return table(
        ["Invoice", "Amount", "Used (UTC)", "Returned (UTC)"],
        [
            (
                invoice_link(use.invoice_id, str(invoices[use.invoice_id]) if use.invoice_id in invoices else ""),
                money(use.amount_minor, note.currency),
                moment(use.recorded_at),
                moment(use.released_at),
            )
            for use in uses
        ],
    )


# On the invoice's page -------------------------------------------------------------------------------


def notes_table(invoice: Invoice) -> dict[str, Any]:
    """The credit notes about an invoice, and what is left of each."""
    notes = list(CreditNote.objects.filter(invoice_id=invoice.pk).order_by("pk"))
    used = dict(
        CreditNoteUse.objects.filter(credit_note_id__in=[note.pk for note in notes], released_at=None)
        .values("credit_note_id")
        .annotate(used_minor=Sum("amount_minor"))
        .values_list("credit_note_id", "used_minor")
    )
    return table(
        ["Credit note", "Amount", "Left", "Reason", "Actor", "Created (UTC)", "Given up (UTC)"],
        [
            (
                row_link(CreditNote, note.pk, str(note)),
                money(note.amount_minor, note.currency),
                money(note_left_minor(note, used.get(note.pk, 0)), note.currency),
                note.reason,
                note.actor,
                moment(note.recorded_at),
                moment(note.released_at),
            )
            for note in notes
        ],
    )


def can_be_credited(invoice: Invoice) -> bool:
    """Whether anything is left of it."""
    return credit_notes.left_of(invoice)[0] > 0


def credit_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form that credits lines of this invoice or all that is left, or do it."""
    left_minor, by_position = credit_notes.left_of(invoice)
    return operation_view(
        model_admin,
        request,
        form_class=_form_of(invoice, by_position),
        operation=_issue,
        fixed={"invoice_id": invoice.pk, "currency": invoice.currency},
        title=f"Credit: {invoice}",
        button="Credit",
        explanation=format_html(
            "{} for {}: {} with tax can be credited. Leave the lines empty to credit all of it. It lowers what is due first; of "
            "what was paid, money is set against the next invoices and prepaid credits go back to the holder.",
            invoice.customer_ref,
            invoice.subscription_ref,
            money(left_minor, invoice.currency),
        ),
        back=row_url(Invoice, invoice.pk),
    )


def _form_of(invoice: Invoice, left_by_position: dict[int, int]) -> type[KeyedForm]:
    """A field per line with a charge, also when nothing is left of it: the form is the same for the second click."""
    digits = minor_digits(invoice.currency)
    fields: dict[str, Any] = {}
    for line in Line.objects.filter(invoice_id=invoice.pk, amount_minor__gt=0).order_by("position")[:LINES_SHOWN]:
        left = Decimal(left_by_position.get(line.position, 0)).scaleb(-digits)
        fields[f"line_{line.position}"] = forms.DecimalField(
            label=f"{line.position}. {line.description}",
            required=False,
            min_value=Decimal(1).scaleb(-digits),
            decimal_places=digits,
            max_digits=19,
            help_text=f"Before tax, at most {left:f} {invoice.currency}.",
            widget=UnfoldAdminDecimalFieldWidget(attrs={"autocomplete": "off"}),
        )
    return type("CreditForm", (KeyedForm,), {**fields, "field_order": [*fields, "reason"]})


def _issue(*, currency: str, **asked: Any) -> Done:
    names = sorted((name for name in asked if name.startswith("line_")), key=lambda name: int(name.removeprefix("line_")))
    lines = [Wanted(int(name.removeprefix("line_")), int(asked.pop(name).scaleb(minor_digits(currency)))) for name in names]
    issued = credit_notes.issue(**asked, lines=lines or None)
    note = CreditNote.objects.get(pk=issued.id)
    return Done(
        f"Credit note {issued.number}",
        f"{plain(Decimal(note.amount_minor).scaleb(-minor_digits(currency)))} {currency}",
        row_url(CreditNote, note.pk),
        issued.replayed,
    )
