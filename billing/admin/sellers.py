"""Pages of sellers, and the form that records one with a picture of its letterhead.

A change is a new version; each document keeps the version with which it was issued.
"""

import base64
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.admin.order_forms.fields import OrderForm, currency_cell
from billing.admin.order_forms.once import OrderPage
from billing.documents.brand import MAX_LOGO_BYTES, Logo, logo_url
from billing.documents.printed_pages import seller_lines
from billing.documents.printing import letterhead_picture
from billing.documents.sellers import CashSteps, NewSeller, ReminderDays, current_sellers, prefixes_of, record
from billing.models import Seller
from billing.permissions import ADD_SELLER
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link, row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.form_fields import Display, field_for
from ledger.staff.kit.idempotent_forms import DryRun, FormSection, RequestForm
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.rows import KeysField, NamesField, RowsInput, text_cell
from ledger.typesetting.typeset import IS_INSTALLED
from ledger.values import InvalidValue


class LogoInput(forms.Widget):
    """A file that a browser sends, kept as base64 in a hidden input while the form is shown again."""

    needs_multipart_form = True

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the file in base64; without a file, the kept one, unless the operator removes it."""
        if f"{name}_file" in files:
            # A byte too many is enough to refuse it.
            return base64.b64encode(files[f"{name}_file"].read(MAX_LOGO_BYTES + 1)).decode()
        return "" if data.get(f"{name}_removed") else data.get(name, "")

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Return the picture, and the inputs that replace and remove it."""
        shown = logo_of(value)
        return format_html(
            '{}<input type="hidden" name="{}" value="{}"><input type="file" name="{}_file" id="id_{}" accept=".svg,.png">{}',
            shown, name, value or "", name, name,
            format_html('<label><input type="checkbox" name="{}_removed" value="yes"> Remove the logo</label>', name)
            if shown else "",
        )  # fmt: skip


def logo_of(encoded: Any) -> SafeString | str:
    """Return a logo as a picture; empty without one that can be shown."""
    try:
        address = logo_url({"logo": encoded})
    except InvalidValue:
        address = ""
    return format_html('<img class="paper-logo" src="{}" alt="The present logo">', address) if address else ""


@field_for.register
def _(value: Logo, shown: Display) -> forms.Field:
    return forms.CharField(widget=LogoInput())


class StepsInput(RowsInput):
    """Rows whose money has the currency of their row."""

    currency_column = "currency"


class StepsField(KeysField):
    """An amount of money by currency; a row has both. The amounts are in minor units."""

    widget_class = StepsInput

    def __init__(self, label: str) -> None:
        currency = currency_cell()
        amount = MoneyField(label=label, required=False, least=0, most=0, is_minor=True)
        super().__init__({"currency": currency, "amount": amount}, noun="Currency")


