"""`manage.py usage_partitions`: make the usage table's partitions, this month's and those ahead; drop those that are billed."""

import argparse
from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from billing.metering import partitions
from ledger_project.serving.bootstrap import connected_as_owner

KEPT_MONTHS = 4


class Command(BaseCommand):
    """Each month is a transaction of its own; it can be run again at any time, such as daily."""

    help = "Create the usage table's partitions for this and the coming months; list them, or drop a billed month."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take how many months ahead, or which one to drop."""
        parser.add_argument(
            "--ahead", type=int, default=3, metavar="MONTHS", help="create this many months after the next month (3)"
        )
        parser.add_argument("--drop", type=_month, metavar="YYYY-MM", help="drop this month if all its usage is billed")
        parser.add_argument("--list", action="store_true", help="list the partitions and change nothing")

    def handle(self, *args: Any, **given: Any) -> None:
        """Do what is asked, and show the partitions. Dropping one takes the owner of LEDGER_OWNER_DATABASE_URL."""
        if given["drop"]:
            with connected_as_owner() as owner:
                self._drop(owner, given["drop"])
        elif not given["list"]:
            self._make(given["ahead"])
        for one in partitions.partitions(connection):
            self.stdout.write(f"{one.name}  {one.bounds}  {one.size_bytes / 1e6:.1f} MB  about {max(one.rows, 0)} events")

    def _make(self, ahead: int) -> None:
        this_month = datetime.now(UTC).date().replace(day=1)
        for step in range(ahead + 2):
            try:
                partitions.make_month(connection, partitions.month_after(this_month, step))
            except partitions.MonthInDefault as error:
                # Nothing is wrong: such events are counted and billed as all others.
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


def _month(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a month such as 2026-01") from None
