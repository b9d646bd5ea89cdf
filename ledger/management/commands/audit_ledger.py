"""`manage.py audit_ledger`: check every law over the whole ledger, and write or check an anchor."""

import json
import sys
from argparse import ArgumentParser
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import CommandError, OutputWrapper
from django.db import Error, connections

from ledger.audit.anchors import AnchorUnreadable
from ledger.audit.auditing import audit_ledger
from ledger.audit.reports import Report
from ledger.audit.sessions import connector
from ledger.errors import Invalid
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger.records import check
from ledger.values import Holder

FOUND_SOMETHING = 1
BAD_ARGUMENTS = 2


class Command(CommandWithExamples):
    """Reads the whole ledger in one read-only snapshot while writers continue; changes nothing in the database."""

    help = (
        "Check every law of the ledger: gapless numbers, balances, lots, burn order, holds, refunds, transfers, digests, "
        "refusals, and the sum of all credits. Exit codes: 0 clean, 1 violations found, 2 bad arguments, invalid anchor or "
        "unreadable ledger."
    )
    examples = (
        ("audit_ledger", "check the whole ledger"),
        ("audit_ledger --holder jane", "check one holder"),
        (
            "audit_ledger --anchor-check monday --anchor-write tuesday",
            "daily: compare with an earlier anchor and write the next one",
        ),
        ("audit_ledger --format json --workers 4", "the report for programs, by four parallel sessions"),
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--holder", help="audit only this holder")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
        parser.add_argument(
            "--anchor-write",
            type=Path,
            metavar="FILE",
            help="write the last digest of each account to a new file if the ledger is clean",
        )
        parser.add_argument("--anchor-check", type=Path, metavar="FILE", help="compare the ledger with an earlier anchor")
        parser.add_argument("--workers", type=int, default=2, help="number of parallel sessions, 1 to 32 (default: %(default)s)")
        parser.add_argument(
            "--findings",
            type=int,
            default=100,
            help="list at most this many findings per law; the report counts all (default: %(default)s)",
        )
        parser.add_argument("--database", default="default", help="default: %(default)s")

    def handle(self, *, format: str, **options: Any) -> None:  # noqa: A002
        """Print the report; exit 1 if the audit found violations."""
        _check(options)
        # Checks the database, which the audit's own sessions do not do. If it is away, they report that.
        with suppress(Error):
            connections[options["database"]].ensure_connection()
        try:
            report = _audit_all(self.stderr, options)
        except (AnchorUnreadable, OSError) as error:
            raise CommandError(str(error), returncode=BAD_ARGUMENTS) from error
        except psycopg.Error as error:
            raise CommandError(f"The audit cannot read the ledger: {str(error).strip()}", returncode=BAD_ARGUMENTS) from error
        if options["holder"] is not None and not report.accounts + report.refusals:
            raise CommandError(f"--holder: holder {options['holder']!r} does not exist", returncode=BAD_ARGUMENTS)
        self.stdout.write(json.dumps(report.as_json(), indent=2) if format == "json" else report.as_text())
        if not report.is_clean:
            sys.exit(FOUND_SOMETHING)


def _check(options: dict[str, Any]) -> None:
    if not 1 <= options["workers"] <= 32:
        raise CommandError("--workers must be 1 .. 32", returncode=BAD_ARGUMENTS)
    if not 0 <= options["findings"] <= 100_000:
        raise CommandError("--findings must be 0 .. 100000", returncode=BAD_ARGUMENTS)
    if options["anchor_write"] and options["anchor_write"].exists():
        raise CommandError(f"{options['anchor_write']} exists; the audit never overwrites an anchor", returncode=BAD_ARGUMENTS)
    if options["holder"] and options["anchor_write"]:
        raise CommandError("--anchor-write covers all holders; omit --holder", returncode=BAD_ARGUMENTS)
    try:
        if options["holder"] is not None:
            check(Holder(), options["holder"], "/holder_id")
    except Invalid as error:
        raise CommandError(f"--holder {error.facts['detail']}", returncode=BAD_ARGUMENTS) from error


def _audit_all(stderr: OutputWrapper, options: dict[str, Any]) -> Report:
    connect = partial(connector, options["database"])
    of_all = {
        "anchor_to_write": options["anchor_write"],
        "anchor_to_check": options["anchor_check"],
        "findings_kept": options["findings"],
    }
    with progress_of(stderr, options, "Auditing", "entries") as progress:
        return audit_ledger(connect, options["workers"], holder_id=options["holder"], progress=progress, **of_all)
