"""The budgets of a plan stand on the holder's account: set, changed and ended with the orders, beside those set by hand."""

import logging
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.admin.order_forms.subscriptions import budget_change
from billing.generator.state import plan_budgets, plan_terms
from billing.models import Cursor, Subscription
from billing.orders.subscriptions import Wish, amend_subscription
from billing.orders.suspension import suspend
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import BudgetExceeded, HolderBusy, Invalid
from ledger.models import Entry
from ledger.rules.budget_states import MAX_COMING
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.state.test_allowance_changes import day, move, run_at
from tests.ledger.staff.admin_site import text_of

pytestmark = pytest.mark.django_db

POOL = {"budget": "pool", "limit": 100, "per_quantity_of": "seats", "window": "day"}
MEMBER = {"budget": "member", "limit": 30, "window": "day", "by": "label", "label": "member"}
AGENT = {"budget": "agent", "limit": 5, "window": "day", "by": "label", "label": "agent", "parent": "member"}
INSTANT = timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def plan_of(*budgets: dict[str, Any], code: str | None = None) -> str:
    return PlanFactory(
        **({"code": code} if code else {}),
        prices=[recurring("seats", model="unit")],
        budgets=[{"credit_type": "credits"} | each for each in budgets] or None,
    ).code


def ordered(plan: str, *, seats: str = "3", holder: str | None = None, **order: Any) -> tuple[str, Subscription]:
    """A holder for whom it is the first of January, with an order of a plan."""
    if holder is None:
        holder = unique("holder")
        move(holder, day(1))
    customer = CustomerFactory(holder_id=holder)
    order = {"started_at": day(1), "quantities": {"seats": Decimal(seats)}} | order
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan, **order)


def limits(holder: str) -> dict[str, int]:
    return {budget.name: budget.settings.limit for budget in reads.budgets(holder) if budget.is_in_force}


def settings_of(holder: str) -> int:
    return Entry.objects.filter(holder_id=holder, kind="adjust", counterpart__budget__isnull=False).count()


def spend(holder: str, amount: int, member: str = "ann") -> Any:
    return services.spend(holder_id=holder, amount=amount, metadata={"member": member}, idempotency_key=unique("spend"))


def findings() -> list[str]:
    """What the law of these budgets finds."""
    return findings_of("budgets of a plan")


# With the order --------------------------------------------------------------------------------------


def test_an_order_sets_the_budgets_at_once_and_a_change_of_seats_changes_their_limit() -> None:
    holder, subscription = ordered(plan_of(POOL, MEMBER))
    services.grant(holder_id=holder, amount=1_000, idempotency_key="grant")
    assert limits(holder) == {"pool": 300, "member": 30}
    pool = next(each for each in reads.budgets(holder) if each.name == "pool")
    assert (pool.set_by, pool.reference, pool.settings.window) == ("billing", subscription.ref, "day")
    spend(holder, 30)
    with pytest.raises(BudgetExceeded):
        spend(holder, 1)
    amend(subscription, day(1), quantities={"seats": Decimal(5)})
    assert limits(holder) == {"pool": 500, "member": 30}
    # It goes on counting.
    assert {each.name: each.usage[0].used for each in reads.budgets(holder)} == {"pool": 30, "member": 30}
    assert settings_of(holder) == 3
    run_at(holder, subscription, day(1))
    assert (settings_of(holder), findings()) == (3, [])


def test_another_plan_and_a_new_version_bring_their_budgets_and_end_the_others() -> None:
    code = plan_of(POOL)
    holder, subscription = ordered(code)
    amend(subscription, day(1), plan=plan_of(MEMBER))
    assert limits(holder) == {"member": 30}
    amend(subscription, day(1), plan=code)
    assert limits(holder) == {"pool": 300}
    plan_of(POOL | {"limit": 7}, MEMBER, code=code)
    amend(subscription, day(1), plan=code)
    assert limits(holder) == {"pool": 21, "member": 30}
    amend(subscription, day(1), plan=plan_of())
    assert limits(holder) == {}
    run_at(holder, subscription, day(1))
    assert findings() == []


