"""The timetable of all workers: which tasks are due, how often, and who runs them. docs/OPERATIONS.md shows it.

Tasks of every worker share their work by skipping what is locked or done. A task of one worker is taken by the first that comes
when it is due; `billing_scheduledtask` keeps when that is. Both are safe on any number of machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Task:
    """A command that workers run repeatedly.

    Args:
        command, arguments: as after `manage.py`.
        every_s: how long after one start the next one is due.
        by_every_worker: each worker does it; else one of them at a time, on whichever machine.
        retry_s: of a task of one worker: how long after its worker's last sign of life it is due again, if it failed or the
            worker ended in the middle.
        passing: exit codes beside 0 that the next run makes good.
        what: for the reader of the timetable.
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
"""Some failed, or only busy ones are left: see `expire_credits` and `generate_invoices`."""

TIMETABLE: Final = (
    Task("expire_credits", "Book credits and holds that have expired", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("generate_invoices", "Generate the due invoices", MINUTE_S, by_every_worker=True, passing=SOME_LEFT),
    Task("update_totals", "Add new entries to the totals of days, and close months that are over", MINUTE_S, passing=SOME_LEFT),
    Task("usage_partitions", "Create the usage table's coming partitions", DAY_S),
    Task("audit_ledger", "Check every law of the ledger", DAY_S),
    Task("generate_invoices", "Check that billing is consistent", DAY_S, arguments=("--check",)),
)


def named(names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of these names, all where none is given, in the order of the timetable.

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
    return {MINUTE_S: "every minute", HOUR_S: "every hour", DAY_S: "every day"}[task.every_s]


def performer(task: Task) -> str:
    """Who does a task."""
    return "every worker" if task.by_every_worker else "one worker"
