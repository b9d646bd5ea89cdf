"""`manage.py expire_subscriptions`: expire the orders whose first invoice was not paid in time."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.generator.activations import expire_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 4


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each order expires once."""

    help = (
        "Expire subscriptions that were to start when their first invoice is paid, and were not paid in time: the invoice is "
        "voided, and what it used is given back. Exit codes: 0 done, 4 some were busy or failed and are tried by the next run, "
        "130 or 143 a signal ended the command after its current subscription."
    )
    examples = (
        ("expire_subscriptions", "expire all orders whose time is over"),
        ("expire_subscriptions --dry-run", "count them and write nothing"),
        ("expire_subscriptions --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the orders whose time is over and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Expire them, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Expiring", "orders", lambda: expire_due(dry_run=True).expired
            ) as stop,
        ):
            outcome = expire_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if outcome.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(outcome) | {"exit_code": code}, indent=2))
        else:
            note = " Nothing was written (dry run)." if dry_run else ""
            self.stdout.write(f"{outcome.expired:,} expired, {outcome.failed:,} busy or failed.{note}")
        if code != DONE:
            sys.exit(code)
