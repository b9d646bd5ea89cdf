"""`manage.py import_ledger`: credits and their history from a file."""

import getpass
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from ledger.errors import OutcomeUnknown, Retryable
from ledger.exchange.files import read_lines
from ledger.exchange.import_rows import KEY_PREFIX, OPERATIONS, ImportRow, RowError, read_rows
from ledger.exchange.imports import RESULTS, Compared, Difference, Importer, ImportSummary, RowOutcome, compare_first, differences
from ledger.exchange.sources import LeftOut, SourceError, SourceRows, Terms, Total, declared_sources, find_source, whole_export_of
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger.previews import preview
from ledger.rules.entries import BY_AN_IMPORT
from ledger.values import FieldError

NOT_ALL, INVALID, AGAIN = 1, 2, 4
MOST_ERRORS: Final = 20
MOST_COMPARED: Final = 20
OWN: Final = "rows"
"""The source of our own rows."""
CSV: Final = ".csv"


class Command(CommandWithExamples):
    """Checks the whole file first, then imports it in transactions of 1,000 rows. A repeated import continues."""

    help = (
        f"Import credits from a file: opening balances, live grants, or history at its own times ({', '.join(OPERATIONS)}). Each "
        "row is imported once, however often the command runs. The whole file is checked first; one with an invalid row is not "
        "begun. Exit codes: 0 everything imported and equal to the totals, 1 rows refused or totals that differ, 2 an invalid "
        "file or bad arguments (nothing was imported), 4 others wrote to the same holders: run it again."
    )
    examples = (
        ("import_ledger opening.csv --dry-run", "show what an import would do"),
        ("import_ledger opening.csv --totals totals.csv", "import, and compare every account with the source's totals"),
        ("import_ledger grants.ndjson --source stripe --credit-type usd_cents", "what is left of Stripe's credit grants"),
        ("import_ledger wallets.ndjson --source lago --decimals 2", "the history of Lago's wallets, in hundredths of a credit"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("file", type=Path, help="NDJSON, or by its ending .json (a list) or .csv")
        parser.add_argument(
            "--source", choices=sorted(declared_sources()), default="rows", help="whose format it has; default: our own rows"
        )
        parser.add_argument("--credit-type", default="credits", metavar="TYPE", help="of rows without one; default: %(default)s")
        parser.add_argument("--decimals", type=int, default=0, choices=range(13), metavar="N", help="of another source's credits")
        parser.add_argument(
            "--totals", type=Path, metavar="FILE", help="rows of holder, credit_type and available to compare with"
        )
        parser.add_argument(
            "--accept-differences",
            action="store_true",
            help="import from another system although the sums of source and ledger would differ",
        )
        parser.add_argument(
            "--without-recurring",
            action="store_true",
            help="import without what another system would give later and no row says; each such rule is named",
        )
        parser.add_argument("--dry-run", action="store_true", help="show what would be imported; write nothing")
        parser.add_argument(
            "--workers", type=int, default=2, choices=range(1, 17), metavar="N", help="threads; default: %(default)s"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--no-progress", action="store_true", help="no progress line on a terminal")

    def handle(self, *, file: Path, dry_run: bool, **options: Any) -> None:
        """Check the file, import it, compare, and print what was done."""
        terms = Terms(options["credit_type"], options["decimals"])
        source, actor = options["source"], f"{BY_AN_IMPORT}{getpass.getuser()}"
        if not file.is_file():
            raise CommandError(
                f"{file}: not a file. It is read more than once, so it cannot be a pipe."
                if file.exists()
                else f"{file}: no such file.",
                returncode=INVALID,
            )
        try:
            count = _check_rows(file, source, terms, actor)
            found = find_source(source)(read_lines(file), terms)
            totals = [*found.totals, *_totals(options["totals"], terms)]
            self._name_left_out(found.left_out, accepts=options["without_recurring"])
            if source != OWN:
                self._compare_first(
                    file, source, terms, actor, totals, are_stated=found.are_stated, accepts=options["accept_differences"]
                )
            rows = _rows(file, source, terms, actor)
            importer = Importer(ImportSummary(MOST_ERRORS))
            with (
                preview(one_snapshot=True) if dry_run else nullcontext(),
                progress_of(self.stderr, options, "Importing", "rows") as update,
            ):
                workers = 1 if dry_run else options["workers"]
                importer.import_all(rows, workers=workers, done=lambda done: update(done, count))
                different = list(differences(totals))
        except (SourceError, OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}. Nothing was imported.", returncode=INVALID) from error
        except (Retryable, OutcomeUnknown) as error:
            raise CommandError(f"{error}. Run the same import again: it continues.", returncode=AGAIN) from error
        as_json = options["format"] == "json"
        self.stdout.write(
            _as_json(importer.summary, different) if as_json else _as_text(importer.summary, different, dry_run=dry_run)
        )
        if importer.summary.not_imported or different:
            raise SystemExit(NOT_ALL)

    def _name_left_out(self, left_out: Sequence[LeftOut], *, accepts: bool) -> None:
        """Say what the source does later and no row says, and end if that is not accepted."""
        if not left_out:
            return
        more = len(left_out) - MOST_ERRORS
        named = [*map(str, left_out[:MOST_ERRORS]), *([f"and {more} more"] if more > 0 else [])]
        if not accepts:
            rest = "Nothing was imported. Set them up here after an import with --without-recurring."
            raise CommandError("\n".join([*named, rest]), returncode=INVALID)
        self.stderr.write("\n".join(["Left out:", *named]))

    def _compare_first(
        self, file: Path, source: str, terms: Terms, actor: str, totals: list[Total], *, are_stated: bool, accepts: bool
    ) -> None:
        """Show each account in its source and here, and end before the first row if the sums would differ."""
        compared = compare_first(
            totals, lambda: Importer(ImportSummary(MOST_ERRORS)).import_all(_rows(file, source, terms, actor), workers=1)
        )
        self.stderr.write(_table(compared, are_stated=are_stated))
        different = sum(one.differs for one in compared)
        if different and not accepts:
            raise CommandError(
                f"{different:,} of {len(compared):,} accounts would not have what the source says. Nothing was imported. "
                f"{_what_to_export(source)}, or import all the same with --accept-differences.",
                returncode=INVALID,
            )


def _what_to_export(source: str) -> str:
    whole = whole_export_of(find_source(source))
    return "Export all of their objects" if whole is None else f"A whole export has {whole.objects.replace('`', '')}: export all"


def _table(compared: list[Compared], *, are_stated: bool) -> str:
    """Return the accounts in their source and here: those that differ first, the first MOST_COMPARED, and the sums."""
    shown = sorted(compared, key=lambda one: (not one.differs, one.holder_id))[:MOST_COMPARED]
    rows: list[tuple[str, ...]] = [("holder", "credits", "source", "here now", "here then", "")]
    rows += [
        (one.holder_id, one.credit_type, f"{one.source:,}", f"{one.before:,}", f"{one.after:,}", "differs" * one.differs)
        for one in shown
    ]
    for credit_type in sorted({one.credit_type for one in compared}):
        of_type = [one for one in compared if one.credit_type == credit_type]
        sums = (sum(one.source for one in of_type), sum(one.before for one in of_type), sum(one.after for one in of_type))
        rows.append((f"{len(of_type):,} holders", credit_type, *(f"{each:,}" for each in sums), ""))
    first, second = (max(len(row[index]) for row in rows) for index in (0, 1))
    said = "as the source states them" if are_stated else "as its grants add up: the file has no balance of the source's own"
    lines = [f"Spendable credits in the source, {said}, and here:"]
    lines += [f"  {a:<{first}}  {b:<{second}}  {c:>14} {d:>14} {e:>14}  {f}".rstrip() for a, b, c, d, e, f in rows]
    return "\n".join(lines)


def _rows(file: Path, source: str, terms: Terms, actor: str) -> Iterator[ImportRow]:
    for row in _read(file, source, terms, actor):
        if isinstance(row, ImportRow):
            yield row


def _read(file: Path, source: str, terms: Terms, actor: str) -> Iterator[ImportRow | list[RowError]]:
    found: SourceRows = find_source(source)(read_lines(file), terms)
    return read_rows(iter(found.rows), actor=actor, from_text=source == "rows" and file.suffix == CSV)


def _check_rows(file: Path, source: str, terms: Terms, actor: str) -> int:
    """Return the number of rows, or end with the errors of the file."""
    count, wrong = 0, 0
    errors: list[RowError] = []
    lines: dict[str, int] = {}
    for row in _read(file, source, terms, actor):
        count += 1
        faults = _named_twice(row, lines) if isinstance(row, ImportRow) else row
        wrong += bool(faults)
        errors += faults[: MOST_ERRORS - len(errors)]
    if errors:
        rest = f"{wrong} of {count} rows are invalid. Nothing was imported."
        raise CommandError("\n".join([*map(str, errors), rest]), returncode=INVALID)
    return count


def _named_twice(row: ImportRow, lines: dict[str, int]) -> list[RowError]:
    """Return an error if the row's id is that of an earlier one, and note its line otherwise."""
    key = row.request.idempotency_key
    if key not in lines:
        lines[key] = row.line
        return []
    return [
        RowError(row.line, FieldError("/row", "twice", f"{key.removeprefix(KEY_PREFIX)} is the id of line {lines[key]} too."))
    ]


def _totals(file: Path | None, terms: Terms) -> Iterator[Total]:
    for line in [] if file is None else read_lines(file):
        match {"credit_type": terms.credit_type, **(line.value or {})}:
            case {"holder": str(holder), "credit_type": str(counted_in), "available": available}:
                yield (holder, counted_in), Terms("").amount(line.number, available)
            case _:
                raise SourceError(line.number, line.error or "needs holder and available")


def _as_json(summary: ImportSummary, different: list[Difference]) -> str:
    errors = [{"line": one.row.line, "result": one.result, "error": _why(one)} for one in summary.errors]
    sums = [{"credit_type": each[0], "kind": each[1], "amount": amount} for each, amount in sorted(summary.credits.items())]
    rows = {name: summary.rows[name] for name in RESULTS}
    found = {"rows": rows, "credits": sums, "errors": errors, "differences": [each._asdict() for each in different]}
    return json.dumps(found, indent=2)


def _as_text(summary: ImportSummary, different: list[Difference], *, dry_run: bool) -> str:
    lines = ["This would be imported; nothing was written." if dry_run else "Imported."]
    lines += [f"{summary.rows[name]:>12,} rows {text}" for name, text in RESULTS.items() if summary.rows[name]]
    lines += [f"{amount:>12,} {credit_type}: {kind}" for (credit_type, kind), amount in sorted(summary.credits.items())]
    lines += [f"line {one.row.line}: {RESULTS[one.result]}: {_why(one)}" for one in summary.errors]
    lines += [
        f"{one.holder_id}, {one.credit_type}: {one.available:,} credits are available; the source says {one.expected:,}"
        for one in different
    ]
    return "\n".join(lines)


def _why(outcome: RowOutcome) -> str:
    return str(outcome.error)
