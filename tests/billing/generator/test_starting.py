"""What a customer pays, the customer may spend at once: the credits of an order that waits come with its payment."""

import random
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from billing.documents import credit_notes
from billing.documents.invoice_payments import record_payment
from billing.errors import AlreadyExists
from billing.generator.activations import cancel_order, order_subscription
from billing.models import Activation, Claim, Invoice, Subscription
from billing.orders import starting, subscriptions
from ledger import reads, services
from ledger.errors import HolderBusy, InsufficientCredits
from ledger.models import Entry
from tests.billing.factories import CustomerFactory, PlanFactory, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.state.test_allowance_changes import available, day, days_of, move, run_at

pytestmark = pytest.mark.django_db

JANUARY = day(1)
INSTANT = timedelta(microseconds=1)
TERMS: dict[str, Any] = {
    "allowance": {"amount": 310},
    "overage": {"price": {"model": "unit", "unit_amount": "0.02"}, "limit_credits": 50},
    "budgets": [{"budget": "pool", "credit_type": "credits", "limit": 400, "window": "month"}],
}


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def waiting(started_at: datetime = JANUARY, *, terms: Any = None, **order: Any) -> tuple[str, Subscription]:
    """A holder whose time is 1 January 2029, and an order that waits for 31.00."""
    holder = unique("holder")
    move(holder, day(1))
    plan = PlanFactory(prices=[recurring(unit_amount="31.00", key="fee")], **(TERMS if terms is None else terms))
    customer = CustomerFactory(holder_id=holder).ref
    named = {"ref": unique("SUB"), "customer": customer, "plan": plan.code, "started_at": started_at} | order
    return holder, order_subscription(**named, starts_when_paid=True, payment_timeout_hours=720)


def first_invoice(subscription: Subscription) -> Invoice:
    return Invoice.objects.get(pk=Activation.objects.get(subscription=subscription.pk).invoice_id)


def pay(subscription: Subscription, minor: int = 3100) -> Any:
    return record_payment(invoice=first_invoice(subscription).pk, payment=unique("pay"), amount_minor=minor)


def no_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "FOLLOWERS", [])


def state(holder: str) -> tuple[int, int | None, dict[str, int]]:
    """The credits, the limit of the overage, and the limits of budgets."""
    balance = reads.balance(holder)
    return (
        balance.available,
        None if balance.overage is None else balance.overage.limit,
        {each.name: each.settings.limit for each in reads.budgets(holder)},
    )


ALL = (310, 50, {"pool": 400})
NOTHING = (0, None, {})


def test_what_is_paid_at_ten_can_be_spent_a_microsecond_later_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, subscription = waiting()
    no_followers(monkeypatch)  # nothing but the transaction of the payment
    assert state(holder) == NOTHING
    move(holder, day(1) + timedelta(hours=10))
    pay(subscription, 1000)
    assert (state(holder), Entry.objects.filter(holder_id=holder, kind="grant").count()) == (NOTHING, 0)
    pay(subscription, 2100)
    assert state(holder) == ALL
    move(holder, day(1) + timedelta(hours=10) + INSTANT)
    services.spend(holder_id=holder, amount=360, idempotency_key="all")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder, amount=1, idempotency_key="more")
    # The run finds what the payment granted: for the ordered period, once.
    assert [one.amount for one in run_at(holder, subscription, day(1, 2)).granted] == [310]
    assert run_at(holder, subscription, day(1, 3)).granted == []
    assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING) == [(day(1), day(2))]
    assert findings_of("credits", "budgets", "ledger", "billing", "subscription") == []


def test_a_credit_note_for_the_rest_starts_it_with_its_credits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, subscription = waiting()
    no_followers(monkeypatch)
    pay(subscription, 1000)
    line = first_invoice(subscription).lines.get()
    lines = [credit_notes.CreditLine(position=line.position, amount_minor=2100)]
    credit_notes.issue_in(invoice_id=first_invoice(subscription).pk, lines=lines, reason="A friend", actor="ada")
    assert (Activation.objects.get(subscription=subscription.pk).state, state(holder)) == ("started", ALL)


