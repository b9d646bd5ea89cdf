"""Subscriptions in their current state: items, current period, the next due instant, and what they bring a month."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from billing.errors import NotFound
from billing.models import Amendment, Charge, Customer, Plan, Subscription
from billing.models.columns import first_of
from billing.rating.periods import Interval, IntervalUnit, Period, Schedule
from billing.reads.pages import page
from billing.reads.revenue_history import PricedItem, minor_now
from ledger import conf
from ledger.database.statements import fetch_rows
from ledger.services import time_of

STATES: Final = ("incomplete", "scheduled", "active", "paused", "ended", "expired")

# The end in an amendment holds from the amendment's effective time on, and an end in the past counts from there; of the
# amendments that hold now, the last one counts. The empty price key is the subscription as a whole: it has a version for the time
# in which it is active.
ROWS: Final = """
SELECT * FROM (
    SELECT s.id, s.ref, c.ref AS customer, c.name AS customer_name, s.started_at,
        coalesce(plan.anchor_at, s.anchor_at) AS anchor_at, s.time_zone,
        s.trial_end, coalesce(s.hold_days, c.hold_days) AS hold_days,
        coalesce(s.consolidated_invoicing, c.consolidated_invoicing) AS consolidated_invoicing, s.created_at, c.currency,
        plan.id AS plan_id, plan.code AS plan, plan.version AS plan_version,
        plan.interval_unit, plan.interval_count, plan.is_active,
        planned.ends_at,
        CASE
            WHEN activation.state = 'waiting' THEN 'incomplete'
            WHEN activation.state IN ('expired', 'canceled') THEN 'expired'
            WHEN s.started_at > %(now)s THEN 'scheduled'
            WHEN planned.ends_at <= %(now)s THEN 'ended'
            WHEN plan.is_active AND NOT coalesce(pause.is_on, false) THEN 'active'
            ELSE 'paused'
        END AS state,
        CASE
            WHEN activation.state <> 'started' THEN NULL
            WHEN cursor.subscription_id IS NULL THEN GREATEST(s.started_at, s.trial_end) + held.until
            WHEN EXISTS (
                SELECT FROM billing_amendment AS a
                WHERE a.subscription_id = s.id
                    AND a.sequence > LEAST(cursor.recurring_amendments_seen, cursor.usage_amendments_seen)
            ) OR EXISTS (
                SELECT FROM billing_charge AS o WHERE o.subscription_id = s.id AND o.sequence > cursor.charges_seen
            ) THEN %(now)s
            ELSE LEAST(cursor.recurring_due_at, cursor.usage_due_at) + held.until
        END AS due_at,
        suspension.reason AS suspended_reason, suspension.suspended_at AS suspended_at,
        activation.state AS activation_state, activation.invoice_id AS first_invoice, activation.expires_at,
        activation.settled_at
    FROM billing_subscription AS s
    JOIN billing_customer AS c ON c.id = s.customer_id
    CROSS JOIN LATERAL (SELECT make_interval(hours => 24 * coalesce(s.hold_days, c.hold_days)) AS until) AS held
    LEFT JOIN billing_activation AS activation ON activation.subscription_id = s.id
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    LEFT JOIN billing_suspendedbilling AS suspension ON suspension.subscription_id = s.id AND suspension.resumed_at IS NULL
    LEFT JOIN LATERAL (
        SELECT (a.change ->> 'ends_at')::timestamptz AS ends_at
        FROM billing_amendment AS a
        WHERE a.subscription_id = s.id AND a.change ? 'ends_at'
            AND LEAST(a.effective_at, (a.change ->> 'ends_at')::timestamptz) <= GREATEST(%(now)s, s.started_at)
        ORDER BY a.sequence DESC
        LIMIT 1
    ) AS planned ON true
    LEFT JOIN LATERAL (
        SELECT p.*, v.anchor_at,
            v.superseded_at IS NULL AND v.starts_at <= %(now)s AND (v.ends_at IS NULL OR v.ends_at > %(now)s) AS is_active
        FROM billing_itemversion AS v
        JOIN billing_item AS i ON i.id = v.item_id AND i.price_key = ''
        JOIN billing_plan AS p ON p.id = v.plan_id
        WHERE v.subscription_id = s.id
        -- One that ended at its start has only superseded versions: then what was ordered is shown.
        ORDER BY v.superseded_at IS NULL DESC, v.starts_at <= %(now)s DESC, abs(extract(epoch FROM v.starts_at - %(now)s))
        LIMIT 1
    ) AS plan ON true
    LEFT JOIN LATERAL (
        SELECT (a.change ->> 'paused')::boolean AS is_on
        FROM billing_amendment AS a
        WHERE a.subscription_id = s.id AND a.change ? 'paused' AND a.effective_at <= %(now)s
        ORDER BY a.effective_at DESC, a.sequence DESC
        LIMIT 1
    ) AS pause ON true
    WHERE (%(ref)s::text IS NULL OR s.ref = %(ref)s)
        AND (%(customer)s::text IS NULL OR c.ref = %(customer)s)
        AND (%(since)s::timestamptz IS NULL OR s.started_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR s.started_at < %(until)s)
        AND (%(before)s::bigint IS NULL OR s.id < %(before)s)
        AND (%(after)s::bigint IS NULL OR s.id > %(after)s)
        AND (%(among)s::bigint[] IS NULL OR s.id = ANY(%(among)s))
) AS found
WHERE (%(plan)s::text IS NULL OR found.plan = %(plan)s)
    AND (%(state)s::text IS NULL OR found.state = %(state)s)
    AND (%(suspended)s::boolean IS NULL OR (found.suspended_at IS NOT NULL) = %(suspended)s)
