"""The ledger grants the allowance of a plan by the clock, by the terms that billing sets; runs claim what it granted."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Claim, Subscription
from billing.orders.customers import NewCredits
from billing.orders.suspension import resume, suspend
from billing.rating.periods import Interval, IntervalUnit
from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, metered, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.state.test_allowance_changes import (
    MONTH,
    available,
    day,
    days_of,
    move,
    ordered,
    plan_of,
    run_at,
)

pytestmark = pytest.mark.django_db

INSTANT = timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def spend(holder: str, amount: int) -> None:
    """Spend now, and no run has been there."""
    services.spend(holder_id=holder, amount=amount, idempotency_key=unique("spend"))


def granted(holder: str) -> list[tuple[str, int]]:
    """The days from which grants count, and their amounts."""
    rows = Entry.objects.filter(holder_id=holder, kind="grant").order_by("sequence")
    return [(f"{row.effective_at or row.recorded_at:%m-%d}", row.amount) for row in rows]


def next_grant(holder: str, credit_type: str = "credits") -> str | None:
    """When the ledger grants next."""
    at = Entry.objects.filter(holder_id=holder, credit_type=credit_type).latest("sequence").next_grant_at
    return None if at is None else f"{at:%Y-%m-%d}"


def claims(subscription: Subscription) -> list[tuple[str, str, int]]:
    """The spans of time with an allowance, and their credits."""
    found = Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None).order_by("starts_at")
    return [(f"{one.starts_at:%m-%d}", f"{one.ends_at:%m-%d}", int(one.quantity)) for one in found]


def test_the_first_microsecond_of_a_period_takes_from_its_allowance_without_a_run() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(2) - INSTANT)
    spend(holder, 100)
    with pytest.raises(InsufficientCredits):
        spend(holder, 1)
    move(holder, day(2))
    assert available(holder) == 100
    spend(holder, 100)
    # Nor in the next months: the ledger repeats the terms.
    for month in (3, 4):
        move(holder, day(month))
        spend(holder, 30)
    assert granted(holder) == [("01-01", 100), ("02-01", 100), ("03-01", 100), ("04-01", 100)]
    assert claims(subscription) == [("01-01", "02-01", 100)]
    done = run_at(holder, subscription, day(4))
    assert [(one.credit_type, one.amount, f"{one.starts_at:%m-%d}") for one in done.granted] == [
        ("credits", 100, "02-01"), ("credits", 100, "03-01"), ("credits", 100, "04-01"),
    ]  # fmt: skip
    assert (len(claims(subscription)), len(granted(holder)), available(holder)) == (4, 4, 70)
    assert run_at(holder, subscription, day(4)).granted == []
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    entry = Entry.objects.filter(holder_id=holder, kind="grant").latest("sequence")
    assert (entry.reason, entry.reference) == ("Plan allowance", f"subscription {subscription.ref}")
    assert findings_of("credits", "ledger", "billing") == []


def test_a_run_in_time_makes_the_same_grants_as_a_spend_before_a_late_run() -> None:
    (early, in_time), (late, later) = (ordered(plan_of(100, "10.00", MONTH, credit_type="credits")) for _ in range(2))
    for holder, subscription in ((early, in_time), (late, later)):
        run_at(holder, subscription, day(1))
    for month in (2, 3):
        run_at(early, in_time, day(month))
        spend(early, 60)
        move(late, day(month))
        spend(late, 60)
    run_at(late, later, day(3))
    assert (granted(late), claims(later), available(late)) == (granted(early), claims(in_time), available(early))
    assert claims(later) == [("01-01", "02-01", 100), ("02-01", "03-01", 100), ("03-01", "04-01", 100)]


def test_periods_that_the_ledger_skipped_after_a_long_pause_are_claimed_without_credits() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, datetime(2030, 4, 10, tzinfo=UTC))
    spend(holder, 30)
    assert granted(holder) == [("01-01", 100), ("04-01", 100)]
    run_at(holder, subscription, datetime(2030, 4, 10, tzinfo=UTC))
    found = claims(subscription)
    assert [amount for *_, amount in found] == [100, *[0] * 14, 100]
    assert (available(holder), findings_of("credits", "ledger", "billing")) == (70, [])


def test_a_subscription_that_begins_later_has_its_allowance_in_its_first_microsecond() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH), started_at=day(2))
    move(holder, day(2))
    spend(holder, 100)
    run_at(holder, subscription, day(2))
    assert (granted(holder), claims(subscription)) == ([("02-01", 100)], [("02-01", "03-01", 100)])


def test_periods_end_on_the_last_days_of_months_as_those_of_the_money() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH), started_at=day(1, 31), anchor_at=day(1, 31))
    run_at(holder, subscription, day(1, 31))
    for month, number in ((2, 28), (3, 31), (4, 30)):
        move(holder, day(month, number) - INSTANT)
        with pytest.raises(InsufficientCredits):
            spend(holder, 101)
        move(holder, day(month, number))
        spend(holder, 100)
    run_at(holder, subscription, day(4, 30))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert len(claims(subscription)) == 4


def test_a_quarter_with_credits_in_each_month_repeats_the_months() -> None:
    quarter = Interval(IntervalUnit.QUARTER)
    holder, subscription = ordered(plan_of(300, "30.00", quarter))
    run_at(holder, subscription, day(1))
    assert next_grant(holder) == "2029-04-01"
    monthly = plan_of(100, "30.00", quarter, interval={"unit": "month", "count": 1})
    other, subscription = ordered(monthly)
    run_at(other, subscription, day(1))
    move(other, day(3))
    spend(other, 100)
    assert granted(other) == [("01-01", 100), ("02-01", 100), ("03-01", 100)]


@pytest.mark.parametrize("is_late", [False, True])
def test_what_the_ledger_granted_by_earlier_terms_goes_back_by_the_proration(is_late: bool) -> None:
    """The amendment takes effect within a period that a spend has begun; the run comes then, or later."""
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(2))
    spend(holder, 10)
    move(holder, day(2, 15))
    amend(subscription, day(2, 15), plan=plan_of(280, "28.00", MONTH))
    run_at(holder, subscription, day(2, 20) if is_late else day(2, 15))
    # Half of February's 100, and half of 280.
    assert claims(subscription)[1:] == [("02-01", "02-15", 50), ("02-15", "03-01", 140)]
    assert (available(holder), next_grant(holder)) == (40 + 140, "2029-03-01")
    move(holder, day(3))
    spend(holder, 280)
    run_at(holder, subscription, day(3))
    assert claims(subscription)[-1] == ("03-01", "04-01", 280)
    assert findings_of("credits", "ledger", "billing") == []


def test_an_amendment_for_the_past_cuts_what_the_ledger_has_granted_since() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(2))
    spend(holder, 10)
    amend(subscription, day(1, 16), ends_at=day(1, 16), sets_end=True)
    assert next_grant(holder) is None
    run_at(holder, subscription, day(2))
    assert (claims(subscription), available(holder)) == ([("01-01", "01-16", 48)], 0)
    assert findings_of("credits", "ledger", "billing") == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ends_at": day(3), "sets_end": True}, ["01-01", "02-01"]),
        ({"ends_at": day(3, 15), "sets_end": True}, ["01-01", "02-01"]),
        ({"paused": True}, ["01-01"]),
    ],
)
def test_after_an_end_or_a_pause_the_ledger_grants_nothing(change: Any, expected: list[str]) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    amend(subscription, day(1, 20), **change)
    for month in (2, 3, 4):
        move(holder, day(month))
        services.grant(holder_id=holder, amount=1, idempotency_key=unique("other"))
    assert [at for at, amount in granted(holder) if amount == 100] == expected


def test_while_billing_is_suspended_the_ledger_grants_nothing() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    suspend(ref=subscription.ref, reason="overdue")
    assert next_grant(holder) is None
    move(holder, day(2))
    with pytest.raises(InsufficientCredits):
        spend(holder, 101)
    resume(ref=subscription.ref, actor="ann", reason="paid")
    run_at(holder, subscription, day(2))
    assert (granted(holder), next_grant(holder)) == ([("01-01", 100), ("02-01", 100)], "2029-03-01")


def test_another_quantity_and_another_credit_type_set_other_terms() -> None:
    seats = [recurring(key="seats", unit_amount="5.00", model="unit")]
    plan = PlanFactory(prices=seats, interval=MONTH, allowance={"amount": 10, "per_quantity_of": "seats"})
    holder, subscription = ordered(plan.code, quantities={"seats": Decimal(3)})
    run_at(holder, subscription, day(1))
    move(holder, day(1, 20))
    amend(subscription, day(2), quantities={"seats": Decimal(5)})
    move(holder, day(2))
    spend(holder, 50)
    run_at(holder, subscription, day(2))
    assert claims(subscription) == [("01-01", "02-01", 30), ("02-01", "03-01", 50)]
    amend(subscription, day(3), plan=plan_of(7, "1.00", MONTH, credit_type="sms"))
    run_at(holder, subscription, day(2))
    move(holder, day(3))
    services.spend(holder_id=holder, credit_type="sms", amount=7, idempotency_key="sms")
    assert (available(holder), next_grant(holder), next_grant(holder, "sms")) == (0, None, "2029-04-01")


@pytest.mark.parametrize("name", ["rolls over for usage", "pays usage", "pays invoices"])
def test_what_runs_grant_in_an_order_of_their_own_has_no_terms(name: str) -> None:
    holder, pays = unique("holder"), NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    move(holder, day(1))
    customer = CustomerFactory(holder_id=holder, **({"credits": pays} if name == "pays invoices" else {}))
    allowance = {"amount": 100} | ({"rollover_cap": 50} if name == "rolls over for usage" else {})
    prices = [recurring(), *([metered(credits={"credit_type": "credits", "per_unit": "1"})] if "usage" in name else [])]
    plan = PlanFactory(prices=prices, interval=MONTH, allowance=allowance)
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=day(1))
    for month in (1, 2):
        run_at(holder, subscription, day(month))
        assert next_grant(holder) is None
    assert sum(amount for _, amount in granted(holder)) == 200


def test_a_dry_run_claims_what_the_ledger_would_grant_and_writes_nothing() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(2))
    before = reads.balance(holder).sequence
    tried = generate_in(ref=subscription.ref, options=Options(as_of=day(2), dry_run=True))
    assert [(one.amount, f"{one.starts_at:%m-%d}") for one in tried.granted] == [(100, "02-01")]
    assert (reads.balance(holder).sequence, claims(subscription)) == (before, [("01-01", "02-01", 100)])
