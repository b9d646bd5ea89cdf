"""Where the calls and the CPU of one invoice go: `python -m tests.benchmarks.where_invoice`.

Subscriptions with a year behind them, a fee in advance and usage, billed for the next month by one process. Calls do not depend
on what else the machine does; CPU is the least of several rounds, of this process and of its server process.
"""

import cProfile
import os
import pstats
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from django.db import connection

from tests.benchmarks.measuring import cpu_of_process_us
from tests.benchmarks.server import ROOT, BenchmarkServer

SUBSCRIPTIONS = 40
ROUNDS = 5
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
LAST = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Print calls and CPU of one invoice, and the modules that have most of them."""
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-where-invoice")
    try:
        bill = _history()
        months = iter(range(1, 2 + ROUNDS + 1))
        bill(next(months))
        profile = cProfile.Profile()
        profile.runcall(bill, next(months))
        _show(pstats.Stats(profile))
        spent = [_cpu_us(bill, month) for month in months]
        for where, name in enumerate(("the process", "its server process")):
            least = min(each[where] for each in spent)
            sys.stdout.write(f"{least / SUBSCRIPTIONS:10.0f} µs of CPU of {name} for one invoice\n")
    finally:
        server.close()


def _history() -> Callable[[int], None]:
    """Subscriptions that are billed up to `LAST`; returns what bills the month that begins the given number of months later."""
    from billing.generator.options import Options
    from billing.generator.run.generate import generate
    from billing.metering import usage
    from billing.orders import customers, plans, subscriptions
    from billing.rating.periods import Interval, IntervalUnit, add_months

    # A year of usage is recorded here within a minute; in a year, events do not look as if they could still be in flight.
    usage.LONGEST_TRANSACTION = timedelta(0)
    code = f"bench-{uuid.uuid4().hex[:12]}"
    fee = {"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10.00", "tax_rate": "20"}
    calls = {
        "key": "calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.02", "meter": "calls",
        "aggregation": "sum", "tax_rate": "20",
    }  # fmt: skip
    plans.create_plan(code=code, name="Bench", currency="EUR", interval=Interval(IntervalUnit.MONTH), prices=[fee, calls])
    refs = [f"{code}-{number}" for number in range(SUBSCRIPTIONS)]
    for ref in refs:
        customers.create_customer(ref=ref, name="Ada Lovelace", currency="EUR")
        subscriptions.create_subscription(ref=ref, customer=ref, plan=code, started_at=FIRST, time_zone="Europe/Berlin")
        days = (FIRST + timedelta(days=10 + 30 * month) for month in range(12 + ROUNDS + 2))
        usage.take_in(
            [
                usage.NewEvent(f"{ref}-{day:%Y%m%d}", ref, "calls", value=Decimal(7), occurred_at=day, properties={})
                for day in days
            ],
            allow_future=True,
        )
        for month in range(13):
            generate(ref=ref, options=Options(as_of=add_months(FIRST, month)))

    def bill(month: int) -> None:
        for ref in refs:
            if len(generate(ref=ref, options=Options(as_of=add_months(LAST, month))).invoices) != 1:
                raise RuntimeError(f"{ref} has no invoice for month {month}")

    return bill


def _cpu_us(bill: Callable[[int], None], month: int) -> tuple[float, float]:
    """CPU of this process and of its server process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    began, served = time.process_time(), cpu_of_process_us(pid)
    bill(month)
    return (time.process_time() - began) * 1e6, cpu_of_process_us(pid) - served


def _show(stats: pstats.Stats) -> None:
    """Print the calls of one invoice by module."""
    calls: Counter[str] = Counter()
    for (path, _, name), (_, count, *_) in stats.stats.items():  # type: ignore[attr-defined]
        module = path if path == "~" else "/".join(Path(path).parts[-2:])
        calls[f"{module} {name}" if path == "~" else module] += count
    total = sum(calls.values())
    sys.stdout.write(f"{total / SUBSCRIPTIONS:10.0f} calls for one invoice, of which\n")
    for module, count in calls.most_common(15):
        sys.stdout.write(f"{count / SUBSCRIPTIONS:10.0f} {100 * count / total:4.0f} % {module}\n")


if __name__ == "__main__":
    main()