def test_a_cancellation_ends_them_at_its_instant_without_a_run() -> None:
    holder, subscription = ordered(plan_of(POOL))
    run_at(holder, subscription, day(1))
    amend(subscription, day(1), ends_at=day(2), sets_end=True)
    assert limits(holder) == {"pool": 300}
    move(holder, day(2) - INSTANT)
    assert (limits(holder), settings_of(holder)) == ({"pool": 300}, 2)
    move(holder, day(2))
    assert limits(holder) == {}
    run_at(holder, subscription, day(2))
    assert (limits(holder), settings_of(holder), findings()) == ({}, 2, [])

    holder, subscription = ordered(plan_of(POOL))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), ends_at=day(1, 10), sets_end=True)
    assert limits(holder) == {}


def test_they_hold_in_a_trial_and_in_a_pause() -> None:
    holder, subscription = ordered(plan_of(POOL), trial_end=day(1, 20))
    assert limits(holder) == {"pool": 300}
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), paused=True)
    assert limits(holder) == {"pool": 300}
    amend(subscription, day(1, 10), paused=False)
    assert limits(holder) == {"pool": 300}


def test_an_end_in_a_pause_ends_them_with_the_order_or_a_run_at_its_instant() -> None:
    for days in (0, 5):
        holder, subscription = ordered(plan_of(POOL))
        move(holder, day(1, 10))
        amend(subscription, day(1, 10), paused=True)
        move(holder, day(1, 12))
        amend(subscription, day(1, 12), ends_at=day(1, 12 + days), sets_end=True)
        run_at(holder, subscription, day(1, 12))
        assert limits(holder) == ({"pool": 300} if days else {})
        if days:
            assert Cursor.objects.get(subscription=subscription.pk).usage_due_at == day(1, 17)
        run_at(holder, subscription, day(1, 17))
        assert (limits(holder), findings()) == ({}, [])


def test_a_subscription_that_goes_on_after_its_end_has_them_until_the_next_end_although_it_is_paused() -> None:
    holder, subscription = ordered(plan_of(POOL))
    amend(subscription, day(1, 5), ends_at=day(1, 5), sets_end=True)
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), paused=True)
    assert limits(holder) == {}
    amend(subscription, day(1, 10), ends_at=day(1, 20), sets_end=True)
    assert limits(holder) == {"pool": 300}
    run_at(holder, subscription, day(1, 10))
    assert (limits(holder), findings()) == ({"pool": 300}, [])
    move(holder, day(1, 20))
    assert limits(holder) == {}
    run_at(holder, subscription, day(1, 20))
    assert (limits(holder), findings()) == ({}, [])


def test_a_planned_change_of_seats_comes_at_its_instant_without_a_run() -> None:
    holder, subscription = ordered(plan_of(POOL | {"window": "month"}))
    services.grant(holder_id=holder, amount=5_000, idempotency_key="grant")
    amend(subscription, day(1, 10), quantities={"seats": Decimal(8)})
    move(holder, day(1, 10) - INSTANT)
    spend(holder, 300)
    with pytest.raises(BudgetExceeded):
        spend(holder, 1)
    move(holder, day(1, 10))
    # The first write after it, and it goes on counting.
    spend(holder, 500)
    with pytest.raises(BudgetExceeded):
        spend(holder, 1)
    run_at(holder, subscription, day(1, 10))
    assert (limits(holder), settings_of(holder), findings()) == ({"pool": 800}, 2, [])
    assert audit([connection.connection], holder_id=holder).findings == []


def test_a_planned_change_that_is_withdrawn_does_not_come() -> None:
    holder, subscription = ordered(plan_of(POOL))
    amend(subscription, day(1), ends_at=day(2), sets_end=True)
    amend(subscription, day(1), ends_at=None, sets_end=True)
    move(holder, day(2))
    assert limits(holder) == {"pool": 300}


def test_the_budgets_of_a_plan_that_begins_later_are_shown_as_such_and_begin_then() -> None:
    holder, _ = ordered(plan_of(POOL, MEMBER), started_at=day(2))
    assert [(each.name, each.is_in_force, each.settings.starts_at) for each in reads.budgets(holder)] == [
        ("member", False, day(2)),
        ("pool", False, day(2)),
    ]
    move(holder, day(2))
    assert {each.name: each.is_in_force for each in reads.budgets(holder)} == {"member": True, "pool": True}


