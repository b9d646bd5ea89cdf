"""`manage.py shadow_report`: how many observed accounts differ, and the first difference of each."""

import json
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from ledger.management.examples import CommandWithExamples
from ledger.shadow.reads import DIFFERENT, ObservedAccount, StateCount, accounts, counts

SOME_DIFFER: Final = 1


class Command(CommandWithExamples):
    """Reads without locks."""

    help = (
        "Count the observed accounts that agree with the ledger's decisions, differ, or were promoted; say for each that differs "
        "the first decision that does. Exit codes: 0 no account differs, 1 some do, 2 bad arguments."
    )
    examples = (
        ("shadow_report", "the numbers, and the first 20 accounts that differ"),
        ("shadow_report --limit 1000 --format json", "up to 1,000 of them, for a program"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument(
            "--limit", type=int, default=20, metavar="N", help="how many accounts, 1 to 10,000; default: %(default)s"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, limit: int, **options: Any) -> None:
        """Print the report."""
        if not 1 <= limit <= 10_000:
            raise CommandError("--limit must be 1 .. 10,000", returncode=2)
        found, different = counts(), accounts(state=DIFFERENT, limit=limit)
        self.stdout.write(_as_json(found, different) if options["format"] == "json" else _as_text(found, different))
        if found[DIFFERENT].accounts:
            raise SystemExit(SOME_DIFFER)


def _as_json(found: dict[str, StateCount], different: list[ObservedAccount]) -> str:
    numbers = {state: count._asdict() for state, count in found.items()}
    return json.dumps({"accounts": numbers, "different": [each.shown() for each in different]}, indent=2)


def _as_text(found: dict[str, StateCount], different: list[ObservedAccount]) -> str:
    words = {"same": "agree with the ledger", "different": "differ", "promoted": "are promoted"}
    lines = [
        f"{found[state].accounts:>12,} accounts {text}, of {found[state].observations:,} observations"
        for state, text in words.items()
    ]
    for each in different:
        first = each.first
        if first is not None:
            more = "" if each.differences == 1 else f" ({each.differences:,} differ)"
            key = f"{first.idempotency_key}, {first.occurred_at:%Y-%m-%d %H:%M:%S}"
            lines.append(f"{each.holder_id}, {each.credit_type}: {first.text} {key}{more}")
    rest = found["different"].accounts - len(different)
    return "\n".join([*lines, *([f"{rest:,} more differ: --limit shows them."] if rest > 0 else [])])
