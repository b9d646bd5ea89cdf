"""Two subscriptions of a customer finalised at the same time: they never use the same credit twice."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from django.db import IntegrityError, connection, transaction

from billing.documents import credit_refunds, credit_rests
from billing.documents.credit_refunds import NewCreditRefund, deposit_in, refund_in
from billing.errors import RefundExceedsCredit
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import CreditNoteUse, CreditRefund, Customer, Invoice, Subscription
from billing.orders.customers import account_key
from ledger.database.locks import lock_number
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.concurrency.race_harness import no_lock

IS_WAITED_FOR = """
    SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND (classid::bigint << 32) | objid::bigint = %s
"""

Connect = Callable[..., psycopg.Connection[Any]]


def two_of_one_customer() -> tuple[Customer, list[Subscription]]:
    """Two subscriptions at 10.00, and credit of 12.00."""
    customer = CustomerFactory()
    plan = PlanFactory(prices=[recurring()])
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=1200, reference="payment", actor="test")
    return customer, [SubscriptionFactory(plan=plan.code, customer=customer.ref) for _ in range(2)]


def taken_minor(customer: Customer) -> list[int]:
    """What invoices and refunds took, the least first."""
    return sorted(CreditNoteUse.objects.filter(credit_note__customer_id=customer.pk).values_list("amount_minor", flat=True))


@contextmanager
def both_have_looked() -> Iterator[None]:
    """Stop each that reads the customer's credit until two have read it."""
    barrier, real = threading.Barrier(2), credit_rests.open_credit

    def together(*arguments: Any) -> Any:
        found = real(*arguments)
        barrier.wait(30)
        return found

    with mock.patch.object(credit_rests, "open_credit", together), mock.patch.object(credit_refunds, "open_credit", together):
        yield


@contextmanager
def first_waits_for_second(raw_connection: Connect, customer: Customer) -> Iterator[Callable[[int], None]]:
    """Stop the first after its read, until the second waits for the lock of the account."""
    has_read = threading.Event()
    real = credit_rests.open_credit
    looker = raw_connection(autocommit=True)
    number = lock_number(account_key(customer.ref))

    def slowly(*arguments: Any) -> Any:
        found = real(*arguments)
        if not has_read.is_set():
            has_read.set()
            deadline = time.monotonic() + 30
            while not looker.execute(IS_WAITED_FOR, [number]).fetchone():
                assert time.monotonic() < deadline
        return found

    def turn(index: int) -> None:
        if index:
            assert has_read.wait(30)

    with mock.patch.object(credit_rests, "open_credit", slowly), mock.patch.object(credit_refunds, "open_credit", slowly):
        yield turn


def test_two_invoices_at_the_same_time_share_the_credit(committed_db: None, run_threads: Any, raw_connection: Connect) -> None:
    customer, subscriptions = two_of_one_customer()
    with first_waits_for_second(raw_connection, customer) as turn:

        def one(index: int) -> int:
            turn(index)
            [made] = generate.generate(ref=subscriptions[index].ref, options=Options(as_of=at(1, 1))).invoices
            return made.amount_due_minor

        assert run_threads(one, 2) == [0, 800]
    assert taken_minor(customer) == [200, 1000]


def test_an_invoice_and_a_refund_at_the_same_time_share_the_credit(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    customer, subscriptions = two_of_one_customer()
    request = NewCreditRefund(amount_minor=1200, reason="asked for")
    with first_waits_for_second(raw_connection, customer) as turn:

        def one(index: int) -> Any:
            turn(index)
            if index:
                with transaction.atomic():
                    return refund_in(customer_ref=customer.ref, request=request, actor="test")
            return generate.generate(ref=subscriptions[0].ref, options=Options(as_of=at(1, 1))).invoices

        _, refused = run_threads(one, 2)
    assert isinstance(refused, RefundExceedsCredit)
    assert refused.facts["left_minor"] == 200
    assert (taken_minor(customer), CreditRefund.objects.count()) == ([1000], 0)


def test_without_the_lock_the_database_refuses_the_second(committed_db: None, run_threads: Any) -> None:
    customer, subscriptions = two_of_one_customer()

    def one(index: int) -> Any:
        return generate.generate(ref=subscriptions[index].ref, options=Options(as_of=at(1, 1)))

    with mock.patch.object(credit_rests, "advisory_lock", no_lock), both_have_looked():
        results = run_threads(one, 2)
    assert sorted(type(each).__name__ for each in results) == ["GenerationResult", "IntegrityError"], results
    [refused] = [each for each in results if isinstance(each, IntegrityError)]
    assert "billing_creditnote_left" in str(refused)
    assert taken_minor(customer) == [1000]
    assert Invoice.objects.filter(customer_id=customer.pk).count() == 1


def test_control_without_lock_and_rest_the_same_credit_pays_twice(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    """In a separate schema, whose table of uses has no trigger."""
    customer, subscriptions = two_of_one_customer()
    schema = f"race_credit_{customer.pk}"
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE SCHEMA {schema}")
    owner.execute(
        f"CREATE TABLE {schema}.billing_creditnoteuse (LIKE public.billing_creditnoteuse INCLUDING IDENTITY INCLUDING DEFAULTS)"
    )

    def one(index: int) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema}, public")
        return generate.generate(ref=subscriptions[index].ref, options=Options(as_of=at(1, 1))).invoices

    try:
        with mock.patch.object(credit_rests, "advisory_lock", no_lock), both_have_looked():
            results = run_threads(one, 2)
        assert [[made.amount_due_minor for made in each] for each in results] == [[0], [0]], results
        (taken,) = owner.execute(f"SELECT sum(amount_minor) FROM {schema}.billing_creditnoteuse").fetchone() or (0,)
        assert taken == 2000
    finally:
        owner.execute(f"DROP SCHEMA {schema} CASCADE")
