"""The coupons that an invoice uses: read and recorded under the lock of the customer's coupons."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from billing.documents.invoice_locks import invoice_key
from billing.generator.draft import CouponDiscount
from billing.generator.subscription_state import SubscriptionState
from billing.models import CouponUse
from billing.orders.coupons import coupons_key
from billing.rating.money import to_minor
from billing.rating.totals import CouponTerms, Duration
from ledger.database.locks import Lock, advisory_lock
from ledger.database.rows import fetch_rows

COUPONS_OF_CUSTOMER = """
    SELECT held.id, c.code, c.kind, c.value, c.duration, c.periods, c.prices, c.plans,
        coalesce(sum(used.amount_minor), 0), coalesce(sum(used.periods), 0), count(used.id)
    FROM billing_customercoupon AS held
    JOIN billing_coupon AS c ON c.id = held.coupon_id
    LEFT JOIN billing_couponuse AS used ON used.customer_coupon_id = held.id AND used.released_at IS NULL
    WHERE held.customer_id = %s AND held.taken_off_at IS NULL AND (c.currency = '' OR c.currency = %s)
    GROUP BY held.id, c.id
    ORDER BY held.id
"""


@dataclass(frozen=True, slots=True)
class UsableCoupons:
    """The coupons that a customer can use on an invoice, with the ids of their rows."""

    coupons: Sequence[CouponTerms]
    periods_left: dict[str, int | None]
    ids: dict[str, int]


class _CouponRow(NamedTuple):
    """A row of COUPONS_OF_CUSTOMER."""

    id: int
    code: str
    kind: str
    value: Decimal
    duration: str
    periods: int | None
    prices: Any
    plans: Any
    used_minor: Decimal
    used_periods: Decimal
    uses: int

    @property
    def periods_left(self) -> int | None:
        """How many more due instants it can be used for; None is no limit."""
        if self.duration == Duration.RECURRING:
            return (self.periods or 0) - int(self.used_periods)
        return 1 if self.duration == Duration.ONCE and self.kind == "percentage" else None


NO_COUPONS = UsableCoupons((), {}, {})


def wait_turn(lock: Lock, subscription: SubscriptionState) -> None:
    """Take the lock of the customer's coupons before a holder's lock. A later step may need it, and locks have one order."""
    lock.ensure_held(invoice_key(subscription.ref))
    with advisory_lock(coupons_key(subscription.customer_ref)):
        pass


def hold(lock: Lock, subscription: SubscriptionState, currency: str) -> UsableCoupons:
    """The customer's coupons with what is left of them, read under their lock, which is held until the transaction ends."""
    lock.ensure_held(invoice_key(subscription.ref))
    if not subscription.has_coupons:
        return NO_COUPONS
    with advisory_lock(coupons_key(subscription.customer_ref)):
        rows = fetch_rows(_CouponRow, COUPONS_OF_CUSTOMER, [subscription.customer_id, currency])
    usable = [(row, discount) for row in rows if (discount := _discount(row, currency)) is not None]
    return UsableCoupons(
        [discount for _, discount in usable],
        {row.code: row.periods_left for row, _ in usable},
        {row.code: row.id for row, _ in usable},
    )


def _discount(row: _CouponRow, currency: str) -> CouponTerms | None:
    """What a coupon can still take off; None when one that is used once has nothing left."""
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


def record_uses(held: UsableCoupons, taken: Sequence[CouponDiscount], invoice_id: int, currency: str) -> None:
    """Record what each coupon took off an invoice."""
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
