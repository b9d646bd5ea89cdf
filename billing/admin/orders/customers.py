"""Pages of customers, with their subscriptions, latest invoices and coupons."""

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing.admin.cells import MORE_ROWS, by_pk, list_url, money
from billing.admin.documents.invoices import invoices_table
from billing.admin.order_forms import customers as order_forms
from billing.admin.order_forms.customers import customer_sentences
from billing.admin.order_forms.erasure import erase_view
from billing.admin.orders.creatable import CreatableAdmin
from billing.admin.orders.tables import subscriptions_table
from billing.admin.prose import coupon_words
from billing.models import Coupon, CouponUse, Customer, CustomerCoupon, Invoice, Subscription
from billing.orders.erasure import is_erased
from ledger.admin.holders.statements import last_month, statement_url
from ledger.admin.kit.bounded_reads import Wanted
from ledger.admin.kit.cells import link, row_link, table, timestamp
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import text
from ledger.admin.kit.pages import Page, UncountedList
from ledger.admin.links import holder_link

CSV: Sequence[Column] = (
    ("Customer", attrgetter("ref")),
    ("Name", attrgetter("name")),
    ("Currency", attrgetter("currency")),
    ("Time zone", attrgetter("time_zone")),
    ("Language", attrgetter("language")),
    ("VAT id", attrgetter("vat_id")),
    ("VAT status", attrgetter("vat_status")),
    ("Terms (days)", attrgetter("terms_days")),
    ("Grace (days)", attrgetter("grace_days")),
    ("Holder", attrgetter("holder_id")),
    ("Credit type", attrgetter("credit_type")),
    ("Value of the smallest unit of credits", attrgetter("credit_unit_value")),
    ("Created (UTC)", attrgetter("created_at")),
)


