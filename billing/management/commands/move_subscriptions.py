"""`manage.py move_subscriptions`: carry out the plan moves that were ordered, subscription by subscription."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from billing.orders.plan_move_walk import carry_out
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress

DONE, SOME_FAILED = 0, 3


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time; each subscription is moved once."""

    help = (
        "Move subscriptions to the versions of their plans that were ordered. Each subscription is a short transaction; a "
        "stopped command is continued by the next one. Exit codes: 0 done, 3 some subscriptions failed and are tried again by "
        "the next command, 130 or 143 a signal ended the command after its current subscription."
    )
    examples = (
        ("move_subscriptions", "carry out all moves that are open"),
        ("move_subscriptions --dry-run", "count the subscriptions that are left and write nothing"),
        ("move_subscriptions --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the subscriptions that are left and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Move them, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Moving", "subscriptions", lambda: carry_out(dry_run=True).looked_at
            ) as stop,
        ):
            counts = carry_out(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else SOME_FAILED if counts.failed else DONE
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(counts) | {"exit_code": code}, indent=2))
        elif dry_run:
            self.stdout.write(f"{counts.looked_at:,} left. Nothing was written (dry run).")
        else:
            self.stdout.write(
                f"{counts.looked_at:,} looked at, {counts.moved:,} moved, {counts.failed:,} failed; they are tried again later."
            )
        if code != DONE:
            sys.exit(code)
