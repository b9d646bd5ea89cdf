"""Subscriptions: what was ordered, how it was amended, what has been billed, what was used."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing.admin.cells import MORE_ROWS, by_pk, customer_link, invoice_link, list_url, money, pairs, period, plain, plan_link
from billing.admin.invoices import invoices_table
from billing.admin.moves import deletions_table
from billing.models import (
    Amendment,
    Charge,
    Claim,
    Cursor,
    Customer,
    Invoice,
    Item,
    ItemVersion,
    Parking,
    Plan,
    Price,
    Subscription,
    UsageEvent,
)
from billing.orders import suspension
from billing.rating.prepaid_units import covered_of
from ledger.admin.kit.pages import (
    PAGE_ROWS,
    Page,
    ReadOnlyAdmin,
    ReasonForm,
    UncountedList,
    WrongFilter,
    actor,
    instant_cursor,
    moment,
    mono,
    number,
    read_instant_cursor,
    said,
    table,
)
from ledger.errors import LedgerError


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    """What customers ordered. Searched by the beginning of its reference."""

    list_display = ("ref", "customer_cell", "started", "anchor", "time_zone", "trial", "next_due", "parked")
    search_fields = ("ref__startswith",)
    search_help_text = "Beginning of a subscription's reference"
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("ref", "customer_cell"), ("started", "anchor", "time_zone"), ("trial", "next_due", "parked"))}),
    )
    actions_detail = ("unpark",)
    readonly_fields = ("customer_cell", "started", "anchor", "trial", "next_due", "parked")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """With each row's customer, cursor and parking, by one query each."""
        page = super().read_page(request, cl, cursor)
        _attach(page.rows)
        return page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Subscription | None:
        """With its customer, cursor and parking."""
        row: Subscription | None = super().get_object(request, object_id, from_field)
        if row is not None:
            _attach([row])
        return row

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The subscription, and all that is about it."""
        context = {**(extra_context or {}), "subtitle": ""}
        row = self.get_object(request, unquote(object_id))
        if row is not None:
            invoices = list(Invoice.objects.filter(subscription_id=row.pk).order_by("-pk")[:MORE_ROWS])
            context |= {
                "title": f"Subscription {row.ref}",
                "parts": [
                    ("Items", _items_table(row)),
                    ("Amendments", _amendments_table(row)),
                    ("One-off charges", _charges_table(row)),
                    ("Latest invoices", invoices_table(invoices)),
                    ("Latest billed periods", _claims_table(row)),
                    ("Deleted drafts", deletions_table(row.pk)),
                ],
                "links": [
                    (reverse("admin:billing_usage", args=[row.pk]), "Usage events"),
                    (list_url(Invoice, q=row.ref), "All invoices of this subscription"),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def has_unpark_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        if not request.user.has_perm("billing.change_parking"):
            return False
        row = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and row.parking_row is not None  # type: ignore[attr-defined]

    @action(description="Unpark", icon="play_arrow", permissions=["unpark"])
    def unpark(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let the generator bill it again, with a reason."""
        row: Any = self.get_object(request, unquote(object_id))
        back = reverse("admin:billing_subscription_change", args=[row.pk])
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                suspension.unpark(ref=row.ref, actor=actor(request), reason=form.cleaned_data["reason"])
            except LedgerError as error:
                messages.error(request, said(error))
            else:
                messages.success(request, f"The next run bills {row.ref}.")
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Unpark subscription {row.ref}",
            "form": form,
            "button": "Unpark",
            "explanation": f"The generator parked the subscription: “{row.parking_row.reason}”. The next run bills it again.",
            "back": back,
        }
        status = 422 if request.method == "POST" else 200
        return TemplateResponse(request, "admin/ledger/operation.html", context, status=status)

    def get_urls(self) -> list[URLPattern]:
        """The usage events stand behind their subscription."""
        return [
            path("<int:pk>/usage/", self.admin_site.admin_view(self.usage_view), name="billing_usage"),
            *super().get_urls(),
        ]

    def usage_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show a page of one meter's events, latest first."""
        if not request.user.has_perm("billing.view_usageevent"):
            raise PermissionDenied
        subscription = Subscription.objects.filter(pk=pk).first()
        if subscription is None:
            raise Http404
        meters = _meters(subscription)
        meter = request.GET.get("meter", "").replace("\x00", "") or (meters[0] if meters else "")
        try:
            events, older = _usage_page(subscription, meter, request.GET.get("p", "").replace("\x00", ""))
        except WrongFilter as error:
            messages.error(request, str(error))
            events, older = [], None
        own = reverse("admin:billing_usage", args=[pk])
        context = {
            **self.admin_site.each_context(request),
            "title": f"Usage of {subscription.ref}",
            "tabs": [(f"{own}?{urlencode({'meter': each})}", each, each == meter) for each in meters],
            "tabs_label": "Meters",
            "rows_table": _usage_table(events),
            "first_words": "Newest",
            "first_link": f"{own}?{urlencode({'meter': meter})}",
            "next_words": "Older",
            "next_link": f"{own}?{urlencode({'meter': meter, 'p': older})}" if older else None,
            "back": reverse("admin:billing_subscription_change", args=[pk]),
            "back_words": "Subscription",
        }
        return TemplateResponse(request, "admin/billing/rows.html", context)

    @display(description="Customer")
    def customer_cell(self, row: Any) -> SafeString | str:
        customer = row.customer_row
        return customer_link(row.customer_id, customer.ref if customer else f"missing: {row.customer_id}")

    @display(description="Started (UTC)")
    def started(self, row: Subscription) -> SafeString | str:
        return moment(row.started_at)

    @display(description="Anchor (UTC)")
    def anchor(self, row: Subscription) -> SafeString | str:
        return moment(row.anchor_at)

    @display(description="Trial ends (UTC)")
    def trial(self, row: Subscription) -> SafeString | str:
        return moment(row.trial_end)

    @display(description="Next due (UTC)")
    def next_due(self, row: Any) -> SafeString | str:
        cursor = row.cursor_row
        if cursor is None:
            return "not yet computed"
        instants = [at for at in (cursor.recurring_due_at, cursor.usage_due_at) if at is not None]
        return moment(min(instants)) if instants else "nothing"

    @display(description="Parked")
    def parked(self, row: Any) -> str:
        return row.parking_row.reason if row.parking_row else ""


