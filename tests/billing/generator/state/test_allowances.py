"""Credits that a plan grants each period: how many, until when, once, and in which order with what pays."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from billing.documents import finalisation, invoices
from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.generate import generate_in
from billing.generator.state.allowance_times import AllowanceSpan, HeldAllowance, next_allowance, over_cap, reconcile_allowances
from billing.models import Claim, Cursor
from billing.orders import subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from billing.rating.periods import Interval, IntervalUnit, Schedule, add_months
from ledger import reads, services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique
from tests.billing.generator.run.test_generate import bill
from tests.billing.generator.state.test_allowance_changes import MONTH, day, move, ordered, plan_of, run_at

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def midnight() -> datetime:
    """The last midnight: a period that begins there can still be spent from."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def with_allowance(amount: int, cap: int | None = None, *, months_ago: int = 0, prices: Any = None, **fields: Any) -> Any:
    """A holder and a subscription on a plan that grants `amount` credits a month."""
    holder = unique("holder")
    customer = CustomerFactory(holder_id=holder, **fields)
    plan = PlanFactory(prices=prices or [recurring()], allowance={"amount": amount, "rollover_cap": cap})
    start = add_months(midnight(), -months_ago)
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=start)


def movements(holder: str) -> list[tuple[str, int]]:
    """Kind and amount of the holder's entries but settings, oldest first."""
    return [(str(one.kind), one.amount) for one in reversed(reads.entries(holder, limit=100)) if one.kind != "adjust"]


def test_the_allowance_of_a_period_comes_with_its_invoice_and_expires_with_it():
    holder, subscription = with_allowance(500)
    generated = generate_in(ref=subscription.ref, options=Options(as_of=midnight()))
    assert [(one.credit_type, one.amount) for one in generated.granted] == [("credits", 500)]
    [lot] = reads.balance(holder).lots
    assert (lot.remaining, lot.source, lot.effective_at) == (500, "promotional", midnight())
    assert lot.expires_at == add_months(midnight(), 1)
    claim = Claim.objects.get(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE)
    assert (claim.starts_at, claim.ends_at, claim.quantity) == (midnight(), add_months(midnight(), 1), 500)


def test_a_period_is_granted_once_however_often_the_generator_looks():
    holder, subscription = with_allowance(500)
    bill(subscription, midnight())
    Cursor.objects.filter(pk=subscription.pk).delete()
    assert bill(subscription, midnight()) == []
    assert movements(holder) == [("grant", 500)]


def test_without_the_claim_the_idempotency_key_still_grants_once():
    holder, subscription = with_allowance(500)
    bill(subscription, midnight())
    Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE).update(released_at=midnight())
    bill(subscription, midnight())
    assert movements(holder) == [("grant", 500)]


def test_voiding_neither_takes_the_allowance_back_nor_gives_it_again():
    holder, subscription = with_allowance(500)
    [invoice] = bill(subscription, midnight())
    invoices.void(invoice["id"])
    [again] = bill(subscription, midnight())
    assert again["total_minor"] == invoice["total_minor"]
    assert movements(holder) == [("grant", 500)]


def test_a_dry_run_claims_nothing():
    holder, subscription = with_allowance(500)
    generated = generate_in(ref=subscription.ref, options=Options(as_of=midnight(), dry_run=True))
    assert [one.amount for one in generated.granted] == [500]
    # The order has had the ledger grant it; the run would claim it.
    assert movements(holder) == [("grant", 500)]
    assert not Claim.objects.filter(subscription=subscription.pk).exists()


def test_periods_that_are_over_are_not_granted_when_their_credits_would_have_expired():
    holder, subscription = with_allowance(500, months_ago=3)
    bill(subscription, midnight())
    assert movements(holder) == [("grant", 500)]
    seen_to = Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE).order_by("starts_at")
    assert list(seen_to.values_list("quantity", flat=True)) == [0, 0, 0, 500]


def test_unspent_credits_roll_over_up_to_the_cap() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=150))
    for month in (1, 2, 3, 4):
        run_at(holder, subscription, day(month))
    # 100; 100 + 100; of 200 only 150 go along, + 100; of 250 only 150, + 100.
    expected = [("grant", 100), ("grant", 100), ("revoke", -50), ("grant", 100), ("revoke", -50), ("revoke", -50), ("grant", 100)]
    assert movements(holder) == expected
    assert [lot.expires_at for lot in reads.balance(holder).lots] == [None, None, None]
    assert reads.balance(holder).available == 250


