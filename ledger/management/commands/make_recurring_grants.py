"""`manage.py make_recurring_grants`: make the recurring grants that are due."""

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import stop_with_progress
from ledger.services.recurring_grants import RecurringSummary, grant_all_due
from ledger.units import in_units

DONE, SOME_FAILED, ONLY_BUSY_LEFT = 0, 3, 4
FAILURES_SHOWN = 20


class Command(CommandWithExamples):
    """Any number of these commands may run at the same time, on any machines; a late run leaves what a run in time would have."""

    help = (
        "Make the recurring grants that are due, each in a short transaction: every period as of its start, missed periods too. "
        "The command skips busy holders and retries them at the end. Exit codes: 0 done, 3 some accounts failed, 4 only busy "
        "accounts left, 130 or 143 a signal ended the command after its current period."
    )
    examples = (
        ("make_recurring_grants", "make all grants that are due"),
        ("make_recurring_grants --dry-run", "count the recurring grants that are due and write nothing"),
        ("make_recurring_grants --format json", "the summary for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--dry-run", action="store_true", help="count the recurring grants that are due and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        """Make the grants, print the summary, and exit with the code that `help` explains."""
        with (
            collect_end_signals() as received,
            stop_with_progress(
                received, self.stderr, options, "Making", "grants", lambda: grant_all_due(dry_run=True).due
            ) as stop,
        ):
            summary = grant_all_due(dry_run=dry_run, stop=stop)
        code = SIGNALLED + received[0] if received else _exit_code(summary)
        if options["format"] == "json":
            self.stdout.write(json.dumps({"dry_run": dry_run} | asdict(summary) | {"exit_code": code}, indent=2))
        else:
            self.stdout.write(_as_text(summary, dry_run=dry_run))
        if code != DONE:
            sys.exit(code)


def _exit_code(summary: RecurringSummary) -> int:
    if summary.failed:
        return SOME_FAILED
    return ONLY_BUSY_LEFT if summary.busy else DONE


def _as_text(summary: RecurringSummary, *, dry_run: bool) -> str:
    """Return the summary for people."""
    if dry_run:
        return f"{_count_text(summary.due, 'recurring grant')} due. Nothing was written (dry run)."
    lines = [
        f"Granted {in_units(summary.granted_by_type)} for {_count_text(summary.periods, 'period')} in {summary.seconds:.1f} s. "
        f"Revoked beyond what rolls over: {in_units(summary.revoked_by_type)}."
        if summary.periods or summary.skipped
        else f"Nothing is due: looked in {summary.seconds:.1f} s."
    ]
    lines += [f"Skipped {_count_text(summary.skipped, 'period')} that had left nothing by now."] if summary.skipped else []
    lines += [f"{_count_text(summary.busy, 'account')} busy; the next run grants to them."] if summary.busy else []
    lines += [f"Failed: {failure}" for failure in summary.failures[:FAILURES_SHOWN]]
    if len(summary.failures) > FAILURES_SHOWN:
        lines.append(f"… and {len(summary.failures) - FAILURES_SHOWN} more")
    return "\n".join(lines)


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
