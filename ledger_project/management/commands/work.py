"""`manage.py work`: run the tasks of the timetable when they are due, beside any number of other workers."""

import argparse
import json
import sys
from typing import Any

from django.core.management.base import CommandError

from ledger.management.examples import CommandWithExamples
from ledger_project.work.timetable import TIMETABLE, Lane, how_often, named, performer
from ledger_project.work.worker import DatabaseGone, Worker


class Command(CommandWithExamples):
    """Runs until SIGINT or SIGTERM, then completes the current subscription or account."""

    help = (
        "Run the tasks of the timetable when they are due: expire credits, generate invoices, send signals, audit. Each turn of "
        "a task is a process with a limited time, so a receiver or provider that does not answer delays no other task. "
        "Any number of workers may run at once, on any number of machines. Exit codes: 0 stopped by a signal, 1 the database was "
        "unreachable for several rounds, 2 bad arguments."
    )
    examples = (
        ("work", "do the tasks of the timetable as they become due"),
        ("work --lane money --lane upkeep", "on a machine that reaches nobody outside"),
        ("work --lane outbound", "on the machine that does"),
        ("work --once", "do the due tasks now, for your own timer"),
        ("work usage_partitions audit_ledger", "only these tasks"),
        ("work --list --format json", "the timetable, for programs"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("task", nargs="*", help="run only these tasks, such as usage_partitions; default: all")
        parser.add_argument(
            "--lane", action="append", choices=[lane.value for lane in Lane], default=[],
            help="run only the tasks of this lane; may be given several times; default: all lanes",
        )  # fmt: skip
        parser.add_argument("--once", action="store_true", help="run the tasks that are due now and exit, for use with a timer")
        parser.add_argument("--list", action="store_true", help="show the timetable and run nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="of --list; default: %(default)s")

    def handle(self, *args: Any, **given: Any) -> None:
        """Work, or show the timetable."""
        if given["list"]:
            self._list(given["format"])
            return
        try:
            tasks = named(given["task"], given["lane"])
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        if not tasks:
            raise CommandError(f"no task of {', '.join(given['task'])} is in that lane", returncode=2)
        worker = Worker(tasks)
        with worker.stopped_by_signals():
            try:
                worker.run_once() if given["once"] else worker.run()
            except DatabaseGone:
                sys.exit(1)

    def _list(self, form: str) -> None:
        if form == "json":
            tasks = [
                {
                    "task": task.name, "lane": task.lane, "every_seconds": task.every_s, "by": performer(task), "what": task.what,
                }
                for task in TIMETABLE
            ]  # fmt: skip
            self.stdout.write(json.dumps(tasks, indent=2))
            return
        for task in TIMETABLE:
            self.stdout.write(f"{task.name:28} {how_often(task):13} {performer(task):13} {task.lane:9} {task.what}")
