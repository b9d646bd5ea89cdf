"""A subscription with its customer and its cursor, and the times, prices and quantities of its items."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from math import floor
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import JSONField

from billing.documents.invoice_locks import invoice_key
from billing.errors import NotFound
from billing.generator.state.allowance_times import AllowanceChange, AllowanceSpan, purpose_text
from billing.generator.state.open_claims import OpenClaim
from billing.generator.state.spans import BoundedSpan, BoundTerms, ItemSpan
from billing.models import Customer
from billing.orders import plans
from billing.orders.tax_policies import BUYER, buyer_from, policy_from
from billing.orders.vat_lookups import NEWEST_SQL
from billing.rating.periods import Interval, Schedule, first_charged_instant, months_of
from billing.rating.prices.price import PriceKind, Proration
from billing.rating.proration import MICROSECOND
from billing.rating.tax_rules import TaxPolicy
from ledger.database.locks import Lock
from ledger.database.statements import Loader, Statement, boolean, decimal, instant, integer, parameter


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription, its customer and its cursor."""

    id: int
    ref: str
    customer_id: int
    active_from: datetime
    anchor_at: datetime
    time_zone: str
    ordered_end: datetime | None
    """The end that was ordered last; None: it has none."""
    customer_ref: str
    buyer: dict[str, Any]
    policy: TaxPolicy
    terms_days: int
    customer_time_zone: str
    currency: str
    holder_id: str
    credit_type: str
    credit_unit_value: Decimal | None
    amendments: int
    charges: int
    recurring_amendments_seen: int | None
    usage_amendments_seen: int | None
    recurring_due_at: datetime | None
    usage_due_at: datetime | None
    charges_seen: int | None
    claims_from: datetime | None
    usage_seen_until: datetime | None
    read_at: datetime
    first_unseen_amendment_at: datetime | None
    suspended_reason: str | None
    has_coupons: bool
    has_notes: bool
    has_credit: bool
    grace_days: int
    hold_days: int
    is_consolidated: bool
    has_drafts_in_grace: bool
    includes_tax: bool
    """The amounts of its plans include tax: of all of them, or of none."""
    activation: str | None
    """The state of its activation; None: its start does not wait for a payment."""
    first_invoice: int | None
    must_be_paid_by: datetime | None


def _column_of_buyer(name: str) -> tuple[str, Loader]:
    is_json = isinstance(Customer._meta.get_field(name), JSONField)
    return (f"c.{name}::text", json.loads) if is_json else (f"c.{name}", bytes.decode)


