"""A retired plan is taken by no order, and its subscriptions go on; a plan's trial counts for orders that name none."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing import reads
from billing.admin.references import list_plans
from billing.models import Amendment, Plan, Price, Subscription
from billing.orders import plans
from billing.orders.phases import Phase
from billing.orders.plans import change_plan_sale, latest_plan
from billing.orders.subscriptions import Wish, amend_subscription, create_subscription
from billing.reads.catalogue import newest_of
from ledger.errors import Invalid
from tests.billing.admin.test_order_forms import BILLING, hidden_values, send_first_step, text_of_response
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db


def retire(code: str) -> Plan:
    return change_plan_sale(plan=code, on_sale=False)


def order(plan: str, **terms: Any) -> Subscription:
    return create_subscription(
        **{"ref": unique("SUB"), "customer": CustomerFactory().ref, "plan": plan, "started_at": at(1, 1), **terms}
    )


def rows() -> tuple[int, ...]:
    return Plan.objects.count(), Price.objects.count(), Subscription.objects.count(), Amendment.objects.count()


# Retired plans ---------------------------------------------------------------------------------------


def test_a_retired_plan_is_a_version_with_the_same_terms() -> None:
    first = PlanFactory(prices=[recurring("base", "10"), recurring("seats", "5")], minimum=Decimal(3), trial_days=14)
    second = retire(first.code)
    assert (second.version, second.on_sale, Plan.objects.get(pk=first.pk).on_sale) == (2, False, True)
    apart = {"id", "version", "on_sale", "created_at", "name_words"}
    values = [
        {name: value for name, value in Plan.objects.filter(pk=plan.pk).values()[0].items() if name not in apart}
        for plan in (first, second)
    ]
    assert values[0] == values[1]
    assert [price for _, price in plans.terms_of(second.pk).prices] == [price for _, price in plans.terms_of(first.pk).prices]
    before = rows()
    assert retire(first.code).pk == second.pk
    assert rows() == before
    third = change_plan_sale(plan=first.code, on_sale=True)
    assert (third.version, third.on_sale, latest_plan(first.code).pk) == (3, True, third.pk)


def refusals() -> list[tuple[str, str]]:
    plan, other = PlanFactory(), PlanFactory(prices=[recurring()])
    retire(plan.code)
    subscription = SubscriptionFactory(plan=other.code, started_at=at(1, 1))
    found = []
    for attempt in (
        lambda: order(plan.code),
        lambda: amend_subscription(ref=subscription.ref, effective_at=at(2, 1), wish=Wish(plan=plan.code)),
        lambda: order(other.code, phases=[Phase(intervals=1), Phase(plan=plan.code)]),
    ):
        before = rows()
        with pytest.raises(Invalid) as refused:
            attempt()
        # The customer of an order that is refused is the only new row.
        assert rows() == before
        facts = refused.value.facts
        assert f"plan '{plan.code}' is retired" in facts["detail"]
        found.append((facts["pointer"], facts["rule"]))
    return found


def test_no_order_takes_a_retired_plan_and_nothing_is_written() -> None:
    assert refusals() == [("/plan", "on-sale"), ("/plan", "on-sale"), ("/phases/1/plan", "on-sale")]


def test_subscriptions_of_a_retired_plan_go_on_and_may_get_its_newest_version() -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")])
    subscription = SubscriptionFactory(plan=plan.code, started_at=at(1, 1))
    retired = retire(plan.code)
    [invoice] = bill(subscription, at(1, 1))
    assert invoice["total_minor"] == 31_00
    amend_subscription(ref=subscription.ref, effective_at=at(2, 1), wish=Wish(plan=plan.code))
    assert Amendment.objects.order_by("pk").last().change["plan"] == retired.pk  # type: ignore[union-attr]


def test_lists_have_plans_on_sale_first() -> None:
    old, new = PlanFactory(name="Old"), PlanFactory(name="New")
    retire(new.code)
    assert [plan.code for plan in reads.plans(on_sale=True, limit=9)] == [old.code]
    assert list(list_plans("")) == [(old.code, "Old"), (new.code, "New (retired)")]
    client = operator()
    listed = client.get(f"{BILLING}/plan/").context_data["cl"].result_list
    assert [(row.code, row.sale) for row in listed] == [
        (new.code, "earlier version"), (old.code, "on sale"), (new.code, "retired"),
    ]  # fmt: skip
    filtered = client.get(f"{BILLING}/plan/?sale=retired").context_data["cl"].result_list
    assert [row.code for row in filtered] == [new.code]
    assert newest_of(Plan, on_sale=False).get().code == new.code


def test_retire_over_rest(api: ApiClient) -> None:
    plan = PlanFactory()
    made = api.post(f"/v1/plans/{plan.code}/sale", {"on_sale": False}, key=(key := unique("k")))
    assert made.status_code == 201, made.content
    assert (made.json()["version"], made.json()["on_sale"]) == (2, False)
    assert api.post(f"/v1/plans/{plan.code}/sale", {"on_sale": False}, key=key).json() == made.json()
    assert api.get(f"/v1/plans/{plan.code}").json() == made.json()
    assert api.get("/v1/plans?on_sale=true").json()["results"] == []
    assert api.post("/v1/plans/nothing/sale", {"on_sale": False}, key=unique("k")).status_code == 404
    body = {"ref": unique("SUB"), "customer": CustomerFactory().ref, "plan": plan.code, "started_at": "2026-01-01T00:00:00Z"}
    refused = api.post("/v1/subscriptions", body, key=unique("k"))
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "on-sale")
    assert not Subscription.objects.exists()


def test_retire_in_the_admin() -> None:
    client, plan = operator(), PlanFactory(name="Team")
    page = f"{BILLING}/plan/{plan.pk}"
    shown = client.get(f"{page}/change/").content.decode()
    assert f"{page}/retire/" in shown
    assert f"{page}/sell/" not in shown
    first = send_first_step(client, f"{page}/retire/", {"reason": "too cheap"})
    assert "The plan is retired: version 2 has the same terms." in text_of_response(first)
    assert Plan.objects.count() == 1
    assert client.post(f"{page}/retire/", hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    newest = Plan.objects.get(version=2)
    assert not newest.on_sale
    shown = client.get(f"{BILLING}/plan/{newest.pk}/change/").content.decode()
    assert "It is retired: no order takes it any more." in text_of(shown)
    assert f"/plan/{newest.pk}/sell/" in shown
    assert f"/plan/{newest.pk}/retire/" not in shown
    assert operator("billing.view_plan", name="eve").get(f"{page}/retire/").status_code == 403


# Trials of plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "ends"),
    [
        ({}, at(1, 15)),
        ({"trial_days": 3}, at(1, 4)),
        ({"trial_days": 0}, None),
        ({"trial_end": at(1, 9)}, at(1, 9)),
        ({"phases": [Phase(intervals=1), Phase()]}, None),
        ({"phases": [Phase(intervals=1, trial=True), Phase()]}, at(2, 1)),
    ],
    ids=["the plan's", "days of the order", "none", "an end of the order", "phases without", "a phase"],
)
def test_the_plans_trial_counts_unless_the_order_names_another(terms: dict[str, Any], ends: datetime | None) -> None:
    plan = PlanFactory(prices=[recurring()], trial_days=14)
    assert order(plan.code, **terms).trial_end == ends


def test_days_of_a_trial_are_those_of_the_contracts_zone() -> None:
    plan = PlanFactory(trial_days=7)
    start = datetime(2026, 3, 25, 23, tzinfo=UTC)
    subscription = order(plan.code, started_at=start, time_zone="Europe/Berlin")
    # The clock changes on 29 March: a week has an hour less.
    assert subscription.trial_end == start + timedelta(days=7, hours=-1)


def test_in_the_trial_nothing_is_charged_and_later_versions_leave_it() -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")], trial_days=14)
    subscription = order(plan.code)
    PlanFactory(code=plan.code, prices=[recurring(unit_amount="31.00")])
    assert bill(subscription, at(1, 10)) == []
    [invoice] = bill(subscription, at(1, 20))
    assert min(line["period"]["start"] for line in invoice["lines"]).startswith("2026-01-15")
    assert order(plan.code).trial_end is None


@pytest.mark.parametrize(
    ("terms", "pointer"),
    [
        ({"trial_days": 3, "trial_end": at(1, 9)}, "/trial_days"),
        ({"trial_days": 3, "phases": [Phase(intervals=1), Phase()]}, "/trial_days"),
        ({"trial_days": 3, "starts_when_paid": True}, "/starts_when_paid"),
        ({"starts_when_paid": True}, "/starts_when_paid"),
    ],
)
def test_an_order_that_contradicts_a_trial_is_refused_and_not_written(terms: dict[str, Any], pointer: str) -> None:
    plan = PlanFactory(prices=[recurring()], trial_days=14)
    before = rows()
    with pytest.raises(Invalid) as refused:
        order(plan.code, **terms)
    assert refused.value.facts["pointer"] == pointer
    assert rows() == before


def test_an_order_with_0_days_may_start_when_it_is_paid() -> None:
    plan = PlanFactory(prices=[recurring()], trial_days=14)
    assert order(plan.code, trial_days=0, starts_when_paid=True).trial_end is None


def test_a_trial_of_a_plan_over_rest(api: ApiClient) -> None:
    body = {
        "ref": "team", "name": "Team", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [{"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10"}],
        "trial_days": 14,
    }  # fmt: skip
    made = api.post("/v1/plans", body, key=unique("k"))
    assert made.status_code == 201, made.content
    assert made.json()["trial_days"] == 14
    wrong = api.post("/v1/plans", body | {"ref": "b", "trial_days": 0}, key=unique("k"))
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (400, "/trial_days")
    subscription = {"ref": "SUB-1", "customer": CustomerFactory().ref, "plan": "team", "started_at": "2026-01-01T00:00:00Z"}
    assert api.post("/v1/subscriptions", subscription, key=unique("k")).json()["trial_ends_at"] == "2026-01-15T00:00:00.000000Z"
    other = subscription | {"ref": "SUB-2", "trial_days": 0}
    assert api.post("/v1/subscriptions", other, key=unique("k")).json()["trial_ends_at"] is None
