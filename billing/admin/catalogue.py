"""Plans with their prices, and coupons: never changed, so that documents can refer to them."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from billing.admin.cells import pairs, plain
from billing.models import Coupon, Plan, Price
from ledger.admin.kit.pages import ReadOnlyAdmin, moment, table


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    """One row per version of a plan."""

    list_display = ("code", "version", "name", "currency", "interval", "created")
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a plan's code"
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("code", "version"), ("name", "currency"), ("interval", "created"))}),
        ("Each period", {"fields": (("least", "most"), "allowance_text")}),
    )
    readonly_fields = ("interval", "created", "least", "most", "allowance_text")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The plan, and its prices."""
        context = {**(extra_context or {}), "subtitle": ""}
        plan = self.get_object(request, unquote(object_id))
        if plan is not None:
            prices = Price.objects.filter(plan_id=plan.pk).order_by("position")
            context |= {"title": f"{plan.name} ({plan})", "parts": [("Prices", _prices_table(list(prices)))]}
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Billed every")
    def interval(self, row: Plan) -> str:
        words = row.interval_unit.replace("_", " ")
        return words if row.interval_count == 1 else f"{row.interval_count} {words}s"

    @display(description="Created (UTC)")
    def created(self, row: Plan) -> SafeString | str:
        return moment(row.created_at)

    @display(description="Minimum")
    def least(self, row: Plan) -> str:
        return plain(row.minimum)

    @display(description="Maximum")
    def most(self, row: Plan) -> str:
        return plain(row.maximum)

    @display(description="Credits granted")
    def allowance_text(self, row: Plan) -> SafeString:
        return pairs(row.allowance)


def _prices_table(prices: list[Price]) -> dict[str, Any]:
    return table(
        ["Price", "Kind", "Timing", "Model", "Meter", "Definition"],
        [(price.key, price.kind, price.timing, price.model, price.meter, _definition(price)) for price in prices],
    )


def _definition(price: Price) -> SafeString:
    shown = {"key", "kind", "timing", "model", "meter"}
    told = {name: value for name, value in price.definition.items() if name not in shown and value is not None}
    if "credits" in told:
        told["credits"] = f"{told['credits']['per_unit']} {told['credits']['credit_type']} a unit first"
    return format_html("{}", ", ".join(f"{name} {value}" for name, value in told.items()))


@admin.register(Coupon)
class CouponAdmin(ReadOnlyAdmin):
    """Discounts that customers can be given."""

    list_display = ("code", "kind", "value_cell", "currency", "duration", "periods", "created")
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a coupon's code"
    fieldsets = (
        (None, {"fields": (("code", "kind"), ("value_cell", "currency"), ("duration", "periods"), ("prices", "plans"))}),
    )
    readonly_fields = ("value_cell", "created")

    @display(description="Value")
    def value_cell(self, row: Coupon) -> str:
        return f"{plain(row.value)} %" if row.kind == "percentage" else plain(row.value)

    @display(description="Created (UTC)")
    def created(self, row: Coupon) -> SafeString | str:
        return moment(row.created_at)


def worth(coupon: Coupon) -> str:
    """What it takes off, and how often."""
    what = f"{plain(coupon.value)} {'%' if coupon.kind == 'percentage' else coupon.currency}"
    often = f"{coupon.periods} times" if coupon.duration == "recurring" else coupon.duration
    return f"{what}, {often}"