SUBSCRIPTION_COLUMNS: Final[dict[str, tuple[str, Loader]]] = {
    "id": ("s.id", integer),
    "ref": ("s.ref", bytes.decode),
    "customer_id": ("s.customer_id", integer),
    "started_at": ("s.started_at", instant),
    "trial_end": ("s.trial_end", instant),
    "anchor_at": ("s.anchor_at", instant),
    "time_zone": ("s.time_zone", bytes.decode),
    "ordered_end": ("""(SELECT (a.change ->> 'ends_at')::timestamptz FROM billing_amendment AS a
         WHERE a.subscription_id = s.id AND a.change -> 'ends_at' IS NOT NULL ORDER BY a.sequence DESC LIMIT 1)""", instant),
    "customer_ref": ("c.ref", bytes.decode),
    **{name: _column_of_buyer(name) for name in BUYER},
    "terms_days": ("c.terms_days", integer),
    "customer_time_zone": ("c.time_zone", bytes.decode),
    "currency": ("c.currency", bytes.decode),
    "holder_id": ("c.holder_id", bytes.decode),
    "credit_type": ("c.credit_type", bytes.decode),
    "credit_unit_value": ("c.credit_unit_value::text", decimal),
    "grace_days": ("c.grace_days", integer),
    "hold_days": ("coalesce(s.hold_days, c.hold_days)", integer),
    "is_consolidated": ("coalesce(s.consolidated_invoicing, c.consolidated_invoicing)", boolean),
    "amendments": (
        "coalesce((SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id), 0)", integer,
    ),
    "charges": ("coalesce((SELECT max(o.sequence) FROM billing_charge AS o WHERE o.subscription_id = s.id), 0)", integer),
    "recurring_amendments_seen": ("cursor.recurring_amendments_seen", integer),
    "usage_amendments_seen": ("cursor.usage_amendments_seen", integer),
    "recurring_due_at": ("cursor.recurring_due_at", instant),
    "usage_due_at": ("cursor.usage_due_at", instant),
    "charges_seen": ("cursor.charges_seen", integer),
    # A hint that reaches beyond what is billed would hide unbilled time: then the run looks at everything.
    "claims_from": ("""CASE WHEN cursor.claims_from < (
            SELECT max(c.ends_at) FROM billing_claim AS c WHERE c.subscription_id = s.id AND c.released_at IS NULL
        ) THEN cursor.claims_from END""", instant),
    "usage_seen_until": ("cursor.usage_seen_until", instant),
    "read_at": ("clock_timestamp()", instant),
    "first_unseen_amendment_at": ("""(SELECT min(a.effective_at) FROM billing_amendment AS a
         WHERE a.subscription_id = s.id
            AND a.sequence > least(coalesce(cursor.recurring_amendments_seen, 0), coalesce(cursor.usage_amendments_seen, 0)))""",
        instant),
    "suspended_reason": ("""(SELECT b.reason FROM billing_suspendedbilling AS b
         WHERE b.subscription_id = s.id AND b.resumed_at IS NULL)""", bytes.decode),
    "has_coupons": ("""EXISTS (SELECT FROM billing_customercoupon AS cc
            WHERE cc.customer_id = s.customer_id AND (cc.subscription_id IS NULL OR cc.subscription_id = s.id))""", boolean),
    "has_notes": ("""EXISTS (SELECT FROM billing_creditnote AS n WHERE n.subscription_id = s.id AND n.released_at IS NULL)
            OR EXISTS (SELECT FROM billing_invoicedsubscription AS b JOIN billing_creditnote AS n ON n.invoice_id = b.invoice_id
                WHERE b.subscription_id = s.id AND n.released_at IS NULL)""", boolean),
    "has_credit": ("""EXISTS (SELECT FROM billing_creditnote AS n
            WHERE n.customer_id = s.customer_id AND n.left_minor > 0 AND n.released_at IS NULL)""", boolean),
    "has_drafts_in_grace": ("""EXISTS (SELECT FROM billing_invoice AS i
            WHERE i.subscription_id = s.id AND i.state = 'draft' AND i.grace_ends_at IS NOT NULL)""", boolean),
    "includes_tax": ("""(SELECT p.tax_behavior = 'inclusive' FROM billing_amendment AS a
         JOIN billing_plan AS p ON p.id = (a.change ->> 'plan')::bigint
         WHERE a.subscription_id = s.id AND a.sequence = 1)""", boolean),
    "activation": ("activation.state", bytes.decode),
    "first_invoice": ("activation.invoice_id", integer),
    "must_be_paid_by": ("activation.expires_at", instant),
    # Read in one go: the details may have a logo, which each access would read again.
    "seller": ("""(SELECT (SELECT to_json(known)::text FROM jsonb_to_record(v.details) AS known(
            tax_rules text, country text, city text, postal_code text, line1 text, line2 text, vat_id text,
            needs_confirmed_vat_id boolean))
         FROM billing_seller AS v WHERE v.ref = c.seller ORDER BY v.id DESC LIMIT 1)""", json.loads),
    "vat_lookup": (NEWEST_SQL, json.loads),
}  # fmt: skip
"""What is read of a subscription, each with its expression in SQL and its loader: fields of SubscriptionState, and the sources of
other fields."""

SUBSCRIPTION_SQL: Final = f"""
    SELECT {", ".join(f"{expression} AS {name}" for name, (expression, _) in SUBSCRIPTION_COLUMNS.items())}
    FROM billing_subscription AS s
    JOIN billing_customer AS c ON c.id = s.customer_id
    LEFT JOIN billing_activation AS activation ON activation.subscription_id = s.id
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE s.ref = %s
"""
SUBSCRIPTION = Statement(
    "subscription_to_bill", SUBSCRIPTION_SQL, [loader for _, loader in SUBSCRIPTION_COLUMNS.values()],
    row=lambda values: dict(zip(SUBSCRIPTION_COLUMNS, values, strict=True)),
)  # fmt: skip


def read_subscription(lock: Lock, ref: str) -> SubscriptionState:
    """Return the subscription and its customer in their current state.

    Raises:
        NotFound: the subscription does not exist.
    """
    lock.ensure_held(invoice_key(ref))
    fields = SUBSCRIPTION.execute([parameter(ref)])
    if fields is None:
        raise NotFound(resource="subscription", ref=ref)
    buyer = buyer_from({name: fields.pop(name) for name in BUYER}, fields.pop("vat_lookup"))
    return SubscriptionState(
        active_from=first_charged_instant(fields.pop("started_at"), fields.pop("trial_end")),
        buyer=buyer,
        policy=policy_from(fields.pop("seller") or {}, buyer, fields["customer_time_zone"]),
        **fields,
    )


# Its items ------------------------------------------------------------------------------------------

VERSIONS_SQL = """
    SELECT v.item_id, v.plan_id, v.price_id, v.quantity::text, v.starts_at, v.ends_at, v.is_termination,
        v.skips_unused, v.anchor_at, v.allowance_change
    FROM billing_itemversion AS v
    WHERE v.subscription_id = %s AND v.superseded_at IS NULL
    ORDER BY v.item_id, v.starts_at
"""


