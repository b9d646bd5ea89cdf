"""How long the admin's pages take over a large ledger: `python -m tests.benchmarks.page_times [ENTRIES] [HOLDERS]`.

A ledger of 1,000,000 entries of 100,000 holders, filled by COPY with all triggers on, its totals counted, and as many customers
as holders; then each page, as an operator with all permissions sees it, several times in this process: queries, the fastest
time, which other work on the machine touches least, the median, and the slowest query of the fastest. One holder has a tenth of
the entries. The middleware counts, the web server does not. Then what reads all accounts: the readings of /metrics that make a
full round, and the state of all accounts at the end of a month, as closing it reads it.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.server import ROOT, BenchmarkServer

ENTRIES, HOLDERS = 1_000_000, 100_000
TIMES = 7
LONG_HOLDER = 900_001


def main() -> None:
    """Fill a new ledger, and print one line for each page."""
    entries, holders = (int(sys.argv[place]) if len(sys.argv) > place else usual for place, usual in ((1, ENTRIES), (2, HOLDERS)))
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-pages")
    try:
        _fill(server, entries=entries, holders=holders)
        _fill_customers(server, holders)
        _show()
        _show_reads_of_all_accounts()
    finally:
        server.close()


def _fill(server: BenchmarkServer, *, entries: int, holders: int) -> None:
    """Load the history that the pages show."""
    from ledger.totals.closing import close_months
    from ledger.totals.counting import count_entries
    from tests.benchmarks.histories import Plan, load, load_in_parallel

    began = time.monotonic()
    dsn = server.postgres.superuser_url
    stored = load_in_parallel(dsn, holders=holders, entries=entries * 9 // 10, processes=os.cpu_count() or 1)
    stored += load(dsn, Plan(1, entries // 10, LONG_HOLDER))
    with server.superuser() as connection:
        connection.execute("SELECT brin_summarize_new_values('ledger_entry_reference')")
    server.settle()
    _tell(f"{stored:,} entries of {holders:,} holders, and one more, in {time.monotonic() - began:,.0f} s")
    began = time.monotonic()
    count_entries(patience_seconds=0)
    close_months()
    _tell(f"counted and closed in {time.monotonic() - began:,.0f} s; load {os.getloadavg()[0]:.1f}\n")


# One customer is called Jörg Müller, a hundredth Müller; of 400 other surnames each has as many.
CUSTOMERS = """
INSERT INTO billing_customer
    (ref, name, currency, time_zone, language, address, vat_id, vat_status, terms_days, grace_days,
        hold_days, holder_id, credit_type)
SELECT 'CUST-' || n, first_name || ' ' || surname || ' ' || (ARRAY['GmbH', 'Ltd', 'SA', 'Oy'])[1 + n %% 4],
    'EUR', 'UTC', 'en', '{}', '', 'taxable', 30, 0, 0, '', ''
FROM generate_series(1, %s) AS n,
    LATERAL (SELECT CASE WHEN n = 1 THEN 'Jörg' ELSE (ARRAY['Ana', 'Béla', 'Cem', 'Dörte', 'Eva', 'Gül'])[1 + n %% 6] END)
        AS a (first_name),
    LATERAL (SELECT translate(lpad((n * 31 %% 400)::text, 3, '0'), '0123456789', 'aeioulmnrs')) AS b (syllables),
    LATERAL (SELECT CASE WHEN n %% 100 = 1 THEN 'Müller' ELSE initcap(syllables) END) AS c (surname)
"""


def _fill_customers(server: BenchmarkServer, customers: int) -> None:
    with server.superuser() as connection:
        connection.execute(CUSTOMERS, [customers])
        connection.execute("VACUUM ANALYZE billing_customer")


@dataclass
class Watch:
    """The statements of one page, and how long each took."""

    seconds: list[float] = field(default_factory=list)

    def __call__(self, execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, parameters, many, context)
        finally:
            self.seconds.append(time.perf_counter() - began)


def _show() -> None:
    """Measure every page, and print a line for each."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.create_superuser("bench", password=None))
    _tell(f"{'page':44} {'queries':>7} {'slowest query':>14} {'fastest ms':>11} {'median ms':>10}")
    for name, address in _pages().items():
        queries, slowest_ms, fastest_ms, median_ms = _measure(client, address)
        _tell(f"{name:44} {queries:7} {slowest_ms:14.1f} {fastest_ms:11.0f} {median_ms:10.0f}")
    _tell("")


def _measure(client: Any, address: str) -> tuple[int, float, float, float]:
    """The queries and the slowest of them, of the fastest time; the fastest and the median time; in milliseconds."""
    from django.db import connection

    taken = []
    for _ in range(TIMES + 1):
        watch = Watch()
        began = time.perf_counter()
        with connection.execute_wrapper(watch):
            answer = client.get(address)
        if answer.status_code != 200:
            raise RuntimeError(f"{address}: {answer.status_code}")
        taken.append((time.perf_counter() - began, len(watch.seconds), max(watch.seconds, default=0)))
    # The first one makes what a process makes once.
    fastest, queries, slowest = min(taken[1:])
    return queries, slowest * 1_000, fastest * 1_000, median(each[0] for each in taken[1:]) * 1_000


