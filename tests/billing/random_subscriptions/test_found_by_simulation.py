"""Faults that random subscriptions have found, computed by hand."""

import re
from decimal import Decimal

import pytest

from billing.auditing.explanation import explain
from billing.documents import invoices
from billing.errors import InvoiceCorrectedLater
from billing.generator.options import Scope
from billing.models import Claim, Cursor, Invoice
from billing.orders import coupons
from billing.rating.periods import Interval, IntervalUnit
from tests.billing.factories import PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


def line_amounts(invoices):
    """The kind and the cents of each line, by invoice."""
    return [[(line["kind"], line["amount_minor"]) for line in invoice["lines"]] for invoice in invoices]


def test_a_weighted_sum_of_a_stub_is_weighted_by_the_seconds_of_the_full_period():
    plan = PlanFactory(prices=[metered(unit_amount="1.00", aggregation="weighted_sum")])
    subscription = SubscriptionFactory(plan=plan.code, started_at=at(1, 17), anchor_at=at(1, 1))
    use(subscription, "31", at(1, 17))
    # 31 units for 15 of 31 days are 15, and 31 for all of February are 31.
    assert line_amounts(bill(subscription, at(2, 1))) == [[("usage", 1500)]]
    assert line_amounts(bill(subscription, at(3, 1))) == [[("usage", 3100)]]


def test_weighted_sums_before_and_after_a_pause_are_parts_of_one_period():
    plan = PlanFactory(prices=[metered(unit_amount="1.00", aggregation="weighted_sum")])
    subscription = SubscriptionFactory(plan=plan.code)
    use(subscription, "31", at(1, 1))
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    # 31 units at 1.00 for 10 days and for 11 days of 31.
    assert line_amounts(bill(subscription, at(2, 1))) == [[("usage", 1000), ("usage", 1100)]]


def test_without_proration_a_pause_inside_a_period_does_not_charge_it_twice():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(proration="none")]).code)
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    assert line_amounts(bill(subscription, at(1, 31))) == [[("recurring", 1000)]]
    assert line_amounts(bill(subscription, at(2, 1))) == [[("recurring", 1000)]]


def test_without_proration_a_plan_with_longer_periods_is_charged_for_the_one_that_it_begins_in():
    monthly = PlanFactory(prices=[recurring(proration="none")])
    yearly = PlanFactory(prices=[recurring(proration="none", unit_amount="99.00")], interval=Interval(IntervalUnit.YEAR))
    subscription = SubscriptionFactory(plan=monthly.code)
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), plan=yearly.code)
    # January stays charged; the year to next January begins on the 11th and is owed whole, not for nothing.
    assert line_amounts(bill(subscription, at(1, 11))) == [[("recurring", 9900)]]
    assert bill(subscription, at(12, 31)) == []


def test_usage_of_a_part_that_goes_on_longer_is_kept_and_continued():
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=[metered(unit_amount="1.00", free_units=5)]).code, ends_at=at(1, 11)
    )
    use(subscription, "15", at(1, 5))
    assert line_amounts(bill(subscription, at(1, 11))) == [[("usage", 1000)]]
    amend(subscription, at(1, 11), sets_end=True, ends_at=None)
    use(subscription, "20", at(1, 20))
    assert bill(subscription, at(1, 25)) == []
    # 35 - 5 free = 30, of which 10 were billed.
    assert line_amounts(bill(subscription, at(2, 1))) == [[("late_usage", 2000)]]


def test_late_usage_is_looked_for_in_what_was_billed_last_although_a_longer_period_began_before():
    monthly = PlanFactory(prices=[metered(unit_amount="1.00")])
    yearly = PlanFactory(prices=[metered(unit_amount="2.00")], interval=Interval(IntervalUnit.YEAR))
    subscription = SubscriptionFactory(plan=monthly.code)
    amend(subscription, at(3, 11), plan=yearly.code)
    bill(subscription, at(4, 1))
    bill(subscription, at(1, 1, year=2027))
    use(subscription, "1", at(5, 5))
    use(subscription, "1", at(2, 5))
    # The year from January to January was billed last, and before it the part of March; February is beyond.
    assert line_amounts(bill(subscription, at(1, 2, year=2027), late_lookback=2)) == [[("late_usage", 200)]]


