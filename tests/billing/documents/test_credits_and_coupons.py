"""What lowers an invoice and what pays it: coupons, minimums and maximums, credit notes, prepaid credits."""

import io
import json
from decimal import Decimal

import pytest
from django.core.management import call_command

from billing.documents import invoices
from billing.documents.printing import invoice_pdf
from billing.errors import CouponNotApplicable, InvalidTransition
from billing.generator.options import Options
from billing.generator.run import outcomes, runs
from billing.generator.run.due import DueFilter, due_together
from billing.models import CreditPayment, CustomerCoupon, Invoice, Line, SuspendedBilling
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from ledger import reads, services
from tests.billing.documents.issued import BUYER_ADDRESS, add_seller
from tests.billing.documents.test_printed import RAM, amounts, xml_of
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill, line_amounts

pytestmark = pytest.mark.django_db


def with_credits(count: int, unit_value: str = "0.01", **fields):
    """A subscription at 10.00 a month plus 20 percent whose holder has `count` credits."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=count, idempotency_key="first")
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal(unit_value)))
    plan = PlanFactory(prices=[recurring(tax_rate="20")])
    return holder, SubscriptionFactory(customer=customer.ref, plan=plan.code, **fields)


def test_credits_pay_after_tax_as_far_as_they_reach():
    holder, subscription = with_credits(500)
    [invoice] = bill(subscription, at(1, 1))
    # 12.00 with tax; 500 credits at 0.01 are 5.00.
    assert (invoice["total_minor"], invoice["credits_applied_minor"], invoice["amount_due_minor"]) == (1200, 500, 700)
    assert invoice["taxes"] == [{"category": "S", "rate": "20", "base_minor": 1000, "amount_minor": 200}]
    assert (invoice["state"], reads.balance(holder).available) == ("open", 0)


def test_credits_are_the_prepaid_amount_of_the_e_invoice_and_its_lines_say_for_which_days_they_are():
    add_seller()
    holder = unique("holder")
    services.grant(holder_id=holder, amount=500, idempotency_key="first")
    wanted = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    customer = CustomerFactory(holder_id=holder, credits=wanted, address=BUYER_ADDRESS, vat_id="BE0123456749")
    subscription = SubscriptionFactory(customer=customer.ref, plan=PlanFactory(prices=[recurring(tax_rate="20")]).code)
    [invoice] = bill(subscription, at(1, 1))
    xml = xml_of(invoice_pdf(invoice["id"]).content)
    assert amounts(xml, "GrandTotalAmount", "TotalPrepaidAmount", "DuePayableAmount") == ["12.00", "5.00", "7.00"]
    line = xml.find(f".//{RAM}IncludedSupplyChainTradeLineItem")
    assert line is not None
    days = ["".join(day.itertext()).strip() for name in ("Start", "End") for day in line.iter(f"{RAM}{name}DateTime")]
    assert days == ["20260101", "20260131"]


def test_enough_credits_pay_the_whole_invoice():
    holder, subscription = with_credits(5000)
    [invoice] = bill(subscription, at(1, 1))
    assert (invoice["credits_applied_minor"], invoice["amount_due_minor"], invoice["state"]) == (1200, 0, "paid")
    assert reads.balance(holder).available == 3800


@pytest.mark.parametrize("how", ["run", "dry run", "later"])
def test_an_invoice_of_a_frozen_holder_is_made_and_uses_no_credits(how):
    holder, subscription = with_credits(500)
    services.freeze(holder_id=holder, frozen=True, idempotency_key="freeze")
    [invoice] = bill(subscription, at(1, 1), dry_run=how == "dry run", finalize=how != "later")
    if how == "later":
        invoices.finalize(invoice["id"])
        invoice = {"credits_applied_minor": Invoice.objects.get(pk=invoice["id"]).credits_applied_minor}
    assert (invoice["credits_applied_minor"], reads.balance(holder).available) == (0, 500)
    assert reads.refusals(holder) == []


def test_credits_pay_an_invoice_whatever_the_budgets_of_the_holder_say():
    holder, subscription = with_credits(5000)
    services.set_budget(holder_id=holder, budget="daily", limit=10, window="day", idempotency_key="budget")
    [invoice] = bill(subscription, at(1, 1))
    assert (invoice["credits_applied_minor"], invoice["state"]) == (1200, "paid")
    [budget] = reads.budgets(holder)
    assert [use.used for use in budget.usage] == [0]


def test_only_whole_credits_are_spent_and_never_more_than_is_due():
    # One credit is 0.07: 171 of them are 11.97, 172 would be 12.04.
    holder, subscription = with_credits(1000, "0.07")
    [invoice] = bill(subscription, at(1, 1))
    assert (invoice["credits_applied_minor"], invoice["amount_due_minor"]) == (1197, 3)
    assert reads.balance(holder).available == 1000 - 171


def test_a_draft_uses_no_credits_until_it_is_finalised():
    holder, subscription = with_credits(500)
    [draft] = bill(subscription, at(1, 1), finalize=False)
    assert (draft["credits_applied_minor"], reads.balance(holder).available) == (0, 500)
    invoice = invoices.finalize(draft["id"])
    assert (invoice.credits_applied_minor, reads.balance(holder).available) == (500, 0)


@pytest.mark.parametrize("finalize", [True, False])
def test_credits_pay_only_in_the_customers_currency(finalize):
    holder = unique("holder")
    services.grant(holder_id=holder, amount=500, idempotency_key="first")
    customer = CustomerFactory(
        holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")), currency="EUR"
    )
    plan = PlanFactory(prices=[recurring()], currency="USD")
    [made] = bill(SubscriptionFactory(customer=customer.ref, plan=plan.code), at(1, 1), finalize=finalize)
    if not finalize:
        invoices.finalize(made["id"])
    invoice = Invoice.objects.get(pk=made["id"])
    assert (invoice.state, invoice.currency, invoice.credits_applied_minor) == ("open", "USD", 0)
    assert invoice.amount_due_minor == invoice.total_minor == 1000
    assert (reads.balance(holder).available, CreditPayment.objects.filter(invoice_id=invoice.pk).exists()) == (500, False)


def test_a_dry_run_uses_no_credits_but_shows_them():
    holder, subscription = with_credits(500)
    [dry] = bill(subscription, at(1, 1), dry_run=True)
    assert (dry["credits_applied_minor"], reads.balance(holder).available) == (500, 500)


def test_voiding_gives_credits_back_once_however_often():
    holder, subscription = with_credits(500)
    [invoice] = bill(subscription, at(1, 1))
    for _ in range(3):
        invoices.void(invoice["id"])
    assert reads.balance(holder).available == 500
    assert CreditPayment.objects.get(invoice_id=invoice["id"]).refund_sequence is not None
    assert len(reads.entries(holder, kind="refund", limit=10)) == 1


def test_what_is_paid_cannot_be_voided_and_nothing_is_written():
    holder, subscription = with_credits(5000)
    [invoice] = bill(subscription, at(1, 1))
    with pytest.raises(InvalidTransition):
        invoices.void(invoice["id"])
    assert (Invoice.objects.get(pk=invoice["id"]).state, reads.balance(holder).available) == ("paid", 3800)


def new_coupon(**fields):
    """The code of a new coupon, which lasts for ever by default."""
    made = coupons.create_coupon(**({"code": unique("coupon"), "duration": "forever"} | fields))
    return made.code


def give_coupons(subscription, *codes):
    """Give coupons to the subscription's customer."""
    customer = subscription.customer
    for code in codes:
        coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code=code)


