"""Minimum and maximum per subscription and period."""

from decimal import Decimal

import pytest

from billing.generator.options import Scope
from billing.orders import coupons
from tests.billing.factories import PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill, line_amounts

pytestmark = pytest.mark.django_db


def bounded(**bounds):
    """A subscription at 10.00 in advance and 0.02 per call, with bounds."""
    return SubscriptionFactory(plan=PlanFactory(prices=[recurring(), metered()], **bounds).code)


def test_a_period_is_lifted_to_the_minimum_once_it_is_over():
    subscription = bounded(minimum=Decimal("25.00"))
    use(subscription, "100", at(1, 5))
    assert line_amounts(bill(subscription, at(1, 1))[0]) == [("recurring", "base", 1000)]
    # January: 10.00 in advance and 2.00 of use, lifted by 13.00.
    assert line_amounts(bill(subscription, at(2, 1))[0]) == [
        ("recurring", "base", 1000), ("usage", "calls", 200), ("minimum", None, 1300),
    ]  # fmt: skip
    assert bill(subscription, at(2, 2)) == []


def test_a_period_is_lowered_to_the_maximum():
    subscription = bounded(maximum=Decimal("15.00"))
    use(subscription, "1000", at(1, 5))
    [invoice] = bill(subscription, at(2, 1))
    assert line_amounts(invoice)[-1] == ("maximum", None, -1500)
    # Two advance fees and what January may still cost.
    assert invoice["total_minor"] == 1000 + 1500


def test_late_usage_uses_the_minimum_up_first():
    subscription = bounded(minimum=Decimal("25.00"))
    bill(subscription, at(2, 1))
    use(subscription, "100", at(1, 6))
    [late] = bill(subscription, at(2, 2))
    # The plan has no maximum, so none is shown: it is the minimum that is less.
    assert line_amounts(late) == [("late_usage", "calls", 200), ("minimum", None, -200)]
    assert late["lines"][1]["description"].startswith("Minimum of ")
    assert late["total_minor"] == 0


def test_what_is_given_back_counts_for_the_minimum_only_as_far_as_it_is_kept():
    subscription = bounded(minimum=Decimal("25.00"))
    assert line_amounts(bill(subscription, at(1, 1))[0]) == [("recurring", "base", 1000)]
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    [ended] = bill(subscription, at(1, 11))
    # 10 of 31 days: 3.23 of the 10.00 are kept, and the minimum is 8.06.
    assert line_amounts(ended) == [("credit", "base", -677), ("minimum", None, 483), ("carried", None, 194)]
    assert bill(subscription, at(2, 1)) == []


def test_from_below_the_minimum_to_above_the_maximum_is_a_line_of_each():
    subscription = bounded(minimum=Decimal("12.00"), maximum=Decimal("15.00"))
    assert line_amounts(bill(subscription, at(2, 1))[0])[-1] == ("minimum", None, 200)
    use(subscription, "1000", at(1, 6))
    [late] = bill(subscription, at(2, 2))
    # 10.00 and 20.00 are 15.00 at most: the 2.00 that lifted it go back, and so do 15.00 of the usage.
    assert line_amounts(late) == [("late_usage", "calls", 2000), ("minimum", None, -200), ("maximum", None, -1500)]
    assert bill(subscription, at(2, 3)) == []


def test_a_coupon_counts_before_the_maximum_of_a_plan_as_before_that_of_a_price():
    def discounted(**fields):
        subscription = SubscriptionFactory(plan=PlanFactory(**fields).code)
        customer = subscription.customer
        code = coupons.create_coupon(code=unique("half"), kind="percentage", value=Decimal(50), duration="forever").code
        coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
        use(subscription, "1000", at(1, 5))
        [invoice] = bill(subscription, at(2, 1))
        return invoice["total_minor"]

    # 20.00, of which half goes off, and 6.00 at most.
    assert discounted(prices=[metered()], maximum=Decimal("6.00")) == 600
    assert discounted(prices=[metered(maximum="6.00")]) == 600


def test_a_stub_has_its_share_of_the_minimum():
    plan = PlanFactory(prices=[metered()], minimum=Decimal("31.00"))
    subscription = SubscriptionFactory(plan=plan.code, started_at=at(1, 11), anchor_at=at(1, 1))
    assert line_amounts(bill(subscription, at(2, 1))[0]) == [("minimum", None, 2100)]


def test_month_by_month_and_catching_up_come_to_the_same():
    steady, late = bounded(minimum=Decimal("25.00")), bounded(minimum=Decimal("25.00"))
    for subscription in (steady, late):
        use(subscription, "1000", at(2, 5))
    monthly = [one for month in range(1, 6) for one in bill(steady, at(month, 1))]
    [once] = bill(late, at(5, 1))
    assert once["total_minor"] == sum(one["total_minor"] for one in monthly) == 2500 + 3000 + 2500 + 2500 + 1000


def test_runs_of_one_kind_bound_a_period_when_both_kinds_are_billed():
    subscription = bounded(minimum=Decimal("25.00"))
    use(subscription, "100", at(1, 5))
    fees = bill(subscription, at(2, 1), only=Scope.RECURRING)
    usage = bill(subscription, at(2, 1), only=Scope.USAGE)
    assert [line_amounts(one) for one in fees + usage] == [
        [("recurring", "base", 1000), ("recurring", "base", 1000)],
        [("usage", "calls", 200), ("minimum", None, 1300)],
    ]
