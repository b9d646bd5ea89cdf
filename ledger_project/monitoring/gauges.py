"""Numbers for /metrics from the database: a few bounded reads, kept for some seconds, in each scraped process.

Workers, and commands that end within seconds, such as generate_invoices, serve no /metrics: their rows show their work.
"""

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import F, OuterRef, Subquery, Value
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from billing.metering.partitions import months_ahead
from billing.models import Invoice, Run, ScheduledTask
from billing.reads.documents import is_overdue
from ledger import conf
from ledger.clocks import holders_time
from ledger.database.cluster import ask_all_nodes
from ledger.errors import LedgerError
from ledger.services.expiration import BEGINNING, count_overdue
from ledger.telemetry.metrics import are_counts_written
from ledger.version import VERSION
from ledger_project.monitoring.node_checks import node_states
from ledger_project.monitoring.work_checks import newest_anchor
from ledger_project.work.timetable import TIMETABLE, Lane

log = logging.getLogger(__name__)

KEPT_SECONDS = 10.0
STATEMENT_TIMEOUT = "2s"
RUNS_LOOKED_AT = 500
"""Runs of the last hour, the newest first: a minute has one for each worker."""
MOST_COUNTED = 10_000
OVERDUE = timedelta(hours=1)
PAGES_A_READING = 5
"""How many pages each reading checks: of 1,000 accounts for overdue expirations, of 500 invoices for due reminders."""

OF_BILLING = f"""
SELECT
    (SELECT count(*) FROM (SELECT FROM billing_suspendedbilling WHERE resumed_at IS NULL LIMIT {MOST_COUNTED}) AS suspended),
    (SELECT count(*) FROM (
        SELECT FROM billing_vatcheck WHERE due_at < statement_timestamp() - interval '1 hour' LIMIT {MOST_COUNTED}
    ) AS unchecked)
"""
OF_PAYMENTS = f"""
SELECT
    (SELECT count(*) FROM (
        SELECT FROM billing_duepurchase WHERE since < statement_timestamp() - interval '1 hour' LIMIT {MOST_COUNTED}
    ) AS overdue),
    (SELECT count(*) FROM (
        SELECT FROM billing_paymentintent WHERE due_at < statement_timestamp() - interval '1 hour'
        UNION ALL SELECT FROM billing_providerrefund WHERE due_at < statement_timestamp() - interval '1 hour'
        UNION ALL SELECT FROM billing_providerevent WHERE due_at < statement_timestamp() - interval '1 hour' LIMIT {MOST_COUNTED}
    ) AS unasked)
"""
MAILS = f"""
SELECT state, (SELECT count(*) FROM (SELECT FROM billing_mail AS m WHERE m.state = wanted.state LIMIT {MOST_COUNTED}) AS mails),
    coalesce(extract(epoch FROM statement_timestamp() - (
        SELECT queued_at FROM billing_mail WHERE state = 'waiting' AND recipient <> '' ORDER BY id LIMIT 1
    )), 0)
FROM unnest(%s::text[]) AS wanted (state)
"""
OPEN_INTENTS = f"""
SELECT state, count(*) FROM (
    SELECT state FROM billing_paymentintent WHERE due_at IS NOT NULL LIMIT {MOST_COUNTED}
) AS intents GROUP BY state
"""
WEBHOOKS = f"""
SELECT count(*) FILTER (WHERE w.disabled_at IS NULL),
    count(*) FILTER (WHERE w.disabled_at IS NULL AND p.failing_since IS NOT NULL),
    count(*) FILTER (WHERE w.disabled_at IS NOT NULL),
    (SELECT count(*) FROM (SELECT FROM ledger_delivery_stream WHERE due_at IS NOT NULL LIMIT {MOST_COUNTED}) AS waiting)
FROM ledger_webhook AS w LEFT JOIN ledger_webhook_pace AS p ON p.webhook_id = w.id
WHERE w.removed_at IS NULL
"""
RECURRING_GRANTS = f"""
SELECT count(*) FROM (
    SELECT FROM ledger_recurring_grant WHERE next_at < statement_timestamp() - interval '1 hour' LIMIT {MOST_COUNTED}
) AS overdue
"""
CONNECTIONS = """
SELECT count(*) FILTER (WHERE datname = current_database()), count(*), current_setting('max_connections')::int
FROM pg_stat_activity
WHERE backend_type = 'client backend'
"""
LONGEST_WAIT = """
SELECT count(*), coalesce(extract(epoch FROM max(clock_timestamp() - waitstart)), 0) AS longest_s
FROM pg_locks
WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

Families = Iterable[Any]


class DatabaseGauges(Collector):
    """The numbers of at most KEPT_SECONDS ago. Without a database: `ledger_database_up` 0, and numbers that need no database."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._read_at = float("-inf")

    def collect(self) -> Iterator[Any]:
        """Yield the families of numbers; read them first if they are too old."""
        if time.monotonic() - self._read_at > KEPT_SECONDS:
            self._kept = list(_all_families())
            self._read_at = time.monotonic()
        yield from self._kept


