"""Coupons: created once, and given to customers. `difference.coupon_uses` of the generator computes the rest from their uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from django.db.models import QuerySet
from django.db.models.functions import Now

from billing.errors import AlreadyExists, CouponNotApplicable
from billing.models import Coupon, Customer, CustomerCoupon, ItemVersion, Plan, Price, Subscription
from billing.models.columns import first_of
from billing.orders.customers import account_key
from billing.rating.limits import MAX_COUPON_PERIODS
from billing.rating.names import MAX_NAME_CHARACTERS, Names
from billing.rating.totals import CouponPer, Duration
from billing.rating.values import Currency, Money, Ref
from ledger.database.lock_names import COUPON
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import Choice, Integer, ListOf, Text


@dataclass(frozen=True, kw_only=True)
class NewCoupon(Record):
    """A discount."""

    code: Annotated[str, Ref("Your name for the coupon.", named="ref")]
    kind: Annotated[str, Choice(("amount", "percentage"), "Whether `value` is an amount or a percentage.")]
    value: Annotated[Decimal, Money("Money in major units, or percent.")]
    currency: Annotated[str | None, Currency("The currency of an `amount`.", null=True)] = None
    duration: Annotated[str, Choice(("once", "recurring", "forever"), "How long it lasts.")]
    periods: Annotated[
        int | None, Integer("The number of periods of a `recurring` coupon.", least=1, most=MAX_COUPON_PERIODS, null=True)
    ] = None
    per: Annotated[
        str | None,
        Choice(
            CouponPer,
            "Whether a recurring coupon counts the periods of each `subscription` separately (the default), or of the "
            "`customer`.",
            null=True,
        ),
    ] = None
    name: Annotated[
        str | None,
        Text("What documents call it; by default, the ref in words.", most=MAX_NAME_CHARACTERS, least=1, null=True),
    ] = None
    names: Annotated[
        dict[str, str] | None, Names("The name in languages of documents in which it differs, by their codes.", null=True)
    ] = None
    prices: Annotated[list[str] | None, ListOf(Ref(), "The coupon applies only to these price keys.", most=100)] = None
    plans: Annotated[list[str] | None, ListOf(Ref(), "The coupon applies only to these plans.", most=100)] = None

    def check_whole(self) -> None:
        is_recurring = self.duration == Duration.RECURRING
        if self.kind == "amount" and not self.currency:
            raise Invalid(pointer="/currency", rule="required", detail="an amount needs its currency")
        if self.kind == "percentage" and self.currency:
            raise Invalid(pointer="/currency", rule="not-used", detail="a percentage has no currency")
        if self.value <= 0 or (self.kind == "percentage" and self.value > 100):
            raise Invalid(pointer="/value", rule="range", detail="must be above 0, and a percentage at most 100")
        if is_recurring != (self.periods is not None):
            detail = "enter the number of periods of a recurring coupon; no other has them"
            raise Invalid(pointer="/periods", rule="recurring-only", detail=detail)
        if self.per is not None and not is_recurring:
            raise Invalid(pointer="/per", rule="recurring-only", detail="only a recurring coupon counts periods")


@dataclass(frozen=True, kw_only=True)
class NewGivenCoupon(Record):
    """A coupon for a customer or a subscription."""

    coupon: Annotated[str, Ref("Its ref.")]


def _create(request: NewCoupon) -> Coupon:
    """Write a coupon, or raise and write nothing.

    Raises:
        AlreadyExists: a coupon has this code.
        Invalid: a field is missing or superfluous, or no plan has one of the codes or price keys.
    """
    prices, plans = request.prices or [], request.plans or []
    with locked_transaction(COUPON(request.code)):
        _ensure_known(prices, plans)
        if Coupon.objects.filter(code=request.code).exists():
            raise AlreadyExists(resource="coupon", ref=request.code)
        return Coupon.objects.create(
            code=request.code,
            name=request.name or "",
            names=request.names or {},
            kind=request.kind,
            value=request.value,
            currency=request.currency or "",
            duration=request.duration,
            periods=request.periods,
            per=(request.per or CouponPer.SUBSCRIPTION) if request.duration == Duration.RECURRING else "",
            prices=prices,
            plans=plans,
        )


create_coupon = UseCase(NewCoupon, _create)


def give_coupon(*, customer_id: int, customer_ref: str, customer_currency: str, code: str) -> CustomerCoupon:
    """Give a coupon to a customer, for all subscriptions, from the next invoice on; or raise and write nothing.

    Raises:
        Invalid: the coupon does not exist.
        CouponNotApplicable: the coupon is in another currency, or the customer or one of the subscriptions has it already.
    """
    with locked_transaction(account_key(customer_ref)):
        coupon = _coupon(code)
        if coupon.currency and coupon.currency != customer_currency:
            raise CouponNotApplicable(coupon=code, why="its currency is not the customer's")
        given = CustomerCoupon.objects.filter(customer_id=customer_id, coupon_id=coupon.pk)
        if given.filter(subscription=None).exists():
            raise CouponNotApplicable(coupon=code, why="the customer has it already")
        if given.filter(taken_off_at=None).exists():
            raise CouponNotApplicable(coupon=code, why="a subscription of the customer has it already")
        return CustomerCoupon.objects.create(customer_id=customer_id, coupon_id=coupon.pk)


def give_subscription_coupon(*, ref: str, code: str) -> CustomerCoupon:
    """Give a coupon to one subscription, from its next invoice on; or raise and write nothing.

    Raises:
        NotFound: the subscription does not exist.
        Invalid: the coupon does not exist.
        CouponNotApplicable: the subscription was never on a plan in the coupon's currency, or it or its customer has it already.
    """
    subscription, customer_ref = _subscription(ref)
    with locked_transaction(account_key(customer_ref)):
        coupon = _coupon(code)
        sold = ItemVersion.objects.filter(subscription_id=subscription.pk, price=None)
        if coupon.currency and not sold.filter(plan__currency=coupon.currency).exists():
            raise CouponNotApplicable(coupon=code, why="its currency is not that of the subscription's plan")
        given = CustomerCoupon.objects.filter(customer_id=subscription.customer_id, coupon_id=coupon.pk)
        if given.filter(subscription_id=subscription.pk).exists():
            raise CouponNotApplicable(coupon=code, why="the subscription has it already")
        if given.filter(subscription=None, taken_off_at=None).exists():
            raise CouponNotApplicable(coupon=code, why="the customer has it already, for all subscriptions")
        return CustomerCoupon.objects.create(
            customer_id=subscription.customer_id, subscription_id=subscription.pk, coupon_id=coupon.pk
        )


def take_coupon_off(*, customer_id: int, customer_ref: str, code: str) -> CustomerCoupon:
    """Take a coupon from a customer, so that new invoices do not use it; or raise and write nothing. Earlier uses stay.

    Raises:
        NotFound: the customer does not have it.
    """
    with locked_transaction(account_key(customer_ref)):
        return _take_off(CustomerCoupon.objects.filter(customer_id=customer_id, subscription=None), "customer's coupon", code)


def take_subscription_coupon_off(*, ref: str, code: str) -> CustomerCoupon:
    """Take a coupon from a subscription, as `take_coupon_off` does from a customer.

    Raises:
        NotFound: the subscription does not exist, or does not have it.
    """
    subscription, customer_ref = _subscription(ref)
    with locked_transaction(account_key(customer_ref)):
        return _take_off(CustomerCoupon.objects.filter(subscription_id=subscription.pk), "subscription's coupon", code)


def _take_off(given: QuerySet[CustomerCoupon], resource: str, code: str) -> CustomerCoupon:
    row: CustomerCoupon = first_of(given.filter(coupon__code=code, taken_off_at=None), resource, code)
    CustomerCoupon.objects.filter(pk=row.pk).update(taken_off_at=Now())
    row.refresh_from_db()
    return row


def _coupon(code: str) -> Coupon:
    coupon = Coupon.objects.filter(code=code).first()
    if coupon is None:
        raise Invalid(pointer="/coupon", rule="exists", detail=f"coupon {code!r} does not exist")
    return coupon


def _subscription(ref: str) -> tuple[Subscription, str]:
    """Return a subscription with the reference of its customer."""
    subscription = first_of(Subscription.objects.filter(ref=ref), "subscription", ref)
    return subscription, first_of(
        Customer.objects.filter(pk=subscription.customer_id).values_list("ref", flat=True), "customer", subscription.customer_id
    )


def _ensure_known(prices: Sequence[str], plans: Sequence[str]) -> None:
    """Refuse plans that do not exist, and price keys that no version of the plans has: such a coupon would never apply."""
    codes = set(Plan.objects.filter(code__in=plans).values_list("code", flat=True))
    for position, code in enumerate(plans):
        if code not in codes:
            raise Invalid(pointer=f"/plans/{position}", rule="exists", detail=f"plan {code!r} does not exist")
    rows = Price.objects.filter(key__in=prices)
    if plans:
        rows = rows.filter(plan_id__in=Plan.objects.filter(code__in=plans).values("id"))
    keys = set(rows.values_list("key", flat=True))
    for position, key in enumerate(prices):
        if key not in keys:
            detail = f"{'none of the plans has' if plans else 'no plan has'} a price {key!r}"
            raise Invalid(pointer=f"/prices/{position}", rule="exists", detail=detail)
