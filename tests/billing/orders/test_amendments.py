"""Amendments: the next run bills what should be less what has been."""

from decimal import Decimal

import pytest

from billing.documents import invoice_payments, invoices, transitions
from billing.errors import InvalidTransition, InvoiceCorrectedLater
from billing.generator.run.due import DueFilter, DueWalk
from billing.models import Claim, CreditNote, Cursor, Invoice, ItemVersion, Transition
from billing.orders import subscriptions
from ledger.errors import Invalid
from tests.billing.factories import PlanFactory, SubscriptionFactory, amend, at, metered, recurring, use
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def lines_of(documents_):
    """Of each document its lines: kind, price, amount, first and last day."""
    return [
        [(line["kind"], line["price_key"], line["amount_minor"], line["period"]["start"][5:10], line["period"]["end"][5:10])
         for line in one["lines"]]
        for one in documents_
    ]  # fmt: skip


def monthly(unit_amount="31.00", **fields):
    """A subscription at 31.00 a month, 1.00 a day in January, billed for January."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount=unit_amount, **fields)]).code)
    bill(subscription, at(1, 1))
    return subscription


def test_a_change_of_quantity_in_the_middle_credits_the_rest_and_charges_it_again():
    subscription = monthly()
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    # 21 days are left: 21.00 back, 2 x 21.00 instead.
    assert lines_of(bill(subscription, at(1, 11))) == [
        [("credit", "base", -2100, "01-11", "02-01"), ("recurring", "base", 4200, "01-11", "02-01")]
    ]
    assert lines_of(bill(subscription, at(2, 1))) == [[("recurring", "base", 6200, "02-01", "03-01")]]


def test_a_change_of_plan_keeps_the_keys_that_both_have():
    subscription = monthly()
    other = PlanFactory(prices=[recurring(unit_amount="62.00"), recurring("support", "31.00")])
    amend(subscription, at(1, 21), plan=other.code)
    assert lines_of(bill(subscription, at(1, 21))) == [
        [
            ("credit", "base", -1100, "01-21", "02-01"),
            ("recurring", "base", 2200, "01-21", "02-01"),
            ("recurring", "support", 1100, "01-21", "02-01"),
        ]
    ]


def test_two_amendments_of_one_stretch_bill_only_what_counts_in_the_end():
    subscription = monthly()
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    amend(subscription, at(1, 11), quantities={"base": Decimal(1)})
    assert bill(subscription, at(1, 12)) == []


def test_a_back_dated_amendment_does_not_undo_a_later_one():
    subscription = monthly()
    amend(subscription, at(1, 21), quantities={"base": Decimal(3)})
    bill(subscription, at(1, 21))
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    # From the 11th to the 21st: 10.00 back, 20.00 instead; from the 21st on nothing changes.
    assert lines_of(bill(subscription, at(1, 22))) == [
        [("credit", "base", -1000, "01-11", "01-21"), ("recurring", "base", 2000, "01-11", "01-21")]
    ]


def test_an_end_inside_a_billed_period_is_carried_and_never_below_zero():
    subscription = monthly()
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    [invoice] = bill(subscription, at(1, 11))
    assert [(line["kind"], line["amount_minor"]) for line in invoice["lines"]] == [("credit", -2100), ("carried", 2100)]
    assert (invoice["total_minor"], invoice["state"]) == (0, "paid")
    subscriptions.charge_once(ref=subscription.ref, amount_minor=3000, description="Removal")
    [last] = bill(subscription, at(1, 12))
    assert (last["total_minor"], last["credit_notes_minor"], last["amount_due_minor"]) == (3000, 2100, 900)


def test_the_day_of_termination_is_not_billed_unless_the_price_says_so():
    for bill_last_day, amount in ((False, 1000), (True, 1100)):
        plan = PlanFactory(prices=[recurring(unit_amount="31.00", timing="arrears", bill_last_day=bill_last_day)])
        subscription = SubscriptionFactory(plan=plan.code, ends_at=at(1, 11, 12))
        [invoice] = bill(subscription, at(2, 1))
        assert [line["amount_minor"] for line in invoice["lines"]] == [amount]


def test_a_pause_is_never_billed():
    subscription = monthly(timing="arrears")
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    assert lines_of(bill(subscription, at(2, 1))) == [
        [("recurring", "base", 1000, "01-01", "01-11"), ("recurring", "base", 1100, "01-21", "02-01")]
    ]


def test_a_pause_of_what_was_billed_in_advance_is_given_back():
    subscription = monthly()
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    [invoice] = bill(subscription, at(1, 21))
    assert [(line["kind"], line["amount_minor"]) for line in invoice["lines"]] == [("credit", -1000), ("carried", 1000)]
    [next_one] = bill(subscription, at(2, 1))
    assert (next_one["total_minor"], next_one["amount_due_minor"]) == (3100, 2100)


def test_a_trial_moves_the_first_charge_to_its_end():
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")]).code
    subscription = SubscriptionFactory(plan=plan, trial_end=at(1, 16))
    assert bill(subscription, at(1, 15)) == []
    assert lines_of(bill(subscription, at(1, 16))) == [[("recurring", "base", 1600, "01-16", "02-01")]]


def test_without_proration_a_change_counts_from_the_next_period():
    subscription = monthly(proration="none")
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    assert bill(subscription, at(1, 11)) == []
    assert lines_of(bill(subscription, at(2, 1))) == [[("recurring", "base", 6200, "02-01", "03-01")]]


def test_usage_is_rated_at_the_price_of_its_time():
    plan = PlanFactory(prices=[metered(unit_amount="1.00")])
    subscription = SubscriptionFactory(plan=plan.code)
    for day in (5, 15):
        use(subscription, "10", at(1, day))
    dearer = PlanFactory(prices=[metered(unit_amount="2.00")])
    amend(subscription, at(1, 11), plan=dearer.code)
    assert lines_of(bill(subscription, at(2, 1))) == [
        [("usage", "calls", 1000, "01-01", "01-11"), ("usage", "calls", 2000, "01-11", "02-01")]
    ]


def test_a_back_dated_price_gives_billed_usage_back_and_rates_it_again():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="1.00")]).code)
    for day in (5, 15):
        use(subscription, "10", at(1, day))
    bill(subscription, at(2, 1))
    amend(subscription, at(1, 11), plan=PlanFactory(prices=[metered(unit_amount="2.00")]).code)
    [invoice] = bill(subscription, at(2, 2))
    assert sorted((line["kind"], line["amount_minor"]) for line in invoice["lines"]) == [
        ("credit", -2000), ("usage", 1000), ("usage", 2000),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.check
def test_rounding_never_loses_or_makes_a_cent_over_many_changes():
    subscription = monthly(unit_amount="10.00")
    for day in range(2, 30):
        amend(subscription, at(1, day), quantities={"base": Decimal(day % 2 + 1)})
        bill(subscription, at(1, day))
    amend(subscription, at(1, 2), quantities={"base": Decimal(1)})
    for day in range(3, 30):
        amend(subscription, at(1, day), quantities={"base": Decimal(1)})
    bill(subscription, at(1, 30))
    held = Claim.objects.filter(subscription=subscription.pk, released_at=None)
    assert abs(sum(claim.amount_minor for claim in held) - 1000) <= 15


def test_voiding_a_correction_brings_back_what_it_corrected():
    subscription = monthly()
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    [change] = bill(subscription, at(1, 11))
    invoices.void(change["id"])
    [again] = bill(subscription, at(1, 11))
    assert again["lines"] == change["lines"]


def test_an_invoice_that_a_later_one_corrects_can_be_voided_only_after_the_later_one():
    subscription = monthly()
    first = Claim.objects.get(subscription=subscription.pk).invoice_id
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    [change] = bill(subscription, at(1, 11))
    with pytest.raises(InvoiceCorrectedLater):
        invoices.void(first)
    invoices.void(change["id"])
    invoices.void(first)
    [whole] = bill(subscription, at(1, 11))
    # 31.00 a month: 10 days of one unit (10.00) and 21 days of two (42.00).
    assert [line["amount_minor"] for line in whole["lines"]] == [1000, 4200]


def test_versions_of_an_item_never_overlap_and_old_beliefs_stay_readable():
    subscription = monthly()
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    versions = ItemVersion.objects.filter(subscription=subscription.pk, price__isnull=False)
    assert list(versions.filter(superseded_at=None).order_by("starts_at").values_list("starts_at", "ends_at", "quantity")) == [
        (at(1, 1), at(1, 11), 1), (at(1, 11), None, 2),
    ]  # fmt: skip
    assert versions.exclude(superseded_at=None).count() == 1


@pytest.mark.parametrize(
    "wish",
    [{}, {"paused": True, "sets_end": True}, {"quantities": {"nothing": Decimal(1)}}, {"plan": "no-such-plan"}],
)
def test_a_bad_amendment_writes_nothing(wish):
    subscription = monthly()
    with pytest.raises(Invalid):
        amend(subscription, at(1, 11), **wish)
    assert bill(subscription, at(1, 12)) == []


@pytest.mark.slow
@pytest.mark.check
def test_catching_up_in_one_run_takes_what_month_by_month_would():
    def life():
        subscription = SubscriptionFactory(
            plan=PlanFactory(prices=[recurring(unit_amount="9.99"), metered()]).code, anchor_at=at(1, 31)
        )
        for month in range(1, 7):
            use(subscription, f"{month * 7}", at(month, 28))
        amend(subscription, at(2, 10), quantities={"base": Decimal(3)})
        amend(subscription, at(3, 5), paused=True)
        amend(subscription, at(4, 20), paused=False)
        return subscription

    late, steady = life(), life()
    [once] = bill(late, at(7, 1))
    monthly_ones = [one for month in range(1, 8) for one in bill(steady, at(month, 1))]
    assert once["subtotal_minor"] == sum(one["subtotal_minor"] for one in monthly_ones)


# Ends, and going on after one -------------------------------------------------------------------------


def test_the_time_between_an_end_and_a_reactivation_is_not_billed():
    subscription = monthly()
    amend(subscription, at(2, 1), sets_end=True, ends_at=at(2, 1))
    assert bill(subscription, at(5, 20)) == []
    amend(subscription, at(6, 1), sets_end=True, ends_at=at(8, 1))
    assert lines_of(bill(subscription, at(9, 1))) == [
        [("recurring", "base", 3100, "06-01", "07-01"), ("recurring", "base", 3100, "07-01", "08-01")]
    ]


def test_a_reactivation_inside_a_period_is_charged_its_days():
    subscription = monthly()
    amend(subscription, at(2, 1), sets_end=True, ends_at=at(2, 1))
    amend(subscription, at(5, 21), sets_end=True, ends_at=None)
    # 11 of the 31 days of May.
    assert lines_of(bill(subscription, at(6, 1))) == [
        [("recurring", "base", 1100, "05-21", "06-01"), ("recurring", "base", 3100, "06-01", "07-01")]
    ]


def test_usage_while_a_subscription_had_ended_is_not_billed():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="1.00")]).code, ends_at=at(2, 1))
    amend(subscription, at(4, 1), sets_end=True, ends_at=None)
    for month in (1, 2, 3, 4):
        use(subscription, str(month), at(month, 10))
    assert [line[2:4] for line in lines_of(bill(subscription, at(5, 1)))[0]] == [(100, "01-01"), (400, "04-01")]


@pytest.mark.parametrize("withdrawn_on", [at(1, 5), at(1, 11), at(1, 20)])
def test_an_end_of_null_withdraws_a_planned_end_whenever_it_was_to_take_effect(withdrawn_on):
    subscription = monthly()
    amend(subscription, at(1, 20), sets_end=True, ends_at=at(1, 20))
    amend(subscription, withdrawn_on, sets_end=True, ends_at=None)
    assert bill(subscription, at(1, 25)) == []
    assert lines_of(bill(subscription, at(2, 1))) == [[("recurring", "base", 3100, "02-01", "03-01")]]


def test_an_end_in_the_past_ends_it_there_and_bills_nothing_that_was_not_active():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00", timing="arrears")]).code)
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    # Said again, and later: it had ended by then.
    amend(subscription, at(3, 1), sets_end=True, ends_at=at(2, 1))
    assert lines_of(bill(subscription, at(4, 1))) == [[("recurring", "base", 1000, "01-01", "01-11")]]


# Planned changes --------------------------------------------------------------------------------------


def with_planned_change():
    """30.00 a month from April on, billed for April, and on 10 April a change planned for the 25th to 60.00."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="30.00")]).code, started_at=at(4, 1))
    [april] = bill(subscription, at(4, 1))
    amend(subscription, at(4, 25), plan=PlanFactory(prices=[recurring(unit_amount="60.00")]).code)
    return subscription, april


