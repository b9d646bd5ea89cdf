"""Usage paid in credits first: how many units the credits cover, what is invoiced, and the holder's balance afterwards."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.documents import finalisation, invoices
from billing.errors import BillingSuspended
from billing.generator.options import Scope
from billing.models import Claim, Cursor, Invoice, ItemVersion
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from billing.rating.periods import add_months
from ledger import reads, services
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    amend,
    at,
    metered,
    recurring,
    unique,
    use,
)
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill, line_amounts
from tests.billing.generator.state.test_allowances import midnight, movements

pytestmark = pytest.mark.django_db

IN_CREDITS = {"credit_type": "credits", "per_unit": "2.5"}


def with_credits(count: int, price: dict[str, Any] | None = None, *more: dict[str, Any], **fields: Any) -> Any:
    """Return a holder with `count` credits and a subscription: a call costs 2.5 credits, or 0.02 without credits."""
    holder = unique("holder")
    if count:
        services.grant(holder_id=holder, amount=count, idempotency_key="bought")
    customer = CustomerFactory(holder_id=holder, **fields)
    plan = PlanFactory(prices=[price or metered(credits=IN_CREDITS), *more])
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan.code)


def paid_in_credits(line: dict[str, Any]) -> tuple[str, int]:
    """The units of a line that credits paid, and how many credits."""
    return line["rating"]["covered"]["units"], line["rating"]["covered"]["credits"]


def balance_of(holder: str) -> int:
    """The credits that the holder can spend."""
    return reads.balance(holder).available


def assert_check_finds_nothing() -> None:
    """Assert that `generate_invoices --check` reports nothing about credits, the ledger or billing."""
    assert findings_of("credits", "ledger", "billing") == []


# What is covered -------------------------------------------------------------------------------------


def test_units_that_credits_cover_are_spent_and_the_overage_is_invoiced():
    # 250 credits at 2.5 a call cover 100 of 150 calls; 50 calls at 0.02 are 1.00.
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    [line] = invoice["lines"]
    assert (line["quantity"], line["amount_minor"], paid_in_credits(line)) == ("150", 100, ("100", 250))
    assert line["rating"]["steps"] == [
        {"from": "100", "to": "150", "units": "50", "unit_amount": "0.02", "flat_amount": "0", "amount": "1"}
    ]
    assert (invoice["total_minor"], balance_of(holder)) == (100, 0)
    assert movements(holder) == [("grant", 250), ("spend", -250)]
    assert_check_finds_nothing()


def test_the_spend_says_for_what_and_the_line_says_which_spend():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    [entry] = reads.entries(holder, kind="spend", limit=10)
    assert (entry.actor, entry.reason, entry.reference) == ("billing", "Usage of calls", f"usage of invoice {invoice['id']}")
    assert entry.metadata == {
        "subscription": subscription.ref, "price": "calls", "starts_at": at(1, 1).isoformat(), "ends_at": at(2, 1).isoformat(),
    }  # fmt: skip
    assert invoice["lines"][0]["rating"]["covered"]["entries"] == [entry.sequence]


def test_usage_covered_completely_is_a_line_of_zero_on_a_paid_invoice():
    # 3 calls at 2.5 are 7.5 credits, rounded up to 8.
    holder, subscription = with_credits(100)
    use(subscription, "3", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (line_amounts(invoice), paid_in_credits(invoice["lines"][0])) == ([("usage", "calls", 0)], ("3", 8))
    assert (invoice["state"], invoice["total_minor"], balance_of(holder)) == ("paid", 0, 92)
    assert_check_finds_nothing()


def test_credits_for_some_things_only_cover_no_usage_and_pay_no_invoice():
    # The usage of a meter is neither a rate nor a label: 10 credits cover 4 of 150 calls.
    holder, subscription = with_credits(10)
    for applies_to in ({"rates": ["calls"]}, {"labels": {"price": ["calls"]}}):
        services.grant(holder_id=holder, amount=250, idempotency_key=str(applies_to), priority=0, applies_to=applies_to)
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (paid_in_credits(invoice["lines"][0]), invoice["credits_applied_minor"]) == (("4", 10), 0)
    assert (balance_of(holder), reads.balance(holder).balance) == (0, 500)
    assert_check_finds_nothing()


def test_a_customer_without_a_holder_pays_in_money():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(credits=IN_CREDITS)]).code)
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (line_amounts(invoice), "covered" in invoice["lines"][0]["rating"]) == ([("usage", "calls", 300)], False)


def test_free_units_come_first_and_take_no_credits():
    # 150 calls, 50 free: 100 credits at 2.5 cover 40 of 100; 60 at 0.02 are 1.20.
    holder, subscription = with_credits(100, metered(credits=IN_CREDITS, free_units=50))
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (line_amounts(invoice), paid_in_credits(invoice["lines"][0])) == ([("usage", "calls", 120)], ("40", 100))
    assert [step["units"] for step in invoice["lines"][0]["rating"]["steps"]] == ["50", "60"]
    assert balance_of(holder) == 0


def test_overage_goes_on_in_the_tier_that_it_falls_in():
    # 1000 at 0.10 and then 0.05. 800 credits cover the first 800 of 1500: 200 x 0.10 + 500 x 0.05 = 45.00.
    tiers = [{"up_to": 1000, "unit_amount": "0.10"}, {"up_to": None, "unit_amount": "0.05"}]
    price = metered(model="graduated", tiers=tiers, unit_amount=None, credits={"per_unit": "1"})
    holder, subscription = with_credits(800, price)
    use(subscription, "1500", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (line_amounts(invoice), paid_in_credits(invoice["lines"][0])) == ([("usage", "calls", 4500)], ("800", 800))
    assert balance_of(holder) == 0


def test_packages_are_covered_whole():
    # 2500 calls are 3 packages of 1000, 40 credits each: 100 credits cover 2; the third is 5.00.
    price = metered(model="package", package_size=1000, unit_amount="5.00", credits={"per_unit": "40"})
    holder, subscription = with_credits(100, price)
    use(subscription, "2500", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (line_amounts(invoice), paid_in_credits(invoice["lines"][0])) == ([("usage", "calls", 500)], ("2", 80))
    assert balance_of(holder) == 20


def test_minimum_and_maximum_apply_to_the_money_only():
    # 40 of 100 calls are covered; 60 at 0.02 are 1.20, and 5.00 is the least.
    _, subscription = with_credits(100, metered(credits=IN_CREDITS, minimum="5.00"))
    use(subscription, "100", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert line_amounts(invoice) == [("usage", "calls", 120), ("minimum", "calls", 380)]


def test_what_is_left_pays_the_invoice_after_usage_has_been_covered():
    # 10.00 recurring in arrears and 150 calls. 1000 credits: 375 cover all calls, 625 at 0.01 pay 6.25.
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    base = recurring(timing="arrears")
    holder, subscription = with_credits(1000, metered(credits=IN_CREDITS), base, credits=terms)
    use(subscription, "150", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert (invoice["total_minor"], invoice["credits_applied_minor"], invoice["amount_due_minor"]) == (1000, 625, 375)
    assert movements(holder) == [("grant", 1000), ("spend", -375), ("spend", -625)]


def test_two_prices_share_the_credits_in_the_order_of_their_periods():
    # Both are due at once; the first of the plan takes 100 of 120 credits, 20 are left for 20 messages of 50.
    messages = metered("messages", "0.10", credits={"per_unit": "1"})
    holder, subscription = with_credits(120, metered(credits=IN_CREDITS), messages)
    use(subscription, "40", at(1, 10))
    use(subscription, "50", at(1, 10), "messages")
    [invoice] = bill(subscription, at(2, 1))
    assert [(line["amount_minor"], paid_in_credits(line)) for line in invoice["lines"]] == [(0, ("40", 100)), (300, ("20", 20))]
    assert balance_of(holder) == 0


def test_catching_up_covers_the_oldest_period_first():
    holder, subscription = with_credits(250)
    use(subscription, "80", at(1, 10))
    use(subscription, "80", at(2, 10))
    [invoice] = bill(subscription, at(3, 1))
    # 200 credits for January; 50 are left for 20 of February's 80; 60 x 0.02 = 1.20.
    assert [(line["amount_minor"], paid_in_credits(line)) for line in invoice["lines"]] == [(0, ("80", 200)), (120, ("20", 50))]
    assert balance_of(holder) == 0


@pytest.mark.parametrize(
    ("aggregation", "quantity", "units", "money"),
    # Three calls of 10, 40 and 10 in January. 20 credits at 1 each; 0.02 for what is left.
    [
        ({"aggregation": "sum"}, "60", "20", 80),
        ({"aggregation": "count"}, "3", "3", 0),
        ({"aggregation": "max"}, "40", "20", 40),
        ({"aggregation": "last"}, "10", "10", 0),
        ({"aggregation": "unique"}, "2", "2", 0),
        # 10 for 10 days, 40 for 11, 10 for 10, of 31: 640/31 = 20.645, of which 20 whole units; 20/31 x 0.02 = 0.0129.
        ({"aggregation": "weighted_sum"}, "20.645161290323", "20", 1),
    ],
)
def test_every_aggregation_can_be_paid_in_credits(aggregation, quantity, units, money):
    holder, subscription = with_credits(20, metered(credits={"per_unit": "1"}) | aggregation)
    for value, day in (("10", 1), ("40", 11), ("10", 22)):
        use(subscription, value, at(1, day))
    [invoice] = bill(subscription, at(2, 1))
    [line] = invoice["lines"]
    assert (line["quantity"], paid_in_credits(line)[0], line["amount_minor"]) == (quantity, units, money)
    assert balance_of(holder) == 20 - int(units)


def test_a_change_of_currency_in_a_period_covers_both_parts_on_their_own_invoices():
    holder, subscription = with_credits(50, metered(credits={"per_unit": "1"}))
    dollars = PlanFactory(prices=[metered(credits={"per_unit": "1"}, unit_amount="0.03")], currency="USD")
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 11), wish=Wish(plan=dollars.code))
    use(subscription, "40", at(1, 5))
    use(subscription, "40", at(1, 20))
    made = bill(subscription, at(2, 1))
    # 40 of the first part, 10 of the second; 30 x 0.03.
    assert [(one["currency"], one["total_minor"], paid_in_credits(one["lines"][0])) for one in made] == [
        ("EUR", 0, ("40", 40)), ("USD", 90, ("10", 10)),
    ]  # fmt: skip
    references = [entry.reference for entry in reads.entries(holder, kind="spend", limit=10)]
    assert references == [f"usage of invoice {one['id']}" for one in reversed(made)]


# Once, and in parts ----------------------------------------------------------------------------------


def test_a_period_is_covered_once_however_often_the_generator_looks():
    holder, subscription = with_credits(1000)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    Cursor.objects.filter(pk=subscription.pk).delete()
    assert bill(subscription, at(2, 1)) == []
    assert movements(holder) == [("grant", 1000), ("spend", -250)]


def test_a_dry_run_shows_what_the_run_does_and_spends_nothing():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [dry] = bill(subscription, at(2, 1), dry_run=True)
    assert movements(holder) == [("grant", 250)]
    [invoice] = bill(subscription, at(2, 1))
    assert [(line["amount_minor"], line["rating"]) for line in dry["lines"]] == [
        (line["amount_minor"], line["rating"]) for line in invoice["lines"]
    ]


def test_late_usage_is_covered_by_what_there_is_then():
    # First 40 of 100 covered, 60 x 0.02 = 1.20. Then 30 more and 50 credits: 20 of the 30 covered, 10 x 0.02 = 0.20.
    holder, subscription = with_credits(100)
    use(subscription, "100", at(1, 10))
    [first] = bill(subscription, at(2, 1))
    services.grant(holder_id=holder, amount=50, idempotency_key="more")
    use(subscription, "30", at(1, 20))
    [late] = bill(subscription, at(2, 2))
    assert (line_amounts(first), paid_in_credits(first["lines"][0])) == ([("usage", "calls", 120)], ("40", 100))
    assert (line_amounts(late), paid_in_credits(late["lines"][0])) == ([("late_usage", "calls", 20)], ("20", 50))
    assert balance_of(holder) == 0
    assert_check_finds_nothing()


def test_late_usage_that_is_covered_in_whole_has_a_line_of_nothing():
    holder, subscription = with_credits(1000)
    use(subscription, "3", at(1, 10))
    bill(subscription, at(2, 1))
    use(subscription, "1", at(1, 20))
    [late] = bill(subscription, at(2, 2))
    # 3 calls took 8 credits, 4 take 10 in all.
    assert (line_amounts(late), paid_in_credits(late["lines"][0]), balance_of(holder)) == (
        [("late_usage", "calls", 0)],
        ("1", 2),
        990,
    )
    use(subscription, "4", at(1, 21))
    [later] = bill(subscription, at(2, 3))
    # 8 calls take 20 credits, of which both lines before took 10.
    assert (line_amounts(later), paid_in_credits(later["lines"][0])) == ([("late_usage", "calls", 0)], ("4", 10))
    assert balance_of(holder) == 980
    assert_check_finds_nothing()


def test_usage_that_is_taken_back_gives_money_back_first_and_then_credits():
    # 100 calls, 40 covered. 30 less: 30 x 0.02 back. 50 less then: the other 30 x 0.02, and 20 calls or 50 credits.
    holder, subscription = with_credits(100)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    use(subscription, "-30", at(1, 20))
    [less] = bill(subscription, at(2, 2))
    assert ([one[2] for one in line_amounts(less)][:1], paid_in_credits(less["lines"][0]), balance_of(holder)) == (
        [-60],
        ("0", 0),
        0,
    )
    use(subscription, "-50", at(1, 21))
    [still_less] = bill(subscription, at(2, 3))
    assert ([one[2] for one in line_amounts(still_less)][:1], paid_in_credits(still_less["lines"][0])) == ([-60], ("-20", -50))
    assert (balance_of(holder), movements(holder)[-1]) == (50, ("refund", 50))
    assert_check_finds_nothing()


@pytest.mark.parametrize("draft_first", [True, False])
def test_voiding_an_invoice_or_deleting_a_draft_refunds_its_credits_once_and_the_next_run_uses_them_again(draft_first):
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [made] = bill(subscription, at(2, 1), finalize=not draft_first)
    assert balance_of(holder) == 0
    if draft_first:
        invoices.delete_draft(made["id"])
    else:
        for _ in range(3):
            invoices.void(made["id"])
    assert movements(holder) == [("grant", 250), ("spend", -250), ("refund", 250)]
    assert_check_finds_nothing()
    [again] = bill(subscription, at(2, 1))
    assert (line_amounts(again), paid_in_credits(again["lines"][0]), balance_of(holder)) == (line_amounts(made), ("100", 250), 0)
    assert_check_finds_nothing()


def test_a_draft_is_covered_when_it_is_made_and_only_numbered_when_it_is_finalised():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [draft] = bill(subscription, at(2, 1), finalize=False)
    assert balance_of(holder) == 0
    assert invoices.finalize(draft["id"]).total_minor == 100
    assert movements(holder) == [("grant", 250), ("spend", -250)]


def test_a_draft_in_grace_is_covered_again_with_what_there_is():
    holder, subscription = with_credits(250, grace_days=3)
    use(subscription, "150", at(1, 10))
    [draft] = bill(subscription, at(2, 1))
    assert (draft["total_minor"], balance_of(holder)) == (100, 0)
    services.grant(holder_id=holder, amount=50, idempotency_key="more")
    use(subscription, "10", at(1, 20))
    # 300 credits cover 120 of 160; 40 x 0.02 = 0.80.
    [again] = bill(subscription, at(2, 2))
    assert (again["total_minor"], paid_in_credits(again["lines"][0]), balance_of(holder)) == (80, ("120", 300), 0)
    [invoice] = bill(subscription, at(2, 5))
    assert (invoice["state"], invoice["total_minor"], balance_of(holder)) == ("open", 80, 0)
    assert sum(amount for _, amount in movements(holder)) == 0
    assert_check_finds_nothing()


def test_deleting_the_draft_that_gave_credits_back_spends_them_again():
    holder, subscription = with_credits(250)
    use(subscription, "100", at(1, 10))
    use(subscription, "10", at(1, 10), "other")
    bill(subscription, at(2, 1))
    use(subscription, "-20", at(1, 20))
    [less] = bill(subscription, at(2, 2), finalize=False)
    assert (paid_in_credits(less["lines"][0]), balance_of(holder)) == (("-20", -50), 50)
    invoices.delete_draft(less["id"])
    assert balance_of(holder) == 0
    assert_check_finds_nothing()
    [again] = bill(subscription, at(2, 2))
    assert (paid_in_credits(again["lines"][0]), balance_of(holder)) == (("-20", -50), 50)
    assert_check_finds_nothing()


def test_what_cannot_be_spent_again_is_billed_in_money_by_the_next_run():
    holder, subscription = with_credits(250)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    use(subscription, "-20", at(1, 20))
    [less] = bill(subscription, at(2, 2), finalize=False)
    services.spend(holder_id=holder, amount=40, idempotency_key="elsewhere")
    use(subscription, "20", at(1, 21))
    invoices.delete_draft(less["id"])
    # Of 50 credits 10 are there: 4 of the 20 calls. The other 16 at 0.02 are 0.32.
    assert balance_of(holder) == 0
    assert_check_finds_nothing()
    [made] = bill(subscription, at(2, 2))
    assert (line_amounts(made), paid_in_credits(made["lines"][0])) == ([("late_usage", "calls", 32)], ("0", 0))
    assert bill(subscription, at(2, 3)) == []
    assert_check_finds_nothing()


def test_a_price_that_changed_behind_a_billed_period_gives_its_credits_back_and_covers_again():
    holder, subscription = with_credits(250)
    use(subscription, "100", at(1, 20))
    bill(subscription, at(2, 1))
    assert balance_of(holder) == 0
    # From the start at 1 credit a call: 250 come back, 100 are spent.
    cheaper = PlanFactory(prices=[metered(credits={"per_unit": "1"})])
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 1), wish=Wish(plan=cheaper.code))
    [made] = bill(subscription, at(2, 2))
    figures = [(line["kind"], line["amount_minor"], paid_in_credits(line)) for line in made["lines"]]
    assert sorted(figures) == [("credit", 0, ("-100", -250)), ("usage", 0, ("100", 100))]
    assert balance_of(holder) == 150
    assert movements(holder) == [("grant", 250), ("spend", -250), ("refund", 250), ("spend", -100)]
    assert_check_finds_nothing()


def test_parts_of_a_period_that_become_one_keep_the_credits_of_all():
    holder, subscription = with_credits(1000)
    amend(subscription, at(1, 10), paused=True)
    amend(subscription, at(1, 20), paused=False)
    use(subscription, "60", at(1, 5))
    use(subscription, "40", at(1, 25))
    bill(subscription, at(2, 1))
    assert balance_of(holder) == 750
    amend(subscription, at(1, 10), paused=False)
    use(subscription, "20", at(1, 15))
    [made] = bill(subscription, at(2, 2))
    # The 100 calls of both parts stay paid; 20 calls more take 50 credits.
    assert [(line["amount_minor"], paid_in_credits(line)) for line in made["lines"]] == [(0, ("20", 50))]
    assert balance_of(holder) == 700
    assert bill(subscription, at(2, 3)) == []
    assert_check_finds_nothing()


def test_a_claim_that_is_short_is_rated_again_though_its_usage_is_as_it_was():
    holder, subscription = with_credits(250)
    use(subscription, "100", at(1, 20))
    bill(subscription, at(2, 1))
    cheaper = PlanFactory(prices=[metered(credits={"per_unit": "1"})])
    ordered = ItemVersion.objects.filter(subscription=subscription.pk).first().plan.code
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 1), wish=Wish(plan=cheaper.code))
    [draft] = bill(subscription, at(2, 2), finalize=False)
    # 250 came back and 100 were spent. 120 are used elsewhere; with the 100 that come back, 130 of the 250 are there: 52 calls.
    services.spend(holder_id=holder, amount=120, idempotency_key="elsewhere")
    invoices.delete_draft(draft["id"])
    assert balance_of(holder) == 0
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 1), wish=Wish(plan=ordered))
    [made] = bill(subscription, at(2, 3))
    # The other 48 at 0.02.
    assert line_amounts(made) == [("late_usage", "calls", 96)]
    assert made["lines"][0]["rating"]["exact"] == "0.96"
    assert bill(subscription, at(2, 4)) == []
    assert_check_finds_nothing()


def test_credits_that_were_refunded_by_hand_are_not_given_back_twice_and_the_check_tells():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [made] = bill(subscription, at(2, 1))
    services.refund(holder_id=holder, spend=2, amount=100, idempotency_key="by hand")
    found = findings_of("credits spent on usage differ from the ledger")
    assert found == [f"spend 2 of {holder} in credits: the claims say 250, the ledger 150"]
    invoices.void(made["id"])
    assert balance_of(holder) == 250
    assert_check_finds_nothing()


def test_locks_are_taken_in_their_order_also_while_drafts_are_rated_again():
    """Coupons before the holder, though the coupons are only asked for once the credits are known; the number last."""
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    holder, subscription = with_credits(250, grace_days=3, credits=terms)
    code = unique("coupon")
    coupons.create_coupon(code=code, kind="percentage", value=Decimal(10), duration="forever")
    customer = subscription.customer
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    order: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        order.extend(name for name in (f"customer_account/{customer.ref}", f"ledger/{holder}") if f"/* {name} */" in sql)
        if sql == finalisation.FINALIZE.sql:
            order.append("number")
        return execute(sql, params, many, context)

    use(subscription, "150", at(1, 10))
    use(subscription, "10", at(2, 1))
    for as_of, states in ((at(2, 1), ["draft"]), (at(3, 1), ["open", "draft"])):
        order.clear()
        with connection.execute_wrapper(watch):
            assert [one["state"] for one in bill(subscription, as_of)] == states
        assert order[0] == f"customer_account/{customer.ref}"
        assert f"ledger/{holder}" in order
    assert order.index(f"ledger/{holder}") < order.index("number") == len(order) - 1


def test_the_check_finds_spends_that_the_ledger_does_not_have():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    bill(subscription, at(2, 1))
    claim = Claim.objects.get(subscription=subscription.pk, snapshot__has_key="covered")
    claim.snapshot["covered"]["spends"].append([holder, "credits", 99, 7])
    Claim.objects.filter(pk=claim.pk).update(snapshot=claim.snapshot)
    found = findings_of("credits spent on usage differ from the ledger")
    assert found == [f"spend 99 of {holder} in credits: the claims say 7, the ledger has no such spend"]


# With allowances -------------------------------------------------------------------------------------


def with_allowance(amount: int, cap: int | None = None, *, months_ago: int) -> Any:
    """A holder and a subscription that is granted credits each month, in which its calls are paid, one each."""
    holder = unique("holder")
    prices = [metered(credits={"per_unit": "1"})]
    plan = PlanFactory(prices=prices, allowance={"amount": amount, "rollover_cap": cap})
    start = add_months(midnight(), -months_ago)
    return holder, SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan.code, started_at=start)


def during(month: int) -> Any:
    """The third day of the period that begins that many months after the last midnight."""
    return add_months(midnight(), month) + timedelta(days=3)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_allowance_of_a_period_covers_the_usage_of_that_period_whether_billed_in_time_or_caught_up(at_once):
    holder, subscription = with_allowance(100, months_ago=1)
    use(subscription, "130", during(-1))
    if not at_once:
        bill(subscription, add_months(midnight(), -1))
    [invoice] = bill(subscription, midnight())
    # 30 calls are overage; the new month's 100 credits are not touched.
    assert (line_amounts(invoice), paid_in_credits(invoice["lines"][0])) == ([("usage", "calls", 60)], ("100", 100))
    assert movements(holder) == [("grant", 100), ("spend", -100), ("grant", 100)]
    assert balance_of(holder) == 100


def test_catching_up_on_many_months_covers_each_with_its_own_allowance_and_leaves_nothing_of_what_has_expired():
    holder, subscription = with_allowance(100, months_ago=4)
    for month, used in ((-4, "130"), (-3, "40"), (-2, "120"), (-1, "100")):
        use(subscription, used, during(month))
    services.grant(holder_id=holder, amount=5, idempotency_key="soon", expires_at=datetime.now(UTC) + timedelta(days=1))
    [dry] = bill(subscription, midnight(), dry_run=True)
    assert movements(holder) == [("grant", 5)]
    [invoice] = bill(subscription, midnight())
    assert [(line["amount_minor"], paid_in_credits(line)) for line in dry["lines"]] == [
        (line["amount_minor"], paid_in_credits(line)) for line in invoice["lines"]
    ]
    lines = [(line["amount_minor"], paid_in_credits(line)) for line in invoice["lines"]]
    # The 5 that were bought go to the first month. Month 2 leaves 60, which have expired when month 3 is rated.
    assert lines == [(50, ("105", 105)), (0, ("40", 40)), (40, ("100", 100)), (0, ("100", 100))]
    assert balance_of(holder) == 100
    assert ("revoke", -60) in movements(holder)
    invoices.void(invoice["id"])
    assert balance_of(holder) == 100 + 345
    # As much as before, out of what came back: by now it is one purse. The new month's allowance is left for its own usage.
    [again] = bill(subscription, midnight())
    assert (sum(paid_in_credits(line)[1] for line in again["lines"]), balance_of(holder)) == (345, 100)
    assert_check_finds_nothing()


def test_an_allowance_that_an_earlier_run_spent_to_the_last_credit_is_not_given_again():
    holder, subscription = with_allowance(31, months_ago=3)
    amend(subscription, during(-3), paused=True)
    amend(subscription, during(-3) + timedelta(days=3), paused=False)
    use(subscription, "50", add_months(midnight(), -3))
    use(subscription, "50", during(-3) + timedelta(days=5))
    bill(subscription, midnight())
    before = movements(holder)
    assert [kind for kind, _ in before[:4]] == ["grant", "spend", "grant", "spend"]
    assert sum(amount for _, amount in before[:4]) == 0
    # Without the pause it is one period, which is rated again long after its allowance has lapsed: only the days of the pause
    # get their share now.
    amend(subscription, during(-3), paused=False)
    use(subscription, "10", during(-3))
    [made] = bill(subscription, midnight())
    days = (add_months(midnight(), -2) - add_months(midnight(), -3)).days
    share = 31 * 6 // days - 31 * 3 // days
    assert [(line["amount_minor"], paid_in_credits(line)) for line in made["lines"]] == [(20 - 2 * share, (str(share), share))]
    assert movements(holder)[len(before) :] == [("grant", share), ("spend", -share)]
    assert_check_finds_nothing()


def test_what_rolls_over_covers_the_next_month_up_to_the_cap():
    holder, subscription = with_allowance(100, 30, months_ago=2)
    use(subscription, "20", during(-2))
    use(subscription, "140", during(-1))
    [invoice] = bill(subscription, midnight())
    # 80 are left, 30 go along: 130 of 140 covered.
    assert [(line["amount_minor"], paid_in_credits(line)) for line in invoice["lines"]] == [(0, ("20", 20)), (20, ("130", 130))]
    assert balance_of(holder) == 100


def test_unspent_allowance_that_pays_usage_expires_with_the_following_period():
    holder, subscription = with_allowance(100, months_ago=0)
    bill(subscription, midnight())
    [lot] = reads.balance(holder).lots
    assert lot.expires_at == add_months(midnight(), 2)


# Other faces -----------------------------------------------------------------------------------------


def run_as_json(*arguments: str) -> dict[str, Any]:
    """What the command prints as JSON."""
    out = StringIO()
    call_command("generate_invoices", *arguments, "--format", "json", "--no-progress", stdout=out, stderr=StringIO())
    figures: dict[str, Any] = json.loads(out.getvalue())
    return figures


def test_the_command_covers_usage_and_sums_up_the_credits():
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    arguments = ("--as-of", "2026-02-01", "--subscription", subscription.ref)
    for options in (["--dry-run"], ["--draft"]):
        summary = run_as_json(*arguments, *options)
        assert (summary["credits_spent_on_usage"], summary["invoices"]) == ({"credits": 250}, 1)
        assert balance_of(holder) == (250 if options == ["--dry-run"] else 0)
    assert invoices.finalize(Invoice.objects.get(subscription=subscription.pk).pk).total_minor == 100
    [claim] = [one for one in run_as_json("--explain", subscription.ref)["newest_claims"] if "covered" in one]
    assert claim["covered"] == {"stretches": [["0", "100"]], "spends": [[holder, "credits", 2, 250]]}


def test_runs_of_recurring_charges_cover_nothing():
    holder, subscription = with_credits(250, metered(credits=IN_CREDITS), recurring())
    use(subscription, "150", at(1, 10))
    bill(subscription, at(2, 1), only=Scope.RECURRING)
    assert balance_of(holder) == 250
    [usage] = bill(subscription, at(2, 1), only=Scope.USAGE)
    assert (usage["total_minor"], balance_of(holder)) == (100, 0)


def test_a_refused_run_spends_nothing(settings):
    settings.BILLING_LIMITS = {"lines": 0}
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    with pytest.raises(BillingSuspended):
        bill(subscription, at(2, 1))
    assert movements(holder) == [("grant", 250)]
    assert not Invoice.objects.filter(subscription=subscription.pk).exists()
    assert not Claim.objects.filter(subscription=subscription.pk).exists()
