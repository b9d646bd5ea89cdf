"""The coupons that an invoice uses: read and recorded under the lock of the customer's account."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from billing.documents.credit_rests import account_turn
from billing.documents.invoice_locks import invoice_key
from billing.generator.difference.draft import CouponDiscount, CouponPeriods
from billing.generator.state.subscription_state import SubscriptionState
from billing.models import CouponUse
from billing.rating.money import to_minor
from billing.rating.totals import CouponPer, CouponTerms, Duration
from ledger import previews
from ledger.database.locks import Lock
from ledger.database.statements import fetch_rows

_COUPONS = """
    SELECT held.id, c.code, c.kind, c.value, c.duration, c.periods, c.per, c.prices, c.plans, held.given_at,
        held.subscription_id IS NOT NULL,
        coalesce(sum(used.amount_minor), 0), count(used.id)
    FROM billing_customercoupon AS held
    JOIN billing_coupon AS c ON c.id = held.coupon_id
    LEFT JOIN {uses} AS used ON used.customer_coupon_id = held.id AND used.released_at IS NULL AND c.duration = 'once'
    WHERE held.customer_id = %s AND (held.subscription_id IS NULL OR held.subscription_id = %s) AND held.taken_off_at IS NULL
        AND (c.currency = '' OR c.currency = %s)
    GROUP BY held.id, c.id
    ORDER BY held.id
"""
COUPONS_OF_CUSTOMER = _COUPONS.format(uses="billing_couponuse")

# In a preview of several subscriptions, with the uses of the others: their rows are rolled back already.
COUPONS_IN_PREVIEW = f"""
    WITH uses AS MATERIALIZED (
        SELECT stored.*
        FROM billing_couponuse AS stored JOIN billing_customercoupon AS held ON held.id = stored.customer_coupon_id
        WHERE held.customer_id = %s AND NOT stored.id = ANY(%s)
        UNION ALL
        SELECT * FROM jsonb_populate_recordset(NULL::billing_couponuse, %s::jsonb)
    )
    {_COUPONS.format(uses="uses")}
"""
USES_OF_INVOICE = "SELECT to_jsonb(used) FROM billing_couponuse AS used WHERE invoice_id = %s AND released_at IS NULL"

# For coupons with periods: the periods that count for a subscription, and the discount in each.
USES_OF_SUBSCRIPTION = """
    SELECT used.customer_coupon_id, used.counted_from, used.counted_until, used.periods
    FROM billing_couponuse AS used
    WHERE used.customer_coupon_id = ANY(%s) AND used.released_at IS NULL AND used.subscription_id = %s
"""

# An amount per period of the customer goes to the oldest of the customer's subscriptions that is charged when a period begins.
HAS_OLDER = """
    SELECT EXISTS (
        SELECT FROM billing_itemversion AS v
        JOIN billing_subscription AS s ON s.id = v.subscription_id
        JOIN billing_plan AS p ON p.id = v.plan_id
        WHERE s.customer_id = %s AND s.id < %s AND v.superseded_at IS NULL AND v.price_id IS NULL AND p.currency = %s
            AND (p.code = ANY(%s) OR cardinality(%s::text[]) = 0)
            AND greatest(v.starts_at, s.trial_end) <= %s AND coalesce(v.ends_at, 'infinity') > %s)
"""


@dataclass(frozen=True, slots=True)
class UsableCoupons:
    """The coupons that an invoice of the customer can use, with the ids of their rows, and the periods of recurring coupons."""

    coupons: Sequence[CouponTerms]
    periods: dict[str, CouponPeriods]
    ids: dict[str, int]


class _CouponRow(NamedTuple):
    """A row of COUPONS_OF_CUSTOMER."""

    id: int
    code: str
    kind: str
    value: Decimal
    duration: str
    periods: int | None
    per: str
    prices: Any
    plans: Any
    given_at: datetime
    is_of_subscription: bool
    used_minor: Decimal
    uses: int


class _UseRow(NamedTuple):
    """A row of USES_OF_SUBSCRIPTION."""

    id: int
    counted_from: datetime | None
    counted_until: datetime | None
    periods: Any


NO_COUPONS = UsableCoupons((), {}, {})


def wait_turn(lock: Lock, subscription: SubscriptionState) -> None:
    """Take the lock of the customer's account before a holder's lock: a later step may need it, and locks have one order."""
    lock.ensure_held(invoice_key(subscription.ref))
    with account_turn(subscription.customer_ref):
        pass


def hold(lock: Lock, subscription: SubscriptionState, currency: str) -> UsableCoupons:
    """Return the coupons that the subscription can use, with their rests.

    The read is under their lock, which the transaction holds to its end.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    if not subscription.has_coupons:
        return NO_COUPONS
    with account_turn(subscription.customer_ref):
        rows = _coupons_of(subscription, currency)
    usable = [(row, discount) for row in rows if (discount := _discount(row, currency)) is not None]
    return UsableCoupons(
        [discount for _, discount in usable],
        _periods(subscription, currency, [row for row, _ in usable if row.duration == Duration.RECURRING]),
        {row.code: row.id for row, _ in usable},
    )