BOTH_SIDES = [[("credit", "base", -600, "04-25", "05-01"), ("recurring", "base", 1200, "04-25", "05-01")]]


def test_a_planned_change_is_credited_and_charged_when_it_takes_effect():
    subscription, _ = with_planned_change()
    assert bill(subscription, at(4, 11)) == []
    assert subscription.ref in list(DueWalk(DueFilter(as_of=at(4, 25), usage=False)))
    assert lines_of(bill(subscription, at(4, 25))) == BOTH_SIDES


def test_a_planned_end_is_credited_when_it_comes_although_nothing_is_charged_then():
    subscription = monthly()
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    assert bill(subscription, at(1, 5)) == []
    assert Cursor.objects.get(pk=subscription.pk).recurring_due_at == at(1, 11)
    assert subscription.ref not in list(DueWalk(DueFilter(as_of=at(1, 10))))
    assert subscription.ref in list(DueWalk(DueFilter(as_of=at(1, 11))))
    [invoice] = bill(subscription, at(1, 11))
    assert [(line["kind"], line["amount_minor"]) for line in invoice["lines"]] == [("credit", -2100), ("carried", 2100)]


@pytest.mark.parametrize("days", [(5, 11, 21), (11, 21), (21,), (5, 25)])
def test_two_planned_changes_of_one_period_are_credited_one_after_the_other_whenever_runs_come(days):
    subscription = monthly(proration="day")
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    amend(subscription, at(1, 21), quantities={"base": Decimal(3)})
    made = [line for day in days for invoice in lines_of(bill(subscription, at(1, day))) for line in invoice]
    assert sorted(made) == [
        ("credit", "base", -1100, "01-21", "02-01"),
        ("credit", "base", -1000, "01-11", "01-21"),
        ("recurring", "base", 2000, "01-11", "01-21"),
        ("recurring", "base", 3300, "01-21", "02-01"),
    ]


