"""When periods begin and end: moved billing days, pauses that charge, ends that give nothing back, trials, invoices held back."""

import pytest

from billing import reads
from billing.auditing import consistency
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.state.unbilled_usage import find_unbilled_usage
from billing.models import Amendment, Claim, Subscription
from billing.orders import customers
from billing.orders.subscriptions import Invalid, UnusedTime
from billing.rating.periods import Interval, IntervalUnit
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, use
from tests.billing.generator.run.test_generate import bill
from tests.billing.orders.test_amendments import lines_of, monthly

pytestmark = pytest.mark.django_db
FAR = {"year": 2099}


def test_a_moved_billing_day_ends_the_running_period_at_its_first_boundary():
    subscription = monthly()
    amend(subscription, at(1, 11), anchor_at=at(1, 15))
    assert bill(subscription, at(1, 14)) == []
    assert lines_of(bill(subscription, at(1, 15))) == [
        [("credit", "base", -1700, "01-15", "02-01"), ("recurring", "base", 3100, "01-15", "02-15")]
    ]
    assert lines_of(bill(subscription, at(2, 15))) == [[("recurring", "base", 3100, "02-15", "03-15")]]
    assert reads.subscription(subscription.ref).row.anchor_at == at(1, 15)
    assert consistency.check() == []


def test_usage_follows_the_moved_day_and_late_usage_finds_its_period():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="1.00")]).code)
    amend(subscription, at(1, 2), anchor_at=at(1, 15))
    use(subscription, "3", at(1, 5))
    use(subscription, "4", at(1, 20))
    assert lines_of(bill(subscription, at(2, 15))) == [
        [("usage", "calls", 300, "01-01", "01-15"), ("usage", "calls", 400, "01-15", "02-15")]
    ]
    use(subscription, "5", at(1, 31))
    assert lines_of(bill(subscription, at(2, 16))) == [[("late_usage", "calls", 500, "01-15", "02-15")]]
    assert {"anchor_at" in claim.snapshot for claim in Claim.objects.filter(starts_at=at(1, 15))} == {True}
    assert consistency.check() == []


def test_a_back_dated_move_gives_back_what_no_longer_fits_and_charges_it_again():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    bill(subscription, at(2, 1))
    amend(subscription, at(1, 2), anchor_at=at(1, 15))
    [lines] = lines_of(bill(subscription, at(2, 15)))
    # January keeps 14 days; 17 days and February are given back; two full periods instead.
    assert sorted(lines) == [
        ("credit", "base", -3100, "02-01", "03-01"),
        ("credit", "base", -1700, "01-15", "02-01"),
        ("recurring", "base", 3100, "01-15", "02-15"),
        ("recurring", "base", 3100, "02-15", "03-15"),
    ]
    assert consistency.check() == []


def test_a_pause_that_charges_keeps_fees_and_drops_usage():
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=[recurring(unit_amount="31.00"), metered(unit_amount="1.00")]).code
    )
    amend(subscription, at(1, 11), paused=True, charges_while_paused=True)
    use(subscription, "5", at(1, 5))
    use(subscription, "7", at(1, 15))
    [first] = lines_of(bill(subscription, at(2, 1)))
    assert [amount for _, _, amount, *_ in first] == [3100, 500, 3100]
    row = reads.subscription(subscription.ref).row
    assert (row.state, row.is_active) == ("paused", True)
    [unbilled] = find_unbilled_usage(lookback=None)
    assert (unbilled.reason, unbilled.events) == ("in-pause", 1)
    assert {one["finding"] for one in consistency.check()} <= {"usage that no run bills"}


def test_of_two_moves_the_later_amendment_decides_even_if_the_earlier_one_begins_after_it():
    subscription = monthly()
    amend(subscription, at(1, 3), anchor_at=at(1, 29))
    amend(subscription, at(1, 11), anchor_at=at(1, 15))
    assert lines_of(bill(subscription, at(1, 15)))[0][-1] == ("recurring", "base", 3100, "01-15", "02-15")
    assert lines_of(bill(subscription, at(2, 15))) == [[("recurring", "base", 3100, "02-15", "03-15")]]


def test_an_end_that_skips_leaves_the_paid_period_charged_however_late_the_run():
    in_time, late = monthly(), SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    for subscription in (in_time, late):
        amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11), unused_time=UnusedTime.SKIP)
    assert bill(in_time, at(3, 1)) == []
    assert lines_of(bill(late, at(3, 1))) == [[("recurring", "base", 3100, "01-01", "02-01")]]


def test_a_reactivation_does_not_charge_the_skipped_time_twice():
    subscription = monthly()
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11), unused_time=UnusedTime.SKIP)
    amend(subscription, at(1, 21), sets_end=True)
    assert lines_of(bill(subscription, at(2, 1))) == [[("recurring", "base", 3100, "02-01", "03-01")]]


