"""Rates: the versions of what things cost in credits. A new price is published as a new version; none is ever changed."""

from itertools import pairwise
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from ledger import services
from ledger.admin.forms.credit_amounts import CreditAmountField, CreditAmountsForm
from ledger.admin.kit.cells import digits, mono, number, number_text, table, timestamp
from ledger.admin.kit.filters import WrongFilter, read_number, text
from ledger.admin.kit.idempotent_forms import Done, amount_field, operation_view, text_field
from ledger.admin.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList
from ledger.admin.links import rate_link, rate_url
from ledger.models import Rate, RateListing
from ledger.units import unit_of, with_units

VERSIONS_SHOWN = 100


class PublishForm(CreditAmountsForm):
    """What something costs from now on."""

    code = text_field(label="Code", required=True, most=64, help_text="The priced unit, such as gpt-4o.output.")
    credit_type = text_field(label="Credit type", required=True, most=32)
    price = CreditAmountField(label="Price", help_text="In the unit of the credit type, with its decimals.")
    per = amount_field(
        label="Per units",
        help_text="For example, 3 credits per 1000 units. The ledger rounds up to the smallest unit.",
    )
    field_order = ["code", "credit_type", "price", "per", "reason"]


def split_rate_id(key: str) -> tuple[str, str, int] | None:
    """Credit type, code and version out of a rate's key; None when it is not one."""
    parts = key.split("/")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 9 or "\x00" in key:
        return None
    return parts[0], parts[1], int(parts[2])


def find(key: str) -> RateListing | None:
    """The version of that key, found by the primary key of its table."""
    parts = split_rate_id(key)
    if parts is None:
        return None
    return RateListing.objects.filter(credit_type=parts[0], code=parts[1], version=parts[2]).first()


