"""The item versions of a subscription, stored as they follow from its amendments: what it has, when, and at which price."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models.functions import Now

from billing.models import Amendment, Item, ItemVersion, Subscription
from billing.orders import plans
from billing.orders.billed_once import ensure_billed_once
from billing.orders.item_versions import (
    AllowanceChange,
    AmendmentChange,
    PricesOf,
    UnusedTime,
    VersionSpan,
    refunded,
    timeline,
)
from billing.orders.overrides import Override
from billing.rating.prices.overage import is_overage
from billing.rating.prices.price import PriceKind
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import Lock

# Amendments --------------------------------------------------------------------------------------


def changes_of(subscription_ids: Collection[int]) -> dict[int, list[AmendmentChange]]:
    """Return the amendments of subscriptions by their ids, in their order, by one query."""
    amendments: dict[int, list[Amendment]] = {}
    for row in Amendment.objects.filter(subscription_id__in=subscription_ids).order_by("subscription_id", "sequence"):
        amendments.setdefault(row.subscription_id, []).append(row)
    return {pk: counting_changes(rows) for pk, rows in amendments.items()}


def read_changes(subscription: Subscription) -> list[AmendmentChange]:
    rows = Amendment.objects.filter(subscription_id=subscription.pk).order_by("sequence")
    return counting_changes(rows)


def counting_changes(rows: Iterable[Amendment]) -> list[AmendmentChange]:
    """Return the changes of a subscription's amendments, without those that a later one withdraws."""
    known = list(rows)
    withdrawn = {sequence for row in known for sequence in row.change.get("withdraws", ())}
    return [_change_of(row) for row in known if row.sequence not in withdrawn]


def _change_of(row: Amendment) -> AmendmentChange:
    ends_at, anchor_at = row.change.get("ends_at"), row.change.get("anchor_at")
    return AmendmentChange(
        sequence=row.sequence,
        effective_at=row.counts_from,
        plan_id=row.change.get("plan"),
        quantities={key: Decimal(text) for key, text in row.change.get("quantities", {}).items()},
        sets_end="ends_at" in row.change,
        ends_at=datetime.fromisoformat(ends_at) if ends_at else None,
        unused_time=UnusedTime(row.change.get("unused_time", UnusedTime.CREDIT)),
        paused=row.change.get("paused"),
        charges_while_paused=row.change.get("charges_while_paused", False),
        anchor_at=datetime.fromisoformat(anchor_at) if anchor_at else None,
        asked_at=row.effective_at if anchor_at else None,
        sets_override="price_override" in row.change,
        override=row.change.get("price_override"),
        allowance_change=AllowanceChange(row.change.get("allowance_change", AllowanceChange.PRORATE)),
    )


def _prices_of(subscription: Subscription, *, creates: bool) -> PricesOf:
    """Return the prices that a subscription pays; `creates`: write the negotiated prices that have no row."""

    def prices_of(plan_id: int, override: Override | None) -> Mapping[str, int]:
        if override is None:
            return {price.key: price_id for price_id, price in plans.terms_of(plan_id).prices}
        return plans.negotiated_prices(plan_id, override, subscription.pk, creates=creates)

    return prices_of


def _usage_keys_of(plan_id: int) -> set[str]:
    return {price.key for _, price in plans.terms_of(plan_id).prices if price.kind == PriceKind.USAGE}


def _timeline(subscription: Subscription, *, creates: bool) -> dict[tuple[Any, ...], VersionSpan]:
    prices_of = _prices_of(subscription, creates=creates)
    spans = timeline(read_changes(subscription), prices_of, _usage_keys_of, subscription.anchor_at)
    return {_identity(span): span for span in spans}


# Versions ----------------------------------------------------------------------------------------


def store_timeline(lock: Lock, subscription: Subscription) -> None:
    """Supersede the item versions that no longer hold, and insert the new ones."""
    lock.ensure_held(SUBSCRIPTION_INTENT(subscription.ref))
    target = _timeline(subscription, creates=True)
    items = _items(subscription, {span.key for span in target.values()})
    keys = {item_id: key for key, item_id in items.items()}
    current = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None)
    known = {_identity(_span_of(row, keys[row.item_id])): row.pk for row in current}
    gone = [pk for identity, pk in known.items() if identity not in target]
    ItemVersion.objects.filter(pk__in=gone).update(superseded_at=Now())
    ItemVersion.objects.bulk_create(
        ItemVersion(
            subscription_id=subscription.pk,
            item_id=items[span.key],
            plan_id=span.plan_id,
            price_id=span.price_id,
            quantity=span.quantity,
            starts_at=span.starts_at,
            ends_at=span.ends_at,
            is_termination=span.is_termination,
            amendment=span.amendment,
            anchor_at=span.anchor_at,
            skips_unused=span.skips_unused,
            allowance_change=span.allowance_change,
        )
        for identity, span in target.items()
        if identity not in known
    )
    prices = [plans.price_of(span.price_id)[1] for span in target.values() if span.price_id is not None]
    has_budgets = any(plans.terms_of(span.plan_id).budgets for span in target.values())
    if has_budgets or any(is_overage(price) or price.is_billed_by_entries() for price in prices):
        ensure_billed_once(subscription)


def _identity(span: VersionSpan) -> tuple[Any, ...]:
    return astuple(replace(span, amendment=0))


def _span_of(row: ItemVersion, key: str) -> VersionSpan:
    return VersionSpan(
        key, row.plan_id, row.price_id, row.quantity, row.starts_at, row.ends_at, row.is_termination, row.amendment or 0,
        row.anchor_at, row.skips_unused, AllowanceChange(row.allowance_change),
    )  # fmt: skip


def _items(subscription: Subscription, keys: set[str]) -> dict[str, int]:
    """Return the ids of the items by key. A new key gets a new item."""
    known: dict[str, int] = dict(Item.objects.filter(subscription_id=subscription.pk).values_list("price_key", "id"))
    new = Item.objects.bulk_create(Item(subscription_id=subscription.pk, price_key=key) for key in sorted(keys - known.keys()))
    return known | {item.price_key: item.pk for item in new}


def follows_from_amendments(subscription: Subscription) -> bool:
    """Return whether the current item versions follow from the amendments."""
    target = _timeline(subscription, creates=False).keys()
    keys = dict(Item.objects.filter(subscription_id=subscription.pk).values_list("id", "price_key"))
    current = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None)
    return target == {_identity(_span_of(row, keys.get(row.item_id, "?"))) for row in current}


def refunded_times(subscription_id: int) -> list[tuple[datetime, datetime | None]]:
    """Return the times, from an end that refunds unused time on, in which a subscription is not active."""
    rows = Amendment.objects.filter(subscription_id=subscription_id, change__has_key="ends_at").order_by("sequence")
    return refunded([_change_of(row) for row in rows])