def _all_families() -> Iterator[Any]:
    yield InfoMetricFamily("ledger_build", "The version of the ledger that runs.", {"version": VERSION})
    text = "Whether this process could write its counts the last time: 0 on a full disk, which stops all counts."
    yield _gauge("ledger_counts_written", text, float(are_counts_written()))
    yield from _disk()
    yield from _anchor()
    is_up = bool(_read_apart(_answers))
    yield _gauge("ledger_database_up", "Whether the database answered the last check.", float(is_up))
    if is_up:
        for read in READS:
            yield from _read_apart(read)


def _read_apart(read: Callable[[], Families]) -> list[Any]:
    """Return the numbers that a function reads, in a separate transaction; no numbers if it fails."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [STATEMENT_TIMEOUT])
            return list(read())
    except (Error, LedgerError) as error:
        log.warning("/metrics lacks the numbers of %s: %s", getattr(read, "__name__", type(read).__name__).lstrip("_"), error)
        return []


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(name, text, value)


# Numbers that need no database -----------------------------------------------------------------------


def _disk() -> Families:
    if not settings.EMBEDDED_SERVER or not settings.DATA_DIR.exists():
        return
    usage = shutil.disk_usage(settings.DATA_DIR)
    yield _gauge("ledger_disk_free_bytes", "Free space on the disk of the embedded server's data.", usage.free)
    yield _gauge("ledger_disk_size_bytes", "Size of that disk.", usage.total)


def _anchor() -> Families:
    newest = newest_anchor()
    if newest is not None:
        yield _gauge("ledger_anchor_timestamp_seconds", "When the newest anchor was written.", newest.written_at.timestamp())


# Numbers from the database ---------------------------------------------------------------------------


def _row(sql: str) -> Any:
    return _rows(sql)[0]


def _rows(sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return cursor.fetchall()


def _answers() -> Families:
    yield _row("SELECT 1")


def _nodes() -> Families:
    up = GaugeMetricFamily("ledger_node_up", "Whether the node of the cluster answered this process.", labels=["node"])
    prepared = GaugeMetricFamily(
        "ledger_node_oldest_prepared_seconds", "How old the node's oldest prepared transaction is.", labels=["node"]
    )
    for node in node_states(connection):
        up.add_metric([node.name], float(not node.silence))
        if not node.silence:
            prepared.add_metric([node.name], node.oldest_prepared_seconds)
    yield from (up, prepared)


def _connections() -> Families:
    here, all_databases, most = _row(CONNECTIONS)
    yield _gauge("ledger_database_connections", "Connections to the ledger's database.", here)
    yield _gauge("ledger_server_connections", "Connections to the server, of all databases.", all_databases)
    yield _gauge("ledger_server_max_connections", "How many connections the server accepts.", most)


def _lock_waits() -> Families:
    answers = ask_all_nodes(f"SELECT json_build_array(count, longest_s) FROM ({LONGEST_WAIT}) AS here")
    waits = [row for _, row in answers.values()]
    text = "Sessions that wait for an advisory lock, on all nodes of a cluster."
    yield _gauge("ledger_lock_waiting_sessions", text, sum(waiting for waiting, _ in waits))
    text = "How long the longest of these waits has lasted."
    yield _gauge("ledger_lock_longest_wait_seconds", text, max((float(longest_s) for _, longest_s in waits), default=0.0))


def _billing() -> Families:
    (suspended, unchecked) = _row(OF_BILLING)
    text = f"Subscriptions that are not billed until a person resumes them, up to {MOST_COUNTED:,}."
    yield _gauge("ledger_billing_suspended_subscriptions", text, suspended)
    text = f"VAT ids about which VIES was not asked for more than an hour after they were due, up to {MOST_COUNTED:,}."
    yield _gauge("ledger_vat_lookups_overdue", text, unchecked if conf.VIES_URL.value else 0)


def _payments() -> Families:
    if not apps.is_installed("billing.payments"):
        return
    (overdue, unasked) = _row(OF_PAYMENTS)
    text = f"Purchases whose credits could not be added or revoked for more than an hour, up to {MOST_COUNTED:,}."
    yield _gauge("ledger_purchases_overdue", text, overdue)
    text = f"Payments, refunds and events about which no provider was asked for more than an hour, up to {MOST_COUNTED:,}."
    yield _gauge("ledger_payments_overdue", text, unasked)


def _reminders() -> Subquery | Value:
    """Return how many reminders an invoice had."""
    if not apps.is_installed("billing.dunning"):
        return Value(0)
    from billing.dunning.models import Reminder

    return Subquery(Reminder.objects.filter(invoice_id=OuterRef("pk")).order_by("-step").values("step")[:1])


def _overdue_invoices() -> Families:
    unpaid = F("amount_due_minor") - F("amount_paid_minor")
    rows = Invoice.objects.filter(is_overdue()).order_by("due_date", "pk")
    oldest, parameters = rows.values("currency", reminders=_reminders(), unpaid=unpaid)[:MOST_COUNTED].query.sql_with_params()
    labels = ["currency", "reminders"]
    text = f"Overdue invoices by the number of their reminders; the {MOST_COUNTED:,} that are overdue for longest."
    number = GaugeMetricFamily("ledger_invoices_overdue", text, labels=labels)
    text = "What is to be paid of them, in the smallest unit of the currency."
    amount = GaugeMetricFamily("ledger_invoices_overdue_amount_minor", text, labels=labels)
    sums = f"SELECT currency, coalesce(reminders, 0), count(*), sum(unpaid) FROM ({oldest}) AS overdue GROUP BY 1, 2"
    for currency, reminders, many, minor in _rows(sums, parameters):
        number.add_metric([currency, str(reminders)], many)
        amount.add_metric([currency, str(reminders)], float(minor))
    yield from (number, amount)


def _mails() -> Families:
    if not apps.is_installed("billing.dunning"):
        return
    from billing.dunning.models import Mail

    text = f"Mails by state, each up to {MOST_COUNTED:,}."
    by_state = GaugeMetricFamily("ledger_mails", text, labels=["state"])
    oldest_s = 0.0
    for state, many, age_s in _rows(MAILS, [[state for state in Mail.State.values if state != Mail.State.SENT]]):
        by_state.add_metric([state], many)
        oldest_s = float(age_s)
    yield by_state
    text = "Age of the oldest mail that waits for the mail server; 0 if no mail waits."
    yield _gauge("ledger_mail_oldest_waiting_seconds", text, oldest_s)


def _payment_intents() -> Families:
    if not apps.is_installed("billing.payments"):
        return
    from billing.payments.models import OPEN_INTENT

    text = f"Payment intents that are open with their provider, by state, up to {MOST_COUNTED:,}."
    by_state = GaugeMetricFamily("ledger_payment_intents", text, labels=["state"])
    payment_intents = dict(_rows(OPEN_INTENTS))
    for state in OPEN_INTENT:
        by_state.add_metric([state], payment_intents.get(state, 0))
    yield by_state


def _signals() -> Families:
    if not apps.is_installed("ledger.signals"):
        return
    (enabled, failing, disabled, waiting) = _row(WEBHOOKS)
    webhooks = GaugeMetricFamily("ledger_webhooks", "Webhooks by state; those that fail are enabled, too.", labels=["state"])
    for state, number in (("enabled", enabled), ("failing", failing), ("disabled", disabled)):
        webhooks.add_metric([state], number)
    yield webhooks
    text = f"Holders of a webhook for which signals are pending, up to {MOST_COUNTED:,}."
    yield _gauge("ledger_signal_streams_waiting", text, waiting)


def _recurring_grants() -> Families:
    text = f"Recurring grants that have been due for more than an hour, up to {MOST_COUNTED:,}."
    (overdue,) = _row(holders_time(RECURRING_GRANTS, holder="holder_id"))
    yield _gauge("ledger_recurring_grants_overdue", text, overdue)


def _runs() -> Families:
    now = datetime.now(UTC)
    runs = Run.objects.order_by("-started_at").only("started_at", "finished_at", "exit_code", "summary")[:RUNS_LOOKED_AT]
    recent = [run for run in runs if now - run.started_at <= timedelta(hours=1)]
    outcomes: Counter[str] = Counter()
    for run in recent:
        outcomes.update(run.summary.get("outcomes", {}))
    by_outcome = GaugeMetricFamily(
        "ledger_billing_run_outcomes", "Subscriptions by their outcome in runs of the last hour.", labels=["outcome"]
    )
    for outcome, count in sorted(outcomes.items()):
        by_outcome.add_metric([outcome], count)
    yield by_outcome
    by_code = GaugeMetricFamily("ledger_billing_runs", "Runs of the last hour by exit code.", labels=["exit_code"])
    for code, count in sorted(Counter("running" if run.finished_at is None else str(run.exit_code) for run in recent).items()):
        by_code.add_metric([code], count)
    yield by_code


def _tasks() -> Families:
    rows = {row.name: row for row in ScheduledTask.objects.filter(name__in=[task.name for task in TIMETABLE])}
    interval = GaugeMetricFamily("ledger_task_interval_seconds", "How often a task of the timetable is due.", labels=["task"])
    begun = GaugeMetricFamily("ledger_task_started_timestamp_seconds", "When it last began.", labels=["task"])
    succeeded = GaugeMetricFamily("ledger_task_succeeded_timestamp_seconds", "When it last succeeded.", labels=["task"])
    code = GaugeMetricFamily("ledger_task_exit_code", "How it last ended.", labels=["task"])
    executions = CounterMetricFamily(
        "ledger_task_executions", "Executions by all workers, by result; failed includes stopped.", labels=["task", "result"]
    )
    seconds = CounterMetricFamily("ledger_task_execution_seconds", "How long these took together.", labels=["task"])
    for task in TIMETABLE:
        interval.add_metric([task.name], task.every_s)
        row = rows.get(task.name)
        if row is None:
            continue
        begun.add_metric([task.name], row.started_at.timestamp())
        if row.succeeded_at is not None:
            succeeded.add_metric([task.name], row.succeeded_at.timestamp())
        if row.exit_code is not None:
            code.add_metric([task.name], row.exit_code)
        executions.add_metric([task.name, "succeeded"], row.executions - row.failures)
        executions.add_metric([task.name, "failed"], row.failures)
        seconds.add_metric([task.name], row.seconds)
    yield from (interval, begun, succeeded, code, executions, seconds)


def _lanes() -> Families:
    text = "How late the latest task of the lane is, beyond the time of a turn; 0: none is late."
    late = GaugeMetricFamily("ledger_lane_late_seconds", text, labels=["lane"])
    due = dict(ScheduledTask.objects.values_list("name", "due_at"))
    now = datetime.now(UTC)
    for lane in Lane:
        tasks = [task for task in TIMETABLE if task.lane is lane and task.name in due]
        late.add_metric([lane], max([0.0, *(task.late_s(due[task.name], now) for task in tasks)]))
    yield late


def _entries() -> Families:
    if not apps.is_installed("ledger.totals"):
        return
    from ledger.totals.counting import entries_by_kind

    counts, until = entries_by_kind()
    by_kind = CounterMetricFamily(
        "ledger_entries",
        "Entries by kind, recorded by whichever process: web servers, workers, commands. Counted by update_totals.",
        labels=["kind"],
    )
    for kind, count in counts.items():
        by_kind.add_metric([kind], count)
    yield by_kind
    text = "The instant up to which entries are counted."
    yield _gauge("ledger_entries_counted_until_timestamp_seconds", text, until.timestamp())


def _partitions() -> Families:
    text = "Coming months, without the current one, for which the usage table has a partition."
    yield _gauge("ledger_usage_partitions_ahead", text, months_ahead(connection, datetime.now(UTC).date()))


class Round:
    """Counts rows that no single statement can count: some pages at each reading, so that it covers all of them in turn.

    The number is that of the last full round, or of the current round if it has found more already.
    """

    def __init__(self, name: str, text: str, count: Callable[[Any], tuple[int, Any]], *, beginning: Any) -> None:
        """See the class.

        Args:
            count: counts one page after a place, and returns the place after it; None if it was the last page.
        """
        self.__name__, self._text, self._count = name, text, count
        self._place = self._beginning = beginning
        self._so_far = self._of_last_round = 0

    def __call__(self) -> Families:
        self._look_further()
        yield _gauge(self.__name__, self._text, max(self._so_far, self._of_last_round))

    def _look_further(self) -> None:
        for _ in range(PAGES_A_READING):
            counts, following = self._count(self._place)
            self._so_far += counts
            self._place = self._beginning if following is None else following
            if following is None:
                self._of_last_round, self._so_far = self._so_far, 0
                return


def overdue_expirations() -> Round:
    """Return a round through all accounts."""
    text = "Accounts with a lot or hold whose expiry is over an hour ago and not booked."
    return Round("ledger_unbooked_expirations", text, partial(count_overdue, late=OVERDUE), beginning=BEGINNING)


def due_reminders() -> Round:
    """Return a round through all overdue invoices."""
    text = "Overdue invoices whose next reminder is due."
    return Round("ledger_reminders_due", text, _count_due_reminders, beginning=0)


def _count_due_reminders(after: int) -> tuple[int, int | None]:
    from billing.dunning.reminding import count_due

    return count_due(after)


READS: tuple[Callable[[], Families], ...] = (
    _connections,
    _nodes,
    _lock_waits,
    _billing,
    _payments,
    _overdue_invoices,
    _mails,
    _payment_intents,
    _signals,
    _recurring_grants,
    _runs,
    _tasks,
    _lanes,
    _entries,
    _partitions,
    overdue_expirations(),
    *([due_reminders()] if apps.is_installed("billing.dunning") else []),
)
