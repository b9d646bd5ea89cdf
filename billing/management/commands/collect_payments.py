"""`manage.py collect_payments`: ask providers about open payments, send refunds, and handle events that are waiting."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.payments.collecting.due import advance_due
from billing.payments.topups.checking import top_up_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; they share what is due."""

    help = (
        "Top accounts up that have run low, ask the providers of payments about payment intents that are due, send refunds, and "
        "handle events that are still to be handled. Exit codes: 0 done, 3 some failed and are tried again later, 130 or 143 a "
        "signal ended the command after its current step."
    )
    examples = (
        ("collect_payments", "take all further that is due"),
        ("collect_payments --dry-run", "count it and ask nobody"),
        ("collect_payments --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count what is due, and ask nobody")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Take all further, print the summary, and exit with the code that `help` explains."""
        with collect_end_signals() as received:
            topped_up = top_up_due(dry_run=dry_run, stop=lambda: bool(received))
            found = advance_due(dry_run=dry_run, stop=lambda: bool(received))
        code = SIGNALLED + received[0] if received else SOME_FAILED if found.failed or topped_up.failed else DONE
        if options["format"] == "json":
            self.stdout.write(
                json.dumps({"dry_run": dry_run} | asdict(found) | {"top_ups": asdict(topped_up), "exit_code": code}, indent=2)
            )
        else:
            counts = f"{found.events:,} events, {found.intents:,} payments and {found.refunds:,} refunds due"
            end = "Nobody was asked (dry run)." if dry_run else f"{found.failed:,} failed; they are tried again later."
            self.stdout.write(f"{topped_up.low:,} accounts may be low, {topped_up.started:,} topped up. {counts}. {end}")
        if code != DONE:
            sys.exit(code)
