"""Pages of credit notes, and the form on an invoice's page that issues one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import F, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action

from billing.admin.cells import (
    by_pk,
    credits_text,
    customer_link,
    document_link,
    ids_of_customer,
    money,
    money_column,
    subscription_link,
)
from billing.admin.credit_refunds import pay_out_view, refund_words
from billing.admin.document_page import credit_note_document, note_sentences
from billing.admin.document_pdfs import e_invoice_view, pdf_view
from billing.admin.invoice_lists import totals_of
from billing.admin.search import customers_of
from billing.admin.transitions import invoices_named
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine, NewCreditNote
from billing.documents.printing import credit_note_pdf, credit_note_xml
from billing.models import (
    CreditNote,
    CreditNoteUse,
    CreditPayment,
    CreditRefund,
    Customer,
    Invoice,
    Line,
    Subscription,
)
from billing.permissions import REFUND_CREDIT
from billing.rating.money import money_text
from billing.reads import note_left_minor
from billing.reads.documents import bills
from ledger.records import shape_of
from ledger.services import preview
from ledger.staff.approvals import Stake, StakeRule
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import digits, row_link, row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, day, read_day, text
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, RequestForm, declared_at
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.saved_lists import ListTotals
from ledger.staff.links import entry_link
from ledger.values import Amount

Result = TypeVar("Result")

LINES_SHOWN = 100
STATE_COLOURS = {"issued": "success", "void": "danger"}
TITLES = {"carried": "Credit carried to later invoices", "deposit": "Deposit: money received beyond what was due"}


def _state(note: CreditNote) -> str:
    return "void" if note.released_at else "issued"


def _subscription(note: Any) -> SafeString | str:
    invoice, owner = note.invoice_row, note.owner
    customer = "" if owner is None else customer_link(owner.pk, owner.ref, owner.name)
    if invoice is None:
        return customer
    return format_html(
        '{}<div class="beneath">{}</div>', subscription_link(note.subscription_id, invoice.subscription_ref), customer
    )


def _of_owner(attribute: str) -> Callable[[Any], Any]:
    return lambda note: getattr(note.owner, attribute, None)


def _of_invoice(attribute: str) -> Callable[[Any], Any]:
    """Return a value of the note's invoice; None for a note without an invoice."""
    return lambda note: getattr(note.invoice_row, attribute, None)


def _returned_cell(note: CreditNote) -> SafeString | str:
    if note.invoice_id is None or note.refund_sequence is None:
        return ""
    paid = CreditPayment.objects.filter(invoice_id=note.invoice_id).first()
    if paid is None:
        return ""
    return format_html(
        "{} for {} by {}",
        digits(credits_text(note.credits_returned, paid.credit_type)),
        money(note.credits_returned_minor, note.currency),
        entry_link(paid.holder_id, paid.credit_type, note.refund_sequence),
    )


