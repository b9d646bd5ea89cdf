"""Phases: terms that follow each other, ordered at once and seen ahead; changed before they begin; cancelled, paused, moved."""

from decimal import Decimal
from typing import Any

import pytest

from billing.auditing import consistency
from billing.models import Amendment, Subscription
from billing.orders.overrides import PriceOverride
from billing.orders.phases import Phase
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.orders.plan_move_walk import carry_out
from billing.rating.periods import Interval, IntervalUnit
from billing.reads import calendar
from ledger.errors import Invalid
from tests.billing.admin.test_order_forms import BILLING, hidden_values, rows_typed, send_first_step, text_of_response
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, unique
from tests.billing.generator.run.test_generate import bill
from tests.billing.orders.test_amendments import lines_of
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
FAR = 2099


def priced(amount: str = "31.00", **more: Any) -> str:
    return PlanFactory(code=unique("plan"), prices=[recurring(unit_amount=amount, model="unit")], **more).code


def off(percent: int) -> PriceOverride:
    return PriceOverride(percent_off=Decimal(percent))


def ordered(*phases: Phase, **more: Any) -> Subscription:
    return SubscriptionFactory(**({"plan": more.pop("plan", None) or priced()} | more), phases=list(phases))


def charged(documents: list[Any]) -> list[tuple[str, int]]:
    """First day and amount of each line."""
    return [(line[3], line[2]) for lines in lines_of(documents) for line in lines]


def seen(subscription: Subscription) -> list[tuple[int | None, str, str | None, int]]:
    """Phase, times and price of each stretch of the calendar."""
    return [
        (one.phase, f"{one.starts_at:%m-%d}", one.ends_at and f"{one.ends_at:%m-%d}", one.per_period_minor)
        for one in calendar(subscription.ref).stretches
    ]


# Ordered ---------------------------------------------------------------------------------------------


RAMP = (
    Phase(intervals=2, price_override=off(50)),
    Phase(intervals=1, quantities={"base": Decimal(2)}),
    Phase(list_prices=True),
)


@pytest.mark.slow
@pytest.mark.check
def test_a_ramp_bills_each_phase_at_its_terms_in_time_and_late():
    plan = priced()
    in_time, late = ordered(*RAMP, plan=plan), ordered(*RAMP, plan=plan)
    expected = [("01-01", 1550), ("02-01", 1550), ("03-01", 3100), ("04-01", 6200)]
    assert [line for month in (1, 2, 3, 4) for line in charged(bill(in_time, at(month)))] == expected
    assert charged(bill(late, at(4))) == expected
    assert consistency.check() == []


def test_a_trial_phase_is_free_and_the_next_one_begins_with_its_end():
    subscription = ordered(Phase(intervals=1, trial=True), Phase(intervals=1, price_override=off(50)), Phase(list_prices=True))
    assert subscription.trial_end == at(2, 1)
    assert charged(bill(subscription, at(3, 1))) == [("02-01", 1550), ("03-01", 3100)]


def test_a_period_in_which_a_phase_begins_counts_as_one():
    subscription = ordered(
        Phase(intervals=1), Phase(intervals=1, quantities={"base": Decimal(2)}), Phase(quantities={"base": Decimal(3)}),
        started_at=at(1, 11), anchor_at=at(1, 1),
    )  # fmt: skip
    # 11 to 31 January are 21 of 31 days.
    assert charged(bill(subscription, at(3, 1))) == [("01-11", 2100), ("02-01", 6200), ("03-01", 9300)]


def test_a_charge_in_advance_reaches_up_to_a_phase_that_begins_within_the_period():
    subscription = ordered(Phase(ends_at=at(1, 11)), Phase(plan=priced("62.00")))
    assert lines_of(bill(subscription, at(1, 1))) == [[("recurring", "base", 1000, "01-01", "01-11")]]
    assert lines_of(bill(subscription, at(1, 11))) == [[("recurring", "base", 4200, "01-11", "02-01")]]


