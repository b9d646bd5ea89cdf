"""Thousands of subscriptions and many workers: every invoice once, every number once, also after kills and rollbacks."""

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection

from billing.documents import finalisation
from billing.generator.options import Options
from billing.generator.run import runs, workers
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.outcomes import RunOutcome, SubscriptionResult, bill_one
from billing.generator.run.steps import InvoiceSummary
from billing.generator.run.stop_flags import SharedStopFlag, StopFlag
from billing.models import Claim, Invoice, Line, NumberSeries
from ledger.database.locks import lock_number
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, use
from tests.concurrency.test_invoices_races import start_generate_invoices

Connect = Callable[..., psycopg.Connection[Any]]
WORKERS = 8
LARGE = [pytest.mark.slow, pytest.mark.deployment]
"""A run over this number of subscriptions is about its size."""
FEB_1 = at(2, 1)

# Copies of one subscription that was made through the services, with its items, versions, amendment and usage.
COPY = """
    WITH copied AS (
        INSERT INTO billing_subscription (ref, customer_id, started_at, anchor_at, time_zone, trial_end)
        SELECT ref || '-' || n, customer_id, started_at, anchor_at, time_zone, trial_end
        FROM billing_subscription, generate_series(2, %(count)s) AS n WHERE id = %(id)s
        RETURNING id, ref
    ), items AS (
        INSERT INTO billing_item (subscription_id, price_key)
        SELECT copied.id, item.price_key FROM copied, billing_item AS item WHERE item.subscription_id = %(id)s
        RETURNING id, subscription_id, price_key
    ), versions AS (
        INSERT INTO billing_itemversion (subscription_id, item_id, plan_id, price_id, quantity, starts_at, ends_at,
            is_termination, skips_unused, amendment)
        SELECT items.subscription_id, items.id, v.plan_id, v.price_id, v.quantity, v.starts_at, v.ends_at, v.is_termination,
            v.skips_unused, v.amendment
        FROM items
        JOIN billing_item AS item ON item.subscription_id = %(id)s AND item.price_key = items.price_key
        JOIN billing_itemversion AS v ON v.item_id = item.id AND v.superseded_at IS NULL
    ), amendments AS (
        INSERT INTO billing_amendment (subscription_id, sequence, effective_at, change, actor)
        SELECT copied.id, a.sequence, a.effective_at, a.change, a.actor
        FROM copied, billing_amendment AS a WHERE a.subscription_id = %(id)s
    )
    INSERT INTO billing_usageevent (subscription_id, meter, occurred_at, idempotency_key, value, properties)
    SELECT copied.id, e.meter, e.occurred_at, e.idempotency_key || copied.ref, e.value, e.properties
    FROM copied, billing_usageevent AS e WHERE e.subscription_id = %(id)s
"""


def due_subscriptions(count: int) -> str:
    """Make `count` subscriptions that owe 10.00 and ten calls at 0.02 on 1 February; returns the code of their plan."""
    plan = PlanFactory(prices=[recurring(timing="arrears"), metered()]).code
    subscription = SubscriptionFactory(plan=plan)
    use(subscription, "10", at(1, 5))
    with connection.cursor() as cursor:
        cursor.execute(COPY, {"id": subscription.pk, "count": count})
        cursor.execute("ANALYZE billing_subscription, billing_item, billing_itemversion, billing_amendment, billing_usageevent")
    return plan