def test_a_subscription_that_follows_another_one_has_its_budget_from_its_start_whoever_changes() -> None:
    holder, first = ordered(plan_of(POOL))
    amend(first, day(1), ends_at=day(2), sets_end=True)
    ordered(plan_of(POOL), holder=holder, seats="2", started_at=day(2))
    amend(first, day(1), quantities={"seats": Decimal(5)})
    assert limits(holder) == {"pool": 500}
    move(holder, day(2))
    assert limits(holder) == {"pool": 200}


def test_in_a_pause_the_subscription_that_had_a_budget_first_keeps_it_whichever_runs() -> None:
    holder, first = ordered(plan_of(POOL))
    amend(first, day(1, 10), paused=True)
    move(holder, day(1, 11))
    _, second = ordered(plan_of(POOL), holder=holder, seats="2", started_at=day(1, 11))
    for subscription in (first, second, first):
        run_at(holder, subscription, day(1, 12))
        assert limits(holder) == {"pool": 300}


def test_changes_that_are_planned_for_many_budgets_leave_room_for_those_in_force() -> None:
    names = [f"b{number}" for number in range(6)]
    holder, subscription = ordered(plan_of(POOL))
    for number in range(12):
        amend(subscription, day(1, 2 + number), quantities={"seats": Decimal(4 + number)})
    amend(subscription, day(1), plan=plan_of(*[POOL | {"budget": name} for name in names]))
    assert limits(holder) == dict.fromkeys(names, 300)
    assert {each.name: len(each.coming) for each in reads.budgets(holder)} == dict.fromkeys(names, MAX_COMING // len(names))
    # A run at an instant names what follows.
    for number in range(12):
        move(holder, day(1, 2 + number))
        assert limits(holder) == dict.fromkeys(names, 400 + 100 * number)
        run_at(holder, subscription, day(1, 2 + number))
    assert findings() == []


def test_no_seat_leaves_nothing_to_spend_and_a_part_of_a_seat_is_rounded_down() -> None:
    holder, subscription = ordered(plan_of(POOL | {"limit": 3}), seats="0")
    assert limits(holder) == {"pool": 0}
    amend(subscription, day(1), quantities={"seats": Decimal("1.5")})
    assert limits(holder) == {"pool": 4}


def test_a_budget_counts_in_the_zone_of_the_subscription_and_nests_in_another_of_the_plan() -> None:
    holder, _ = ordered(plan_of(MEMBER, AGENT), time_zone="Europe/Berlin")
    member, nested = sorted(reads.budgets(holder), key=lambda each: each.name, reverse=True)
    assert (member.settings.time_zone, nested.settings.parent) == ("Europe/Berlin", "member")
    assert nested.settings.within == member.settings.levels


def test_what_is_lost_by_a_crash_after_the_order_is_set_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*args: Any) -> None:
        raise HolderBusy

    with monkeypatch.context() as patched:
        patched.setattr(plan_terms, "set_budgets", busy)
        holder, subscription = ordered(plan_of(POOL))
        assert limits(holder) == {}
    run_at(holder, subscription, day(1))
    assert limits(holder) == {"pool": 300}


def test_while_billing_is_suspended_they_stay() -> None:
    holder, subscription = ordered(plan_of(POOL))
    suspend(ref=subscription.ref, reason="to be checked")
    amend(subscription, day(1), quantities={"seats": Decimal(9)})
    assert limits(holder) == {"pool": 300}


# Budgets that others set ------------------------------------------------------------------------------


def test_a_budget_that_was_set_by_hand_prevails_until_somebody_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    holder = unique("holder")
    move(holder, day(1))
    by_hand = {"holder_id": holder, "budget": "pool", "window": "month", "actor": "operator ada"}
    services.set_budget(**by_hand, limit=1, idempotency_key="by-hand")
    with caplog.at_level(logging.INFO, "billing.budgets"):
        _, subscription = ordered(plan_of(POOL, MEMBER), holder=holder)
    assert "the budget pool that operator ada set prevails" in caplog.text
    assert limits(holder) == {"pool": 1, "member": 30}
    run_at(holder, subscription, day(1))
    amend(subscription, day(1), quantities={"seats": Decimal(9)})
    assert limits(holder) == {"pool": 1, "member": 30}
    # It is also nobody's to end but theirs who set it.
    amend(subscription, day(1), plan=plan_of(MEMBER))
    assert limits(holder) == {"pool": 1, "member": 30}
    amend(subscription, day(1), plan=plan_of(POOL))
    services.end_budget(holder_id=holder, budget="pool", actor="operator ada", idempotency_key="ended")
    run_at(holder, subscription, day(1))
    assert (limits(holder), findings()) == ({"pool": 900}, [])


