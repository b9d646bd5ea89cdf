"""What an invoice costs among many others: `python -m tests.benchmarks.many_subscriptions [MANY] [FEW]`.

As many subscriptions as are asked for, of which one customer has 1,000 and each other customer one; two lines each, billed by one
run with 4 workers, and FEW of a second plan before and after it, beside all the others. Prints invoices a second and the CPU of
one invoice, in the workers and in the server: CPU says whether the cost grows, even when the machine has other work.
"""

import io
import multiprocessing
import os
import resource
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.server import ROOT, BenchmarkServer

MANY, FEW = 100_000, 1_000
OF_ONE_CUSTOMER = 1_000
WORKERS = 4
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cost:
    """Of one invoice: seconds of the clock, and µs of CPU of the workers and of the server's processes."""

    seconds: float
    workers_us: float
    server_us: float


def main() -> None:
    """Make the subscriptions, bill them, and print what one invoice cost among few and among many."""
    many, few = (int(sys.argv[place]) if len(sys.argv) > place else usual for place, usual in ((1, MANY), (2, FEW)))
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-many")
    try:
        before = _bill(server, _ordered(few), few)
        _tell(f"{few:,} subscriptions", before)
        began = time.monotonic()
        plan = _ordered(many, of_one=min(OF_ONE_CUSTOMER, many))
        sys.stdout.write(f"{many:,} subscriptions ordered in {time.monotonic() - began:,.0f} s; load {os.getloadavg()[0]:.1f}\n")
        server.settle()
        among_many = _bill(server, plan, many)
        _tell(f"{many:,} subscriptions, {min(OF_ONE_CUSTOMER, many):,} of one customer", among_many)
        after = _bill(server, _ordered(few), few)
        _tell(f"{few:,} subscriptions beside them", after)
        least = min((before, after), key=lambda cost: cost.workers_us + cost.server_us)
        ratio = (among_many.workers_us + among_many.server_us) / (least.workers_us + least.server_us)
        sys.stdout.write(f"CPU of an invoice among many / among few: {ratio:.2f}\n")
    finally:
        server.close()


def _ordered(count: int, *, of_one: int = 0) -> str:
    """Order subscriptions to a new plan; return the plan's code.

    Args:
        of_one: how many of them one customer has.
    """
    from billing.orders import customers, plans
    from billing.rating.periods import Interval, IntervalUnit

    code = f"many-{uuid.uuid4().hex[:12]}"
    plans.create_plan(
        code=code, name="Many", currency="EUR", interval=Interval(IntervalUnit.MONTH),
        prices=[
            {"key": key, "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": amount, "tax_rate": "20"}
            for key, amount in (("base", "10.00"), ("support", "4.50"))
        ],
    )  # fmt: skip
    customers.create_customer(ref=code, name="Ada Lovelace", currency="EUR")
    _close_connections()
    processes = os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        shares = [(code, range(process, count, processes), of_one) for process in range(processes)]
        pool.starmap(_order, shares)
    return code


def _order(code: str, numbers: Sequence[int], of_one: int) -> None:
    from billing.orders import customers, subscriptions

    for number in numbers:
        ref, buyer = f"{code}-{number}", code
        if number >= of_one:
            buyer = ref
            customers.create_customer(ref=ref, name="Ada Lovelace", currency="EUR")
        subscriptions.create_subscription(ref=ref, customer=buyer, plan=code, started_at=STARTED_AT)
    _close_connections()


def _close_connections() -> None:
    """Processes must not share a connection."""
    from django.db import connections

    connections.close_all()


def _bill(server: BenchmarkServer, plan: str, count: int) -> Cost:
    """Bill all subscriptions of a plan in one run."""
    from django.core.management import call_command

    from billing.models import Invoice

    began, workers_us, server_us = time.monotonic(), _workers_us(), _server_us(server)
    call_command(
        "generate_invoices", plan=[plan], as_of=STARTED_AT, workers=WORKERS, max_periods=1, no_progress=True, stdout=io.StringIO()
    )
    took = time.monotonic() - began
    made = Invoice.objects.filter(subscription_ref__startswith=f"{plan}-", number__isnull=False).count()
    if made != count:
        raise RuntimeError(f"{count} subscriptions came to {made} invoices")
    return Cost(took / count, (_workers_us() - workers_us) / count, (_server_us(server) - server_us) / count)


def _workers_us() -> float:
    """CPU of this process and of the workers that have ended."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) * 1e6


def _server_us(server: BenchmarkServer) -> float:
    """CPU of all of the server's processes: those that have ended are in the figures of the postmaster."""
    with server.superuser() as looking:
        [(pid,)] = looking.execute("SELECT pg_backend_pid()").fetchall()
        postmaster = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        running = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        ticks = sum(sum(map(int, _cpu_fields(each)[:2])) for each in running) + sum(map(int, _cpu_fields(postmaster)))
    return ticks / os.sysconf("SC_CLK_TCK") * 1e6


def _cpu_fields(pid: str) -> list[str]:
    """Of a process: user and system time, and those of its ended children, in clock ticks. Source: proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except FileNotFoundError:
        return ["0", "0", "0", "0"]


def _tell(what: str, cost: Cost) -> None:
    sys.stdout.write(
        f"{what}: {1 / cost.seconds:,.0f} invoices/s; CPU of an invoice {cost.workers_us:,.0f} µs in the workers and"
        f" {cost.server_us:,.0f} µs in the server\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
