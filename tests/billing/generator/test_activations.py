"""A subscription that starts when its first invoice is paid: it waits, starts once, or expires; and what goes back then."""

from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from billing import reads
from billing.auditing import consistency
from billing.documents import credit_notes, invoices
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import record_seller
from billing.dunning import reminding
from billing.dunning.errors import NotReminded
from billing.dunning.models import Reminder
from billing.errors import BillingWouldBeSuspended, SubscriptionNotIncomplete, SubscriptionNotStarted
from billing.generator import activations
from billing.generator.activations import cancel_order, expire, order_subscription
from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter, due_among
from billing.generator.run.generate import generate
from billing.generator.run.preview import next_invoices
from billing.generator.state.unbilled_usage import find_unbilled_usage
from billing.models import (
    Activation,
    Amendment,
    Claim,
    CouponUse,
    CreditNote,
    Invoice,
    ItemVersion,
    Line,
    Subscription,
    Transition,
)
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.phases import Phase
from ledger import reads as ledger_reads
from ledger import services
from ledger.errors import Invalid
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, amend, at, metered, recurring, transition, unique, use

pytestmark = pytest.mark.django_db

NOW = at(11, 1)
"""A run that comes late."""


def order(price: str = "30.00", /, **fields: Any) -> Subscription:
    """A subscription from 1 January that starts when 30.00 a month is paid, without tax."""
    plan = fields.pop("plan", None) or PlanFactory(prices=[recurring(unit_amount=price), metered()])
    customer = fields.pop("customer", None) or CustomerFactory()
    return order_subscription(
        **{
            "ref": unique("SUB"),
            "customer": customer.ref,
            "plan": plan.code,
            "started_at": at(1),
            "starts_when_paid": True,
            **fields,
        }
    )


def activation(subscription: Subscription) -> Activation:
    return Activation.objects.get(subscription_id=subscription.pk)


def invoice_of(subscription: Subscription) -> Invoice:
    return Invoice.objects.get(pk=activation(subscription).invoice_id)


def pay(subscription: Subscription, minor: int = 3000, **more: Any) -> Any:
    return record_payment(invoice=invoice_of(subscription).pk, payment=unique("pay"), amount_minor=minor, **more)


def run(subscription: Subscription, as_of: Any = NOW, **options: Any) -> list[int]:
    """The totals of the invoices that a run makes."""
    made = generate(ref=subscription.ref, options=Options(as_of=as_of, **options)).invoices
    return [one.total_minor for one in made]


def state(subscription: Subscription) -> str:
    return reads.subscription(subscription.ref).row.state


@pytest.fixture
def too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which invoices may be paid is over."""
    monkeypatch.setattr(activations, "present", lambda _: timezone.now() + timedelta(days=31))


@pytest.fixture(autouse=True)
def _sound() -> Any:
    """After each test, billing's checks find nothing."""
    yield
    assert consistency.check() == []


def test_it_waits_with_an_open_invoice_of_its_first_period_and_nothing_else_is_billed() -> None:
    subscription = order()
    use(subscription, "100", at(1, 5))
    first = invoice_of(subscription)
    assert (first.state, first.total_minor, first.as_of) == ("open", 3000, at(1))
    assert [(line.starts_at, line.ends_at) for line in Line.objects.filter(invoice_id=first.pk)] == [(at(1), at(2))]
    assert run(subscription) == run(subscription, at(2, 1)) == []
    assert Invoice.objects.filter(subscription_id=subscription.pk).count() == 1
    row = reads.subscription(subscription.ref).row
    assert (row.state, row.due_at, row.current_period(at(1, 5))) == ("incomplete", None, None)
    assert reads.monthly_minor([row]) == {subscription.pk: 0}


def test_a_payment_starts_it_once_and_the_next_run_bills_what_came_due_since() -> None:
    subscription = order()
    use(subscription, "100", at(1, 5))
    pay(subscription, 1000)
    assert state(subscription) == "incomplete"
    pay(subscription, 2000)
    began = activation(subscription)
    assert (began.state, state(subscription)) == ("started", "active")
    pay(subscription, 3000)
    assert activation(subscription).settled_at == began.settled_at
    # 100 calls in January for 2.00, and February.
    assert run(subscription, at(2, 1)) == [3200]
    assert reads.monthly_minor([reads.subscription(subscription.ref).row]) == {subscription.pk: 3000}


# What must be paid -----------------------------------------------------------------------------------