@pytest.mark.parametrize(
    ("cap", "months_ago", "granted"), [(150, 3, [50, 100, 100]), (20, 2, [20, 100]), (0, 2, [100]), (1_000, 2, [100, 100, 100])]
)
def test_a_late_run_grants_only_what_has_not_lapsed(cap: int, months_ago: int, granted: list[int]) -> None:
    holder, subscription = with_allowance(100, cap, months_ago=months_ago)
    done = generate_in(ref=subscription.ref, options=Options(as_of=midnight()))
    assert movements(holder) == [("grant", amount) for amount in granted]
    assert [one.amount for one in done.granted] == granted
    assert reads.balance(holder).available == sum(granted)
    # At no time in between does the account show more than the cap and one allowance.
    for month in range(-months_ago, 1):
        seen = reads.balance_by_effective_time(holder, at=add_months(midnight(), month) + timedelta(seconds=1))
        assert seen.available <= cap + 100


@pytest.mark.parametrize("spent", [0, 30, 100])
def test_what_is_older_lapses_first_however_late_the_run(spent: int) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=150))
    if spent:
        services.spend(holder_id=holder, amount=spent, idempotency_key="used")
    run_at(holder, subscription, day(4))
    # As month by month: of what was unspent at the start of each, the newest 150 go along.
    assert reads.balance(holder).available == 250
    assert sum(amount for kind, amount in movements(holder) if kind == "revoke") == -(150 - spent)
    assert [lot.effective_at for lot in reads.balance(holder).lots] == [day(2), day(3), day(4)]


@pytest.mark.parametrize("is_in_time", [True, False])
def test_what_is_above_the_cap_can_be_spent_only_until_its_period_ends(is_in_time: bool) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=20))
    if is_in_time:
        run_at(holder, subscription, day(2))
    move(holder, day(2))
    services.spend(holder_id=holder, amount=80, idempotency_key="used")
    run_at(holder, subscription, day(2))
    assert movements(holder) == [("grant", 100), ("revoke", -80), ("grant", 100), ("spend", -80)]
    assert reads.balance(holder).available == 40


def test_only_unspent_allowance_counts_for_the_cap() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=30))
    services.grant(holder_id=holder, amount=1000, idempotency_key="bought")
    # Promotional credits go first: 80 of the allowance, and nothing of what was bought.
    services.spend(holder_id=holder, amount=80, idempotency_key="used")
    run_at(holder, subscription, day(2))
    assert movements(holder) == [("grant", 100), ("grant", 1000), ("spend", -80), ("grant", 100)]
    assert reads.balance(holder).available == 1120


def test_a_new_allowance_does_not_pay_the_invoice_of_the_same_period():
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    holder, subscription = with_allowance(5000, credits=terms)
    services.grant(holder_id=holder, amount=300, idempotency_key="bought")
    [invoice] = bill(subscription, midnight())
    assert (invoice["credits_applied_minor"], invoice["amount_due_minor"]) == (300, 700)
    assert movements(holder) == [("grant", 300), ("spend", -300), ("grant", 5000)]


def test_another_plan_gives_back_the_rest_of_the_allowance_and_grants_its_share_at_once():
    holder, subscription = with_allowance(500)
    bill(subscription, midnight())
    larger = PlanFactory(prices=[recurring(unit_amount="50.00")], allowance={"amount": 9000})
    change_at, end = midnight() + timedelta(days=9), add_months(midnight(), 1)
    amend(subscription, change_at, plan=larger.code)
    done = generate_in(ref=subscription.ref, options=Options(as_of=change_at))
    days = (end - midnight()).days
    kept, share = 500 * 9 // days, 9000 * (days - 9) // days
    assert movements(holder) == [("grant", 500), ("revoke", kept - 500), ("grant", share)]
    assert [(one.amount, one.starts_at, one.ends_at) for one in done.returned] == [(500 - kept, change_at, end)]
    # What was given for nine days stays until the end that it came with.
    assert {lot.remaining: lot.expires_at for lot in reads.balance(holder).lots} == {kept: end, share: end}
    assert bill(subscription, change_at) == []
    bill(subscription, end)
    assert movements(holder)[3:] == [("grant", 9000)]


