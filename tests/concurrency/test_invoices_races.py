"""Invoice generation at the same time: never twice, no waiting, no gap in the numbers, no lock on a subscription's rows."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections

from billing.documents import finalisation, invoice_payments, invoices
from billing.errors import InvoiceGenerationBusy, PeriodAlreadyBilled
from billing.generator.difference import due_drafts, store
from billing.generator.options import Options, Scope
from billing.generator.run import generate as generator
from billing.generator.run.steps import GenerationResult
from billing.generator.state import allowances
from billing.models import Claim, Invoice, Line, Subscription
from billing.orders import subscriptions, suspension
from billing.orders.subscriptions import Wish
from ledger import reads
from ledger.database.locks import lock_number, sqlstate
from ledger.database.transactions import DEADLOCK
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.concurrency.race_harness import no_lock
from tests.conftest import database_url
from tests.nodes import pause

Connect = Callable[..., psycopg.Connection[Any]]
FEB_1 = Options(as_of=at(2, 1))


def generate(ref: str, options: Options = FEB_1) -> GenerationResult:
    """Bill the subscription in this thread."""
    return generator.generate(ref=ref, options=options)


class HeldGeneration:
    """A generation in a separate thread, stopped after it has written its claims and before COMMIT."""

    def __init__(self, ref: str, options: Options = FEB_1) -> None:
        self.ref, self.options = ref, options
        self.has_written, self.may_commit = threading.Event(), threading.Event()
        self.result: Any = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            if sql == store.INSERT_CLAIMS.sql:
                # The others may take as long as they like: neither the server nor we end this by the clock.
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                self.has_written.set()
                self.may_commit.wait()
            return result

        try:
            with connection.execute_wrapper(watch):
                self.result = generate(self.ref, self.options)
        except Exception as error:
            self.result = error
        finally:
            self.has_written.set()  # also when nothing was written, so that a test fails and does not hang
            connections.close_all()

    def __enter__(self) -> "HeldGeneration":
        self.thread.start()
        self.has_written.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self.may_commit.set()
        self.thread.join()


def invoice_count(ref: str) -> int:
    """How many invoices the subscription has."""
    return Invoice.objects.filter(subscription_ref=ref).count()


# T1 .. T5: a usage and a recurring generator on one subscription -------------------------------------


def test_a_second_generator_is_busy_at_once_and_succeeds_later(committed_db: None) -> None:
    subscription = SubscriptionFactory()
    use(subscription, "100", at(1, 5))
    with HeldGeneration(subscription.ref, Options(as_of=at(2, 1), only=Scope.RECURRING)) as first:
        with pytest.raises(InvoiceGenerationBusy) as busy:
            generate(subscription.ref, Options(as_of=at(2, 1), only=Scope.USAGE))
        assert busy.value.facts == {"key": f"invoice_gen/{subscription.ref}", "subscription": subscription.ref}
        assert invoice_count(subscription.ref) == 0
    assert len(first.result.invoices) == 1
    again = generate(subscription.ref, Options(as_of=at(2, 1), only=Scope.USAGE))
    assert [one.total_minor for one in again.invoices] == [240]


def test_an_amendment_does_not_wait_for_a_running_generation_and_the_next_one_bills_it(committed_db: None) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    with HeldGeneration(subscription.ref, Options(as_of=at(1, 1))):
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '1ms'")
        subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 17), wish=Wish(quantities={"base": 3}))
    [made] = generate(subscription.ref, Options(as_of=at(1, 17))).invoices
    assert made.total_minor == 1452 - 484


# The lock bypassed: the constraint holds -------------------------------------------------------------


def test_without_the_lock_the_constraint_refuses_the_second_of_two_generations(committed_db: None, run_threads: Any) -> None:
    subscription = SubscriptionFactory()
    attempts: list[int] = []
    both_have_read = threading.Barrier(2)
    real = store.write_claims

    def together(head: Any, changes: Any) -> None:
        both_have_read.wait(30)
        attempts.append(len(changes.charges))
        real(head, changes)

    with mock.patch.object(generator, "try_advisory_lock", no_lock), mock.patch.object(store, "write_claims", together):
        results = run_threads(lambda index: generate(subscription.ref, Options(as_of=at(1, 1))), 2)

    # The double-bill attempt: both found the same period due and wrote a claim on it.
    assert attempts == [1, 1]
    (refused,) = [one for one in results if not isinstance(one, GenerationResult)]
    # An exclusion constraint lets each insert first and then wait for the other: the server may end that as a deadlock.
    assert isinstance(refused, PeriodAlreadyBilled) or sqlstate(refused) == DEADLOCK
    assert invoice_count(subscription.ref) == 1
    assert Claim.objects.filter(subscription=subscription.pk, released_at=None, kind=Claim.Kind.RECURRING).count() == 1


def test_control_without_lock_and_constraint_the_period_is_billed_twice(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    """In a separate schema, where claims may overlap; it is dropped with the two invoices, which an audit would complain of."""
    subscription = SubscriptionFactory()
    schema = f"race_{subscription.pk}"
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE SCHEMA {schema}")
    like = "INCLUDING IDENTITY INCLUDING DEFAULTS"
    for table in ("billing_claim", "billing_invoice", "billing_line", "billing_invoicetax"):
        owner.execute(f"CREATE TABLE {schema}.{table} (LIKE public.{table} {like})")
    owner.execute(f"CREATE TABLE {schema}.billing_numberseries (LIKE public.billing_numberseries {like} INCLUDING INDEXES)")
    both_have_read = threading.Barrier(2)
    real = store.write_claims

    def together(head: Any, changes: Any) -> None:
        both_have_read.wait(30)
        real(head, changes)

    def bill(index: int) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema}, public")
        return generate(subscription.ref, Options(as_of=at(1, 1)))

    try:
        with mock.patch.object(generator, "try_advisory_lock", no_lock), mock.patch.object(store, "write_claims", together):
            results = run_threads(bill, 2)
        assert [len(one.invoices) for one in results] == [1, 1]
        assert owner.execute(f"SELECT count(*) FROM {schema}.billing_invoice").fetchone() == (2,)
    finally:
        owner.execute(f"DROP SCHEMA {schema} CASCADE")


def test_a_claim_that_another_session_has_released_is_a_conflict(committed_db: None) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    generate(subscription.ref, Options(as_of=at(1, 1)))
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 17), wish=Wish(quantities={"base": 3}))
    before = invoice_count(subscription.ref)
    real = store.write_claims

    def late(head: Any, changes: Any) -> None:
        Claim.objects.filter(subscription=subscription.pk).update(released_at=at(1, 2))
        real(head, changes)

    with mock.patch.object(store, "write_claims", late), pytest.raises(PeriodAlreadyBilled):
        generate(subscription.ref, Options(as_of=at(1, 17)))
    assert invoice_count(subscription.ref) == before


# No row of intent is ever locked ---------------------------------------------------------------------

INTENT_TABLES = (
    "billing_subscription",
    "billing_customer",
    "billing_plan",
    "billing_price",
    "billing_item",
    "billing_itemversion",
)


def row_lock_marks(session: psycopg.Connection[Any], subscription: Subscription) -> list[Any]:
    """The xmax of the rows of a subscription, its customer and its plan: a row lock would change it."""
    return [
        session.execute("SELECT xmax::text FROM billing_subscription WHERE id = %s", [subscription.pk]).fetchall(),
        session.execute("SELECT xmax::text FROM billing_customer WHERE id = %s", [subscription.customer_id]).fetchall(),
        session.execute(
            "SELECT xmax::text FROM billing_item WHERE subscription_id = %s ORDER BY id", [subscription.pk]
        ).fetchall(),
    ]


def test_a_generation_neither_waits_for_locked_rows_of_subscriptions_nor_locks_them(
    committed_db: None, raw_connection: Connect
) -> None:
    subscription = SubscriptionFactory()
    use(subscription, "100", at(1, 5))
    holder, observer = raw_connection("owner"), raw_connection("owner", autocommit=True)
    before = row_lock_marks(observer, subscription)
    assert before[0] == [("0",)]
    generate(subscription.ref, Options(as_of=at(1, 1)))
    assert row_lock_marks(observer, subscription) == before

    for table in INTENT_TABLES:
        holder.execute(f"SELECT * FROM {table} FOR UPDATE")
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1ms'")
    subscriptions.charge_once(ref=subscription.ref, amount_minor=100, description="Set-up")
    [invoice] = generate(subscription.ref).invoices
    invoices.void(invoice.invoice_id)
    [draft] = generate(subscription.ref, Options(as_of=at(2, 1), finalize=False)).invoices
    invoices.finalize(draft.invoice_id)
    invoice_payments.pay_rest(draft.invoice_id)
    holder.rollback()
    assert invoice_count(subscription.ref) == 3


def test_control_with_a_foreign_key_the_insert_waits_for_the_locked_row(committed_db: None, raw_connection: Connect) -> None:
    subscription = SubscriptionFactory()
    holder, owner = raw_connection("owner"), raw_connection("owner", autocommit=True)
    owner.execute(f"CREATE TABLE child_{subscription.pk} (id bigint REFERENCES billing_subscription)")
    try:
        holder.execute("SELECT * FROM billing_subscription WHERE id = %s FOR UPDATE", [subscription.pk])
        owner.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.execute(f"INSERT INTO child_{subscription.pk} VALUES (%s)", [subscription.pk])
    finally:
        holder.rollback()
        owner.execute(f"DROP TABLE child_{subscription.pk}")


# Numbers ---------------------------------------------------------------------------------------------


def numbers_are_gapless(session: psycopg.Connection[Any]) -> bool:
    """Whether the numbers of invoices run from 1 to the last without a gap."""
    row = session.execute(
        "SELECT count(*) = max(series_value) AND count(*) = count(DISTINCT series_value)"
        " AND max(series_value) = (SELECT last_value FROM billing_numberseries WHERE name = 'INV')"
        " FROM billing_invoice WHERE series = 'INV' AND series_value IS NOT NULL"
    ).fetchone()
    return bool(row and row[0])


class Undone(Exception):
    """Raised to roll a finalisation back after its number was taken."""


@pytest.mark.slow
@pytest.mark.check
def test_the_numbers_have_no_gap_although_every_fifth_finalisation_is_rolled_back(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    plan = PlanFactory(prices=[recurring()]).code
    customer = CustomerFactory().ref
    refs = [SubscriptionFactory(plan=plan, customer=customer).ref for _ in range(40)]
    taken: list[str] = []

    def undo_every_fifth(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql == finalisation.FINALIZE.sql:
            taken.append(sql)
            if len(taken) % 5 == 0:
                raise Undone
        return result

    def bill_all(index: int) -> int:
        made = 0
        with connection.execute_wrapper(undo_every_fifth):
            for ref in refs[index::4]:
                try:
                    made += len(generate(ref, Options(as_of=at(1, 1))).invoices)
                except Undone:
                    assert invoice_count(ref) == 0
        return made

    made = sum(run_threads(bill_all, 4))
    assert made == 32
    assert len(taken) == 40
    assert numbers_are_gapless(raw_connection(autocommit=True))


# Processes -------------------------------------------------------------------------------------------


HANGS_S = 600
"""Ends a process that hangs; no test depends on how long a process takes."""


def start_generate_invoices(*arguments: str, **more: str) -> subprocess.Popen[str]:
    """Start `manage.py generate_invoices` in a process."""
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
        **more,
    }
    return subprocess.Popen(
        [sys.executable, "manage.py", "generate_invoices", *arguments],
        cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_two_commands_of_two_workers_share_80_subscriptions(committed_db: None, raw_connection: Connect) -> None:
    plan = PlanFactory(prices=[recurring(timing="arrears"), metered()]).code
    customer = CustomerFactory().ref
    refs = []
    for _ in range(80):
        subscription = SubscriptionFactory(plan=plan, customer=customer)
        use(subscription, "10", at(1, 5))
        refs.append(subscription.ref)

    arguments = ("--as-of", "2026-02-01", "--plan", plan, "--workers", "2", "--format", "json", "--no-progress")
    commands = [start_generate_invoices(*arguments) for _ in range(2)]
    answers = [each.communicate(timeout=HANGS_S) for each in commands]
    assert [each.returncode for each in commands] == [0, 0], answers
    summaries = [json.loads(out) for out, _ in answers]
    assert sum(one["outcomes"]["finalised"] for one in summaries) == 80
    assert sum(one["lines"] for one in summaries) == 160
    assert sum(one["money"].get("EUR", {}).get("total_minor", 0) for one in summaries) == 80 * 1020
    assert Invoice.objects.filter(subscription_ref__in=refs, total_minor=1020, state="open").count() == 80
    assert Line.objects.filter(invoice__subscription_ref__in=refs).count() == 160
    assert numbers_are_gapless(raw_connection(autocommit=True))


@pytest.mark.slow
def test_a_generator_killed_in_the_middle_leaves_no_invoice_no_number_and_no_lock(
    committed_db: None, raw_connection: Connect
) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    holder, observer = raw_connection("owner"), raw_connection("owner", autocommit=True)
    # The generator is stopped at its last step: somebody holds the row of the series, and it waits for as long as that takes.
    holder.execute("SET idle_in_transaction_session_timeout = 0")
    holder.execute("INSERT INTO billing_numberseries VALUES ('INV', 0) ON CONFLICT DO NOTHING")
    holder.commit()
    last = holder.execute("SELECT last_value FROM billing_numberseries WHERE name = 'INV' FOR UPDATE").fetchone()
    process = start_generate_invoices(
        "--as-of",
        "2026-01-01",
        "--subscription",
        subscription.ref,
        "--no-progress",
        PGOPTIONS="-c lock_timeout=0 -c statement_timeout=0",
    )
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32) | objid::bigint = %s"
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND %s = ANY(pg_blocking_pids(pid)))"
    number = lock_number(f"invoice_gen/{subscription.ref}")
    try:
        while observer.execute(waits, [holder.info.backend_pid]).fetchone() == (False,) and process.poll() is None:
            pause()
        assert process.poll() is None, process.communicate()
        assert observer.execute(held, [number]).fetchone() == (1,)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HANGS_S)
    finally:
        holder.rollback()
    while observer.execute(held, [number]).fetchone() != (0,):
        pause()
    assert invoice_count(subscription.ref) == 0
    assert observer.execute("SELECT last_value FROM billing_numberseries WHERE name = 'INV'").fetchone() == last
    # And the next one proceeds.
    assert [one.total_minor for one in generate(subscription.ref, Options(as_of=at(1, 1))).invoices] == [1000]
    assert numbers_are_gapless(observer)


@pytest.mark.slow
@pytest.mark.check
def test_the_command_skips_busy_subscriptions_and_reports_them(committed_db: None) -> None:
    subscription = SubscriptionFactory()
    with HeldGeneration(subscription.ref):
        process = start_generate_invoices(
            "--as-of", "2026-02-01", "--subscription", subscription.ref, "--retry-busy", "0", "--format", "json", "--no-progress"
        )
        out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 4, err
    assert json.loads(out)["outcomes"]["busy"] == 1
    assert invoice_count(subscription.ref) == 1


@pytest.mark.slow
def test_a_suspended_subscription_does_not_stop_the_others(committed_db: None) -> None:
    subscription, suspended = SubscriptionFactory(), SubscriptionFactory()
    suspension.suspend(ref=suspended.ref, reason="looks-odd")
    process = start_generate_invoices(
        "--as-of", "2026-01-01", "--subscription", suspended.ref, "--subscription", subscription.ref,
        "--format", "json", "--no-progress",
    )  # fmt: skip
    out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 3, err
    outcomes = json.loads(out)["outcomes"]
    assert (outcomes["suspended"], outcomes["finalised"]) == (1, 1)


# Allowances ------------------------------------------------------------------------------------------


def granting_twice(run_threads: Any, subscription: Any, bill: Callable[[int], Any]) -> list[Any]:
    """Run two generations without the subscription's lock that both find the allowance due before either grants it."""
    both_have_read = threading.Barrier(2)
    real = allowances.allowance_difference

    def together(*arguments: Any) -> Any:
        difference = real(*arguments)
        assert (len(difference.due), len(difference.cut)) == (1, 0)
        both_have_read.wait(30)
        return difference

    unlocked = mock.patch.object(generator, "try_advisory_lock", no_lock)
    with unlocked, mock.patch.object(due_drafts, "allowance_difference", together):
        results: list[Any] = run_threads(bill, 2)
    return results


