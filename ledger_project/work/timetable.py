"""The timetable of all workers: the tasks, how often each is due, and who runs it. docs/how-to/operations/tasks.md shows it.

Each task has a lane, and its turns are processes of their own, so that no task holds up another (docs/adr/0142). Workers share
a task of every worker by skipping what is locked or done. The first worker that comes when a task of one worker is due takes it;
`billing_scheduledtask` stores the due time. Both kinds are safe on any number of machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.conf import settings

SOON_S: Final = 5
TURN_S: Final = 10
STAYING_TURN_S: Final = 15
STAYS: Final = ("--stay",)
MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S
LOOK_EVERY_S: Final = MINUTE_S
"""How often a worker checks whether a task of one worker is due."""


class Lane(StrEnum):
    """What kinds of tasks a worker keeps apart."""

    MONEY = "money"
    """Writes credits and documents. It asks nobody outside, except a provider of taxes for the invoices that need one."""
    OUTBOUND = "outbound"
    """Asks providers and strangers, any of which may be slow or silent."""
    UPKEEP = "upkeep"
    """Counts, checks and tidies up, for as long as it takes."""


@dataclass(frozen=True, slots=True)
class Task:
    """A command that workers run repeatedly.

    Args:
        command, arguments: as after `manage.py`.
        every_s: the time from one start to the next due time.
        by_every_worker: each worker runs it; otherwise one worker at a time, on any machine.
        lane: see `Lane`.
        turn_s: after that time a turn is asked to end, as by SIGTERM; the next turn does the rest. None: it takes what it takes.
        options: further arguments, which are not part of the name. With `--stay` the command looks for work until its turn ends,
            so that work waits less than a second.
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
    lane: Lane = Lane.MONEY
    turn_s: int | None = TURN_S
    options: tuple[str, ...] = ()
    retry_s: int = HOUR_S
    passing: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name: the command with its arguments."""
        return " ".join((self.command, *self.arguments))

    def late_s(self, due_at: datetime, now: datetime) -> float:
        """Return how late it is, in seconds; negative if it is not.

        Args:
            due_at: as its row has it, which is written when a turn ends: the next one may be running for its time.
        """
        allowed_s = LOOK_EVERY_S if self.turn_s is None else self.turn_s
        return (now - due_at).total_seconds() - allowed_s


SOME_LEFT: Final = frozenset({3, 4})
"""Some subscriptions, purchases, payments or accounts failed, or only busy ones are left: see `generate_invoices`."""
TIME_IS_UP: Final = 6
"""The time of `--max-runtime` is over, and something is left."""


def _money(command: str, what: str, every_s: int, *options: str, turn_s: int = TURN_S) -> Task:
    return Task(
        command,
        what,
        every_s,
        by_every_worker=True,
        lane=Lane.MONEY,
        passing=SOME_LEFT | {TIME_IS_UP},
        turn_s=turn_s,
        options=options,
    )


def _outbound(command: str, what: str, every_s: int, *options: str, turn_s: int = TURN_S) -> Task:
    return Task(
        command, what, every_s, by_every_worker=True, lane=Lane.OUTBOUND, passing=SOME_LEFT, turn_s=turn_s, options=options
    )


def _upkeep(command: str, what: str, every_s: int, *arguments: str, passing: frozenset[int] = frozenset()) -> Task:
    return Task(command, what, every_s, arguments=arguments, lane=Lane.UPKEEP, passing=passing, turn_s=None)


_TASKS: Final = (
    _money("top_up_accounts", "Start payments for accounts that run low", SOON_S, turn_s=SOON_S),
    _money("settle_purchases", "Add credits of purchases where that failed", MINUTE_S),
    _money("make_recurring_grants", "Make the recurring grants that are due", MINUTE_S),
    _money("expire_credits", "Book credits and holds that have expired", MINUTE_S),
    _money("move_subscriptions", "Move subscriptions to a version of their plan", MINUTE_S),
    _money("expire_subscriptions", "Expire orders whose first invoice was not paid in time", MINUTE_S),
    _money("generate_invoices", "Generate the due invoices", MINUTE_S, "--max-runtime", "50", turn_s=MINUTE_S),
    _money("send_reminders", "Remind of overdue invoices", HOUR_S),
    _outbound("collect_payments", "Ask providers about payments", SOON_S, *STAYS, "--workers", "4", turn_s=STAYING_TURN_S),
    _outbound("deliver_signals", "Send what happened to webhooks", SOON_S, *STAYS, "--workers", "6", turn_s=STAYING_TURN_S),
    _outbound("deliver_mails", "Mail documents to customers", MINUTE_S),
    _outbound("check_vat_ids", "Look up VAT ids in VIES", MINUTE_S),
    _upkeep(
        "update_totals", "Add new entries to the totals of days, and close months that have ended", MINUTE_S, passing=SOME_LEFT
    ),
    _upkeep("usage_partitions", "Create the usage table's coming partitions", DAY_S),
    _upkeep("deliver_signals", "Look for entries without signals, and delete old signals", DAY_S, "--all-accounts"),
    _upkeep("audit_ledger", "Check every law of the ledger", DAY_S),
    _upkeep("generate_invoices", "Check that billing is consistent", DAY_S, "--check"),
)
APPLICATIONS: Final = {
    "deliver_signals": "ledger.signals",
    "update_totals": "ledger.totals",
    "deliver_mails": "billing.dunning",
    "send_reminders": "billing.dunning",
    "check_vat_ids": "billing.tax_services",
    "top_up_accounts": "billing.payments",
    "settle_purchases": "billing.payments",
    "collect_payments": "billing.payments",
}
"""The commands of applications that can be left out."""
TIMETABLE: Final = tuple(task for task in _TASKS if APPLICATIONS.get(task.command, "ledger") in settings.INSTALLED_APPS)


def named(names: Sequence[str], lanes: Sequence[str] = ()) -> tuple[Task, ...]:
    """Return the tasks of these names and lanes, in the order of the timetable; without names, or lanes, those of all.

    Raises:
        ValueError: the timetable has no task of a name.
    """
    known = {task.name for task in TIMETABLE}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(f"unknown task {', '.join(map(repr, unknown))}; the tasks are {', '.join(sorted(known))}")
    return tuple(task for task in TIMETABLE if (not names or task.name in names) and (not lanes or task.lane in lanes))


def how_often(task: Task) -> str:
    """When a task is due, for people."""
    return {SOON_S: "every 5 seconds", MINUTE_S: "every minute", HOUR_S: "every hour", DAY_S: "every day"}[task.every_s]


def performer(task: Task) -> str:
    """Return who runs a task, in words."""
    return "every worker" if task.by_every_worker else "one worker"