def refs_of(plan: str) -> list[str]:
    """All subscriptions to a plan."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT s.ref FROM billing_subscription AS s JOIN billing_itemversion AS v ON v.subscription_id = s.id"
            " JOIN billing_plan AS p ON p.id = v.plan_id WHERE p.code = %s",
            [plan],
        )
        return [ref for (ref,) in cursor.fetchall()]


def last_number() -> int:
    """The last number of the series of invoices; 0 where it has no number yet."""
    return NumberSeries.objects.filter(name="INV").values_list("last_value", flat=True).first() or 0


def run_command(plan: str, workers: int, *more: str, code: int = 0) -> dict[str, Any]:
    """A run as it is started by an operator, and its summary."""
    arguments = ("--as-of", "2026-02-01", "--plan", plan, "--workers", str(workers), "--format", "json", "--no-progress")
    process = start_generate_invoices(*arguments, *more)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    summary: dict[str, Any] = json.loads(out)
    return summary


def assert_each_billed_once(plan: str, count: int, first: int) -> None:
    """One invoice of 10.20 with two lines each, and the numbers `first` .. `first + count - 1`, each once."""
    invoices = Invoice.objects.filter(subscription_ref__in=refs_of(plan))
    assert invoices.count() == invoices.values("subscription_ref").distinct().count() == count
    assert set(invoices.values_list("total_minor", "state")) == {(1020, "open")}
    assert Line.objects.filter(invoice__in=invoices).count() == 2 * count
    assert Claim.objects.filter(invoice_id__in=invoices.values("id"), released_at=None).count() == 2 * count
    assert sorted(invoices.values_list("series_value", flat=True)) == list(range(first, first + count))
    assert last_number() == first + count - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "count"),
    [(WORKERS, 120), *(pytest.param(each, 3_000, marks=LARGE) for each in (1, 2, 4, 8))],
)
def test_every_subscription_is_billed_once_and_numbered_without_a_hole(committed_db: None, workers: int, count: int) -> None:
    plan, first = due_subscriptions(count), last_number() + 1
    summary = run_command(plan, workers)
    assert (summary["invoices"], summary["lines"], summary["workers_lost"]) == (count, 2 * count, 0)
    assert summary["money"] == {"EUR": {"invoices": count, "total_minor": 1020 * count, "credits_applied_minor": 0}}
    assert_each_billed_once(plan, count, first)
    assert run_command(plan, workers)["invoices"] == 0
    assert last_number() == first + count - 1


# Rolled back after the number was taken --------------------------------------------------------------


class Undone(Exception):
    """Raised to roll a finalisation back after it has taken its number."""


class EveryFifth:
    """Undoes every fifth finalisation of a process, after its number was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql == finalisation.FINALIZE.sql:
            self.taken += 1
            if self.taken % 5 == 0:
                raise Undone
        return result


def run_here(plan: str, workers: int) -> list[SubscriptionResult]:
    """A run whose worker processes are forked from this one, with what is wrapped around its connection."""
    done: list[SubscriptionResult] = []
    job = runs.job_for(Options(as_of=FEB_1), plans=(plan,), workers=workers)
    runs.run(job, on_done=done.append, on_tick=lambda summary: None, stop=lambda: False)
    return done


@pytest.mark.parametrize(("workers", "count"), [(4, 100), pytest.param(WORKERS, 3_000, marks=LARGE)])
def test_no_number_is_lost_although_every_fifth_finalisation_is_rolled_back(committed_db: None, workers: int, count: int) -> None:
    plan, first = due_subscriptions(count), last_number() + 1
    with connection.execute_wrapper(EveryFifth()):
        outcomes = run_here(plan, workers)
    failed = [one for one in outcomes if one.outcome == RunOutcome.FAILED]
    assert {one.detail for one in failed} == {"Undone: "}
    # Each process undoes its own fifth, tenth and so on.
    assert count // 5 - workers <= len(failed) <= count // 5
    assert Invoice.objects.filter(subscription_ref__in=[one.subscription for one in failed]).count() == 0
    assert last_number() == first + count - len(failed) - 1
    run_here(plan, workers)
    assert_each_billed_once(plan, count, first)


def test_the_control_a_sequence_would_have_left_holes(committed_db: None, raw_connection: Connect) -> None:
    """What numbers by a sequence would look like: one that was taken in a transaction that came to nothing is gone."""
    session = raw_connection()
    session.execute("CREATE TEMPORARY SEQUENCE numbers")
    session.commit()
    taken = []
    for position in range(1, 11):
        taken += session.execute("SELECT nextval('numbers')").fetchone()
        if position % 5 == 0:
            session.rollback()
            taken.pop()
        else:
            session.commit()
    assert taken == [1, 2, 3, 4, 6, 7, 8, 9]


