"""`generate_invoices` with 4 workers, two lines an invoice, against 1 worker."""

import io
import uuid
from datetime import UTC, datetime
from statistics import median

from django.core.management import call_command

from billing import catalogue, customers, subscriptions
from billing.models import Invoice, Line
from billing.periods import Interval, IntervalUnit
from tests.benchmarks.ground import Ground
from tests.benchmarks.measuring import Result, interleaved, result, seconds

SUBSCRIPTIONS = 300
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(ground: Ground) -> list[Result]:
    """A plan of its own for every run, so that each finds the same work."""
    found = interleaved({"four": lambda: _rate(workers=4), "one": lambda: _rate(workers=1)}, rounds=3)
    return [
        result("invoices", "generate_invoices, 4 workers, 2 lines", "1 worker", found["four"], found["one"], aim=">= 1.6",
               context=f"{median(found['four']):.0f} invoices/s beside {median(found['one']):.0f}"),
        Result("invoices", "generate_invoices, 4 workers", "invoices a second", median(found["four"]), ">= 100", unit="/s",
               rounds=found["four"]),
    ]  # fmt: skip


def _rate(*, workers: int) -> float:
    code = f"bench-{uuid.uuid4().hex[:12]}"
    catalogue.create_plan(
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
