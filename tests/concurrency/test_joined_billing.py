"""Billing's calls inside a transaction of the caller: they take effect with it, and what they cannot join they refuse by name."""

import threading
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from billing.documents import credit_notes, transitions
from billing.errors import CreditExceedsInvoice
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.metering import usage
from billing.models import Customer, Invoice, ItemVersion, Subscription, SuspendedBilling
from billing.orders import coupons, customers, subscriptions, suspension
from ledger import services
from ledger.database import transactions
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import holder_key, lock_number, sqlstate
from ledger.errors import LocksOutOfOrder, SequenceTaken, UnsafeDatabase
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, unique
from tests.concurrency.test_joined_writes import elsewhere, rolled_back
from tests.nodes import Session

Connect = Callable[..., psycopg.Connection[Any]]
Write = Callable[[], Any]

pytestmark = pytest.mark.usefixtures("committed_db")

TABLES = (
    "customer", "plan", "coupon", "customercoupon", "subscription", "amendment", "charge", "usageevent", "suspendedbilling",
    "invoice", "transition", "creditnote", "requestkey",
)  # fmt: skip
ROWS = "SELECT " + " + ".join(f"(SELECT count(*) FROM billing_{table})" for table in TABLES)


@pytest.fixture
def other(raw_connection: Connect) -> Session:
    """A second session, in autocommit: it sees what is committed."""
    return raw_connection(autocommit=True)


@pytest.fixture
def subscription() -> Subscription:
    """A subscription with an invoice, and a coupon of its name that nobody has."""
    made = SubscriptionFactory()
    coupons.create_coupon(code=made.ref, kind="percentage", value=Decimal(10), duration="forever")
    generate(ref=made.ref, options=Options(as_of=at(1, 2)))
    return made


def rows(session: Session) -> int:
    """How many rows of billing's tables the session sees."""
    [(count,)] = session.execute(ROWS)
    return int(count)


def give_coupon(subscription: Subscription, mark: str) -> Write:
    payer = Customer.objects.get(pk=subscription.customer_id)
    asked = {"customer_id": payer.pk, "customer_ref": payer.ref, "customer_currency": "EUR", "code": subscription.ref}
    return partial(coupons.give_coupon, **asked)


def subscribe(subscription: Subscription, mark: str) -> Write:
    payer = Customer.objects.get(pk=subscription.customer_id)
    (plan,) = ItemVersion.objects.filter(subscription_id=subscription.pk).values_list("plan__code", flat=True).distinct()
    return partial(subscriptions.create_subscription, ref=mark, customer=payer.ref, plan=plan, started_at=at(1))


def amend(subscription: Subscription, mark: str) -> Write:
    wish = subscriptions.Wish(quantities={"base": Decimal(2)})
    return partial(subscriptions.amend_subscription, ref=subscription.ref, effective_at=at(1, 20), wish=wish)


def use(subscription: Subscription, mark: str) -> Write:
    return partial(
        usage.take_in, [usage.NewEvent(mark, subscription.ref, "calls", value=Decimal(1), occurred_at=at(1, 3), properties={})]
    )


def pay(subscription: Subscription, mark: str) -> Write:
    invoice = Invoice.objects.get(subscription_ref=subscription.ref)
    asked = {"kind": "pay", "actor": "test", "reason": "paid", "idempotency_key": mark}
    return partial(transitions.apply, invoice_id=invoice.pk, **asked)


def credit(subscription: Subscription, mark: str) -> Write:
    invoice = Invoice.objects.get(subscription_ref=subscription.ref)
    return partial(credit_notes.issue, invoice_id=invoice.pk, reason="late", actor="test", idempotency_key=mark)


WRITES: dict[str, Callable[[Subscription, str], Write]] = {
    "customer": lambda _, mark: partial(customers.create_customer, ref=mark, name="Bea", currency="EUR"),
    "plan": lambda _, mark: partial(PlanFactory, code=mark),
    "coupon": lambda _, mark: partial(coupons.create_coupon, code=mark, kind="percentage", value=Decimal(5), duration="forever"),
    "coupon of a customer": give_coupon,
    "subscription": subscribe,
    "amendment": amend,
    "charge": lambda to, mark: partial(subscriptions.charge_once, ref=to.ref, amount_minor=100, description=mark),
    "usage": use,
    "suspension": lambda of, mark: partial(suspension.suspend, ref=of.ref, reason=mark),
    "invoice": lambda of, mark: partial(generate, ref=of.ref, options=Options(as_of=at(2, 2))),
    "state of an invoice": pay,
    "credit note": credit,
}
"""A write of every kind, for a subscription and a new name."""

EACH = pytest.mark.parametrize("prepare", WRITES.values(), ids=WRITES)


