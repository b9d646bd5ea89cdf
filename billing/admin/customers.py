"""Pages of customers, with their subscriptions, latest invoices and coupons."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db.models import Count, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from billing.additions import CUSTOMER_PAGE
from billing.admin.added import add_operations
from billing.admin.cells import MORE_ROWS, by_pk, file_columns, list_url, money, subscription_link
from billing.admin.credit_refunds import balance_minor, credit_sentences, credit_table, pay_out_view, refunds_table
from billing.admin.customer_overview import deeds_table, newest_subscriptions, overview, payments_table
from billing.admin.document_tables import short_table
from billing.admin.invoices import invoices_table
from billing.admin.one_off_invoices import one_off_view
from billing.admin.order_forms import customers as order_forms
from billing.admin.order_forms.customers import customer_sentences
from billing.admin.order_forms.erasure import erase_view
from billing.admin.order_forms.subscriptions import Part
from billing.admin.prose import coupon_words
from billing.admin.subscription_tables import subscription_rows_table
from billing.admin.taxes import vat_lookups_table
from billing.errors import BillingSuspended, InvoiceGenerationBusy, TaxesRefused, TaxesUnavailable
from billing.generator.run.preview import UpcomingInvoice, preview_next_invoices
from billing.models import Coupon, CouponUse, CreditNote, Customer, CustomerCoupon, Invoice, Subscription
from billing.orders.customers import NewCustomer
from billing.orders.erasure import is_erased
from billing.permissions import (
    ADD_CUSTOMERCOUPON,
    ADD_SUBSCRIPTION,
    CHANGE_CUSTOMER,
    CHANGE_CUSTOMERCOUPON,
    ERASE_CUSTOMER,
    ISSUE_INVOICE,
    REFUND_CREDIT,
    VIEW_CREDITNOTE,
    VIEW_INVOICE,
    VIEW_SUBSCRIPTION,
    VIEW_VATLOOKUP,
)
from billing.rating.money import MINOR_DIGITS, money_text
from billing.reads import open_credit_of
from ledger.operators.permissions import MAKE_PAGE_LINK, VIEW_ENTRYLISTING
from ledger.services import time_of
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, order_of
from ledger.staff.kit.cells import contract_day, instant_words, link, row_link, row_url
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, describe, guarded, operation
from ledger.staff.links import account_id, holder_link

INVOICES_SHOWN = 20


def _holder(row: Customer) -> SafeString | str:
    return holder_link(row.holder_id, **({"type": row.credit_type} if row.credit_type else {})) if row.holder_id else ""


@admin.register(Customer)
class CustomerAdmin(ReadOnlyAdmin):
    """The customers. The search takes the beginning of a reference, or words of a name."""

    create_view = order_forms.create_view
    holder = Column("Credit account", _holder)
    unit_value = Column("Value of the smallest unit of credits", "credit_unit_value")
    created = columns.instant("Created", "created_at")

    created_day = Column("Created", lambda row: contract_day(row.created_at, row.time_zone), ordering="id")

    list_display = ("name", "ref", "currency", "time_zone", "terms_days", "holder", "created_day")
    sortable_by = ("name", "ref", "created_day")
    search_fields = ("ref__startswith", "name__named")
    search_help_text = "Beginning of a customer's reference or name"
    list_filter = (text("currency"), text("holder", title="credit account"))
    csv_columns = (*file_columns(NewCustomer), "credit_type", "unit_value", "created")
    starts = "A customer pays invoices: create a customer, then a subscription for it."
    actions_detail = (
        "edit",
        "subscribe",
        "page_link",
        *CUSTOMER_PAGE.operation_names(stands_out=True),
        {
            "title": "More",
            "icon": "more_horiz",
            "items": ["new_invoice", "give_coupon", "pay_out", *CUSTOMER_PAGE.operation_names(stands_out=False), "erase"],
        },
    )
    fields = (("holder", "language", "created"),)
    change_form_outer_before_template = "admin/billing/customer.html"

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those of a holder by its index."""
        values = cl.values()
        rows, order = cl.queryset, order_of(cl)
        if order is not None:
            fits = Q(holder_id=values["holder"]) if "holder" in values else Q()
            fits &= Q(currency=values["currency"].upper()) if "currency" in values else Q()
            return FilteredRows(rows=rows, fits=fits, order=order).page(cursor, most=cl.page_rows)
        if "holder" in values:
            # The index contains only customers who have a holder.
            rows = rows.filter(holder_id=values["holder"]).exclude(holder_id="")
        fits = Q(currency=values["currency"].upper()) if "currency" in values else Q()
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what an operator asks first about the customer, and the tables about it."""
        may = request.user.has_perm
        invoices = Invoice.objects.filter(customer_id=row.pk).order_by("-pk")[:INVOICES_SHOWN]
        subscriptions = newest_subscriptions(row)
        return {
            "title": row.name,
            "sentences": [*customer_sentences(row), *credit_sentences(row)],
            **overview(request, row, subscriptions),
            "parts": [
                *([("Subscriptions", subscription_rows_table(subscriptions))] if may(VIEW_SUBSCRIPTION) else []),
                *([("Latest invoices", invoices_table(invoices))] if may(VIEW_INVOICE) else []),
                *([("Credit", credit_table(row)), ("Paid out", refunds_table(row))] if may(VIEW_CREDITNOTE) else []),
                *([("Payments", payments_table(row)), *CUSTOMER_PAGE.parts_of(row)] if may(VIEW_INVOICE) else []),
                *([("VAT lookups", vat_lookups_table(row))] if may(VIEW_VATLOOKUP) else []),
                (
                    "Coupons",
                    coupons_table(CustomerCoupon.objects.filter(customer_id=row.pk), may_take=may(CHANGE_CUSTOMERCOUPON)),
                ),
                *([("Who did what", deeds_table(row, subscriptions))] if may(VIEW_INVOICE) and may(VIEW_SUBSCRIPTION) else []),
            ],
            "links": [
                (list_url(Invoice, customer=row.ref), "All invoices of this customer"),
                *(
                    [(list_url(CreditNote, customer=row.ref), "All credit notes of this customer")]
                    if may(VIEW_CREDITNOTE)
                    else []
                ),
                *_statement(request, row),
            ],
        }

    # What can be done ---------------------------------------------------------------------------------

    @operation("Edit", icon="edit", permission=CHANGE_CUSTOMER)
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change the data of the customer on documents."""
        return order_forms.change_view(self, request, self.row_of(request, object_id))

    @operation("New subscription", icon="add", permission=ADD_SUBSCRIPTION)
    def subscribe(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the form of a subscription, filled in with this customer."""
        query = urlencode({"customer": self.row_of(request, object_id).ref})
        return HttpResponseRedirect(f"{reverse('admin:billing_subscription_add')}?{query}")

    @operation("Customer's page", icon="link", permission=MAKE_PAGE_LINK, url_path="page-link")
    def page_link(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the form that makes a link to the page on which the customer pays, buys and sees their credits."""
        customer = self.row_of(request, object_id)
        if not _has_page(customer):
            raise Http404
        account = account_id(customer.holder_id, customer.credit_type or "credits")
        return HttpResponseRedirect(reverse("admin:ledger_account_page_link", args=[quote(account)]))

    @operation("New invoice", icon="receipt_long", permission=ISSUE_INVOICE, url_path="new-invoice")
    def new_invoice(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make an invoice of the customer without a subscription."""
        return one_off_view(self, request, self.row_of(request, object_id))

    @operation("Give a coupon", icon="percent", permission=ADD_CUSTOMERCOUPON, url_path="give-coupon")
    def give_coupon(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the customer a coupon."""
        return order_forms.give_coupon_view(self, request, self.row_of(request, object_id))

    @operation("Pay out credit", icon="payments", permission=REFUND_CREDIT, url_path="pay-out")
    def pay_out(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record that credit of the customer was paid out: in its currency, or in the one of the address."""
        customer = self.row_of(request, object_id)
        held = [note.currency for note in open_credit_of(customer.pk)]
        currency = request.GET.get("currency", customer.currency if customer.currency in held or not held else held[0])
        if currency not in MINOR_DIGITS:
            raise Http404
        return pay_out_view(self, request, customer, currency, balance_minor(customer, currency))

    @operation("Erase personal data", icon="person_remove", permission=ERASE_CUSTOMER)
    def erase(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Erase the personal data of the customer."""
        return erase_view(self, request, self.row_of(request, object_id))

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> Collection[str]:
        """Return that an erased customer has nothing left to erase, one without credit nothing to pay out, and so on."""
        customer = self.get_object(request, unquote(object_id))
        if customer is None:
            return []
        return [
            *(["erase"] if is_erased(customer) else []),
            *([] if _has_page(customer) else ["page_link"]),
            *([] if open_credit_of(customer.pk) else ["pay_out"]),
            *CUSTOMER_PAGE.impossible_on(customer),
        ]

    def preview(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the next invoice, as a run would make it when it becomes due."""
        return preview_view(self, request, self.row_of(request, str(pk)))

    def take_coupon(self, request: HttpRequest, pk: int, code: str) -> HttpResponse:
        """Take a coupon away from the customer."""
        return order_forms.take_coupon_view(self, request, self.row_of(request, str(pk)), code)

    def get_urls(self) -> list[URLPattern]:
        """Return the columns with the form that takes a coupon away."""
        route = "<int:pk>/coupons/<str:code>/take/"
        own = [
            guarded(self, route, self.take_coupon, name="billing_take_coupon", permission=CHANGE_CUSTOMERCOUPON),
            guarded(self, "<int:pk>/preview/", self.preview, name="billing_customer_preview", permission=VIEW_INVOICE),
        ]
        return [*own, *super().get_urls()]


add_operations(CustomerAdmin, CUSTOMER_PAGE)


def preview_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show what the customer's next invoice will say, as the preview over REST makes it."""
    due = [row for row in newest_subscriptions(customer) if row.due_at is not None and row.suspended_reason is None]
    sentences, parts = ["Nothing becomes due."], list[Part]()
    upcoming_invoices: Sequence[UpcomingInvoice] = ()
    try:
        upcoming_invoices = preview_next_invoices([row.ref for row in due], as_of=time_of(customer.holder_id), most=1)
    except (BillingSuspended, InvoiceGenerationBusy, TaxesRefused, TaxesUnavailable) as refusal:
        sentences = [f"{describe(refusal)}."]
    for one in upcoming_invoices:
        zone, document = ZoneInfo(customer.time_zone), one.document
        when, total = instant_words(one.as_of, zone), money_text(document["total_minor"], document["currency"])
        sentences = [f"The next invoice is that of {document['subscription']}."]
        parts.append((f"The invoice of a run at {when}: {total}", short_table(document, zone)))
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": f"Next invoice of {customer.name}",
        "sentences": sentences,
        "parts": parts,
        "back": row_url(Customer, customer.pk),
    }
    return TemplateResponse(request, "admin/billing/preview.html", context)


def _has_page(customer: Customer) -> bool:
    """Return whether the customer has a page: it is that of a holder."""
    return bool(customer.holder_id) and apps.is_installed("ledger.portal")


def _statement(request: HttpRequest, customer: Customer) -> list[tuple[str, str]]:
    """Return the link to the last month's statement of the customer's holder, where there are statements."""
    if not customer.holder_id or not apps.is_installed("ledger.statements") or not request.user.has_perm(VIEW_ENTRYLISTING):
        return []
    from ledger.statements.pages import last_month, statement_url

    url = statement_url(customer.holder_id, type=customer.credit_type or "credits")
    return [(url, f"Credit statement of {last_month():%B %Y} (PDF)")]


def coupons_table(rows: QuerySet[CustomerCoupon], *, may_take: bool) -> dict[str, Any]:
    """Return coupons that were given to a customer or a subscription, the newest first."""
    given = list(rows.order_by("-pk")[:MORE_ROWS])
    refs = dict(Subscription.objects.filter(pk__in=[row.subscription_id for row in given]).values_list("pk", "ref"))
    coupons = by_pk(Coupon, [row.coupon_id for row in given])
    uses = (
        CouponUse.objects.filter(customer_coupon_id__in=[row.pk for row in given], released_at=None)
        .values("customer_coupon_id", "currency")
        .annotate(taken_minor=Sum("amount_minor"), invoices=Count("pk"))
        .order_by("customer_coupon_id", "currency")
    )
    taken: dict[int, list[Any]] = {}
    for use in uses:
        taken.setdefault(use["customer_coupon_id"], []).append(use)
    return table_of(
        [row for row in given if row.coupon_id in coupons],
        ("Coupon", lambda row: row_link(Coupon, row.coupon_id, coupons[row.coupon_id].code)),
        ("Worth", lambda row: coupon_words(coupons[row.coupon_id])),
        ("For", lambda row: subscription_link(row.subscription_id, refs[row.subscription_id]) if row.subscription_id else "all"),
        columns.instant("Given", "given_at"),
        columns.instant("Taken away", "taken_off_at"),
        ("Discount so far", lambda row: _join_cells(money(use["taken_minor"], use["currency"]) for use in taken.get(row.pk, []))),
        ("On invoices", lambda row: sum(use["invoices"] for use in taken.get(row.pk, []))),
        ("Action", lambda row: _take_link(row, coupons[row.coupon_id]) if may_take and row.taken_off_at is None else ""),
    )


def _join_cells(cells: Iterable[SafeString | str]) -> SafeString:
    return format_html_join(", ", "{}", ((cell,) for cell in cells))


def _take_link(given: CustomerCoupon, coupon: Coupon) -> SafeString:
    of_customer = ("admin:billing_take_coupon", given.customer_id)
    name, pk = ("admin:billing_take_subscription_coupon", given.subscription_id) if given.subscription_id else of_customer
    return link(reverse(name, args=[pk, coupon.code]), f"Take {coupon.code} away")