def test_a_voided_fee_is_billed_again_also_when_usage_alone_was_billed_in_between():
    subscription = SubscriptionFactory()
    made = [one for month in range(1, 7) for one in bill(subscription, at(month, 1), only=Scope.RECURRING)]
    invoices.void(made[1]["id"])
    bill(subscription, at(6, 2), only=Scope.USAGE)
    assert line_amounts(bill(subscription, at(6, 3))) == [[("recurring", 1000)]]


def test_voided_usage_is_billed_again_also_when_fees_alone_were_billed_in_between():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(), metered(unit_amount="1.00")]).code)
    for month in range(1, 7):
        use(subscription, str(month), at(month, 5))
    made = {month: bill(subscription, at(month, 1), only=Scope.USAGE) for month in range(2, 8)}
    invoices.void(made[3][0]["id"])
    bill(subscription, at(7, 2), only=Scope.RECURRING)
    assert line_amounts(bill(subscription, at(7, 3))) == [[("usage", 200)]]


def test_a_quantity_of_nothing_costs_nothing_and_is_not_given_back():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code, quantities={"base": Decimal(0)})
    assert line_amounts(bill(subscription, at(1, 1))) == [[("recurring", 0)]]
    amend(subscription, at(1, 11), quantities={"base": Decimal(1)})
    assert line_amounts(bill(subscription, at(1, 11))) == [[("recurring", 677)]]


@pytest.mark.parametrize("day", [at(4, 20), at(5, 20)])
def test_late_usage_from_before_a_pause_is_found_with_and_without_the_cursor(day):
    def life():
        subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(), metered(unit_amount="1.00")]).code)
        bill(subscription, at(2, 1))
        amend(subscription, at(2, 1), paused=True)
        amend(subscription, at(4, 1), paused=False)
        bill(subscription, day)
        use(subscription, "2", at(1, 6))
        return subscription

    known, forgotten = life(), life()
    Cursor.objects.filter(pk=forgotten.pk).delete()
    assert line_amounts(bill(known, day)) == line_amounts(bill(forgotten, day)) == [[("late_usage", 200)]]


def test_what_is_given_back_counts_among_the_last_billed_periods():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="1.00")]).code)
    for month in range(1, 6):
        use(subscription, "1", at(month, 5))
    bill(subscription, at(5, 1))
    amend(subscription, at(3, 1), paused=True)
    use(subscription, "1", at(2, 6))
    # March and April are given back; they were the last two, so February is not looked at.
    assert line_amounts(bill(subscription, at(5, 2), late_lookback=2)) == [[("credit", -100), ("credit", -100), ("carried", 200)]]


def bounds_of(made):
    """Kind and amount of the lines that a minimum or maximum makes, by invoice."""
    return [
        [(line["kind"], line["amount_minor"]) for line in one["lines"] if line["kind"] in ("minimum", "maximum")] for one in made
    ]


def test_a_minimum_of_a_period_that_ends_earlier_than_was_believed_is_given_back_and_worked_out_again():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()], minimum=Decimal("31.00")).code)
    assert bounds_of(bill(subscription, at(2, 1))) == [[("minimum", 3100)]]
    amend(subscription, at(2, 1), sets_end=True, ends_at=at(1, 11))
    # 31.00 for January back, 10.00 for ten days of it.
    assert bounds_of(bill(subscription, at(2, 2))) == [[("minimum", -3100), ("minimum", 1000)]]
    assert bill(subscription, at(2, 3)) == []


def test_a_minimum_is_given_back_when_the_plan_turns_out_to_have_been_another():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()], minimum=Decimal("31.00")).code)
    bill(subscription, at(2, 1))
    amend(subscription, at(1, 1), plan=PlanFactory(prices=[metered()]).code)
    assert bounds_of(bill(subscription, at(2, 2))) == [[("minimum", -3100)]]
    assert bill(subscription, at(2, 3)) == []


def test_a_minimum_is_given_back_when_its_whole_period_turns_out_to_be_a_pause():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()], minimum=Decimal("31.00")).code)
    bill(subscription, at(2, 1))
    amend(subscription, at(1, 1), paused=True)
    # Time when the subscription was not active is never billed, and nothing else of this currency is.
    assert line_amounts(bill(subscription, at(2, 2))) == [[("minimum", -3100), ("carried", 3100)]]
    assert bill(subscription, at(2, 3)) == []