@pytest.mark.products(most=8)
@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "control: in a transaction of its own"])
@EACH
def test_each_call_takes_effect_with_the_callers_transaction(other, subscription, prepare, is_joined):
    before, write = rows(other), prepare(subscription, unique("mark"))
    with rolled_back():
        write() if is_joined else elsewhere(write)
        assert (rows(other) == before) is is_joined
    assert (rows(other) == before) is is_joined
    if is_joined:
        with transaction.atomic():
            write()
            assert rows(other) == before
        assert rows(other) > before


def test_a_refusal_that_is_caught_is_answered_again_and_one_that_is_let_through_is_decided_again(other, subscription):
    credit(subscription, unique("whole"))()
    write, before = credit(subscription, unique("mark")), rows(other)
    with pytest.raises(CreditExceedsInvoice), transaction.atomic():
        write()
    assert rows(other) == before
    with transaction.atomic(), pytest.raises(CreditExceedsInvoice) as refused:
        write()
    assert (refused.value.replayed, rows(other)) == (False, before + 1)
    with pytest.raises(CreditExceedsInvoice) as again:
        write()
    assert again.value.replayed


@pytest.mark.products(most=8)
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@EACH
def test_a_transaction_with_an_older_snapshot_is_refused_before_anything_is_read(other, subscription, prepare, level):
    before, write = rows(other), prepare(subscription, unique("mark"))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(UnsafeDatabase) as unsafe, CaptureQueriesContext(connection) as sent:
            write()
        assert unsafe.value.facts["what"] == f"transaction_isolation = {level.lower()}"
        assert [query["sql"] for query in sent] == [transactions.CALLERS]
    assert rows(other) == before


def test_control_an_older_snapshot_does_not_see_what_the_lock_has_waited_for(subscription, monkeypatch):
    """The second suspension does not find the first, and only the database's constraint keeps it from being stored."""
    monkeypatch.setattr(transactions, "CALLERS", "SELECT 'read committed', '2s', true")

    @transaction.atomic
    def suspend_second() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert not SuspendedBilling.objects.filter(subscription_id=subscription.pk).exists()
        elsewhere(lambda: suspension.suspend(ref=subscription.ref, reason="first"))
        suspension.suspend(ref=subscription.ref, reason="second")

    with pytest.raises(IntegrityError):
        suspend_second()


# The order of locks ----------------------------------------------------------------------------------


def test_a_call_whose_lock_comes_before_one_that_the_transaction_has_is_an_error_that_names_the_order(
    other, subscription, new_holder
):
    holder = new_holder()
    in_order = [SUBSCRIPTION_INTENT(subscription.ref), holder_key(holder)]

    def charge() -> None:
        subscriptions.charge_once(ref=subscription.ref, amount_minor=100, description="setup")

    def grant(key: str) -> None:
        services.grant(holder_id=holder, amount=1, idempotency_key=key)

    before = rows(other)
    with transaction.atomic():
        grant("first")
        with pytest.raises(LocksOutOfOrder) as out_of_order:
            charge()
        assert out_of_order.value.facts["locks"] == in_order
    assert rows(other) == before
    with transaction.atomic():
        charge()
        grant("second")
        charge()
    assert rows(other) == before + 2


def test_control_two_orders_deadlock_which_is_an_error_that_says_to_repeat_the_transaction(
    run_threads, subscription, new_holder, monkeypatch
):
    monkeypatch.setattr(transactions, "ensure_order", lambda names: None)
    holder, both_have_one = new_holder(), threading.Barrier(2)
    acts = [
        lambda: subscriptions.charge_once(ref=subscription.ref, amount_minor=100, description="setup"),
        lambda: services.grant(holder_id=holder, amount=1, idempotency_key=uuid.uuid4().hex),
    ]

    def work(index: int) -> None:
        with transaction.atomic():
            acts[index]()
            both_have_one.wait(30)
            acts[not index]()

    (error,) = [outcome for outcome in run_threads(work, 2) if outcome is not None]
    assert isinstance(error, SequenceTaken)
    assert (sqlstate(error.__cause__), error.facts["what_to_do"]) == ("40P01", "repeat the transaction")


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "control: in a transaction of its own"])
def test_the_lock_of_a_subscription_is_held_to_the_end_of_the_callers_transaction(other, subscription, is_joined):
    name = SUBSCRIPTION_INTENT(subscription.ref)
    with transaction.atomic():
        amend(subscription, "")() if is_joined else elsewhere(amend(subscription, ""))
        [(is_free,)] = other.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(name)])
        assert is_free is not is_joined
    [(is_free,)] = other.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(name)])
    assert is_free