def with_allowance(holder: str) -> Any:
    """A subscription that a run grants 500 credits each month, as they pay for usage, and that may keep 1,000."""
    customer = CustomerFactory(holder_id=holder)
    plan = PlanFactory(prices=[metered(credits={"per_unit": "1"})], allowance={"amount": 500, "rollover_cap": 1000})
    return SubscriptionFactory(customer=customer.ref, plan=plan.code)


def test_without_the_lock_an_allowance_is_still_granted_once(committed_db: None, run_threads: Any, new_holder: Any) -> None:
    holder = new_holder()
    subscription = with_allowance(holder)
    results = granting_twice(run_threads, subscription, lambda index: generate(subscription.ref, Options(as_of=at(1, 1))))
    assert sorted(type(one).__name__ for one in results) == ["GenerationResult", "PeriodAlreadyBilled"]
    assert reads.balance(holder).balance == 500


def test_control_without_lock_constraint_and_key_an_allowance_is_granted_twice(
    committed_db: None, run_threads: Any, raw_connection: Connect, new_holder: Any
) -> None:
    """So the lock, the constraint and the key each prevent a second grant."""
    holder = new_holder()
    subscription = with_allowance(holder)
    schema = f"race_{subscription.pk}"
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE SCHEMA {schema}")
    owner.execute(f"CREATE TABLE {schema}.billing_claim (LIKE public.billing_claim INCLUDING IDENTITY INCLUDING DEFAULTS)")

    def bill(index: int) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema}, public")
        return generate(subscription.ref, Options(as_of=at(1, 1)))

    def a_key_of_its_own(head: Any, allowance: Any) -> str:
        return unique("unprotected")

    try:
        with mock.patch.object(allowances, "_key", a_key_of_its_own):
            results = granting_twice(run_threads, subscription, bill)
    finally:
        owner.execute(f"DROP SCHEMA {schema} CASCADE")
    assert [type(one).__name__ for one in results] == ["GenerationResult", "GenerationResult"]
    assert reads.balance(holder).balance == 1000