@admin.register(Customer)
class CustomerAdmin(CreatableAdmin):
    """The customers. The search takes the beginning of a reference, or words of a name."""

    create_view = order_forms.create_view
    list_display = ("ref", "name", "currency", "time_zone", "terms_days", "holder", "created")
    search_fields = ("ref__startswith", "name__named")
    search_help_text = "Beginning of a customer's reference or name"
    list_filter = (text("currency"), text("holder", title="holder who pays"))
    csv_columns = CSV
    starts = "A customer pays invoices: create a customer, then a subscription for it."
    actions_detail = ("edit", "subscribe", {"title": "More", "icon": "more_horiz", "items": ["give_coupon", "erase"]})
    change_form_outer_before_template = "admin/ledger/kit/sentences.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = ((None, {"fields": (("holder", "language", "created"),)}),)
    readonly_fields = ("holder", "language", "created")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Newest first; those of a holder by its index."""
        values = cl.values()
        rows = cl.queryset
        if "holder" in values:
            # The index is of customers who have a holder.
            rows = rows.filter(holder_id=values["holder"]).exclude(holder_id="")
        fits = Q(currency=values["currency"].upper()) if "currency" in values else Q()
        return Wanted(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the customer with the tables about it."""
        context = {**(extra_context or {}), "subtitle": ""}
        customer = self.get_object(request, unquote(object_id))
        if customer is not None:
            may = request.user.has_perm
            invoices = Invoice.objects.filter(customer_id=customer.pk).order_by("-pk")[:MORE_ROWS]
            context |= {
                "title": f"{customer.ref}: {customer.name}",
                "sentences": customer_sentences(customer),
                "parts": [
                    *([("Subscriptions", _subscriptions_table(customer))] if may("billing.view_subscription") else []),
                    *([("Latest invoices", invoices_table(invoices))] if may("billing.view_invoice") else []),
                    ("Coupons", _coupons_table(customer, may_take=self.has_take_coupon_permission(request))),
                ],
                "links": [
                    (list_url(Invoice, customer=customer.ref), "All invoices of this customer"),
                    *_statement(request, customer),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # What can be done ---------------------------------------------------------------------------------

    def has_edit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may change what documents say about a customer."""
        return bool(request.user.has_perm("billing.change_customer"))

    def has_subscribe_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("billing.add_subscription"))

    def has_give_coupon_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("billing.add_customercoupon"))

    def has_take_coupon_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("billing.change_customercoupon"))

    @action(description="Edit", icon="edit", permissions=["edit"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change what documents say about the customer."""
        return order_forms.change_view(self, request, self._of(request, object_id))

    @action(description="New subscription", icon="add", permissions=["subscribe"])
    def subscribe(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Go to the form of a subscription, with this customer in it."""
        query = urlencode({"customer": self._of(request, object_id).ref})
        return HttpResponseRedirect(f"{reverse('admin:billing_subscription_add')}?{query}")

    @action(description="Give a coupon", icon="percent", permissions=["give_coupon"], url_path="give-coupon")
    def give_coupon(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the customer a coupon."""
        return order_forms.give_coupon_view(self, request, self._of(request, object_id))

    def has_erase_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("billing.erase_customer"))

    @action(description="Erase personal data", icon="person_remove", permissions=["erase"])
    def erase(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Erase who the customer is."""
        return erase_view(self, request, self._of(request, object_id))

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> Collection[str]:
        """Nothing is left to erase of an erased customer."""
        customer = self.get_object(request, unquote(object_id))
        return ["erase"] if customer is not None and is_erased(customer) else []

    def take_coupon(self, request: HttpRequest, pk: int, code: str) -> HttpResponse:
        """Take a coupon away from the customer."""
        if not self.has_take_coupon_permission(request):
            raise PermissionDenied
        return order_forms.take_coupon_view(self, request, self._of(request, str(pk)), code)

    def get_urls(self) -> list[URLPattern]:
        """With the form that takes a coupon away."""
        view = self.admin_site.admin_view(self.take_coupon)
        return [path("<int:pk>/coupons/<str:code>/take/", view, name="billing_take_coupon"), *super().get_urls()]

    def _of(self, request: HttpRequest, object_id: str) -> Customer:
        customer: Customer | None = self.get_object(request, unquote(object_id))
        if customer is None:
            raise Http404
        return customer

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Holder who pays")
    def holder(self, row: Customer) -> SafeString | str:
        if not row.holder_id:
            return ""
        return holder_link(row.holder_id, **({"type": row.credit_type} if row.credit_type else {}))

    @display(description="Created")
    def created(self, row: Customer) -> SafeString | str:
        return timestamp(row.created_at)


def _subscriptions_table(customer: Customer) -> dict[str, Any]:
    pks = Subscription.objects.filter(customer_id=customer.pk).order_by("-pk").values_list("pk", flat=True)[:MORE_ROWS]
    return subscriptions_table(list(pks))


def _statement(request: HttpRequest, customer: Customer) -> list[tuple[str, str]]:
    """The link to the last month's statement of the customer's holder."""
    if not customer.holder_id or not request.user.has_perm("ledger.view_entrylisting"):
        return []
    url = statement_url(customer.holder_id, type=customer.credit_type or "credits")
    return [(url, f"Credit statement of {last_month():%B %Y} (PDF)")]


def _coupons_table(customer: Customer, *, may_take: bool) -> dict[str, Any]:
    given = list(CustomerCoupon.objects.filter(customer_id=customer.pk).order_by("-pk")[:MORE_ROWS])
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
    return table(
        ["Coupon", "Worth", "Given", "Taken away", "Discount so far", "On invoices", "Action"],
        [
            (
                row_link(Coupon, row.coupon_id, coupons[row.coupon_id].code),
                coupon_words(coupons[row.coupon_id]),
                timestamp(row.given_at),
                timestamp(row.taken_off_at),
                format_html_join(", ", "{}", ((money(use["taken_minor"], use["currency"]),) for use in taken.get(row.pk, []))),
                sum(use["invoices"] for use in taken.get(row.pk, [])),
                _take_link(customer, coupons[row.coupon_id]) if may_take and row.taken_off_at is None else "",
            )
            for row in given
            if row.coupon_id in coupons
        ],
    )


def _take_link(customer: Customer, coupon: Coupon) -> SafeString:
    return link(reverse("admin:billing_take_coupon", args=[customer.pk, coupon.code]), f"Take {coupon.code} away")