# Killed ----------------------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_invoices(plan: str, wanted: int, process: subprocess.Popen[str]) -> None:
    """Return when a run has made the wanted number of invoices, or fail when it ended before."""
    while Invoice.objects.filter(lines__price__plan__code=plan).distinct().count() < wanted:
        assert process.poll() is None, process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "count"), [(4, 300), pytest.param(WORKERS, 3_000, marks=LARGE)])
def test_a_worker_killed_in_the_middle_leaves_no_invoice_no_number_and_no_lock(
    committed_db: None, raw_connection: Connect, workers: int, count: int
) -> None:
    plan, first = due_subscriptions(count), last_number() + 1
    arguments = ("--as-of", "2026-02-01", "--plan", plan, "--workers", str(workers), "--format", "json", "--no-progress")
    process = start_generate_invoices(*arguments)
    wait_for_invoices(plan, count // 10, process)
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    # Its shard of the list is done all the same; that it was lost is said.
    assert process.returncode == 3, err
    assert json.loads(out)["workers_lost"] == 1
    assert_each_billed_once(plan, count, first)
    numbers = [lock_number(f"invoice_gen/{ref}") for ref in refs_of(plan)]
    held = raw_connection(autocommit=True).execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32) | objid::bigint = ANY(%s)",
        [numbers],
    )
    assert held.fetchone() == (0,)


