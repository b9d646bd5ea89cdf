"""The page of a subscription's usage events."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.http import urlencode

from billing.admin.cells import by_pk, pairs, plain
from billing.models import Customer, ItemVersion, Price, Subscription, UsageEvent
from billing.permissions import VIEW_USAGEEVENT
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.prices.values import BilledBy
from ledger.staff.kit import columns
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.filters import WrongFilter, instant_cursor, read_instant_cursor
from ledger.staff.kit.pages import PAGE_ROWS, ReadOnlyAdmin, guarded


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """The address of the page."""
    return guarded(model_admin, "<int:pk>/usage/", partial(_page, model_admin), name="billing_usage", permission=VIEW_USAGEEVENT)


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """Show a page of one meter's events, latest first."""
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
        **model_admin.admin_site.each_context(request),
        "title": f"Usage of {subscription.ref}",
        "tabs": [(f"{own}?{urlencode({'meter': each})}", each, each == meter) for each in meters],
        "tabs_label": "Meters",
        "rows_table": _usage_table(events),
        "first_words": "Newest",
        "first_link": f"{own}?{urlencode({'meter': meter})}",
        "next_words": "Older",
        "next_link": f"{own}?{urlencode({'meter': meter, 'p': older})}" if older else None,
        "explanation": _measured_by_entries(subscription, meter),
        "back": reverse("admin:billing_subscription_change", args=[pk]),
        "back_words": "Subscription",
    }
    return TemplateResponse(request, "admin/billing/rows.html", context)


def _prices(subscription: Subscription) -> dict[int, Price]:
    return by_pk(Price, ItemVersion.objects.filter(subscription_id=subscription.pk).values_list("price_id", flat=True))


def _measured_by_entries(subscription: Subscription, meter: str) -> str:
    """Return where the use of a meter is that no events tell, in a sentence; empty if events tell it."""
    billed = [
        price.definition["entries"] for price in _prices(subscription).values() if price.meter == meter and _is_by_entries(price)
    ]
    if not billed:
        return ""
    rates = sorted({entries["rate"] for entries in billed})
    holder = Customer.objects.values_list("holder_id", flat=True).get(pk=subscription.customer_id)
    what = f"rate {rates[0]}" if len(rates) == 1 else f"rates {', '.join(rates)}"
    holder = holder or "the customer, who has no holder,"
    return f"The spends and captures of {holder} by the {what} are this usage; events are refused."


def _is_by_entries(price: Price) -> bool:
    return bool(price.definition.get("billed_by") == BilledBy.ENTRIES)


def _meters(subscription: Subscription) -> list[str]:
    return sorted(
        {price.meter for price in _prices(subscription).values() if price.meter and not price.meter.startswith(METER_PREFIX)}
    )


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
    by_target = _read_corrections(events)
    return table_of(
        events,
        columns.instant("Occurred", "occurred_at"),
        ("Value", lambda event: plain(event.value)),
        ("Computed by", lambda event: f"v{event.meter_version}" if event.meter_version else ""),
        ("Properties", lambda event: pairs(event.properties)),
        columns.code("Key", "idempotency_key"),
        columns.instant("Recorded", "recorded_at"),
        ("Correction", lambda event: _correction(event, by_target.get(event.idempotency_key))),
    )


def _read_corrections(events: list[UsageEvent]) -> dict[str, UsageEvent]:
    """Return what corrects or cancels these events of one meter, by their keys."""
    if not events:
        return {}
    known = {"subscription_id": events[0].subscription_id, "meter": events[0].meter}
    later = UsageEvent.objects.filter(
        **known,
        occurred_at__in={event.occurred_at for event in events},
        corrects__in=[event.idempotency_key for event in events],
    )
    return {event.corrects: event for event in later if event.corrects is not None}


def _correction(event: UsageEvent, later: UsageEvent | None) -> str:
    """Return what the event corrects, or what corrects it, in words."""
    words = [f"{'corrects' if event.counts else 'cancels'} {event.corrects}"] if event.corrects else []
    if later is not None:
        words.append(f"{'corrected' if later.counts else 'cancelled'} by {later.idempotency_key}")
    return ", ".join(words)