ORDER BY CASE WHEN %(after)s::bigint IS NULL THEN -id ELSE id END
LIMIT %(limit)s
"""

NOW_BY_CLOCK: Final = "COALESCE(ledger_clock(c.holder_id), %(now)s)"
"""The subscription's time where its customer's holder may have a test clock."""

ITEMS: Final = """
SELECT i.price_key, p.code AS plan, p.version AS plan_version, v.quantity, v.starts_at, v.ends_at, negotiated.definition::text
FROM billing_itemversion AS v
JOIN billing_item AS i ON i.id = v.item_id
JOIN billing_plan AS p ON p.id = v.plan_id
LEFT JOIN billing_price AS negotiated ON negotiated.id = v.price_id AND negotiated.list_price_id IS NOT NULL
WHERE v.subscription_id = %s AND v.superseded_at IS NULL AND i.price_key <> '' AND (v.ends_at IS NULL OR v.ends_at > %s)
ORDER BY v.starts_at, i.id
"""


# Of a customer with an amount per period of the customer also the other subscriptions: the oldest gets it.
RECURRING: Final = """
WITH wanted AS (
    SELECT unnest(%(ids)s::bigint[]) AS id
    UNION
    SELECT other.id
    FROM billing_subscription AS own
    JOIN billing_customercoupon AS held ON held.customer_id = own.customer_id AND held.subscription_id IS NULL
    JOIN billing_coupon AS coupon ON coupon.id = held.coupon_id AND coupon.per = 'customer' AND coupon.kind = 'amount'
    JOIN billing_subscription AS other ON other.customer_id = own.customer_id
    WHERE own.id = ANY(%(ids)s)
)
SELECT s.customer_id, v.subscription_id, v.plan_id, v.price_id, v.quantity
FROM wanted
JOIN billing_itemversion AS v ON v.subscription_id = wanted.id AND v.superseded_at IS NULL
JOIN billing_subscription AS s ON s.id = v.subscription_id
JOIN billing_customer AS c ON c.id = s.customer_id
JOIN billing_price AS p ON p.id = v.price_id AND p.kind = 'recurring'
WHERE v.starts_at <= %(now)s AND (v.ends_at IS NULL OR v.ends_at > %(now)s) AND (s.trial_end IS NULL OR s.trial_end <= %(now)s)
    AND NOT EXISTS (SELECT FROM billing_activation AS waiting WHERE waiting.subscription_id = s.id AND waiting.state <> 'started')
