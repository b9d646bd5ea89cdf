"""Which items of a subscription counted when, at which price and quantity."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.open_claims import OpenClaim
from billing.generator.state.spans import AllowanceSpan, BoundedSpan, BoundTerms, ItemSpan
from billing.generator.state.subscription_state import SubscriptionState
from billing.orders import plans
from billing.rating.periods import Schedule
from billing.rating.prices import PriceKind
from ledger.database.locks import Lock
from ledger.database.statements import Statement, boolean, decimal, instant, integer, parameter

VERSIONS_SQL = """
    SELECT v.item_id, v.plan_id, v.price_id, v.quantity::text, v.starts_at, v.ends_at, v.is_termination
    FROM billing_itemversion AS v
    WHERE v.subscription_id = %s AND v.superseded_at IS NULL
    ORDER BY v.item_id, v.starts_at
"""


class _VersionRow(NamedTuple):
    """A row of VERSIONS."""

    item_id: int
    plan_id: int
    price_id: int | None
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None
    is_termination: bool


VERSIONS = Statement(
    "versions_to_bill", VERSIONS_SQL, [integer, integer, integer, decimal, instant, instant, boolean], row=_VersionRow._make
)


@dataclass(frozen=True, slots=True)
class BillableItems:
    """The spans in which items counted, recurring and usage, by item; and those of the subscription as a whole."""

    recurring: Mapping[int, list[ItemSpan]]
    usage: Mapping[int, list[ItemSpan]]
    bounded: list[BoundedSpan]
    allowances: list[AllowanceSpan]

    def all_of(self, kinds: set[PriceKind]) -> list[ItemSpan]:
        """The spans of these kinds."""
        chosen: list[ItemSpan] = []
        if PriceKind.RECURRING in kinds:
            chosen += [span for spans in self.recurring.values() for span in spans]
        if PriceKind.USAGE in kinds:
            chosen += [span for spans in self.usage.values() for span in spans]
        return chosen


def read_items(lock: Lock, subscription: SubscriptionState) -> BillableItems:
    """Which item counted when. One statement reads it, so the run sees an amendment in whole or not at all."""
    lock.ensure_held(invoice_key(subscription.ref))
    rows: list[_VersionRow] = VERSIONS.rows([parameter(subscription.id)])
    items = BillableItems({}, {}, [], [])
    earlier: dict[int, list[tuple[Schedule, datetime | None]]] = {}
    for item_id, plan_id, price_id, quantity, starts_at, ends_at, terminates in rows:
        start = max(starts_at, subscription.active_from)
        if ends_at is not None and ends_at <= start:
            continue
        if price_id is None:
            items.bounded.extend(_bounded(subscription, plan_id, item_id, start, ends_at))
            items.allowances.extend(_allowances(subscription, plan_id, item_id, start, ends_at))
            continue
        terms, price = plans.price_of(price_id)
        schedule = schedule_of(subscription, price_id)
        known = earlier.setdefault(item_id, [])
        continues = _continues(schedule, start, known)
        known.append((schedule, ends_at))
        span = ItemSpan(
            item_id=item_id,
            price_id=price_id,
            price=price,
            plan_code=terms.code,
            currency=terms.currency,
            schedule=schedule,
            quantity=quantity,
            start=start,
            end=ends_at,
            terminates=terminates,
            continues=continues,
        )
        spans = items.recurring if price.kind == PriceKind.RECURRING else items.usage
        spans.setdefault(item_id, []).append(span)  # type: ignore[attr-defined]
    return items


def _continues(schedule: Schedule, start: datetime, earlier: Iterable[tuple[Schedule, datetime | None]]) -> bool:
    """True when the item counted earlier in the same full period: before a change, or before a pause."""
    ends = [end for before, end in earlier if before == schedule]
    return bool(ends) and any(end is None or end > schedule.period_at(start).start for end in ends)


def _allowances(
    subscription: SubscriptionState, plan_id: int, item_id: int, start: datetime, end: datetime | None
) -> Iterator[AllowanceSpan]:
    """The subscription on a plan that grants credits, where its customer has a holder."""
    terms = plans.terms_of(plan_id)
    if terms.allowance is None or not subscription.holder_id:
        return
    yield AllowanceSpan(
        item_id=item_id,
        credit_type=terms.allowance["credit_type"],
        amount=terms.allowance["amount"],
        rollover_cap=terms.allowance["rollover_cap"],
        schedule=Schedule.anchored_at(subscription.anchor_at, ZoneInfo(subscription.time_zone), terms.interval),
        start=start,
        end=end,
        pays_usage=any(
            price.credits is not None and price.credits.credit_type == terms.allowance["credit_type"] for _, price in terms.prices
        ),
    )


def _bounded(
    subscription: SubscriptionState, plan_id: int, item_id: int, start: datetime, end: datetime | None
) -> Iterator[BoundedSpan]:
    """The subscription on a plan that has a minimum or a maximum per period."""
    terms = plans.terms_of(plan_id)
    if terms.minimum is None and terms.maximum is None:
        return
    schedule = Schedule.anchored_at(subscription.anchor_at, ZoneInfo(subscription.time_zone), terms.interval)
    first = terms.prices[0][1]
    yield BoundedSpan(
        item_id=item_id,
        terms=BoundTerms(terms.code, terms.currency, first.tax_category, first.tax_rate),
        minimum=terms.minimum,
        maximum=terms.maximum,
        schedule=schedule,
        start=start,
        end=end,
    )


def schedule_of(subscription: SubscriptionState, price_id: int) -> Schedule:
    terms, _ = plans.price_of(price_id)
    return Schedule.anchored_at(subscription.anchor_at, ZoneInfo(subscription.time_zone), terms.interval)


def compute_settled_until(
    subscription: SubscriptionState, items: BillableItems, late_from: datetime | None = None
) -> datetime | None:
    """The instant before which everything is settled. None: the run has to look at everything.

    Everything before the instant in the cursor is billed, unless an amendment that no run has seen yet reaches further back. The
    result is the start of the periods that contain this instant, so that a charge that continues a period sees all of the period.

    Args:
        late_from: from when on the run bills late usage.
    """
    if subscription.claims_from is None:
        return None
    settled_until = min(filter(None, [subscription.claims_from, subscription.first_unseen_amendment_at, late_from]))
    schedules = {span.schedule for span in items.all_of({PriceKind.RECURRING, PriceKind.USAGE})}
    return min([settled_until, *(schedule.period_at(settled_until).start for schedule in schedules)])


def since(spans: list[ItemSpan], claims: list[OpenClaim], settled_until: datetime | None) -> list[ItemSpan]:
    """The spans of one item from `settled_until` on, or from the start of the claims that reach over it."""
    if settled_until is None:
        return spans
    start = min([settled_until, *(claim.start for claim in claims)])
    return [
        replace(span, start=start, continues=True) if span.start < start else span
        for span in spans
        if span.end is None or span.end > start
    ]
