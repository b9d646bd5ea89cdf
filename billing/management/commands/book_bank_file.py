"""`manage.py book_bank_file`: book the transfers of a bank's file for the invoices and orders that they name."""

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.payments.bank_files.booking import BookedFile, book
from billing.payments.bank_files.reading import FIELDS, BankFileInvalid, CsvForm, read_csv, read_mt940
from billing.rating.money import minor_digits
from ledger.management.examples import CommandWithExamples

DONE, SOME_LEFT = 0, 3


class Command(CommandWithExamples):
    """Booking a file again books nothing twice."""

    help = (
        "Book the transfers of a bank's file, MT940 or CSV: each that names one invoice by its number, or one payment intent by "
        "its reference, is recorded as a payment of the invoice or buys the pack. The "
        "others are listed with the reason, for a person to book. A file may be booked again; files may overlap, if "
        "they have whole days. Exit codes: 0 done, 1 the file cannot be read and nothing was booked, 3 some are left."
    )
    examples = (
        ("book_bank_file statement.sta", "an MT940 file"),
        ("book_bank_file statement.sta --dry-run", "what would become of it"),
        (
            "book_bank_file umsatz.csv --columns date=Tag amount=Betrag text=Zweck payer=Name --decimal , --dates %d.%m.%Y",
            "a CSV file, with its headings",
        ),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("file", type=Path, help="the bank's file")
        parser.add_argument("--columns", nargs="+", metavar="FIELD=HEADING", help=f"of a CSV file: {', '.join(FIELDS)}")
        parser.add_argument("--delimiter", default="", help="of a CSV file; default: ; or , by its heading")
        parser.add_argument(
            "--decimal", choices=(".", ","), default=".", help="what stands before the cents; default: %(default)s"
        )
        parser.add_argument("--dates", default="%Y-%m-%d", help="the form of days; default: %(default)s".replace("%Y-", "%%Y-"))
        parser.add_argument("--currency", default="", help="of all entries, if the file has no column of it")
        parser.add_argument("--actor", default="bank-file", help="who books, as the payments show it; default: %(default)s")
        parser.add_argument("--dry-run", action="store_true", help="say what would become of it, and write nothing")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, file: Path, dry_run: bool, **options: Any) -> None:
        """Book the file, print the summary, and exit with the code that `help` explains."""
        if len(options["delimiter"]) > 1:
            raise CommandError("--delimiter takes one character")
        try:
            content = file.read_bytes()
            if options["columns"]:
                columns = dict(part.split("=", 1) for part in options["columns"] if "=" in part)
                if len(columns) < len(options["columns"]) or set(columns) - set(FIELDS):
                    raise CommandError(f"--columns takes FIELD=HEADING; the fields are {', '.join(FIELDS)}")
                form = CsvForm(columns, options["delimiter"], options["decimal"], options["dates"], options["currency"])
                entries = read_csv(content, form)
            else:
                entries = read_mt940(content)
        except (OSError, BankFileInvalid) as error:
            raise CommandError(f"{file}: {error}") from error
        found = book(entries, actor=options["actor"], dry_run=dry_run)
        self.stdout.write(_json(found, dry_run) if options["format"] == "json" else _text(found, dry_run))
        if found.left:
            sys.exit(SOME_LEFT)


def _money(amount_minor: int, currency: str) -> str:
    digits = minor_digits(currency)
    return f"{Decimal(amount_minor).scaleb(-digits):,.{digits}f} {currency}"


def _text(found: BookedFile, dry_run: bool) -> str:
    sums = Counter[str]()
    for one in found.booked:
        sums[one.entry.currency] += one.entry.amount_minor
    total = ", ".join(_money(amount, currency) for currency, amount in sorted(sums.items())) or "no money"
    verb = "would be booked" if dry_run else "booked"
    counts = f"{found.known:,} booked before, {found.outgoing:,} outgoing, {len(found.left):,} for a person."
    lines = [f"{len(found.booked):,} {verb}: {total}. {counts}"]
    for left in found.left:
        money = _money(left.entry.amount_minor, left.entry.currency)
        lines.append(f"  {left.entry.day}  {money}  {left.entry.text}: {left.why}. Payment {left.entry.name}")
    return "\n".join(lines)


def _json(found: BookedFile, dry_run: bool) -> str:
    return json.dumps(
        {
            "dry_run": dry_run,
            "booked": [
                {
                    "invoice": one.invoice, "payment_intent": one.payment_intent, "amount_minor": one.entry.amount_minor,
                    "currency": one.entry.currency,
                }
                for one in found.booked
            ],
            "known": found.known,
            "outgoing": found.outgoing,
            "left": [
                {
                    "payment": one.entry.name, "day": one.entry.day.isoformat(), "amount_minor": one.entry.amount_minor,
                    "currency": one.entry.currency, "text": one.entry.text, "why": one.why,
                }
                for one in found.left
            ],
        },
        indent=2,
    )  # fmt: skip