def test_a_budget_that_was_set_by_hand_until_an_instant_prevails_until_then() -> None:
    holder, subscription = ordered(plan_of(POOL))
    amend(subscription, day(2), quantities={"seats": Decimal(5)})
    own = {"holder_id": holder, "budget": "pool", "limit": 7, "window": "day", "ends_at": day(2)}
    services.set_budget(**own, actor="ada", idempotency_key="by-hand")
    run_at(holder, subscription, day(1))
    assert limits(holder) == {"pool": 7}
    move(holder, day(2))
    assert limits(holder) == {"pool": 500}
    amend(subscription, day(2), quantities={"seats": Decimal(6)})
    assert (limits(holder), findings()) == ({"pool": 600}, [])


def test_a_budget_of_the_plan_that_was_changed_by_hand_stays_changed() -> None:
    holder, subscription = ordered(plan_of(POOL))
    services.set_budget(holder_id=holder, budget="pool", limit=9, window="day", actor="key:shop", idempotency_key="changed")
    run_at(holder, subscription, day(1))
    amend(subscription, day(1), ends_at=day(1), sets_end=True)
    assert (limits(holder), findings()) == ({"pool": 9}, [])


def test_a_second_subscription_of_the_holder_cannot_have_a_budget_of_the_same_name() -> None:
    holder, first = ordered(plan_of(POOL))
    before = Subscription.objects.count()
    with pytest.raises(Invalid) as refused:
        ordered(plan_of(POOL), holder=holder)
    assert (refused.value.rule, first.ref in refused.value.detail) == ("budget-taken", True)
    assert (Subscription.objects.count(), limits(holder)) == (before, {"pool": 300})
    ordered(plan_of(POOL | {"budget": "other"}), holder=holder)
    assert limits(holder) == {"pool": 300, "other": 300}


def test_the_next_subscription_has_its_budget_although_no_run_has_ended_the_one_before() -> None:
    holder, first = ordered(plan_of(POOL))
    amend(first, day(1), ends_at=day(2), sets_end=True)
    run_at(holder, first, day(1))
    move(holder, day(2))
    _, second = ordered(plan_of(POOL), holder=holder, seats="2", started_at=day(2))
    assert limits(holder) == {"pool": 200}
    run_at(holder, first, day(2))
    run_at(holder, second, day(2))
    assert (limits(holder), findings()) == ({"pool": 200}, [])


def test_an_account_with_too_many_budgets_goes_without_the_plans_and_the_audit_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder = unique("holder")
    move(holder, day(1))
    for number in range(20):
        services.set_budget(holder_id=holder, budget=f"b{number}", limit=1, window="day", idempotency_key=f"b{number}")
    _, subscription = ordered(plan_of(POOL), holder=holder)
    assert "goes without the plan's budget pool" in caplog.text
    run_at(holder, subscription, day(1))
    [finding] = findings()
    assert "pool" in finding


def test_what_nests_in_a_budget_without_room_comes_once_its_parent_does(caplog: pytest.LogCaptureFixture) -> None:
    holder = unique("holder")
    move(holder, day(1))
    for number in range(19):
        services.set_budget(holder_id=holder, budget=f"b{number}", limit=1, window="day", idempotency_key=f"b{number}")
    services.set_budget(holder_id=holder, budget="full", limit=1, window="day", idempotency_key="full")
    _, subscription = ordered(plan_of(MEMBER, AGENT), holder=holder)
    assert "goes without the plan's budget agent: The budget does not exist: budget 'member'" in caplog.text
    assert not Entry.objects.filter(holder_id=holder, kind="refusal").exists()
    for name in ("full", "b0"):
        services.end_budget(holder_id=holder, budget=name, idempotency_key=f"end {name}")
    run_at(holder, subscription, day(1))
    assert (limits(holder)["agent"], findings()) == (5, [])