class VersionRow(NamedTuple):
    """A row of VERSIONS."""

    item_id: int
    plan_id: int
    price_id: int | None
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None
    is_termination: bool
    skips_unused: bool
    anchor_at: datetime | None
    allowance_change: str


VERSIONS = Statement(
    "versions_to_bill",
    VERSIONS_SQL,
    [integer, integer, integer, decimal, instant, instant, boolean, boolean, instant, bytes.decode],
    row=VersionRow._make,
)


@dataclass(frozen=True, slots=True)
class BillableItems:
    """The spans in which items counted, recurring and usage, by item; and those of the subscription as a whole."""

    recurring: Mapping[int, list[ItemSpan]]
    usage: Mapping[int, list[ItemSpan]]
    bounded: list[BoundedSpan]
    allowances: list[AllowanceSpan]
    versions: list[VersionRow]
    """All of them, as they are stored."""

    def all_of(self, kinds: set[PriceKind]) -> list[ItemSpan]:
        """Return the spans of these kinds."""
        chosen: list[ItemSpan] = []
        if PriceKind.RECURRING in kinds:
            chosen += [span for spans in self.recurring.values() for span in spans]
        if PriceKind.USAGE in kinds:
            chosen += [span for spans in self.usage.values() for span in spans]
        return chosen


def read_versions(subscription_id: int) -> list[VersionRow]:
    """Return the versions of a subscription's items that hold."""
    rows: list[VersionRow] = VERSIONS.rows([parameter(subscription_id)])
    return rows


def read_items(lock: Lock, subscription: SubscriptionState) -> BillableItems:
    """Return the spans of all items. One statement reads them, so the run sees an amendment in whole or not at all."""
    lock.ensure_held(invoice_key(subscription.ref))
    rows = read_versions(subscription.id)
    items = BillableItems({}, {}, [], [], rows)
    earlier: dict[int, list[tuple[Schedule, datetime | None]]] = {}
    for row, following in zip_longest(rows, rows[1:]):
        item_id, _, price_id, quantity, starts_at, ends_at, terminates, skips_unused, anchor_at, _ = row
        start = max(starts_at, subscription.active_from)
        if price_id is None:
            items.allowances.extend(_allowances(subscription, row, rows))
        if ends_at is not None and ends_at <= start:
            continue
        if price_id is None:
            items.bounded.extend(_bounded(subscription, row, start))
            continue
        terms, price = plans.price_of(price_id)
        schedule = schedule_of(subscription, terms.interval_of(price), anchor_at)
        if skips_unused and ends_at is not None and price.is_due_at_start():
            # The period in which it ends stays charged; another version of the item may begin before that period is over.
            ends_at = schedule.period_at(ends_at - MICROSECOND).end
            if following is not None and following.item_id == item_id:
                ends_at = min(ends_at, following.starts_at)
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
            plan_schedule=schedule_of(subscription, terms.interval, anchor_at),
            quantity=quantity,
            start=start,
            end=ends_at,
            terminates=terminates,
            continues=continues,
            list_price=plans.list_price_of(price_id),
        )
        spans = items.recurring if price.kind == PriceKind.RECURRING else items.usage
        spans.setdefault(item_id, []).append(span)  # type: ignore[attr-defined]
    return items


def _continues(schedule: Schedule, start: datetime, earlier: Iterable[tuple[Schedule, datetime | None]]) -> bool:
    """Return whether the item counted earlier in the same full period: before a change, or before a pause."""
    ends = [end for before, end in earlier if before == schedule]
    return bool(ends) and any(end is None or end > schedule.period_at(start).start for end in ends)