def test_runs_of_usage_alone_claim_nothing_of_what_the_order_granted_and_lose_nothing():
    holder, subscription = with_allowance(10, 1000, months_ago=6, prices=[metered()])
    for month in range(-6, 1):
        bill(subscription, add_months(midnight(), month), only=Scope.USAGE)
    assert not Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE).exists()
    bill(subscription, midnight(), only=Scope.RECURRING)
    assert Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE).count() == 7
    assert movements(holder) == [("grant", 10)] * 7


def test_a_customer_without_a_holder_is_granted_nothing():
    plan = PlanFactory(prices=[metered()], allowance={"amount": 10})
    subscription = SubscriptionFactory(plan=plan.code)
    generated = generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    assert generated.granted == []
    assert not Claim.objects.filter(subscription=subscription.pk).exists()


def test_a_subscription_whose_only_due_thing_is_its_allowance_is_found_by_the_walk():
    _, subscription = with_allowance(10, prices=[metered()])
    bill(subscription, midnight())
    following = add_months(midnight(), 1)
    assert Cursor.objects.get(pk=subscription.pk).recurring_due_at == following
    due_filter = DueFilter(as_of=following, usage=False)
    assert subscription.ref in list(DueWalk(due_filter))
    assert subscription.ref not in list(DueWalk(DueFilter(as_of=following - timedelta(seconds=1), usage=False)))


def test_credits_of_every_currency_are_spent_before_the_first_number_is_taken():
    """The holder's lock is never waited for while the series is held, also with an invoice in each of two currencies."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=100, idempotency_key="bought")
    customer = CustomerFactory(
        currency="USD", holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    )
    euros = PlanFactory(prices=[recurring(unit_amount="31.00", timing="arrears")])
    dollars = PlanFactory(prices=[recurring(unit_amount="62.00", timing="arrears")], currency="USD")
    subscription = SubscriptionFactory(customer=customer.ref, plan=euros.code)
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 11), wish=Wish(plan=dollars.code))
    order: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql == finalisation.FINALIZE.sql:
            order.append("number")
        elif "ledger_" in sql or "pg_advisory_xact_lock" in sql:
            order.append("holder")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        made = bill(subscription, at(2, 1))
    # 10 of 31 days of 31.00 EUR; 21 of 31 days of 62.00 USD, of which 100 credits at 0.01 pay 1.00.
    figures = [(one["currency"], one["total_minor"], one["credits_applied_minor"], one["amount_due_minor"]) for one in made]
    assert figures == [("EUR", 1000, 0, 1000), ("USD", 4200, 100, 4100)]
    first, second = (int(one["number"].removeprefix("INV-")) for one in made)
    assert second == first + 1
    assert order[-2:] == ["number", "number"]
    assert "holder" in order
    assert "number" not in order[:-2]


# The rules alone -------------------------------------------------------------------------------------

MONTHLY = Schedule.anchored_at(at(1, 1), ZoneInfo("UTC"), Interval(IntervalUnit.MONTH))


def allowance_span(start: datetime, end: datetime | None = None, amount: int = 100) -> AllowanceSpan:
    """An allowance of 100 credits from one time to another, or open."""
    return AllowanceSpan(1, "credits", amount, None, MONTHLY, start, end)


def due(spans: list[AllowanceSpan], as_of: datetime, held: list[HeldAllowance] | None = None) -> list[tuple[datetime, int]]:
    """What is granted as of an instant: the start of each span, and its credits."""
    return [(one.part.start, one.amount) for one in reconcile_allowances(spans, held or [], as_of).due]


def test_a_part_of_a_period_gets_its_share_of_days_in_whole_credits():
    # 100 credits: 22 of January's 31 days are 70.96; 10 of February's 28 are 35.71.
    assert [amount for _, amount in due([allowance_span(at(1, 10), at(2, 11))], at(2, 28))] == [70, 35]
    assert due([allowance_span(at(1, 31), amount=1)], at(1, 31)) == [(at(1, 31), 0)]


def test_the_next_allowance_is_at_the_next_start_of_a_period():
    assert next_allowance([allowance_span(at(1, 10))], at(1, 10)) == at(2, 1)
    assert next_allowance([allowance_span(at(3, 10))], at(1, 10)) == at(3, 10)
    assert next_allowance([allowance_span(at(1, 10), at(2, 1))], at(1, 10)) is None


def test_what_lapses_is_taken_from_the_oldest():
    assert over_cap([(3, 10), (7, 20), (9, 5)], 15) == [(3, 10), (7, 10)]
    assert over_cap([(3, 10)], 10) == []
    assert over_cap([(3, 10)], 0) == [(3, 10)]