def test_what_nests_in_a_budget_that_was_set_by_hand_for_later_comes_with_the_run_after_its_start() -> None:
    holder = unique("holder")
    move(holder, day(1))
    by_hand = {"budget": "member", "limit": 7, "window": "day", "by": "label", "label": "member", "starts_at": day(2)}
    services.set_budget(holder_id=holder, **by_hand, actor="ada", idempotency_key="by-hand")
    _, subscription = ordered(plan_of(MEMBER, AGENT), holder=holder)
    assert limits(holder) == {}
    move(holder, day(2))
    run_at(holder, subscription, day(2))
    assert (limits(holder), findings()) == ({"member": 7, "agent": 5}, [])


def test_a_parent_that_was_set_by_hand_and_does_not_fit_fails_neither_order_nor_run(caplog: pytest.LogCaptureFixture) -> None:
    holder = unique("holder")
    move(holder, day(1))
    by_hand = {"budget": "member", "limit": 7, "window": "day", "by": "label", "label": "agent"}
    services.set_budget(holder_id=holder, **by_hand, actor="ada", idempotency_key="by-hand")
    _, subscription = ordered(plan_of(MEMBER, AGENT), holder=holder)
    assert "goes without the plan's budget agent: parent: must count by something else than this budget" in caplog.text
    run_at(holder, subscription, day(1))
    [finding] = findings()
    assert (limits(holder), "agent" in finding) == ({"member": 7}, True)


