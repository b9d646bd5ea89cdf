"""Runs that come late, in steps and in whatever order bill what runs in time would have: line by line and credit by credit."""

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.auditing import consistency
from billing.documents import invoices
from billing.generator.options import Options, Scope
from billing.generator.run import outcomes, runs
from billing.models import Claim, Invoice
from billing.orders.customers import NewCredits
from billing.rating.periods import add_months
from billing.reads import invoice_documents
from ledger import reads, services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.billing.generator.state.test_allowances import midnight
from tests.billing.random_subscriptions import calculator as slow
from tests.billing.random_subscriptions.customer_simulator import CustomerSimulator
from tests.billing.random_subscriptions.prepaid import Purse, billed_in_time, paid_in_time
from tests.billing.random_subscriptions.simulator import (
    BEGIN,
    SimulatedSubscription,
    Simulator,
    Traits,
    line_of_document,
    lines_of_calculator,
)
from tests.nodes import pause
from tests.parts import spread

pytestmark = pytest.mark.django_db

Schedule = list[tuple[datetime, int | None]]
"""As of when, and how many periods at most."""


def any_schedule(pick: random.Random, first: datetime, last: datetime) -> Schedule:
    """Runs in steps of any length, each possibly of a few periods only; in the end all that is left."""
    runs: Schedule = []
    as_of = first
    while (as_of := as_of + timedelta(days=pick.choice((1, 20, 31, 62, 150)), minutes=pick.randrange(1440))) < last:
        runs.append((as_of, pick.choice((None, None, 1, 2))))
    if pick.random() < 0.3:
        pick.shuffle(runs)
    return [*runs, *[(last, 1)] * pick.choice((0, 3)), (last, None)]


# Allowances -------------------------------------------------------------------------------------------


def subscribed_with_allowance(months_ago: int, allowance: int, cap: int | None = None, bought: int = 0, **fields: Any) -> Any:
    """A holder, and a subscription that is granted credits each month; its calls take one each, or 0.02."""
    holder = unique("holder")
    if bought:
        services.grant(holder_id=holder, amount=bought, idempotency_key="bought")
    plan = PlanFactory(
        prices=[metered(credits={"per_unit": "1"}), recurring()], allowance={"amount": allowance, "rollover_cap": cap}
    )
    customer = CustomerFactory(holder_id=holder, **fields)
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=add_months(midnight(), -months_ago))


def usage_lines(subscription: Any) -> list[tuple[int, int]]:
    """Credits and money of the usage of each month, oldest first."""
    made = invoice_documents(list(Invoice.objects.filter(subscription=subscription.pk).exclude(state="void")))
    lines = [line for one in made for line in one["lines"] if line["price_key"] == "calls"]
    lines.sort(key=lambda line: line["period"]["start"])
    return [(line["rating"]["covered"]["credits"], line["amount_minor"]) for line in lines]


def audit_is_clean() -> bool:
    """Whether the audit finds nothing about credits and the ledger."""
    return findings_of("credits", "ledger") == []


@pytest.mark.products(most=2)
@pytest.mark.parametrize("months_ago", [2, 14])
@pytest.mark.parametrize(
    "schedule",
    [[(2, None)], [(0, None), (1, None), (2, None)], [(2, 1), (2, 1), (2, 1)], [(1, None), (2, None)], [(2, None), (0, None)]],
)
def test_an_allowance_covers_its_month_in_whatever_steps_it_is_billed(months_ago, schedule):
    # 150 calls in each of two months, 100 of them paid by the allowance: 50 x 0.02 each.
    holder, subscription = subscribed_with_allowance(months_ago, 100)
    start = subscription.started_at
    for month in (0, 1):
        use(subscription, "150", add_months(start, month) + timedelta(days=3))
    for months, at_most in schedule:
        bill(subscription, add_months(start, months), max_periods=at_most)
    assert usage_lines(subscription) == [(100, 100), (100, 100)]
    # Only an allowance that has not expired can still be spent.
    assert reads.balance(holder).available == (100 if months_ago == 2 else 0)
    assert audit_is_clean()


@pytest.mark.parametrize("seed", spread(range(100), test=[1, 4], check=range(5)))
def test_any_order_of_runs_covers_what_runs_in_time_would_have(seed):
    pick = random.Random(seed)
    months, allowance = pick.randrange(1, 15), pick.choice((10, 100))
    cap, bought = pick.choice((None, None, 0, 30, 250)), pick.choice((0, 45, 300))
    used = [pick.randrange(1, 2 * allowance) for _ in range(months)]
    holder, subscription = subscribed_with_allowance(months, allowance, cap, bought)
    for month, units in enumerate(used):
        use(subscription, str(units), add_months(subscription.started_at, month) + timedelta(days=pick.randrange(1, 25)))
    for as_of, at_most in any_schedule(pick, subscription.started_at, midnight()):
        bill(subscription, as_of, max_periods=at_most)
    purse = Purse(allowance, cap, bought)
    in_time = billed_in_time(purse, used, 2)
    assert usage_lines(subscription) == in_time, seed
    assert reads.balance(holder).available == purse.available, seed
    assert audit_is_clean()


@pytest.mark.parametrize("seed", spread(range(500), test=[3, 4], check=range(6)))
def test_any_order_of_runs_pays_with_an_allowance_what_runs_in_time_would_have(seed):
    pick = random.Random(seed)
    months, allowance = pick.randrange(1, 15), pick.choice((100, 700, 3_000))
    cap, bought = pick.choice((None, 0, 40, 900, 4_000)), pick.choice((0, 450, 9_000))
    used = [pick.randrange(1, 2 * min(allowance, 1_000)) for _ in range(months)]
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    holder, subscription = subscribed_with_allowance(months, allowance, cap, bought, credits=terms)
    for month, units in enumerate(used):
        use(subscription, str(units), add_months(subscription.started_at, month) + timedelta(days=pick.randrange(1, 25)))
    for as_of, at_most in any_schedule(pick, subscription.started_at, midnight()):
        bill(subscription, as_of, max_periods=at_most)
    purse = Purse(allowance, cap, bought)
    in_time = paid_in_time(purse, used, 2, 1_000)
    made = Invoice.objects.filter(subscription=subscription.pk).order_by("id")
    assert list(made.values_list("total_minor", "credits_applied_minor")) == in_time, seed
    assert reads.balance(holder).available == purse.available, seed
    assert audit_is_clean()


def test_usage_billed_after_the_recurring_charges_leaves_the_next_allowance_alone():
    holder, subscription = subscribed_with_allowance(1, 100)
    use(subscription, "150", subscription.started_at + timedelta(days=3))
    for as_of in (subscription.started_at, midnight()):
        bill(subscription, as_of, only=Scope.RECURRING)
    bill(subscription, midnight(), only=Scope.USAGE)
    assert usage_lines(subscription) == [(100, 100)]
    assert reads.balance(holder).available == 100


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("is_booked", [False, True])
def test_what_was_granted_in_time_and_expired_before_the_usage_was_billed_covers_it(is_booked):
    holder, subscription = subscribed_with_allowance(1, 100)
    bill(subscription, subscription.started_at)
    claim = Claim.objects.get(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE)
    # 30 of it were spent elsewhere, and the rest has expired, as if a month had passed.
    services.revoke(holder_id=holder, grant=claim.snapshot["grant"], idempotency_key="elsewhere")
    soon = services.grant(
        holder_id=holder, amount=70, idempotency_key="soon", expires_at=datetime.now().astimezone() + timedelta(seconds=1)
    )
    Claim.objects.filter(pk=claim.pk).update(snapshot={**claim.snapshot, "grant": soon.sequence})
    while reads.balance(holder).available:
        pause()
    if is_booked:
        services.book_expirations(holder_id=holder)
    use(subscription, "60", subscription.started_at + timedelta(days=3))
    bill(subscription, midnight())
    assert usage_lines(subscription) == [(60, 0)]
    # What is left of it is gone again, and covers usage that comes later all the same.
    assert reads.balance(holder).available == 100
    assert audit_is_clean()


def test_a_draft_that_is_rated_again_is_covered_by_all_of_a_lapsed_allowance():
    holder, subscription = subscribed_with_allowance(14, 100, grace_days=60)
    start = subscription.started_at
    use(subscription, "80", start + timedelta(days=3))
    bill(subscription, add_months(start, 1))
    assert (usage_lines(subscription), reads.balance(holder).available) == ([(80, 0)], 0)
    use(subscription, "50", start + timedelta(days=4))
    bill(subscription, add_months(start, 1) + timedelta(days=1))
    assert (usage_lines(subscription), reads.balance(holder).available) == ([(100, 60)], 0)
    assert audit_is_clean()


def test_voiding_what_a_lapsed_allowance_covered_and_billing_it_again_covers_as_much():
    holder, subscription = subscribed_with_allowance(14, 100)
    start = subscription.started_at
    use(subscription, "80", start + timedelta(days=3))
    [_, made] = [*bill(subscription, start), *bill(subscription, add_months(start, 1))]
    invoices.void(made["id"])
    use(subscription, "50", start + timedelta(days=4))
    bill(subscription, add_months(start, 1))
    assert usage_lines(subscription) == [(100, 60)]
    assert reads.balance(holder).available == 0
    assert audit_is_clean()


# Everything else ----------------------------------------------------------------------------------------


def lines_in_time(simulated: SimulatedSubscription, last: datetime) -> Counter[Any]:
    """The lines on the slow calculator's documents, when it bills at every instant at which something begins or ends."""
    model = simulated.model
    stretches = [one for key in [*model.keys, ""] for one in model.stretches(key, last)]
    instants = sorted({instant for one in stretches for instant in (one.start, one.end) if instant <= last})
    return lines_as_priced([one for as_of in [*instants, last] for one in model.bill(as_of)])


def lines_as_priced(documents: list[slow.Document]) -> Counter[Any]:
    """The lines of the slow calculator's documents, with their amounts as priced."""
    priced = [replace(one, lines=[replace(line, includes_tax=False, taxed=None) for line in one.lines]) for one in documents]
    return Counter(line for one in priced for line in lines_of_calculator(one))


def as_priced(line: dict[str, Any]) -> dict[str, Any]:
    """A line with its amounts as priced. Without the tax that they include, they are shares of a sum of its document."""
    return {**line, **line["rating"].get("included_tax", {})}


@pytest.mark.parametrize("seed", spread(range(60), test=[2], check=[1, 3, 4]))
def test_any_order_of_runs_makes_the_lines_of_runs_in_time(seed):
    """All that is ordered and used is known before the first run; so is each coupon.

    Usage is billed in arrears, without a threshold: what is charged within a period depends on when runs happen, as documented.
    """
    simulator = Simulator(seed, Traits(credits=False, voids=False, drafts=False, scopes=False, charges=False, running=False))
    simulated = simulator.subscriptions[0]
    now = BEGIN
    for _ in range(12):
        then = now + timedelta(days=simulator.random.choice((10, 31, 60)))
        simulator.change_something(simulated, now, then)
        now = then
    made: Counter[Any] = Counter()
    for as_of, at_most in any_schedule(simulator.random, simulated.started_at, now):
        done = outcomes.bill_one(simulated.ref, Options(as_of=as_of, max_periods=at_most))
        assert done.outcome in ("finalised", "nothing_due"), done
        found = invoice_documents(list(Invoice.objects.filter(pk__in=[one.invoice_id for one in done.invoices])))
        made.update(line_of_document(as_priced(line)) for one in found for line in one["lines"])
    expected = lines_in_time(simulated, now - simulated.held_back)
    for lines in (made, expected):
        # What is carried is less where a run makes one document of what runs in time make several of.
        for line in [line for line in lines if line[0] == "carried"]:
            del lines[line]
    assert made == expected, (seed, made - expected, expected - made)


# Customers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", spread(range(60), test=(), check=[0]))
def test_any_order_of_runs_of_any_subscriptions_makes_the_lines_of_runs_in_time(seed):
    """Subscriptions share invoices, and some were paid at last, or expired; each has its lines, on whichever invoice."""
    traits = Traits(
        credits=False, voids=False, drafts=False, scopes=False, charges=False, running=False, coupons=False, refunds=False
    )
    simulator = CustomerSimulator(seed, traits)
    now = BEGIN
    for _ in range(9):
        then = now + timedelta(days=simulator.random.choice((10, 31, 60)))
        for simulated in simulator.subscriptions:
            simulator.change_something(simulated, now, then)
        now = then
    for simulated in simulator.subscriptions:
        simulator.settle_at_last(simulated)
    first = min(simulated.started_at for simulated in simulator.subscriptions)
    for as_of, at_most in [*any_schedule(simulator.random, first, now), (now + timedelta(days=1), None)]:
        chosen = [one.ref for one in simulator.subscriptions if as_of >= now or simulator.random.random() < 0.7]
        simulator.random.shuffle(chosen)
        job = runs.job_for(Options(as_of=as_of, max_periods=at_most), subscriptions=tuple(chosen))
        summary = runs.run(job, on_done=lambda done: None, on_tick=lambda summary: None, stop=lambda: False)
        assert summary.failures == summary.waiting == 0
    made: dict[str, Counter[Any]] = {simulated.ref: Counter() for simulated in simulator.subscriptions}
    documents = invoice_documents(list(Invoice.objects.filter(customer_id=simulator.customer_row.pk)))
    assert "draft" not in {one["state"] for one in documents}
    for line in (line for one in documents for line in one["lines"] if line["kind"] != "carried"):
        made[line["subscription"]].update([line_of_document(as_priced(line))])
    for simulated in simulator.subscriptions:
        before = [one for one in simulator.customer.documents if one.of == [simulated.model]]
        expected = lines_in_time(simulated, now + timedelta(days=1) - simulated.held_back)
        expected.update(lines_as_priced(before))
        for line in [line for line in expected if line[0] == "carried"]:
            del expected[line]
        assert made[simulated.ref] == expected, (made[simulated.ref] - expected, expected - made[simulated.ref])
    assert consistency.check() == []
