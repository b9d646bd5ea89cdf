"""The coupons that an invoice uses up: read and noted under the lock of the customer's coupons."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from billing.documents.invoices import invoice_key
from billing.generator.draft import CouponTaken
from billing.generator.load import Head
from billing.models import CouponUse
from billing.orders.coupons import coupons_key
from billing.rating.money import to_minor
from billing.rating.totals import Coupon as Discount
from billing.rating.totals import Duration
from ledger.database.locks import Lock, advisory_lock

HELD = """
    SELECT held.id, c.code, c.kind, c.value, c.currency, c.duration, c.periods, c.prices, c.plans,
        coalesce(sum(used.amount_minor), 0), coalesce(sum(used.periods), 0), count(used.id)
    FROM billing_customercoupon AS held
    JOIN billing_coupon AS c ON c.id = held.coupon_id
    LEFT JOIN billing_couponuse AS used ON used.customer_coupon_id = held.id AND used.released_at IS NULL
    WHERE held.customer_id = %s AND held.taken_off_at IS NULL AND (c.currency = '' OR c.currency = %s)
    GROUP BY held.id, c.id
    ORDER BY held.id
"""


@dataclass(frozen=True, slots=True)
class Held:
    """The coupons that a customer can use on an invoice, and which rows they are."""

    coupons: Sequence[Discount]
    periods_left: dict[str, int | None]
    ids: dict[str, int]


NOTHING_HELD = Held((), {}, {})


def wait_turn(lock: Lock, head: Head) -> None:
    """Take the lock on the customer's coupons before a holder's, where an invoice may ask for it after one."""
    lock.ensure_held(invoice_key(head.ref))
    with advisory_lock(coupons_key(head.customer_ref)):
        pass


def hold(lock: Lock, head: Head, currency: str) -> Held:
    """What the customer's coupons can still take off, read under their lock, which is kept until the transaction ends."""
    lock.ensure_held(invoice_key(head.ref))
    if not head.has_coupons:
        return NOTHING_HELD
    with advisory_lock(coupons_key(head.customer_ref)), connection.cursor() as cursor:
        cursor.execute(HELD, [head.customer_id, currency])
        rows = cursor.fetchall()
    discounts: list[Discount] = []
    periods_left: dict[str, int | None] = {}
    ids: dict[str, int] = {}
    for held_id, code, kind, value, _, duration, periods, prices, plans, taken, used_periods, uses in rows:
        amount = to_minor(value, currency) if kind == "amount" else None
        if duration == Duration.ONCE:
            if amount is not None:
                amount -= int(taken)
            if (amount is None and uses) or amount == 0:
                continue
        periods_left[code] = periods - int(used_periods) if duration == Duration.RECURRING else None
        if duration == Duration.ONCE and amount is None:
            periods_left[code] = 1
        ids[code] = held_id
        discounts.append(
            Discount(
                code=code,
                duration=Duration(duration),
                amount_minor=amount,
                percent=value if kind == "percentage" else None,
                prices=frozenset(_list(prices)),
                plans=frozenset(_list(plans)),
            )
        )
    return Held(discounts, periods_left, ids)


def record_uses(held: Held, taken: Sequence[CouponTaken], invoice_id: int, currency: str) -> None:
    """Note what each coupon took off an invoice."""
    CouponUse.objects.bulk_create(
        CouponUse(
            customer_coupon_id=held.ids[one.code],
            invoice_id=invoice_id,
            amount_minor=one.amount_minor,
            periods=one.periods,
            currency=currency,
        )
        for one in taken
    )


def _list(value: object) -> list[str]:
    return json.loads(value) if isinstance(value, str) else list(value)  # type: ignore[call-overload]