def test_the_invoice_is_due_when_the_order_expires_and_neither_grace_nor_days_held_back_delay_it() -> None:
    customer = CustomerFactory(terms_days=30, grace_days=7, hold_days=10, time_zone="Asia/Tokyo")
    subscription = order(customer=customer, payment_timeout_hours=72)
    first, waiting = invoice_of(subscription), activation(subscription)
    assert first.state == "open"
    assert first.due_date == waiting.expires_at.astimezone(ZoneInfo("Asia/Tokyo")).date()
    assert timedelta(hours=71) < waiting.expires_at - timezone.now() <= timedelta(hours=72)
    pay(subscription)
    assert run(subscription, at(1, 9)) == []
    # With ten days held back, February is billed on the 11th, as a draft in its grace.
    assert run(subscription, at(2, 11)) == [3000]
    draft = Invoice.objects.get(subscription_id=subscription.pk, state="draft")
    assert transition(draft.pk, "finalize").total_minor == 3000


def test_without_anything_to_pay_it_starts_at_once() -> None:
    in_arrears = order(plan=PlanFactory(prices=[recurring(timing="arrears"), metered()]))
    began = activation(in_arrears)
    assert (began.state, began.invoice_id, state(in_arrears)) == ("started", None, "active")
    assert run(in_arrears, at(2, 1)) == [1000]
    free = order("0.00")
    assert (activation(free).state, invoice_of(free).state, invoice_of(free).total_minor) == ("started", "paid", 0)
    assert run(free, at(2, 1)) == [0]


def test_credit_of_the_customer_and_prepaid_credits_may_pay_all_of_it() -> None:
    holder = unique("holder")
    services.grant(holder_id=holder, amount=2000, idempotency_key=unique("key"))
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(unit_value=Decimal("0.01")))
    part = order(customer=customer)
    assert (invoice_of(part).credits_applied_minor, invoice_of(part).amount_due_minor, state(part)) == (2000, 1000, "incomplete")
    pay(part, 4500)
    assert state(part) == "active"
    # The payment left 35.00 of credit.
    whole = order(customer=customer)
    assert (invoice_of(whole).credit_notes_minor, invoice_of(whole).state, state(whole)) == (3000, "paid", "active")


def test_an_allowance_comes_with_the_first_run_after_the_start() -> None:
    holder, since = unique("holder"), timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    plan = PlanFactory(prices=[recurring()], allowance={"amount": 500})
    subscription = order(plan=plan, customer=CustomerFactory(holder_id=holder), started_at=since)
    assert run(subscription, timezone.now()) == []
    assert ledger_reads.balance(holder).available == 0
    pay(subscription, 1000)
    assert due_among([subscription.ref], DueFilter(as_of=timezone.now())) == [subscription.ref]
    assert run(subscription, timezone.now()) == []
    assert ledger_reads.balance(holder).available == 500
    run(subscription, timezone.now())
    assert ledger_reads.balance(holder).available == 500


def test_a_run_finds_it_only_without_its_invoice_or_after_its_start() -> None:
    def is_due() -> bool:
        return subscription.ref in due_among([subscription.ref], DueFilter(as_of=NOW))

    plan, customer = PlanFactory(prices=[recurring()]), CustomerFactory()
    subscription = subscriptions.create_subscription(
        ref=unique("SUB"), customer=customer.ref, plan=plan.code, started_at=at(1), starts_when_paid=True
    )
    assert is_due()
    assert run(subscription, at(3), finalize=False, only=Scope.USAGE, max_periods=1) == [1000]
    assert invoice_of(subscription).state == "open"
    assert not is_due()
    pay(subscription, 1000)
    assert is_due()


def test_a_start_in_the_past_or_in_the_future_is_billed_from_there() -> None:
    past, future = order(started_at=at(8)), order(started_at=at(1, year=2190))
    assert (invoice_of(past).total_minor, invoice_of(future).total_minor) == (3000, 3000)
    pay(past)
    pay(future)
    assert (state(past), state(future)) == ("active", "scheduled")
    # September and October.
    assert run(past, at(10, 15)) == [6000]
    assert run(future) == []


