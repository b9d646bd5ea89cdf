"""The timetable of all workers: the tasks, how often each is due, and who runs it. docs/how-to/operations/tasks.md shows it.

Workers share a task of every worker by skipping what is locked or done. The first worker that comes when a task of one worker is
due takes it; `billing_scheduledtask` stores the due time. Both kinds are safe on any number of machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SOON_S: Final = 5
MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Task:
    """A command that workers run repeatedly.

    Args:
        command, arguments: as after `manage.py`.
        every_s: the time from one start to the next due time.
        by_every_worker: each worker runs it; otherwise one worker at a time, on any machine.
        retry_s: of a task of one worker: the time from its worker's last sign of life until it is due again, if it failed or the
            worker ended in the middle.
        passing: exit codes beside 0 after which the next run does the rest.
        what: the effect, for readers of the timetable.
    """

    command: str
    what: str
    every_s: int
    by_every_worker: bool = False
    arguments: tuple[str, ...] = ()
    retry_s: int = HOUR_S
    passing: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name: the command with its arguments."""
        return " ".join((self.command, *self.arguments))


SOME_LEFT: Final = frozenset({3, 4})
"""Some subscriptions, purchases, payments or accounts failed, or only busy ones are left: see `generate_invoices`."""

TIMETABLE: Final = (
    Task("make_recurring_grants", "Make the recurring grants that are due", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("settle_purchases", "Add credits of purchases where that failed", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task(
        "collect_payments", "Top accounts up, and ask providers about payments", SOON_S, by_every_worker=True, passing=SOME_LEFT
    ),
    Task(
        "move_subscriptions", "Move subscriptions to a version of their plan", MINUTE_S, by_every_worker=True, passing=SOME_LEFT
    ),
    Task(
        "expire_subscriptions",
        "Expire orders whose first invoice was not paid in time",
        MINUTE_S,
        by_every_worker=True,
        passing=SOME_LEFT,
    ),
    Task("send_reminders", "Remind of overdue invoices", HOUR_S, by_every_worker=True, passing=SOME_LEFT),
    Task("check_vat_ids", "Look up VAT ids in VIES", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("deliver_mails", "Mail documents to customers", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("expire_credits", "Book credits and holds that have expired", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("deliver_signals", "Send what happened to webhooks", SOON_S, by_every_worker=True, passing=SOME_LEFT),
    Task("generate_invoices", "Generate the due invoices", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("update_totals", "Add new entries to the totals of days, and close months that have ended", MINUTE_S, passing=SOME_LEFT),
    Task("usage_partitions", "Create the usage table's coming partitions", DAY_S),
    Task("deliver_signals", "Look for entries without signals, and delete old signals", DAY_S, arguments=("--all-accounts",)),
    Task("audit_ledger", "Check every law of the ledger", DAY_S),
    Task("generate_invoices", "Check that billing is consistent", DAY_S, arguments=("--check",)),
)


def named(names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks of these names, or all tasks without names, in the order of the timetable.

    Raises:
        ValueError: the timetable has no task of a name.
    """
    known = {task.name for task in TIMETABLE}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(f"unknown task {', '.join(map(repr, unknown))}; the tasks are {', '.join(sorted(known))}")
    return tuple(task for task in TIMETABLE if not names or task.name in names)


def how_often(task: Task) -> str:
    """When a task is due, for people."""
    return {SOON_S: "every 5 seconds", MINUTE_S: "every minute", HOUR_S: "every hour", DAY_S: "every day"}[task.every_s]


def performer(task: Task) -> str:
    """Return who runs a task, in words."""
    return "every worker" if task.by_every_worker else "one worker"
