"""Coupons: made once, given to customers, and used up by invoices. What is left of one follows from its uses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db import connection, transaction

from billing.documents import invoice_key
from billing.errors import AlreadyExists, CouponNotApplicable
from billing.generator_state import Head
from billing.lines import CouponTaken
from billing.models import Coupon, CouponUse, CustomerCoupon
from billing.money import to_minor
from billing.totals import Coupon as Discount
from billing.totals import Duration
from ledger.errors import Invalid
from ledger.locks import Lock, advisory_lock

HELD = """
    SELECT held.id, c.code, c.kind, c.value, c.currency, c.duration, c.periods, c.prices, c.plans,
        coalesce(sum(used.amount_minor), 0), coalesce(sum(used.periods), 0), count(used.id)
    FROM billing_customercoupon AS held
    JOIN billing_coupon AS c ON c.id = held.coupon_id
    LEFT JOIN billing_couponuse AS used ON used.customer_coupon_id = held.id AND used.released_at IS NULL
    WHERE held.customer_id = %s AND (c.currency = '' OR c.currency = %s)
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


def create_coupon(
    *,
    code: str,
    kind: str,
    value: Decimal,
    currency: str = "",
    duration: str,
    periods: int | None = None,
    prices: Sequence[str] = (),
    plans: Sequence[str] = (),
) -> Coupon:
    """Write a coupon, or raise and write nothing.

    Args:
        kind: amount (then with a currency) or percentage.
        value: money in major units, or percent, above 0.
        duration: once, recurring (then with periods) or forever.

    Raises:
        AlreadyExists: there is a coupon of this code.
        Invalid: a field is missing or given too much.
    """
    _check(kind, value, currency, duration, periods)
    with transaction.atomic(), advisory_lock(f"coupon/{code}"):
        if Coupon.objects.filter(code=code).exists():
            raise AlreadyExists(resource="coupon", ref=code)
        return Coupon.objects.create(
            code=code,
            kind=kind,
            value=value,
            currency=currency,
            duration=duration,
            periods=periods,
            prices=list(prices),
            plans=list(plans),
        )


def give_coupon(*, customer_id: int, customer_ref: str, customer_currency: str, code: str) -> CustomerCoupon:
    """Give a coupon to a customer, from the next invoice on; or raise and write nothing.

    Raises:
        Invalid: there is no such coupon.
        CouponNotApplicable: it is in another currency, or the customer has it already.
    """
    coupon = Coupon.objects.filter(code=code).first()
    if coupon is None:
        raise Invalid(pointer="/coupon", rule="exists", detail=f"there is no coupon {code!r}")
    if coupon.currency and coupon.currency != customer_currency:
        raise CouponNotApplicable(coupon=code, why="its currency is not the customer's")
    with transaction.atomic(), advisory_lock(coupons_key(customer_ref)):
        if CustomerCoupon.objects.filter(customer_id=customer_id, coupon_id=coupon.pk).exists():
            raise CouponNotApplicable(coupon=code, why="the customer has it already")
        return CustomerCoupon.objects.create(customer_id=customer_id, coupon_id=coupon.pk)


def coupons_key(customer_ref: str) -> str:
    """The name of the lock under which a customer's coupons are used; taken after the subscription's."""
    return f"coupons/{customer_ref}"


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


def _check(kind: str, value: Decimal, currency: str, duration: str, periods: int | None) -> None:
    if kind == "amount" and not currency:
        raise Invalid(pointer="/currency", rule="required", detail="an amount needs its currency")
    if kind == "percentage" and currency:
        raise Invalid(pointer="/currency", rule="not-used", detail="a percentage has no currency")
    if value <= 0 or (kind == "percentage" and value > 100):
        raise Invalid(pointer="/value", rule="range", detail="must be above 0, and a percentage at most 100")
    if (duration == Duration.RECURRING) != (periods is not None):
        raise Invalid(pointer="/periods", rule="recurring-only", detail="periods go with a recurring coupon, and only with it")


def _list(value: object) -> list[str]:
    return json.loads(value) if isinstance(value, str) else list(value)  # type: ignore[call-overload]
