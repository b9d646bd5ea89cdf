"""`generate_invoices` with 4 workers, two lines an invoice, against 1 worker; and how long a busy subscription keeps it."""

import io
import uuid
from datetime import UTC, datetime
from statistics import median

from django.core.management import call_command

from billing.documents.invoices import invoice_key
from billing.generator.generate import Options
from billing.generator.workers import OutcomeKind, bill_one
from billing.models import Invoice, Line
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from ledger.database.locks import lock_number
from tests.benchmarks.ground import Ground
from tests.benchmarks.measuring import ROUNDS, Result, interleaved, result, seconds

SUBSCRIPTIONS = 1_500
SKIPS = 200
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(ground: Ground) -> list[Result]:
    """A plan of its own for every run, so that each finds the same work."""
    found = interleaved({"four": lambda: _rate(workers=4), "one": lambda: _rate(workers=1)}, rounds=3)
    return [
        result("invoices", "generate_invoices, 4 workers, 2 lines", "1 worker", found["four"], found["one"], aim=">= 1.6",
               context=f"{median(found['four']):.0f} invoices/s beside {median(found['one']):.0f}"),
        Result("invoices", "generate_invoices, 4 workers", "invoices a second", median(found["four"]), ">= 100", unit="/s",
               rounds=found["four"]),
        _busy_skip(ground),
    ]  # fmt: skip


def _busy_skip(ground: Ground) -> Result:
    """Ask for subscriptions whose lock another connection holds; the median of the rounds' means."""
    refs = [f"busy-{uuid.uuid4().hex[:12]}" for _ in range(SKIPS)]
    options = Options(as_of=STARTED_AT)
    with ground.superuser() as other, other.transaction():
        for ref in refs:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(invoice_key(ref))])
        if (outcome := bill_one(refs[0], options).outcome) != OutcomeKind.BUSY:
            raise RuntimeError(f"a subscription whose lock is held was {outcome}")
        rounds = [seconds(lambda: [bill_one(ref, options) for ref in refs]) / SKIPS * 1000 for _ in range(ROUNDS)]
    return Result(
        "invoices", "a subscription that is busy", "until it is skipped", median(rounds), "<= 5", unit="ms", rounds=rounds
    )


def _rate(*, workers: int) -> float:
    code = f"bench-{uuid.uuid4().hex[:12]}"
    plans.create_plan(
        code=code, name="Bench", currency="EUR", interval=Interval(IntervalUnit.MONTH),
        prices=[
            {"key": key, "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": amount, "tax_rate": "20"}
            for key, amount in (("base", "10.00"), ("support", "4.50"))
        ],
    )  # fmt: skip
    for number in range(SUBSCRIPTIONS):
        customers.create_customer(ref=f"{code}-{number}", name="Ada Lovelace", currency="EUR")
        subscriptions.create_subscription(ref=f"{code}-{number}", customer=f"{code}-{number}", plan=code, started_at=STARTED_AT)
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
