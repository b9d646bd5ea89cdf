"""Checks of recurring work: tasks, partitions, audits, anchors; and of the disk's free space."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from billing.documents.e_invoices import E_INVOICES_OF, count_e_invoices
from billing.metering.partitions import months_ahead
from billing.models import ScheduledTask, SuspendedBilling, VatCheck
from billing.models.runs import AUDIT, AUDIT_LATE_AFTER
from ledger import conf
from ledger.audit.anchors import AnchorUnreadable, check_seal, written_at
from ledger.clocks import holders_time
from ledger.database.statements import fetch_rows, fetch_value
from ledger.operators.additions import Attention
from ledger.operators.permissions import VIEW_LOCKS
from ledger_project.monitoring.findings import CheckResult, CheckState, failed, ok, warning
from ledger_project.work.timetable import TIMETABLE, Task

FILES_LOOKED_AT = 1_000


@dataclass(frozen=True)
class Anchor:
    """An anchor's file, and the time of writing that it states."""

    path: Path
    written_at: datetime


def newest_anchor() -> Anchor | None:
    """Return the newest readable anchor of the folder; None if there is no folder, or no anchor in it."""
    if settings.ANCHOR_DIR is None:
        return None
    try:
        files = sorted(settings.ANCHOR_DIR.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[:FILES_LOOKED_AT]
    except OSError:
        return None
    for path in files:
        try:
            return Anchor(path, written_at(path))
        except (AnchorUnreadable, OSError):
            continue
    return None


ANCHOR_LATE = timedelta(days=2)
FOUND_SOMETHING = 1
LATE_BY = 1.5
AT_LEAST_LATE = timedelta(minutes=15)
FAILING_LONG = timedelta(hours=1)
UNANSWERED_TRIES = 4
"""This number of tries takes about three hours."""
NEWEST_DOCUMENTS = 100
DISK_WARNING, DISK_FAILED = 0.10, 0.02
START_A_WORKER = "Start a worker: `manage.py work`; or run the task yourself."


def partitions(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that the usage table is ready for this month and the next."""
    ahead = months_ahead(connection, datetime.now(UTC).date())
    if ahead < 1:
        text = f"The usage table has no partition for {'the next' if ahead == 0 else 'this'} month; events go to the default one."
        return warning("Partitions", text, "Run `manage.py usage_partitions`; the timetable does it daily.")
    return ok("Partitions", f"The usage table has partitions for {ahead} coming months.")


def timetable(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check that each task of the timetable ran when it was due, and succeeded."""
    rows = {row.name: row for row in ScheduledTask.objects.all()}
    others = [task for task in TIMETABLE if task.name != AUDIT]
    findings = [each for task in others if (each := _task(task, rows.get(task.name)))]
    found_something = [each for each in findings if each.endswith("has findings")]
    text = f"{'; '.join(findings)}."
    if found_something:
        return failed(
            "Timetable", text, "Run `manage.py generate_invoices --check` for the list, and change nothing before you know why."
        )
    if findings:
        return warning("Timetable", text, START_A_WORKER)
    return ok("Timetable", f"All {len(others)} tasks beside the audit ran when they were due.")


def _task(task: Task, row: ScheduledTask | None) -> str:
    """Describe the fault of a task; empty if it has none."""
    if row is None:
        return f"{task.name} never ran"
    if task.arguments == ("--check",) and row.exit_code == FOUND_SOMETHING:
        return f"{task.name} has findings"
    late_after = max(timedelta(seconds=task.every_s * LATE_BY), AT_LEAST_LATE)
    now = datetime.now(UTC)
    if now - row.started_at > late_after:
        return f"{task.name} last ran {_ago(now - row.started_at)}"
    if row.finished_at is not None and row.exit_code and row.exit_code not in task.passing:
        return f"{task.name} ended with exit code {row.exit_code} {_ago(now - row.finished_at)}"
    return ""


def audit(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check when the last audit ended, and with which result."""
    row = ScheduledTask.objects.filter(name=AUDIT).first()
    advice = "Start a worker (`manage.py work`), or run `manage.py audit_ledger`; only a worker's audits are on record."
    if row is None or row.finished_at is None:
        return warning("Audit", "No audit has ended yet.", advice)
    now = datetime.now(UTC)
    if row.exit_code == FOUND_SOMETHING:
        text = f"The audit of {_ago(now - row.finished_at)} found violations."
        return failed("Audit", text, "Run `manage.py audit_ledger --format json`, keep its output, and repair nothing yet.")
    if row.exit_code:
        return warning("Audit", f"The last audit ended {_ago(now - row.finished_at)} with exit code {row.exit_code}.", advice)
    if now - row.finished_at > AUDIT_LATE_AFTER:
        return warning("Audit", f"The last audit ended {_ago(now - row.finished_at)}.", advice)
    return ok("Audit", f"The last audit ended {_ago(now - row.finished_at)}, clean.")


def anchor(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check how old the newest anchor is, and whether its seal is intact."""
    advice = "Run `manage.py audit_ledger --anchor-write FILE` daily, and keep the file on another machine."
    if settings.ANCHOR_DIR is None:
        return warning("Anchor", "LEDGER_ANCHOR_DIR does not name the folder of anchors.", advice)
    newest = newest_anchor()
    if newest is None:
        return warning("Anchor", f"There is no anchor in {settings.ANCHOR_DIR}.", advice)
    try:
        check_seal(newest.path)
    except (AnchorUnreadable, OSError) as error:
        return failed("Anchor", f"{error}.", "Find out who changed the file; check an older anchor with --anchor-check.")
    age = datetime.now(UTC) - newest.written_at
    text = f"The newest anchor, {newest.path.name}, was written {_ago(age)}; its seal is intact."
    return warning("Anchor", text, advice) if age > ANCHOR_LATE else ok("Anchor", text)


def suspended(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check whether billing of subscriptions is suspended until a person resumes it."""
    waiting = SuspendedBilling.objects.filter(resumed_at=None)[:1_000].count()
    if waiting:
        noun = "subscription is" if waiting == 1 else "subscriptions are"
        return warning(
            "Billing", f"{waiting} {noun} suspended.", "Home in the admin names them; each page says why, and resumes billing."
        )
    return ok("Billing", "No subscription is suspended.")


def e_invoices(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check whether the newest documents of the last month have e-invoices."""
    found = count_e_invoices(since=datetime.now(UTC).date() - E_INVOICES_OF, most=NEWEST_DOCUMENTS)
    rules = ", ".join(found.rules)
    if found.broken:
        named = ", ".join(found.numbers)
        text = f"{found.broken} of {found.documents} documents have no e-invoice, and should: {named} ({rules})."
        return warning("E-invoices", text, "“E-invoice” on the page of each says what seller or customer lack.")
    without = f"; {found.lacking} have none, because data lack ({rules})" if found.lacking else ""
    return ok("E-invoices", f"{found.documents - found.lacking} of the newest documents in euro have one{without}.")


def vat_ids(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check whether VAT ids wait for a lookup that is overdue, or that VIES did not answer."""
    if not conf.VIES_URL.value:
        return ok("VAT ids", "They are checked offline only: LEDGER_VIES_URL is not set.")
    rows = VatCheck.objects.order_by("due_at", "customer_id")
    overdue = rows.filter(due_at__lt=datetime.now(UTC) - FAILING_LONG)[:1_000].count()
    if overdue:
        text = f"{overdue} lookups have been due for more than an hour."
        return warning("VAT ids", text, "Run `manage.py check_vat_ids`; the timetable does it every minute.")
    unanswered = rows.filter(tries__gt=UNANSWERED_TRIES)
    if first := unanswered.first():
        text = f"VIES has not answered about {unanswered[:1_000].count()} VAT ids for hours: {first.error}."
        return warning(
            "VAT ids", text, "Its own status page says which member states do not answer; they are asked again by themselves."
        )
    return ok("VAT ids", "No lookup is overdue.")


WEBHOOKS = """
    SELECT count(*) FILTER (WHERE w.disabled_because <> %s),
        count(*) FILTER (WHERE w.disabled_at IS NULL AND p.failing_since < clock_timestamp() - %s),
        count(*)
    FROM ledger_webhook AS w LEFT JOIN ledger_webhook_pace AS p ON p.webhook_id = w.id
    WHERE w.removed_at IS NULL
"""


def signals(connection: BaseDatabaseWrapper) -> CheckResult:
    """Whether the ledger has disabled a webhook, or a receiver has not answered for an hour."""
    if not apps.is_installed("ledger.signals"):
        return ok("Signals", "Signals are left out.")
    from ledger.signals.webhooks import BY_REQUEST

    [(disabled, failing, known)] = fetch_rows(lambda *row: row, WEBHOOKS, [BY_REQUEST, FAILING_LONG])
    if disabled or failing:
        return warning(
            "Signals",
            f"Of {known} webhooks the ledger disabled {disabled}, and {failing} failed for more than an hour.",
            "`GET /v1/webhooks` says why; enable one by PATCH when its receiver is back, and it gets what was kept.",
        )
    return ok("Signals", f"Of {known} webhooks none fails." if known else "There is no webhook.")


OVERDUE_RECURRING_GRANTS = """
    SELECT count(*), min(next_at)
    FROM ledger_recurring_grant
    WHERE next_at < statement_timestamp() - %s
"""


def recurring_grants(connection: BaseDatabaseWrapper) -> CheckResult:
    """Whether a recurring grant has been due for an hour."""
    [(overdue, since)] = fetch_rows(lambda *row: row, holders_time(OVERDUE_RECURRING_GRANTS, holder="holder_id"), [FAILING_LONG])
    if overdue:
        noun = "recurring grant is" if overdue == 1 else "recurring grants are"
        return warning(
            "Recurring grants",
            f"{overdue} {noun} overdue, the first since {since:%Y-%m-%d %H:%M} UTC.",
            "Run `manage.py make_recurring_grants`: it names the accounts that fail, and why.",
        )
    return ok("Recurring grants", "None is overdue.")


# Citus needs a column in the subquery.
CLOCKS_EXIST = """
    SELECT EXISTS (SELECT 1 FROM ledger_entry WHERE kind = 'adjust' AND counterpart ->> 'tick' IS NOT NULL)
"""


def holder_clocks(connection: BaseDatabaseWrapper) -> CheckResult:
    """Whether holders have test clocks although this is no deployment for tests."""
    if conf.TEST_CLOCKS.value:
        return ok("Test clocks", "This is a deployment for tests: its API keys begin with test_.")
    if fetch_value(bool, CLOCKS_EXIST):
        return failed(
            "Test clocks",
            "Holders have test clocks, which nothing follows: LEDGER_TEST_CLOCKS is off.",
            "Set LEDGER_TEST_CLOCKS=true if this is a deployment for tests; a database with test clocks serves no other.",
        )
    return ok("Test clocks", "No holder has one.")


def disk(connection: BaseDatabaseWrapper) -> CheckResult:
    """Check the free disk space of the embedded server. The disk of another machine is unknown."""
    if not settings.EMBEDDED_SERVER:
        return ok("Disk", "Unknown: this is not the embedded server. Watch the disk on its machine.")
    usage = shutil.disk_usage(settings.DATA_DIR)
    share = usage.free / usage.total
    text = f"{usage.free / 2**30:,.1f} GiB of {usage.total / 2**30:,.1f} are free at {settings.DATA_DIR}."
    advice = "Free some space: PostgreSQL stops when the disk is full, and starts again when there is space."
    if share < DISK_FAILED:
        return failed("Disk", text, advice)
    return warning("Disk", text, advice) if share < DISK_WARNING else ok("Disk", text)


def _ago(age: timedelta) -> str:
    seconds = max(age.total_seconds(), 0)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a minute ago"


def tasks_as_json() -> list[dict[str, Any]]:
    """Every task of the timetable with its record."""
    rows = {row.name: row for row in ScheduledTask.objects.all()}
    return [
        {"task": task.name, "every_seconds": task.every_s}
        | {
            name: getattr(rows.get(task.name), name, None)
            for name in ("started_at", "finished_at", "succeeded_at", "exit_code", "host")
        }
        for task in TIMETABLE
    ]


TONES = {CheckState.WARNING: "warning", CheckState.FAILED: "danger"}


def disk_attention(request: Any) -> list[Attention]:
    """Warn operators who may see locks of low disk space; nothing if there is enough, or if the disk is another machine's."""
    if not request.user.has_perm(VIEW_LOCKS):
        return []
    found = disk(connection)
    if found.state is CheckState.OK:
        return []
    return [Attention(tone=TONES[found.state], text=f"{found.check}: {found.text} {found.advice}")]