def _attach(rows: Any) -> None:
    """Put customer, cursor and parking beside each row: three queries for all of them."""
    pks = [row.pk for row in rows]
    customers = by_pk(Customer, [row.customer_id for row in rows])
    cursors = by_pk(Cursor, pks)
    parkings = {row.subscription_id: row for row in Parking.objects.filter(subscription_id__in=pks, unparked_at=None)}
    for row in rows:
        row.customer_row = customers.get(row.customer_id)
        row.cursor_row = cursors.get(row.pk)
        row.parking_row = parkings.get(row.pk)


# What stands below -----------------------------------------------------------------------------------


def _items_table(subscription: Subscription) -> dict[str, Any]:
    current = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None).order_by("starts_at", "pk")
    versions = list(current[:MORE_ROWS])
    items = by_pk(Item, [row.item_id for row in versions])
    plans = by_pk(Plan, [row.plan_id for row in versions])
    return table(
        ["Price", "Plan", "Quantity", "Effective (UTC)", "By amendment"],
        [
            (
                (items[row.item_id].price_key if row.item_id in items else "") or "the subscription",
                plan_link(plans[row.plan_id]) if row.plan_id in plans else f"missing: {row.plan_id}",
                plain(row.quantity),
                period(row.starts_at, row.ends_at),
                "" if row.amendment is None else row.amendment,
            )
            for row in versions
        ],
    )


def _amendments_table(subscription: Subscription) -> dict[str, Any]:
    rows = Amendment.objects.filter(subscription_id=subscription.pk).order_by("-sequence")[:MORE_ROWS]
    return table(
        ["", "Effective (UTC)", "Change", "Actor", "Recorded (UTC)"],
        [(row.sequence, moment(row.effective_at), pairs(row.change), row.actor, moment(row.recorded_at)) for row in rows],
    )


def _charges_table(subscription: Subscription) -> dict[str, Any]:
    rows = Charge.objects.filter(subscription_id=subscription.pk).order_by("-sequence")[:MORE_ROWS]
    return table(
        ["", "Description", "Amount", "Actor", "Recorded (UTC)"],
        [
            (row.sequence, row.description, money(row.amount_minor, row.currency), row.actor, moment(row.recorded_at))
            for row in rows
        ],
    )


def _claims_table(subscription: Subscription) -> dict[str, Any]:
    claims = list(Claim.objects.filter(subscription_id=subscription.pk, released_at=None).order_by("-ends_at")[:MORE_ROWS])
    items = by_pk(Item, [row.item_id for row in claims])
    return table(
        ["Period (UTC)", "Price", "Kind", "Quantity", "Credits spent", "Amount in minor units", "Invoice"],
        [
            (
                period(row.starts_at, row.ends_at),
                items[row.item_id].price_key if row.item_id in items else "",
                row.get_kind_display().lower(),
                plain(row.quantity),
                _credits_spent(row),
                number(row.amount_minor),
                invoice_link(row.invoice_id),
            )
            for row in claims
        ],
    )


def _credits_spent(claim: Claim) -> str:
    spends = covered_of(claim.basis["covered"])[1] if "covered" in claim.basis else ()
    return ", ".join(f"{spent.credits:,} {spent.credit_type}" for spent in spends)


# Usage -----------------------------------------------------------------------------------------------


def _meters(subscription: Subscription) -> list[str]:
    prices = by_pk(Price, ItemVersion.objects.filter(subscription_id=subscription.pk).values_list("price_id", flat=True))
    return sorted({price.meter for price in prices.values() if price.meter})


def _usage_page(subscription: Subscription, meter: str, cursor: str) -> tuple[list[UsageEvent], str | None]:
    """Events of one meter and the cursor of the next page: by the index on subscription, meter and time."""
    events = UsageEvent.objects.filter(subscription_id=subscription.pk, meter=meter).order_by("-occurred_at", "-idempotency_key")
    if cursor:
        at, _, key = cursor.partition("/")
        instant = read_instant_cursor(at)
        events = events.filter(occurred_at__lte=instant).exclude(occurred_at=instant, idempotency_key__gte=key)
    rows = list(events[: PAGE_ROWS + 1])
    shown = rows[:PAGE_ROWS]
    last = shown[-1] if len(rows) > PAGE_ROWS else None
    return shown, None if last is None else f"{instant_cursor(last.occurred_at)}/{last.idempotency_key}"


def _usage_table(events: list[UsageEvent]) -> dict[str, Any]:
    return table(
        ["Occurred (UTC)", "Value", "Properties", "Key", "Recorded (UTC)"],
        [
            (
                moment(event.occurred_at),
                plain(event.value),
                pairs(event.properties),
                mono(event.idempotency_key),
                moment(event.recorded_at),
            )
            for event in events
        ],
    )
