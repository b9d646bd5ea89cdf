"""The overage of a plan on the account of the customer's holder: the terms by which the ledger decides, and what changed.

Orders set them as soon as they have committed, and runs where they are not there yet, under the holder's lock; the ledger then
repeats them by the calendar, and reads no plan.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import floor
from typing import Any, Final

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.claims import LateClaim
from billing.generator.state.spans import ItemSpan
from billing.generator.state.subscription_state import BillableItems, SubscriptionState
from billing.orders import plans
from billing.rating.aggregation import MICROSECOND
from billing.rating.periods import instant_of
from billing.rating.prices.overage import METER_PREFIX, affordable, credit_type_of, is_overage
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import fetch_rows
from ledger.services.overage import overage_changed

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
log = logging.getLogger("billing.overage")

CLAIMS_AT: Final = """
    SELECT c.id, c.starts_at, c.measure_again
    FROM billing_claim AS c JOIN billing_price AS p ON p.id = c.price_id AND p.meter = %s
    WHERE c.subscription_id = %s AND c.released_at IS NULL AND c.kind = 2
        AND EXISTS (SELECT FROM unnest(%s::timestamptz[]) AS used (at) WHERE used.at >= c.starts_at AND used.at < c.ends_at)
"""


CREDIT_TYPES: Final = """
    SELECT DISTINCT substr(p.meter, %s)
    FROM billing_itemversion AS v JOIN billing_price AS p ON p.id = v.price_id
    WHERE v.subscription_id = %s AND starts_with(p.meter, %s)
    ORDER BY 1
"""


def overage_spans(items: BillableItems) -> list[ItemSpan]:
    """Return the times in which the subscription was on plans with overage, or will be, in order."""
    found = [span for spans in items.usage.values() for span in spans if is_overage(span.price)]
    return sorted(found, key=lambda span: span.start)


def next_overage(items: BillableItems, as_of: datetime) -> datetime | None:
    """Return when terms begin or change after `as_of`; None if they do not."""
    spans = overage_spans(items)
    starts = [span.start for span in spans if span.start > as_of]
    starts += [seats.start for span in spans for seats in _seats(items, span) if seats.start > as_of]
    return min(starts, default=None)


def _seats(items: BillableItems, overage: ItemSpan) -> list[ItemSpan]:
    """Return the times of the price whose units multiply the limit of an overage; none if nothing does."""
    terms, _ = plans.price_of(overage.price_id)
    key = (terms.overage or {})["per_quantity_of"]
    return [] if key is None else [span for spans in items.recurring.values() for span in spans if span.price.key == key]


def read_late_overage(lock: Lock, subscription: SubscriptionState, items: BillableItems) -> dict[int, LateClaim]:
    """Return the claims of overage whose entries have changed since an earlier run, by id."""
    lock.ensure_held(invoice_key(subscription.ref))
    late_claims: dict[int, LateClaim] = {}
    if not subscription.holder_id or subscription.usage_seen_until is None:
        return late_claims
    for credit_type in sorted({credit_type_of(span.price) for span in overage_spans(items)}):
        instants = overage_changed(holder_id=subscription.holder_id, credit_type=credit_type, since=subscription.usage_seen_until)
        if instants:
            values = [f"{METER_PREFIX}{credit_type}", subscription.id, instants]
            late_claims |= {claim.id: claim for claim in fetch_rows(LateClaim, CLAIMS_AT, values)}
    return late_claims


def set_overage(lock: Lock, subscription: SubscriptionState, items: BillableItems) -> None:
    """Set the terms of the plan that the subscription is on now, or end those of an earlier one, unless they are there already.

    Lock order: the caller has the subscription's lock; then the holder's. Terms of another subscription stay: a holder has one
    overage for a credit type, and orders refuse a second one.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    if not subscription.holder_id:
        return
    spans = overage_spans(items)
    # Also those of plans that an amendment has replaced from their beginning: their terms end.
    credit_types = fetch_rows(str, CREDIT_TYPES, [len(METER_PREFIX) + 1, subscription.id, METER_PREFIX])
    if not credit_types:
        return
    now = ledger.time_of(subscription.holder_id)
    with holder_lock(subscription.holder_id) as holder:
        for credit_type in credit_types:
            of_type = [span for span in spans if credit_type_of(span.price) == credit_type]
            _set(holder, subscription, credit_type, of_type, items, now)


def _set(
    holder: Lock,
    subscription: SubscriptionState,
    credit_type: str,
    spans: Sequence[ItemSpan],
    items: BillableItems,
    now: datetime,
) -> None:
    known = ledger.overage_under(holder, holder_id=subscription.holder_id, credit_type=credit_type)
    present = known if known is not None and known.at(_us(now), since=0) is not None else None
    wanted = _terms(spans, items, now)
    if present is not None and present.reference != subscription.ref:
        if wanted is not None:
            log.warning(
                "%s: %s has the overage of %s", subscription.ref, subscription.holder_id, present.reference or "an operator"
            )
        return
    named: dict[str, Any] = {
        "holder_id": subscription.holder_id,
        "credit_type": credit_type,
        "reference": subscription.ref,
        "reason": f"Plan of {subscription.ref}",
        "actor": "billing",
    }
    # Each setting follows the one before it, so the same terms can be set again later.
    before = 0 if known is None else known.setting
    if wanted is None:
        if present is not None:
            ledger.end_overage_under(holder, **named, idempotency_key=f"overage/{subscription.ref}/{credit_type}/{before}/end")
        return
    if present is not None and _as_stored(present) == _as_wanted(wanted):
        return
    digest = hashlib.sha256(json.dumps(_as_wanted(wanted)).encode()).hexdigest()[:16]
    ledger.set_overage_under(
        holder, **named, **wanted, idempotency_key=f"overage/{subscription.ref}/{credit_type}/{before}/{digest}"
    )


def _terms(spans: Sequence[ItemSpan], items: BillableItems, now: datetime) -> dict[str, Any] | None:
    """Return the terms of the ledger at an instant; None if the subscription is on no plan with overage."""
    span = next((one for one in spans if one.start <= now and (one.end is None or now < one.end)), None)
    if span is None:
        return None
    terms, _ = plans.price_of(span.price_id)
    overage = terms.overage or {}
    limit, money = overage.get("limit_credits"), overage.get("limit_minor")
    if overage["per_quantity_of"] is not None:
        units = sum(
            (one.quantity for one in _seats(items, span) if one.start <= now and (one.end is None or now < one.end)), Decimal(0)
        )
        limit, money = (None if each is None else floor(each * units) for each in (limit, money))
    if money is not None:
        limit = affordable(span.price, money, span.currency)
    schedule = span.schedule
    # Where another plan with overage follows, its terms replace these.
    follows = any(one.start == span.end for one in spans)
    return {
        "limit": limit,
        "interval": schedule.interval.unit.value,
        "interval_count": schedule.interval.count,
        "anchor_at": instant_of(schedule.anchor, schedule.zone),
        "time_zone": schedule.zone.key,
        "ends_at": None if follows else span.end,
    }


def _as_wanted(terms: dict[str, Any]) -> list[Any]:
    ends_us = None if terms["ends_at"] is None else _us(terms["ends_at"])
    names = ("limit", "interval", "interval_count")
    return [*(terms[name] for name in names), _us(terms["anchor_at"]), terms["time_zone"], ends_us]


def _as_stored(known: Any) -> list[Any]:
    return [known.limit, known.interval, known.interval_count, known.anchor_us, known.time_zone, known.ends_us]


def _us(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND
