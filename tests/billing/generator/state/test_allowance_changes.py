"""What is charged for a day is granted for that day: over plans, changes and days, in time, late and in steps."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import floor
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.generator.state.allowance_times import AllowanceSpan, HeldAllowance, reconcile_allowances
from billing.models import Claim, Subscription
from billing.orders.item_versions import AllowanceChange, UnusedTime
from billing.orders.subscriptions import Wish
from billing.rating.periods import Interval, IntervalUnit, Schedule
from ledger import reads, services
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, unique
from tests.billing.findings import findings_of
from tests.parts import spread

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
MONTH = Interval(IntervalUnit.MONTH)
YEAR = Interval(IntervalUnit.YEAR)
QUARTER = Interval(IntervalUnit.QUARTER)
WEEK = Interval(IntervalUnit.WEEK)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def day(month: int, number: int = 1, year: int = 2029) -> datetime:
    """A midnight of the years in which these stories take place."""
    return at(month, number, year=year)


def move(holder: str, now: datetime) -> None:
    """Move the holder's clock there."""
    services.set_clock(holder_id=holder, now=now, idempotency_key=f"clock-{now}")


def plan_of(amount: int, price: str, billed: Interval, **allowance: Any) -> str:
    """The ref of a plan with a fee in advance and an allowance."""
    fees = [recurring(unit_amount=price, key="fee")]
    code: str = PlanFactory(prices=fees, interval=billed, allowance={"amount": amount} | allowance).code
    return code


def ordered(plan: str, **order: Any) -> tuple[str, Subscription]:
    """A holder whose time is 1 January 2029, and a subscription of it from then on."""
    holder = unique("holder")
    move(holder, day(1))
    customer = CustomerFactory(holder_id=holder)
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan, **{"started_at": day(1)} | order)


def run_at(holder: str, subscription: Subscription, now: datetime) -> Any:
    """Move the clock and run."""
    move(holder, now)
    return generate_in(ref=subscription.ref, options=Options(as_of=datetime.now(UTC)))


def available(holder: str) -> int:
    """The holder's credits."""
    return reads.balance(holder).available


def limit_of(holder: str) -> int | None:
    """How many credits the holder may use on overage in a period."""
    overage = reads.balance(holder).overage
    assert overage is not None
    return overage.limit


def days_of(subscription: Subscription, kind: Claim.Kind) -> list[tuple[datetime, datetime]]:
    """The stretches of time that have claims of a kind, joined."""
    rows = Claim.objects.filter(subscription=subscription.pk, kind=kind, released_at=None).order_by("starts_at")
    joined: list[tuple[datetime, datetime]] = []
    for start, end in rows.values_list("starts_at", "ends_at"):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


# Each change on 10 January, with the credits that there are then: 9 of 31 days of 100 are 29; of 365 days of 1,200 also 29.
CHANGES = {
    "month to year": (100, "10.00", MONTH, lambda: {"plan": plan_of(1200, "120.00", YEAR)}, 29 + 1200 * 356 // 365),
    "month to quarter": (100, "10.00", MONTH, lambda: {"plan": plan_of(300, "30.00", QUARTER)}, 29 + 300 * 81 // 90),
    "month to week": (100, "10.00", MONTH, lambda: {"plan": plan_of(25, "2.50", WEEK)}, 29 + 25 * 5 // 7),
    "year to month": (1200, "120.00", YEAR, lambda: {"plan": plan_of(100, "10.00", MONTH)}, 29 + 100 * 22 // 31),
    "free to pro": (10, "0.00", MONTH, lambda: {"plan": plan_of(1000, "50.00", MONTH)}, 2 + 1000 * 22 // 31),
    "another billing day": (100, "10.00", MONTH, lambda: {"anchor_at": day(1, 10)}, 29 + 100),
    "an end": (100, "10.00", MONTH, lambda: {"ends_at": day(1, 10), "sets_end": True}, 29),
    "a pause": (100, "10.00", MONTH, lambda: {"paused": True}, 29),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_gives_back_the_share_of_the_rest_and_grants_the_new_one_at_once(name: str) -> None:
    amount, price, interval, wish, expected = CHANGES[name]
    holder, subscription = ordered(plan_of(amount, price, interval))
    run_at(holder, subscription, day(1))
    assert available(holder) == amount
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), **wish())
    done = run_at(holder, subscription, day(1, 10))
    assert available(holder) == expected
    assert sum(one.amount for one in done.allowances) == expected - amount
    assert run_at(holder, subscription, day(1, 10)).allowances == []
    # Whatever is charged has its credits, and nothing else has.
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert findings_of("credits", "ledger", "billing") == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_that_comes_only_after_the_change_leaves_the_same(name: str) -> None:
    amount, price, interval, wish, expected = CHANGES[name]
    holder, subscription = ordered(plan_of(amount, price, interval))
    amend(subscription, day(1, 10), **wish())
    run_at(holder, subscription, day(1, 10))
    assert available(holder) == expected
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)


@pytest.mark.parametrize(("spent", "left"), [(0, 29 + 709), (50, 709), (71, 709), (100, 709)])
def test_what_is_spent_does_not_go_back(spent: int, left: int) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    if spent:
        services.spend(holder_id=holder, amount=spent, idempotency_key="used")
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), plan=plan_of(1000, "50.00", MONTH))
    run_at(holder, subscription, day(1, 10))
    assert available(holder) == left


def test_a_pause_that_ends_in_the_same_period_gives_the_rest_its_share() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), paused=True)
    run_at(holder, subscription, day(1, 10))
    amend(subscription, day(1, 20), paused=False)
    run_at(holder, subscription, day(1, 20))
    # 9 of 31 days before it, and 12 after it.
    assert available(holder) == 29 + 38


@pytest.mark.parametrize(
    ("choice", "then", "next_month"),
    [(None, 29 + 709, 1000), (AllowanceChange.KEEP, 100, 1000), (AllowanceChange.FULL, 29 + 1000, 1000)],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_an_amendment_chooses_what_happens_to_the_credits(choice: Any, then: int, next_month: int, is_late: bool) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    if not is_late:
        run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), plan=plan_of(1000, "50.00", MONTH), allowance_change=choice)
    run_at(holder, subscription, day(1, 10))
    assert available(holder) == then
    run_at(holder, subscription, day(2))
    assert available(holder) == next_month
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(3))]


@pytest.mark.parametrize(("ends_at", "then"), [(None, 100), (day(1, 26), 80)])
def test_an_end_that_is_withdrawn_or_put_off_before_it_comes_grants_what_it_cut_off_at_once(ends_at: Any, then: int) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH), ends_at=day(1, 16))
    run_at(holder, subscription, day(1, 2))
    assert available(holder) == floor(100 * 15 / 31)
    amend(subscription, day(1, 2), sets_end=True, ends_at=ends_at)
    made = run_at(holder, subscription, day(1, 3))
    assert (available(holder), len(made.invoices)) == (then, 1)
    run_at(holder, subscription, day(1, 17))
    assert available(holder) == then
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
    assert findings_of("credits", "ledger", "billing") == []


def test_a_change_cuts_at_once_also_what_was_granted_for_the_time_that_a_withdrawn_end_had_cut_off() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, per_quantity_of="fee"), ends_at=day(1, 16))
    run_at(holder, subscription, day(1, 2))
    amend(subscription, day(1, 2), sets_end=True, ends_at=None)
    run_at(holder, subscription, day(1, 3))
    amend(subscription, day(1, 8), quantities={"fee": Decimal(3)})
    run_at(holder, subscription, day(1, 8))
    # 7 of 31 days of 100, and 24 of 300.
    assert available(holder) == floor(100 * 7 / 31) + floor(300 * 24 / 31)
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), day(2))]
    run_at(holder, subscription, day(1, 20))
    assert available(holder) == floor(100 * 7 / 31) + floor(300 * 24 / 31)
    assert findings_of("credits", "ledger", "billing") == []


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("held", [50, 100])
def test_what_an_expired_hold_gives_back_goes_back_too_when_a_change_cuts_the_allowance(held: int, is_late: bool) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    services.hold(holder_id=holder, amount=held, expires_at=day(1, 9), idempotency_key="hold")
    amend(subscription, day(1, 10), sets_end=True, ends_at=day(1, 10))
    # No request has booked the expiry of the hold.
    run_at(holder, subscription, day(1, 20) if is_late else day(1, 10))
    assert available(holder) == floor(100 * 9 / 31)
    assert findings_of("credits", "ledger", "billing") == []


def test_what_an_expired_hold_gives_back_counts_against_the_cap_of_what_rolls_over() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=20))
    run_at(holder, subscription, day(1))
    services.hold(holder_id=holder, amount=90, expires_at=day(1, 9), idempotency_key="hold")
    run_at(holder, subscription, day(2))
    assert available(holder) == 20 + 100


@pytest.mark.parametrize(
    ("fee", "granted_until"),
    [
        ({"timing": "advance"}, day(4)),
        ({"timing": "advance", "interval": {"unit": "month"}}, day(3)),
        ({"timing": "arrears"}, day(2, 18)),
    ],
)
def test_an_end_that_skips_unused_time_grants_as_far_as_fees_stay_charged(fee: Any, granted_until: datetime) -> None:
    fees = [recurring(unit_amount="31.00", key="fee", **fee)]
    plan = PlanFactory(prices=fees, interval=QUARTER, allowance={"amount": 900}).code
    holder, subscription = ordered(plan, ends_at=day(2, 18))
    amend(subscription, day(1), sets_end=True, ends_at=day(2, 18), unused_time=UnusedTime.SKIP)
    run_at(holder, subscription, day(2, 20))
    run_at(holder, subscription, day(4, 2))
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == [(day(1), granted_until)]
    assert findings_of("credits", "ledger", "billing") == []


def test_the_choice_belongs_to_a_change_of_plan_quantity_or_billing_day() -> None:
    _, subscription = ordered(plan_of(100, "10.00", MONTH))
    with pytest.raises(Invalid) as refused:
        amend(subscription, day(1, 10), paused=True, allowance_change=AllowanceChange.KEEP)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/allowance_change", "not-alone")
    assert Wish(plan="pro", allowance_change=AllowanceChange.FULL).check_whole() is None


def test_a_change_that_names_another_version_on_the_same_terms_cuts_nothing() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), plan=plan_of(100, "12.00", MONTH))
    assert run_at(holder, subscription, day(1, 10)).allowances == []
    assert available(holder) == 100


def test_a_yearly_plan_grants_monthly_credits() -> None:
    holder, subscription = ordered(plan_of(100, "120.00", YEAR, interval={"unit": "month", "count": 1}))
    for now in (day(1), day(1, 31), day(2), day(12, 31)):
        run_at(holder, subscription, now)
        assert available(holder) == 100
    # The change of a yearly plan in May concerns the credits of May.
    amend(subscription, day(12, 31), plan=plan_of(31, "10.00", MONTH))
    run_at(holder, subscription, day(12, 31))
    assert available(holder) == 100 * 30 // 31 + 1


@pytest.mark.parametrize(("in_trial", "first", "then"), [(False, 0, 100 * 17 // 31), (True, 100, 100)])
def test_a_trial_gets_credits_if_its_plan_says_so(in_trial: bool, first: int, then: int) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, in_trial=in_trial), trial_end=day(1, 15))
    run_at(holder, subscription, day(1))
    assert available(holder) == first
    run_at(holder, subscription, day(1, 15))
    assert available(holder) == then


def test_an_allowance_and_an_overage_count_for_each_seat() -> None:
    seats = recurring(unit_amount="10.00", key="seats", model="unit")
    plan = PlanFactory(
        prices=[seats],
        allowance={"amount": 100, "per_quantity_of": "seats"},
        overage={"price": {"model": "unit", "unit_amount": "0.02"}, "limit_credits": 50, "per_quantity_of": "seats"},
    )
    holder, subscription = ordered(plan.code, quantities={"seats": Decimal(5)})
    run_at(holder, subscription, day(1))
    assert (available(holder), limit_of(holder)) == (500, 250)
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), quantities={"seats": Decimal(8)})
    run_at(holder, subscription, day(1, 10))
    # 9 of 31 days of 500, and 22 of 800.
    assert (available(holder), limit_of(holder)) == (145 + 567, 400)
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)


@pytest.mark.parametrize(
    ("terms", "pointer", "rule"),
    [
        ({"allowance": {"amount": 1, "interval": {"unit": "week", "count": 1}}}, "/allowance/interval", "divides-the-plans"),
        ({"allowance": {"amount": 1, "per_quantity_of": "calls"}}, "/allowance/per_quantity_of", "recurring-price"),
        (
            {"overage": {"price": {"model": "unit", "unit_amount": "1"}, "per_quantity_of": "fee"}},
            "/overage/per_quantity_of",
            "not-alone",
        ),
    ],
)
def test_terms_that_do_not_fit_the_plan_are_refused(terms: Any, pointer: str, rule: str) -> None:
    with pytest.raises(Invalid) as refused:
        PlanFactory(prices=[recurring(key="fee")], interval=MONTH, **terms)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)


def test_what_rolled_over_is_cut_to_its_cap_by_the_next_period_and_not_by_a_change() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, rollover_cap=20))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), plan=plan_of(1000, "50.00", MONTH, rollover_cap=20))
    run_at(holder, subscription, day(1, 10))
    assert available(holder) == 29 + 709
    run_at(holder, subscription, day(2))
    assert available(holder) == 20 + 1000


# A model of its own: every order of runs, day by day ---------------------------------------------------

INTERVALS = (Interval(IntervalUnit.WEEK), MONTH, Interval(IntervalUnit.MONTH, 2), QUARTER, YEAR)


def spans_of(pick: random.Random) -> list[list[AllowanceSpan]]:
    """What is known before and after each of some changes: the spans of a subscription from 1 January on."""
    changes = sorted(pick.sample(range(1, 120), pick.randrange(1, 4)))
    starts = [day(1), *(day(1) + number * DAY for number in changes)]
    known: list[list[AllowanceSpan]] = []
    spans: list[AllowanceSpan] = []
    for start in starts:
        if spans:
            spans = [*spans[:-1], _ending(spans[-1], start)]
        anchor = pick.choice((day(1), day(1), start))
        schedule = Schedule.anchored_at(anchor, ZoneInfo("UTC"), pick.choice(INTERVALS))
        choice = pick.choice((AllowanceChange.PRORATE, AllowanceChange.PRORATE, AllowanceChange.KEEP, AllowanceChange.FULL))
        spans = [*spans, AllowanceSpan(1, "credits", pick.choice((10, 100, 1200)), None, schedule, start, None, change=choice)]
        known.append(spans)
    return known


def _ending(span: AllowanceSpan, end: datetime) -> AllowanceSpan:
    return AllowanceSpan(1, "credits", span.amount, None, span.schedule, span.start, end, change=span.change)


def after(spans: Sequence[AllowanceSpan], held: list[HeldAllowance], as_of: datetime) -> list[HeldAllowance]:
    """The claims after a run."""
    found = reconcile_allowances(spans, held, as_of)
    cut = {one.claim.id: one for one in found.cut}
    claims = [
        HeldAllowance(one.id, one.start, cut[one.id].end, cut[one.id].amount, one.terms) if one.id in cut else one
        for one in held
        if one.id not in cut or cut[one.id].end > one.start
    ]
    first = max((one.id for one in held), default=0) + 1
    due = enumerate(found.due, first)
    return [*claims, *(HeldAllowance(pk, one.part.start, one.part.end, one.amount, one.of.terms) for pk, one in due)]


