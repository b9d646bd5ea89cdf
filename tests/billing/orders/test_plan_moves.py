"""Subscriptions change to the newest version of their plan: each once, by ordinary amendments, after a preview."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction

from billing.auditing import consistency
from billing.models import Amendment, MovedSubscription, OpenPlanMove, Plan, PlanMove, Subscription
from billing.orders import coupons, plan_move_progress
from billing.orders import plan_move_walk as plan_moves
from billing.orders.item_versions import AmendmentChange
from billing.orders.overrides import PriceOverride
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_walk import carry_out, decide, move_one
from ledger.errors import HolderBusy, Invalid
from tests.billing.admin.test_order_forms import BILLING, hidden_values, send_first_step, text_of_response
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.billing.orders.test_amendments import lines_of
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


def two_versions(*amounts: str) -> Plan:
    """A plan whose versions cost these amounts a month in advance; the newest version."""
    code = unique("plan")
    return [PlanFactory(code=code, prices=[recurring(unit_amount=amount)]) for amount in amounts][-1]


def sold(amount: str = "31.00", **order: Any) -> tuple[str, Subscription]:
    """The ref of a plan at this amount, and a subscription to it from January on."""
    plan = two_versions(amount)
    return plan.code, SubscriptionFactory(plan=plan.code, **order)


def dearer(code: str, amount: str = "62.00") -> Plan:
    return PlanFactory(code=code, prices=[recurring(unit_amount=amount)])


def ordered(code: str, effective_at: datetime, **more: Any) -> PlanMove:
    return start_plan_move.execute(NewPlanMove(plan=code, effective_at=effective_at, actor="admin:mara", **more))


def outcomes(move: PlanMove) -> dict[str, str]:
    return {ref: row.outcome for row, ref in plan_move_progress.moved_subscriptions(move.pk, limit=100)}


def rows() -> list[Any]:
    """What a refusal or a look must leave as it was."""
    return [list(model.objects.order_by("pk").values()) for model in (PlanMove, OpenPlanMove, MovedSubscription, Amendment)]


# What is written -------------------------------------------------------------------------------------


def test_a_move_is_an_ordinary_amendment_that_the_next_run_bills():
    code, subscription = sold()
    bill(subscription, at(1, 1))
    newest = dearer(code)
    move = ordered(code, at(1, 11))
    assert (carry_out().moved, outcomes(move)) == (1, {subscription.ref: "moved"})
    amendment = Amendment.objects.get(subscription_id=subscription.pk, sequence=2)
    assert (amendment.effective_at, amendment.actor) == (at(1, 11), "admin:mara")
    assert amendment.change == {"plan": newest.pk, "plan_move": move.pk}
    assert lines_of(bill(subscription, at(1, 11))) == [
        [("credit", "base", -2100, "01-11", "02-01"), ("recurring", "base", 4200, "01-11", "02-01")]
    ]
    found = plan_move_progress.plan_move(move.pk)
    assert (found.is_open, found.moved, found.left_out) == (False, 1, {})
    assert consistency.check() == []


def test_a_late_run_bills_what_runs_in_time_bill():
    code, in_time = sold()
    late = SubscriptionFactory(plan=code)
    bill(in_time, at(1, 1))
    dearer(code)
    ordered(code, at(1, 11))
    carry_out()
    bill(in_time, at(1, 11))
    totals = [sum(doc["subtotal_minor"] for doc in bill(one, at(2, 1))) for one in (in_time, late)]
    # In time, 31.00 − 21.00 + 42.00 came before; the late run charges 10.00 and 42.00 for January.
    assert totals == [6200, 1000 + 4200 + 6200]


def test_the_version_of_the_order_counts_not_one_that_comes_later():
    code, subscription = sold()
    ordered_version = dearer(code)
    ordered(code, at(1, 11))
    dearer(code, "99.00")
    carry_out()
    assert Amendment.objects.get(subscription_id=subscription.pk, sequence=2).change["plan"] == ordered_version.pk


@pytest.mark.slow
@pytest.mark.check
def test_who_is_elsewhere_or_over_or_there_already_stays_and_is_named():
    code, moved = sold()
    elsewhere, ended, there, back = (SubscriptionFactory(plan=code) for _ in range(4))
    amend(elsewhere, at(1, 5), plan=two_versions("1.00").code)
    amend(ended, at(1, 5), sets_end=True, ends_at=at(1, 8))
    amend(back, at(1, 5), sets_end=True, ends_at=at(1, 8))
    amend(back, at(1, 20), sets_end=True)
    dearer(code)
    amend(there, at(1, 5), plan=code)
    new = SubscriptionFactory(plan=code)
    move = ordered(code, at(1, 11))
    carry_out()
    assert outcomes(move) == {
        moved.ref: "moved", elsewhere.ref: "another-plan", ended.ref: "ended", there.ref: "already-there", back.ref: "moved",
    }  # fmt: skip
    assert Amendment.objects.filter(subscription_id__in=[elsewhere.pk, ended.pk], change__has_key="plan_move").count() == 0
    assert Amendment.objects.filter(subscription_id=new.pk).count() == 1
    assert consistency.check() == []


def test_only_named_subscriptions_and_versions_are_moved():
    code, first = sold()
    other = SubscriptionFactory(plan=code)
    dearer(code, "40.00")
    second = SubscriptionFactory(plan=code)
    dearer(code)
    only = ordered(code, at(1, 11), versions=[1], subscriptions=[first.ref, second.ref])
    carry_out()
    assert outcomes(only) == {first.ref: "moved"}
    rest = ordered(code, at(1, 11))
    carry_out()
    assert outcomes(rest) == {first.ref: "already-there", second.ref: "moved", other.ref: "moved"}


def test_negotiated_prices_quantities_a_trial_and_a_pause_go_on_on_the_new_version():
    code = unique("plan")
    PlanFactory(code=code, prices=[recurring(unit_amount="31.00", model="unit")])
    subscription = SubscriptionFactory(
        plan=code, quantities={"base": Decimal(2)}, trial_end=at(1, 16), price_override=PriceOverride(percent_off=Decimal(50))
    )
    amend(subscription, at(1, 5), paused=True)
    amend(subscription, at(1, 20), paused=False)
    PlanFactory(code=code, prices=[recurring(unit_amount="62.00", model="unit")])
    ordered(code, at(1, 11))
    carry_out()
    assert lines_of(bill(subscription, at(2, 1))) == [
        [("recurring", "base", 2400, "01-20", "02-01"), ("recurring", "base", 6200, "02-01", "03-01")]
    ]
    assert consistency.check() == []


def test_planned_amendments_stay_and_a_planned_return_to_an_earlier_version_is_moved_too():
    code, subscription = sold()
    other = two_versions("10.00").code
    amend(subscription, at(2, 1), plan=other)
    amend(subscription, at(3, 1), plan=code)
    newest = dearer(code)
    move = ordered(code, at(1, 11))
    carry_out()
    [(row, _)] = plan_move_progress.moved_subscriptions(move.pk, limit=1)
    assert row.amendments == [4, 5]
    instants = Amendment.objects.filter(subscription_id=subscription.pk, sequence__gte=4).values_list("effective_at", "change")
    assert list(instants) == [(day, {"plan": newest.pk, "plan_move": move.pk}) for day in (at(1, 11), at(3, 1))]
    made = bill(subscription, at(3, 1))
    assert [line[2] for doc in lines_of(made) for line in doc] == [1000, 4200, 1000, 6200]


def test_a_subscription_that_begins_later_is_moved_at_its_start():
    code, _ = sold()
    later = SubscriptionFactory(plan=code, started_at=at(5, 1))
    dearer(code)
    ordered(code, at(1, 11))
    carry_out()
    assert Amendment.objects.get(subscription_id=later.pk, sequence=2).effective_at == at(5, 1)
    assert lines_of(bill(later, at(5, 1))) == [[("recurring", "base", 6200, "05-01", "06-01")]]


# Once ------------------------------------------------------------------------------------------------


def test_a_second_walk_and_a_second_worker_write_nothing_more():
    code, subscription = sold()
    dearer(code)
    move = ordered(code, at(1, 11))
    assert move_one(move, subscription.ref) == "moved"
    before = rows()
    assert move_one(move, subscription.ref) is None
    assert rows() == before
    assert (carry_out().looked_at, OpenPlanMove.objects.filter(move_id=move.pk).exists()) == (0, False)
    with pytest.raises(IntegrityError), transaction.atomic():
        MovedSubscription.objects.create(move_id=move.pk, subscription_id=subscription.pk, outcome="moved")


def test_a_stopped_walk_is_continued_where_it_stopped():
    code, first = sold()
    others = [SubscriptionFactory(plan=code) for _ in range(2)]
    dearer(code)
    move = ordered(code, at(1, 11))
    stops = iter([False, True])
    assert carry_out(stop=lambda: next(stops)).moved == 1
    assert (outcomes(move), plan_move_progress.plan_move(move.pk).is_open) == ({first.ref: "moved"}, True)
    assert (carry_out(dry_run=True).looked_at, len(outcomes(move))) == (2, 1)
    assert carry_out().moved == 2
    assert outcomes(move) == {one.ref: "moved" for one in (first, *others)}


def test_a_subscription_that_fails_is_tried_again_and_the_others_are_moved(monkeypatch):
    code, first = sold()
    second = SubscriptionFactory(plan=code)
    dearer(code)
    move = ordered(code, at(1, 11))
    real = plan_moves.move_to_plan

    def busy(lock: Any, subscription: Subscription, *more: Any) -> Any:
        if subscription.pk == first.pk:
            raise HolderBusy(key="subscription_intent/x", timeout_ms=2000)
        return real(lock, subscription, *more)

    monkeypatch.setattr(plan_moves, "move_to_plan", busy)
    assert (carry_out().failed, outcomes(move)) == (1, {second.ref: "moved"})
    assert plan_move_progress.plan_move(move.pk).error == f"{first.ref}: holder-busy"
    assert Amendment.objects.filter(subscription_id=first.pk).count() == 1
    monkeypatch.undo()
    assert carry_out().moved == 1
    assert plan_move_progress.plan_move(move.pk).is_open is False


def test_the_command_says_what_it_did_and_exits_with_3_if_something_failed(monkeypatch, capsys):
    code, subscription = sold()
    dearer(code)
    ordered(code, at(1, 11))
    call_command("move_subscriptions", dry_run=True)
    assert capsys.readouterr().out == "1 left. Nothing was written (dry run).\n"

    def busy(*_: Any) -> None:
        raise HolderBusy(key="subscription_intent/x", timeout_ms=2000)

    monkeypatch.setattr(plan_moves, "move_to_plan", busy)
    with pytest.raises(SystemExit) as exited:
        call_command("move_subscriptions")
    assert (exited.value.code, capsys.readouterr().out) == (3, "1 looked at, 0 moved, 1 failed; they are tried again later.\n")
    monkeypatch.undo()
    call_command("move_subscriptions", format="json")
    found = json.loads(capsys.readouterr().out)
    assert found == {"dry_run": False, "looked_at": 1, "moved": 1, "failed": 0, "exit_code": 0}
    assert Amendment.objects.filter(subscription_id=subscription.pk).count() == 2


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"versions": [2]}, "/versions/0"),
        ({"versions": [1, 7]}, "/versions/1"),
        ({"subscriptions": ["SUB-nobody"]}, "/subscriptions/0"),
        ({"effective_at": at(1, 1, year=1999)}, "/effective_at"),
        ({"effective_at": at(1, 1, year=9999)}, "/effective_at"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_not_written(more, pointer):
    code, _ = sold()
    dearer(code)
    before = rows()
    with pytest.raises(Invalid) as refused:
        ordered(code, **({"effective_at": at(1, 11)} | more))
    assert refused.value.facts["pointer"] == pointer
    assert rows() == before


def test_a_plan_with_one_version_has_nobody_to_move():
    code, _ = sold()
    before = rows()
    with pytest.raises(Invalid) as refused:
        ordered(code, at(1, 11))
    assert (refused.value.facts["rule"], rows()) == ("no-earlier-version", before)


def test_the_check_finds_a_move_without_its_amendment():
    code, subscription = sold()
    dearer(code)
    move = ordered(code, at(1, 11))
    MovedSubscription.objects.create(move_id=move.pk, subscription_id=subscription.pk, outcome="moved", amendments=[9])
    assert findings_of("plan move differs") == [f"plan move {move.pk}, subscription {subscription.pk}"]


def test_the_check_finds_a_move_that_was_taken_for_done():
    code, subscription = sold()
    dearer(code)
    move = ordered(code, at(1, 11))
    SubscriptionFactory(plan=code)
    assert findings_of("left subscriptions out") == []
    OpenPlanMove.objects.filter(move_id=move.pk).delete()
    assert findings_of("left subscriptions out") == [f"plan move {move.pk}, subscription {subscription.ref}"]


# The preview -----------------------------------------------------------------------------------------


def test_the_preview_says_what_changes_per_subscription_and_in_sum_and_writes_nothing(api):
    code, first = sold(customer=CustomerFactory().ref)
    second = SubscriptionFactory(plan=code, trial_end=at(2, 1), price_override=PriceOverride(percent_off=Decimal(50)))
    SubscriptionFactory(plan=code, ends_at=at(1, 5))
    coupons.create_coupon(code=(coupon := unique("coupon")), kind="percentage", value=Decimal(10), duration="forever")
    coupons.give_subscription_coupon(ref=first.ref, code=coupon)
    amend(first, at(6, 1), sets_end=True, ends_at=at(7, 1))
    dearer(code)
    before = rows()
    path = f"/v1/plans/{code}/moves/preview"
    shown = api.post(f"{path}?limit=1", {"effective_at": "2026-01-11T00:00:00Z"}).json()
    assert (shown["version"], shown["from_versions"], shown["left_out"]) == (2, [1], {"ended": 1})
    assert shown["sums"] == [
        {"currency": "EUR", "subscriptions": 2, "before_minor": 4650, "after_minor": 9300, "difference_minor": 4650}
    ]
    [line] = shown["subscriptions"]
    assert (line["subscription"], line["before_minor"], line["after_minor"]) == (first.ref, 3100, 6200)
    assert line["notes"] == ["pending-amendments", "coupons"]
    following = api.post(f"{path}?after={shown['next']}", {"effective_at": "2026-01-11T00:00:00Z"}).json()
    [line] = following["subscriptions"]
    assert (line["subscription"], line["before_minor"], line["after_minor"]) == (second.ref, 1550, 3100)
    assert (line["notes"], following["next"], following["sums"]) == (["trial", "negotiated-prices"], None, shown["sums"])
    assert rows() == before


def test_the_calls_order_a_move_once_and_show_how_far_it_is(api):
    code, subscription = sold()
    dearer(code)
    body = {"effective_at": "2026-01-11T00:00:00Z", "reason": "2026"}
    path = f"/v1/plans/{code}/moves"
    assert api.post(f"{path}?dry_run=true", body).status_code == 200
    assert not PlanMove.objects.filter(plan_id__in=Plan.objects.filter(code=code)).exists()
    first, again = (api.post(path, body, key="one") for _ in range(2))
    made = first.json()
    assert (first.status_code, again.json(), made["state"], made["moved"]) == (201, made, "open", 0)
    carry_out()
    done = api.get(f"/v1/plan-moves/{made['id']}").json()
    assert (done["state"], done["moved"], done["reason"], done["actor"]) == ("done", 1, "2026", made["actor"])
    assert api.get(path).json()["results"] == [done]
    [moved] = api.get(f"/v1/plan-moves/{made['id']}/subscriptions?outcome=moved").json()["results"]
    assert (moved["subscription"], moved["amendments"]) == (subscription.ref, [2])
    assert api.get(f"/v1/plan-moves/{made['id']}/subscriptions?outcome=ended").json()["results"] == []
    for missing in ("/v1/plans/nothing/moves", "/v1/plan-moves/999999", "/v1/plan-moves/999999/subscriptions"):
        assert api.get(missing).status_code == 404


@pytest.mark.slow
@pytest.mark.check
def test_operators_see_the_difference_first_and_then_how_far_the_move_is():
    code, subscription = sold()
    newest = dearer(code)
    client = operator("billing.view_plan", "billing.add_amendment")
    url = f"{BILLING}/plan/{newest.pk}/move/"
    typed = {"effective_at": "2026-01-11T00:00", "versions-0-name": "1", "reason": "2026"}
    shown = send_first_step(client, url, typed)
    text = text_of_response(shown)
    assert "31.00 EUR a month so far, 62.00 EUR then; the difference is 31.00 EUR" in text
    assert subscription.ref in text
    assert not PlanMove.objects.filter(plan_id=newest.pk).exists()
    assert client.post(url, hidden_values(shown) | {"confirmed": "yes"}).status_code == 302
    assert PlanMove.objects.get(plan_id=newest.pk).from_plans == list(
        Plan.objects.filter(code=code, version=1).values_list("pk", flat=True)
    )
    page = f"{BILLING}/plan/{newest.pk}/change/"
    assert "goes on" in text_of_response(client.get(page))
    carry_out()
    assert "done" in text_of_response(client.get(page))


@pytest.mark.parametrize("version", ["9" * 5000, "9" * 10, "one", "0", "²"])
def test_versions_that_are_none_are_refused_at_their_field(version: str) -> None:
    code, _ = sold()
    newest = dearer(code)
    typed = {"effective_at": "2026-01-11T00:00", "versions-0-name": "1", "versions-1-name": version, "reason": "2026"}
    shown = send_first_step(operator("billing.view_plan", "billing.add_amendment"), f"{BILLING}/plan/{newest.pk}/move/", typed)
    assert "Version 2: " in shown.context_data["form"].errors["versions"][0]
    assert not PlanMove.objects.exists()


# The rule --------------------------------------------------------------------------------------------


DAY = timedelta(days=1)


def change(sequence: int, day: int, **what: Any) -> AmendmentChange:
    return AmendmentChange(sequence, at(1, 1) + day * DAY, **what)


@pytest.mark.parametrize(
    ("changes", "outcome", "days"),
    [
        ([change(1, 0, plan_id=1)], "moved", [5]),
        ([change(1, 9, plan_id=1)], "moved", [9]),
        ([change(1, 0, plan_id=2)], "already-there", []),
        ([change(1, 0, plan_id=3)], "another-plan", []),
        ([change(1, 0, plan_id=1), change(2, 5, plan_id=3)], "another-plan", []),
        ([change(1, 0, plan_id=1), change(2, 6, plan_id=3)], "moved", [5]),
        ([change(1, 0, plan_id=3), change(2, 6, plan_id=1)], "moved", [6]),
        ([change(1, 0, plan_id=1), change(2, 7, plan_id=1)], "moved", [5, 7]),
        ([change(1, 0, plan_id=1, sets_end=True, ends_at=at(1, 1) + 5 * DAY)], "ended", []),
        ([change(1, 0, plan_id=1, sets_end=True, ends_at=at(1, 1) + 6 * DAY)], "moved", [5]),
    ],
)
def test_what_a_move_decides(changes, outcome, days):
    decision = decide(changes, to_plan=2, from_plans=[1], effective_at=at(1, 1) + 5 * DAY)
    assert (decision.outcome, list(decision.instants)) == (outcome, [at(1, 1) + day * DAY for day in days])
