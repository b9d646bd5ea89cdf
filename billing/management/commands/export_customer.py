"""`manage.py export_customer`: everything that is stored about a customer."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from django.core.management.base import CommandError, CommandParser

from billing.errors import NotFound
from billing.exports import EXPORTS
from billing.orders.customers import customer_of
from ledger.exports import BALANCES, ENTRIES, LOTS, Export, export
from ledger.management.examples import CommandWithExamples
from ledger.management.files import whole_file

FORMAT = "ndjson"


class Command(CommandWithExamples):
    """Reads only. `erase_customer` is the other half of a customer's rights."""

    help = (
        "Export everything that is stored about a customer as a ZIP file: a file for each kind of rows, one JSON object a line, "
        "and manifest.json with the number of rows and the SHA-256 of each file. The entries of the customer's holder are among "
        "them. Exit codes: 0 written, 1 the file cannot be written, 2 bad arguments or an unknown customer."
    )
    examples = (
        ("export_customer CUST-7 --output CUST-7.zip", "what a customer may ask for"),
        ("export_customer CUST-7 --output CUST-7.zip --format json", "the manifest, for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("ref", help="the customer's reference")
        parser.add_argument("--output", type=Path, metavar="FILE", required=True, help="the ZIP file")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is printed; default: %(default)s")

    def handle(self, *, ref: str, output: Path, **options: Any) -> None:
        """Write the file, and print what is in it."""
        try:
            customer = customer_of(ref)
        except NotFound as error:
            raise CommandError(f"Customer {ref!r} does not exist.", returncode=2) from error
        with whole_file(output) as part, ZipFile(part, "w", ZIP_DEFLATED) as archive:
            files = [_write(archive, one, customer=ref) for one in EXPORTS]
            if customer.holder_id:
                files += [_write(archive, one, holder=customer.holder_id) for one in (ENTRIES, BALANCES, LOTS)]
            manifest = {
                "customer": ref,
                "holder_id": customer.holder_id,
                "exported_at": datetime.now(UTC).isoformat(),
                "files": files,
            }
            archive.writestr("manifest.json", json.dumps(manifest, indent=2))
        as_json = options["format"] == "json"
        self.stdout.write(json.dumps(manifest, indent=2) if as_json else "\n".join(map(_as_text, files)))


def _write(archive: ZipFile, one: Export, **filters: str) -> dict[str, Any]:
    digest, rows = hashlib.sha256(), 0
    with archive.open(f"{one.name}.{FORMAT}", "w", force_zip64=True) as file:
        for piece in export(one.name, file_format=FORMAT, **filters):
            file.write(piece)
            digest.update(piece)
            rows += piece.count(b"\n")
    return {"name": f"{one.name}.{FORMAT}", "rows": rows, "sha256": digest.hexdigest()}


def _as_text(file: dict[str, Any]) -> str:
    return f"{file['rows']:>9,} rows  {file['name']}"
