"""`manage.py expire_credits`: book expired lots and holds of accounts that have no writes."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger.services.expiration import ExpirationSummary, book_all_expirations
from ledger.units import in_units

DONE, BAD_ARGUMENTS, SOME_FAILED, ONLY_BUSY_LEFT, LIMIT_REACHED = 0, 2, 3, 4, 5
FAILURES_SHOWN = 20


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time, on any machines. A timer should run it; a late run is harmless."""

    help = (
        "Book expired lots and holds, as `expire` and `release` entries. Each account is a short transaction. The command skips "
        "busy holders and retries them at the end. Exit codes: 0 done, 2 bad arguments, 3 some accounts failed, 4 only busy "
        "accounts left, 5 limit reached, 130 or 143 a signal ended the command after its current accounts."
    )
    examples = (
        ("expire_credits", "book all expired lots and holds"),
        ("expire_credits --dry-run", "count the due accounts and write nothing"),
        ("expire_credits --workers 4 --format json", "by four parallel sessions, the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--limit", type=int, metavar="N", help="book at most N accounts")
        parser.add_argument("--dry-run", action="store_true", help="count the due accounts and write nothing")
        parser.add_argument(
            "--workers", type=int, default=1, metavar="N", help="number of parallel sessions, 1 to 32 (default: %(default)s)"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--no-progress", action="store_true", help="show no progress bar")

    def handle(self, *, limit: int | None, workers: int, **options: Any) -> None:
        """Book the due accounts, print the summary, and exit with the code that `help` explains."""
        if limit is not None and limit < 1:
            raise CommandError("--limit must be 1 or more", returncode=BAD_ARGUMENTS)
        if not 1 <= workers <= 32:
            raise CommandError("--workers must be 1 .. 32", returncode=BAD_ARGUMENTS)
        with collect_end_signals() as received, progress_of(self.stderr, options, "Expiring", "accounts") as progress:
            summary = book_all_expirations(
                limit=limit,
                dry_run=options["dry_run"],
                workers=workers,
                progress=lambda so_far: progress(so_far.booked + so_far.nothing_left + so_far.failed, so_far.due),
                stop=lambda: bool(received),
            )
        code = SIGNALLED + received[0] if received else _exit_code(summary)
        if options["format"] == "json":
            values = {"dry_run": options["dry_run"]} | asdict(summary) | {"exit_code": code}
            self.stdout.write(json.dumps(values, indent=2))
        else:
            self.stdout.write(_as_text(summary, dry_run=options["dry_run"]))
        if code != DONE:
            sys.exit(code)


def _exit_code(summary: ExpirationSummary) -> int:
    if summary.failed:
        return SOME_FAILED
    if summary.busy:
        return ONLY_BUSY_LEFT
    return LIMIT_REACHED if summary.limit_reached else DONE


def _as_text(summary: ExpirationSummary, *, dry_run: bool) -> str:
    """Return the summary for people."""
    if dry_run:
        credits_due = f"{in_units(summary.expired_by_type)} to expire, {in_units(summary.released_by_type)} to release"
        return f"{_accounts(summary.due)} due: {credits_due}. Nothing was written (dry run)."
    lines = [
        f"Booked {_entries(summary.entries)} for {_accounts(summary.booked)} in {summary.seconds:.1f} s. "
        f"Expired: {in_units(summary.expired_by_type)}. Released from holds: {in_units(summary.released_by_type)}."
        if summary.booked
        else f"Nothing is due: looked at {_accounts(summary.looked_at)} in {summary.seconds:.1f} s."
    ]
    lines += [f"{_accounts(summary.busy)} busy; the next run books them."] if summary.busy else []
    lines += ["The limit was reached; the next run continues."] if summary.limit_reached else []
    lines += [f"Failed: {failure}" for failure in summary.failures[:FAILURES_SHOWN]]
    if len(summary.failures) > FAILURES_SHOWN:
        lines.append(f"… and {len(summary.failures) - FAILURES_SHOWN} more")
    return "\n".join(lines)


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _accounts(count: int) -> str:
    return f"{count:,} account{'' if count == 1 else 's'}"
