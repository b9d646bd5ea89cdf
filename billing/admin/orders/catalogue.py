"""Pages of plans with their prices, and of coupons. Both never change, so documents can refer to them."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing.admin.order_forms import coupons as coupon_forms
from billing.admin.order_forms import plans as plan_forms
from billing.admin.orders.creatable import CreatableAdmin
from billing.admin.prose import coupon_words, every, plan_sentences
from billing.models import Coupon, Plan
from billing.orders.plans import terms_of
from billing.rating.periods import Interval, IntervalUnit
from ledger.admin.kit.bounded_reads import Wanted
from ledger.admin.kit.cells import row_link, table, timestamp
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import choice, text
from ledger.admin.kit.pages import Page, UncountedList

VERSIONS_SHOWN = 50


def interval_of(plan: Plan) -> Interval:
    """How long a period of the plan is."""
    return Interval(IntervalUnit(plan.interval_unit), plan.interval_count)


PLAN_CSV: Sequence[Column] = (
    ("Plan", attrgetter("code")),
    ("Version", attrgetter("version")),
    ("Name", attrgetter("name")),
    ("Currency", attrgetter("currency")),
    ("Billed every", lambda plan: every(interval_of(plan))),
    ("At least", attrgetter("minimum")),
    ("At most", attrgetter("maximum")),
    ("Terms", lambda plan: " ".join(plan_sentences(terms_of(plan.pk)))),
    ("Created (UTC)", attrgetter("created_at")),
)
COUPON_CSV: Sequence[Column] = (
    ("Coupon", attrgetter("code")),
    ("Kind", attrgetter("kind")),
    ("Value", attrgetter("value")),
    ("Currency", attrgetter("currency")),
    ("Duration", attrgetter("duration")),
    ("Periods", attrgetter("periods")),
    ("Periods of", attrgetter("per")),
    ("Only prices", lambda coupon: ", ".join(coupon.prices)),
    ("Only plans", lambda coupon: ", ".join(coupon.plans)),
    ("Created (UTC)", attrgetter("created_at")),
)


@admin.register(Plan)
class PlanAdmin(CreatableAdmin):
    """One row per version of a plan."""

    create_view = plan_forms.create_view
    list_display = ("code", "version", "name", "currency", "interval", "created")
    list_filter = (text("currency"), text("code", title="plan"))
    search_fields = ("code__startswith", "name__named")
    search_help_text = "Beginning of a plan's code or name"
    csv_columns = PLAN_CSV
    starts = "A plan says what you sell: its prices, and how often it is billed."
    actions_detail = ("new_version",)
    change_form_outer_before_template = "admin/ledger/kit/sentences.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = ((None, {"fields": (("code", "version", "created"),)}),)
    readonly_fields = ("interval", "created")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Newest first; the versions of a plan by their index."""
        values = cl.values()
        rows = cl.queryset.filter(code=values["code"]) if "code" in values else cl.queryset
        fits = Q(currency=values["currency"].upper()) if "currency" in values else Q()
        return Wanted(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The plan in sentences, among its versions."""
        context = {**(extra_context or {}), "subtitle": ""}
        plan = self.get_object(request, unquote(object_id))
        if plan is not None:
            context |= {
                "title": f"{plan.name} ({plan})",
                "sentences": plan_sentences(terms_of(plan.pk)),
                "parts": [("Versions", _versions_table(plan))],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def has_new_version_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_add_permission(request)

    @action(description="New version", icon="add", permissions=["new_version"], url_path="new-version")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create the next version of the plan, beginning with this one."""
        plan = self.get_object(request, unquote(object_id))
        if plan is None:
            raise Http404
        return plan_forms.version_view(self, request, plan)

    @display(description="Billed every")
    def interval(self, row: Plan) -> str:
        return every(interval_of(row))

    @display(description="Created")
    def created(self, row: Plan) -> SafeString | str:
        return timestamp(row.created_at)


def _versions_table(plan: Plan) -> dict[str, Any]:
    versions = Plan.objects.filter(code=plan.code).order_by("-version")[:VERSIONS_SHOWN]
    return table(
        ["Version", "Name", "Created"],
        [(row_link(Plan, row.pk, f"v{row.version}"), row.name, timestamp(row.created_at)) for row in versions],
    )


@admin.register(Coupon)
class CouponAdmin(CreatableAdmin):
    """Discounts for customers."""

    create_view = coupon_forms.create_view
    list_display = ("code", "worth_cell", "created")
    list_filter = (choice("kind", ["amount", "percentage"]), text("currency"))
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a coupon's code"
    csv_columns = COUPON_CSV
    starts = "A coupon is a discount: create one, then give it to customers on their pages."
    change_form_outer_before_template = "admin/ledger/kit/sentences.html"
    fieldsets = ((None, {"fields": (("code", "worth_cell", "created"),)}),)
    readonly_fields = ("worth_cell", "created")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Newest first."""
        values = cl.values()
        fits = Q(kind=values["kind"]) if "kind" in values else Q()
        fits &= Q(currency=values["currency"].upper()) if "currency" in values else Q()
        return Wanted(rows=cl.queryset, fits=fits).page(cursor, most=cl.page_rows)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The coupon in a sentence."""
        context = {**(extra_context or {}), "subtitle": ""}
        coupon = self.get_object(request, unquote(object_id))
        if coupon is not None:
            context |= {"title": f"Coupon {coupon.code}", "sentences": [f"{coupon.code}: {coupon_words(coupon)}."]}
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Worth")
    def worth_cell(self, row: Coupon) -> str:
        return coupon_words(row)

    @display(description="Created")
    def created(self, row: Coupon) -> SafeString | str:
        return timestamp(row.created_at)
