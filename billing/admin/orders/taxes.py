"""Pages of taxes, and the form that declares one. A change is a new version; documents keep theirs."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextareaWidget

from billing.admin.order_forms.fields import NamesField, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.models import Tax
from billing.orders.taxes.declaring import MAX_POSTAL_CODES, NOT_VAT, TERMS, NewTax, PostalCodes, declare
from billing.permissions import ADD_TAX
from billing.reads.catalogue import newest_of
from ledger.admin.kit import columns
from ledger.admin.kit.bounded_reads import FilteredRows
from ledger.admin.kit.cells import day_words, row_link, row_url
from ledger.admin.kit.columns import Column, table_of
from ledger.admin.kit.forms.fields import Shown, field_for
from ledger.admin.kit.forms.idempotent import DryRun, FormSection, RequestForm
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation

VERSIONS_SHOWN = 100
YES_OR_NO = {True: "yes", False: "no"}


@field_for.register
def _(value: PostalCodes, shown: Shown) -> forms.Field:
    return NamesField(
        max_length=20 * MAX_POSTAL_CODES, widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "spellcheck": "false"})
    )


class TaxForm(OrderForm, RequestForm[NewTax]):
    """A tax: what it is first; the region folded."""

    declared = NewTax
    shows = {
        "code": Shown(label="Reference", help="Your name for the tax, such as ca-gst."),
        "name": Shown(help="As documents print it, such as GST."),
        "names": Shown(label="In other languages", help="A language and the name on each line."),
        "rate": Shown(label="Rate in percent", help="0 for a class that bears no VAT."),
        "category": Shown(initial="S", required=False, help="S: VAT. Z or E: VAT of 0. O: a tax that is not VAT."),
        "country": Shown(help="Two letters, such as CA."),
        "subdivision": Shown(label="State or province", help="Its code without the country, such as QC; empty: all."),
        "city": Shown(help="Empty: all."),
        "postal_codes": Shown(help="How they begin, with commas between them; empty: all."),
        "classes": Shown(label="Tax classes", initial=["standard"], required=False, help="What bears it: see the prices."),
        "is_compound": Shown(
            label="Tax on tax", words=YES_OR_NO, required=False, initial="no",
            help="Computed on the net amount and the other taxes of the line.",
        ),
        "valid_from": Shown(label="From", help="The first day of this rate."),
        "valid_until": Shown(label="Until", help="The first day without the tax; empty: until the next version."),
    }  # fmt: skip

    def sections(self) -> list[FormSection]:
        """Return the form in parts."""
        return [
            FormSection(self.bound("code", "name", "rate", "country", "valid_from", "valid_until")),
            FormSection([], self.bound("subdivision", "city", "postal_codes"), summary="Region"),
            FormSection([], self.bound("category", "classes", "is_compound", "names"), summary="Category and classes"),
            FormSection(self.bound("reason", "shown_in", "idempotency_key")),
        ]


def declare_view(model_admin: ReadOnlyAdmin, request: HttpRequest, tax: Tax | None = None) -> HttpResponse:
    """Show the form of a tax, then what it says, then declare it.

    Args:
        tax: the version that fills the form; None: a new tax.
    """
    return OrderPage(
        form=TaxForm,
        collection="taxes",
        rows=Tax,
        write=lambda form: declare(form.request, actor=form.actor),
        describe=lambda tax, form: DryRun(sentences=sentences_of(tax)),
        done=lambda row, form: (f"Tax {row.code}", f"{row} from {row.valid_from}"),
        initial={} if tax is None else {"code": tax.code, **{name: getattr(tax, name) for name in TERMS}, "rate": percent(tax)},
        title="New tax" if tax is None else f"Change the tax {tax.code}",
        button="Declare the tax",
        explanation="Lines bear it whose seller taxes by declared taxes. Documents that exist keep theirs.",
        back=reverse("admin:billing_tax_changelist") if tax is None else row_url(Tax, tax.pk),
    ).view(model_admin, request)


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new tax."""
    return declare_view(model_admin, request)


def percent(tax: Tax) -> str:
    """Return the rate without zeros at its end."""
    return f"{tax.rate.normalize():f}"


def place_words(tax: Tax) -> str:
    """Return where a tax is due."""
    codes = (
        f"postal codes {', '.join(tax.postal_codes[:5])}{' …' if len(tax.postal_codes) > 5 else ''}" if tax.postal_codes else ""
    )
    return ", ".join(filter(None, [codes, tax.city, "-".join(filter(None, [tax.country, tax.subdivision]))]))


def sentences_of(tax: Tax) -> list[str]:
    """Return the terms of a tax in sentences."""
    until = f" until {day_words(tax.valid_until)}" if tax.valid_until else ""
    kind = "It is not VAT." if tax.category == NOT_VAT else f"Its category is {tax.category}."
    return [
        f"{tax.name} of {percent(tax)} % is due in {place_words(tax)} from {day_words(tax.valid_from)}{until}.",
        f"It is for the tax class{'es' if len(tax.classes) > 1 else ''} {', '.join(tax.classes)}. {kind}",
        *(["It is computed on the net amount and the other taxes of a line."] if tax.is_compound else []),
    ]


@admin.register(Tax)
class TaxAdmin(ReadOnlyAdmin):
    """The taxes in their newest versions."""

    create_view = create_view
    reference = Column("Tax", "code")
    name = Column("Name", "name")
    rate = Column("Percent", percent)
    place = Column("Where", place_words)
    classes = Column("Tax classes", lambda row: ", ".join(row.classes))
    valid_from = Column("From", "valid_from")
    valid_until = Column("Until", lambda row: row.valid_until or "")
    recorded = columns.instant("Recorded", "recorded_at")
    recorder = Column("Recorded by", "recorded_by")

    list_display = ("code", "name", "rate", "place", "classes", "valid_from", "valid_until", "recorded")
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a tax's reference"
    csv_columns = ("reference", "name", "rate", "place", "classes", "valid_from", "valid_until", "recorded", "recorder")
    starts = "Declare the taxes of the regions in which you sell, then choose at the seller that lines bear them."
    actions_detail = ("edit",)
    fields = (("code", "recorded", "recorder"),)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the taxes in their newest versions, the one that was recorded last first."""
        rows = cl.queryset.filter(pk__in=newest_of(Tax).values("pk"))
        return FilteredRows(rows=rows, fits=Q()).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The version in sentences, and the versions of the tax."""
        versions = Tax.objects.filter(code=row.code).order_by("-pk")[:VERSIONS_SHOWN]
        link = ("Version", lambda row: row_link(Tax, row.pk, str(row)))
        table = table_of(versions, link, TaxAdmin.place, TaxAdmin.valid_from, TaxAdmin.valid_until, TaxAdmin.recorded)
        return {"title": f"{row.name} ({row.code})", "sentences": sentences_of(row), "parts": [("Versions", table)]}

    @operation("Edit", icon="edit", permission=ADD_TAX)
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Declare the next version of the tax, filled in with this one."""
        return declare_view(self, request, self.row_of(request, object_id))
