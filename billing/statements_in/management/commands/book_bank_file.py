"""`manage.py book_bank_file`: book the receipts of a bank's file for the invoices and orders that they name."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.rating.money import minor_digits
from billing.statements_in.booking import BookedFile, book, sums_of
from billing.statements_in.csv_files import COLUMNS, Profile, make_profile, read, read_profile, shipped_profiles
from billing.statements_in.formats import declared_formats, find_reader, guess_format
from billing.statements_in.models import BankReceipt
from billing.statements_in.statements import MAX_BYTES, BankFileInvalid, Statement, StatementEntry
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of

DONE, SOME_LEFT = 0, 3
LINES_SHOWN = 3


class Command(CommandWithExamples):
    """Booking a file again books nothing twice."""

    help = (
        "Book the receipts of a bank's file (MT940, MT942, camt.052, camt.053, camt.054 or CSV): each that names one invoice "
        "by its number, or one payment intent by its reference, is recorded as a payment of the invoice or buys the pack. The "
        "others are left with the reason, on the page Bank receipts of the admin. The file must agree with its own balances. "
        "A file may be booked again, and files may overlap. Exit codes: 0 done, 1 the file was refused and nothing of it was "
        "booked, 3 some are left."
    )
    examples = (
        ("book_bank_file statement.sta", "an MT940 file"),
        ("book_bank_file statement.xml --dry-run", "what would become of a camt file"),
        ("book_bank_file umsatz.csv --profile sparkasse", "a CSV file by a profile; most are found by their headings"),
        ("book_bank_file umsatz.csv --columns date=Tag amount=Betrag text=Zweck --dates %d.%m.%Y", "by its headings"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("file", type=Path, help="the bank's file")
        parser.add_argument("--form", choices=sorted(declared_formats()), help="of the file; default: what it looks like")
        names = ", ".join(profile.name for profile in shipped_profiles())
        parser.add_argument("--profile", default="", help=f"of a CSV file: a file of TOML, or one of {names}")
        parser.add_argument("--columns", nargs="+", metavar="MEANING=HEADING", help=f"of a CSV file: {', '.join(COLUMNS)}")
        parser.add_argument("--direction", metavar="IN=OUT", help="the words of the column `direction`, such as Bij=Af")
        parser.add_argument("--delimiter", default="", help="of a CSV file; default: by its headings")
        parser.add_argument(
            "--decimal", choices=(".", ","), default="", help="what stands before the decimals; default: as they say"
        )
        parser.add_argument("--dates", default="", help="the form of days; default: %%Y-%%m-%%d")
        parser.add_argument("--currency", default="", help="of all entries, if the file does not say it")
        parser.add_argument("--actor", default="bank-file", help="who books, as the payments show it; default: %(default)s")
        parser.add_argument("--dry-run", action="store_true", help="say what would become of it, and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, file: Path, dry_run: bool, **options: Any) -> None:
        """Book the file, print the summary, and exit with the code that `help` explains."""
        if len(options["delimiter"]) > 1:
            raise CommandError("--delimiter takes one character")
        is_text = options["format"] == "text"
        try:
            content = _content(file)
            statements = _with_currency(_read(content, options), options["currency"])
            if is_text:
                self.stdout.write(_first_lines(statements))
            with progress_of(self.stderr, options, "Booking", "entries") as progress:
                outcome = book(statements, content, actor=options["actor"], dry_run=dry_run, progress=progress)
        except (OSError, BankFileInvalid) as error:
            raise CommandError(f"{file}: {error}. Nothing was booked.") from error
        self.stdout.write(_text(outcome, dry_run) if is_text else _json(outcome, dry_run))
        if outcome.left:
            sys.exit(SOME_LEFT)


def _content(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _read(content: bytes, options: dict[str, Any]) -> list[Statement]:
    if options["columns"] or options["profile"]:
        return read(content, _profile(options))
    return find_reader(options["form"] or guess_format(content))(content)


def _profile(options: dict[str, Any]) -> Profile:
    changes = {name: options[name] for name in ("dates", "delimiter", "decimal", "currency") if options[name]}
    if options["profile"]:
        by_name = {profile.name: profile for profile in shipped_profiles()}
        return replace(by_name.get(options["profile"]) or read_profile(Path(options["profile"])), **changes)
    columns = dict(part.split("=", 1) for part in options["columns"] if "=" in part)
    if len(columns) < len(options["columns"]) or set(columns) - set(COLUMNS):
        raise CommandError(f"--columns takes MEANING=HEADING; the meanings are {', '.join(COLUMNS)}")
    if options["direction"]:
        came_in, _, went_out = options["direction"].partition("=")
        changes["direction"] = {"yes": [came_in], "no": [went_out]}
    return make_profile({"title": "--columns", "columns": columns, **changes}, name="--columns")


def _with_currency(statements: Sequence[Statement], currency: str) -> list[Statement]:
    """Give the entries of a file without a currency the one that was named."""

    def complete(entry: StatementEntry) -> StatementEntry:
        return entry if entry.currency else replace(entry, currency=currency.upper())

    return [replace(each, entries=tuple(map(complete, each.entries))) for each in statements]


def _first_lines(statements: Sequence[Statement]) -> str:
    """Return the first entries as they were read, which shows a wrong column before anything is booked."""
    entries = [(each.account, entry) for each in statements for entry in each.entries][:LINES_SHOWN]
    lines = ["The first entries as they were read:"] if entries else []
    for account, entry in entries:
        facts = f"{entry.booked_on}  {entry.amount} {entry.currency}  {entry.words}"
        lines.append(f"  line {entry.line}: {facts} ({account or 'no account'})")
    return "\n".join(lines)


def _money(amount_minor: int, currency: str) -> str:
    digits = minor_digits(currency)
    return f"{Decimal(amount_minor).scaleb(-digits):,.{digits}f} {currency}"


def _text(outcome: BookedFile, dry_run: bool) -> str:
    total = ", ".join(_money(amount, currency) for currency, amount in sorted(sums_of(outcome.booked).items())) or "no money"
    verb = "would be booked" if dry_run else "booked"
    counts = (
        f"{outcome.known:,} booked before, {outcome.outgoing:,} outgoing, {outcome.pending:,} pending,"
        f" {len(outcome.left):,} for a person."
    )
    lines = [f"{len(outcome.booked):,} {verb}: {total}. {counts}"]
    lines += [
        f"  {left.booked_on}  {_money(left.amount_minor, left.currency)}  {left.text}: {left.why}. Payment {left.name}"
        for left in outcome.left
    ]
    return "\n".join(lines)


def _json(outcome: BookedFile, dry_run: bool) -> str:
    def row(receipt: BankReceipt) -> dict[str, Any]:
        return {
            "payment": receipt.name, "day": receipt.booked_on.isoformat(), "amount_minor": receipt.amount_minor,
            "currency": receipt.currency, "text": receipt.text,
        }  # fmt: skip

    return json.dumps(
        {
            "dry_run": dry_run,
            "booked": [row(one) | {"invoice": one.invoice_id, "payment_intent": one.payment_intent_id} for one in outcome.booked],
            "known": outcome.known,
            "outgoing": outcome.outgoing,
            "pending": outcome.pending,
            "left": [row(one) | {"why": one.why, "waits_for_person": one.waits_for_person} for one in outcome.left],
        },
        indent=2,
    )
