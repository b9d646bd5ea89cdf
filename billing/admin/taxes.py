"""Pages of taxes, with the form that declares one, and of what VIES said about VAT ids. Documents keep the version they have."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.cells import by_pk, customer_link, ids_of_customer
from billing.admin.invoices import invoices_table
from billing.admin.order_forms.customers import address_words
from billing.admin.order_forms.fields import OrderForm, names_of
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import lookup_words
from billing.models import Customer, Invoice, Tax, VatLookup
from billing.orders.tax_declarations import NOT_VAT, TERMS, NewTax, PostalCodes, declare
from billing.permissions import ADD_TAX, VIEW_INVOICE
from billing.reads.catalogue import newest_of
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import day_words, row_link, row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.form_fields import Display, field_for
from ledger.staff.kit.idempotent_forms import DryRun, FormSection, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation

VERSIONS_SHOWN = 100
INVOICES_SHOWN = 100
LOOKUPS_SHOWN = 50
YES_OR_NO = {True: "yes", False: "no"}


@field_for.register
def _(value: PostalCodes, shown: Display) -> forms.Field:
    return names_of("", "Postal code")(value, shown)


class TaxForm(OrderForm, RequestForm[NewTax]):
    """A tax: what it is first; the region folded."""

    stake = NoStake("It moves no money: it says what is taxed from then on.")
    declared = NewTax
    shows = {
        "code": Display(label="Reference", help="Your name for the tax, such as ca-gst."),
        "name": Display(help="As documents print it, such as GST."),
        "names": Display(label="In other languages"),
        "rate": Display(label="Rate in percent", help="0 for a class that bears no VAT."),
        "category": Display(initial="S", required=False, help="S: VAT. Z or E: VAT of 0. O: a tax that is not VAT."),
        "country": Display(help="Two letters, such as CA."),
        "subdivision": Display(label="State or province", help="Its code without the country, such as QC; empty: all."),
        "city": Display(help="Empty: all."),
        "postal_codes": Display(help="How they begin; empty: all."),
        "classes": Display(
            label="Tax classes", make=names_of("tax_class", "Class"), initial=["standard"], required=False,
            help="What bears it: see the prices.",
        ),
        "is_compound": Display(
            label="Tax on tax", words=YES_OR_NO, required=False, initial="no",
            help="Computed on the net amount and the other taxes of the line.",
        ),
        "valid_from": Display(label="From", help="The first day of this rate."),
        "valid_until": Display(label="Until", help="The first day without the tax; empty: until the next version."),
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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tax]:
        """Return the taxes that were declared here."""
        return super().get_queryset(request).filter(provider="")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the taxes in their newest versions, the one that was recorded last first."""
        rows = cl.queryset.filter(pk__in=newest_of(Tax, provider="").values("pk"))
        return FilteredRows(rows=rows, fits=Q()).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The version in sentences, and the versions of the tax."""
        versions = Tax.objects.filter(provider="", code=row.code).order_by("-pk")[:VERSIONS_SHOWN]
        link = ("Version", lambda row: row_link(Tax, row.pk, str(row)))
        table = table_of(versions, link, TaxAdmin.place, TaxAdmin.valid_from, TaxAdmin.valid_until, TaxAdmin.recorded)
        return {"title": f"{row.name} ({row.code})", "sentences": sentences_of(row), "parts": [("Versions", table)]}

    @operation("Edit", icon="edit", permission=ADD_TAX)
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Declare the next version of the tax, filled in with this one."""
        return declare_view(self, request, self.row_of(request, object_id))


OUTCOMES = {"valid": "success", "invalid": "danger", "unavailable": "warning"}


def buyer_words(row: VatLookup) -> str:
    """Return name and address of the customer as they were when the VAT id was looked up."""
    return ", ".join(filter(None, [row.buyer.get("name"), address_words(row.buyer.get("address"))]))


@admin.register(VatLookup)
class VatLookupAdmin(ReadOnlyAdmin):
    """What VIES said about VAT ids of customers: evidence for reverse charge, newest first."""

    number = Column("Lookup", "pk")
    customer_cell = Column("Customer", lambda row: customer_link(row.customer_id, row.owner.ref), lambda row: row.owner.ref)
    vat_id_text = Column("VAT id", "vat_id")
    outcome_label = columns.badge("Outcome", "outcome", OUTCOMES)
    asked = columns.instant("Asked", "asked_at")
    requester_text = Column("Requester", "requester")
    consultation_text = Column("Consultation number", "consultation")
    whose = Column("Name in VIES", "name")
    address_text = Column("Address in VIES", "address")
    buyer_text = Column("Customer then", buyer_words)
    why = Column("Why no answer", "error")

    list_display = ("number", "customer_cell", "vat_id_text", "outcome_label", "asked", "consultation_text", "whose", "why")
    list_display_links = ("number",)
    list_filter = (choice("outcome", list(OUTCOMES)), text("customer"))
    search_fields = ("vat_id",)
    search_help_text = "A VAT id"
    csv_columns = (
        "number", "customer_cell", "vat_id_text", "outcome_label", "asked", "requester_text", "consultation_text", "whose",
        "address_text", "buyer_text", "why",
    )  # fmt: skip
    starts = "With LEDGER_VIES_URL, VAT ids of customers are looked up in VIES, the EU's service, before they are stored."
    fields = (
        ("customer_cell", "vat_id_text", "outcome_label"), ("asked", "requester_text", "consultation_text"),
        ("whose", "address_text", "buyer_text"),
    )  # fmt: skip

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those of a customer by the index."""
        values = cl.values()
        rows = cl.queryset
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        fits = Q(outcome=values["outcome"]) if "outcome" in values else Q()
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """By the VAT id, through the customers who have it, or by a customer's reference."""
        return Q(customer_id__in=Customer.objects.filter(Q(ref=word) | Q(vat_id=word)).exclude(ref="").values("pk"))

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row its customer."""
        customers = by_pk(Customer, [row.customer_id for row in rows])
        for row in rows:
            row.owner = customers[row.customer_id]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What VIES said, in a sentence, and the invoices that rely on it."""
        relying = Invoice.objects.filter(customer_id=row.customer_id, buyer__vat_lookup__id=row.pk).order_by("-pk")
        return {
            "title": f"VAT lookup {row.pk}",
            "sentences": [lookup_words(row)],
            "parts": [("Invoices that rely on it", invoices_table(relying[:INVOICES_SHOWN]))]
            if request.user.has_perm(VIEW_INVOICE)
            else [],
        }


def vat_lookups_table(customer: Customer) -> dict[str, Any]:
    """Return the newest lookups of the VAT ids of a customer."""
    rows = VatLookup.objects.filter(customer_id=customer.pk).order_by("-pk")[:LOOKUPS_SHOWN]
    return table_of(
        rows, ("Lookup", lambda row: row_link(VatLookup, row.pk, str(row.pk))), VatLookupAdmin.vat_id_text,
        VatLookupAdmin.outcome_label, VatLookupAdmin.asked, VatLookupAdmin.consultation_text, VatLookupAdmin.whose,
        VatLookupAdmin.why,
    )  # fmt: skip
