"""`manage.py top_up_accounts`: start payments for accounts that have run low."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.payments.topup_checks import top_up_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each account is topped up by one. Asks no provider."""

    help = (
        "Look for accounts that have run below the threshold of their top-up, and record a payment for each; `collect_payments` "
        "asks the provider for it. Exit codes: 0 done, 3 some failed and are tried again later, 130 or 143 a signal ended the "
        "command after its current account."
    )
    examples = (
        ("top_up_accounts", "start what is due"),
        ("top_up_accounts --dry-run", "count the accounts that may be low"),
        ("top_up_accounts --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count accounts that may be low, and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Start them, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Checking", "accounts", lambda: top_up_due(dry_run=True).low
            ) as stop,
        ):
            counts = top_up_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if counts.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(counts) | {"exit_code": code}, indent=2))
        else:
            end = "Nothing was written (dry run)." if dry_run else f"{counts.failed:,} failed; they are tried again later."
            self.stdout.write(f"{counts.low:,} accounts may be low, {counts.started:,} topped up. {end}")
        if code != DONE:
            sys.exit(code)
