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
        "Run the tasks of the timetable when they are due: expire credits, generate invoices, create the usage table's "
        "partitions, audit, check. Any number of workers may run at once, on any number of machines. Exit codes: 0 stopped by a "
        "signal, 1 the database was unreachable for several rounds, 2 bad arguments."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take which tasks, and whether to go on."""
        parser.add_argument("task", nargs="*", help="run only these tasks, such as usage_partitions; default: all")
        parser.add_argument("--once", action="store_true", help="run the tasks that are due now and exit, for use with a timer")
        parser.add_argument("--list", action="store_true", help="show the timetable and run nothing")

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
