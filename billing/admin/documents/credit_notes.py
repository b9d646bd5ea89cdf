"""Pages of credit notes, and the form on an invoice's page that issues one."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from billing.admin.cells import (
    by_pk,
    credits_text,
    customer_link,
    customer_names,
    decimal,
    document_link,
    money,
    plain,
    subscription_link,
)
from billing.admin.documents.lists import totals_of
from billing.admin.documents.page import credit_note_document, note_sentences
from billing.admin.documents.pdfs import pdf_view
from billing.admin.documents.transitions import invoices_named
from billing.admin.search import customers_of
from billing.documents import credit_notes
from billing.documents.credit_notes import LineCredit
from billing.documents.printing.printed import credit_note_pdf
from billing.models import (
    CreditNote,
    CreditNoteUse,
    CreditPayment,
    Invoice,
    Line,
    Subscription,
)
from billing.rating.money import minor_digits
from billing.reads import note_left_minor
from ledger.admin.kit.bounded_reads import Wanted
from ledger.admin.kit.cells import day_words, digits, row_link, row_url, table, timestamp
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import choice, day, read_day, text
from ledger.admin.kit.idempotent_forms import Done, KeyedForm, operation_view
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.kit.saved_lists import Totals
from ledger.admin.links import entry_link

LINES_SHOWN = 100
STATE_COLOURS = {"issued": "success", "void": "danger"}


CSV: Sequence[Column] = (
    ("Credit note", lambda note: note.number),
    ("Kind", lambda note: note.kind),
    ("State", lambda note: "void" if note.released_at else "issued"),
    ("Invoice", lambda note: note.invoice_row.number if note.invoice_row else None),
    ("Customer", lambda note: note.invoice_row.customer_ref if note.invoice_row else None),
    ("Customer name", lambda note: note.customer_name),
    ("Subscription", lambda note: note.invoice_row.subscription_ref if note.invoice_row else None),
    ("Issued", lambda note: note.issue_date),
    ("Currency", lambda note: note.currency),
    ("Total", lambda note: decimal(note.amount_minor, note.currency)),
    ("Left", lambda note: decimal(note_left_minor(note, sum(note.used.values())), note.currency)),
    ("Reason", lambda note: note.reason),
    ("Recorded (UTC)", lambda note: note.recorded_at),
)


@admin.register(CreditNote)
class CreditNoteAdmin(ReadOnlyAdmin):
    """The credit notes, newest first."""

    list_display = ("name", "kind", "state_label", "invoice_cell", "subscription_cell", "total", "left", "issued", "reason")
    list_display_links = ("name",)
    list_filter = (
        choice("kind", CreditNote.Kind.values),
        text("customer"),
        text("subscription"),
        text("currency"),
        day("since", title="issued from"),
        day("until", title="issued before"),
    )
    csv_columns = CSV
    starts = "A credit note is issued on the page of the invoice that it corrects, or by a run that owes a customer something."
    search_fields = ("number",)
    search_help_text = "Number of the note or its invoice, subscription or customer"
    actions_detail = ("show_pdf",)
    change_form_outer_before_template = "admin/billing/document.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = (
        (None, {"fields": (("state_label", "invoice_cell", "subscription_cell"),)}),
        (
            "Who, when, use",
            {"classes": ("collapse",), "fields": (("actor", "recorded", "released"), ("lowered", "returned"))},
        ),
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
        """The rows with the used part of each, its invoice and its customer, by one query each."""
        page = _wanted(cl.queryset, cl.values()).page(cursor, most=cl.page_rows)
        _attach(page.rows)
        return page

    def totals(self, request: HttpRequest, cl: UncountedList) -> Totals:
        """The total of the notes for each currency."""
        return totals_of(
            _wanted(cl.queryset, cl.values()).sums(by="currency", of=(Sum("amount_minor"),)), "credit note", ("in total",)
        )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> CreditNote | None:
        """The note with its used part."""
        row: CreditNote | None = super().get_object(request, object_id, from_field)
        if row is not None:
            _attach([row])
        return row

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[CreditNote], search_term: str
    ) -> tuple[QuerySet[CreditNote], bool]:
        """Search by number, or by an invoice, subscription or customer: each has its index."""
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
        """Show the note as a document: lines, taxes, and the invoices that used it."""
        context = {**(extra_context or {}), "subtitle": ""}
        note = self.get_object(request, unquote(object_id))
        if note is not None:
            used: Any = note
            context |= {
                "title": f"Credit note {note.number}" if note.number else "Credit carried to later invoices",
                "sentences": note_sentences(note, left_minor=note_left_minor(note, sum(used.used.values()))),
                "document": credit_note_document(note),
                "parts": [
                    ("Used on invoices", _uses_table(note)),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """A carried note has no number and no PDF."""
        note = self.get_object(request, unquote(object_id))
        return [] if note is None or note.number else ["show_pdf"]

    @action(description="PDF", icon="picture_as_pdf", permissions=["view"], url_path="pdf", attrs={"target": "_blank"})
    def show_pdf(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the note's PDF."""
        note = self.get_object(request, unquote(object_id))
        if note is None:
            raise Http404
        return pdf_view(request, partial(credit_note_pdf, note.pk), back=row_url(CreditNote, note.pk))

    @display(description="Credit note")
    def name(self, row: CreditNote) -> str:
        return str(row)

    @display(description="State", label=STATE_COLOURS)
    def state_label(self, row: CreditNote) -> str:
        return "void" if row.released_at else "issued"

    @display(description="Invoice")
    def invoice_cell(self, row: Any) -> SafeString | str:
        return document_link(row.invoice_row)

    @display(description="Subscription")
    def subscription_cell(self, row: Any) -> SafeString | str:
        found = row.invoice_row
        if found is None:
            return ""
        return format_html(
            '{}<div class="beneath">{}</div>',
            subscription_link(row.subscription_id, found.subscription_ref),
            customer_link(found.customer_id, found.customer_ref, row.customer_name),
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
            digits(credits_text(row.credits_returned, paid.credit_type)),
            money(row.credits_returned_minor, row.currency),
            entry_link(paid.holder_id, paid.credit_type, row.refund_sequence),
        )

    @display(description="Issued")
    def issued(self, row: CreditNote) -> str:
        return day_words(row.issue_date)

    @display(description="Recorded")
    def recorded(self, row: CreditNote) -> SafeString | str:
        return timestamp(row.recorded_at)

    @display(description="Void since")
    def released(self, row: CreditNote) -> SafeString | str:
        return timestamp(row.released_at)