@admin.register(CreditNote)
class CreditNoteAdmin(ReadOnlyAdmin):
    """The credit notes, newest first."""

    name = Column("Credit note", str, "number")
    state_label = columns.badge("State", _state, STATE_COLOURS)
    invoice_cell = Column("Invoice", lambda note: document_link(note.invoice_row), _of_invoice("number"))
    customer = Column("Customer", _of_owner("ref"))
    customer_name = Column("Customer name", _of_owner("name"))
    subscription_cell = Column("Subscription", _subscription, _of_invoice("subscription_ref"))
    issued = columns.day("Issued", "issue_date")
    rounding = money_column("Rounding", "rounding_minor")
    total = money_column("Total", "amount_minor")
    left = money_column("Left for next invoices", note_left_minor, csv_title="Left")
    lowered = money_column("Lowered the amount due by", "lowered_minor")
    returned = Column("Prepaid credits returned", _returned_cell)
    recorded = columns.instant("Recorded", "recorded_at")
    released = columns.instant("Void since", "released_at")

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
    csv_columns = (
        "name", "kind", "state_label", "invoice_cell", "customer", "customer_name", "subscription_cell", "issued", "currency",
        "rounding", "total", "left", "reason", "recorded",
    )  # fmt: skip
    starts = "Issue a credit note on the page of the invoice that it corrects. A run issues one if it owes a customer something."
    search_fields = ("number",)
    search_help_text = "Number of the note or its invoice, subscription or customer"
    actions_detail = ("show_pdf", "show_e_invoice", "pay_out")
    change_form_outer_before_template = "admin/billing/document.html"
    fieldsets = (
        (None, {"fields": (("state_label", "invoice_cell", "subscription_cell"),)}),
        (
            "History and use",
            {"classes": ("collapse",), "fields": (("actor", "recorded", "released"), ("lowered", "returned"))},
        ),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Those that match the filters."""
        return _filter_notes(cl.queryset, cl.values()).page(cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """With what each lowered its invoice by, its invoice and its customer, by one query each."""
        invoices = by_pk(Invoice, [row.invoice_id for row in rows])
        owners = by_pk(Customer, [row.customer_id for row in rows])
        uses = CreditNoteUse.objects.filter(credit_note_id__in=[row.pk for row in rows], released_at=None)
        lowered = dict(uses.filter(invoice_id=F("credit_note__invoice_id")).values_list("credit_note_id", "amount_minor"))
        for row in rows:
            row.invoice_row, row.owner = invoices.get(row.invoice_id), owners.get(row.customer_id)
            row.lowered_minor = lowered.get(row.pk, 0)

    def totals(self, request: HttpRequest, cl: UncountedList) -> ListTotals:
        """The total of the notes for each currency."""
        return totals_of(
            _filter_notes(cl.queryset, cl.values()).sums(by="currency", of=(Sum("amount_minor"),)), "credit note", ("in total",)
        )

    def searched(self, word: str) -> Q:
        """By number, or by an invoice, subscription or customer: each has its index."""
        found = Q(number=word) | bills(_subscriptions(word), "invoice_id") | Q(customer_id__in=customers_of(word))
        invoice = Invoice.objects.filter(number=word).values_list("pk", flat=True).first()
        return found if invoice is None else found | Q(invoice_id=invoice)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The note as a document: lines, taxes, and the invoices and refunds that took from it."""
        return {
            "title": f"Credit note {row.number}" if row.number else TITLES[row.kind],
            "sentences": note_sentences(row, left_minor=note_left_minor(row)),
            "document": credit_note_document(row),
            "parts": [("Taken from it", _uses_table(row))],
        }

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """A note without a number has no PDF, and only a rest can be paid out."""
        note = self.get_object(request, unquote(object_id))
        if note is None:
            return []
        return [*([] if note.number else ["show_pdf", "show_e_invoice"]), *([] if note_left_minor(note) else ["pay_out"])]

    @operation("Pay out", icon="payments", permission=REFUND_CREDIT, url_path="pay-out")
    def pay_out(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record that the rest of the note, or a part of it, was paid out."""
        note = self.row_of(request, object_id)
        owner = Customer.objects.get(pk=note.customer_id)
        return pay_out_view(self, request, owner, note.currency, note_left_minor(note), note=note)

    @action(description="PDF", icon="picture_as_pdf", permissions=["view"], url_path="pdf", attrs={"target": "_blank"})
    def show_pdf(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the note's PDF."""
        note = self.row_of(request, object_id)
        return pdf_view(request, partial(credit_note_pdf, note.pk), back=row_url(CreditNote, note.pk))

    @action(description="E-invoice", icon="code", permissions=["view"], url_path="e-invoice")
    def show_e_invoice(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the e-invoice as XML."""
        note = self.row_of(request, object_id)
        return e_invoice_view(request, partial(credit_note_xml, note.pk), back=row_url(CreditNote, note.pk))


def _filter_notes(rows: QuerySet[CreditNote], values: Mapping[str, str]) -> FilteredRows:
    """The notes that match the filters; notes of a customer or subscription by their index."""
    if "subscription" in values:
        rows = rows.filter(bills(_subscriptions(values["subscription"]), "invoice_id"))
    if "customer" in values:
        rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
    fits = Q()
    fits &= Q(kind=values["kind"]) if "kind" in values else Q()
    fits &= Q(currency=values["currency"].upper()) if "currency" in values else Q()
    since, until = read_day(values, "since"), read_day(values, "until")
    fits &= Q(issue_date__gte=since) if since else Q()
    fits &= Q(issue_date__lt=until) if until else Q()
    return FilteredRows(rows=rows, fits=fits)


def _subscriptions(word: str) -> QuerySet[Any]:
    return Subscription.objects.filter(ref=word).values("pk")


def _uses_table(note: CreditNote) -> dict[str, Any]:
    uses = list(CreditNoteUse.objects.filter(credit_note_id=note.pk).order_by("pk"))
    invoices = by_pk(Invoice, [use.invoice_id for use in uses])
    refunds = by_pk(CreditRefund, [use.refund_id for use in uses])
    return table_of(
        uses,
        ("By", lambda use: document_link(invoices.get(use.invoice_id)) or refund_words(refunds[use.refund_id])),
        ("Amount", lambda use: money(use.amount_minor, note.currency)),
        columns.instant("Taken", "recorded_at"),
        columns.instant("Returned", "released_at"),
    )


# On the invoice's page -------------------------------------------------------------------------------


def notes_table(invoice: Invoice) -> dict[str, Any]:
    """The credit notes about an invoice, and the unused part of each."""
    return table_of(
        CreditNote.objects.filter(invoice_id=invoice.pk).order_by("pk"),
        ("Credit note", lambda note: row_link(CreditNote, note.pk, str(note))),
        money_column("Amount", "amount_minor"),
        money_column("Left", note_left_minor),
        ("Reason", "reason"),
        ("Actor", "actor"),
        columns.instant("Created", "recorded_at"),
        columns.instant("Voided", "released_at"),
    )


def can_be_credited(invoice: Invoice) -> bool:
    """Return whether the invoice has a rest that can be credited."""
    return credit_notes.left_of(invoice)[0] > 0


class CreditForm(RequestForm[NewCreditNote]):
    """The form that credits lines of an invoice, or its whole rest; amounts are typed in major units."""

    stake = StakeRule(
        lambda form, note: [
            Stake(note.currency, note.amount_minor),
            *(
                Stake(paid.credit_type, note.credits_returned)
                for paid in CreditPayment.objects.filter(invoice_id=note.invoice_id)
            ),
        ]
    )
    declared = NewCreditNote
    shows: ClassVar[Mapping[str, forms.Field]] = {}
    """A field per line, by `line_` and its position."""
    currency = ""
    """That of the invoice."""

    def typed(self) -> list[tuple[str, int]]:
        """Return the fields with an amount, in the order of the lines, and the amounts in minor units."""
        return [(name, amount_minor) for name in self.shows if (amount_minor := self.cleaned_data.get(name)) is not None]

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of the invoice."""
        return self.currency, ""

    def body(self) -> dict[str, Any]:
        """Return the lines with an amount."""
        lines = [
            {"position": int(name.removeprefix("line_")), "amount_minor": amount_minor} for name, amount_minor in self.typed()
        ]
        return {"lines": lines} if lines else {}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of the line that the pointer names."""
        match pointer.split("/"):
            case ["", "lines", index, *_]:
                return self.typed()[int(index)][0]
        return super().field_of(pointer)


@dataclass(frozen=True, kw_only=True)
class CreditPage(FormPage[CreditForm]):
    """The page that credits lines of an invoice, or its whole rest."""

    invoice: Invoice

    is_tried = True

    def try_out(self, form: CreditForm, look: Callable[[CreditForm, CreditNote], Result]) -> Result:
        """Issue it in a preview."""
        with invoices_named(), preview():
            note = credit_notes.issue_in(
                invoice_id=self.invoice.pk, reason=form.request.reason, actor=form.actor, lines=form.request.lines
            )
            return look(form, note)

    def dry_run(self, form: CreditForm) -> DryRun:
        """Say how much it credits; for a second operator."""
        note = self.try_out(form, lambda form, note: note)
        credited = money_text(note.amount_minor, note.currency)
        return DryRun(sentences=[f"The credit note credits {credited} of {self.invoice}, with tax: {note.reason}."])

    def operation(self, form: CreditForm) -> Done:
        """Issue the credit note."""
        with invoices_named():
            issued = credit_notes.issue(
                invoice_id=self.invoice.pk,
                actor=form.actor,
                reason=form.request.reason,
                idempotency_key=form.key,
                lines=form.request.lines,
            )
        note = CreditNote.objects.get(pk=issued.id)
        return Done(
            f"Credit note {issued.number}",
            money_text(note.amount_minor, self.invoice.currency),
            row_url(CreditNote, note.pk),
            issued.replayed,
        )


def credit_view(model_admin: ReadOnlyAdmin, request: HttpRequest, invoice: Invoice) -> HttpResponse:
    """Show the form that credits lines of this invoice or its whole rest, or issue the credit note."""
    left_minor, by_position = credit_notes.left_of(invoice)
    return CreditPage(
        form=_form_of(invoice, by_position),
        invoice=invoice,
        title=f"Credit: {invoice}",
        button="Credit",
        explanation=format_html(
            "{} for {}: {} with tax can be credited. Leave the lines empty to credit all of it. The credit note first lowers the "
            "amount due; of the paid part, money pays for the customer's next invoices and prepaid credits go back to the "
            "holder.",
            invoice.customer_ref,
            invoice.subscription_ref or "an invoice without a subscription",
            money(left_minor, invoice.currency),
        ),
        back=row_url(Invoice, invoice.pk),
    ).view(model_admin, request)


def _form_of(invoice: Invoice, left_by_position: dict[int, int]) -> type[CreditForm]:
    """Return the form with a field per line with a charge, even if the line has no rest: the second click gets the same form."""
    amount = declared_at(shape_of(CreditLine), "/amount_minor").value
    assert isinstance(amount, Amount)
    zone = ZoneInfo(Customer.objects.get(pk=invoice.customer_id).time_zone or "UTC")
    fields: dict[str, forms.Field] = {}
    for line in Line.objects.filter(invoice_id=invoice.pk, amount_minor__gt=0).order_by("position")[:LINES_SHOWN]:
        fields[f"line_{line.position}"] = MoneyField(
            label=f"{line.position}. {line.description}{_period_of(line, zone)}",
            required=False,
            least=amount.least,
            most=amount.most,
            is_minor=True,
            help_text=f"Before tax, at most {money_text(left_by_position.get(line.position, 0), invoice.currency)}.",
        )
    return type("CreditForm", (CreditForm,), {"shows": fields, "currency": invoice.currency})


def _period_of(line: Line, zone: ZoneInfo) -> str:
    """Return the days of a line's period, both inclusive, in brackets; empty for a line without a period."""
    if line.starts_at is None or line.ends_at is None:
        return ""
    first, last = line.starts_at.astimezone(zone), (line.ends_at - timedelta(microseconds=1)).astimezone(zone)
    return f" ({first:%Y-%m-%d})" if first.date() == last.date() else f" ({first:%Y-%m-%d} to {last:%Y-%m-%d})"
