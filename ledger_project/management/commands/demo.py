"""`manage.py demo`: demo data, once."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger_project.demonstration.seeding import seed_demo


class Command(CommandWithExamples):
    """Make the demo data through the services; run again, it changes nothing."""

    help = "Make a company to look at, with three months of credits, subscriptions, invoices and payments."
    examples = (
        ("demo", "make the demo data"),
        ("demo --format json", "for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the demo data, or the missing part of it, and print its size."""
        with progress_of(self.stderr, options, "Making the demo", "parts") as progress:
            made = seed_demo(progress)
        if options["format"] == "json":
            self.stdout.write(json.dumps(asdict(made), indent=2))
        elif options["verbosity"]:
            self.stdout.write(
                f"Demo data: {made.holders} holders with {made.entries:,} entries and {made.refusals} refusals; "
                f"{made.subscriptions} subscriptions with {made.invoices} invoices, 3 months of history"
            )
