"""Drafts with a grace: rated again until it ends, then finalised by the next run; each period billed once all the while."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.documents import invoices
from billing.errors import InvalidTransition
from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.generate import generate_in
from billing.generator.run.outcomes import _done_result
from billing.models import Claim, Customer, Invoice
from billing.orders.customers import NewCredits
from ledger import reads, services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill, line_amounts

pytestmark = pytest.mark.django_db


def in_grace(days: int = 3, **fields: Any) -> Any:
    """A subscription at 0.02 a call whose invoices stay drafts for `days` days."""
    plan = PlanFactory(prices=[metered()])
    return SubscriptionFactory(customer=CustomerFactory(grace_days=days, **fields).ref, plan=plan.code)


def states_and_totals(subscription: Any) -> list[tuple[str, int]]:
    """State and total of each invoice of the subscription, oldest first."""
    invoices = Invoice.objects.filter(subscription=subscription.pk).order_by("id")
    return list(invoices.values_list("state", "total_minor"))


def test_late_usage_within_the_grace_is_on_the_invoice_itself():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    [draft] = bill(subscription, at(2, 1))
    assert (draft["state"], draft["number"], line_amounts(draft)) == ("draft", None, [("usage", "calls", 200)])
    use(subscription, "50", at(1, 20))
    [again] = bill(subscription, at(2, 3))
    assert (again["state"], line_amounts(again)) == ("draft", [("usage", "calls", 300)])
    use(subscription, "1", at(1, 21))
    [invoice] = bill(subscription, at(2, 4))
    assert (invoice["state"], line_amounts(invoice)) == ("open", [("usage", "calls", 302)])
    assert states_and_totals(subscription) == [("open", 302)]
    assert bill(subscription, at(2, 4)) == []


def test_usage_later_than_the_grace_is_billed_as_a_difference():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    bill(subscription, at(2, 4))
    use(subscription, "50", at(1, 20))
    [late] = bill(subscription, at(2, 5))
    assert (late["state"], line_amounts(late)) == ("draft", [("late_usage", "calls", 100)])


def test_the_grace_ends_at_the_instant_and_the_walk_finds_it_then():
    subscription = in_grace(days=2)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    assert Invoice.objects.get(subscription=subscription.pk).grace_ends_at == at(2, 3)
    early = at(2, 3) - timedelta(microseconds=1)
    assert subscription.ref not in list(DueWalk(DueFilter(as_of=early)))
    assert subscription.ref in list(DueWalk(DueFilter(as_of=at(2, 3))))
    [still] = bill(subscription, early)
    assert still["state"] == "draft"
    [invoice] = bill(subscription, at(2, 3))
    assert invoice["state"] == "open"
    assert subscription.ref not in list(DueWalk(DueFilter(as_of=at(2, 3))))


def test_a_draft_in_grace_stays_as_it_is_while_the_next_period_becomes_due():
    subscription = in_grace(days=40)
    use(subscription, "100", at(1, 10))
    use(subscription, "10", at(2, 10))
    bill(subscription, at(2, 1))
    made = bill(subscription, at(3, 1))
    assert [(one["state"], line_amounts(one)) for one in made] == [
        ("draft", [("usage", "calls", 200)]), ("draft", [("usage", "calls", 20)]),
    ]  # fmt: skip
    made = bill(subscription, at(3, 13))
    assert [one["state"] for one in made] == ["open", "draft"]
    made = bill(subscription, at(4, 10))
    assert [(one["state"], line_amounts(one)) for one in made] == [("open", [("usage", "calls", 20)])]
    assert states_and_totals(subscription) == [("open", 200), ("open", 20)]


def test_no_period_is_claimed_twice_through_all_of_it():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    for day in (1, 2, 3, 4, 5):
        bill(subscription, at(2, day))
    assert Claim.objects.filter(subscription=subscription.pk, released_at=None).count() == 1
    assert findings_of("overlapping claims", "hole in the numbering") == []


def test_credits_pay_when_the_grace_is_over():
    holder = unique("holder")
    services.grant(holder_id=holder, amount=500, idempotency_key="bought")
    subscription = in_grace(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    bill(subscription, at(2, 2))
    assert reads.balance(holder).available == 500
    [invoice] = bill(subscription, at(2, 4))
    assert (invoice["state"], invoice["credits_applied_minor"]) == ("paid", 200)
    assert reads.balance(holder).available == 300


def test_a_draft_in_grace_can_be_finalised_by_hand():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    [draft] = bill(subscription, at(2, 1))
    assert invoices.finalize(draft["id"]).state == "open"
    assert bill(subscription, at(2, 4)) == []
    with pytest.raises(InvalidTransition):
        invoices.finalize(draft["id"])
    assert states_and_totals(subscription) == [("open", 200)]


def test_a_draft_that_was_asked_for_has_no_grace_and_waits_for_a_hand():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1), finalize=False)
    assert Invoice.objects.get(subscription=subscription.pk).grace_ends_at is None
    assert bill(subscription, at(2, 20)) == []
    assert states_and_totals(subscription) == [("draft", 200)]


def test_a_dry_run_in_grace_changes_nothing():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    [draft] = bill(subscription, at(2, 1))
    use(subscription, "50", at(1, 20))
    [shown] = bill(subscription, at(2, 4), dry_run=True)
    assert line_amounts(shown) == [("usage", "calls", 300)]
    assert list(Invoice.objects.filter(subscription=subscription.pk).values_list("id", "state")) == [(draft["id"], "draft")]


def test_a_draft_of_one_kind_is_rated_again_as_that_kind():
    plan = PlanFactory(prices=[recurring(), metered()])
    subscription = SubscriptionFactory(customer=CustomerFactory(grace_days=3).ref, plan=plan.code)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1), only=Scope.USAGE)
    use(subscription, "100", at(1, 11))
    made = bill(subscription, at(2, 4))
    assert [(one["state"], line_amounts(one)) for one in made] == [
        ("open", [("usage", "calls", 400)]),
        ("draft", [("recurring", "base", 1000), ("recurring", "base", 1000)]),
    ]


def test_the_check_lists_drafts_past_their_grace():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    [draft] = bill(subscription, at(2, 1))
    assert findings_of("draft past its grace") == [
        f"invoice {draft['id']} of {subscription.ref}: grace ended at 2026-02-04 00:00:00+00"
    ]


def test_what_a_run_says_of_a_draft_in_grace_is_created():
    subscription = in_grace()
    use(subscription, "100", at(1, 10))
    options = Options(as_of=at(2, 1))
    assert _done_result(generate_in(ref=subscription.ref, options=options), 1.0).outcome == "created"
    options = Options(as_of=at(2, 4))
    assert _done_result(generate_in(ref=subscription.ref, options=options), 1.0).outcome == "finalised"


def test_without_grace_days_an_invoice_is_final_at_once():
    subscription = in_grace(days=0)
    use(subscription, "100", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert invoice["state"] == "open"
    assert Customer.objects.get(pk=subscription.customer_id).grace_days == 0