def test_an_end_that_comes_between_two_readings_of_the_clock_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spans begin at the time of the application's server, and the ledger decides at the database's, which is later."""
    holder, subscription = ordered(plan_of(POOL))
    move(holder, day(2))
    time_of, end = services.time_of, day(2) - INSTANT
    with monkeypatch.context() as earlier:
        earlier.setattr(plan_budgets.ledger, "time_of", lambda holder_id: time_of(holder_id) - 2 * INSTANT)
        amend(subscription, end, ends_at=end, sets_end=True)
        run_at(holder, subscription, day(2))
    assert (limits(holder), findings()) == ({}, [])


def test_the_ledgers_audit_has_no_finding() -> None:
    holder, subscription = ordered(plan_of(POOL, MEMBER))
    services.grant(holder_id=holder, amount=100, idempotency_key="grant")
    spend(holder, 7)
    amend(subscription, day(1), quantities={"seats": Decimal(5)})
    amend(subscription, day(1), plan=plan_of())
    assert audit([connection.connection], holder_id=holder).findings == []


def test_an_amendment_in_a_preview_writes_no_budget() -> None:
    holder, subscription = ordered(plan_of(POOL))
    with services.preview():
        amend_subscription(ref=subscription.ref, wish=Wish(quantities={"seats": Decimal(9)}), effective_at=day(1))
    assert limits(holder) == {"pool": 300}


# What operators see -----------------------------------------------------------------------------------


def test_the_page_of_the_subscription_shows_what_prevails(admin_client: Any) -> None:
    holder = unique("holder")
    move(holder, day(1))
    services.set_budget(holder_id=holder, budget="pool", limit=7, window="day", actor="operator ada", idempotency_key="by-hand")
    _, subscription = ordered(plan_of(POOL, MEMBER), holder=holder)
    text = text_of(admin_client.get(f"/admin/billing/subscription/{subscription.pk}/change/").rendered_content)
    assert "pool 300 credits a day the account 7 credits a day, set by operator ada: it prevails until it is ended" in text
    assert "member 30 credits a day each member 30 credits a day" in text
    text = text_of(admin_client.get(f"/admin/ledger/account/holders/{holder}/").rendered_content)
    assert f"billing: {subscription.ref}" in text
    assert "operator ada" in text


def test_a_preview_of_an_order_and_of_an_amendment_says_what_becomes_of_the_budgets() -> None:
    holder, subscription = ordered(plan_of(POOL, MEMBER))
    services.set_budget(holder_id=holder, budget="member", limit=7, window="day", actor="ada", idempotency_key="by-hand")

    def changes(**wish: Any) -> list[str]:
        with services.preview():
            amend_subscription(ref=subscription.ref, wish=Wish(**wish), effective_at=day(1))
            return [change for each in plan_budgets.compare_budgets(subscription.ref, day(1)) if (change := budget_change(each))]

    kept = "The budget member stays at 7 credits, which ada set."
    assert changes(quantities={"seats": Decimal(5)}) == [kept, "The budget pool would be 500 credits."]
    assert changes(plan=plan_of(POOL | {"budget": "crew"})) == [
        "The account would have the budget crew: 300 credits.",
        "The budget pool would end.",
    ]
    assert limits(holder) == {"pool": 300, "member": 7}


# Any order --------------------------------------------------------------------------------------------

DAYS = [day(1) + timedelta(days=number) for number in range(20)]
PACES = {"in time": 1, "in steps": 3, "late": 1_000}
"""The days at which a run comes: each, each third, none before the end."""


class _Wanted:
    """What should stand on the account, worked out from the orders alone."""

    def __init__(self, plans: dict[str, list[dict[str, Any]]], orders: list[tuple[Any, str, Any]]) -> None:
        self._plans, self._orders = plans, orders

    def at(self, now: Any) -> dict[str, int]:
        plan, seats, paused, shown = "", 0, False, dict[str, int]()
        for at, what, value in sorted(self._orders, key=lambda order: order[0]):
            if at > now:
                break
            if what == "end":
                return {}
            plan = value if what == "plan" else plan
            seats = value if what == "seats" else seats
            paused = value if what == "paused" else paused
            if not paused:
                each = self._plans[plan]
                shown = {one["budget"]: one["limit"] * (seats if "per_quantity_of" in one else 1) for one in each}
        return shown


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.check), *range(1, 20)])
def test_late_in_steps_and_in_time_are_the_same_and_what_the_orders_say(seed: int) -> None:
    chosen = random.Random(seed)
    terms = {
        "none": [],
        "pool": [POOL | {"limit": chosen.randint(1, 9)}],
        "both": [POOL | {"limit": chosen.randint(1, 9)}, MEMBER],
        "other": [MEMBER | {"limit": 4}, POOL | {"budget": "crew", "window": "month"}],
    }
    codes = {name: plan_of(*budgets) for name, budgets in terms.items()}
    first, orders, paused = chosen.choice(list(terms)), list[tuple[Any, Any, str, Any]](), False
    for ordered_at in sorted(chosen.sample(DAYS[1:14], 5)):
        at = ordered_at + timedelta(days=chosen.choice([0, 0, 0, chosen.randint(1, 6)]))
        what = chosen.choice(["plan", "seats", "seats", "paused"])
        if what == "paused":
            at, paused = ordered_at, not paused
        value: Any = {"plan": chosen.choice(list(terms)), "seats": chosen.randint(1, 6), "paused": paused}[what]
        # Two changes of an instant count in the order of their orders, which sorting keeps.
        orders.append((ordered_at, at, what, value))
    if chosen.random() < 0.4:
        orders.append((DAYS[14], DAYS[14] + timedelta(days=chosen.choice([0, 3])), "end", None))
    for pace in PACES.values():
        holder, subscription = ordered(codes[first])
        said = [(day(1), "plan", first), (day(1), "seats", 3)]
        for number, now in enumerate(DAYS):
            due = [(at, what, value) for ordered_at, at, what, value in orders if ordered_at == now]
            is_run = number % pace == pace - 1 or now == DAYS[-1]
            # What stands on the account needs no run, to the microsecond.
            if now > day(1):
                move(holder, now - INSTANT)
                assert limits(holder) == _Wanted(terms, said).at(now - INSTANT), (pace, now, said)
            move(holder, now)
            for at, what, value in due:
                wish = {"plan": codes.get(value)} if what == "plan" else {"quantities": {"seats": Decimal(value or 0)}}
                wish = {"paused": value} if what == "paused" else wish
                wish = {"ends_at": at, "sets_end": True} if what == "end" else wish
                amend(subscription, now if what == "end" else at, **wish)
                said.append((at, what, value))
            if is_run:
                run_at(holder, subscription, now)
            assert limits(holder) == _Wanted(terms, said).at(now), (pace, now, said)
            if is_run:
                assert findings() == [], (pace, now, said)
