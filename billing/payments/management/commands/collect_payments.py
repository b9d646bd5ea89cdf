"""`manage.py collect_payments`: ask providers about open payments, send refunds, and handle events that are waiting."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from billing.payments.due_intents import advance_due
from billing.payments.providers.configured import load_packages
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, BAD_ARGUMENTS, SOME_FAILED = 0, 2, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; they share what is due."""

    help = (
        "Collect payments from their providers. It asks about payment intents that are due, sends refunds, handles events that "
        "are still to be handled, and records what the providers say. Exit codes: 0 done, 2 bad arguments, 3 some failed and "
        "are tried again later, "
        "130 or 143 a signal ended the command after its current steps."
    )
    examples = (
        ("collect_payments", "take all further that is due"),
        ("collect_payments --stay --workers 4", "and what becomes due, until a signal ends the command"),
        ("collect_payments --dry-run", "count it and ask nobody"),
        ("collect_payments --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count what is due, and ask nobody")
        parser.add_argument("--stay", action="store_true", help="go on looking for what becomes due, until a signal comes")
        parser.add_argument(
            "--workers", type=int, default=1, metavar="N",
            help="at most how many answers of providers to wait for at the same time, 1 to 32 (default: %(default)s)",
        )  # fmt: skip
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def load(self) -> None:
        load_packages()

    def handle(self, *, dry_run: bool, stay: bool, workers: int, **options: Any) -> None:
        """Take all further, print the summary, and exit with the code that `help` explains."""
        if not 1 <= workers <= 32:
            raise CommandError("--workers must be 1 .. 32", returncode=BAD_ARGUMENTS)
        if stay and dry_run:
            raise CommandError("--stay and --dry-run exclude each other", returncode=BAD_ARGUMENTS)
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received,
                self.stderr,
                options | {"no_progress": stay},
                "Collecting",
                "payments",
                lambda: advance_due(dry_run=True).due,
            ) as stop,
        ):
            sums = advance_due(dry_run=dry_run, stop=stop, workers=workers, stays=stay)
        code = SIGNALLED + received[0] if received else SOME_FAILED if sums.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(sums) | {"exit_code": code}, indent=2))
        else:
            counts = f"{sums.events:,} events, {sums.intents:,} payments and {sums.refunds:,} refunds due"
            end = "Nobody was asked (dry run)." if dry_run else f"{sums.failed:,} failed; they are tried again later."
            self.stdout.write(f"{counts}. {end}")
        if code != DONE:
            sys.exit(code)
