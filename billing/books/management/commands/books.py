"""`manage.py books`: a month of deferred revenue, or its journal."""

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.books import datev, journal
from billing.books.journal import AccountMap
from billing.books.roll_forward import LINES, Book, book_of, deferred_at
from ledger.errors import Invalid
from ledger.management import arguments
from ledger.management.examples import CommandWithExamples
from ledger.management.files import whole_file
from ledger.months import month_before
from ledger.operators.additions import money
from ledger.records import shape_of
from ledger.values import FieldError

JOURNALS = {
    "journal": lambda book, accounts: journal.as_csv(book, accounts).encode(),
    "beancount": lambda book, accounts: journal.as_beancount(book, accounts).encode(),
    "datev": datev.as_datev,
}
MOST_BYTES = 64 * 1024
WIDTH = 36


class Command(CommandWithExamples):
    """Reads what the worker has counted and closed; writes nothing to the database."""

    help = (
        "Show the deferred and recognised revenue of sold credits in a month. From opening to closing in UTC, by credit type and "
        "currency, with breakage and revocations. A closed month gives the same bytes every time, and has a "
        "journal: as CSV, as a file for beancount 3, or as a batch of postings for DATEV. Exit codes: 0 done, 2 no such month, "
        "not closed, or a wrong map of accounts."
    )
    examples = (
        ("books", "the last month that has ended"),
        ("books --month 2026-10 --format csv", "October, for a spreadsheet"),
        ("books --month 2026-10 --format beancount --output 2026-10.beancount", "its journal, which beancount checks"),
        ("books --month 2026-10 --format datev --accounts accounts.json --output EXTF_credits.csv", "its journal for DATEV"),
        ("books --at 2026-10-15T12:00:00Z", "deferred revenue at an instant"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--month", type=arguments.month, metavar="YYYY-MM", help="default: the last month that has ended")
        parser.add_argument(
            "--at", type=arguments.instant, metavar="INSTANT", help="deferred revenue at this instant instead of a month"
        )
        parser.add_argument("--format", choices=("text", "json", "csv", *JOURNALS), default="text", help="default: %(default)s")
        parser.add_argument("--accounts", type=Path, metavar="JSON", help="the accounts of a journal: docs/explanation/books.md")
        parser.add_argument("--output", type=Path, metavar="FILE", help="write this file; default: standard output")

    def handle(self, **options: Any) -> None:
        """Write the book, or the journal."""
        try:
            written = self._write_files(**options)
        except Invalid as invalid:
            raise CommandError(f"{invalid.facts['pointer'][1:]}: {invalid.facts['detail']}", returncode=2) from invalid
        if options["output"] is not None:
            with whole_file(options["output"]) as part:
                part.write_bytes(written)
        elif options["format"] == "datev":
            sys.stdout.buffer.write(written)
        else:
            self.stdout.write(written.decode(), ending="")

    def _write_files(self, *, month: date | None, at: datetime | None, format: str, accounts: Path | None, **_: Any) -> bytes:  # noqa: A002
        if at is not None:
            return _deferred_text(at).encode()
        book = book_of(month or month_before(datetime.now(UTC).date()))
        if format in JOURNALS:
            return JOURNALS[format](book, AccountMap() if accounts is None else _account_map(accounts))
        return {"text": _text, "json": Book.as_json, "csv": Book.as_csv}[format](book).encode()


def _account_map(path: Path) -> AccountMap:
    try:
        with path.open("rb") as file:
            given = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as JSON: {error}", returncode=2) from error
    if not isinstance(given, dict):
        raise CommandError(f"{path} must contain one JSON object", returncode=2)
    shape, wrong = shape_of(AccountMap), list[FieldError]()
    fields = shape.take(given, "", wrong)
    if wrong:
        raise CommandError(f"{path}: {wrong[0].pointer.removeprefix('/')}: {wrong[0].detail}", returncode=2)
    return shape.make(fields)


def _text(book: Book) -> str:
    state = "closed" if book.as_of is None else f"open, as of {book.as_of:%Y-%m-%d %H:%M:%S} UTC"
    parts = [f"Books of {book.month:%Y-%m}, {state}"]
    for section in book.sections:
        amounts = [("Deferred at the start", section.opening_minor)]
        amounts += [(LINES[name], minor) for name, minor in section.lines.items()]
        amounts += [(f"{LINES[name]}, late: of closed months", minor) for name, minor in section.late.items()]
        amounts += [("Deferred at the end", section.closing_minor)]
        amounts += [(f"  expires {each.expires}", each.closing_minor) for each in section.by_expiry if each.closing_minor]
        lines = [f"  {name:<{WIDTH}} {money(minor, section.currency):>24}" for name, minor in amounts]
        parts.append("\n".join([f"\n{section.credit_type}, {section.currency}", *lines]))
    return "\n".join(parts) + "\n"


def _deferred_text(at: datetime) -> str:
    lines = [f"Deferred at {at:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [
        f"  {f'{each.credit_type}, expires {each.expires}':<{WIDTH}} {money(each.deferred_minor, each.currency):>24}"
        for each in deferred_at(at)
    ]
    return "\n".join(lines) + "\n"