def test_without_proration_nothing_is_given_back_while_any_of_the_period_is_used():
    subscription = monthly(proration="none")
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    amend(subscription, at(1, 25), sets_end=True, ends_at=at(1, 25))
    for day in (11, 21, 25, 31):
        assert bill(subscription, at(1, day)) == []


def test_usage_billed_beyond_a_later_as_of_is_given_back_only_from_the_change_on():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="1.00")]).code)
    use(subscription, "5", at(1, 20))
    bill(subscription, at(2, 1))
    amend(subscription, at(1, 11), plan=PlanFactory(prices=[metered(unit_amount="2.00")]).code)
    assert bill(subscription, at(1, 10)) == []
    assert [line[:3] for line in lines_of(bill(subscription, at(2, 1)))[0]] == [
        ("credit", "calls", -500), ("usage", "calls", 1000),
    ]  # fmt: skip


# Invoices of 0 ----------------------------------------------------------------------------------------


def netted_to_zero():
    """An invoice of 31.00 for January, and one of 0.00 that gives 21.00 of it back and carries them."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    [january] = bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    [correction] = bill(subscription, at(1, 11))
    assert (correction["total_minor"], correction["state"]) == (0, "paid")
    return subscription, january["id"], correction["id"]


def states_of(*ids):
    """The states of the invoices."""
    return [Invoice.objects.get(pk=pk).state for pk in ids]


def test_voiding_an_invoice_voids_what_came_to_nothing_and_corrects_it():
    subscription, january, correction = netted_to_zero()
    invoices.void(january)
    assert states_of(january, correction) == ["void", "void"]
    assert CreditNote.objects.get(invoice_id=correction).released_at is not None
    # Ten days are owed, and billed at once.
    assert lines_of(bill(subscription, at(1, 12))) == [[("recurring", "base", 1000, "01-01", "01-11")]]


def test_a_correction_with_a_total_of_zero_can_be_voided_alone_and_is_made_again():
    subscription, january, correction = netted_to_zero()
    invoices.void(correction)
    assert states_of(january, correction) == ["open", "void"]
    [again] = bill(subscription, at(1, 12))
    assert [(line["kind"], line["amount_minor"]) for line in again["lines"]] == [("credit", -2100), ("carried", 2100)]


def test_a_credit_note_that_paid_for_something_still_blocks_and_nothing_is_written():
    subscription, january, correction = netted_to_zero()
    subscriptions.charge_once(ref=subscription.ref, amount_minor=3000, description="Removal")
    [removal] = bill(subscription, at(1, 12))
    with pytest.raises(InvoiceCorrectedLater) as refused:
        invoices.void(january)
    assert refused.value.facts["by"] == removal["id"]
    assert states_of(january, correction, removal["id"]) == ["open", "paid", "open"]


def test_a_paid_invoice_is_not_voided():
    _, january, _ = netted_to_zero()
    invoice_payments.pay_rest(january)
    with pytest.raises(InvalidTransition):
        invoices.void(january)
    assert states_of(january) == ["paid"]


@pytest.mark.slow
@pytest.mark.check
def test_who_voids_an_invoice_is_on_record_for_what_is_voided_with_it():
    _, january, correction = netted_to_zero()
    transitions.apply_in(invoice_id=january, kind="void", actor="key:ops", reason="Wrong customer")
    noted = Transition.objects.filter(invoice_id__in=[january, correction]).order_by("invoice_id")
    assert list(noted.values_list("invoice_id", "kind", "actor", "reason")) == [
        (january, "void", "key:ops", "Wrong customer"), (correction, "void", "key:ops", "Wrong customer"),
    ]  # fmt: skip


def test_every_correction_is_voided_with_the_invoice_that_it_corrects_and_is_on_record():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    voided = [bill(subscription, at(1, 1))[0]["id"]]
    for day in (21, 11):
        amend(subscription, at(1, day), sets_end=True, ends_at=at(1, day))
        voided.append(bill(subscription, at(1, 21))[0]["id"])
    transitions.apply_in(invoice_id=voided[0], kind="void", actor="key:ops", reason="Wrong customer")
    assert states_of(*voided) == ["void"] * 3
    assert sorted(Transition.objects.filter(kind="void").values_list("invoice_id", flat=True)) == sorted(voided)


# Effective in the past, and billed already ------------------------------------------------------------


def due_subscriptions(as_of, **filters):
    """The refs of the subscriptions that are due at that time."""
    return list(DueWalk(DueFilter(as_of=as_of, **filters)))


@pytest.mark.slow
@pytest.mark.check
def test_an_amendment_for_months_that_are_billed_is_found_and_taken_in_by_the_next_run():
    subscription = monthly()
    for month in range(2, 8):
        bill(subscription, at(month, 1))
    assert subscription.ref not in due_subscriptions(at(7, 10))

    amend(subscription, at(1, 17), quantities={"base": 2})

    assert subscription.ref in due_subscriptions(at(7, 10)), "nothing else of it is due before 1 August"
    assert subscription.ref in due_subscriptions(at(7, 10), usage=False)
    [(*lines,)] = lines_of(bill(subscription, at(7, 10)))
    charged = {(start, end): amount for kind, _, amount, start, end in lines if amount > 0}
    credited = {(start, end): amount for kind, _, amount, start, end in lines if amount < 0}
    months = [(f"{month:02}-01", f"{month + 1:02}-01") for month in range(2, 8)]
    assert credited == {("01-17", "02-01"): -1500, **dict.fromkeys(months, -3100)}
    assert charged == {("01-17", "02-01"): 3000, **dict.fromkeys(months, 6200)}
    assert subscription.ref not in due_subscriptions(at(7, 10)), "and once only"
    assert bill(subscription, at(7, 10)) == []


def test_an_amendment_for_usage_that_is_billed_is_found_by_a_run_for_usage_alone():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="0.02")]).code)
    use(subscription, "100", at(1, 20))
    for month in range(2, 8):
        bill(subscription, at(month, 1))
    assert subscription.ref not in due_subscriptions(at(7, 10), recurring=False)

    amend(subscription, at(1, 17), plan=PlanFactory(prices=[metered(unit_amount="0.05")]).code)

    assert subscription.ref in due_subscriptions(at(7, 10), recurring=False)
    [(*lines,)] = lines_of(bill(subscription, at(7, 10)))
    assert sum(amount for _, _, amount, _, _ in lines) == 500 - 200
    assert subscription.ref not in due_subscriptions(at(7, 10), recurring=False)


def test_what_will_be_given_back_is_due_when_the_first_of_it_is():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    for month in (1, 2):
        bill(subscription, at(month, 1))
    amend(subscription, at(1, 20), sets_end=True, ends_at=at(1, 20))
    assert bill(subscription, at(1, 10)) == []
    assert due_subscriptions(at(1, 19)) == []
    assert due_subscriptions(at(1, 20)) == [subscription.ref]