def test_a_payment_that_is_rolled_back_or_repeated_or_too_late_brings_nothing() -> None:
    holder, subscription = waiting()
    entries = Entry.objects.filter(holder_id=holder).count()
    with transaction.atomic():
        pay(subscription)
        assert state(holder) == ALL
        transaction.set_rollback(True)
    assert (state(holder), Entry.objects.filter(holder_id=holder).count()) == (NOTHING, entries)
    named = {"invoice": first_invoice(subscription).pk, "payment": unique("pay"), "amount_minor": 3100}
    for _ in range(2):
        record_payment(**named)
    assert state(holder) == ALL
    with pytest.raises(AlreadyExists):
        record_payment(**named | {"amount_minor": 1})
    assert (state(holder), Entry.objects.filter(holder_id=holder, kind="grant").count()) == (ALL, 1)

    holder, subscription = waiting()
    cancel_order(ref=subscription.ref)
    pay(subscription)
    assert state(holder) == NOTHING


def test_a_payment_is_recorded_though_its_credits_have_to_wait(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def busy(ref: str) -> None:
        services.grant(holder_id=holder, amount=1, idempotency_key="undone")
        raise HolderBusy(key=ref)

    holder, subscription = waiting()
    monkeypatch.setattr(starting, "STARTERS", [busy])
    with monkeypatch.context() as without:
        no_followers(without)
        pay(subscription)
    assert (first_invoice(subscription).state, state(holder)) == ("paid", NOTHING)
    run_at(holder, subscription, day(1))
    assert state(holder) == ALL

    # What follows an order follows the payment.
    holder, subscription = waiting()
    with django_capture_on_commit_callbacks(execute=True):
        pay(subscription)
    assert state(holder) == ALL


def test_an_order_for_later_brings_its_credits_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, subscription = waiting(day(1, 11), anchor_at=day(1), terms={"allowance": {"amount": 310}})
    no_followers(monkeypatch)
    pay(subscription)
    assert available(holder) == 0
    move(holder, day(1, 11))
    services.spend(holder_id=holder, amount=210, idempotency_key="all")
    assert available(holder) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.check), *range(1, 12)])
def test_what_can_be_spent_after_a_payment_depends_on_no_run(seed: int) -> None:
    """Runs each day, some days, or only at the end: the same credits from the payment on, and the same claims."""
    chosen = random.Random(seed)
    started_at = day(1) + timedelta(days=chosen.choice([0, 0, -10, 3]))
    paid_at = day(1) + timedelta(days=chosen.randint(0, 25), hours=chosen.randint(0, 23))
    anchored = {"anchor_at": day(1)} if chosen.random() < 0.4 and started_at >= day(1) else {}
    spent = sorted(chosen.sample(range(45), 4))
    lives = []
    for pace in (1, 7, 1_000):
        holder, subscription = waiting(started_at, terms={"allowance": {"amount": 310}}, **anchored)
        seen = []
        for number in range(45):
            now = day(1) + timedelta(days=number)
            move(holder, max(now, paid_at) if number == paid_at.timetuple().tm_yday - 1 else now)
            if number == paid_at.timetuple().tm_yday - 1:
                assert available(holder) == 0
                pay(subscription)
            if number in spent:
                with suppress(InsufficientCredits):
                    services.spend(holder_id=holder, amount=9, idempotency_key=f"{number}")
            seen.append(available(holder))
            if number % pace == pace - 1 and number != paid_at.timetuple().tm_yday - 1:
                run_at(holder, subscription, now)
        run_at(holder, subscription, day(1) + timedelta(days=45))
        claims = Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None)
        lives.append((seen, sorted(claims.values_list("starts_at", "ends_at", "quantity"))))
        assert days_of(subscription, Claim.Kind.ALLOWANCE) == days_of(subscription, Claim.Kind.RECURRING)
        assert findings_of("credits", "ledger", "billing") == []
    assert lives[0] == lives[1] == lives[2]
