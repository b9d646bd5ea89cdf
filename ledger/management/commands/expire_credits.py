"""`manage.py expire_credits`: book what the clock has brought about for accounts that nobody writes to."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger.management.ending import SIGNALLED, ending_signals
from ledger.management.progress import progress_bar
from ledger.sweeping import Summary, sweep

DONE, BAD_ARGUMENTS, SOME_FAILED, ONLY_BUSY_LEFT, LIMIT_REACHED = 0, 2, 3, 4, 5
FAILURES_SHOWN = 20


class Command(BaseCommand):
    """Any number may run at once, on any number of machines; meant for a timer, and nothing goes wrong when it is late."""

    help = (
        "Book expired lots and holds as `expire` and `release` entries, one short transaction per account. The command skips "
        "busy holders and retries them at the end. Exit codes: 0 done, 2 bad arguments, 3 some accounts failed, 4 only busy "
        "accounts left, 5 limit reached, 130 or 143 a signal ended the command after its current accounts."
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
        """Sweep, show, and leave with the exit code that says how it went."""
        if limit is not None and limit < 1:
            raise CommandError("--limit must be 1 or more", returncode=BAD_ARGUMENTS)
        if not 1 <= workers <= 32:
            raise CommandError("--workers must be 1 .. 32", returncode=BAD_ARGUMENTS)
        shown = not options["no_progress"] and sys.stderr.isatty()
        with ending_signals() as received, progress_bar("Expiring", "accounts", shown=shown) as told:
            summary = sweep(
                limit=limit,
                dry_run=options["dry_run"],
                workers=workers,
                progress=lambda so_far: told(so_far.booked + so_far.nothing_left + so_far.failed, so_far.due),
                stop=lambda: bool(received),
            )
        code = SIGNALLED + received[0] if received else _exit_code(summary)
        figures = {"dry_run": options["dry_run"]} | asdict(summary) | {"exit_code": code}
        self.stdout.write(json.dumps(figures, indent=2) if options["format"] == "json" else _as_text(figures))
        if code != DONE:
            sys.exit(code)


def _exit_code(summary: Summary) -> int:
    if summary.failed:
        return SOME_FAILED
    if summary.busy:
        return ONLY_BUSY_LEFT
    return LIMIT_REACHED if summary.limit_reached else DONE


def _as_text(figures: dict[str, Any]) -> str:
    failures = figures.pop("failures")
    kinds = figures.pop("by_kind")
    figures["seconds"] = f"{figures['seconds']:.1f}"
    figures["entries"] = f"{figures['entries']} {dict(kinds)}" if kinds else figures["entries"]
    lines = [f"{name.replace('_', ' '):>18}: {value}" for name, value in figures.items()]
    lines += [f"failed: {failure}" for failure in failures[:FAILURES_SHOWN]]
    if len(failures) > FAILURES_SHOWN:
        lines.append(f"… and {len(failures) - FAILURES_SHOWN} more")
    return "\n".join(lines)