@admin.register(RateListing)
class RateAdmin(ReadOnlyAdmin):
    """One row per version, by credit type and code, the newest version first."""

    list_display = ("code_cell", "version_cell", "price_cell", "credit_type", "state", "published", "published_by", "why")
    list_display_links = ("code_cell",)
    list_filter = (text("credit_type", title="credit type"),)
    nearest = "Beginning"
    further = "Further"
    search_fields = ("code",)
    search_help_text = "Beginning of a code"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = (
        (None, {"fields": (("code", "version_cell", "state"), ("price_cell", "credit_type"))}),
        ("Who, why, when", {"fields": (("published", "published_by"), "published_because", "key")}),
    )
    readonly_fields = ("code_cell", "version_cell", "price_cell", "state", "published", "why", "key")
    actions_list = ("publish",)
    actions_detail = ("publish_next",)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By the primary key of the table, but the versions backwards."""
        rows = cl.queryset.order_by("credit_type", "code", "-version")
        if "credit_type" in cl.values():
            rows = rows.filter(credit_type=cl.values()["credit_type"])
        prefix = cl.query.strip().removesuffix("*")
        if prefix:
            rows = rows.filter(code__startswith=prefix)
        after = ("", "", 0)
        if cursor:
            credit_type, code, version = _read_cursor(cursor)
            after = (credit_type, code, version)
            same_rate = Q(credit_type=credit_type, code=code, version__lt=version)
            rows = rows.filter(Q(credit_type__gt=credit_type) | Q(credit_type=credit_type, code__gt=code) | same_rate)
        found: list[Any] = list(rows[: PAGE_ROWS + 1])
        shown = found[:PAGE_ROWS]
        names = [after[:2], *((row.credit_type, row.code) for row in shown)]
        for row, (before, own) in zip(shown, pairwise(names), strict=True):
            # The newest version comes first.
            row.is_current = before != own
        with_units(shown)
        return Page(rows=shown, older=shown[-1].pk if len(found) > PAGE_ROWS else None)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> RateListing | None:
        """By the primary key of the table: the view's own key has no index."""
        row = find(object_id)
        with_units([] if row is None else [row])
        return row

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The version, among the others of its rate."""
        row = find(unquote(object_id))
        context = {**(extra_context or {}), "title": "Rate", "subtitle": ""}
        if row is not None:
            context |= {"title": f"{row.code} v{row.version}", "parts": [("Versions", _versions_table(row))]}
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # What can be done ---------------------------------------------------------------------------------

    def has_publish_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("ledger.publish_rate"))

    @action(description="Publish a rate", icon="add", permissions=["publish"], url_path="publish-rate")
    def publish(self, request: HttpRequest) -> HttpResponse:
        """Give something a price, or a new one."""
        return self._publish(request, initial={"credit_type": "credits"}, back=reverse("admin:ledger_ratelisting_changelist"))

    @action(description="New price", icon="add", permissions=["publish"], url_path="new-price")
    def publish_next(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Publish the next version of this rate."""
        row = find(unquote(object_id))
        if row is None:
            raise Http404
        initial = {"code": row.code, "credit_type": row.credit_type, "price": row.price, "per": row.per}
        return self._publish(request, initial=initial, back=rate_url(row.credit_type, row.code, row.version))

    def _publish(self, request: HttpRequest, *, initial: dict[str, Any], back: str) -> HttpResponse:
        return operation_view(
            self,
            request,
            form_class=PublishForm,
            operation=_publish,
            initial=initial,
            title=f"New price of {initial['code']}" if "code" in initial else "Publish a rate",
            button="Publish",
            explanation="The new version is effective immediately. Earlier entries keep the version that priced them.",
            back=back,
        )

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Rate")
    def code_cell(self, row: RateListing) -> str:
        return row.code

    @display(description="Version")
    def version_cell(self, row: RateListing) -> str:
        return f"v{row.version}"

    @display(description="Price")
    def price_cell(self, row: RateListing) -> SafeString:
        return price_words(row)

    @display(description="State", label={"current": "success", "superseded": "default"})
    def state(self, row: Any) -> str:
        if not hasattr(row, "is_current"):
            current = services.current_rate(row.code, row.credit_type)
            row.is_current = current is not None and current.version == row.version
        return "current" if row.is_current else "superseded"

    @display(description="Published")
    def published(self, row: RateListing) -> SafeString | str:
        return timestamp(row.published_at)

    @display(description="Reason")
    def why(self, row: RateListing) -> SafeString:
        words = row.published_because if len(row.published_because) <= 40 else f"{row.published_because[:39]}…"
        return format_html('<span title="{}">{}</span>', row.published_because, words)

    @display(description="Idempotency key")
    def key(self, row: RateListing) -> SafeString | str:
        return mono(row.idempotency_key)


def price_words(row: Any) -> SafeString:
    """What it costs, as people say it."""
    units = "unit" if row.per == 1 else format_html("{} units", number(row.per))
    return format_html("{} per {}", digits(row.unit.amount(row.price)), units)


def _versions_table(row: RateListing) -> dict[str, Any]:
    versions = list(Rate.objects.filter(credit_type=row.credit_type, code=row.code).order_by("-version")[:VERSIONS_SHOWN])
    with_units(versions)
    return table(
        ["Version", "Price", "Published", "Published by", "Reason"],
        [
            (
                rate_link(each.credit_type, each.code, each.version, f"v{each.version}"),
                price_words(each),
                timestamp(each.published_at),
                each.published_by,
                each.published_because,
            )
            for each in versions
        ],
    )


def _read_cursor(text: str) -> tuple[str, str, int]:
    parts = text.split("/")
    if len(parts) != 3 or "\x00" in text:
        raise WrongFilter("The page link is not valid for this list.")
    return parts[0], parts[1], min(read_number(parts[2]), 2**31 - 1)


def _publish(**asked: Any) -> Done:
    published = services.publish_rate(**asked)
    rate = published.rate
    return Done(
        f"Version {rate.version} of {rate.code}",
        f"{unit_of(rate.credit_type).amount(rate.price)} per {number_text(rate.per)}",
        rate_url(rate.credit_type, rate.code, rate.version),
        published.replayed,
    )
