"""`generate_invoices` with 4 workers, two lines an invoice, against 1 worker; and how long a busy subscription keeps it."""

import io
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from statistics import mean, median

import psycopg
from django.core.management import call_command
from django.db import connection

from billing.documents.invoice_locks import invoice_key
from billing.documents.sellers import NewSeller, record
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.generator.run.outcomes import RunOutcome, bill_one
from billing.models import Invoice, Line
from billing.models.invoices import DEFAULT_SELLER
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from ledger.database.locks import lock_number
from ledger.records import shape_of
from tests.benchmarks.measuring import ROUNDS, Result, interleaved, result, seconds
from tests.benchmarks.server import BenchmarkServer

SUBSCRIPTIONS = int(os.environ.get("BENCH_SUBSCRIPTIONS", "1500"))
SKIPS = 200
DIGESTED = 100
NO_DIGEST = """
    CREATE OR REPLACE FUNCTION billing_invoice_digest(i billing_invoice) RETURNS bytea
    LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN sha256(''); END $$
"""
WORKERS = 4
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(server: BenchmarkServer) -> list[Result]:
    """A new plan for every run, so that each finds the same work."""
    found = interleaved(
        {
            "four": lambda: _rate(workers=4),
            "one": lambda: _rate(workers=1),
            "series": lambda: _rate(workers=4, series=4),
            "together": lambda: _rate(workers=4, customers_of=1),
        },
        rounds=3,
    )
    return [
        result("invoices", "generate_invoices, 4 workers, 2 lines", "1 worker", found["four"], found["one"], aim=">= 1.6",
               context=f"{median(found['four']):.0f} invoices/s beside {median(found['one']):.0f}"),
        Result("invoices", "generate_invoices, 4 workers", "invoices a second", median(found["four"]), ">= 100", unit="/s",
               rounds=found["four"]),
        result("invoices", "generate_invoices, 4 workers, one number series", "four series", found["four"], found["series"],
               context=f"{median(found['four']):.0f} invoices/s beside {median(found['series']):.0f}"),
        result("invoices", "generate_invoices, 4 workers, one customer", "a customer each", found["together"], found["four"],
               context=f"{median(found['together']):.0f} invoices/s beside {median(found['four']):.0f}"),
        _waits(server),
        _busy_skip(server),
        _digests(server),
    ]  # fmt: skip


def _waits(server: BenchmarkServer) -> Result:
    """What share of the time of 4 workers with one series waits for a lock, seen each few milliseconds.

    The row of the series is the only lock that two workers want: so this is the most that blocks of numbers could save.
    """
    code = f"bench-{uuid.uuid4().hex[:12]}"
    _subscriptions(code, SUBSCRIPTIONS)
    is_done = threading.Event()
    with server.superuser() as looking, ThreadPoolExecutor(1) as other:
        waiting = other.submit(_waiting, looking, is_done)
        _generate(code, workers=WORKERS)
        is_done.set()
    return Result(
        "invoices", "generate_invoices, 4 workers, time that waits for a lock", "all time", mean(waiting.result()) / WORKERS,
        context=f"looked {len(waiting.result())} times",
    )  # fmt: skip


def _waiting(looking: psycopg.Connection, is_done: threading.Event) -> list[int]:
    """How many sessions wait for a lock, at each look."""
    seen = []
    while not is_done.wait(0.003):
        seen.extend(count for (count,) in looking.execute(WAITING).fetchall())
    return seen


def _busy_skip(server: BenchmarkServer) -> Result:
    """Ask for subscriptions whose lock another connection holds; the median of the rounds' means."""
    refs = [f"busy-{uuid.uuid4().hex[:12]}" for _ in range(SKIPS)]
    options = Options(as_of=STARTED_AT)
    with server.superuser() as other, other.transaction():
        for ref in refs:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(invoice_key(ref))])
        if (outcome := bill_one(refs[0], options).outcome) != RunOutcome.BUSY:
            raise RuntimeError(f"a subscription whose lock is held was {outcome}")
        rounds = [seconds(lambda: [bill_one(ref, options) for ref in refs]) / SKIPS * 1000 for _ in range(ROUNDS)]
    return Result(
        "invoices", "a subscription that is busy", "until it is skipped", median(rounds), "<= 5", unit="ms", rounds=rounds
    )