def test_a_credit_counts_in_the_period_of_what_it_gives_back_whichever_way_the_bounds_are_looked_at():
    yearly = PlanFactory(prices=[recurring(unit_amount="365.00")], interval=Interval(IntervalUnit.YEAR))
    monthly = PlanFactory(prices=[recurring(unit_amount="1.00")], minimum=Decimal("10.00"))
    subscription = SubscriptionFactory(plan=yearly.code)
    bill(subscription, at(1, 1))
    amend(subscription, at(3, 1), plan=monthly.code)
    # 306 days of the year back; March and April cost 1.00 each and are lifted by 9.00, which the credit does not change.
    assert bounds_of(bill(subscription, at(5, 1))) == [[("minimum", 900), ("minimum", 900)]]
    assert bill(subscription, at(5, 2)) == []


def test_late_usage_of_a_price_that_no_longer_counts_is_found_with_and_without_the_cursor():
    def life():
        subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(), metered(unit_amount="1.00")]).code)
        amend(subscription, at(3, 11), plan=PlanFactory(prices=[recurring()]).code)
        for run in range(1, 7):
            bill(subscription, at(run, 2))
        use(subscription, "2", at(2, 6))
        return subscription

    known, forgotten = life(), life()
    Cursor.objects.filter(pk=forgotten.pk).delete()
    assert line_amounts(bill(known, at(6, 3))) == line_amounts(bill(forgotten, at(6, 3))) == [[("late_usage", 200)]]


def test_the_check_finds_time_between_two_claims_that_nobody_billed():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    amend(subscription, at(2, 11), paused=True)
    amend(subscription, at(2, 21), paused=False)
    bill(subscription, at(4, 1))
    # The pause is no hole.
    assert billing_gaps() == []
    [march] = Claim.objects.filter(subscription=subscription.pk, starts_at=at(3, 1))
    Claim.objects.filter(pk=march.pk).update(released_at=at(3, 2))
    assert billing_gaps() == [f"item {march.item_id}: nothing is billed from 2026-03-01 00:00:00+00 to 2026-04-01 00:00:00+00"]
    # A voided period that waits for the next run is no hole either.
    Cursor.objects.filter(pk=subscription.pk).delete()
    assert billing_gaps() == []


def billing_gaps():
    """The findings about time that is not billed."""
    return findings_of("hole in what is billed")


def test_an_invoice_that_gave_time_back_is_voided_after_the_one_that_bills_that_time_now():
    two_months = PlanFactory(prices=[recurring(unit_amount="5.90")], interval=Interval(IntervalUnit.MONTH, 2))
    ten_days = PlanFactory(prices=[recurring(unit_amount="50.00")], interval=Interval(IntervalUnit.DAY, 10))
    subscription = SubscriptionFactory(plan=two_months.code)
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), plan=ten_days.code)
    # 10 of 59 days were used. The first ten days of the new plan are on the invoice that says so, the next on a separate invoice.
    changed, later = (bill(subscription, at(1, day)) for day in (11, 21))
    assert line_amounts([*changed, *later]) == [[("credit", -490), ("recurring", 5000)], [("recurring", 5000)]]

    with pytest.raises(InvoiceCorrectedLater) as refused:
        invoices.void(changed[0]["id"])
    assert refused.value.facts["by"] == later[0]["id"]
    assert Invoice.objects.get(pk=changed[0]["id"]).state == "open"
    assert Claim.objects.filter(subscription=subscription.pk, released_at=None, ends_at=at(3, 1)).count() == 0

    invoices.void(later[0]["id"])
    invoices.void(changed[0]["id"])
    [restored] = Claim.objects.filter(subscription=subscription.pk, released_at=None)
    assert (restored.starts_at, restored.ends_at, restored.amount_minor) == (at(1, 1), at(3, 1), 590)