def shown(claims: Sequence[HeldAllowance]) -> list[tuple[datetime, datetime, int]]:
    """Spans with their credits, in order of time."""
    return sorted((one.start, one.end, one.amount) for one in claims)


@pytest.mark.parametrize("seed", spread(range(150), test=range(30)))
def test_late_runs_and_runs_in_steps_leave_the_claims_of_runs_in_time(seed: int) -> None:
    pick = random.Random(seed)
    known = spans_of(pick)
    end = day(6)
    late = shown(after(known[-1], [], end))
    in_time: list[HeldAllowance] = []
    in_steps: list[HeldAllowance] = []
    steps = {day(1) + number * DAY for number in pick.sample(range(150), 12)}
    now = day(1)
    while now <= end:
        spans = [spans for spans in known if spans[-1].start <= now][-1]
        in_time = after(spans, in_time, now)
        if now in steps or now == end:
            in_steps = after(spans, in_steps, now)
        now += DAY
    assert shown(in_time) == late
    assert shown(in_steps) == late
    # Each day of the subscription has its credits once.
    assert late[0][0] == day(1)
    assert all(one[1] == following[0] for one, following in pairwise(late))
    assert late[-1][1] > end
    # And as many as its days: counted by hand, of what no change granted whole or kept.
    if all(span.change == AllowanceChange.PRORATE for span in known[-1]):
        for start, stop, amount in late:
            span = next(one for one in known[-1][::-1] if one.start <= start)
            whole = span.schedule.period_at(start)
            assert amount == floor(span.amount * (stop - start).days / (whole.end - whole.start).days)


# The product, changed at random -------------------------------------------------------------------------


def changes_of(pick: random.Random) -> list[tuple[datetime, dict[str, Any]]]:
    """Some changes in the order of time, each at a midnight."""
    plans = [plan_of(amount, "31.00", billed) for amount, billed in ((100, MONTH), (1200, YEAR), (300, QUARTER), (25, WEEK))]
    found: list[tuple[datetime, dict[str, Any]]] = []
    is_paused = False
    for number in sorted(pick.sample(range(1, 100), 4)):
        now = day(1) + number * DAY
        if is_paused:
            found.append((now, {"paused": False}))
            is_paused = False
            continue
        kind = pick.choice(("plan", "plan", "anchor", "pause", "end"))
        choice = pick.choice((None, None, AllowanceChange.KEEP, AllowanceChange.FULL))
        if kind == "plan":
            found.append((now, {"plan": pick.choice(plans), "allowance_change": choice}))
        elif kind == "anchor":
            found.append((now, {"anchor_at": now}))
        elif kind == "pause":
            found.append((now, {"paused": True}))
            is_paused = True
        else:
            found += [(now, {"ends_at": now, "sets_end": True}), (now + DAY, {"sets_end": True})]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.check), *range(1, 12)])
def test_a_day_that_is_charged_has_its_credits_however_the_subscription_changes(seed: int) -> None:
    pick = random.Random(seed)
    first, changes, end = plan_of(100, "10.00", MONTH), changes_of(pick), day(5, 10)
    spans = []
    for is_in_time in (True, False):
        holder, subscription = ordered(first)
        for now, wish in changes:
            if is_in_time:
                run_at(holder, subscription, now)
            else:
                move(holder, now)
            amend(subscription, now, **wish)
            if is_in_time:
                run_at(holder, subscription, now)
        run_at(holder, subscription, end)
        assert run_at(holder, subscription, end).allowances == []
        charged, granted = (days_of(subscription, kind) for kind in (Claim.Kind.RECURRING, Claim.Kind.ALLOWANCE))
        chosen = {wish.get("allowance_change") for _, wish in changes}
        if AllowanceChange.KEEP not in chosen:
            assert granted == charged
        rows = Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None)
        spans.append(
            [(one.starts_at, one.ends_at, one.snapshot["amount"], one.snapshot["terms"]) for one in rows.order_by("starts_at")]
        )
        assert findings_of("credits", "ledger", "billing") == []
    assert spans[0] == spans[1]