def _show_reads_of_all_accounts() -> None:
    from django.db import connection, transaction

    from ledger.totals.closing import STATES
    from ledger_project.monitoring import gauges

    accounts = _row("SELECT count(*) FROM ledger_entry WHERE sequence = 1")
    readings: list[tuple[float, int]] = []
    while len(readings) * gauges.PAGES_A_READING * 1_000 < accounts:
        watch = Watch()
        began = time.perf_counter()
        with connection.execute_wrapper(watch):
            list(gauges._all_families())
        readings.append((time.perf_counter() - began, len(watch.seconds)))
    times_ms = sorted(seconds * 1_000 for seconds, _ in readings)
    _tell(
        f"/metrics: {len(readings)} readings look at all {accounts:,} accounts for overdue expirations; one takes "
        f"{times_ms[0]:.0f} to {times_ms[-1]:.0f} ms, median {median(times_ms):.0f}, with {readings[-1][1]} statements; "
        f"kept for {gauges.KEPT_SECONDS:.0f} s"
    )
    middle = _row("SELECT min(recorded_at) + (max(recorded_at) - min(recorded_at)) / 2 FROM ledger_entry")
    for words, end in (("now", datetime.now(UTC)), ("in the middle of the ledger", middle)):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            began = time.perf_counter()
            cursor.execute(STATES, {"until": end})
            rows = len(cursor.fetchall())
            _tell(f"the state of all accounts {words}: {time.perf_counter() - began:.1f} s, {rows:,} rows")


def _row(sql: str) -> Any:
    """The one value of a statement."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def _pages() -> dict[str, str]:
    """Every list that the admin has, and the pages of a holder, an entry and a month."""
    from django.contrib import admin
    from django.contrib.admin.utils import quote
    from django.urls import reverse

    from ledger import reads
    from ledger.rules.instants import from_us

    (long,) = (f"cust-{LONG_HOLDER:06}",)
    newest = next(entry for entry in reads.entries(long, limit=1_000) if entry.reference)
    day = from_us(newest.recorded_us)
    entries, accounts = reverse("admin:ledger_entrylisting_changelist"), reverse("admin:ledger_account_changelist")
    customers = reverse("admin:billing_customer_changelist")
    entry = quote(f"{long}/credits/{newest.sequence}")
    found = {"Home": reverse("admin:index")}
    for model in admin.site._registry:
        opts = model._meta
        found[str(opts.verbose_name_plural).capitalize()] = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    return found | {
        "entries, in the middle": f"{entries}?until={day:%Y-%m-%d}",
        "entries of a kind that is not there": f"{entries}?kind=hold",
        "entries of a day, added up": f"{entries}?since={day:%Y-%m-%d}",
        "entries of the long holder": f"{entries}?q={long}",
        "entries of holder*": f"{entries}?q=cust-0000*",
        "entries by reference": f"{entries}?q={newest.reference}",
        "entries by idempotency key": f"{entries}?q={newest.idempotency_key}",
        "one entry": reverse("admin:ledger_entrylisting_change", args=[entry]),
        "the long holder": reverse("admin:ledger_holder", args=[long]),
        "the long holder, a year": f"{reverse('admin:ledger_holder', args=[long])}?days=365",
        "a holder who never was": f"{accounts}?q=nobody",
        "holders who are low": f"{accounts}?at_most=1000",
        "holders whose credits expire": f"{accounts}?expires_before=2025-02-01",
        "holders with a credit type": f"{accounts}?credit_type=credits",
        "month": f"{reverse('admin:ledger_month_end')}?month={day:%Y-%m}",
        **_rows_of_a_month(day.date().replace(day=1)),
        "current locks": reverse("admin:ledger_locks"),
        "find anything": f"{reverse('admin:search')}?s={newest.reference}",
        "find anything by a rare name": f"{reverse('admin:search')}?s=jorg+mueller",
        "find anything by a letter": f"{reverse('admin:search')}?s=m",
        "customers by a rare name": f"{customers}?q=jorg+mueller",
        "customers by a frequent name": f"{customers}?q=muller",
        "customers by a letter": f"{customers}?q=m",
        "customers of no such name": f"{customers}?q=nobody",
        "grant credits": reverse("admin:ledger_account_grant_to_anyone"),
    }


def _rows_of_a_month(month: date) -> dict[str, str]:
    """The rows of figures of a month: days, earlier months, and all holders of what expires."""
    from urllib.parse import urlencode

    from django.urls import reverse

    from ledger.totals.figures import amounts_of, rows_link
    from ledger.totals.month_figures import month_figures

    [expiry] = [section for section in month_figures(month).sections if section.key == "credits_by_expiry"]
    largest = max(amounts_of(expiry)[:-1], key=lambda placed: placed.amount.value)
    figures = {
        "rows of a month's figure, by day": ("credits", "spent"),
        "rows of a month's figure, by earlier month": ("credits", "opening"),
        "rows of a month's figure, by holder": ("credits_by_expiry", largest.figure.key),
    }
    links = {words: rows_link(month, section, figure, largest.column.key) for words, (section, figure) in figures.items()}
    return {words: f"{reverse('admin:ledger_month_rows')}?{urlencode(link.query)}" for words, link in links.items()}


def _tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
