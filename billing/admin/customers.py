"""Customers: who pays, with their subscriptions, latest invoices and coupons."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from billing.admin.catalogue import worth
from billing.admin.cells import MORE_ROWS, by_pk, list_url, money, pairs, plain, subscription_link
from billing.admin.invoices import invoices_table
from billing.models import Coupon, CouponUse, Customer, CustomerCoupon, Invoice, Subscription
from ledger.admin.kit.pages import ReadOnlyAdmin, link, moment, row_link, table
from ledger.admin.links import account_link, accounts_url


@admin.register(Customer)
class CustomerAdmin(ReadOnlyAdmin):
    """Who pays. Searched by the beginning of their reference."""

    list_display = ("ref", "name", "currency", "time_zone", "terms_days", "holder", "created")
    search_fields = ("ref__startswith",)
    search_help_text = "Beginning of a customer's reference"
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("ref", "name"), ("currency", "terms_days", "grace_days"), ("language", "time_zone"))}),
        ("Tax", {"fields": (("vat_id", "vat_status"), "address_text")}),
        ("Payment with credits", {"fields": (("holder", "credit_type", "unit_value"),)}),
    )
    readonly_fields = ("holder", "created", "address_text", "unit_value")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The customer, and what is about it."""
        context = {**(extra_context or {}), "subtitle": ""}
        customer = self.get_object(request, unquote(object_id))
        if customer is not None:
            invoices = list(Invoice.objects.filter(customer_id=customer.pk).order_by("-pk")[:MORE_ROWS])
            context |= {
                "title": f"{customer.ref}: {customer.name}",
                "parts": [
                    ("Subscriptions", _subscriptions_table(customer)),
                    ("Latest invoices", invoices_table(invoices)),
                    ("Coupons", _coupons_table(customer)),
                ],
                "links": [(list_url(Invoice, q=customer.ref), "All invoices of this customer")],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Holder who pays")
    def holder(self, row: Customer) -> SafeString | str:
        if not row.holder_id:
            return ""
        if not row.credit_type:
            return link(accounts_url(holder=row.holder_id), row.holder_id)
        return account_link(row.holder_id, row.credit_type)

    @display(description="Value of one credit")
    def unit_value(self, row: Customer) -> str:
        return plain(row.credit_unit_value)

    @display(description="Address")
    def address_text(self, row: Customer) -> SafeString:
        return pairs(row.address)

    @display(description="Created (UTC)")
    def created(self, row: Customer) -> SafeString | str:
        return moment(row.created_at)


def _subscriptions_table(customer: Customer) -> dict[str, Any]:
    rows = Subscription.objects.filter(customer_id=customer.pk).order_by("-pk")[:MORE_ROWS]
    return table(
        ["Subscription", "Started (UTC)", "Anchor (UTC)", "Time zone"],
        [(subscription_link(row.pk, row.ref), moment(row.started_at), moment(row.anchor_at), row.time_zone) for row in rows],
    )


def _coupons_table(customer: Customer) -> dict[str, Any]:
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
        ["Coupon", "Worth", "Given (UTC)", "Discount so far", "On invoices"],
        [
            (
                row_link(Coupon, row.coupon_id, coupons[row.coupon_id].code),
                worth(coupons[row.coupon_id]),
                moment(row.given_at),
                format_html_join(", ", "{}", ((money(use["taken_minor"], use["currency"]),) for use in taken.get(row.pk, []))),
                sum(use["invoices"] for use in taken.get(row.pk, [])),
            )
            for row in given
            if row.coupon_id in coupons
        ],
    )