def _allowances(subscription: SubscriptionState, version: VersionRow, rows: Iterable[VersionRow]) -> Iterator[AllowanceSpan]:
    """Return the times of the subscription on a plan that grants credits, if its customer has a holder.

    Args:
        version: of the subscription as a whole.
        rows: all versions; an allowance per unit has a span for each quantity.
    """
    terms = plans.terms_of(version.plan_id)
    allowance = terms.allowance
    if allowance is None or not subscription.holder_id:
        return
    start = version.starts_at if allowance["in_trial"] else max(version.starts_at, subscription.active_from)
    paid = [
        terms.interval_of(price)
        for _, price in terms.prices
        if price.credits is not None and price.credits.credit_type == allowance["credit_type"] and not allowance["applies_to"]
    ]
    longest = max(paid, key=months_of, default=None)
    interval = Interval(**allowance["interval"]) if allowance["interval"] else terms.interval
    schedule = schedule_of(subscription, interval, version.anchor_at)
    end = version.ends_at
    if version.skips_unused and end is not None:
        # What stays charged for the rest of the periods is granted for it: fees that are due at the start.
        paid_ahead = [
            terms.interval_of(price) for _, price in terms.prices if price.is_due_at_start() and price.kind == PriceKind.RECURRING
        ]
        last = [schedule_of(subscription, each, version.anchor_at).period_at(end - MICROSECOND).end for each in paid_ahead]
        end = max([end, *last])
    fees = {(price.proration, price.bill_last_day) for _, price in terms.prices if price.kind == PriceKind.RECURRING}
    proration, bill_last_day = fees.pop() if len(fees) == 1 else (Proration.DAY, False)
    for since, until, quantity, change in _quantities(version, allowance["per_quantity_of"], rows, start, end):
        yield AllowanceSpan(
            item_id=version.item_id,
            credit_type=allowance["credit_type"],
            amount=Fraction(allowance["amount"]) * Fraction(quantity),
            rollover_cap=None if allowance["rollover_cap"] is None else floor(allowance["rollover_cap"] * quantity),
            schedule=schedule,
            start=since,
            end=until,
            usage_schedule=None if longest is None else schedule_of(subscription, longest, version.anchor_at),
            change=AllowanceChange(change),
            proration=proration,
            bill_last_day=bill_last_day,
            terminates=version.is_termination and until == end,
            applies_to=purpose_text(allowance["applies_to"]),
        )


def _quantities(
    version: VersionRow, key: str | None, rows: Iterable[VersionRow], start: datetime, end: datetime | None
) -> Iterator[tuple[datetime, datetime | None, Decimal, str]]:
    """Yield the stretches of `[start, end)` with the quantity of a price in each, above 0, and what their start changes."""
    if end is not None and end <= start:
        return
    if key is None:
        yield start, end, Decimal(1), version.allowance_change
        return
    for row in rows:
        if row.price_id is None or not row.quantity or plans.price_of(row.price_id)[1].key != key:
            continue
        # The end of a version of the price is that of the whole, which may last longer because it skips unused time.
        until = end if row.ends_at == version.ends_at else row.ends_at
        ends = [one for one in (until, end) if one is not None]
        since, until = max(start, row.starts_at), min(ends, default=None)
        if until is None or until > since:
            is_first = since <= version.starts_at
            yield since, until, row.quantity, version.allowance_change if is_first else row.allowance_change


def _bounded(subscription: SubscriptionState, version: VersionRow, start: datetime) -> Iterator[BoundedSpan]:
    """Return the times of the subscription on a plan that has a minimum or a maximum per period."""
    terms = plans.terms_of(version.plan_id)
    if terms.minimum is None and terms.maximum is None:
        return
    first = terms.prices[0][1]
    yield BoundedSpan(
        item_id=version.item_id,
        terms=BoundTerms(terms.code, terms.currency, first.tax_category, first.tax_rate, first.tax_class),
        minimum=terms.minimum,
        maximum=terms.maximum,
        schedule=schedule_of(subscription, terms.interval, version.anchor_at),
        start=start,
        end=version.ends_at,
    )


def schedule_of(subscription: SubscriptionState, interval: Interval, anchor_at: datetime | None) -> Schedule:
    """Return the periods of an interval, from the order's anchor or from a moved one."""
    return Schedule.anchored_at(anchor_at or subscription.anchor_at, ZoneInfo(subscription.time_zone), interval)


def compute_settled_until(
    subscription: SubscriptionState, items: BillableItems, late_from: datetime | None = None
) -> datetime | None:
    """Return the instant before which everything is settled. None: the run has to look at everything.

    Everything before the instant in the cursor is billed, unless an amendment that no run has seen yet reaches further back. The
    result is the start of the plans' periods that contain this instant, so that a charge that continues a period sees all of the
    period, and the bounds of a period all that was billed of it.

    Args:
        late_from: the instant from which the run bills late usage.
    """
    if subscription.claims_from is None:
        return None
    settled_until = min(filter(None, [subscription.claims_from, subscription.first_unseen_amendment_at, late_from]))
    schedules = {span.plan_schedule for span in items.all_of({PriceKind.RECURRING, PriceKind.USAGE})}
    return min([settled_until, *(schedule.period_at(settled_until).start for schedule in schedules)])


def since(spans: list[ItemSpan], claims: list[OpenClaim], settled_until: datetime | None) -> list[ItemSpan]:
    """Return the spans of one item from `settled_until` on, or from the start of the claims that reach over it."""
    if settled_until is None:
        return spans
    start = min([settled_until, *(claim.start for claim in claims)])
    return [
        replace(span, start=start, continues=True) if span.start < start else span
        for span in spans
        if span.end is None or span.end > start
    ]
