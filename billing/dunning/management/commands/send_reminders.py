"""`manage.py send_reminders`: remind of overdue invoices, and resume subscriptions whose invoices are paid."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.dunning.reminding import remind_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 4


def _count() -> int:
    due = remind_due(dry_run=True)
    return due.reminded + due.resumed


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each step of an invoice happens once."""

    help = (
        "Remind of overdue invoices by the steps of their seller, with a fee and a suspension by choice. It also resumes "
        "subscriptions whose overdue invoices are paid. Exit codes: 0 done, 4 some were busy or failed and are tried by the next "
        "run, 130 or 143 a signal ended the command after its current invoice."
    )
    examples = (
        ("send_reminders", "remind of all invoices with a step that is due"),
        ("send_reminders --dry-run", "count them and write nothing"),
        ("send_reminders --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the reminders that are due and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Remind, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(received, self.stderr, options, "Reminding", "invoices", _count) as stop,
        ):
            counts = remind_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if counts.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(counts) | {"exit_code": code}, indent=2))
        else:
            note = " Nothing was written (dry run)." if dry_run else ""
            self.stdout.write(
                f"{counts.reminded:,} reminders, {counts.resumed:,} resumed, {counts.failed:,} busy or failed.{note}"
            )
        if code != DONE:
            sys.exit(code)
