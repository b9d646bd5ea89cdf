"""For which periods a recurring coupon lowers what, whatever else is billed and in whatever order."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from billing.documents import invoices
from billing.generator.options import Scope
from billing.models import Coupon, CustomerCoupon, Line, Subscription
from billing.orders import coupons, subscriptions
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db

HALF: dict[str, Any] = {"kind": "percentage", "value": Decimal(50)}
TEN: dict[str, Any] = {"kind": "amount", "value": Decimal(10), "currency": "EUR"}


def coupon_for(customer: Any, periods: int = 3, **fields: Any) -> str:
    """Give a customer a new recurring coupon; return its code."""
    code = coupons.create_coupon(**{"code": unique("coupon"), "duration": "recurring", "periods": periods} | fields).code
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code=code)
    return code


def subscribed(customer: Any, *prices: dict[str, Any], **order: Any) -> Subscription:
    """31.00 a month in advance by the unit, unless other prices are given."""
    plan = PlanFactory(prices=list(prices) or [recurring(unit_amount="31.00", model="unit")])
    return SubscriptionFactory(customer=customer.ref, plan=plan.code, **order)


def net(documents: list[Any]) -> list[list[int]]:
    """What each line of each document comes to after discounts."""
    return [[line["amount_minor"] - line["discount_minor"] for line in one["lines"]] for one in documents]


def each_month(subscription: Subscription, first: int, last: int) -> list[int]:
    """Bill on the first of each month; what each of the fees comes to."""
    return [sum(line) for month in range(first, last + 1) for line in net(bill(subscription, at(month, 1)))]


@pytest.mark.parametrize("per", [None, "subscription", "customer"])
def test_a_change_within_a_period_keeps_its_discount_and_takes_no_period(per: str | None) -> None:
    customer = CustomerFactory()
    coupon_for(customer, per=per, **HALF)
    subscription = subscribed(customer)
    assert net(bill(subscription, at(1, 1))) == [[1550]]
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    # 21 of 31 days: half of 21.00 goes back, and half of 42.00 is charged; a unit more from the 21st on, for 11 of 31 days.
    assert net(bill(subscription, at(1, 11))) == [[-1050, 2100]]
    amend(subscription, at(1, 21), quantities={"base": Decimal(3)})
    assert net(bill(subscription, at(1, 21))) == [[-1100, 1650]]
    assert each_month(subscription, 2, 5) == [4650, 4650, 9300, 9300]


def test_an_amount_is_taken_off_once_a_period_and_goes_over_to_what_a_change_charges() -> None:
    customer = CustomerFactory()
    coupon_for(customer, **TEN)
    subscription = subscribed(customer)
    assert net(bill(subscription, at(1, 1))) == [[2100]]
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    # 21.00 less 6.77 of the discount go back; 42.00 less 6.77 are charged. In all 42.00, as for both parts less 10.00.
    [made] = bill(subscription, at(1, 11))
    assert net([made]) == [[-1423, 3523]]
    assert each_month(subscription, 2, 4) == [5200, 5200, 6200]
    invoices.void(made["id"])
    assert net(bill(subscription, at(4, 1))) == [[-1423, 3523]]
    assert findings_of("claim", "line", "document") == []


def test_late_usage_has_the_discount_of_its_period_and_a_charge_takes_no_period() -> None:
    customer = CustomerFactory()
    coupon_for(customer, **HALF)
    subscription = subscribed(customer, recurring(unit_amount="31.00"), metered(unit_amount="1.00"))
    use(subscription, "8", at(1, 5))
    assert net(bill(subscription, at(1, 1))) == [[1550]]
    subscriptions.charge_once(ref=subscription.ref, amount_minor=1000, description="Set-up")
    assert net(bill(subscription, at(1, 2))) == [[500]]
    assert sorted(net(bill(subscription, at(2, 1)))[0]) == [400, 1550]
    use(subscription, "6", at(1, 6))
    assert net(bill(subscription, at(2, 10))) == [[300]]
    use(subscription, "4", at(3, 6))
    assert net(bill(subscription, at(3, 1))) == [[1550]]
    # March is the third period: its usage, billed with April's fee, is lowered, and April's fee is not.
    assert sorted(net(bill(subscription, at(4, 1)))[0]) == [200, 3100]
    # Late usage of January comes after the last of the periods, and is lowered all the same; that of April is not.
    use(subscription, "2", at(1, 7))
    use(subscription, "5", at(4, 7))
    assert sorted(net(bill(subscription, at(5, 1)))[0]) == [100, 500, 3100]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_coupon_that_is_given_within_a_period_counts_from_the_next_fee_on(at_once: bool) -> None:
    customer = CustomerFactory()
    subscription = subscribed(customer)
    assert net(bill(subscription, at(1, 1))) == [[3100]]
    coupon_for(customer, periods=2, **HALF)
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    # What was billed without the coupon goes back without it.
    assert net(bill(subscription, at(1, 11))) == [[-2100, 2100]]
    if at_once:
        assert sorted(net(bill(subscription, at(4, 1)))[0]) == [3100, 3100, 6200]
    else:
        assert each_month(subscription, 2, 4) == [3100, 3100, 6200]


def test_periods_that_pass_without_a_fee_count() -> None:
    customer = CustomerFactory()
    coupon_for(customer, **HALF)
    subscription = subscribed(customer)
    bill(subscription, at(1, 1))
    amend(subscription, at(2, 1), paused=True)
    amend(subscription, at(3, 1), paused=False)
    assert each_month(subscription, 3, 4) == [1550, 3100]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({**HALF}, ([1550, 1550, 3100], [1550, 1550, 3100])),
        ({**HALF, "per": "customer"}, ([1550, 1550, 3100], [1550, 1550, 3100])),
        ({**TEN}, ([2100, 2100, 3100], [2100, 2100, 3100])),
        # Once for the customer: off the oldest subscription.
        ({**TEN, "per": "customer"}, ([2100, 2100, 3100], [3100, 3100, 3100])),
    ],
)
def test_the_order_of_the_run_over_subscriptions_changes_nothing(
    turned: bool, terms: dict[str, Any], expected: tuple[list[int], list[int]]
) -> None:
    customer = CustomerFactory()
    coupon_for(customer, periods=2, **terms)
    both = [subscribed(customer), subscribed(customer)]
    made: dict[str, list[int]] = {one.ref: [] for one in both}
    for month in (1, 2, 3):
        for one in reversed(both) if turned else both:
            made[one.ref] += [sum(line) for line in net(bill(one, at(month, 1)))]
    assert tuple(made.values()) == expected


def test_voiding_any_invoice_and_billing_again_lowers_the_same_periods() -> None:
    customer = CustomerFactory()
    coupon_for(customer, **HALF)
    subscription = subscribed(customer)
    made = [one for month in (1, 2, 3, 4) for one in bill(subscription, at(month, 1))]
    for one in made:
        invoices.void(one["id"])
        [again] = bill(subscription, at(4, 2))
        assert (again["total_minor"], again["discount_minor"]) == (one["total_minor"], one["discount_minor"])
    for one in Line.objects.filter(invoice__subscription_id=subscription.pk).exclude(invoice__state="void"):
        assert one.discount_minor == (1550 if one.starts_at < at(4, 1) else 0)


@pytest.mark.parametrize(("per", "expected"), [("subscription", [1550, 1550, 1550]), ("customer", [1550, 1550, 3100])])
def test_periods_of_the_customer_count_from_the_grant_and_of_a_subscription_from_its_first(per: str, expected: list[int]) -> None:
    customer = CustomerFactory()
    coupon_for(customer, per=per, **HALF)
    CustomerCoupon.objects.filter(customer_id=customer.pk).update(given_at=at(1, 10))
    # The periods of the customer are February, March and April; the subscription begins in March.
    subscription = subscribed(customer, started_at=at(3, 1))
    assert each_month(subscription, 3, 5) == expected


def test_runs_of_one_kind_count_the_same_periods() -> None:
    customer = CustomerFactory()
    coupon_for(customer, periods=1, **HALF)
    subscription = subscribed(customer, recurring(unit_amount="31.00"), metered(unit_amount="1.00"))
    for month in (1, 2):
        use(subscription, "8", at(month, 5))

    def billed(as_of: datetime, only: Scope) -> list[list[int]]:
        return net(bill(subscription, as_of, only=only))

    assert billed(at(2, 1), Scope.RECURRING) == [[1550, 3100]]
    assert billed(at(3, 1), Scope.USAGE) == [[400, 800]]


def test_only_a_recurring_coupon_says_whose_periods_it_counts() -> None:
    with pytest.raises(Invalid) as refused:
        coupons.create_coupon(code="ONCE", duration="once", per="customer", **HALF)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/per", "recurring-only")
    assert not Coupon.objects.filter(code="ONCE").exists()