def test_a_worker_killed_in_the_middle_of_a_word_does_not_silence_the_others(committed_db: None) -> None:
    plan, first = due_subscriptions(60), last_number() + 1
    here, real = os.getpid(), runs.work

    def say_half_and_die(sender: Any, said: Any, write: Any = None) -> None:
        os.write(sender.fileno(), bytes(said)[: len(said) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    def work(job: workers.Work, stop_flag: StopFlag, report: Callable[[SubscriptionResult | str], None], shard: int = 0) -> None:
        if shard == 0 and os.getpid() != here:
            multiprocessing.connection.Connection._send = say_half_and_die  # type: ignore[attr-defined]
        real(job, stop_flag, report, shard)

    def give_up(number: int, frame: Any) -> None:
        raise AssertionError("the run waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        with mock.patch.object(runs, "work", work):
            run_here(plan, 3)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert_each_billed_once(plan, 60, first)


def test_a_worker_killed_while_it_counts_the_limit_does_not_stop_the_others(committed_db: None) -> None:
    """A worker that is killed at the counter leaves it to the next."""
    stop_flag = SharedStopFlag(multiprocessing.get_context("fork"), 2)

    def take_and_die() -> None:
        with stop_flag._my_turn():
            os.kill(os.getpid(), signal.SIGKILL)

    killed = multiprocessing.get_context("fork").Process(target=take_and_die)
    killed.start()
    killed.join(30)
    assert killed.exitcode == -signal.SIGKILL
    assert [stop_flag.reserve(), stop_flag.reserve(), stop_flag.reserve()] == [True, True, False]
    stop_flag.close()


@pytest.mark.slow
def test_a_command_killed_with_all_its_workers_is_taken_up_by_the_next(committed_db: None) -> None:
    count, before_the_kill = 200, 20
    plan, first = due_subscriptions(count), last_number() + 1
    process = start_generate_invoices("--as-of", "2026-02-01", "--plan", plan, "--workers", "4", "--no-progress")
    wait_for_invoices(plan, before_the_kill, process)
    for pid in [*children_of(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    made = last_number() - first + 1
    assert made == Invoice.objects.filter(subscription_ref__in=refs_of(plan)).count()
    run_command(plan, workers=2)
    assert_each_billed_once(plan, count, first)


# What it costs ---------------------------------------------------------------------------------------


class Statements:
    """Counts what is sent to the server."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.sent.append(sql)
        return execute(sql, params, many, context)


def test_a_busy_subscription_is_skipped_by_one_statement(committed_db: None, raw_connection: Connect) -> None:
    subscription = SubscriptionFactory()
    other, statements = raw_connection(), Statements()
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(f"invoice_gen/{subscription.ref}")])
    with connection.execute_wrapper(statements):
        done = bill_one(subscription.ref, Options(as_of=FEB_1))
    assert done.outcome == RunOutcome.BUSY
    assert [sql.split(" /*")[0] for sql in statements.sent] == ["SELECT pg_try_advisory_xact_lock(%s)"]


@pytest.mark.slow
@pytest.mark.deployment
def test_a_busy_subscription_is_skipped_in_less_than_5_ms_of_cpu(committed_db: None, raw_connection: Connect) -> None:
    subscription = SubscriptionFactory()
    other = raw_connection()
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(f"invoice_gen/{subscription.ref}")])
    took_ms = []
    for _ in range(200):
        began_s = time.process_time()
        assert bill_one(subscription.ref, Options(as_of=FEB_1)).outcome == RunOutcome.BUSY
        took_ms.append((time.process_time() - began_s) * 1000)
    print(f"busy skip: median {statistics.median(took_ms):.2f} ms, p95 {sorted(took_ms)[189]:.2f} ms")
    assert statistics.median(took_ms) < 5


def walked(plan: str, as_of: datetime) -> tuple[int, int]:
    """How many refs the list gives, and the most memory that it took while it did, in bytes."""
    tracemalloc.start()
    try:
        count = sum(1 for _ in DueWalk(DueFilter(as_of=as_of, plans=(plan,))))
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_the_list_of_what_is_due_takes_no_more_memory_for_more_subscriptions(db: None) -> None:
    few, many = due_subscriptions(1_000), due_subscriptions(5_000)
    walked(few, FEB_1)
    (few_count, few_bytes), (many_count, many_bytes) = walked(few, FEB_1), walked(many, FEB_1)
    assert (few_count, many_count) == (1_000, 5_000)
    # A chunk, never the list: 4,000 more refs would be 250 kB and more.
    assert many_bytes - few_bytes < 50_000


@pytest.mark.slow
@pytest.mark.deployment
def test_a_run_over_3000_subscriptions_keeps_only_counts_in_memory(committed_db: None) -> None:
    """What a run remembers of a subscription is a duration and at most an outcome on its way to the database."""
    plan = due_subscriptions(3_000)
    job = runs.job_for(Options(as_of=FEB_1), plans=(plan,))
    made = InvoiceSummary(1, "INV-000001", "EUR", total_minor=1020, credits_applied_minor=0, amount_due_minor=1020, lines=2)

    def no_work(ref: str, options: Options, act: Any) -> SubscriptionResult:
        return SubscriptionResult(ref, RunOutcome.FINALISED, duration_ms=1.0, invoices=(made,))

    tracemalloc.start()
    try:
        with mock.patch.object(workers, "bill_one", no_work):
            summary = runs.run(job, on_done=lambda done: None, on_tick=lambda summary: None, stop=lambda: False)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary.invoices == 3_000
    assert peak_bytes < 2_000_000


@pytest.mark.slow
def test_a_missing_subscription_in_the_list_of_many_is_named_and_nothing_is_billed(committed_db: None) -> None:
    """The control for the counts above: what is not there is not silently left out."""
    customer = CustomerFactory().ref
    refs = [SubscriptionFactory(customer=customer).ref for _ in range(3)]
    wanted = (argument for ref in [*refs, "no-such-sub"] for argument in ("--subscription", ref))
    process = start_generate_invoices(
        "--as-of", "2026-02-01", *wanted, "--workers", "2", "--format", "jsonl", "--no-progress"
    )  # fmt: skip
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, ""), err
    assert "--subscription: unknown subscription no-such-sub" in err
    assert not Invoice.objects.filter(subscription_ref__in=refs).exists()