class DaysField(NamesField):
    """Numbers of days, each in a row."""

    def __init__(self) -> None:
        super().__init__({"days": text_cell("Days", inputmode="numeric")}, noun="Reminder")

    def value_of(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        texts = super().value_of(rows)
        return [int(each) if each.isascii() and each.isdecimal() and len(each) < 9 else each for each in texts]


@field_for.register
def _(value: ReminderDays, shown: Display) -> forms.Field:
    return DaysField()


@field_for.register
def _(value: CashSteps, shown: Display) -> forms.Field:
    return StepsField("Amount")


YES_OR_NO = {True: "yes", False: "no"}
RULES = {
    "price": "as the prices say",
    "region": "the declared taxes of the buyer's address",
    "eu_oss": "EU: consumers pay the VAT of their country, businesses abroad owe it",
    "eu_origin": "EU: consumers pay the seller's VAT, businesses abroad owe theirs",
    "provider": "As the provider of taxes says",
}


class SellerForm(OrderForm, RequestForm[NewSeller]):
    """A seller: address first; words, bank and numbers folded."""

    stake = NoStake("It moves no money: it says who invoices.")
    declared = NewSeller
    shows = {
        "ref": Display(label="Reference", help="Your name for the seller. Customers who name no other seller have “default”."),
        "name": Display(help="As printed on documents; also the holder of the bank account."),
        "line1": Display(label="Street"),
        "line2": Display(label="Second line"),
        "postal_code": Display(),
        "city": Display(),
        "country": Display(help="Name, or two letters such as DE."),
        "vat_id": Display(label="VAT id", help="Begins with its country."),
        "tax_number": Display(),
        "electronic_address": Display(),
        "tax_rules": Display(label="Taxes", words=RULES, required=False, help="Of lines of category S; other categories stay."),
        "needs_confirmed_vat_id": Display(
            label="Reverse charge only if VIES confirms",
            words=YES_OR_NO,
            required=False,
            help="Tax is charged while VIES has not said that the customer's VAT id of the EU is valid.",
        ),
        "register": Display(help="Company register and number."),
        "email": Display(label="E-mail", help="For questions about documents; mails are sent from it."),
        "terms_days": Display(
            label="Days to pay", required=False, help="Of new customers without others, from the day of issue."
        ),
        "reminder_days": Display(help="Days after the due date of each reminder; empty: none."),
        "reminder_fee": Display(
            at="/reminder_fee_minor",
            label="Fee of a reminder",
            help="Of each but the first, by currency.",
        ),
        "suspends_at_reminder": Display(
            help="The reminder that suspends the subscription until the invoice is paid; empty: none."
        ),
        "mails_invoices": Display(
            label="Mail invoices", words=YES_OR_NO, required=False, help="To the customer's e-mail address, when finalised."
        ),
        "phone": Display(),
        "website": Display(),
        "iban": Display(label="IBAN", help="Without spaces."),
        "bic": Display(label="BIC"),
        "bank": Display(),
        "logo": Display(help="An SVG of shapes or a PNG, at most 40,000 bytes. It replaces the printed name."),
        "accent_color": Display(
            label="Colour", placeholder="#0b6e4f", help="Of rules; as #0b6e4f. Text has it only if it can be read."
        ),
        "cash_rounding": Display(
            at="/cash_rounding_minor",
            label="Cash rounding",
            help="The amount due is rounded to a step, such as 0.05 CHF.",
        ),
        "footer": Display(help="A line at the end of each page, by language."),
        "payment_terms": Display(help="Below “Please pay”, by language."),
        "invoice_prefix": Display(label="Invoice numbers begin with"),
        "credit_note_prefix": Display(label="Credit note numbers begin with"),
        "numbers_per_year": Display(label="New numbers each year", words=YES_OR_NO, help="INV-2026-000001."),
        "numbers_per_customer": Display(label="Numbers for each customer", words=YES_OR_NO, help="INV-CUST-7-000001."),
    }

    def sections(self) -> list[FormSection]:
        """Return the form in parts."""
        address = ("ref", "name", "line1", "line2", "postal_code", "city", "country")
        return [
            FormSection(self.bound(*address)),
            FormSection(
                [],
                self.bound("vat_id", "tax_number", "electronic_address", "register", "tax_rules", "needs_confirmed_vat_id"),
                summary="Tax and register",
            ),
            FormSection([], self.bound("email", "mails_invoices", "phone", "website"), summary="Contact"),
            FormSection([], self.bound("iban", "bic", "bank", "terms_days", "payment_terms", "cash_rounding"), summary="Payment"),
            FormSection([], self.bound("reminder_days", "reminder_fee", "suspends_at_reminder"), summary="Reminders"),
            FormSection([], self.bound("logo", "accent_color", "footer"), summary="Logo and words"),
            FormSection(
                [],
                self.bound("invoice_prefix", "credit_note_prefix", "numbers_per_year", "numbers_per_customer"),
                summary="Numbers",
            ),
            FormSection(self.bound("reason", "shown_in", "idempotency_key")),
        ]


def record_view(model_admin: ReadOnlyAdmin, request: HttpRequest, seller: Seller | None = None) -> HttpResponse:
    """Show the form of a seller, then its letterhead, then record it.

    Args:
        seller: the version that fills the form; None: a new seller.
    """
    return OrderPage(
        form=SellerForm,
        collection="sellers",
        rows=Seller,
        write=lambda form: record(form.request, actor=form.actor),
        describe=_describe_seller,
        done=lambda row, form: (f"Seller {row.ref}", f"documents name {row}"),
        initial={} if seller is None else _typed_of(seller),
        title="New seller" if seller is None else f"Change the seller {seller.ref}",
        button="Record the seller",
        explanation="Documents that are issued from then on show it; earlier documents keep theirs.",
        back=reverse("admin:billing_seller_changelist") if seller is None else row_url(Seller, seller.pk),
    ).view(model_admin, request)


def _typed_of(seller: Seller) -> dict[str, Any]:
    """Return the form's initial values for the next version."""
    amounts = {name: seller.details.get(f"{name}_minor") for name in ("reminder_fee", "cash_rounding")}
    return {"ref": seller.ref} | seller.details | {name: value for name, value in amounts.items() if value}


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new seller."""
    return record_view(model_admin, request)


def _describe_seller(seller: Seller, form: SellerForm) -> DryRun:
    return DryRun(sentences=[f"Documents of {seller.ref} look like this.", numbers_words(seller)], picture=picture_of(seller))


def picture_of(seller: Seller) -> tuple[str, str] | None:
    """Return a picture of a sample document; None where PDFs are not installed."""
    if not IS_INSTALLED:
        return None
    picture = base64.b64encode(letterhead_picture(seller.details)).decode()
    return f"data:image/png;base64,{picture}", f"A sample document of {seller}"


def numbers_words(seller: Seller) -> str:
    """Return how a seller's documents are numbered, in a sentence."""
    year = "-2026" if seller.details.get("numbers_per_year") else ""
    customer = "-CUST-7" if seller.details.get("numbers_per_customer") else ""
    invoice, note = (f"{prefix}{year}{customer}-000001" for prefix in prefixes_of(seller.details))
    return f"Its documents have numbers such as {invoice} and {note}."


VERSIONS_SHOWN = 50


@admin.register(Seller)
class SellerAdmin(ReadOnlyAdmin):
    """The sellers in their current versions."""

    create_view = create_view
    reference = Column("Seller", "ref")
    name = Column("Name", str)
    address = Column("Address", lambda row: ", ".join(seller_lines(row.details, country=row.details["country"])[1:]))
    vat_id = Column("VAT id", lambda row: row.details.get("vat_id", ""))
    recorded = columns.instant("Recorded", "recorded_at")
    recorder = Column("Recorded by", "recorded_by")

    list_display = ("ref", "name", "address", "vat_id", "recorded", "recorder")
    search_fields = ("ref__startswith",)
    search_help_text = "Beginning of a seller's ref"
    csv_columns = ("reference", "name", "address", "vat_id", "recorded", "recorder")
    starts = "A seller is who invoices: record one before the first invoice."
    actions_detail = ("edit",)
    fields = (("ref", "recorded", "recorder"),)
    change_form_outer_before_template = "admin/billing/seller.html"

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the sellers in their current versions, the one that was recorded last first."""
        rows = cl.queryset.filter(pk__in=current_sellers().values("pk"))
        return FilteredRows(rows=rows, fits=Q()).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The version in sentences, as a picture, and the versions of the seller."""
        versions = Seller.objects.filter(ref=row.ref).order_by("-pk")[:VERSIONS_SHOWN]
        is_current = versions[0].pk == row.pk
        return {
            "title": f"{row} ({row.ref})",
            "sentences": [
                f"Documents that are issued now name {row}." if is_current else "A later version has replaced this one.",
                numbers_words(row),
            ],
            "picture": picture_of(row),
            "parts": [("Versions", self._versions(versions))],
        }

    def _versions(self, rows: Any) -> dict[str, Any]:
        link = ("Version", lambda row: row_link(Seller, row.pk, str(row)))
        return table_of(rows, link, SellerAdmin.address, SellerAdmin.recorded, SellerAdmin.recorder)

    @operation("Edit", icon="edit", permission=ADD_SELLER)
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record the next version of the seller, filled in with this one."""
        return record_view(self, request, self.row_of(request, object_id))