"""


class ActivationRow(NamedTuple):
    """The payment for which a start waits, or waited; as `Activation`."""

    state: str
    invoice_id: int | None
    expires_at: datetime
    settled_at: datetime | None


class SubscriptionRow(NamedTuple):
    """A subscription as it is at an instant."""

    id: int
    ref: str
    customer: str
    customer_name: str
    started_at: datetime
    anchor_at: datetime
    time_zone: str
    trial_end: datetime | None
    hold_days: int
    consolidated_invoicing: bool
    created_at: datetime
    currency: str
    plan_id: int
    plan: str
    plan_version: int
    interval_unit: str
    interval_count: int
    is_active: bool
    ends_at: datetime | None
    state: str
    due_at: datetime | None
    suspended_reason: str | None
    suspended_at: datetime | None
    activation_state: str | None
    first_invoice: int | None
    expires_at: datetime | None
    settled_at: datetime | None

    @property
    def activation(self) -> ActivationRow | None:
        """The payment for which its start waits, or waited."""
        if self.activation_state is None or self.expires_at is None:
            return None
        return ActivationRow(self.activation_state, self.first_invoice, self.expires_at, self.settled_at)

    def current_period(self, now: datetime) -> Period | None:
        """Return the full billing period that contains `now`, or None if nothing is charged then."""
        if not self.is_active or self.state == "incomplete":
            return None
        interval = Interval(IntervalUnit(self.interval_unit), self.interval_count)
        return Schedule.anchored_at(self.anchor_at, ZoneInfo(self.time_zone), interval).period_at(now)


class ItemRow(NamedTuple):
    """The plan and quantity at which an item counts or will count."""

    price_key: str
    plan: str
    plan_version: int
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None
    negotiated_price: dict[str, Any] | None


class SubscriptionDetail(NamedTuple):
    """One subscription with its parts, as of one instant."""

    row: SubscriptionRow
    as_of: datetime
    items: Sequence[ItemRow]
    amendments: Sequence[Amendment]


def subscriptions(
    *,
    customer: str | None = None,
    plan: str | None = None,
    state: str | None = None,
    suspended: bool | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    among: Sequence[int] | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[SubscriptionRow]:
    """Return subscriptions in their current state, the newest first, by keyset on the id.

    Args:
        plan: only those on this plan now, in any version.
        state: one of STATES.
        suspended: whether billing is suspended.
        since, until: started in `[since, until)`.
        among: only those with these ids.
        before, after: see `pages.page`.
    """
    filters = {"customer": customer, "plan": plan, "state": state, "suspended": suspended, "since": since, "until": until}
    among = None if among is None else list(among)
    rows = _rows(timezone.now(), filters | {"among": among, "before": before, "after": after}, limit)
    return rows if after is None else rows[::-1]


def subscription(ref: str) -> SubscriptionDetail:
    """Return a subscription with its current and future items and all its amendments.

    Raises:
        NotFound: it does not exist.
    """
    rows = _rows(timezone.now(), {"ref": ref}, 1)
    if not rows:
        raise NotFound(resource="subscription", ref=ref)
    now = time_of(Customer.objects.values_list("holder_id", flat=True).get(ref=rows[0].customer))
    with connection.cursor() as cursor:
        cursor.execute(ITEMS, [rows[0].id, now])
        items = [ItemRow(*row)._replace(negotiated_price=json.loads(row[-1] or "null")) for row in cursor.fetchall()]
    changes = list(Amendment.objects.filter(subscription_id=rows[0].id).order_by("sequence"))
    return SubscriptionDetail(rows[0], now, items, changes)


def _by_clocks(sql: str) -> str:
    return sql.replace("%(now)s", NOW_BY_CLOCK) if conf.TEST_CLOCKS.value else sql


def _rows(now: datetime, filters: Mapping[str, Any], limit: int) -> list[SubscriptionRow]:
    names = ("ref", "customer", "plan", "state", "suspended", "since", "until", "among", "before", "after")
    with connection.cursor() as cursor:
        cursor.execute(_by_clocks(ROWS), {name: filters.get(name) for name in names} | {"now": now, "limit": limit})
        return [SubscriptionRow(*row) for row in cursor.fetchall()]


def monthly_minor(rows: Iterable[SubscriptionRow]) -> dict[int, int]:
    """Return what each subscription brings a month: its MRR in minor units of its currency, by its id.

    That is the amount of its recurring prices for a full period at the present quantities, with their minimum and maximum and
    less the coupons that last, divided by the months of their interval; without usage, one-off charges and tax. A subscription
    that is not charged now brings 0. See docs/explanation/billing.md.
    """
    ids, now = [row.id for row in rows], timezone.now()
    found = minor_now(fetch_rows(PricedItem, _by_clocks(RECURRING), {"ids": ids, "now": now}), now=now)
    return {pk: found.get(pk, 0) for pk in ids}


@dataclass(frozen=True, slots=True)
class PlanIncome:
    """What the subscriptions of a plan, in all its versions, bring a month."""

    plan: str
    name: str
    currency: str
    minor: int
    subscriptions: int


def monthly_by_plan(*, most: int) -> tuple[list[PlanIncome], bool]:
    """Return what each plan brings a month now, the most first, and whether all subscriptions count: the newest `most` do."""
    ids, now = list(Subscription.objects.order_by("-pk").values_list("pk", flat=True)[: most + 1]), timezone.now()
    items = fetch_rows(PricedItem, _by_clocks(RECURRING), {"ids": ids[:most], "now": now})
    plan_of = {item.subscription_id: item.plan_id for item in items}
    plans = Plan.objects.in_bulk(set(plan_of.values()))
    sums: dict[tuple[str, str], PlanIncome] = {}
    for pk, minor in minor_now(items, now=now).items():
        plan = plans[plan_of[pk]]
        known = sums.get((plan.code, plan.currency))
        earlier, number = (0, 0) if known is None else (known.minor, known.subscriptions)
        sums[plan.code, plan.currency] = PlanIncome(plan.code, plan.name, plan.currency, earlier + minor, number + (minor > 0))
    return sorted(sums.values(), key=lambda one: (-one.minor, one.plan)), len(ids) <= most


def amendments(ref: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[Amendment]:
    """Return the amendments of a subscription, the newest first; the last is the order itself.

    Raises:
        NotFound: the subscription does not exist.
    """
    return page(_of(Amendment.objects.all(), ref), before=before, after=after, limit=limit)


def charges(ref: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[Charge]:
    """Return the one-off charges of a subscription, the newest first.

    Raises:
        NotFound: the subscription does not exist.
    """
    return page(_of(Charge.objects.all(), ref), before=before, after=after, limit=limit)


def _of(rows: QuerySet[Any], ref: str) -> QuerySet[Any]:
    row = first_of(Subscription.objects.filter(ref=ref).values_list("pk", flat=True), "subscription", ref)
    return rows.filter(subscription_id=row)