def test_phases_count_the_periods_of_their_own_plan():
    yearly = priced("365.00", interval=Interval(IntervalUnit.YEAR, 1))
    subscription = ordered(Phase(intervals=2), Phase(plan=yearly, intervals=1), Phase(plan=priced("62.00")))
    instants = (
        Amendment.objects.filter(subscription_id=subscription.pk).order_by("sequence").values_list("effective_at", flat=True)
    )
    # The year that contains 1 March ends on 1 January.
    assert list(instants) == [at(1, 1), at(3, 1), at(1, 1, year=2027)]


def test_the_order_names_the_first_terms_and_the_end():
    subscription = ordered(
        Phase(intervals=1), Phase(intervals=1, list_prices=True), Phase(quantities={"base": Decimal(5)}),
        quantities={"base": Decimal(2)}, price_override=off(50), ends_at=at(3, 1),
    )  # fmt: skip
    assert charged(bill(subscription, at(6, 1))) == [("01-01", 3100), ("02-01", 6200)]


SEATS = PriceOverride(prices={"seats": {"unit_amount": "1"}})


@pytest.mark.parametrize(
    ("phases", "more", "pointer"),
    [
        ([Phase(intervals=1)], {}, "/phases/0"),
        ([Phase(), Phase()], {}, "/phases/0"),
        ([Phase(intervals=1, ends_at=at(2, 1)), Phase()], {}, "/phases/0"),
        ([Phase(intervals=1), Phase(intervals=1)], {}, "/phases/1"),
        ([Phase(intervals=1), Phase(ends_at=at(1, 5)), Phase()], {}, "/phases/1/ends_at"),
        ([Phase(ends_at=at(1, 1)), Phase()], {}, "/phases/0/ends_at"),
        ([Phase(ends_at=at(1, 1, year=2201)), Phase()], {}, "/phases/0/ends_at"),
        ([Phase(intervals=1200), Phase(intervals=1200), Phase()], {}, "/phases/1/ends_at"),
        ([Phase(intervals=1), Phase(trial=True)], {}, "/phases/1/trial"),
        ([Phase(intervals=1), Phase(list_prices=True, price_override=off(1))], {}, "/phases/1/list_prices"),
        ([Phase(intervals=1), Phase(plan="nothing")], {}, "/phases/1/plan"),
        ([Phase(intervals=1), Phase(quantities={"seats": Decimal(1)})], {}, "/phases/1/quantities/seats"),
        ([Phase(intervals=1), Phase(price_override=SEATS)], {}, "/phases/1/price_override/prices/seats"),
        ([Phase(intervals=1, trial=True), Phase()], {"trial_end": at(2, 1)}, "/trial_ends_at"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_not_written(phases, more, pointer):
    plan, customer = priced(), CustomerFactory().ref
    before = Subscription.objects.count(), Amendment.objects.count()
    with pytest.raises(Invalid) as refused:
        ordered(*phases, plan=plan, customer=customer, **more)
    assert refused.value.facts["pointer"] == pointer
    assert (Subscription.objects.count(), Amendment.objects.count()) == before


def test_all_phases_include_tax_or_none_does():
    inclusive = priced(tax_behavior="inclusive")
    before = Subscription.objects.count()
    with pytest.raises(Invalid) as refused:
        ordered(Phase(intervals=1), Phase(plan=inclusive))
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/phases/1/plan", "other-tax-behavior")
    assert Subscription.objects.count() == before


# Seen ahead ------------------------------------------------------------------------------------------


def test_the_calendar_shows_phases_pauses_and_the_end(api):
    plan = priced()
    times = {"started_at": at(1, 1, year=FAR), "ends_at": at(9, 1, year=FAR)}
    subscription = ordered(Phase(intervals=1, trial=True), *RAMP, plan=plan, **times)
    amend(subscription, at(6, 1, year=FAR), paused=True)
    amend(subscription, at(7, 1, year=FAR), paused=False)
    assert seen(subscription) == [
        (1, "01-01", "02-01", 0), (2, "02-01", "04-01", 1550), (3, "04-01", "05-01", 3100), (4, "05-01", "06-01", 6200),
        (4, "07-01", "09-01", 6200),
    ]  # fmt: skip
    body = api.get(f"/v1/subscriptions/{subscription.ref}/calendar").json()
    assert body["stretches"][2] == {
        "starts_at": "2099-04-01T00:00:00.000000Z", "ends_at": "2099-05-01T00:00:00.000000Z", "phase": 3, "is_trial": False,
        "plan": plan, "plan_version": 1, "quantities": {"base": "2"}, "is_negotiated": True, "currency": "EUR",
        "per_period_minor": 3100,
    }  # fmt: skip
    assert api.get("/v1/subscriptions/SUB-nobody/calendar").status_code == 404


def test_a_subscription_without_phases_or_time_has_a_calendar_too():
    assert [one[0] for one in seen(SubscriptionFactory(plan=priced()))] == [None]
    assert seen(SubscriptionFactory(plan=priced(), ends_at=at(2, 1))) == []


def test_the_calls_order_phases_and_preview_them(api):
    plan, customer = priced(), CustomerFactory().ref
    body = {
        "plan": plan, "started_at": "2099-01-01T00:00:00Z",
        "phases": [{"intervals": 1, "price_override": {"percent_off": "50"}}, {"list_prices": True}],
    }  # fmt: skip
    shown = api.post(f"/v1/customers/{customer}/preview", {"subscription": body, "invoices": 2}).json()["invoices"]
    assert [one["invoice"]["total_minor"] for one in shown] == [1550, 3100]
    made = api.post("/v1/subscriptions", body | {"ref": (ref := unique("SUB")), "customer": customer})
    assert made.status_code == 201, made.content
    assert [one[3] for one in seen(Subscription.objects.get(ref=ref))] == [1550, 3100]
    wrong = api.post("/v1/subscriptions", body | {"ref": unique("SUB"), "customer": customer, "phases": [{"intervals": 0}, {}]})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (400, "/phases/0/intervals")
    much = [{"intervals": 1}, {"quantities": {"base": "1" + 26 * "0"}}]
    wrong = api.post("/v1/subscriptions", body | {"ref": unique("SUB"), "customer": customer, "phases": much})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (400, "/phases/1/quantities/base")


# Changed before they begin ---------------------------------------------------------------------------


def in_2099() -> Subscription:
    return ordered(*RAMP, started_at=at(1, 1, year=FAR))


def test_other_phases_replace_those_that_have_not_begun():
    subscription = in_2099()
    amend(subscription, at(3, 1, year=FAR), phases=[Phase(intervals=2, price_override=off(20)), Phase(list_prices=True)])
    assert seen(subscription) == [(1, "01-01", "03-01", 1550), (2, "03-01", "05-01", 2480), (3, "05-01", None, 3100)]
    amend(subscription, at(5, 1, year=FAR), phases=[])
    assert seen(subscription)[-1] == (2, "03-01", None, 2480)
    rows = Amendment.objects.filter(subscription_id=subscription.pk).order_by("pk")
    assert [one.change.get("withdraws") for one in rows] == [None, None, None, [2, 3], None, [5]]
    assert charged(bill(subscription, at(6, 1, year=FAR)))[-1] == ("06-01", 2480)
    assert consistency.check() == []


def test_phases_are_changed_over_rest_and_a_phase_that_has_begun_stays(api):
    subscription = ordered(*RAMP)
    before = list(Amendment.objects.filter(subscription_id=subscription.pk).values())
    path = f"/v1/subscriptions/{subscription.ref}/amendments"
    refused = api.post(path, {"effective_at": "2026-02-15T00:00:00Z", "phases": []})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/effective_at")
    both = api.post(path, {"effective_at": "2099-02-15T00:00:00Z", "phases": [], "paused": True})
    assert both.status_code == 400
    assert list(Amendment.objects.filter(subscription_id=subscription.pk).values()) == before
    made = api.post(path, {"effective_at": "2099-02-01T00:00:00Z", "phases": [{"quantities": {"base": 7}}]})
    assert (made.status_code, made.json()["change"]) == (201, {"phase": 4, "quantities": {"base": "7"}, "withdraws": []})


# With other changes ----------------------------------------------------------------------------------


def test_phases_after_the_end_do_not_come_and_come_again_with_it_withdrawn():
    subscription = in_2099()
    amend(subscription, at(2, 1, year=FAR), sets_end=True, ends_at=at(3, 1, year=FAR))
    assert seen(subscription) == [(1, "01-01", "03-01", 1550)]
    amend(subscription, at(2, 15, year=FAR), sets_end=True)
    assert [one[0] for one in seen(subscription)] == [1, 2, 3]


def test_a_pause_moves_no_phase_and_is_not_billed():
    subscription = ordered(*RAMP)
    amend(subscription, at(2, 1), paused=True)
    amend(subscription, at(4, 1), paused=False)
    assert charged(bill(subscription, at(4, 1))) == [("01-01", 1550), ("04-01", 6200)]


def test_a_moved_billing_day_moves_no_phase():
    subscription = ordered(*RAMP)
    amend(subscription, at(1, 10), anchor_at=at(1, 15))
    # 1 to 14 January are 14 of 31 days, 15 to 28 February 14 of 28, and the second phase has the other 14.
    assert charged(bill(subscription, at(3, 1))) == [("01-01", 700), ("01-15", 1550), ("02-15", 775), ("03-01", 1550)]


def test_a_longer_trial_shortens_the_phase_after_it():
    subscription = ordered(Phase(intervals=1, trial=True), Phase(list_prices=True), started_at=at(1, 1, year=FAR))
    amend(subscription, at(1, 5, year=FAR), trial_end=at(2, 15, year=FAR))
    assert [(one.phase, one.is_trial) for one in calendar(subscription.ref).stretches] == [(1, True), (2, True), (2, False)]


def test_a_plan_move_takes_planned_phases_along_and_withdrawing_them_takes_the_move_back():
    code, other = priced(), priced("10.00")
    phases = [Phase(intervals=1), Phase(plan=other, intervals=1), Phase(plan=code)]
    subscription = ordered(*phases, plan=code, started_at=at(1, 1, year=FAR))
    PlanFactory(code=code, prices=[recurring(unit_amount="62.00", model="unit")])
    start_plan_move.execute(NewPlanMove(plan=code, effective_at=at(1, 1), actor="test"))
    carry_out()
    assert [one[3] for one in seen(subscription)] == [6200, 1000, 6200]
    amend(subscription, at(3, 1, year=FAR), phases=[])
    assert [one[3] for one in seen(subscription)] == [6200, 1000]
    assert consistency.check() == []


# In the admin ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_operators_see_the_calendar_and_change_phases():
    subscription = in_2099()
    client = operator("billing.view_subscription", "billing.view_invoice", "billing.add_amendment")
    page = f"{BILLING}/subscription/{subscription.pk}"
    assert "1 Jan 2099 – 28 Feb 2099" in text_of_response(client.get(f"{page}/change/"))
    url = f"{page}/change-phases/"
    first = {"ends": "periods", "intervals": "2", "prices": "percent", "percent_off": "20", "key": "base", "quantity": "3"}
    last = {"ends": "then", "prices": "list_prices"}
    typed = {"effective_at": "2099-03-01T00:00"} | rows_typed("phases", first, last)
    wrong = send_first_step(client, url, typed | {"phases-0-intervals": ""})
    assert (wrong.status_code, "Phase 1: This is missing." in text_of_response(wrong)) == (422, True)
    assert 'id="id_phases-0-intervals_fault">This is missing.' in wrong.content.decode()
    assert wrong.context_data["form"]["phases"].value()[1] == last
    shown = send_first_step(client, url, typed)
    assert "phase 2 begins, phases that have not begun are replaced, base: 3" in text_of_response(shown)
    assert client.post(url, hidden_values(shown) | {"confirmed": "yes"}).status_code == 302
    assert seen(subscription)[1:] == [(2, "03-01", "05-01", 7440), (3, "05-01", None, 9300)]
    withdrawn = send_first_step(client, f"{page}/withdraw-phases/", {"effective_at": "2099-05-01T00:00"})
    assert client.post(f"{page}/withdraw-phases/", hidden_values(withdrawn) | {"confirmed": "yes"}).status_code == 302
    assert seen(subscription)[1:] == [(2, "03-01", None, 7440)]
