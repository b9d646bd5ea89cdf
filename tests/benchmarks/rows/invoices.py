"""`generate_invoices` with 4 workers, two lines an invoice, against 1 worker; and how long a busy subscription keeps it."""

import io
import os
import uuid
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median

from django.core.management import call_command
from django.db import connection

from billing.documents.invoice_locks import invoice_key
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.generator.run.outcomes import Outcome, bill_one
from billing.models import Invoice, Line
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from ledger.database.locks import lock_number
from tests.benchmarks.measuring import ROUNDS, Result, interleaved, result, seconds
from tests.benchmarks.server import BenchmarkServer

SUBSCRIPTIONS = 1_500
SKIPS = 200
DIGESTED = 100
NO_DIGEST = """
    CREATE OR REPLACE FUNCTION billing_invoice_digest(i billing_invoice) RETURNS bytea
    LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN sha256(''); END $$
"""
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(server: BenchmarkServer) -> list[Result]:
    """A new plan for every run, so that each finds the same work."""
    found = interleaved({"four": lambda: _rate(workers=4), "one": lambda: _rate(workers=1)}, rounds=3)
    return [
        result("invoices", "generate_invoices, 4 workers, 2 lines", "1 worker", found["four"], found["one"], aim=">= 1.6",
               context=f"{median(found['four']):.0f} invoices/s beside {median(found['one']):.0f}"),
        Result("invoices", "generate_invoices, 4 workers", "invoices a second", median(found["four"]), ">= 100", unit="/s",
               rounds=found["four"]),
        _busy_skip(server),
        _digests(server),
    ]  # fmt: skip


def _busy_skip(server: BenchmarkServer) -> Result:
    """Ask for subscriptions whose lock another connection holds; the median of the rounds' means."""
    refs = [f"busy-{uuid.uuid4().hex[:12]}" for _ in range(SKIPS)]
    options = Options(as_of=STARTED_AT)
    with server.superuser() as other, other.transaction():
        for ref in refs:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(invoice_key(ref))])
        if (outcome := bill_one(refs[0], options).outcome) != Outcome.BUSY:
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


def _rate(*, workers: int) -> float:
    """Invoices a second of a run with this many workers."""
    code = f"bench-{uuid.uuid4().hex[:12]}"
    _subscriptions(code, SUBSCRIPTIONS)
    output = io.StringIO()
    took = seconds(
        lambda: call_command(
            "generate_invoices", plan=[code], as_of=STARTED_AT, workers=workers, max_periods=1, no_progress=True, stdout=output
        )
    )
    made = Invoice.objects.filter(subscription_ref__startswith=f"{code}-", number__isnull=False).count()
    lines = Line.objects.filter(invoice__subscription_ref__startswith=f"{code}-").count()
    if (made, lines) != (SUBSCRIPTIONS, 2 * SUBSCRIPTIONS):
        raise RuntimeError(f"{SUBSCRIPTIONS} subscriptions came to {made} invoices with {lines} lines")
    return made / took


def _subscriptions(code: str, count: int) -> list[str]:
    """New subscriptions to a new plan with two prices, each of a new customer."""
    plans.create_plan(
        code=code, name="Bench", currency="EUR", interval=Interval(IntervalUnit.MONTH),
        prices=[
            {"key": key, "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": amount, "tax_rate": "20"}
            for key, amount in (("base", "10.00"), ("support", "4.50"))
        ],
    )  # fmt: skip
    refs = [f"{code}-{number}" for number in range(count)]
    for ref in refs:
        customers.create_customer(ref=ref, name="Ada Lovelace", currency="EUR")
        subscriptions.create_subscription(ref=ref, customer=ref, plan=code, started_at=STARTED_AT)
    return refs
