"""`manage.py locks`: list the sessions that hold an advisory lock or wait for one."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from ledger.database.lock_keys import signed
from ledger.management.examples import CommandWithExamples
from ledger.reads.lock_report import SessionLock, current_locks, hint_about_hidden, known_names

COLUMNS = ("LOCK", "NUMBER", "MODE", "STATE", "FOR", "PID", "BLOCKED BY", "APPLICATION", "CLIENT", "QUERY")
QUERY_WIDTH = 60


class Command(CommandWithExamples):
    """Prints the advisory locks of this database and changes nothing. The exit code is always 0."""

    help = (
        "List the sessions that hold an advisory lock or wait for one. PostgreSQL knows a lock by its number. The command shows "
        "a name if a session's query contains it, if you give it as an argument, or (with --names) if a table contains it. FOR "
        "is the waiting time or, for a held lock, the age of its transaction."
    )
    examples = (
        ("locks", "the sessions that hold a lock or wait for one"),
        ("locks --names", "also find the names of locks that no query contains"),
        ("locks ledger/jane --format json", "match one name with the numbers, for programs"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("name", nargs="*", help="a lock name to match with the numbers, such as ledger/42")
        parser.add_argument("--names", action="store_true", help="also match the names of all holders and subscriptions")
        parser.add_argument(
            "--limit", type=int, default=100_000, help="with --names: match at most this many of each (default: %(default)s)"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--database", default="default", help="default: %(default)s")

    def handle(self, *, name: list[str], names: bool, limit: int, format: str, database: str, **options: Any) -> None:  # noqa: A002
        """Print the report."""
        found = current_locks(names=name, using=database)
        if names and any(lock.name is None for lock in found):
            found = current_locks(names=[*name, *known_names(limit=limit, using=database)], using=database)
        if format == "json":
            self.stdout.write(json.dumps([asdict(lock) for lock in found], default=str, indent=2))
        else:
            self.stdout.write(as_table(found))
            hint = hint_about_hidden(found, using=database)
            if hint:
                self.stderr.write(hint)


def as_table(locks: list[SessionLock]) -> str:
    """Return a table with one line per lock and session; the query is shortened to one line."""
    if not locks:
        return "No session holds or awaits an advisory lock."
    rows: list[tuple[str, ...]] = [COLUMNS, *map(_cells, locks)]
    if any(lock.node for lock in locks):
        rows = [(node, *row) for node, row in zip(("NODE", *(lock.node for lock in locks)), rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cells(lock: SessionLock) -> tuple[str, ...]:
    query = " ".join(lock.query.split())
    return (
        lock.name or "?",
        f"({lock.number >> 32}, {signed(lock.number & 0xFFFFFFFF, bits=32)})" if lock.two_part else str(lock.number),
        "shared" if lock.shared else "exclusive",
        "held" if lock.granted else "WAITING",
        "?" if lock.seconds is None else f"{lock.seconds:.1f} s",
        str(lock.pid),
        ", ".join(map(str, lock.blocked_by)),
        lock.application,
        lock.client or "local",
        query if len(query) <= QUERY_WIDTH else query[: QUERY_WIDTH - 1] + "…",
    )
