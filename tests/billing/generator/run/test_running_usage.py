"""Usage of running periods: invoiced on demand and at the plan's threshold; drafts, voids, the run that finds it, and races."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection

from billing import reads
from billing.documents import invoices
from billing.errors import InvoiceCorrectedLater
from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.generate import generate
from billing.generator.run.steps import GenerationResult
from billing.metering import partitions
from billing.models import Claim, Customer, Invoice, Plan
from billing.orders import plans
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.prices.reading import PriceInvalid, parse_price
from ledger.errors import Invalid
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, transition, unique, use
from tests.billing.findings import findings_of

pytestmark = pytest.mark.django_db


def calling(calls: str = "100", *, threshold: str | None = None, **fields: Any) -> Any:
    """A subscription to calls at 0.02, with some of them on 5 January."""
    plan = PlanFactory(prices=[metered()], usage_threshold=None if threshold is None else Decimal(threshold))
    subscription = SubscriptionFactory(plan=plan.code, **fields)
    use(subscription, calls, at(1, 5))
    return subscription


def bill(subscription: Any, as_of: Any, **options: Any) -> GenerationResult:
    return generate(ref=subscription.ref, options=Options(as_of=as_of, **options))


def amounts(subscription: Any) -> list[int]:
    """The totals of its invoices that stand, the first one first."""
    rows = Invoice.objects.filter(subscription_ref=subscription.ref).exclude(state="void").order_by("id")
    return list(rows.values_list("total_minor", flat=True))


def claims(subscription: Any) -> list[tuple[Any, Any, bool]]:
    """Start, end, and whether it is of a running period, of each claim that counts."""
    rows = Claim.objects.filter(subscription__ref=subscription.ref, released_at=None).order_by("starts_at")
    return [(row.starts_at, row.ends_at, row.snapshot.get("running", False)) for row in rows]


def test_a_run_that_nobody_asked_leaves_running_usage_alone() -> None:
    subscription = calling()
    assert bill(subscription, at(1, 10)).invoices == []
    assert claims(subscription) == []


def test_the_parts_of_a_period_add_up_to_the_period() -> None:
    subscription = calling()
    for day, more in ((10, "7"), (15, "0"), (20, "31")):
        bill(subscription, at(1, day), running_usage=True)
        bill(subscription, at(1, day), running_usage=True)
        use(subscription, more, at(1, day, 12))
    bill(subscription, at(2, 1))
    assert amounts(subscription) == [200, 14, 62]
    assert claims(subscription) == [(at(1), at(2), False)]
    assert bill(subscription, at(2, 1)).invoices == []
    assert [what for what in findings_of("cursor", "usage", "claim") if subscription.ref in what] == []


def test_a_run_as_of_an_earlier_instant_takes_nothing_back() -> None:
    subscription = calling()
    bill(subscription, at(1, 20), running_usage=True)
    assert bill(subscription, at(1, 10), running_usage=True).invoices == []
    assert claims(subscription) == [(at(1), at(1, 20), True)]


def test_a_run_of_recurring_charges_bills_no_usage() -> None:
    subscription = calling()
    assert bill(subscription, at(1, 10), running_usage=True, only=Scope.RECURRING).invoices == []


def test_a_late_run_in_steps_bills_running_usage_with_its_last_step_only() -> None:
    subscription = calling()
    use(subscription, "50", at(3, 5))
    options = {"running_usage": True, "max_periods": 1}
    for as_of in (at(3, 10), at(3, 10), at(3, 10)):
        bill(subscription, as_of, **options)
    assert amounts(subscription) == [200, 100]
    assert claims(subscription)[-1] == (at(3), at(3, 10), True)


def test_a_draft_in_its_grace_is_rated_again_with_its_running_usage() -> None:
    subscription = calling()
    Customer.objects.filter(pk=subscription.customer_id).update(grace_days=3)
    bill(subscription, at(1, 10), running_usage=True)
    use(subscription, "50", at(1, 9))
    use(subscription, "1000", at(1, 11))
    bill(subscription, at(1, 11))
    assert amounts(subscription) == [300]
    bill(subscription, at(1, 14))
    assert list(Invoice.objects.filter(subscription_ref=subscription.ref).values_list("state", "total_minor")) == [("open", 300)]


def test_the_last_part_is_voided_before_the_part_that_it_continues() -> None:
    subscription = calling()
    [first] = bill(subscription, at(1, 10), running_usage=True).invoices
    use(subscription, "50", at(1, 20))
    [last] = bill(subscription, at(2, 1)).invoices
    with pytest.raises(InvoiceCorrectedLater):
        transition(first.invoice_id, "void")
    transition(last.invoice_id, "void")
    assert claims(subscription) == [(at(1), at(1, 10), True)]
    transition(first.invoice_id, "void")
    assert claims(subscription) == []
    bill(subscription, at(2, 1))
    assert amounts(subscription) == [300]


def test_a_deleted_draft_leaves_its_period_to_the_next_run() -> None:
    subscription = calling()
    [draft] = bill(subscription, at(1, 10), running_usage=True, finalize=False).invoices
    invoices.delete_draft(draft.invoice_id)
    assert claims(subscription) == []
    bill(subscription, at(2, 1))
    assert amounts(subscription) == [200]


# At a threshold --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "made"), [("99", []), ("100", [200]), ("101", [202])])
def test_the_threshold_itself_is_enough(calls: str, made: list[int]) -> None:
    subscription = calling(calls, threshold="2.00")
    bill(subscription, at(1, 10))
    assert amounts(subscription) == made


def test_a_run_finds_new_usage_of_a_plan_with_a_threshold() -> None:
    subscription, other = calling(threshold="2.00"), calling()
    for one in (subscription, other):
        bill(one, at(1, 1))
    found = set(DueWalk(DueFilter(as_of=at(1, 10)))) & {subscription.ref, other.ref}
    assert found == {subscription.ref}
    assert subscription.ref not in set(DueWalk(DueFilter(as_of=at(1, 10), usage=False)))


def test_a_preview_shows_the_invoice_at_the_threshold() -> None:
    subscription = calling(threshold="2.00")
    made = bill(subscription, at(1, 10), dry_run=True)
    assert [one.total_minor for one in made.invoices] == [200]
    assert claims(subscription) == []


@pytest.mark.parametrize("threshold", ["0", "-1", "1000000000001"])
def test_a_threshold_that_is_none_is_refused(threshold: str) -> None:
    code = unique("plan")
    with pytest.raises(Invalid) as refused:
        plans.create_plan(
            code=code, name="P", currency="EUR", interval=Interval(IntervalUnit.MONTH), prices=[recurring()],
            usage_threshold=Decimal(threshold),
        )  # fmt: skip
    assert refused.value.facts["pointer"] == "/usage_threshold"
    assert not Plan.objects.filter(code=code).exists()


# As it is recorded ----------------------------------------------------------------------------------


def recording(**fields: Any) -> Any:
    """A subscription to calls that are charged as they are recorded."""
    return SubscriptionFactory(plan=PlanFactory(prices=[metered(timing="advance", **fields)]).code)


def test_each_run_charges_what_was_recorded_since_the_last() -> None:
    subscription = recording()
    for day in (5, 6, 7):
        use(subscription, "10", at(1, day))
        bill(subscription, at(1, day, 12))
        assert bill(subscription, at(1, day, 12)).invoices == []
    bill(subscription, at(2, 1))
    assert amounts(subscription) == [20, 20, 20]
    assert claims(subscription) == [(at(1), at(2), False)]
    assert [what for what in findings_of("cursor", "usage", "claim") if subscription.ref in what] == []


def test_a_run_finds_what_was_recorded_and_leaves_a_plan_without_new_usage() -> None:
    used, unused = recording(), recording()
    for one in (used, unused):
        bill(one, at(1, 1))
    use(used, "10", at(1, 5))
    assert set(DueWalk(DueFilter(as_of=at(1, 6)))) & {used.ref, unused.ref} == {used.ref}


def test_a_price_whose_amount_can_shrink_with_an_event_is_not_charged_as_recorded() -> None:
    volume = {"model": "volume", "tiers": [{"unit_amount": "1"}], "unit_amount": None}
    with pytest.raises(PriceInvalid) as refused:
        parse_price(metered(timing="advance", **volume))
    assert [(error.pointer, error.code) for error in refused.value.errors] == [("/price/timing", "not-as-recorded")]


# What it must not break --------------------------------------------------------------------------------


def test_the_events_of_a_running_period_stay_until_it_is_over() -> None:
    """Its claim ends after them, and yet the last part measures the whole period again."""
    partitions.make_month(connection, at(1).date())
    plan = PlanFactory(prices=[metered()], interval=Interval(IntervalUnit.YEAR))
    subscription = SubscriptionFactory(plan=plan.code)
    use(subscription, "100", at(1, 5))
    bill(subscription, at(3, 1), running_usage=True)
    with pytest.raises(partitions.MonthNotBilled):
        partitions.drop_month(connection, at(1).date())


def test_two_claims_of_a_running_period_never_count_together() -> None:
    subscription = calling()
    bill(subscription, at(1, 10), running_usage=True)
    claim = Claim.objects.get(subscription__ref=subscription.ref)
    claim.pk = None
    claim.ends_at += timedelta(days=3)
    with pytest.raises(IntegrityError):
        claim.save(force_insert=True)


def test_the_line_of_a_further_part_shows_where_it_continues() -> None:
    subscription = calling()
    bill(subscription, at(1, 10), running_usage=True)
    use(subscription, "50", at(1, 20))
    [made] = bill(subscription, at(2, 1)).invoices
    [line] = reads.invoice_document(made.invoice_id)["lines"]
    assert (line["kind"], line["quantity"], line["amount_minor"]) == ("usage", "150", 100)
    assert [(step["from"], step["to"], step["units"]) for step in line["rating"]["steps"]] == [("100", "150", "50")]
    assert line["period"] == {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-02-01T00:00:00.000000Z"}
