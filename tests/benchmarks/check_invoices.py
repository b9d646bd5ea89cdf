"""How many invoices a second `generate_invoices --check` works out again: `python -m tests.benchmarks.check_invoices [INVOICES]`.

Subscriptions with a fee in advance, usage and a change of quantity, billed month by month, then checked from first to last.
"""

import os
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from django.db import connection

from tests.benchmarks.server import ROOT, BenchmarkServer

INVOICES = 10_000
MONTHS = 10
FIRST = datetime(2025, 1, 1, tzinfo=UTC)


def main() -> None:
    """Print how long the check of `count` invoices takes, and which of its laws take longest."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else INVOICES
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-check-invoices")
    try:
        _history(max(wanted // MONTHS, 1))
        _show()
    finally:
        server.close()


def _history(count: int) -> None:
    """Bill subscriptions for months, so that there is something to check."""
    from billing.generator.options import Options
    from billing.generator.run.generate import generate
    from billing.metering import usage
    from billing.orders import customers, plans, subscriptions
    from billing.orders.subscriptions import Wish
    from billing.rating.periods import Interval, IntervalUnit, add_months

    code = f"bench-{uuid.uuid4().hex[:12]}"
    fee = {"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10.00", "tax_rate": "20"}
    calls = {
        "key": "calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.02", "meter": "calls",
        "aggregation": "sum", "tax_rate": "20",
    }  # fmt: skip
    plans.create_plan(code=code, name="Bench", currency="EUR", interval=Interval(IntervalUnit.MONTH), prices=[fee, calls])
    for number in range(count):
        ref = f"{code}-{number}"
        customers.create_customer(ref=ref, name="Ada Lovelace", currency="EUR")
        subscriptions.create_subscription(ref=ref, customer=ref, plan=code, started_at=FIRST, time_zone="Europe/Berlin")
        wish = Wish(quantities={"base": Decimal(2)})
        subscriptions.amend_subscription(ref=ref, effective_at=FIRST + timedelta(days=100), wish=wish)
        days = (FIRST + timedelta(days=10 + 30 * month) for month in range(MONTHS))
        usage.take_in(
            [
                usage.NewEvent(f"{ref}-{day:%Y%m%d}", ref, "calls", value=Decimal(7), occurred_at=day, properties={})
                for day in days
            ],
            allow_future=True,
        )
        for month in range(MONTHS):
            generate(ref=ref, options=Options(as_of=add_months(FIRST, month)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _show() -> None:
    """Check the history, and print what each law took."""
    from billing.auditing import consistency
    from billing.models import Claim, Invoice, Line, UsageEvent

    there = f"{Line.objects.count():,} lines, {Claim.objects.count():,} claims, {UsageEvent.objects.count():,} usage events"
    invoices = Invoice.objects.count()
    took: dict[str, float] = {}
    began = last = time.perf_counter()
    for name, findings in consistency.laws():
        if found := list(findings):
            raise RuntimeError(f"the check of a sound history found {found[:3]}")
        now = time.perf_counter()
        took[name], last = now - last, now
    seconds = last - began
    sys.stdout.write(f"{invoices:,} invoices, {there}: {seconds:.1f} s, {invoices / seconds:,.0f} invoices/s\n")
    for name in sorted(took, key=lambda name: -took[name])[:8]:
        sys.stdout.write(f"{took[name]:8.2f} s {100 * took[name] / seconds:4.0f} % {name}\n")


if __name__ == "__main__":
    main()
