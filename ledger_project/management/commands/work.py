"""`manage.py work`: do what the timetable says, again and again, together with any number of other workers."""

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger_project.timetable import TIMETABLE, named
from ledger_project.worker import DatabaseGone, Worker


class Command(BaseCommand):
    """Runs until SIGINT or SIGTERM, and then finishes the subscription or account that it is at."""

    help = (
        "Do the tasks of the timetable as they become due: expire credits, make invoices, make the usage table's months, audit, "
        "check. Any number of these may run at once, on any number of machines. Exit codes: 0 told to stop, 1 the database was "
        "gone for several rounds, 2 arguments."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take which tasks, and whether to go on."""
        parser.add_argument("task", nargs="*", help="only these, such as usage_partitions; all by default")
        parser.add_argument("--once", action="store_true", help="do what is due now and end, for a timer of your own")
        parser.add_argument("--list", action="store_true", help="show the timetable and do nothing")

    def handle(self, *args: Any, **given: Any) -> None:
        """Work, or show the timetable."""
        if given["list"]:
            for task in TIMETABLE:
                who = "every worker" if task.by_every_worker else "one worker"
                self.stdout.write(f"{task.name:28} every {task.every_s:>6} s  {who:13} {task.what}")
            return
        try:
            worker = Worker(named(given["task"]))
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        with worker.told_by_signals():
            try:
                worker.do_what_is_due() if given["once"] else worker.run()
            except DatabaseGone:
                sys.exit(1)
