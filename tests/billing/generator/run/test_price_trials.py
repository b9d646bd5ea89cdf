"""What another price would have brought: amounts worked by hand, from the usage that invoices charged."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.errors import NotFound
from billing.generator.run import price_trials
from billing.generator.run.price_trials import NewPriceTrial, PriceTrial, compute_trial
from billing.models import Claim, Plan, Subscription
from billing.orders.overrides import PriceOverride
from billing.orders.subscriptions import Wish, amend_subscription
from billing.rating.prices.reading import PriceInvalid
from ledger.errors import Invalid
from ledger.records import shape_of
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    at,
    metered,
    recurring,
    transition,
    unique,
    use,
)
from tests.billing.generator import test_overage as overage
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def per_unit(amount: str, **more: Any) -> dict[str, Any]:
    return {"model": "unit", "unit_amount": amount, **more}


def tried(
    plans: list[str], replaced_by: dict[str, Any], *, price: str = "calls", months: int = 3, until: Any = None
) -> PriceTrial:
    """The trial at the first of April, or at another time."""
    request = shape_of(NewPriceTrial).make({"plans": plans, "price": price, "replaced_by": replaced_by, "months": months})
    return compute_trial(request, until or at(4, 1, 1))


def amounts(trial: PriceTrial) -> tuple[int, int, int]:
    return trial.total.periods, trial.total.before_minor, trial.total.after_minor


def sold(*prices: dict[str, Any], code: str = "", **plan: Any) -> Subscription:
    """A subscription from January on to a plan with these prices."""
    made = PlanFactory(code=code or unique("plan"), prices=[recurring(), *prices], **plan)
    return SubscriptionFactory(plan=made.code, customer=CustomerFactory().ref)


def plan_of(subscription: Subscription) -> str:
    claim = Claim.objects.filter(subscription_id=subscription.pk).exclude(price=None).first()
    assert claim is not None
    return Plan.objects.get(pk=claim.price.plan_id).code


def invoice(subscription: Subscription, *calls: int) -> None:
    """Bill January, February, March with these calls."""
    for month, number in enumerate(calls, start=1):
        if number:
            use(subscription, str(number), at(month, 10))
    bill(subscription, at(len(calls) + 1, 1))


def rows() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Claim, Plan)]


# What is added up ------------------------------------------------------------------------------------


def test_three_cents_instead_of_two_for_the_calls_beyond_those_that_are_free() -> None:
    subscription = sold(metered("calls", unit_amount="0.02", free_units="100"))
    invoice(subscription, 600, 50, 1100)
    before = rows()
    code = plan_of(subscription)
    trial = tried([code], per_unit("0.03", free_units="100"))
    # 500 and 0 and 1,000 units: at 0.02, 10.00 + 0 + 20.00; at 0.03, 15.00 + 0 + 30.00.
    assert amounts(trial) == (3, 3000, 4500)
    assert trial.total.difference_minor == 1500
    assert (trial.currency, len(trial.subscriptions), trial.negotiated, trial.is_whole) == ("EUR", 1, 0, True)
    assert {key: (each.periods, each.after_minor) for key, each in trial.by_plan.items()} == {(code, 1): (3, 4500)}
    assert rows() == before, "nothing is written"


def test_control_the_same_price_brings_the_same_money_for_each_model() -> None:
    tiers = [{"up_to": 100, "unit_amount": "0.10"}, {"up_to": None, "unit_amount": "0.07", "flat_amount": "3"}]
    for amounts_of in (
        {"model": "graduated", "tiers": tiers},
        {"model": "volume", "tiers": tiers},
        {"model": "package", "unit_amount": "1.37", "package_size": 30},
        per_unit("0.013"),
    ):
        subscription = sold({**metered("calls"), "unit_amount": None, **amounts_of})
        invoice(subscription, 333, 0, 99)
        trial = tried([plan_of(subscription)], amounts_of)
        assert trial.total.before_minor == trial.total.after_minor > 0, amounts_of


def test_tiers_instead_of_a_price_per_unit_are_rounded_once_per_period() -> None:
    subscription = sold(metered("calls", unit_amount="0.015"))
    invoice(subscription, 101, 333)
    tiers = [{"up_to": 100, "unit_amount": "0.02"}, {"up_to": None, "unit_amount": "0.005"}]
    trial = tried([plan_of(subscription)], {"model": "graduated", "tiers": tiers})
    # Before: 1.515 → 1.52 and 4.995 → 5.00. After: 2.00 + 0.005 → 2.01 and 2.00 + 1.165 → 3.17.
    assert amounts(trial) == (2, 152 + 500, 201 + 317)


def test_what_a_period_without_use_owes_counts_too() -> None:
    subscription = sold(metered("calls", unit_amount="0.02"))
    invoice(subscription, 0, 10)
    tiers = [{"up_to": None, "unit_amount": "0.02", "flat_amount": "5"}]
    trial = tried([plan_of(subscription)], {"model": "graduated", "tiers": tiers, "flat_fee_at_zero": True})
    assert amounts(trial) == (2, 20, 500 + 520)


def test_the_bounds_of_a_price_hold_for_the_part_of_a_period() -> None:
    plan = PlanFactory(prices=[recurring(), metered("calls", unit_amount="0.02", minimum="6.20", maximum="31.00")])
    subscription = SubscriptionFactory(plan=plan.code, started_at=at(1, 11), anchor_at=at(1, 1))
    use(subscription, "1000", at(1, 20))
    use(subscription, "10", at(2, 20))
    bill(subscription, at(3, 1))
    # January has 21 of 31 days: at least 4.20, at most 21.00. 1,000 calls: 20.00 before, 40.00 after, so 21.00. February: 6.20.
    assert amounts(tried([plan.code], per_unit("0.04"))) == (2, 2000 + 620, 2100 + 620)


def test_each_group_is_rated_and_rounded_by_itself() -> None:
    subscription = sold(metered("calls", unit_amount="0.015", group_by=["region"]))
    for region, number in (("eu", "1"), ("us", "1"), ("us", "2")):
        use(subscription, number, at(1, 10), region=region)
    bill(subscription, at(2, 1))
    # Before: 0.015 → 0.02 and 0.045 → 0.05. After: 0.025 → 0.03 and 0.075 → 0.08.
    assert amounts(tried([plan_of(subscription)], per_unit("0.025"))) == (1, 7, 11)


def test_the_credits_of_an_overage_are_rated_at_another_price(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    holder = unique("holder")
    for now in (overage.START - 9 * 365 * overage.DAY, overage.START):
        overage.move(holder, now)
    subscription = overage.subscribed(holder)  # 1,000 credits a month, each further one 0.02
    overage.spend(holder, 1300)
    overage.move(holder, overage.FEBRUARY + overage.DAY)
    overage.run()
    overage.spend(holder, 1050)
    overage.move(holder, overage.MARCH + overage.DAY)
    overage.run()
    trial = tried([plan_of(subscription)], per_unit("0.03"), price="overage", until=overage.MARCH + overage.DAY)
    # 300 and 50 credits beyond: 6.00 + 1.00 at 0.02, 9.00 + 1.50 at 0.03.
    assert amounts(trial) == (2, 700, 1050)


# Whose periods ---------------------------------------------------------------------------------------


def test_plans_and_versions_stand_apart_and_the_most_affected_customers_come_first() -> None:
    code = unique("plan")
    first = sold(metered("calls", unit_amount="0.02"), code=code)
    invoice(first, 100, 100)
    PlanFactory(code=code, prices=[recurring(), metered("calls", unit_amount="0.04")])
    second = SubscriptionFactory(plan=code, customer=CustomerFactory().ref)
    invoice(second, 1000)
    other = sold(metered("calls", unit_amount="0.05"))
    invoice(other, 40)
    trial = tried([code, plan_of(other)], per_unit("0.03"))
    sums = {key: (each.periods, each.before_minor, each.after_minor) for key, each in trial.by_plan.items()}
    assert sums == {(code, 1): (2, 400, 600), (code, 2): (1, 4000, 3000), (plan_of(other), 1): (1, 200, 120)}
    affected = [(customer, each.difference_minor) for customer, each in trial.most_affected()]
    assert affected == [(second.customer_id, -1000), (first.customer_id, 200), (other.customer_id, -80)]


def test_only_ten_customers_are_named_and_none_for_whom_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_trials, "CUSTOMERS_NAMED", 2)
    code = unique("plan")
    subscriptions = [sold(metered("calls", unit_amount="0.02"), code=code)]
    subscriptions += [SubscriptionFactory(plan=code, customer=CustomerFactory().ref) for _ in range(3)]
    for subscription, number in zip(subscriptions, (0, 10, 30, 20), strict=True):
        invoice(subscription, number)
    trial = tried([code], per_unit("0.03"))
    assert [customer for customer, _ in trial.most_affected()] == [subscriptions[2].customer_id, subscriptions[3].customer_id]
    monkeypatch.setattr(price_trials, "CUSTOMERS_NAMED", 10)
    assert len(trial.most_affected()) == 3


def test_negotiated_prices_stay_and_are_counted() -> None:
    subscription = sold(metered("calls", unit_amount="0.02"))
    amend_subscription(
        ref=subscription.ref, effective_at=at(1, 1), wish=Wish(price_override=PriceOverride(percent_off=Decimal(10)))
    )
    invoice(subscription, 100, 100)
    code = plan_of(subscription)
    standard = SubscriptionFactory(plan=code, customer=CustomerFactory().ref)
    invoice(standard, 10)
    trial = tried([code], per_unit("0.03"))
    assert (trial.negotiated, amounts(trial)) == (2, (1, 20, 30))


def test_periods_that_are_not_invoiced_or_long_over_do_not_count() -> None:
    subscription = sold(metered("calls", unit_amount="0.02"))
    invoice(subscription, 100, 200, 400)
    code = plan_of(subscription)
    use(subscription, "800", at(4, 5))  # a running period
    assert amounts(tried([code], per_unit("0.03"))) == (3, 1400, 2100)
    # Three months before the 15th of May is the 15th of February.
    assert amounts(tried([code], per_unit("0.03"), until=at(5, 15))) == (2, 1200, 1800)
    assert amounts(tried([code], per_unit("0.03"), until=at(5, 15), months=1)) == (0, 0, 0)
    # A void invoice frees its periods.
    last = Claim.objects.filter(subscription_id=subscription.pk, kind=2).order_by("-ends_at").first()
    assert last is not None
    transition(last.invoice_id, "void")
    assert amounts(tried([code], per_unit("0.03")))[0] < 3


# What bounds it, and what it refuses -----------------------------------------------------------------


def test_beyond_its_number_of_periods_it_says_that_it_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    code = unique("plan")
    subscriptions = [sold(metered("calls", unit_amount="0.02"), code=code)]
    subscriptions += [SubscriptionFactory(plan=code, customer=CustomerFactory().ref) for _ in range(2)]
    for subscription in subscriptions:
        invoice(subscription, 10, 10)
    monkeypatch.setattr(price_trials, "SUBSCRIPTIONS_AT_ONCE", 2)
    for most, periods, is_whole in ((6, 6, True), (5, 5, False), (4, 4, False), (3, 3, False)):
        monkeypatch.setattr(price_trials, "MOST_PERIODS", most)
        trial = tried([code], per_unit("0.03"))
        assert (trial.total.periods, trial.is_whole) == (periods, is_whole), most


def test_its_statements_do_not_grow_with_the_subscriptions() -> None:
    code = unique("plan")
    invoice(sold(metered("calls", unit_amount="0.02"), code=code), 10)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as statements:
            tried([code], per_unit("0.03"))
        counts.append(len(statements))
        for _ in range(3):
            invoice(SubscriptionFactory(plan=code, customer=CustomerFactory().ref), 10)
    assert counts[1] <= counts[0]


def test_what_makes_no_sense_is_refused() -> None:
    plan = PlanFactory(
        prices=[
            recurring(),
            metered("calls", unit_amount="0.02"),
            {**metered("volume"), "unit_amount": None, "model": "percentage", "rate": "2"},
        ]
    )
    dollars = PlanFactory(currency="USD", prices=[recurring(), metered("calls", unit_amount="0.02")])
    with pytest.raises(NotFound):
        tried([unique("nobody")], per_unit("0.03"))
    for plans, price, pointer in (
        ([plan.code], "base", "/price"),
        ([plan.code], "volume", "/price"),
        ([plan.code, dollars.code], "calls", "/plans/1"),
    ):
        with pytest.raises(Invalid) as refused:
            tried(plans, per_unit("0.03"), price=price)
        assert refused.value.facts["pointer"] == pointer
    with pytest.raises((Invalid, PriceInvalid)):
        tried([plan.code], {"model": "unit"})
