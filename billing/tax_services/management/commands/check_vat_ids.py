"""`manage.py check_vat_ids`: look up again the VAT ids about which VIES gave no answer, or none for a month."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.tax_services.checking import PER_MINUTE, check_due
from ledger import conf
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; they share what is due, and how much may be asked in a minute."""

    help = (
        "Look up VAT ids of customers in VIES: those about which it gave no answer, those that nobody has looked up, and each "
        f"one a month after its last answer. All machines together ask about {PER_MINUTE} ids a minute. Without "
        "LEDGER_VIES_URL the command does nothing. Exit codes: 0 done, 3 some had no answer or failed, and are tried again "
        "later, 130 or 143 a signal ended the command after its current VAT id."
    )
    examples = (
        ("check_vat_ids", "look up what is due"),
        ("check_vat_ids --dry-run", "count it and ask nobody"),
        ("check_vat_ids --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count what is due, and ask nobody")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Look them up, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Looking up", "VAT ids", lambda: check_due(dry_run=True).due
            ) as stop,
        ):
            counts = check_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if counts.unavailable or counts.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(counts) | {"exit_code": code}, indent=2))
        elif not conf.VIES_URL.value:
            self.stdout.write("This deployment looks no VAT ids up: LEDGER_VIES_URL is not set.")
        elif dry_run:
            self.stdout.write(f"{counts.due:,} due. Nobody was asked (dry run).")
        else:
            self.stdout.write(
                f"{counts.due:,} looked up: {counts.valid:,} valid, {counts.invalid:,} invalid, {counts.unavailable:,} without "
                f"an answer, {counts.failed:,} failed; those are tried again later."
            )
        if code != DONE:
            sys.exit(code)
