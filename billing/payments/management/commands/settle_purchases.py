"""`manage.py settle_purchases`: add the credits of purchases, and revoke those of returned money, where that failed before."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.payments.due_purchases import settle_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each purchase is settled once."""

    help = (
        "Add the credits of paid purchases where the first try failed. It also revokes what returned money had bought. "
        "Each purchase is a short transaction, and is tried again later if it fails. Exit codes: 0 done, 3 some purchases "
        "failed, 130 or 143 a signal ended the command after its current purchase."
    )
    examples = (
        ("settle_purchases", "try all purchases that are due"),
        ("settle_purchases --dry-run", "count them and write nothing"),
        ("settle_purchases --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the purchases that are due and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Try them, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Settling", "purchases", lambda: settle_due(dry_run=True).due
            ) as stop,
        ):
            counts = settle_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if counts.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(counts) | {"exit_code": code}, indent=2))
        elif dry_run:
            self.stdout.write(f"{counts.due:,} due. Nothing was written (dry run).")
        else:
            self.stdout.write(
                f"{counts.due:,} due, {counts.settled:,} settled, {counts.failed:,} failed; they are tried again later."
            )
        if code != DONE:
            sys.exit(code)
