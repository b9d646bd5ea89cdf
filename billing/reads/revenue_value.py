"""What a subscription brings a month: its recurring fees, less the coupons that last. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.rating.money import from_minor, to_minor
from billing.rating.periods import Interval, Schedule, months_of
from billing.rating.totals import CouponPer, CouponTerms, Duration


@dataclass(frozen=True, slots=True)
class Fee:
    """A recurring price at its quantity; `monthly` is exact, in major units a month."""

    price_key: str
    plan: str
    monthly: Fraction


@dataclass(frozen=True, slots=True)
class HeldCoupon:
    """A coupon that a customer has, for all subscriptions or for one.

    Args:
        subscription_id: the only subscription that uses it; None: each of the customer's.
        terms: its amount is per period of the subscription.
        currency: the only one in which it applies; empty: each.
        periods, per: of a recurring coupon: how many periods it lasts, and whose.
    """

    customer_id: int
    subscription_id: int | None
    terms: CouponTerms
    currency: str
    periods: int | None
    per: str
    given_at: datetime
    taken_off_at: datetime | None

    @property
    def is_for_one_subscription(self) -> bool:
        """Whether only the customer's oldest charged subscription gets it: a recurring amount per period of the customer."""
        is_amount = self.terms.amount_minor is not None
        return self.subscription_id is None and is_amount and self.per == CouponPer.CUSTOMER

    def lasts(self, charged_from: datetime, zone: ZoneInfo, interval: Interval) -> tuple[datetime, datetime | None]:
        """Return from when until when it lowers what a subscription brings; None: without an end.

        Args:
            charged_from: the start of the subscription, or the end of its trial.
            interval: of its plan.
        """
        since, ends = self.given_at, [self.taken_off_at]
        if self.terms.duration == Duration.RECURRING:
            since = self.given_at if self.per == CouponPer.CUSTOMER else max(self.given_at, charged_from)
            ends.append(_boundary(Schedule.anchored_at(since, zone, interval), self.periods or 0))
        return since, min((end for end in ends if end is not None), default=None)


def _boundary(schedule: Schedule, number: int) -> datetime | None:
    """Return the end of that many periods; None if the calendar has no such day."""
    try:
        return schedule.boundary(number)
    except OverflowError:
        return None


def monthly_minor_of(fees: Sequence[Fee], coupons: Iterable[CouponTerms], interval: Interval, currency: str) -> int:
    """Return what the fees bring a month, in minor units, rounded once; coupons apply in the order of invoices.

    Args:
        interval: the period of their plan: an amount is taken off once in each.
    """
    left = [fee.monthly for fee in fees]
    for coupon in sorted(coupons, key=lambda one: one.rank):
        covered = [place for place, fee in enumerate(fees) if coupon.is_for(fee.price_key, fee.plan)]
        whole = sum((left[place] for place in covered), Fraction(0))
        if whole > 0:
            kept = _kept_part(coupon, whole, interval, currency)
            for place in covered:
                left[place] *= kept
    return to_minor(sum(left, Fraction(0)), currency)


def _kept_part(coupon: CouponTerms, whole: Fraction, interval: Interval, currency: str) -> Fraction:
    if coupon.percent is not None:
        return 1 - Fraction(coupon.percent) / 100
    monthly = from_minor(coupon.amount_minor or 0, currency) / months_of(interval)
    return max(Fraction(0), 1 - monthly / whole)
