"""Pages of plans with their prices, and of coupons. Both never change, so documents can refer to them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.http import urlencode

from billing.admin import plan_moves, price_trials
from billing.admin.order_forms import coupons as coupon_forms
from billing.admin.order_forms import plans as plan_forms
from billing.admin.prose import coupon_words, every, plan_sentences
from billing.models import Coupon, Plan
from billing.orders.plans import terms_of
from billing.permissions import ADD_AMENDMENT, ADD_PLAN, VIEW_INVOICE
from billing.rating.periods import Interval, IntervalUnit
from billing.reads.catalogue import newest_of
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, ListOrder, order_of
from ledger.staff.kit.cells import contract_day, row_link
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, guarded, operation

VERSIONS_SHOWN = 50
ON_SALE, RETIRED, EARLIER = "on sale", "retired", "earlier version"
ON_SALE_FIRST = ListOrder(("on_sale", "id"))


def interval_of(plan: Plan) -> Interval:
    """Return how long a period of the plan is."""
    return Interval(IntervalUnit(plan.interval_unit), plan.interval_count)


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    """One row per version of a plan."""

    create_view = plan_forms.create_view
    plan = Column("Plan", "code")
    interval = Column("Billed every", lambda row: every(interval_of(row)))
    least = Column("At least", "minimum")
    most = Column("At most", "maximum")
    terms = Column("Terms", lambda row: " ".join(plan_sentences(terms_of(row.pk))))
    created = columns.instant("Created", "created_at")

    created_day = Column("Created", lambda row: contract_day(row.created_at, timezone.get_current_timezone_name()), ordering="id")
    sale = Column("Sale", "sale", colours={ON_SALE: "success", RETIRED: "warning", EARLIER: "default"})

    list_display = ("name", "code", "version", "sale", "currency", "interval", "created_day")
    sortable_by = ("code", "created_day")
    list_filter = (choice("sale", [ON_SALE, RETIRED]), text("currency"), text("code", title="plan"))
    search_fields = ("code__startswith", "name__named")
    search_help_text = "Beginning of a plan's ref or name"
    csv_columns = ("plan", "version", "name", "currency", "interval", "least", "most", "sale", "terms", "created")
    starts = "A plan is what you sell: prices and a billing interval."
    actions_detail = ("new_version", "move", "try_price", "copy", "retire", "sell")
    fields = (("code", "version", "sale"), "created")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; the versions of a plan by their index."""
        values = cl.values()
        rows = cl.queryset.filter(code=values["code"]) if "code" in values else cl.queryset
        fits = Q(currency=values["currency"].upper()) if "currency" in values else Q()
        if "sale" in values:
            fits &= Q(pk__in=newest_of(Plan).values("pk"), on_sale=values["sale"] == ON_SALE)
        return FilteredRows(rows=rows, fits=fits, order=order_of(cl) or ON_SALE_FIRST).page(cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """With whether each version is the one that orders take, by one query."""
        newest = set(newest_of(Plan, code__in={row.code for row in rows}).values_list("pk", flat=True)) if rows else set()
        for row in rows:
            row.sale = EARLIER if row.pk not in newest else ON_SALE if row.on_sale else RETIRED

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide what the plan is already: retired, or on sale."""
        plan = self.get_object(request, unquote(object_id))
        newest = None if plan is None else Plan.objects.filter(code=plan.code).order_by("-version").first()
        return [] if newest is None else ["sell" if newest.on_sale else "retire"]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The plan in sentences, among its versions."""
        return {
            "title": f"{row.name} ({row})",
            "sentences": plan_sentences(terms_of(row.pk)),
            "parts": [("Versions", _versions_table(row)), ("Moves of subscriptions", plan_moves.moves_table(row))],
        }

    @operation("New version", icon="add", permission=ADD_PLAN, url_path="new-version")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create the next version of the plan, filled in with this one."""
        return plan_forms.version_view(self, request, self.row_of(request, object_id))

    @operation("Move subscriptions", icon="move_up", permission=ADD_AMENDMENT, url_path="move")
    def move(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Move subscriptions from earlier versions to the newest one."""
        return plan_moves.move_view(self, request, self.row_of(request, object_id))

    @operation("Try another price", icon="calculate", permission=VIEW_INVOICE, url_path="try-price")
    def try_price(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask what another usage price would have brought."""
        plan = self.row_of(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:billing_price_trial')}?{urlencode({'plan': plan.code})}")

    @operation("Copy", icon="content_copy", permission=ADD_PLAN, url_path="copy")
    def copy(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create another plan, filled in with this one."""
        return plan_forms.copy_view(self, request, self.row_of(request, object_id))

    @operation("Retire", icon="inventory_2", permission=ADD_PLAN, url_path="retire")
    def retire(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the plan off sale."""
        return plan_forms.sale_view(self, request, self.row_of(request, object_id), on_sale=False)

    @operation("Put on sale", icon="storefront", permission=ADD_PLAN, url_path="sell")
    def sell(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put the plan on sale again."""
        return plan_forms.sale_view(self, request, self.row_of(request, object_id), on_sale=True)

    def examples(self, request: HttpRequest) -> HttpResponse:
        """Return what the prices in the form cost."""
        return plan_forms.examples_view(self, request)

    def get_urls(self) -> list[URLPattern]:
        """Return the pages, with that of the form's examples."""
        return [
            guarded(self, "price-trial/", partial(price_trials.page, self), name="billing_price_trial", permission=VIEW_INVOICE),
            guarded(self, "examples/", self.examples, name="billing_plan_examples", permission=ADD_PLAN),
            *super().get_urls(),
        ]


def _versions_table(plan: Plan) -> dict[str, Any]:
    versions = Plan.objects.filter(code=plan.code).order_by("-version")[:VERSIONS_SHOWN]
    return table_of(
        versions, ("Version", lambda row: row_link(Plan, row.pk, f"v{row.version}")), ("Name", "name"), PlanAdmin.created
    )


@admin.register(Coupon)
class CouponAdmin(ReadOnlyAdmin):
    """Discounts for customers."""

    create_view = coupon_forms.create_view
    coupon = Column("Coupon", "code")
    worth_cell = Column("Worth", coupon_words)
    units = Column("Periods of", "per")
    only_prices = Column("Only prices", lambda row: ", ".join(row.prices))
    only_plans = Column("Only plans", lambda row: ", ".join(row.plans))
    created = columns.instant("Created", "created_at")

    list_display = ("code", "worth_cell", "created")
    list_filter = (choice("kind", ["amount", "percentage"]), text("currency"))
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a coupon's ref"
    csv_columns = (
        "coupon", "kind", "value", "currency", "duration", "periods", "units", "only_prices", "only_plans", "created",
    )  # fmt: skip
    starts = "A coupon is a discount: create one, then give it to customers on their pages."
    fields = (("code", "worth_cell", "created"),)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Newest first."""
        values = cl.values()
        fits = Q(kind=values["kind"]) if "kind" in values else Q()
        fits &= Q(currency=values["currency"].upper()) if "currency" in values else Q()
        return FilteredRows(rows=cl.queryset, fits=fits).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The coupon in a sentence."""
        return {"title": f"Coupon {row.code}", "sentences": [f"{row.code}: {coupon_words(row)}."]}
