"""Recurring revenue: what a subscription brings, its movement from month to month, and cohorts."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.utils import timezone

from billing import reads
from billing.models import Amendment, Item, ItemVersion, Price, Subscription
from billing.orders import coupons
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.totals import CouponTerms
from billing.reads.revenue_history import customer_months, first_day, number_of
from billing.reads.revenue_movement import CustomerMonth, cohorts, movements
from billing.reads.revenue_value import Fee, monthly_minor_of
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring

pytestmark = pytest.mark.django_db

MONTH, YEAR = Interval(IntervalUnit.MONTH), Interval(IntervalUnit.YEAR)
MARCH = date(2026, 3, 1)
HALF = CouponTerms("A", percent=Decimal(50))
BASE, SEATS = Fee("base", "team", Fraction(100)), Fee("seats", "team", Fraction(50))


# The value, without a database ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "interval", "expected"),
    [
        ([], MONTH, 150_00),
        ([CouponTerms("A", percent=Decimal(10))], MONTH, 135_00),
        ([CouponTerms("A", percent=Decimal(10)), CouponTerms("B", percent=Decimal(10))], MONTH, 121_50),
        ([CouponTerms("A", amount_minor=12_00)], YEAR, 149_00),
        ([CouponTerms("A", amount_minor=999_00)], MONTH, 0),
        ([CouponTerms("A", amount_minor=60_00, prices=frozenset({"seats"}))], MONTH, 100_00),
        ([CouponTerms("A", percent=Decimal(50), plans=frozenset({"other"}))], MONTH, 150_00),
        # General coupons come last, whatever the order in which they were given: 150 − 25, then half of it.
        ([HALF, CouponTerms("B", percent=Decimal(50), prices=frozenset({"seats"}))], MONTH, 62_50),
        ([CouponTerms("A", percent=Decimal(100))], MONTH, 0),
    ],
)
def test_coupons_lower_what_a_subscription_brings_in_the_order_of_invoices(terms, interval, expected):
    assert monthly_minor_of([BASE, SEATS], terms, interval, "EUR") == expected


@pytest.mark.parametrize(("currency", "expected"), [("JPY", 10**26 + 1), ("EUR", 10**28 + 50), ("KWD", 10**29 + 500)])
def test_the_value_is_exact_and_rounded_once_in_each_currency(currency, expected):
    fees = [Fee("base", "team", Fraction(10**26)), Fee("seats", "team", Fraction(1, 2))]
    assert monthly_minor_of(fees, [], MONTH, currency) == expected


def test_no_fee_brings_nothing_and_no_coupon_brings_it_below_zero():
    assert monthly_minor_of([], [CouponTerms("A", amount_minor=1)], MONTH, "EUR") == 0


# Movement, without a database ------------------------------------------------------------------------


def in_month(first, first_minor, before, now, *, month=20, currency="EUR", pk=1):
    return CustomerMonth(pk, currency, month, first, first_minor, before, now)


@pytest.mark.parametrize(
    ("one", "movement"),
    [
        (in_month(20, 500, 0, 500), "new"),
        (in_month(9, 500, 0, 500), "reactivation"),
        (in_month(9, 500, 500, 700), "expansion"),
        (in_month(9, 500, 500, 499), "contraction"),
        (in_month(9, 500, 500, 0), "churn"),
        (in_month(9, 500, 500, 500), ""),
        (in_month(9, 500, 0, 0), ""),
    ],
)
def test_each_change_is_one_movement(one, movement):
    assert one.movement == movement


def test_a_month_by_hand_with_its_rates():
    euro, yen = movements(
        [
            in_month(1, 100, 100, 100), in_month(1, 100, 100, 130), in_month(2, 200, 200, 150), in_month(3, 50, 50, 0),
            in_month(20, 70, 0, 70), in_month(5, 10, 0, 20), in_month(20, 9, 0, 9, currency="JPY"),
        ]
    )  # fmt: skip
    assert (euro.opening_minor, euro.closing_minor) == (450, 470)
    assert euro.moved_minor == {"new": 70, "reactivation": 20, "expansion": 30, "contraction": -50, "churn": -50}
    assert (euro.opening_customers, euro.closing_customers) == (4, 5)
    assert euro.customer_churn == Decimal("25.0")
    assert euro.gross_churn == Decimal("22.2")
    # 100 lost, 50 won by those who were there: 50 of 450.
    assert euro.net_churn == Decimal("11.1")
    assert (yen.currency, yen.moved_minor["new"], yen.customer_churn, yen.gross_churn, yen.net_churn) == ("JPY", 9, *[None] * 3)


def test_cohorts_keep_their_first_value_and_older_ones_are_one():
    found = cohorts(
        [
            in_month(20, 70, 0, 70), in_month(19, 100, 100, 40), in_month(19, 60, 60, 0), in_month(2, 5, 5, 15),
            in_month(1, 5, 0, 0),
        ],
        shown=12,
    )  # fmt: skip
    assert [tuple(one)[1:] for one in found] == [(None, 2, 10, 1, 15), (19, 2, 160, 1, 40), (20, 1, 70, 1, 70)]
    assert [(one.kept_percent, one.minor_percent) for one in found] == [
        (Decimal("50.0"), Decimal("150.0")), (Decimal("50.0"), Decimal("25.0")), (Decimal("100.0"), Decimal("100.0")),
    ]  # fmt: skip


# From the orders -------------------------------------------------------------------------------------


def version(subscription: Subscription, quantity: int, starts, ends=None, *, recorded, superseded=None, key="other") -> None:
    """A version as it was on record in `[recorded, superseded)`."""
    plan_id = ItemVersion.objects.filter(subscription_id=subscription.pk).values_list("plan_id", flat=True)[0]
    ItemVersion.objects.create(
        subscription=subscription,
        item=Item.objects.get_or_create(subscription_id=subscription.pk, price_key=key)[0],
        plan_id=plan_id,
        price=Price.objects.get(plan_id=plan_id, key="seats"),
        quantity=quantity,
        starts_at=starts,
        ends_at=ends,
        recorded_at=recorded,
        superseded_at=superseded,
    )


@pytest.fixture
def seats() -> Subscription:
    """A subscription of a price of 10.00 a month per seat, whose versions a test writes; its order is of today and much later."""
    plan = PlanFactory(prices=[recurring("seats", "10", model="unit")])
    return SubscriptionFactory(plan=plan.code, started_at=datetime(2199, 1, 1, tzinfo=UTC), time_zone="Europe/Berlin")


def of(subscription: Subscription, month: date) -> tuple[int, int] | None:
    """The value of its customer before and at the end of the month."""
    found = [one for one in customer_months(month) if one.customer_id == subscription.customer_id]
    return (found[0].before_minor, found[0].now_minor) if found else None


def test_a_month_ends_at_midnight_in_the_zone_of_the_subscription(seats):
    version(seats, 1, datetime(2026, 2, 28, 23, tzinfo=UTC), datetime(2026, 3, 31, 22, tzinfo=UTC), recorded=at(1))
    assert [of(seats, first_day(number_of(MARCH) + back)) for back in (-1, 0, 1)] == [None, (0, 1_000), (1_000, 0)]


def test_what_is_recorded_later_moves_the_month_of_its_recording_and_no_month_that_is_over(seats):
    version(seats, 1, at(2), recorded=at(2))
    before = of(seats, MARCH)
    # On 10 April somebody records that there were three seats from 10 March on.
    ItemVersion.objects.filter(subscription_id=seats.pk, superseded_at=None, starts_at=at(2)).update(superseded_at=at(4, 10))
    version(seats, 1, at(2), at(3, 10), recorded=at(4, 10))
    version(seats, 3, at(3, 10), recorded=at(4, 10))
    assert of(seats, MARCH) == before == (1_000, 1_000)
    assert of(seats, date(2026, 4, 1)) == (1_000, 3_000)


def test_a_trial_brings_nothing_until_it_ends_and_one_that_was_moved_brings_nothing_before(seats):
    version(seats, 2, at(1), recorded=at(1))
    Subscription.objects.filter(pk=seats.pk).update(trial_end=at(2, 15))
    assert [of(seats, date(2026, month, 1)) for month in (1, 2, 3)] == [None, (0, 2_000), (2_000, 2_000)]
    # It is moved back on 5 April, to a day in March: until then it went on.
    Subscription.objects.filter(pk=seats.pk).update(trial_end=at(3, 20))
    Amendment.objects.create(
        subscription=seats, sequence=2, effective_at=at(4, 5), change={"trial_end": at(3, 20).isoformat()}, recorded_at=at(4, 5)
    )
    assert [of(seats, date(2026, month, 1)) for month in (2, 3, 4)] == [None, None, (0, 2_000)]


def test_reactivation_is_of_a_customer_who_brought_something_before(seats):
    version(seats, 1, at(1), at(2, 10), recorded=at(1))
    version(seats, 2, at(4, 2), recorded=at(4, 2))
    moves = [
        next(one.movement for one in customer_months(date(2026, month, 1)) if one.customer_id == seats.customer_id)
        for month in (1, 2, 3, 4, 5)
    ]
    assert moves == ["new", "churn", "", "reactivation", ""]


@pytest.mark.slow
@pytest.mark.check
def test_months_tie_whatever_was_recorded_when():
    choose = random.Random(20261126)
    plan = PlanFactory(prices=[recurring("seats", "10", model="unit")])
    for _ in range(12):
        one = SubscriptionFactory(plan=plan.code, started_at=datetime(2199, 1, 1, tzinfo=UTC))
        for _ in range(choose.randrange(1, 5)):
            starts = at(1) + timedelta(hours=choose.randrange(9_000))
            ends = choose.choice([None, starts + timedelta(hours=choose.randrange(1, 4_000))])
            recorded = at(1) + timedelta(hours=choose.randrange(9_000))
            superseded = choose.choice([None, recorded + timedelta(hours=choose.randrange(1, 4_000))])
            key = f"seats{choose.randrange(10**9)}"
            version(one, choose.randrange(1, 9), starts, ends, recorded=recorded, superseded=superseded, key=key)
    closing, customers, moved = 0, 0, set()
    for number in range(number_of(date(2026, 1, 1)), number_of(date(2027, 6, 1))):
        for movement in movements(customer_months(first_day(number))):
            assert (movement.opening_minor, movement.opening_customers) == (closing, customers)
            assert movement.opening_minor + sum(movement.moved_minor.values()) == movement.closing_minor
            gained, lost = ("new", "reactivation"), ("churn",)
            change = sum(movement.moved_customers[name] for name in gained) - sum(movement.moved_customers[name] for name in lost)
            assert movement.opening_customers + change == movement.closing_customers
            closing, customers = movement.closing_minor, movement.closing_customers
            moved |= {name for name, number in movement.moved_customers.items() if number}
    assert moved == {"new", "reactivation", "expansion", "contraction", "churn"}


# Coupons ---------------------------------------------------------------------------------------------


def test_a_lasting_coupon_lowers_the_value_now_and_at_the_end_of_the_month_and_one_used_once_does_not():
    plan = PlanFactory(prices=[recurring("base", "1200"), recurring("seats", "600")], interval=YEAR)
    customer = CustomerFactory()
    one = SubscriptionFactory(plan=plan.code, customer=customer.ref)
    for code, fields in {
        "LASTS": {"kind": "percentage", "value": Decimal(10), "duration": "forever"},
        "ONCE": {"kind": "percentage", "value": Decimal(50), "duration": "once"},
        "TERM": {"kind": "amount", "value": Decimal(120), "currency": "EUR", "duration": "recurring", "periods": 1},
    }.items():
        coupons.create_coupon(code=code + one.ref, **fields)
        coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code + one.ref)
    # 150.00 less 10 %, less 120.00 a year.
    assert now_of(one) == {one.ref: 125_00}
    assert of(one, timezone.now().date().replace(day=1)) == (0, 125_00)
    coupons.take_coupon_off(customer_id=customer.pk, customer_ref=customer.ref, code="LASTS" + one.ref)
    assert now_of(one) == {one.ref: 140_00}


def test_an_amount_per_period_of_the_customer_is_that_of_the_oldest_charged_subscription():
    plan = PlanFactory(prices=[recurring("base", "100")])
    customer = CustomerFactory()
    old, young = (SubscriptionFactory(plan=plan.code, customer=customer.ref) for _ in range(2))
    coupons.create_coupon(
        code=old.ref, kind="amount", value=Decimal(30), currency="EUR", duration="recurring", periods=6, per="customer"
    )
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=old.ref)
    assert now_of(old) | now_of(young) == {old.ref: 70_00, young.ref: 100_00}
    amend(old, at(2), sets_end=True, ends_at=at(2))
    assert now_of(old) | now_of(young) == {old.ref: 0, young.ref: 70_00}


def test_fees_that_go_on_in_a_pause_count():
    one = SubscriptionFactory()
    amend(one, at(2), paused=True, charges_while_paused=True)
    assert now_of(one) == {one.ref: 10_00}


def now_of(subscription: Subscription) -> dict[str, int]:
    """What the subscription brings now, by its ref."""
    rows = [row for row in reads.subscriptions(limit=200) if row.ref == subscription.ref]
    return {row.ref: reads.monthly_minor(rows)[row.id] for row in rows}