def subscribed(**fields):
    """A subscription at 10.00 a month plus 20 percent, without credits or coupons."""
    return SubscriptionFactory(plan=PlanFactory(prices=[recurring(tax_rate="20", **fields)]).code)


def test_a_percentage_lowers_the_tax_base():
    subscription = subscribed()
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(25)))
    [invoice] = bill(subscription, at(1, 1))
    assert (invoice["subtotal_minor"], invoice["discount_minor"], invoice["tax_minor"], invoice["total_minor"]) == (
        1000,
        250,
        150,
        900,
    )


def test_percentages_apply_one_after_the_other():
    subscription = subscribed()
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(50)), new_coupon(kind="percentage", value=Decimal(10)))
    # 10.00 - 5.00 = 5.00; 5.00 - 0.50 = 4.50
    assert bill(subscription, at(1, 1))[0]["discount_minor"] == 550


def test_an_amount_used_once_carries_its_rest():
    subscription = subscribed()
    give_coupons(subscription, new_coupon(kind="amount", value=Decimal("25.00"), currency="EUR", duration="once"))
    assert [bill(subscription, at(month, 1))[0]["discount_minor"] for month in (1, 2, 3, 4)] == [1000, 1000, 500, 0]


def test_a_recurring_coupon_lasts_its_periods_also_when_they_are_caught_up_in_one_run():
    steady, late = subscribed(), subscribed()
    for subscription in (steady, late):
        give_coupons(
            subscription, new_coupon(kind="amount", value=Decimal("3.00"), currency="EUR", duration="recurring", periods=2)
        )
    assert [bill(steady, at(month, 1))[0]["discount_minor"] for month in (1, 2, 3)] == [300, 300, 0]
    [caught_up] = bill(late, at(3, 1))
    assert [line["discount_minor"] for line in caught_up["lines"]] == [300, 300, 0]


