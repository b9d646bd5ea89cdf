"""Usage prices that are billed by entries: the invoice is the sum of the spends and captures of a rate."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from billing.customer_plans import line_title
from billing.documents.printed_pages import invoice_page
from billing.documents.printing import invoice_source
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.generator.run.preview import next_invoices
from billing.models import Claim, Invoice, Subscription
from ledger import services
from ledger.services import preview
from ledger.typesetting.languages import ENGLISH, GERMAN
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    amend,
    metered,
    transition,
    unique,
)
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.tampering.owner import SELLER

pytestmark = pytest.mark.django_db

START = datetime(2040, 1, 1, tzinfo=UTC)
FEBRUARY, MARCH, APRIL = (datetime(2040, month, 1, tzinfo=UTC) for month in (2, 3, 4))
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def rate() -> str:
    """A rate with two components: 1 credit for 100 of the input, 1 for 10 of the output."""
    code = unique("rate").lower()
    services.publish_rate(code=code, components={"input": {"price": 1, "per": 100}, "output": {"price": 1, "per": 10}})
    return code


@pytest.fixture
def holder() -> str:
    """A holder for whom it is the start of 2040, with a million credits."""
    name = unique("holder")
    move(name, START - 9 * 365 * DAY)
    move(name, START)
    services.grant(holder_id=name, amount=1_000_000, idempotency_key="all")
    return name


def move(holder: str, now: datetime) -> None:
    services.set_clock(holder_id=holder, now=now, idempotency_key=f"clock-{now}")


def by_entries(rate: str, component: str | None = "output", **price: Any) -> dict[str, Any]:
    entries = {"rate": rate} | ({} if component is None else {"component": component})
    return metered(unit_amount="0.02", billed_by="entries", entries=entries) | price


def subscribed(holder: str, *prices: dict[str, Any]) -> Subscription:
    """A subscription from the start of 2040, with a first run."""
    customer = CustomerFactory(holder_id=holder)
    subscription = SubscriptionFactory(customer=customer.ref, plan=PlanFactory(prices=list(prices)).code, started_at=START)
    run()
    return subscription


def run() -> None:
    """What the worker does."""
    call_command("generate_invoices", "--no-progress")


def spend(holder: str, rate: str, output: str | int, *, partial: bool = False, **metadata: str) -> Any:
    return services.spend(
        holder_id=holder, rate=rate, quantities={"output": output}, partial=partial, metadata=metadata,
        idempotency_key=unique("spend"),
    )  # fmt: skip


def refund(holder: str, spent: Any, amount: int | None = None) -> Any:
    return services.refund(holder_id=holder, spend=spent.sequence, amount=amount, idempotency_key=unique("refund"))


def lines(subscription: Subscription) -> list[tuple[str, str, str, int]]:
    """Period, kind, quantity and amount of each line of the price, the oldest first."""
    invoices = Invoice.objects.filter(subscription=subscription.pk).exclude(state="void").order_by("id")
    return [
        (f"{line.starts_at:%m-%d}", line.kind, f"{line.quantity:f}".rstrip("0").rstrip("."), line.amount_minor)
        for invoice in invoices
        for line in invoice.lines.order_by("position")
        if line.price_key
    ]


def assert_clean() -> None:
    assert findings_of("entries", "entry", "usage", "cursor") == []


def test_the_pdf_and_the_customers_page_name_the_rate_of_the_line(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    spend(holder, rate, 100)
    with preview():
        [upcoming] = next_invoices([subscription.ref], as_of=FEBRUARY, most=1)
    [line] = upcoming.document["lines"]
    assert [line_title(line, language) for language in (ENGLISH, GERMAN)] == [
        f"{line['title']} (rate {rate}, output)", f"{line['title']} (Tarif {rate}, output)",
    ]  # fmt: skip
    move(holder, FEBRUARY)
    run()
    source = invoice_source(Invoice.objects.get(subscription=subscription.pk).pk, without_seller=SELLER)
    [line] = invoice_page(source)["lines"]
    assert line["notes"][1:] == [f"By the rate {rate}, component output"]


def test_the_line_is_the_sum_of_the_spends_and_captures_of_the_rate(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    spend(holder, rate, 100)
    services.spend(holder_id=holder, amount=7, idempotency_key="other")
    held = services.hold(holder_id=holder, rate=rate, quantities={"output": 500, "input": 9}, idempotency_key="hold")
    services.capture(holder_id=holder, hold=held.sequence, quantities={"output": Decimal("30.5")}, idempotency_key="capture")
    move(holder, FEBRUARY - timedelta(microseconds=1))
    spend(holder, rate, 1)
    move(holder, FEBRUARY)
    spend(holder, rate, 1_000)
    run()
    assert lines(subscription) == [("01-01", "usage", "131.5", 263)]
    run()
    assert len(lines(subscription)) == 1
    assert_clean()


def test_a_refund_in_the_period_lowers_its_line_and_a_later_one_is_credited_on_the_next_invoice(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    first, second = spend(holder, rate, 100), spend(holder, rate, 200)
    refund(holder, first, 3)
    move(holder, FEBRUARY)
    run()
    assert lines(subscription) == [("01-01", "usage", "270", 540)]
    refund(holder, first)
    refund(holder, second, 5)
    run()
    assert len(lines(subscription)) == 1
    move(holder, MARCH)
    run()
    assert lines(subscription)[1:] == [("01-01", "late_usage", "150", -240)]
    assert_clean()


def test_a_partial_spend_and_a_refund_of_a_part_count_in_the_proportion_of_credits(holder):
    code = unique("rate").lower()
    services.publish_rate(code=code, price=3, per=1000)
    subscription = subscribed(holder, by_entries(code, None, unit_amount="1.00"))
    spent = services.spend(holder_id=holder, rate=code, quantity=700, idempotency_key="third")
    assert spent.amount == -3
    refund(holder, spent, 1)
    services.spend(holder_id=holder, amount=999_997, idempotency_key="nearly all")
    part = services.spend(holder_id=holder, rate=code, quantity=1000, partial=True, idempotency_key="part")
    assert (part.amount, part.requested) == (-1, 3)
    move(holder, FEBRUARY)
    [invoice] = bill(subscription, FEBRUARY, dry_run=True)
    assert [line["quantity"] for line in invoice["lines"]] == ["800"]
    run()
    # 700 × 2/3 = 466.666666666667, 1,000 × 1/3 = 333.333333333333
    assert lines(subscription) == [("01-01", "usage", "800", 80000)]
    assert_clean()


def test_a_capture_by_amount_counts_the_share_of_its_hold_and_a_release_counts_nothing(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    held = services.hold(holder_id=holder, rate=rate, quantities={"output": 1000}, idempotency_key="hold")
    services.capture(holder_id=holder, hold=held.sequence, amount=25, final=False, idempotency_key="first")
    services.capture(holder_id=holder, hold=held.sequence, amount=10, idempotency_key="second")
    other = services.hold(holder_id=holder, rate=rate, quantities={"output": 1000}, idempotency_key="other")
    services.release(holder_id=holder, hold=other.sequence, idempotency_key="release")
    move(holder, FEBRUARY)
    run()
    assert lines(subscription) == [("01-01", "usage", "350", 700)]
    assert_clean()


def test_a_capture_counts_at_its_own_time_and_by_the_labels_of_its_hold(holder, rate):
    subscription = subscribed(holder, by_entries(rate, filters={"team": ["a"]}))
    move(holder, FEBRUARY - DAY)
    held = services.hold(
        holder_id=holder, rate=rate, quantities={"output": 100}, metadata={"team": "a"}, expires_at=FEBRUARY + DAY,
        idempotency_key="hold",
    )  # fmt: skip
    spend(holder, rate, 10, team="b")
    move(holder, FEBRUARY)
    run()
    services.capture(holder_id=holder, hold=held.sequence, quantities={"output": 70}, idempotency_key="capture")
    move(holder, MARCH)
    run()
    assert lines(subscription) == [("02-01", "usage", "70", 140)]
    assert_clean()


GRADUATED = {"unit_amount": None, "model": "graduated", "tiers": [{"up_to": 100, "unit_amount": "0.10"}, {"unit_amount": "0.01"}]}


@pytest.mark.parametrize(
    ("price", "amount"),
    [
        ({}, 500),
        ({"free_units": "200"}, 100),
        (GRADUATED, 1150),
        (GRADUATED | {"model": "volume"}, 250),
        ({"model": "package", "unit_amount": "1.00", "package_size": 100}, 300),
        ({"conversion": {"divide_by": 100, "rounding": "up"}}, 6),
        ({"model": "percentage", "unit_amount": None, "rate": "10", "fixed_amount": "0.05"}, 2515),
        ({"buckets": [{"key": "eu", "unit_amount": "1.00", "filters": {"region": ["eu"]}}]}, 15200),
        ({"group_by": ["region"], "free_units": 50}, 260),
        ({"maximum": "4.00"}, 400),
        ({"minimum": "9.00"}, 900),
    ],
)
def test_every_model_rates_what_the_entries_used(holder, rate, price, amount):
    price = {name: value for name, value in (by_entries(rate) | price).items() if value is not None}
    subscription = subscribed(holder, price)
    spend(holder, rate, 150, region="eu")
    spend(holder, rate, 80)
    refund(holder, spend(holder, rate, 1000))
    spend(holder, rate, 20, region="us")
    move(holder, FEBRUARY)
    run()
    assert Invoice.objects.get(subscription=subscription.pk).total_minor == amount
    assert_clean()


@pytest.mark.parametrize("steps", [[MARCH], [FEBRUARY, MARCH], [START + 10 * DAY, FEBRUARY, FEBRUARY + 10 * DAY, MARCH]])
def test_late_and_stepwise_runs_bill_what_runs_in_time_bill(holder, rate, steps):
    subscription = subscribed(holder, by_entries(rate))
    spend(holder, rate, 7)
    move(holder, FEBRUARY + DAY)
    spend(holder, rate, 5)
    move(holder, MARCH)
    for as_of in steps:
        generate_in(ref=subscription.ref, options=Options(as_of=as_of))
    assert lines(subscription) == [("01-01", "usage", "7", 14), ("02-01", "usage", "5", 10)]
    assert_clean()


def test_a_voided_invoice_is_made_again_to_the_same_cent(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    spent = spend(holder, rate, 70)
    move(holder, FEBRUARY)
    run()
    [line] = lines(subscription)
    transition(Invoice.objects.get(subscription=subscription.pk).pk, "void")
    run()
    assert lines(subscription) == [line]
    transition(Invoice.objects.get(subscription=subscription.pk, state="open").pk, "void")
    refund(holder, spent, 2)
    run()
    assert lines(subscription) == [("01-01", "usage", "50", 100)]
    assert_clean()


def test_usage_in_advance_is_billed_as_it_is_spent(holder, rate):
    subscription = subscribed(holder, by_entries(rate, timing="advance"))
    spend(holder, rate, 70)
    move(holder, START + DAY)
    run()
    assert [line[2:] for line in lines(subscription)] == [("70", 140)]
    spend(holder, rate, 30)
    move(holder, START + 2 * DAY)
    run()
    assert sum(line[3] for line in lines(subscription)) == 200
    move(holder, FEBRUARY)
    run()
    assert sum(line[3] for line in lines(subscription)) == 200
    assert_clean()


def test_a_refund_after_the_end_of_the_subscription_is_credited_by_the_next_run(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    spent = spend(holder, rate, 70)
    amend(subscription, START + DAY, sets_end=True, ends_at=FEBRUARY)
    move(holder, MARCH)
    run()
    assert lines(subscription) == [("01-01", "usage", "70", 140)]
    refund(holder, spent, 2)
    run()
    assert lines(subscription)[1:] == [("01-01", "late_usage", "50", -40)]
    assert_clean()


def test_a_change_of_plan_bills_each_part_at_its_price(holder, rate):
    subscription = subscribed(holder, by_entries(rate))
    spend(holder, rate, 10)
    dearer = PlanFactory(prices=[by_entries(rate, unit_amount="1.00")])
    move(holder, START + 10 * DAY)
    amend(subscription, START + 10 * DAY, plan=dearer.code)
    spend(holder, rate, 3)
    move(holder, FEBRUARY)
    run()
    assert [line[3] for line in lines(subscription)] == [20, 300]
    assert_clean()


def test_the_check_finds_a_claim_that_is_not_the_sum_of_the_entries(holder, rate):
    subscription = subscribed(holder, by_entries(rate), by_entries(rate, None, key="grouped", group_by=["region"]))
    refund(holder, spend(holder, rate, 100, region="eu"), 1)
    move(holder, FEBRUARY)
    run()
    assert_clean()
    for claim in Claim.objects.filter(subscription_id=subscription.pk, kind=Claim.Kind.USAGE):
        Claim.objects.filter(pk=claim.pk).update(snapshot=claim.snapshot | {"quantity": "99"})
    found = findings_of("entries differs")
    assert [what.partition(": ")[2] for what in found] == [f"99 of the rate {rate} are billed, the ledger has 90"] * 2


@pytest.mark.parametrize("plan", ["threshold", "plain"])
def test_usage_of_a_running_period_is_invoiced_at_the_threshold_of_the_plan(holder, rate, plan):
    threshold = {"usage_threshold": Decimal(1)} if plan == "threshold" else {}
    customer = CustomerFactory(holder_id=holder)
    code = PlanFactory(prices=[by_entries(rate)], **threshold).code
    subscription = SubscriptionFactory(customer=customer.ref, plan=code, started_at=START)
    spend(holder, rate, 49)
    move(holder, START + DAY)
    run()
    assert lines(subscription) == []
    spend(holder, rate, 21)
    move(holder, START + 2 * DAY)
    run()
    assert [line[3] for line in lines(subscription)] == ([140] if threshold else [])
    assert_clean()
