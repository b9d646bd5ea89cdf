"""`manage.py update_totals`: add new entries to the totals of their days, and close the months that are over."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from ledger.errors import LockBusy
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger.totals.closing import TotalsDisagree, close_months
from ledger.totals.counting import count_entries

DONE, DISAGREE, HELD_UP = 0, 1, 4


class Command(CommandWithExamples):
    """One process at a time counts. A run costs as much as there is to count, and a late run is harmless."""

    help = (
        "Add new entries to the totals of their days, and close each month that has ended: then its "
        "report (manage.py ledger_report) never changes. Exit codes: 0 done, 1 a month's totals and the accounts disagree "
        "(the month stays open; run audit_ledger), 4 another process is counting, or a transaction that may still write an "
        "earlier entry is open; the next run continues."
    )
    examples = (
        ("update_totals", "count new entries, and close the months that have ended"),
        ("update_totals --format json", "for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--no-progress", action="store_true", help="show no progress bar")

    def handle(self, **options: Any) -> None:
        """Count, close, report the progress, and exit with a code of `help`."""
        try:
            with progress_of(self.stderr, options, "Counting", "hours") as progress:
                counted = count_entries(progress=progress)
            closed = close_months()
        except LockBusy:
            self.stderr.write("Another process is counting.")
            sys.exit(HELD_UP)
        except TotalsDisagree as error:
            self.stderr.write(str(error))
            sys.exit(DISAGREE)
        months = [f"{month:%Y-%m}" for month in closed]
        if options["format"] == "json":
            values = {"counted_until": counted.until.isoformat(), "held_up": counted.is_held_up, "closed": months}
            self.stdout.write(json.dumps(values, indent=2))
        else:
            closing = f"; closed {', '.join(months)}" if months else ""
            self.stdout.write(f"Entries are counted up to {counted.until:%Y-%m-%d %H:%M:%S} UTC{closing}.")
            if counted.is_held_up:
                self.stdout.write("A transaction that may still write an earlier entry is open; the next run continues.")
        if counted.is_held_up:
            sys.exit(HELD_UP)
