"""`manage.py deliver_mails`: hand the waiting mails with documents to the mail server."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.dunning.delivery import deliver_due
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each mail is handed over once."""

    help = (
        "Hand the waiting mails with documents to the mail server (EMAIL_URL). A mail that the server refuses for now is tried "
        "again later, for about three days. Exit codes: 0 done, 3 some mails failed, 130 or 143 a signal ended the command after "
        "its current mail."
    )
    examples = (
        ("deliver_mails", "try all mails that are due"),
        ("deliver_mails --dry-run", "count them, and send nothing"),
        ("deliver_mails --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the mails that are due and send nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Try them, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(received, self.stderr, options, "Sending", "mails", lambda: deliver_due(dry_run=True).due) as stop,
        ):
            outcome = deliver_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if outcome.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(outcome) | {"exit_code": code}, indent=2))
        elif dry_run:
            self.stdout.write(f"{outcome.due:,} due. Nothing was sent (dry run).")
        else:
            self.stdout.write(f"{outcome.due:,} due, {outcome.sent:,} sent, {outcome.failed:,} failed.")
        if code != DONE:
            sys.exit(code)
