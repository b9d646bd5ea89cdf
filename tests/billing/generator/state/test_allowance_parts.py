"""First periods, the shares after a change and last periods come by the clock: each with the first write after its start."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Claim
from billing.orders.item_versions import AllowanceChange
from billing.rating.periods import Interval, IntervalUnit
from ledger import services
from ledger.errors import InsufficientCredits, Invalid
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.state.test_allowance_changes import (
    CHANGES,
    MONTH,
    YEAR,
    available,
    day,
    days_of,
    move,
    ordered,
    plan_of,
    run_at,
)
from tests.billing.generator.state.test_allowance_terms import claims, granted, spend

pytestmark = pytest.mark.django_db

INSTANT = timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def spend_at(holder: str, now: datetime, amount: int) -> None:
    """Spend then all that there should be; no run has been there, and not one credit more can be spent."""
    move(holder, now)
    with pytest.raises(InsufficientCredits):
        spend(holder, amount + 1)
    if amount:
        spend(holder, amount)


# What an order has begun, and what it has ordered for later ------------------------------------------


def test_an_order_grants_the_first_period_at_once() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    spend(holder, 100)
    assert [one.amount for one in run_at(holder, subscription, day(1)).granted] == [100]
    assert (granted(holder), claims(subscription)) == ([("01-01", 100)], [("01-01", "02-01", 100)])
    entry = Entry.objects.get(holder_id=holder, kind="grant")
    assert (entry.actor, entry.reason, entry.reference) == ("ledger", "Plan allowance", f"subscription {subscription.ref}")


def test_an_order_for_later_grants_its_first_part_in_its_first_microsecond() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH), started_at=day(1, 11), anchor_at=day(1))
    spend_at(holder, day(1, 11) - INSTANT, 0)
    spend_at(holder, day(1, 11), 210)
    spend_at(holder, day(2), 310)
    run_at(holder, subscription, day(2))
    assert claims(subscription) == [("01-11", "02-01", 210), ("02-01", "03-01", 310)]
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)


def test_the_period_after_a_trial_comes_with_its_first_microsecond() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH), trial_end=day(1, 15))
    spend_at(holder, day(1, 15) - INSTANT, 0)
    spend_at(holder, day(1, 15), 100 * 17 // 31)
    spend_at(holder, day(2), 100)
    run_at(holder, subscription, day(2))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1, 15), day(3))]


def test_the_last_period_brings_the_share_of_its_days() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH), ends_at=day(3, 11))
    for month, amount in ((1, 310), (2, 310), (3, 100), (4, 0)):
        spend_at(holder, day(month), amount)
    run_at(holder, subscription, day(4))
    assert claims(subscription)[-1] == ("03-01", "03-11", 100)
    assert findings_of("credits", "ledger", "billing") == []


def test_what_a_plan_promises_after_a_phase_comes_however_long_no_run_comes() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    amend(subscription, day(3), plan=plan_of(500, "50.00", MONTH))
    amend(subscription, day(5), plan=plan_of(7, "1.00", MONTH, credit_type="sms"))
    for month, amount in ((1, 100), (2, 100), (3, 500), (4, 500), (5, 0)):
        spend_at(holder, day(month), amount)
    services.spend(holder_id=holder, credit_type="sms", amount=7, idempotency_key="sms")
    run_at(holder, subscription, day(5))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(6))]
    assert findings_of("credits", "sms", "ledger", "billing") == []


def test_a_pause_and_what_follows_it_come_by_the_clock() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH))
    amend(subscription, day(1, 11), paused=True)
    amend(subscription, day(1, 21), paused=False)
    spend_at(holder, day(1, 11), 100)
    spend_at(holder, day(1, 21) - INSTANT, 0)
    spend_at(holder, day(1, 21), 110)
    spend_at(holder, day(2), 310)
    run_at(holder, subscription, day(2))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(1, 11)), (day(1, 21), day(3))]


def test_more_periods_than_terms_name_come_in_the_rhythm_up_to_the_end() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH), ends_at=day(3, 11, 2032))
    for year, month in ((2029, 1), (2029, 2), (2030, 7), (2032, 2)):
        spend_at(holder, day(month, 1, year), 310)
    run_at(holder, subscription, day(2, 1, 2032))
    spend_at(holder, day(3, 1, 2032), 100)
    run_at(holder, subscription, day(4, 1, 2032))
    assert claims(subscription)[-1] == ("03-01", "03-11", 100)


def test_what_follows_after_24_instants_of_ordered_changes_comes_with_the_next_run() -> None:
    daily = Interval(IntervalUnit.DAY)
    holder, subscription = ordered(plan_of(100, "1.00", daily))
    amend(subscription, day(1, 11), plan=plan_of(500, "5.00", daily))
    amend(subscription, day(2, 10), plan=plan_of(7, "0.07", daily))
    spend_at(holder, day(1, 24), 500)
    spend_at(holder, day(1, 27), 0)
    run_at(holder, subscription, day(1, 27))
    spend_at(holder, day(2, 9), 500)
    spend_at(holder, day(2, 10), 7)
    spend_at(holder, day(6, 1), 7)
    run_at(holder, subscription, day(6, 1))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert findings_of("credits", "ledger", "billing") == []


# Changes within what has been granted ----------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_within_a_period_gives_back_and_grants_by_the_clock(name: str) -> None:
    amount, price, interval, wish, expected = CHANGES[name]
    holder, subscription = ordered(plan_of(amount, price, interval))
    run_at(holder, subscription, day(1))
    amend(subscription, day(1, 10), **wish())
    move(holder, day(1, 10) - INSTANT)
    assert available(holder) == amount
    move(holder, day(1, 10))
    with pytest.raises(InsufficientCredits):
        spend(holder, expected + 1)
    assert available(holder) == expected
    done = run_at(holder, subscription, day(1, 10))
    # The run says what the ledger did, and does no more.
    assert (available(holder), sum(one.amount for one in done.allowances)) == (expected, expected - amount)
    assert run_at(holder, subscription, day(1, 10)).allowances == []
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert findings_of("credits", "ledger", "billing") == []


@pytest.mark.parametrize(("spent", "left"), [(0, 29 + 709), (50, 709), (71, 709), (100, 709)])
def test_what_is_spent_before_a_change_does_not_go_back_by_the_clock(spent: int, left: int) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    amend(subscription, day(1, 10), plan=plan_of(1000, "50.00", MONTH))
    if spent:
        spend(holder, spent)
    spend_at(holder, day(1, 10), left)
    run_at(holder, subscription, day(1, 10))
    assert available(holder) == 0


def test_a_change_that_takes_no_credit_back_cuts_the_claim_too() -> None:
    """The billing day moves by hours: all days of the period are used, and its claim would reach into the next one."""
    noon, morning = day(1) + timedelta(hours=12), day(2) + timedelta(hours=6)
    holder, subscription = ordered(plan_of(10, "10.00", MONTH), started_at=noon)
    run_at(holder, subscription, noon)
    amend(subscription, morning, anchor_at=morning)
    spend_at(holder, morning, 10 + 10)
    run_at(holder, subscription, morning)
    assert claims(subscription) == [("01-01", "02-01", 10), ("02-01", "03-01", 10)]
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(noon, day(3) + timedelta(hours=6))]
    assert findings_of("credits", "ledger", "billing") == []


def test_the_parts_of_a_plan_that_rolls_over_and_of_the_one_after_it_are_claimed_when_the_run_is_late() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH, rollover_cap=20))
    run_at(holder, subscription, day(1))
    amend(subscription, day(1, 11), paused=True)
    amend(subscription, day(1, 21), paused=False)
    amend(subscription, day(1, 21), plan=plan_of(620, "62.00", MONTH))
    move(holder, day(1, 21))
    spend(holder, 1)
    run_at(holder, subscription, day(1, 21))
    assert claims(subscription) == [("01-01", "01-11", 100), ("01-21", "02-01", 220)]
    assert findings_of("credits", "ledger", "billing") == []


def test_a_change_that_is_withdrawn_before_it_comes_takes_nothing_back() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    amend(subscription, day(1, 10), ends_at=day(1, 10), sets_end=True)
    amend(subscription, day(1, 10), ends_at=None, sets_end=True)
    for month in (1, 2, 3):
        spend_at(holder, day(month), 100)
    run_at(holder, subscription, day(3))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(4))]


def test_an_order_for_the_past_is_made_good_by_the_ledger_at_once() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 15))
    amend(subscription, day(1, 10), plan=plan_of(1000, "50.00", MONTH))
    spend(holder, 29 + 709)
    done = run_at(holder, subscription, day(1, 15))
    assert [one.amount for one in done.allowances] == [-71, 709]
    assert (available(holder), days_of(subscription, Claim.Kind.ALLOWANCE)) == (0, [(day(1), day(2))])


def test_a_withdrawn_end_brings_what_it_had_cut_off_with_the_order() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH), ends_at=day(1, 11))
    run_at(holder, subscription, day(1))
    assert available(holder) == 100
    amend(subscription, day(1, 5), ends_at=None, sets_end=True)
    spend(holder, 310)
    assert granted(holder) == [("01-01", 100), ("01-01", 210)]
    run_at(holder, subscription, day(1, 5))
    assert (available(holder), claims(subscription)) == (0, [("01-01", "01-11", 100), ("01-11", "02-01", 210)])
    assert findings_of("credits", "ledger", "billing") == []


def test_an_order_that_begins_in_the_past_grants_at_once_what_has_not_expired() -> None:
    holder = unique("holder")
    move(holder, day(3, 10))
    subscription = SubscriptionFactory(
        customer=CustomerFactory(holder_id=holder).ref, plan=plan_of(100, "10.00", MONTH), started_at=day(1)
    )
    assert granted(holder) == [("03-01", 100)]
    spend_at(holder, day(4), 100)
    run_at(holder, subscription, day(4))
    assert [amount for *_, amount in claims(subscription)] == [0, 0, 100, 100]
    assert findings_of("credits", "ledger", "billing") == []


def test_an_order_that_began_more_than_a_hundred_periods_ago_grants_at_once_what_has_not_expired() -> None:
    holder = unique("holder")
    move(holder, day(7, 20))
    plan = plan_of(100, "1.00", Interval(IntervalUnit.DAY))
    subscription = SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan, started_at=day(1))
    assert granted(holder) == [("07-20", 100)]
    spend_at(holder, day(7, 21), 100)
    run_at(holder, subscription, day(7, 21))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(7, 22))]
    assert findings_of("credits", "ledger", "billing") == []


@pytest.mark.parametrize(("quantity", "amount"), [("1.5", 10), ("0.1", 0)])
def test_fractions_of_credits_are_rounded_down_for_each_period(quantity: str, amount: int) -> None:
    seats = [recurring(key="seats", unit_amount="5.00", model="unit")]
    plan = PlanFactory(prices=seats, interval=MONTH, allowance={"amount": 7, "per_quantity_of": "seats"})
    holder, subscription = ordered(plan.code, quantities={"seats": Decimal(quantity)})
    for month in (1, 2, 3):
        spend_at(holder, day(month), amount)
    assert len(granted(holder)) == (3 if amount else 0)
    run_at(holder, subscription, day(3))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(4))]
    assert run_at(holder, subscription, day(3)).allowances == []


# What rolls over -------------------------------------------------------------------------------------


def test_the_first_microsecond_of_a_period_finds_what_rolled_over_and_its_allowance_without_a_run() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=30))
    spend_at(holder, day(2) - INSTANT, 100)
    spend_at(holder, day(2), 100)
    move(holder, day(3) + INSTANT)
    spend(holder, 60)
    spend_at(holder, day(4), 130)
    assert granted(holder) == [("01-01", 100), ("02-01", 100), ("03-01", 100), ("04-01", 100)]
    run_at(holder, subscription, day(4))
    assert [amount for *_, amount in claims(subscription)] == [100] * 4
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert run_at(holder, subscription, day(4)).allowances == []
    assert findings_of("credits", "ledger", "billing") == []


def test_periods_of_what_rolls_over_that_a_long_pause_skips_are_claimed_without_credits() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=150))
    run_at(holder, subscription, day(1))
    spend_at(holder, day(4, 10, 2031), 250)
    assert granted(holder) == [("01-01", 100), ("02-01", 100), ("03-01", 100), ("04-01", 100)]
    run_at(holder, subscription, day(4, 10, 2031))
    assert [amount for *_, amount in claims(subscription)] == [100, *[0] * 24, 100, 100, 100]
    assert (available(holder), run_at(holder, subscription, day(4, 10, 2031)).allowances) == (0, [])
    assert findings_of("credits", "ledger", "billing") == []


def test_an_order_that_begins_in_the_past_grants_at_once_what_would_have_rolled_over() -> None:
    holder = unique("holder")
    move(holder, day(4, 10))
    customer = CustomerFactory(holder_id=holder)
    plan = plan_of(100, "10.00", MONTH, rollover_cap=150)
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan, started_at=day(1))
    assert granted(holder) == [("02-01", 50), ("03-01", 100), ("04-01", 100)]
    spend_at(holder, day(5), 150 + 100)
    run_at(holder, subscription, day(5))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(6))]
    assert (available(holder), findings_of("credits", "ledger", "billing")) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.check), 1, 2])
def test_what_can_be_spent_of_what_rolls_over_is_what_a_sum_by_hand_says(seed: int) -> None:
    """A calculator that knows neither lots nor claims: each month keeps the cap and brings its allowance."""
    chance = random.Random(seed)
    amount, cap = chance.choice([50, 100]), chance.choice([0, 30, 120, 260])
    holder, subscription = ordered(plan_of(amount, "10.00", MONTH, rollover_cap=cap))
    left = amount
    for month in range(1, 12):
        for number in sorted(chance.sample(range(1, 28), 2)):
            move(holder, day(month, number))
            used = chance.randrange(0, left + 1)
            with pytest.raises(InsufficientCredits):
                spend(holder, left + 1)
            if used:
                spend(holder, used)
            left -= used
        if chance.random() < 0.3:
            run_at(holder, subscription, day(month, 28))
        left = min(left, cap) + amount
    run_at(holder, subscription, day(12))
    assert available(holder) == left
    assert findings_of("credits", "ledger", "billing") == []


# Late, in steps and in time --------------------------------------------------------------------------


WISHES: dict[str, Callable[[], dict[str, Any]]] = {
    "more credits": lambda: {"plan": plan_of(1000, "50.00", MONTH)},
    "fewer credits": lambda: {"plan": plan_of(31, "3.10", MONTH)},
    "kept": lambda: {"plan": plan_of(1000, "50.00", MONTH), "allowance_change": AllowanceChange.KEEP},
    "full": lambda: {"plan": plan_of(1000, "50.00", MONTH), "allowance_change": AllowanceChange.FULL},
    "a year": lambda: {"plan": plan_of(1200, "120.00", YEAR)},
    "a week": lambda: {"plan": plan_of(25, "2.50", Interval(IntervalUnit.WEEK))},
    "rolling over": lambda: {"plan": plan_of(310, "31.00", MONTH, rollover_cap=45)},
    "rolling over weekly": lambda: {"plan": plan_of(40, "2.50", Interval(IntervalUnit.WEEK), rollover_cap=100)},
    "an end": lambda: {"ends_at": day(3, 6), "sets_end": True},
    "a pause": lambda: {"paused": True},
    "no pause": lambda: {"paused": False},
    "seats": lambda: {"quantities": {"fee": Decimal(3)}},
}


KINDS: list[dict[str, Any]] = [
    {},
    {"per_quantity_of": "fee"},
    {"rollover_cap": 0},
    {"rollover_cap": 60},
    {"rollover_cap": 150, "per_quantity_of": "fee"},
]


def live(seed: int, runs: str) -> tuple[list[int], list[tuple[str, str, int]]]:
    """What could be spent at the instants of a life of three months, and its claims in the end."""
    chance = random.Random(seed)
    amount, billing_day = chance.choice([100, 310, 7]), chance.choice([None, day(1, 15), day(1, 28)])
    plan = plan_of(amount, "31.00", MONTH, **chance.choice(KINDS))
    holder, subscription = ordered(plan, started_at=day(1, chance.choice([1, 5, 20])), anchor_at=billing_day)
    orders = {}
    for name in chance.sample(sorted(WISHES), 3):
        ordered_on = chance.randrange(0, 60)
        orders[ordered_on] = (name, ordered_on + chance.choice([0, 0, 3, 17]))
    days = sorted({*orders, *(on for _, on in orders.values()), *chance.sample(range(90), 14)})
    steps = {"in time": days, "in steps": chance.sample(days, 5), "late": []}[runs]
    spendable = []
    for n in days:
        now = day(1) + timedelta(days=n)
        move(holder, now)
        if n in orders:
            name, effective_on = orders[n]
            with suppress(Invalid):  # An order that does not fit the life is refused in each of the three.
                amend(subscription, max(day(1) + timedelta(days=effective_on), subscription.started_at), **WISHES[name]())
        if n in steps:
            run_at(holder, subscription, now)
        with pytest.raises(InsufficientCredits):
            spend(holder, 1_000_000)
        spendable.append(available(holder))
        used = random.Random(f"{seed}-{n}").randrange(0, 60)
        if 0 < used <= spendable[-1]:
            spend(holder, used)
        held = random.Random(f"{seed}-{n}-held").choice([0, 0, 25])
        if 0 < held <= available(holder):
            expires_at = now + timedelta(days=13, hours=7)
            services.hold(holder_id=holder, amount=held, expires_at=expires_at, idempotency_key=f"hold-{n}")
    run_at(holder, subscription, day(4))
    assert findings_of("credits", "ledger", "billing") == []
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    return spendable, claims(subscription)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.check), 1, 2, 3, 4, 5])
def test_what_can_be_spent_at_an_instant_depends_on_no_run(seed: int) -> None:
    in_time = live(seed, "in time")
    assert live(seed, "in steps") == in_time
    assert live(seed, "late") == in_time