class _KeptUse(NamedTuple):
    """A use that a part of a preview has made or released.

    Args:
        subscription_id: the subscription of that part.
        row: the row as JSON.
        is_made: False for a released use.
    """

    subscription_id: int
    row: dict[str, Any]
    is_made: bool


def _coupons_of(subscription: SubscriptionState, currency: str) -> list[_CouponRow]:
    parameters = [subscription.customer_id, subscription.id, currency]
    shown = previews.current()
    # The rows of the subscription at hand are not rolled back yet.
    kept = [use for use in _kept_in(shown) if use.subscription_id != subscription.id] if shown is not None else []
    if not kept:
        return fetch_rows(_CouponRow, COUPONS_OF_CUSTOMER, parameters)
    made = json.dumps([use.row for use in kept if use.is_made])
    given_back = [use.row["id"] for use in kept if not use.is_made]
    return fetch_rows(_CouponRow, COUPONS_IN_PREVIEW, [subscription.customer_id, given_back, made, *parameters])


def keep_in_preview(subscription: SubscriptionState, invoice_id: int, *, is_made: bool) -> None:
    """In a preview, remember the uses of an invoice for the next subscriptions: the invoice was made, or will be deleted."""
    shown = previews.current()
    if shown is not None:
        rows = fetch_rows(_json, USES_OF_INVOICE, [invoice_id])
        shown.kept[_KeptUse] = (*_kept_in(shown), *(_KeptUse(subscription.id, row, is_made) for row in rows))


def _kept_in(shown: previews.Preview) -> tuple[_KeptUse, ...]:
    kept: tuple[_KeptUse, ...] = shown.kept.get(_KeptUse, ())
    return kept


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _periods(subscription: SubscriptionState, currency: str, rows: Sequence[_CouponRow]) -> dict[str, CouponPeriods]:
    """Return the periods of recurring coupons, as earlier invoices of the subscription have counted them."""
    if not rows:
        return {}
    uses = fetch_rows(_UseRow, USES_OF_SUBSCRIPTION, [[row.id for row in rows], subscription.id])
    return {row.code: _periods_of(subscription, currency, row, [use for use in uses if use.id == row.id]) for row in rows}


def _periods_of(subscription: SubscriptionState, currency: str, row: _CouponRow, uses: Sequence[_UseRow]) -> CouponPeriods:
    counted = [(use.counted_from, use.counted_until) for use in uses if use.counted_from and use.counted_until]
    used: Counter[datetime] = Counter()
    for start, taken, returned in (one for use in uses for one in _list(use.periods)):
        used[datetime.fromisoformat(start)] += taken - returned
    is_of_customer = row.per == CouponPer.CUSTOMER
    plans = _list(row.plans)

    def is_for(instant: datetime) -> bool:
        if not is_of_customer or row.is_of_subscription:
            return True
        parameters = [subscription.customer_id, subscription.id, currency, plans, plans, instant, instant]
        [has_older] = fetch_rows(bool, HAS_OLDER, parameters)
        return not has_older

    return CouponPeriods(
        most=row.periods or 0,
        active_from=subscription.active_from,
        given_at=row.given_at if is_of_customer else None,
        counted=min(counted, default=None),
        used_minor=used,
        is_for=is_for,
    )


def _discount(row: _CouponRow, currency: str) -> CouponTerms | None:
    """Return the rest of a coupon; None if a coupon that is used once has no rest."""
    amount = to_minor(row.value, currency) if row.kind == "amount" else None
    if row.duration == Duration.ONCE:
        if amount is not None:
            amount -= int(row.used_minor)
        if (amount is None and row.uses) or amount == 0:
            return None
    return CouponTerms(
        code=row.code,
        duration=Duration(row.duration),
        amount_minor=amount,
        percent=row.value if row.kind == "percentage" else None,
        prices=frozenset(_list(row.prices)),
        plans=frozenset(_list(row.plans)),
    )


def record_uses(
    subscription: SubscriptionState, held: UsableCoupons, taken: Sequence[CouponDiscount], invoice_id: int, currency: str
) -> None:
    """Record the discount of each coupon on an invoice."""
    CouponUse.objects.bulk_create(
        CouponUse(
            customer_coupon_id=held.ids[one.code],
            invoice_id=invoice_id,
            subscription_id=subscription.id,
            amount_minor=one.amount_minor,
            periods=[[start.isoformat(), taken, returned] for start, (taken, returned) in sorted(one.periods.items())],
            counted_from=_count_uses(held, one.code)[0],
            counted_until=_count_uses(held, one.code)[1],
            currency=currency,
        )
        for one in taken
    )
    if taken:
        keep_in_preview(subscription, invoice_id, is_made=True)


def _count_uses(held: UsableCoupons, code: str) -> tuple[datetime | None, datetime | None]:
    return (held.periods[code].counted if code in held.periods else None) or (None, None)


def _list(value: object) -> list[Any]:
    return list(_json(value))