def test_a_coupon_limited_to_a_price_leaves_the_others():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(), recurring("support", "5.00")]).code)
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(100), prices=["support"]))
    assert [line["discount_minor"] for line in bill(subscription, at(1, 1))[0]["lines"]] == [0, 500]


def test_voiding_gives_a_coupon_back():
    subscription = subscribed()
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(50), duration="once"))
    [invoice] = bill(subscription, at(1, 1))
    invoices.void(invoice["id"])
    assert bill(subscription, at(1, 1))[0]["discount_minor"] == 500
    assert bill(subscription, at(2, 1))[0]["discount_minor"] == 0


def test_a_credit_gives_back_the_price_less_the_discount_of_its_line():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code)
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(50), duration="once"))
    bill(subscription, at(1, 1))
    subscriptions.amend_subscription(
        ref=subscription.ref, effective_at=at(1, 11), wish=subscriptions.Wish(quantities={"base": Decimal(2)})
    )
    [change] = bill(subscription, at(1, 11))
    # 21.00 unused, half of it was paid.
    assert line_amounts(change) == [("credit", "base", -1050), ("recurring", "base", 4200)]


def test_a_coupon_of_another_currency_or_given_twice_is_refused():
    subscription = subscribed()
    with pytest.raises(CouponNotApplicable):
        give_coupons(subscription, new_coupon(kind="amount", value=Decimal(1), currency="USD"))
    code = new_coupon(kind="percentage", value=Decimal(10))
    give_coupons(subscription, code)
    with pytest.raises(CouponNotApplicable):
        give_coupons(subscription, code)
    assert [given.coupon.code for given in CustomerCoupon.objects.filter(customer_id=subscription.customer_id)] == [code]


def test_a_minimum_is_trued_up_after_discounts_and_a_maximum_is_a_discount():
    low = SubscriptionFactory(plan=PlanFactory(prices=[metered(minimum="5.00")]).code)
    give_coupons(low, new_coupon(kind="percentage", value=Decimal(50)))
    use(low, "100", at(1, 5))
    [invoice] = bill(low, at(2, 1))
    # 2.00 - 1.00 = 1.00, lifted by 4.00
    assert line_amounts(invoice) == [("usage", "calls", 200), ("minimum", "calls", 400)]
    assert invoice["total_minor"] == 500

    high = SubscriptionFactory(plan=PlanFactory(prices=[metered(maximum="5.00")]).code)
    use(high, "1000", at(1, 5))
    [invoice] = bill(high, at(2, 1))
    assert (line_amounts(invoice), invoice["discount_minor"], invoice["total_minor"]) == ([("usage", "calls", 2000)], 1500, 500)


def test_late_usage_inside_a_minimum_costs_nothing_and_beyond_it_the_difference():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(minimum="5.00")]).code)
    use(subscription, "100", at(1, 5))
    bill(subscription, at(2, 1))
    use(subscription, "50", at(1, 6))
    assert bill(subscription, at(2, 2)) == []
    use(subscription, "150", at(1, 7))
    # 300 x 0.02 = 6.00, of which 5.00 were billed.
    assert line_amounts(bill(subscription, at(2, 3))[0]) == [("late_usage", "calls", 100)]


@pytest.mark.parametrize(
    ("bounds", "first", "then"),
    # 6.00 and 4.00 later, half off both: 5.00 in all, within whatever bounds, in however many parts.
    [
        ({"maximum": "5.00"}, 300, [("late_usage", "calls", 400, 200)]),
        # 3.00, and of the 2.00 more only 1.50 up to the maximum.
        ({"maximum": "4.50"}, 300, [("late_usage", "calls", 350, 200)]),
        ({"maximum": "3.00"}, 300, None),
        # 3.00 were lifted to 4.00, so 1.00 more.
        ({"minimum": "4.00"}, 400, [("late_usage", "calls", 300, 200)]),
        ({"minimum": "5.00"}, 500, [("late_usage", "calls", 200, 200)]),
    ],
)
def test_late_usage_with_a_coupon_comes_to_what_one_line_would_have(bounds, first, then):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(**bounds)]).code)
    give_coupons(subscription, new_coupon(kind="percentage", value=Decimal(50)))
    use(subscription, "300", at(1, 5))
    assert bill(subscription, at(2, 1))[0]["total_minor"] == first
    use(subscription, "200", at(1, 6))
    made = bill(subscription, at(2, 2))
    lines = [
        (line["kind"], line["price_key"], line["amount_minor"], line["discount_minor"]) for one in made for line in one["lines"]
    ]
    assert lines == (then or [])


