"""`manage.py export_ledger`: rows of the ledger, and of what is installed beside it, as a file."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ledger.database.copies import FORMATS
from ledger.errors import Invalid
from ledger.exports import EXPORTS, export
from ledger.management.arguments import instant
from ledger.management.examples import CommandWithExamples
from ledger.management.files import whole_file
from ledger.management.progress import progress_of

FILTERS = {
    "holder": "only this holder",
    "credit_type": "only this credit type",
    "customer": "only this customer, by its reference",
    "subscription": "only this subscription, by its reference",
}
INSTANTS = {
    "since": "only what was recorded, or issued, at or after this instant",
    "until": "only what was recorded, or issued, before this instant",
    "at": "as of this instant; default: now",
}


class Command(CommandWithExamples):
    """Reads one snapshot by COPY; writers go on."""

    help = (
        "Export rows as CSV or as one JSON object a line (NDJSON), in one snapshot and in constant memory. CSV is safe in "
        "spreadsheets: text that begins like a formula gets an apostrophe, so choose NDJSON for programs. Exit codes: 0 written, "
        "1 the file cannot be written, 2 bad arguments."
    )
    examples = (
        ("export_ledger entries --format ndjson --output entries.ndjson", "every entry, with all that its digest covers"),
        ("export_ledger entries --holder customer-42 --since 2026-01-01", "a holder's entries of this year, as CSV"),
        ("export_ledger lots --at 2026-02-01 --output lots.csv", "the lots that were open at the end of January"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        rows = "; ".join(f"{one.name}: {one.row}" for one in EXPORTS.values())
        parser.add_argument("what", choices=sorted(EXPORTS), help=rows)
        parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s")
        parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
        for name, text in FILTERS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", help=text)
        for name, text in INSTANTS.items():
            parser.add_argument(f"--{name}", type=instant, metavar="TIME", help=text)

    def handle(self, *, what: str, output: Path | None, **options: Any) -> None:
        """Write the file."""
        filters = {name: options[name] for name in (*FILTERS, *INSTANTS)}
        try:
            pieces = export(what, file_format=options["format"], **filters)
        except Invalid as invalid:
            option = invalid.facts["pointer"].strip("/").replace("_", "-")
            raise CommandError(f"--{option} {invalid.facts['detail']}.", returncode=2) from invalid
        if output is None:
            sys.stdout.buffer.writelines(pieces)
            return
        with whole_file(output) as part, part.open("wb") as file, progress_of(self.stderr, options, "Writing", "bytes") as update:
            written = 0
            for piece in pieces:
                written += file.write(piece)
                update(written, None)
            update(written, written)