def test_an_end_in_the_trial_charges_nothing_whatever_it_does_with_unused_time():
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")]).code
    subscription = SubscriptionFactory(plan=plan, trial_end=at(1, 16))
    amend(subscription, at(1, 5), sets_end=True, ends_at=at(1, 11), unused_time=UnusedTime.SKIP)
    assert bill(subscription, at(3, 1)) == []


def test_a_trial_is_ended_early_while_it_runs():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, trial_end=at(1, 16, **FAR))
    assert bill(subscription, at(1, 11)) == []
    amend(subscription, at(1, 11), trial_end=at(1, 11))
    assert lines_of(bill(subscription, at(1, 11))) == [[("recurring", "base", 2100, "01-11", "02-01")]]
    with pytest.raises(Invalid, match="trial-goes-on"):
        amend(subscription, at(1, 12), trial_end=at(1, 20, **FAR))
    assert Amendment.objects.filter(subscription=subscription).count() == 2


def test_a_trial_is_extended_and_cannot_end_before_the_start():
    subscription = SubscriptionFactory(plan=PlanFactory().code, trial_end=at(1, 16, **FAR))
    amend(subscription, at(1, 11), trial_end=at(2, 16, **FAR))
    with pytest.raises(Invalid, match="after-start"):
        amend(subscription, at(1, 11), trial_end=at(12, 31, year=2025))
    subscription.refresh_from_db()
    assert subscription.trial_end == at(2, 16, **FAR)


def test_invoices_are_held_back_by_the_customer_or_by_the_subscription():
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")]).code
    customer = CustomerFactory(hold_days=10)
    held, own = (SubscriptionFactory(customer=customer.ref, plan=plan, hold_days=days) for days in (None, 2))
    assert [bill(one, at(1, 2)) for one in (held, own)] == [[], []]
    assert list(DueWalk(DueFilter(as_of=at(1, 2)))) == []
    assert len(bill(own, at(1, 3))) == 1
    assert bill(held, at(1, 10)) == []
    assert lines_of(bill(held, at(1, 11))) == [[("recurring", "base", 3100, "01-01", "02-01")]]
    # Due on 1 February, and looked at from the day on which its invoice is made.
    assert list(DueWalk(DueFilter(as_of=at(2, 2)))) == []
    assert list(DueWalk(DueFilter(as_of=at(2, 3)))) == [own.ref]
    assert reads.subscription(own.ref).row.due_at == at(2, 3)
    customers.change_customer(ref=customer.ref, hold_days=0)
    assert len(bill(held, at(2, 1))) == 1
    amend(own, at(2, 1), sets_hold=True)
    assert len(bill(own, at(2, 1))) == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"unused_time": "skip"}, "/unused_time"),
        ({"ends_at": None, "unused_time": "skip"}, "/unused_time"),
        ({"ends_at": "2026-02-01T00:00:00Z", "unused_time": "never"}, "/unused_time"),
        ({"charges_while_paused": True}, "/charges_while_paused"),
        ({"paused": False, "charges_while_paused": True}, "/charges_while_paused"),
        ({"anchor_at": "1999-01-01T00:00:00Z"}, "/anchor_at"),
        ({"hold_days": 367}, "/hold_days"),
        ({"hold_days": -1}, "/hold_days"),
        ({"hold_days": 1, "paused": True}, ""),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_not_written(api, body, pointer):
    subscription = SubscriptionFactory(plan=PlanFactory().code)
    response = api.post(f"/v1/subscriptions/{subscription.ref}/amendments", {"effective_at": "2026-01-01T00:00:00Z", **body})
    assert response.status_code == 400, response.content
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert Amendment.objects.count() == 1
    assert Subscription.objects.get().hold_days is None


def test_the_dry_run_of_an_amendment_shows_the_run_after_the_days_held_back(api):
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, started_at=at(1, 1, **FAR), hold_days=5
    )
    body = {"effective_at": "2099-01-01T00:00:00Z", "price_override": {"percent_off": "10"}}
    response = api.post(f"/v1/subscriptions/{subscription.ref}/amendments?dry_run=true", body)
    assert response.status_code == 200, response.content
    assert [one["total_minor"] for one in response.json()["invoices"]] == [2790]


def test_a_billing_day_that_is_moved_to_the_same_day_cuts_no_period_of_a_plan_that_is_back_dated():
    subscription = monthly()
    amend(subscription, at(1, 10), anchor_at=at(1, 1))
    weekly = PlanFactory(prices=[recurring(unit_amount="14.00")], interval=Interval(IntervalUnit.WEEK, 2)).code
    # Two weeks from 29 January on have the 1 February in them, on which the billing day was to be moved.
    amend(subscription, at(1, 15), plan=weekly)
    bill(subscription, at(1, 29))
    claims = Claim.objects.filter(subscription=subscription.pk, released_at=None, starts_at__gte=at(1, 15))
    assert sorted(claims.values_list("starts_at", "ends_at")) == [(at(1, 15), at(1, 29)), (at(1, 29), at(2, 12))]