def test_a_minimum_is_owed_without_any_use():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(minimum="5.00")]).code)
    [invoice] = bill(subscription, at(2, 1))
    assert invoice["total_minor"] == 500
    assert Line.objects.filter(invoice=invoice["id"], kind="minimum").count() == 1


# Subscriptions that share -----------------------------------------------------------------------------


def run_command(customer, as_of="2026-01-01", *options):
    """Print and outcome of the command for all of a customer's subscriptions."""
    out = io.StringIO()
    arguments = ["--customer", customer, "--as-of", as_of, "--format", "jsonl", "--no-progress", *options]
    call_command("generate_invoices", *arguments, stdout=out, stderr=io.StringIO())
    *outcomes, summary = [json.loads(line) for line in out.getvalue().splitlines()]
    return summary["money"]["EUR"], {one["subscription"]: one["invoices"][0]["total_minor"] for one in outcomes}


def sharing_a_holder(subscriptions_of_one, credits_held=50_000, **fields):
    """A holder with credits and that many subscriptions of one customer, which all pay with them."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=credits_held, idempotency_key="first")
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    plan = PlanFactory(prices=[recurring(unit_amount="200.11", **fields)]).code
    return holder, customer, [SubscriptionFactory(customer=customer.ref, plan=plan) for _ in range(subscriptions_of_one)]


def test_a_dry_run_of_subscriptions_that_share_credits_is_the_run():
    # Eight at 200.11 are 1,600.88, of which 500.00 are paid in credits.
    holder, customer, _ = sharing_a_holder(8)
    dry = run_command(customer.ref, "2026-01-01", "--dry-run")
    assert dry[0] == {"invoices": 8, "total_minor": 160_088, "credits_applied_minor": 50_000}
    assert (reads.balance(holder).available, Invoice.objects.filter(customer=customer.pk).count()) == (50_000, 0)
    assert run_command(customer.ref) == dry
    assert reads.balance(holder).available == 0


def test_a_dry_run_uses_a_coupon_of_one_customer_once():
    _, customer, _ = sharing_a_holder(3)
    code = new_coupon(kind="amount", value=Decimal("300.00"), currency="EUR", duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    dry = run_command(customer.ref, "2026-01-01", "--dry-run")
    assert dry[0]["total_minor"] == 3 * 20_011 - 30_000
    assert run_command(customer.ref) == dry


def test_one_failure_in_a_dry_run_leaves_the_others_as_they_are():
    _, _, (first, *others) = sharing_a_holder(3)
    SuspendedBilling.objects.create(subscription_id=first.pk, reason="unusual-amount")
    refs = [first.ref, *(one.ref for one in others)]
    job = runs.job_for(Options(as_of=at(1, 1), dry_run=True), subscriptions=tuple(refs))
    done: list[outcomes.SubscriptionResult] = []
    summary = runs.run(job, on_done=done.append, on_tick=lambda _: None, stop=lambda: False)
    assert [(one.subscription, one.outcome) for one in done] == list(
        zip(refs, ["suspended", "finalised", "finalised"], strict=True)
    )
    assert summary.money["EUR"] == {"invoices": 2, "total_minor": 40_022, "credits_applied_minor": 40_022}


def test_subscriptions_of_different_customers_are_dry_run_by_themselves():
    refs = [SubscriptionFactory().ref for _ in range(2)]
    _, _, together = sharing_a_holder(3)
    due_filter = DueFilter(as_of=at(1, 1))
    groups = [*due_together(due_filter), *due_together(due_filter, ["no-such", together[2].ref, together[0].ref])]
    assert [group for group in groups if group[0] in refs] == [(ref,) for ref in refs]
    assert tuple(one.ref for one in together) in groups
    assert groups[-2:] == [(together[2].ref, together[0].ref), ("no-such",)]