def test_an_invoice_of_nothing_that_corrects_another_only_once_a_third_is_void_becomes_void_too():
    free = coupons.create_coupon(code=unique("free"), kind="percentage", value=Decimal(100), duration="forever").code
    old, new = (PlanFactory(prices=[metered(unit_amount="1.00")]) for _ in range(2))
    subscription = SubscriptionFactory(plan=old.code)
    customer = subscription.customer
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=free)

    def billed(used_on: int, now: int, *, running: bool) -> int:
        use(subscription, "10", at(1, used_on))
        [invoice] = bill(subscription, at(1, now), running_usage=running)
        assert (invoice["state"], invoice["total_minor"]) == ("paid", 0)
        return invoice["id"]

    first = billed(2, 5, running=True)
    longer = billed(6, 10, running=True)
    # The period ends before the second invoice was made, so the third bills it without a correction of the second.
    amend(subscription, at(1, 8), plan=new.code)
    third = billed(7, 11, running=False)
    late = billed(3, 12, running=False)
    # An operator is told of both before the second is voided, and nothing is written yet.
    void = {"idempotency_key": "void", "reason": "wrong"}
    page = operator().post(f"/admin/billing/invoice/{longer}/void/", void).content.decode()
    also = re.findall(r"<p>(\S+) becomes void too\.</p>", page)
    assert also == [Invoice.objects.get(pk=pk).number for pk in (third, late)]
    assert not Invoice.objects.filter(state="void").exists()
    # The last one corrects the third. Once it is void, the third bills the time that the second gave back to the first.
    assert [invoice.pk for invoice in invoices.void_with_corrections(longer)] == [late, third, longer]
    [restored] = Claim.objects.filter(subscription=subscription.pk, invoice_id=first, released_at=None)
    assert (restored.starts_at, restored.ends_at) == (at(1, 1), at(1, 5))


def test_boundaries_are_explained():
    subscription = SubscriptionFactory(started_at=at(1, 31))
    explained = explain(subscription.ref, at(3, 5))
    assert explained["periods"] == [
        {"number": 0, "start": at(1, 31), "end": at(2, 28)},
        {"number": 1, "start": at(2, 28), "end": at(3, 31)},
        {"number": 2, "start": at(3, 31), "end": at(4, 30)},
    ]
    assert explain(subscription.ref, at(1, 30))["periods"] == []


def test_a_run_as_of_an_earlier_instant_charges_nothing_that_is_billed_at_other_terms_until_a_later_change():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="30.00")]).code)
    amend(subscription, at(4, 16), quantities={"base": Decimal(2)})
    bill(subscription, at(4, 16))
    amend(subscription, at(4, 16), quantities={"base": Decimal(1)})
    # The amendment takes effect on 16 April, so neither its credit nor its charge is due before.
    assert bill(subscription, at(4, 1)) == []
    assert line_amounts(bill(subscription, at(4, 16))) == [[("credit", -3000), ("recurring", 1500), ("carried", 1500)]]
    assert bill(subscription, at(4, 17)) == []


def test_a_change_counts_at_once_also_for_the_time_that_a_withdrawn_end_had_cut_off():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, ends_at=at(1, 21))
    # Two claims: up to the end, and what it had cut off.
    assert line_amounts(bill(subscription, at(1, 2))) == [[("recurring", 2000)]]
    amend(subscription, at(1, 3), sets_end=True, ends_at=None)
    assert line_amounts(bill(subscription, at(1, 3))) == [[("recurring", 1100)]]
    amend(subscription, at(1, 11), quantities={"base": Decimal(3)})
    # From the 11th: 10 and 11 days at 1.00 go back, and 21 days at 3.00 are charged.
    assert line_amounts(bill(subscription, at(1, 11))) == [[("credit", -1000), ("recurring", 6300), ("credit", -1100)]]
    assert bill(subscription, at(1, 31)) == []


def test_a_change_that_is_to_come_gives_nothing_back_of_what_a_withdrawn_end_had_cut_off_before_it_comes():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, ends_at=at(1, 21))
    bill(subscription, at(1, 2))
    amend(subscription, at(1, 3), sets_end=True, ends_at=None)
    bill(subscription, at(1, 3))
    amend(subscription, at(1, 11), quantities={"base": Decimal(3)})
    assert bill(subscription, at(1, 10)) == []
    assert line_amounts(bill(subscription, at(1, 12))) == [[("credit", -1000), ("recurring", 6300), ("credit", -1100)]]
