"""A plan with an allowance, overage and a cap: decided at the call by the ledger, invoiced as the sum of its entries."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.generator.state import overage
from billing.models import Claim, Invoice, Subscription
from billing.orders.subscriptions import Wish, amend_subscription
from billing.orders.suspension import suspend
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import HolderBusy, InsufficientCredits
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, recurring, transition, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db

START = datetime(2040, 1, 1, tzinfo=UTC)
FEBRUARY, MARCH, APRIL = (datetime(2040, month, 1, tzinfo=UTC) for month in (2, 3, 4))
DAY = timedelta(days=1)
PRICE = {"model": "unit", "unit_amount": "0.02"}
ALLOWANCE = {"amount": 1000, "rollover_cap": None}


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def holder() -> str:
    """A holder for whom it is the start of 2040."""
    name = unique("holder")
    move(name, START - 9 * 365 * DAY)
    move(name, START)
    return name


def move(holder: str, now: datetime) -> None:
    services.set_clock(holder_id=holder, now=now, idempotency_key=f"clock-{now}")


def subscribed(holder: str, *, allowance: Any = ALLOWANCE, started_at: datetime = START, **terms: Any) -> Subscription:
    """A subscription from the start of 2040: 1,000 credits a month, overage at 0.02, and a first run."""
    plan = PlanFactory(prices=[recurring()], allowance=allowance, overage={"price": PRICE} | terms)
    customer = CustomerFactory(holder_id=holder)
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=started_at)
    run()
    return subscription


def run() -> None:
    """What the worker does."""
    call_command("generate_invoices", "--no-progress")


def spend(holder: str, amount: int) -> Any:
    return services.spend(holder_id=holder, amount=amount, idempotency_key=unique("spend"))


def refund(holder: str, spent: Any, amount: int | None = None) -> Any:
    return services.refund(holder_id=holder, spend=spent.sequence, amount=amount, idempotency_key=unique("refund"))


def overage_lines(subscription: Subscription) -> list[tuple[str, str, str, int]]:
    """Period, kind, quantity and amount of each line of overage, the oldest first."""
    invoices = Invoice.objects.filter(subscription=subscription.pk).exclude(state="void").order_by("id")
    return [
        (f"{line.starts_at:%m-%d}", line.kind, f"{line.quantity:f}".rstrip("0").rstrip("."), line.amount_minor)
        for invoice in invoices
        for line in invoice.lines.order_by("position")
        if line.price_key == "overage"
    ]


def assert_clean(holder: str) -> None:
    """Assert that neither the ledger nor billing breaks a law."""
    assert audit([connection.connection], holder_id=holder).findings == []
    assert findings_of("overage", "cursor", "credits", "usage") == []


def test_what_is_used_beyond_the_allowance_is_invoiced_and_the_next_allowance_is_whole(holder):
    subscription = subscribed(holder, limit_credits=500)
    assert [spend(holder, amount).postpaid for amount in (900, 300, 300)] == [None, 200, 300]
    with pytest.raises(InsufficientCredits) as refused:
        spend(holder, 1)
    assert refused.value.facts["overage"] == {"limit": 500, "used": 500, "until": "2040-02-01T00:00:00.000000Z"}
    move(holder, FEBRUARY)
    run()
    assert overage_lines(subscription) == [("01-01", "usage", "500", 1000)]
    balance = reads.balance(holder)
    assert (balance.available, balance.owed, balance.overage and balance.overage.used) == (1000, 0, 0)
    run()
    assert len(overage_lines(subscription)) == 1
    assert_clean(holder)


def test_the_line_says_by_which_rates_the_overage_was_used(holder):
    for code in ("answers", "images"):
        services.publish_rate(code=code, price=1, per=1, idempotency_key=code)
    subscription = subscribed(holder, allowance=None)

    def used(code: str, quantity: int) -> Any:
        return services.spend(holder_id=holder, rate=code, quantity=quantity, idempotency_key=unique("spend"))

    given_back, _ = used("images", 70), used("answers", 200)
    refund(holder, given_back, 30)
    spend(holder, 10)
    held = services.hold(holder_id=holder, rate="images", quantity=50, idempotency_key="hold")
    services.capture(holder_id=holder, hold=held.sequence, amount=60, over_capture="if_available", idempotency_key="capture")
    services.hold(holder_id=holder, rate="images", quantity=500, idempotency_key="open")
    move(holder, FEBRUARY)
    run()
    [line] = [each for each in Invoice.objects.get(subscription=subscription.pk, lines__price_key="overage").lines.all()
              if each.price_key == "overage"]  # fmt: skip
    by_rate = [{"rate": "answers", "credits": 200}, {"rate": "images", "credits": 100}, {"rate": None, "credits": 10}]
    assert (line.quantity, line.rating["by_rate"]) == (310, by_rate)
    assert_clean(holder)


def test_the_check_finds_a_claim_that_is_not_the_sum_of_the_entries(holder):
    subscription = subscribed(holder, limit_credits=500)
    spend(holder, 1_100)
    move(holder, FEBRUARY)
    run()
    claim = Claim.objects.get(subscription_id=subscription.pk, kind=Claim.Kind.USAGE)
    Claim.objects.filter(pk=claim.pk).update(snapshot=claim.snapshot | {"quantity": "99"})
    [found] = findings_of("overage billed differs")
    assert "99 credits are billed, the ledger has 100" in found


def test_an_allowance_prepaid_credits_and_overage_are_taken_in_this_order(holder):
    services.grant(holder_id=holder, amount=50, idempotency_key="pack")
    subscribed(holder)
    entry = spend(holder, 1_100)
    assert ([amount for _, amount in entry.drawn], entry.postpaid) == ([1000, 50, 50], 50)


def test_a_refund_in_the_period_lowers_its_line_and_a_later_one_is_credited_on_the_next_invoice(holder):
    subscription = subscribed(holder)
    first, second = spend(holder, 1_100), spend(holder, 100)
    refund(holder, first, 30)
    move(holder, FEBRUARY)
    run()
    assert overage_lines(subscription) == [("01-01", "usage", "170", 340)]
    refund(holder, second)
    assert reads.balance(holder).available == 1000
    run()
    assert len(overage_lines(subscription)) == 1
    move(holder, MARCH)
    run()
    assert overage_lines(subscription)[1:] == [("01-01", "late_usage", "70", -200)]
    assert_clean(holder)


def test_a_hold_across_the_boundary_belongs_to_the_period_in_which_it_was_made(holder):
    subscription = subscribed(holder, allowance=None, limit_credits=60)
    move(holder, FEBRUARY - timedelta(microseconds=1))
    spend(holder, 10)
    held = services.hold(holder_id=holder, amount=50, expires_at=FEBRUARY + DAY, idempotency_key="hold")
    move(holder, FEBRUARY)
    run()
    assert overage_lines(subscription) == [("01-01", "usage", "10", 20)]
    assert spend(holder, 60).postpaid == 60
    services.capture(holder_id=holder, hold=held.sequence, amount=20, idempotency_key="capture")
    move(holder, MARCH)
    run()
    assert overage_lines(subscription)[1:] == [("02-01", "usage", "60", 120), ("01-01", "late_usage", "30", 40)]
    assert_clean(holder)


@pytest.mark.parametrize("steps", [[MARCH], [FEBRUARY, MARCH], [START + 10 * DAY, FEBRUARY, FEBRUARY + 10 * DAY, MARCH]])
def test_late_and_stepwise_runs_bill_what_runs_in_time_bill(holder, steps):
    subscription = subscribed(holder, allowance=None)
    spend(holder, 7)
    move(holder, FEBRUARY + DAY)
    spend(holder, 5)
    move(holder, MARCH)
    for as_of in steps:
        generate_in(ref=subscription.ref, options=Options(as_of=as_of))
    assert overage_lines(subscription) == [("01-01", "usage", "7", 14), ("02-01", "usage", "5", 10)]
    assert_clean(holder)


def test_a_voided_invoice_is_made_again_to_the_same_cent(holder):
    subscription = subscribed(holder, allowance=None)
    spent = spend(holder, 7)
    move(holder, FEBRUARY)
    run()
    [line] = overage_lines(subscription)
    voided = Invoice.objects.filter(lines__price_key="overage", subscription=subscription.pk).get()
    transition(voided.pk, "void")
    run()
    assert overage_lines(subscription) == [line]
    transition(Invoice.objects.filter(lines__price_key="overage", state="open", subscription=subscription.pk).get().pk, "void")
    refund(holder, spent, 2)
    run()
    assert overage_lines(subscription) == [("01-01", "usage", "5", 10)]
    assert_clean(holder)


@pytest.mark.parametrize(
    ("price", "limit_minor", "limit"),
    [
        (PRICE, 1000, 500),
        (PRICE, 0, 0),
        (PRICE, 1, 0),
        ({"model": "unit", "unit_amount": "0.003"}, 1, 4),
        ({"model": "package", "unit_amount": "5.00", "package_size": 100}, 1499, 200),
        ({"model": "graduated", "tiers": [{"up_to": 10, "unit_amount": "1.00"}, {"unit_amount": "0.50"}]}, 1100, 12),
        ({"model": "volume", "tiers": [{"up_to": 100, "unit_amount": "1.00"}, {"unit_amount": "0.50"}]}, 8000, 80),
        ({"model": "volume", "tiers": [{"up_to": 100, "unit_amount": "1.00"}, {"unit_amount": "0.50"}]}, 10000, 200),
        ({"model": "unit", "unit_amount": "0"}, 5, None),
    ],
)
def test_a_cap_in_money_is_as_many_credits_as_cost_no_more(holder, price, limit_minor, limit):
    subscribed(holder, price=price, limit_minor=limit_minor)
    overage = reads.balance(holder).overage
    assert overage is not None
    assert overage.limit == limit


def test_a_change_of_plan_bills_each_part_at_its_price_and_an_end_ends_the_terms(holder):
    subscription = subscribed(holder, allowance=None, limit_credits=100)
    spend(holder, 10)
    dearer = PlanFactory(prices=[recurring()], overage={"price": {"model": "unit", "unit_amount": "0.10"}, "limit_credits": 40})
    move(holder, START + 10 * DAY)
    amend_subscription(ref=subscription.ref, effective_at=START + 10 * DAY, wish=Wish(plan=dearer.code))
    run()
    overage = reads.balance(holder).overage
    assert overage is not None
    assert (overage.limit, overage.used) == (40, 10)
    spend(holder, 30)
    amend_subscription(ref=subscription.ref, effective_at=START + 10 * DAY, wish=Wish(sets_end=True, ends_at=FEBRUARY))
    run()
    move(holder, FEBRUARY)
    with pytest.raises(InsufficientCredits):
        spend(holder, 1)
    run()
    lines = overage_lines(subscription)
    assert [(start, amount) for start, _, _, amount in lines] == [("01-01", 20), ("01-11", 300)]
    assert reads.balance(holder).overage is None
    assert_clean(holder)


def test_a_subscription_that_begins_later_has_its_terms_from_then_on(holder):
    subscribed(holder, allowance=None, started_at=START + 10 * DAY)
    assert reads.balance(holder).overage is None
    move(holder, START + 10 * DAY)
    run()
    overage = reads.balance(holder).overage
    assert overage is not None
    assert overage.reference.startswith("SUB")


def test_a_plan_without_overage_sets_no_terms(holder):
    plan = PlanFactory(prices=[recurring()], allowance=ALLOWANCE)
    SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan.code, started_at=START)
    run()
    assert reads.balance(holder).overage is None
    assert [entry.shown_overage for entry in reads.entries(holder, limit=10)] == [None] * 4


def test_a_dry_run_shows_the_line_and_writes_nothing(holder):
    subscription = subscribed(holder, allowance=None)
    spend(holder, 7)
    move(holder, FEBRUARY)
    before = reads.balance(holder).sequence
    [invoice] = bill(subscription, FEBRUARY, dry_run=True)
    assert [line["amount_minor"] for line in invoice["lines"] if line["price_key"] == "overage"] == [14]
    assert (reads.balance(holder).sequence, len(overage_lines(subscription))) == (before, 0)


def overage_of(holder: str) -> Any:
    return reads.balance(holder).overage


def test_an_order_sets_the_terms_at_once_without_a_run(holder):
    plan = PlanFactory(overage={"price": PRICE, "limit_credits": 60})
    customer = CustomerFactory(holder_id=holder)
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=START)
    assert (overage_of(holder).limit, overage_of(holder).reference) == (60, subscription.ref)
    spend(holder, 50)
    larger = PlanFactory(overage={"price": PRICE, "limit_credits": 100})
    amend_subscription(ref=subscription.ref, effective_at=START, wish=Wish(plan=larger.code))
    assert (overage_of(holder).limit, overage_of(holder).used) == (100, 50)
    spend(holder, 50)
    smaller = PlanFactory(overage={"price": PRICE, "limit_credits": 20})
    amend_subscription(ref=subscription.ref, effective_at=START, wish=Wish(plan=smaller.code))
    with pytest.raises(InsufficientCredits) as refused:
        spend(holder, 1)
    assert refused.value.facts["overage"] == {"limit": 20, "used": 100, "until": "2040-02-01T00:00:00.000000Z"}
    without = PlanFactory()
    amend_subscription(ref=subscription.ref, effective_at=START, wish=Wish(plan=without.code))
    assert overage_of(holder) is None
    sequence = reads.balance(holder).sequence
    run()
    assert reads.balance(holder).sequence == sequence, "the run finds the terms as they are"
    assert_clean(holder)


def test_orders_of_plans_without_overage_or_for_later_set_no_terms(holder):
    customer = CustomerFactory(holder_id=holder)
    subscription = SubscriptionFactory(customer=customer.ref, plan=PlanFactory().code, started_at=START)
    later = PlanFactory(overage={"price": PRICE, "limit_credits": 60})
    amend_subscription(ref=subscription.ref, effective_at=FEBRUARY, wish=Wish(plan=later.code))
    assert reads.balance(holder).sequence == 2  # the moves of the clock
    assert_clean(holder)


def test_terms_wait_for_the_run_while_billing_is_suspended_or_the_first_payment_is_due(holder):
    plan = PlanFactory(overage={"price": PRICE, "limit_credits": 60})
    customer = CustomerFactory(holder_id=holder)
    SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=START, starts_when_paid=True)
    assert overage_of(holder) is None
    other = unique("holder")
    payer = CustomerFactory(holder_id=other)
    subscription = SubscriptionFactory(customer=payer.ref, plan=PlanFactory().code, started_at=START - 9 * 365 * DAY)
    suspend(ref=subscription.ref, reason="amount", facts={}, run_id=None)
    amend_subscription(ref=subscription.ref, effective_at=subscription.started_at, wish=Wish(plan=plan.code))
    assert overage_of(other) is None


def test_an_order_is_stored_although_the_holder_is_busy_and_the_next_run_sets_the_terms(holder, monkeypatch):
    plan = PlanFactory(overage={"price": PRICE, "limit_credits": 60})
    customer = CustomerFactory(holder_id=holder)

    def busy(*_: Any) -> None:
        raise HolderBusy(holder_id=holder)

    with monkeypatch.context() as patched:
        patched.setattr(overage, "holder_lock", busy)
        SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=START)
    assert overage_of(holder) is None
    run()
    assert overage_of(holder).limit == 60


def test_a_refund_after_the_end_of_the_subscription_is_credited_by_the_next_run(holder):
    subscription = subscribed(holder, allowance=None)
    spent = spend(holder, 100)
    amend_subscription(ref=subscription.ref, effective_at=START + DAY, wish=Wish(sets_end=True, ends_at=FEBRUARY))
    move(holder, MARCH)
    run()
    assert overage_lines(subscription) == [("01-01", "usage", "100", 200)]
    refund(holder, spent, 30)
    run()
    assert overage_lines(subscription)[1:] == [("01-01", "late_usage", "70", -60)]
    assert_clean(holder)