def _digests(server: BenchmarkServer) -> Result:
    """Processor time of the server's session for an invoice, with the digest as it is and with one that looks at nothing."""
    with server.superuser() as owner:
        [(definition,)] = owner.execute("SELECT pg_get_functiondef('billing_invoice_digest'::regproc)").fetchall()
    refs = iter(_subscriptions(f"digests-{uuid.uuid4().hex[:12]}", 2 * ROUNDS * DIGESTED))

    def cost_ms(function: str) -> float:
        with server.superuser() as owner:
            owner.execute(function)
        before = _server_s()
        for ref in islice(refs, DIGESTED):
            generate(ref=ref, options=Options(as_of=STARTED_AT))
        return (_server_s() - before) / DIGESTED * 1000

    try:
        found = interleaved({"digests": lambda: cost_ms(definition), "none": lambda: cost_ms(NO_DIGEST)})
    finally:
        with server.superuser() as owner:
            owner.execute(definition)
    return result(
        "invoices", "server CPU of an invoice, no digests", "with digests", found["none"], found["digests"],
        aim=">= 0.9", context=f"{median(found['none']):.2f} ms beside {median(found['digests']):.2f}",
    )  # fmt: skip


def _server_s() -> float:
    """Processor time of the session behind Django's connection so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rate(*, workers: int, series: int = 1, customers_of: int | None = None) -> float:
    """Invoices a second of a run with this many workers.

    Args:
        series: how many sellers there are, each with a series of numbers.
        customers_of: how many customers there are; None: one for each subscription.
    """
    code = f"bench-{uuid.uuid4().hex[:12]}"
    _subscriptions(code, SUBSCRIPTIONS, series=series, customers_of=customers_of)
    took = seconds(lambda: _generate(code, workers=workers))
    made = Invoice.objects.filter(subscription_ref__startswith=f"{code}-", number__isnull=False).count()
    lines = Line.objects.filter(invoice__subscription_ref__startswith=f"{code}-").count()
    if (made, lines) != (SUBSCRIPTIONS, 2 * SUBSCRIPTIONS):
        raise RuntimeError(f"{SUBSCRIPTIONS} subscriptions came to {made} invoices with {lines} lines")
    return made / took


def _generate(code: str, *, workers: int) -> None:
    call_command(
        "generate_invoices", plan=[code], as_of=STARTED_AT, workers=workers, max_periods=1, no_progress=True, stdout=io.StringIO()
    )


def _subscriptions(code: str, count: int, *, series: int = 1, customers_of: int | None = None) -> list[str]:
    """New subscriptions to a new plan with two prices, each of a new customer, or of a few."""
    plans.create_plan(
        code=code, name="Bench", currency="EUR", interval=Interval(IntervalUnit.MONTH),
        prices=[
            {"key": key, "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": amount, "tax_rate": "20"}
            for key, amount in (("base", "10.00"), ("support", "4.50"))
        ],
    )  # fmt: skip
    refs = [f"{code}-{number}" for number in range(count)]
    sellers = [DEFAULT_SELLER] if series == 1 else [_seller(f"seller-{number}") for number in range(series)]
    buyers = refs[:customers_of]
    for ref, seller in zip(buyers, cycle(sellers), strict=False):
        customers.create_customer(ref=ref, name="Ada Lovelace", currency="EUR", seller=seller)
    for ref, buyer in zip(refs, cycle(buyers), strict=False):
        subscriptions.create_subscription(ref=ref, customer=buyer, plan=code, started_at=STARTED_AT)
    return refs


def _seller(ref: str) -> str:
    """A seller with a series of its own."""
    details = {"name": ref, "line1": "Way 1", "city": "Bern", "country": "CH", "invoice_prefix": ref.upper(),
               "credit_note_prefix": f"{ref.upper()}-CN"}  # fmt: skip
    record(shape_of(NewSeller).make(details | {"ref": ref}), actor="bench")
    return ref