@pytest.mark.parametrize(
    ("fields", "pointer", "rule"),
    [
        ({"trial_end": at(2)}, "/starts_when_paid", "contradiction"),
        ({"phases": [Phase(intervals=1, trial=True), Phase()]}, "/starts_when_paid", "contradiction"),
        ({"starts_when_paid": False, "payment_timeout_hours": 5}, "/payment_timeout_hours", "not-alone"),
        ({"payment_timeout_hours": 0}, "/payment_timeout_hours", "too-small"),
        ({"payment_timeout_hours": 721}, "/payment_timeout_hours", "too-large"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(fields: dict[str, Any], pointer: str, rule: str) -> None:
    before = [model.objects.count() for model in (Subscription, Invoice, Activation)]
    with pytest.raises(Invalid) as refused:
        order(**fields)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert [model.objects.count() for model in (Subscription, Invoice, Activation)] == before


def test_an_order_whose_invoice_exceeds_a_limit_is_refused_as_a_whole() -> None:
    before = [model.objects.count() for model in (Subscription, Invoice, Activation)]
    plan = PlanFactory(prices=[recurring(model="unit", unit_amount="1000000000000")])
    with pytest.raises(BillingWouldBeSuspended) as refused:
        order(plan=plan, quantities={"base": Decimal(10**18)})
    assert refused.value.facts["reason"] == "amount-too-large"
    assert [model.objects.count() for model in (Subscription, Invoice, Activation)] == before


@pytest.mark.parametrize(("currency", "price", "minor"), [("JPY", "3000", 3000), ("KWD", "30.000", 30000)])
def test_currencies_of_no_and_three_decimals(currency: str, price: str, minor: int) -> None:
    plan = PlanFactory(currency=currency, prices=[recurring(unit_amount=price)])
    subscription = order(plan=plan, customer=CustomerFactory(currency=currency))
    assert invoice_of(subscription).amount_due_minor == minor
    pay(subscription, minor - 1)
    assert state(subscription) == "incomplete"
    pay(subscription, 1)
    assert state(subscription) == "active"


def test_phases_begin_at_their_times_after_the_start() -> None:
    plan = PlanFactory(prices=[recurring(model="unit", unit_amount="10.00")])
    subscription = order(plan=plan, phases=[Phase(intervals=1), Phase(quantities={"base": Decimal(2)})])
    assert invoice_of(subscription).total_minor == 1000
    pay(subscription, 1000)
    assert run(subscription, at(3)) == [4000]


# What cannot be done while it waits ------------------------------------------------------------------


def test_while_it_waits_it_is_neither_amended_nor_charged_nor_is_its_invoice_voided() -> None:
    subscription = order()
    before = Amendment.objects.count()
    tries = (
        lambda: amend(subscription, at(2), ends_at=at(2), sets_end=True),
        lambda: subscriptions.charge_once(ref=subscription.ref, amount_minor=100, description="Set-up"),
        lambda: invoices.void(invoice_of(subscription).pk),
    )
    for attempt in tries:
        with pytest.raises(SubscriptionNotStarted) as refused:
            attempt()
        assert refused.value.facts == {"subscription": subscription.ref, "state": "waiting"}
    assert (Amendment.objects.count(), invoice_of(subscription).state) == (before, "open")
    pay(subscription)
    amend(subscription, at(2), ends_at=at(2), sets_end=True)
    assert run(subscription) == []


def test_an_uncollectible_invoice_still_waits_and_a_note_that_credits_all_starts_it() -> None:
    given_up, credited = order(), order()
    invoices.mark_uncollectible(invoice_of(given_up).pk)
    assert state(given_up) == "incomplete"
    pay(given_up)
    assert state(given_up) == "active"
    credit_notes.issue_in(invoice_id=invoice_of(credited).pk, reason="A present", actor="test")
    assert state(credited) == "active"


def test_it_is_not_reminded_of_while_it_waits() -> None:
    record_seller({**SELLER, "reminder_days": [1]}, actor="test")
    subscription = order(customer=CustomerFactory(terms_days=0), payment_timeout_hours=1)
    first = invoice_of(subscription)
    with mock.patch.object(reminding, "today_of", return_value=first.due_date + timedelta(days=20)):
        assert reminding.remind(first.pk) is None
        with pytest.raises(NotReminded) as refused:
            reminding.remind_now(invoice=first.pk, actor="ada")
    assert refused.value.facts["reason"] == "first-payment"
    assert not Reminder.objects.exists()


# When it is not paid ---------------------------------------------------------------------------------


def test_it_expires_once_and_gives_everything_back(too_late: None) -> None:
    holder = unique("holder")
    services.grant(holder_id=holder, amount=1000, idempotency_key=unique("key"))
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(unit_value=Decimal("0.01")))
    coupons.create_coupon(code=(code := unique("C")), kind="amount", value=Decimal("5.00"), currency="EUR", duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    subscription = order(customer=customer)
    first = invoice_of(subscription)
    assert (first.total_minor, first.credits_applied_minor) == (2500, 1000)
    assert expire(subscription.ref) is not None
    assert expire(subscription.ref) is None
    first.refresh_from_db()
    ended = activation(subscription)
    assert (first.state, ended.state, ended.settled_by, state(subscription)) == ("void", "expired", "", "expired")
    assert ledger_reads.balance(holder).available == 1000
    assert not CouponUse.objects.filter(invoice_id=first.pk, released_at=None).exists()
    assert not Claim.objects.filter(subscription_id=subscription.pk, released_at=None).exists()
    assert not ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None).exists()
    assert run(subscription) == []
    # Money that comes later is credit of the customer, and starts nothing.
    paid = record_payment(invoice=first.pk, payment=unique("pay"), amount_minor=1500)
    assert (paid.applied_minor, CreditNote.objects.get(pk=paid.deposit_id).left_minor) == (0, 1500)
    assert state(subscription) == "expired"
    with pytest.raises(SubscriptionNotStarted):
        amend(subscription, at(3), ends_at=None, sets_end=True)


def test_what_was_paid_in_part_becomes_credit(too_late: None) -> None:
    customer = CustomerFactory()
    coupons.create_coupon(code=(code := unique("C")), kind="amount", value=Decimal("5.00"), currency="EUR", duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    subscription = order(customer=customer)
    pay(subscription, 1000)
    assert expire(subscription.ref) is not None
    first = invoice_of(subscription)
    assert (first.state, first.amount_due_minor, state(subscription)) == ("paid", 1000, "expired")
    assert CreditNote.objects.get(invoice_id=first.pk).left_minor == 1000
    assert run(subscription) == []
    # The next order has the coupon and the credit.
    again = order(customer=customer)
    assert (invoice_of(again).total_minor, invoice_of(again).amount_due_minor) == (2500, 1500)


def test_nothing_expires_before_its_time_or_after_its_start() -> None:
    waiting, begun = order(), order()
    pay(begun)
    assert expire(waiting.ref) is None
    assert expire(begun.ref) is None
    assert (state(waiting), state(begun)) == ("incomplete", "active")


def test_an_order_is_canceled_before_its_payment_and_not_after_it() -> None:
    subscription, begun = order(), order()
    pay(begun)
    done = cancel_order(ref=subscription.ref, reason="Ordered twice", actor="ada")
    assert (done.state, done.settled_by, invoice_of(subscription).state) == ("canceled", "ada", "void")
    assert Transition.objects.get(invoice_id=done.invoice_id).reason == "Ordered twice"
    for ref in (subscription.ref, begun.ref):
        with pytest.raises(SubscriptionNotIncomplete):
            cancel_order(ref=ref)
    assert (state(subscription), state(begun)) == ("expired", "active")


def test_what_was_used_before_a_start_that_never_came_is_named() -> None:
    subscription = order()
    use(subscription, "7", at(1, 5))
    cancel_order(ref=subscription.ref)
    assert use(subscription, "8", at(1, 6)).code == "not-started"
    [one] = find_unbilled_usage(lookback=None, subscription_ids=[subscription.pk])
    assert (one.reason, one.value) == ("not-started", 15)


# After the start -------------------------------------------------------------------------------------


def test_money_that_goes_back_after_the_start_makes_the_invoice_due_again_and_ends_nothing(too_late: None) -> None:
    subscription = order()
    paid = pay(subscription)
    record_payment_return(invoice_payment=paid.pk, kind="dispute", payment=unique("dp"))
    assert (invoice_of(subscription).state, state(subscription), expire(subscription.ref)) == ("open", "active", None)
    transition(invoice_of(subscription).pk, "void")
    assert (state(subscription), run(subscription, at(2))) == ("active", [6000])


def test_the_database_lets_it_stop_waiting_once() -> None:
    subscription = order()
    pay(subscription)
    rows = Activation.objects.filter(subscription_id=subscription.pk)
    for change in ({"state": "waiting", "settled_at": None}, {"state": "expired"}, {"invoice_id": None}, {"expires_at": at(1)}):
        with pytest.raises(DatabaseError, match="is started and frozen"), transaction.atomic():
            rows.update(**change)
    with pytest.raises(DatabaseError, match="cannot be deleted"), transaction.atomic():
        rows.delete()


# Previews --------------------------------------------------------------------------------------------


def test_previews_show_what_is_billed_if_it_is_paid() -> None:
    subscription = order(started_at=at(9))

    def shown() -> list[tuple[str, int]]:
        with services.preview(one_snapshot=True):
            made = next_invoices([subscription.ref], as_of=at(10, 15), most=2)
        return [(one.document["issue_date"], one.document["total_minor"]) for one in made]

    expected = shown()
    assert expected == [("2026-10-15", 3000), ("2026-11-01", 3000)]
    assert Invoice.objects.filter(subscription_id=subscription.pk).count() == 1
    pay(subscription)
    assert shown() == expected
