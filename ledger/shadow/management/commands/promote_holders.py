"""`manage.py promote_holders`: move observed holders into the ledger, or back."""

import csv
import getpass
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from ledger.errors import Invalid, OutcomeUnknown, Retryable
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of
from ledger.shadow.promoting import BEFORE, MAX_HOLDERS, MOVED, RESULTS, Move, MoveResult, bring_back, candidates, promote

SOME_STAY, WRONG, AGAIN = 1, 2, 4
MOST_SHOWN: Final = 20
COLUMNS: Final = ("holder", "credit_type", "balance", "sequence", "since", "lots")


class Command(CommandWithExamples):
    """Any number of these commands may run at once, on any machines: a holder moves once."""

    help = (
        "Move the credits of observed holders into the ledger, each once, up to 500 in a transaction; or with --back out of it "
        "again. A stopped command continues when it is run again. Exit codes: 0 all of them have moved, 1 some stay, 2 bad "
        "arguments or an invalid file, 4 others wrote to the same holders: run it again."
    )
    examples = (
        ("promote_holders --all", "move all observed holders whose decisions do not differ"),
        ("promote_holders holders.csv", "move those of the file, if they have the balances that it says"),
        ('promote_holders --all --reason "Double clicks, looked at"', "also move holders whose decisions differ"),
        ("promote_holders --back --all --out back.csv", "move them back, and write how many credits each has"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("file", type=Path, nargs="?", help="CSV: holder, and optionally credit_type and balance")
        parser.add_argument("--all", action="store_true", dest="everybody", help="every observed holder, instead of a file")
        parser.add_argument("--back", action="store_true", help="out of the ledger, back to the other system")
        parser.add_argument("--reason", default="", help="why, and why open differences are accepted")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write what moved: a CSV with a row for each account")
        parser.add_argument(
            "--batch", type=int, default=MAX_HOLDERS, metavar="N", help="holders of a transaction; default: %(default)s"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.add_argument("--no-progress", action="store_true", help="no progress line on a terminal")

    def handle(self, *, file: Path | None, everybody: bool, back: bool, **options: Any) -> None:
        """Move them, and print how many have moved and which have not."""
        if (file is None) != everybody or not 1 <= options["batch"] <= MAX_HOLDERS:
            raise CommandError(f"Give either a file or --all, and a batch of 1 to {MAX_HOLDERS}.", returncode=WRONG)
        done: Counter[str] = Counter()
        stay: list[MoveResult] = []
        batches = _all(options["batch"]) if file is None else _in_batches(_moves_of(file), options["batch"])
        options |= {"actor": f"command:{getpass.getuser()}"}
        try:
            with ExitStack() as stack:
                update = stack.enter_context(progress_of(self.stderr, options, "Moving", "holders"))
                rows = None if options["out"] is None else csv.writer(stack.enter_context(options["out"].open("w", newline="")))
                if rows is not None:
                    rows.writerow(COLUMNS)
                for batch, total in batches:
                    results = _move(batch, back=back, reason=options["reason"], actor=options["actor"])
                    for result in results:
                        done[result.result] += 1
                        if result.result not in (MOVED, BEFORE) and len(stay) < MOST_SHOWN:
                            stay.append(result)
                        elif rows is not None:
                            rows.writerows(_rows_of(result))
                    update(done.total(), total)
        except (Invalid, OSError, UnicodeDecodeError, csv.Error) as error:
            raise CommandError(str(error), returncode=WRONG) from error
        except (Retryable, OutcomeUnknown) as error:
            raise CommandError(f"{error}. Run the same command again: it continues.", returncode=AGAIN) from error
        as_json = options["format"] == "json"
        self.stdout.write(_as_json(done, stay) if as_json else _report(done, stay, back=back))
        if done.total() > done[MOVED] + done[BEFORE]:
            raise SystemExit(SOME_STAY)


def _move(batch: list[Move], *, back: bool, reason: str, actor: str) -> list[MoveResult]:
    if back:
        return bring_back([move.holder_id for move in batch], reason=reason, actor=actor)
    return promote(batch, reason=reason, actor=actor)


def _all(size: int) -> Iterator[tuple[list[Move], int]]:
    after, done = "", 0
    while holders := candidates(after, size):
        after, done = holders[-1], done + len(holders)
        yield [Move(holder_id=holder) for holder in holders], done


def _moves_of(file: Path) -> list[Move]:
    """Return the holders of a file, each once, in the order of their first rows, with all balances that it says."""
    moves: dict[str, dict[str, int]] = {}
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        for row in reader:
            holder, balance = row.get("holder"), row.get("balance")
            if not holder or None in row or None in row.values():
                why = "has no holder, or another number of cells than the headings"
                raise CommandError(f"{file}, line {reader.line_num}: {why}. Nothing moved.", returncode=WRONG)
            balances = moves.setdefault(holder, {})
            if balance:
                balances[row.get("credit_type") or "credits"] = _whole(file, reader.line_num, balance)
    return [Move(holder_id=holder, balances=balances) for holder, balances in moves.items()]


def _whole(file: Path, line: int, text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,16}", text, re.ASCII) is None:
        raise CommandError(f"{file}, line {line}: balance: {text!r} is no whole number. Nothing moved.", returncode=WRONG)
    return int(text)


def _in_batches(moves: list[Move], size: int) -> Iterator[tuple[list[Move], int]]:
    for start in range(0, len(moves), size):
        yield moves[start : start + size], len(moves)


def _rows_of(result: MoveResult) -> Iterator[list[Any]]:
    for account in result.accounts:
        more = [json.dumps(account[name]) if name in account else "" for name in ("since", "lots")]
        yield [result.holder_id, account["credit_type"], account["balance"], account["sequence"], *more]


def _as_json(done: Counter[str], stay: list[MoveResult]) -> str:
    counts = {name: done[name] for name in RESULTS}
    shown = [{"holder": each.holder_id, "result": each.result, "detail": each.detail} for each in stay]
    return json.dumps({"holders": counts, "stay": shown}, indent=2)


def _report(done: Counter[str], stay: list[MoveResult], *, back: bool) -> str:
    where = "back to the other system" if back else "into the ledger"
    lines = [f"{done[MOVED]:>12,} holders moved {where}"]
    lines += [f"{done[BEFORE]:>12,} holders had moved before"] if done[BEFORE] else []
    lines += [f"{count:>12,} holders stay: {name}" for name, count in sorted(done.items()) if name not in (MOVED, BEFORE)]
    lines += [f"{each.holder_id}: {each.detail}" for each in stay]
    return "\n".join(lines)
