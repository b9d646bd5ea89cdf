"""`manage.py usage_partitions`: make the usage table's partitions for this month and the coming ones; drop billed ones."""

import argparse
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import CommandError
from django.db import connection, transaction

from billing.metering import partitions
from ledger.management import arguments
from ledger.management.examples import CommandWithExamples

KEPT_MONTHS = 4


class Command(CommandWithExamples):
    """Each month is a separate transaction; the command can run again at any time, such as daily."""

    help = "Create the usage table's partitions for this and the coming months; list them, or drop a billed month."
    examples = (
        ("usage_partitions", "create this month's and the coming ones"),
        ("usage_partitions --list --format json", "list them, for programs"),
        ("usage_partitions --drop 2026-01", "drop a billed month"),
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--ahead", type=int, default=3, metavar="MONTHS", help="create this many months after the next month (3)"
        )
        parser.add_argument("--drop", type=arguments.month, metavar="YYYY-MM", help="drop this month if all its usage is billed")
        parser.add_argument("--list", action="store_true", help="list the partitions and change nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, **given: Any) -> None:
        """Create or drop partitions, and show them."""
        if given["drop"]:
            with self.owner() as owner:
                self._drop(owner, given["drop"])
        elif not given["list"]:
            self._make(given["ahead"])
        found = partitions.partitions(connection)
        if given["format"] == "json":
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=2))
            return
        for one in found:
            self.stdout.write(f"{one.name}  {one.bounds}  {one.size_bytes / 1e6:.1f} MB  about {max(one.rows, 0)} events")

    def owner(self) -> AbstractContextManager[Any]:
        """Return the connection of the tables' owner: only the owner may drop a partition. A project may have one role only."""
        return nullcontext(connection)

    def _make(self, ahead: int) -> None:
        this_month = datetime.now(UTC).date().replace(day=1)
        for step in range(ahead + 2):
            try:
                partitions.make_month(connection, partitions.month_after(this_month, step))
            except partitions.MonthInDefault as error:
                # This is no fault: such events are counted and billed as all others.
                self.stderr.write(f"{error}: the default partition already contains events of this month; they stay there.")

    def _drop(self, owner: Any, month: date) -> None:
        oldest_kept = partitions.month_after(datetime.now(UTC).date().replace(day=1), -KEPT_MONTHS)
        if month > oldest_kept:
            raise CommandError(f"{month:%Y-%m} can still get late usage; {oldest_kept:%Y-%m} is the newest month you can drop")
        if partitions.name_of(month) not in {one.name for one in partitions.partitions(owner)}:
            raise CommandError(f"partition {partitions.name_of(month)} does not exist")
        try:
            with transaction.atomic(using=owner.alias):
                partitions.drop_month(owner, month)
        except partitions.MonthNotBilled as error:
            raise CommandError(f"the month has unbilled usage: {error}") from error
