"""A signal ends a run of generate_invoices after its current subscription; the exit code tells the signal."""

import json
import signal
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from billing.models import Invoice, Run, RunResult
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, recurring
from tests.concurrency.test_invoices_races import numbers_are_gapless, start_generate_invoices
from tests.nodes import pause

Connect = Callable[..., psycopg.Connection[Any]]

# The sessions of this database that wait for a lock of another session.
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "workers", "count"),
    [(signal.SIGINT, 130, 1, 3), (signal.SIGTERM, 143, 1, 3), (signal.SIGINT, 130, 2, 100)],
)
def test_a_signal_ends_a_run_after_the_current_subscription(
    committed_db: None, raw_connection: Connect, number: signal.Signals, code: int, workers: int, count: int
) -> None:
    plan, customer = PlanFactory(prices=[recurring()]).code, CustomerFactory().ref
    for _ in range(count):
        SubscriptionFactory(plan=plan, customer=customer)
    run_id = uuid.uuid4()
    holder, observer = raw_connection("owner"), raw_connection("owner", autocommit=True)
    # Each worker is stopped at the last step of its first subscription: somebody holds the row of the series.
    holder.execute("SET idle_in_transaction_session_timeout = 0")
    holder.execute("INSERT INTO billing_numberseries VALUES ('INV', 0) ON CONFLICT DO NOTHING")
    holder.commit()
    holder.execute("SELECT last_value FROM billing_numberseries WHERE name = 'INV' FOR UPDATE")
    process = start_generate_invoices(
        "--as-of", "2026-01-01", "--plan", plan, "--workers", str(workers), "--run-id", str(run_id), "--format", "json",
        "--no-progress", PGOPTIONS="-c lock_timeout=0 -c statement_timeout=0",
    )  # fmt: skip
    try:
        while observer.execute(WAITING).fetchone() != (workers,) and process.poll() is None:
            pause()
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
    finally:
        holder.rollback()
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    summary = json.loads(out)
    billed = Invoice.objects.filter(lines__price__plan__code=plan).count()
    assert billed == summary["outcomes"]["finalised"]
    # Several workers go on until the run, which hears the signal, has told them: a moment, not the whole list.
    assert billed == 1 if workers == 1 else workers <= billed < count
    run = Run.objects.get(pk=run_id)
    assert (run.exit_code, run.summary["exit_code"], run.summary["invoices"]) == (code, code, billed)
    assert run.finished_at is not None
    assert RunResult.objects.filter(run_id=run_id, outcome="finalised").count() == billed
    assert numbers_are_gapless(observer)
    # And the next run does the rest.
    rest = start_generate_invoices("--as-of", "2026-01-01", "--plan", plan, "--format", "json", "--no-progress")
    out, err = rest.communicate(timeout=60)
    assert (rest.returncode, json.loads(out)["outcomes"]["finalised"]) == (0, count - billed), err