def _wanted(rows: QuerySet[CreditNote], values: Mapping[str, str]) -> Wanted:
    """The notes that match the filters; notes of a customer or subscription by their index."""
    if "subscription" in values or "customer" in values:
        owned = Subscription.objects.all()
        owned = owned.filter(ref=values["subscription"]) if "subscription" in values else owned
        owned = owned.filter(customer__ref=values["customer"]) if "customer" in values else owned
        rows = rows.filter(subscription_id__in=owned.values("pk"))
    fits = Q()
    fits &= Q(kind=values["kind"]) if "kind" in values else Q()
    fits &= Q(currency=values["currency"].upper()) if "currency" in values else Q()
    since, until = read_day(values, "since"), read_day(values, "until")
    fits &= Q(issue_date__gte=since) if since else Q()
    fits &= Q(issue_date__lt=until) if until else Q()
    return Wanted(rows=rows, fits=fits)


def _subscriptions(word: str) -> QuerySet[Any]:
    return Subscription.objects.filter(Q(ref=word) | Q(customer_id__in=customers_of(word))).values("pk")


def _attach(rows: Sequence[Any]) -> None:
    invoices = by_pk(Invoice, [row.invoice_id for row in rows])
    used: dict[int, dict[int, int]] = {row.pk: {} for row in rows}
    for use in CreditNoteUse.objects.filter(credit_note_id__in=list(used), released_at=None):
        used[use.credit_note_id][use.invoice_id] = use.amount_minor
    names = customer_names(invoices.values())
    for row in rows:
        row.invoice_row, row.used = invoices.get(row.invoice_id), used[row.pk]
        row.customer_name = names.get(row.invoice_row.customer_id, "") if row.invoice_row else ""


def _uses_table(note: CreditNote) -> dict[str, Any]:
    uses = list(CreditNoteUse.objects.filter(credit_note_id=note.pk).order_by("pk"))
    invoices = by_pk(Invoice, [use.invoice_id for use in uses])
    return table(
        ["Invoice", "Amount", "Used", "Returned"],
        [
            (
                document_link(invoices.get(use.invoice_id)),
                money(use.amount_minor, note.currency),
                timestamp(use.recorded_at),
                timestamp(use.released_at),
            )
            for use in uses
        ],
    )


# On the invoice's page -------------------------------------------------------------------------------


def notes_table(invoice: Invoice) -> dict[str, Any]:
    """The credit notes about an invoice, and the unused part of each."""
    notes = list(CreditNote.objects.filter(invoice_id=invoice.pk).order_by("pk"))
    used = dict(
        CreditNoteUse.objects.filter(credit_note_id__in=[note.pk for note in notes], released_at=None)
        .values("credit_note_id")
        .annotate(used_minor=Sum("amount_minor"))
        .values_list("credit_note_id", "used_minor")
    )
    return table(
        ["Credit note", "Amount", "Left", "Reason", "Actor", "Created", "Voided"],
        [
            (
                row_link(CreditNote, note.pk, str(note)),
                money(note.amount_minor, note.currency),
                money(note_left_minor(note, used.get(note.pk, 0)), note.currency),
                note.reason,
                note.actor,
                timestamp(note.recorded_at),
                timestamp(note.released_at),
            )
            for note in notes
        ],
    )


def can_be_credited(invoice: Invoice) -> bool:
    """Whether any amount of the invoice is left."""
    return credit_notes.left_of(invoice)[0] > 0


def credit_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form that credits lines of this invoice or its whole rest, or issue the credit note."""
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
            "{} for {}: {} with tax can be credited. Leave the lines empty to credit all of it. The credit note first lowers the "
            "amount due; of the paid part, money reduces the next invoices and prepaid credits go back to the holder.",
            invoice.customer_ref,
            invoice.subscription_ref,
            money(left_minor, invoice.currency),
        ),
        back=row_url(Invoice, invoice.pk),
    )


def _form_of(invoice: Invoice, left_by_position: dict[int, int]) -> type[KeyedForm]:
    """A field per line with a charge, even if the line has no rest: the form stays the same for the second click."""
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
    lines = [LineCredit(int(name.removeprefix("line_")), int(asked.pop(name).scaleb(minor_digits(currency)))) for name in names]
    with invoices_named():
        issued = credit_notes.issue(**asked, lines=lines or None)
    note = CreditNote.objects.get(pk=issued.id)
    return Done(
        f"Credit note {issued.number}",
        f"{plain(Decimal(note.amount_minor).scaleb(-minor_digits(currency)))} {currency}",
        row_url(CreditNote, note.pk),
        issued.replayed,
    )
