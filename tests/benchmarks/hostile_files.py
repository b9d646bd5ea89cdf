"""What hostile files cost: `python -m tests.benchmarks.hostile_files`. Without a database.

Each file is read in a process of its own, by the reader that the commands would take, and then checked. Prints its size, the
seconds of CPU beyond those of a small file, the memory that reading took at most, and what was said of it. Needs Linux.
"""

import gzip
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

MIB: Final = 1024 * 1024
MOST_BYTES: Final = 64 * MIB
MOST_S: Final = 300
"""After this, reading a file is no longer bounded."""
LINES: Final = 1_000_000

CAMT: Final = (
    '<?xml version="1.0"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt><Stmt>{}</Stmt>'
    "</BkToCstmrStmt></Document>"
)
CAMT_ENTRY: Final = (
    '<Ntry><Amt Ccy="EUR">1</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts><BookgDt><Dt>2026-11-20</Dt></BookgDt></Ntry>'
)
MT940: Final = ":20:S\n:25:NL91ABNA0417164300\n:28C:1/1\n:60F:C261119EUR0,\n{}:62F:C261120EUR{},\n"
MT940_ENTRY: Final = ":61:2611201120C1,00NTRFNONREF\n:86:thanks\n"
CSV_HEAD: Final = (
    "Auftragskonto;Buchungstag;Valutadatum;Verwendungszweck;Kundenreferenz (End-to-End);Beguenstigter/Zahlungspflichtiger;"
    "Kontonummer/IBAN;Betrag;Waehrung;Info\n"
)
CSV_LINE: Final = "DE1;20.11.26;20.11.26;thanks;;Ada;DE2;1,00;EUR;Umsatz gebucht\n"
LAUGHS: Final = '<!ENTITY l0 "ha">' + "".join(f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">' for number in range(1, 12))
GRANT: Final = {"row": "g", "holder": "ada", "operation": "grant", "amount": 1}


def _imported(number: int) -> str:
    return json.dumps({**GRANT, "row": f"g-{number}"}) + "\n"


class Hostile(NamedTuple):
    """A file that is meant to hurt: how it is made, and whether an import reads it; otherwise as a statement of a bank."""

    name: str
    make: Callable[[], bytes]
    is_import: bool = False


FILES: Final = (
    Hostile("XML: a billion laughs", lambda: f"<!DOCTYPE d [{LAUGHS}]><d>&l11;</d>".encode()),
    Hostile("XML: a file of the machine as entity", lambda: b'<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><d>&e;</d>'),
    Hostile("XML: 1,000,000 levels", lambda: b"<a>" * LINES),
    Hostile("XML: one text of 60 MiB", lambda: CAMT.format("x" * (60 * MIB)).encode()),
    Hostile("camt: 200,000 entries", lambda: CAMT.format(CAMT_ENTRY * 200_000).encode()),
    Hostile("camt: 400,000 entries", lambda: CAMT.format(CAMT_ENTRY * 400_000).encode()),
    Hostile("camt: 1,000,000 entries", lambda: CAMT.format(CAMT_ENTRY * LINES).encode()),
    Hostile("MT940: 1,000,000 entries", lambda: MT940.format(MT940_ENTRY * LINES, LINES).encode()),
    Hostile("CSV: 200,000 lines", lambda: (CSV_HEAD + CSV_LINE * 200_000).encode()),
    Hostile("CSV: 1,000,000 lines", lambda: (CSV_HEAD + CSV_LINE * LINES).encode()),
    Hostile("CSV: one line of 60 MiB", lambda: b"a;" * (30 * MIB)),
    Hostile("CSV: a quote that never ends", lambda: (CSV_HEAD + '"' + CSV_LINE * 500_000).encode()),
    Hostile("CSV: an amount of 1,000,000 digits", lambda: (CSV_HEAD + CSV_LINE.replace("1,00", "9" * LINES)).encode()),
    Hostile("UTF-16", lambda: (CSV_HEAD + CSV_LINE).encode("utf-16")),
    Hostile("UTF-16 without mark", lambda: (CSV_HEAD + CSV_LINE).encode("utf-16-le")),
    Hostile("UTF-32", lambda: (CSV_HEAD + CSV_LINE).encode("utf-32")),
    Hostile("EBCDIC", lambda: (CSV_HEAD + CSV_LINE).encode("cp500")),
    Hostile("UTF-8 that breaks off", lambda: (CSV_HEAD + CSV_LINE).encode() + b"\xe2\x82"),
    Hostile("a zip bomb: 1 GiB of zeros", lambda: gzip.compress(b"\0" * MIB * 1024, 9)),
    Hostile("more than 64 MiB", lambda: b"x" * (MOST_BYTES + 1)),
    Hostile("import: 1,000,000 rows", lambda: "".join(map(_imported, range(LINES))).encode(), True),
    Hostile("import: 100,000 levels", lambda: b'{"a":' * 100_000, True),
    Hostile("import: a number of 1,000,000 digits", lambda: b'{"amount": ' + b"9" * LINES + b"}", True),
    Hostile("import: 1e999999999", lambda: b'{"row": "a", "holder": "h", "operation": "grant", "amount": 1e999999999}', True),
    Hostile("import: one line of 60 MiB", lambda: b'{"a": "' + b"x" * (60 * MIB) + b'"}', True),
)


class Cost(NamedTuple):
    """What a file cost: CPU in seconds, the memory that reading took at most in MiB, and what was said of it."""

    cpu_s: float
    memory_mib: float
    said: str


def cost_of(content: bytes, *, is_import: bool) -> Cost:
    """Read a file in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        with get_context("spawn").Pool(1) as pool:
            return pool.apply_async(_read, (path, is_import)).get(MOST_S)


def _read(path: Path, is_import: bool) -> Cost:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    import django

    django.setup()
    # The peak of a child begins with that of its parent: from here on it is its own.
    Path("/proc/self/clear_refs").write_text("5")
    before_mib = _peak_mib()
    said = _import(path) if is_import else _statement(path)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Cost(used.ru_utime + used.ru_stime, _peak_mib() - before_mib, said)


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _statement(path: Path) -> str:
    from billing.statements_in.formats import find_reader, guess_format
    from billing.statements_in.statements import MAX_BYTES, BankFileInvalid, check_statements

    with path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    try:
        statements = find_reader(guess_format(content))(content)
        check_statements(statements)
    except BankFileInvalid as refused:
        return f"refused: {refused}"
    entries = [entry for statement in statements for entry in statement.entries]
    return f"read: {len(entries):,} entries, {sum((entry.amount for entry in entries), Decimal()):,}"


def _import(path: Path) -> str:
    from ledger.exchange.files import read_lines
    from ledger.exchange.import_rows import ImportRow, read_rows

    count = 0
    for row in read_rows(read_lines(path), actor="import:test", from_text=False):
        if not isinstance(row, ImportRow):
            return f"refused: {row[0]}"
        count += 1
    return f"read: {count:,} rows"


def main() -> None:
    """Read each file, and print what it cost."""
    base = cost_of((CSV_HEAD + CSV_LINE).encode(), is_import=False)
    print(f"{'file':<42}{'MiB':>8}{'CPU s':>8}{'memory MiB':>12}  what was said")
    wanted = " ".join(sys.argv[1:])
    for hostile in FILES:
        if wanted and wanted not in hostile.name:
            continue
        content = hostile.make()
        cost = cost_of(content, is_import=hostile.is_import)
        cpu_s, memory = max(cost.cpu_s - base.cpu_s, 0), cost.memory_mib
        said = cost.said if len(cost.said) <= 110 else f"{cost.said[:107]}..."
        print(f"{hostile.name:<42}{len(content) / MIB:>8.1f}{cpu_s:>8.1f}{memory:>12.0f}  {said}", flush=True)


if __name__ == "__main__":
    main()
