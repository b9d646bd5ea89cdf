"""`manage.py seller`: show or record the seller that documents name."""

import getpass
import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.documents.brand import decode_logo, is_png
from billing.documents.sellers import NewSeller, current_seller, record_seller
from billing.models import DEFAULT_SELLER
from ledger.errors import Invalid
from ledger.management.examples import CommandWithExamples
from ledger.records import declared_fields

MOST_BYTES = 64 * 1024
FIELDS = declared_fields(NewSeller)


class Command(CommandWithExamples):
    """Show the seller, or record a new one."""

    help = (
        "Show the seller that documents name, or record it from a JSON file. Invoices finalised from then on print the "
        f"new details; earlier ones keep theirs. Members: {', '.join(field.name for field in FIELDS)}; "
        f"{', '.join(sorted(field.name for field in FIELDS if field.required))} are required."
    )
    examples = (
        ("seller", "show the seller"),
        ("seller --file seller.json", "record it"),
        ("seller --ref us --file us.json", "record another seller, for customers who name it"),
        ("seller --format json", "for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file."""
        parser.add_argument("--file", type=Path, metavar="JSON", help="record the seller of this file")
        parser.add_argument("--ref", default=DEFAULT_SELLER, help="which seller; default: %(default)s")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, **given: Any) -> None:
        """Record the given seller, and show the current one."""
        if given["file"] is not None:
            self._record(given["ref"], given["file"])
        seller = current_seller(given["ref"])
        if seller is None:
            raise CommandError("No seller is recorded. Record one with --file.")
        if given["format"] == "json":
            recorded = {"recorded_at": seller.recorded_at.isoformat(), "recorded_by": seller.recorded_by}
            self.stdout.write(json.dumps(seller.details | recorded, indent=2, ensure_ascii=False))
            return
        for name in (field.name for field in FIELDS if field.name in seller.details):
            self.stdout.write(f"{_label(name):<14}{_show_member(name, seller.details[name])}")
        self.stdout.write(f"{'Recorded':<14}{seller.recorded_at:%Y-%m-%d %H:%M:%S} UTC by {seller.recorded_by}")

    def _record(self, ref: str, path: Path) -> None:
        try:
            with path.open("rb") as file:
                details = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError) as error:
            raise CommandError(f"{path} cannot be read as JSON: {error}") from error
        if not isinstance(details, dict):
            raise CommandError(f"{path} must contain one JSON object")
        try:
            record_seller({"ref": ref} | details, actor=f"command:{getpass.getuser()}"[:200])
        except Invalid as invalid:
            raise CommandError(f"{invalid.facts['pointer'].removeprefix('/')}: {invalid.facts['detail']}") from invalid


def _label(name: str) -> str:
    """Return the name of a member for people."""
    short = {"vat_id": "VAT id", "iban": "IBAN", "bic": "BIC", "email": "E-mail"}
    return short.get(name, name.replace("_", " ").capitalize())


def _show_member(name: str, value: Any) -> str:
    """Return the value of a member for people."""
    if name == "logo":
        content = decode_logo(value)
        return f"{'PNG' if is_png(content) else 'SVG'}, {len(content):,} bytes"
    return " · ".join(f"{code}: {text}" for code, text in value.items()) if isinstance(value, dict) else str(value)
