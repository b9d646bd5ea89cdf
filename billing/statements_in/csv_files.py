"""Reads CSV files of banks by a profile, which says what each column means. Pure.

A profile is a file of TOML: `profiles/` has those that come with the product, `--profile FILE` takes one of your own. Its
headings find the line where the table begins, so what banks write before it does not matter.
"""

import csv
import io
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from billing.statements_in.amounts import WrittenAmount, find_decimal_sign, read_amount, read_written
from billing.statements_in.statements import (
    BankFileInvalid,
    EntryState,
    Statement,
    StatementEntry,
    decode,
    ensure_not_too_large,
    ensure_not_too_many,
)

PROFILES: Final = Path(__file__).parent / "profiles"
COLUMNS: Final = (
    "date", "value_date", "amount", "credit", "debit", "currency", "text", "payer", "id", "end_to_end_id",
    "account", "state", "direction", "balance",
)  # fmt: skip
"""What a column may mean."""
SEVERAL: Final = frozenset({"text", "payer"})
"""What may be written over several columns."""
MAX_LINES_BEFORE: Final = 60
MAX_LINE: Final = 100_000
"""The most characters of a line."""
"""Where the headings are looked for."""
CAME_IN: Final = frozenset(
    {"bij", "credit", "cr", "c", "cb", "crdt", "h", "haben", "in", "+", "avere", "gutschrift"}
)  # fmt: skip
WENT_OUT: Final = frozenset(
    {"af", "debit", "dr", "d", "db", "dbit", "s", "soll", "out", "-", "dare", "lastschrift"}
)  # fmt: skip
"""Words by which banks say in a column of its own whether money came in or went out."""
CREDIT_HEADINGS: Final = frozenset(
    {
        "credit",
        "credits",
        "credit amount",
        "haben",
        "gutschrift",
        "money in",
        "paid in",
        "crédit",
        "entrate",
        "deposit",
        "deposits",
    }
)
"""Headings of columns that hold receipts only, so that an empty cell is money that went out."""


@dataclass(frozen=True, slots=True)
class Words:
    """A column of which the values say one of two things.

    Args:
        yes: the values that mean that money came in, or that the entry is booked.
        no: the values that mean that it went out, or that the entry is pending.
    """

    yes: tuple[str, ...]
    no: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one bank writes its CSV files.

    Args:
        title: the bank, as people call it.
        columns: the heading of each meaning of COLUMNS, or its number from 1; several of a text are joined.
        dates: the form of days, as `datetime.strptime` has it.
        delimiter: between cells; empty: `;`, a tab or `,`, by the headings.
        decimal: what stands before the decimals; empty: as the amounts say.
        encoding: of the file.
        direction: the words of the column `direction`.
        state: the words of the column `state`.
        currency: of all entries, if the file has no column of it.
        lines_before: how many lines stand before the entries of a file without headings.
        skip: entries of which the column `state` or `text` has one of these values are no movement of money.
    """

    title: str
    columns: Mapping[str, tuple[str, ...]]
    dates: str = "%Y-%m-%d"
    delimiter: str = ""
    decimal: str = ""
    encoding: str = "utf-8-sig"
    direction: Words | None = None
    state: Words | None = None
    currency: str = ""
    lines_before: int = 0
    skip: tuple[str, ...] = ()
    name: str = field(default="", compare=False)

    @property
    def has_headings(self) -> bool:
        """Whether columns are named by headings, not by numbers."""
        return not all(heading.isdigit() for headings in self.columns.values() for heading in headings)


def read_profile(path: Path) -> Profile:
    """Return the profile of a file of TOML.

    Raises:
        BankFileInvalid: it is none, and which key is wrong.
    """
    try:
        return make_profile(tomllib.loads(path.read_text("utf-8")), name=path.stem)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BankFileInvalid(f"{path} is no profile: {error}") from error


def make_profile(declared: Mapping[str, Any], *, name: str) -> Profile:
    """Return the profile of a table of TOML.

    Raises:
        BankFileInvalid: a key is unknown, missing, or of another type.
    """
    known = {each.name for each in fields(Profile)} - {"name"}
    if unknown := sorted(set(declared) - known):
        raise BankFileInvalid(f"profile {name}: unknown key {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    columns = {
        meaning: (given,) if isinstance(given, str | int) else tuple(given)
        for meaning, given in declared.get("columns", {}).items()
    }
    columns = {meaning: tuple(map(str, headings)) for meaning, headings in columns.items()}
    words = {
        key: Words(tuple(declared[key]["yes"]), tuple(declared[key]["no"])) for key in ("direction", "state") if key in declared
    }
    rest = {key: value for key, value in declared.items() if key not in {"columns", *words}}
    profile = Profile(columns=columns, name=name, **rest | words | {"skip": tuple(declared.get("skip", ()))})
    _check_profile(profile)
    return profile


def _check_profile(profile: Profile) -> None:
    columns, name = profile.columns, profile.name or profile.title
    if unknown := sorted(set(columns) - set(COLUMNS)):
        raise BankFileInvalid(f"profile {name}: unknown column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    if "date" not in columns:
        raise BankFileInvalid(f"profile {name}: name the column date")
    if "amount" not in columns and not {"credit", "debit"} <= set(columns):
        raise BankFileInvalid(f"profile {name}: name the column amount, or the columns credit and debit")
    if "text" not in columns:
        raise BankFileInvalid(f"profile {name}: name the column text")
    if several := [meaning for meaning, headings in columns.items() if len(headings) != 1 and meaning not in SEVERAL]:
        raise BankFileInvalid(f"profile {name}: {', '.join(several)} takes one column")
    for meaning in ("direction", "state"):
        if (meaning in columns) != (getattr(profile, meaning) is not None):
            raise BankFileInvalid(f"profile {name}: {meaning} needs a column and its words, yes and no")


def shipped_profiles() -> list[Profile]:
    """Return the profiles that come with the product, by name."""
    return [read_profile(path) for path in sorted(PROFILES.glob("*.toml"))]


def find_profile(content: bytes) -> Profile:
    """Return the one shipped profile whose headings the file has.

    Raises:
        BankFileInvalid: none or several fit.
    """
    ensure_not_too_large(content)
    fitting: list[Profile] = []
    for profile in shipped_profiles():
        if not profile.has_headings:
            continue
        try:
            text = decode(content, (profile.encoding,))
        except BankFileInvalid:
            continue
        if _table(text, profile) is not None:
            fitting.append(profile)
    most = max((_width(profile) for profile in fitting), default=0)
    best = [profile for profile in fitting if _width(profile) == most]
    if len(best) == 1:
        return best[0]
    names = ", ".join(profile.name for profile in best)
    raise BankFileInvalid(
        f"several profiles fit: choose one with --profile: {names}" if best
        else "no profile fits the headings: choose one with --profile, or say which column is which with --columns"
    )  # fmt: skip


def _width(profile: Profile) -> int:
    return sum(len(headings) for headings in profile.columns.values())


@dataclass(frozen=True, slots=True)
class _Table:
    headings: tuple[str, ...]
    rows: Sequence[tuple[int, list[str]]]


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    cells: Mapping[str, str]
    credit: WrittenAmount | None
    debit: WrittenAmount | None
    balance: WrittenAmount | None


def read(content: bytes, profile: Profile) -> list[Statement]:
    """Return the statements of a CSV file, one for each account.

    Raises:
        BankFileInvalid: a column is missing, or a line has a wrong day, amount, direction, state or currency.
    """
    text = decode(content, (profile.encoding, "cp1252") if profile.encoding == "utf-8-sig" else (profile.encoding,))
    table = _table(text, profile)
    if table is None:
        wanted = ", ".join(heading for headings in profile.columns.values() for heading in headings)
        raise BankFileInvalid(f"none of the first {MAX_LINES_BEFORE} lines has the columns {wanted}")
    _refuse_unread_direction(table, profile)
    rows = [row for line, cells in table.rows if (row := _row(line, cells, table, profile)) is not None]
    amounts = [amount for row in rows for amount in (row.credit, row.debit, row.balance) if amount is not None]
    sign = find_decimal_sign(amounts, profile.decimal)
    accounts: dict[str, list[StatementEntry]] = {}
    for row in rows:
        accounts.setdefault(row.cells.get("account", ""), []).append(_entry(row, sign, profile))
    return [Statement(account=account, entries=tuple(entries)) for account, entries in accounts.items()]


def _table(text: str, profile: Profile) -> _Table | None:
    """Return headings and rows of the file; None if no line has the headings of the profile."""
    if not profile.has_headings:
        delimiter = profile.delimiter or _likely_delimiter(text.splitlines()[:1])
        rows = list(_rows(text, profile.lines_before, delimiter))
        width = max((len(cells) for _, cells in rows), default=0)
        return _Table(tuple(str(number + 1) for number in range(width)), rows)
    wanted = {_plain(heading) for headings in profile.columns.values() for heading in headings}
    for number, line in enumerate(text.splitlines()[:MAX_LINES_BEFORE]):
        delimiter = profile.delimiter or _likely_delimiter([line])
        headings = [_plain(cell) for _, cells in _read_lines([line], number, delimiter) for cell in cells]
        if wanted <= set(headings):
            if repeated := sorted(heading for heading in wanted if headings.count(heading) > 1):
                raise BankFileInvalid(f"line {number + 1}: the heading {repeated[0]!r} stands twice: name columns by number")
            return _Table(tuple(headings), list(_rows(text, number + 1, delimiter)))
    return None


def _likely_delimiter(lines: Sequence[str]) -> str:
    line = lines[0] if lines else ""
    return max(";\t,", key=line.count)


def _plain(heading: str) -> str:
    return " ".join(heading.strip().strip("\ufeff").split()).casefold()


def _rows(text: str, lines_before: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    stream = io.StringIO(text, newline="")
    for _ in range(lines_before):
        stream.readline()
    filled = (each for each in _read_lines(stream, lines_before, delimiter) if any(cell.strip() for cell in each[1]))
    for count, (number, cells) in enumerate(filled, 1):
        ensure_not_too_many(count)
        yield number, [cell.strip() for cell in cells]


def _read_lines(lines: Iterable[str], lines_before: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row with its line, or raise `BankFileInvalid` with the line."""
    reader = csv.reader(_bounded_lines(lines, lines_before), delimiter=delimiter)
    try:
        for cells in reader:
            yield lines_before + reader.line_num, cells
    except csv.Error as error:
        raise BankFileInvalid(f"line {lines_before + reader.line_num}: {error}") from error


def _bounded_lines(lines: Iterable[str], lines_before: int) -> Iterator[str]:
    for number, line in enumerate(lines, lines_before + 1):
        if len(line) > MAX_LINE:
            raise BankFileInvalid(f"line {number} has more than {MAX_LINE:,} characters: this is no table of a bank")
        yield line


def _refuse_unread_direction(table: _Table, profile: Profile) -> None:
    """Refuse a file that says in a column of its own whether money came in, if the profile does not read that column."""
    if {"direction", "debit"} & set(profile.columns):
        return
    read_columns = {_plain(heading) for headings in profile.columns.values() for heading in headings}
    for index, heading in enumerate(table.headings):
        values = {cells[index].casefold() for _, cells in table.rows if index < len(cells) and cells[index]}
        if heading not in read_columns and values and values <= CAME_IN | WENT_OUT:
            raise BankFileInvalid(
                f"the column {heading!r} says whether money came in or went out, and nothing reads it:"
                " use a profile, or name it with direction= in --columns and its words with --direction"
            )


def _row(line: int, cells: Sequence[str], table: _Table, profile: Profile) -> _Row | None:
    """Return a row; None if it is no entry of the account."""
    # Empty cells at the end may be left out, but none that is read.
    is_short = any(_index(table, _plain(heading)) >= len(cells) for headings in profile.columns.values() for heading in headings)
    if is_short or any(cells[len(table.headings) :]):
        widths = f"{len(cells)} cells where the headings have {len(table.headings)}"
        raise BankFileInvalid(f"line {line}: {widths}: the file was cut or edited; download it again")
    values = {meaning: _cell(cells, table, headings) for meaning, headings in profile.columns.items()}
    if profile.skip and {values.get("state", ""), values.get("text", "")} & set(profile.skip):
        return None
    credit, debit = _amounts(values, line, profile)
    balance = read_written(values["balance"], line) if values.get("balance") else None
    return _Row(line, values, credit, debit, balance)


def _amounts(values: Mapping[str, str], line: int, profile: Profile) -> tuple[WrittenAmount | None, WrittenAmount | None]:
    """Return what stands in the column of the amount, or the one of credit and debit that has an amount."""
    if "amount" in profile.columns:
        return _one_amount(values["amount"], line, profile), None
    credit = read_written(values["credit"], line) if values["credit"] else None
    debit = read_written(values["debit"], line) if values["debit"] else None
    if credit and debit and _is_zero(credit) != _is_zero(debit):
        return (None, debit) if _is_zero(credit) else (credit, None)
    if (credit is None) == (debit is None):
        raise BankFileInvalid(f"line {line}: one of credit and debit must have an amount")
    return credit, debit


def _is_zero(amount: WrittenAmount) -> bool:
    return not amount.digits.strip("0.,' ")


def _index(table: _Table, heading: str) -> int:
    return table.headings.index(heading)


def _cell(cells: Sequence[str], table: _Table, headings: Sequence[str]) -> str:
    texts = [cells[index] for heading in headings if (index := _index(table, _plain(heading))) < len(cells)]
    return " ".join(" ".join(texts).split())


def _one_amount(cell: str, line: int, profile: Profile) -> WrittenAmount:
    (heading,) = profile.columns["amount"]
    if not cell and _plain(heading) in CREDIT_HEADINGS:
        # What went out stands in a column beside it, which nobody has to name.
        return WrittenAmount(is_negative=True, digits="0", line=line)
    return read_written(cell, line)


def _entry(row: _Row, decimal_sign: str, profile: Profile) -> StatementEntry:
    cells = row.cells
    booked_on = _day(cells["date"], row.line, profile)
    return StatementEntry(
        line=row.line,
        booked_on=booked_on,
        value_on=_day(cells["value_date"], row.line, profile) if cells.get("value_date") else booked_on,
        amount=_direction(row, profile) * read_amount(row.credit or _debit(row), decimal_sign),
        currency=cells.get("currency", "").upper() or profile.currency.upper(),
        text=cells["text"],
        party=cells.get("payer", ""),
        bank_reference=cells.get("id", ""),
        end_to_end_reference=cells.get("end_to_end_id", ""),
        state=_state(row, profile),
        balance=read_amount(row.balance, decimal_sign) if row.balance else None,
    )


def _debit(row: _Row) -> WrittenAmount:
    assert row.debit is not None
    return row.debit


def _direction(row: _Row, profile: Profile) -> Decimal:
    """Return the sign that the columns give to the written amount."""
    if row.credit is None:
        # Some banks write a minus in the column of debits, others none: either way the money went out.
        return Decimal(1 if _debit(row).is_negative else -1)
    if profile.direction is None:
        return Decimal(1)
    word = row.cells["direction"]
    if word in profile.direction.yes:
        return Decimal(1)
    if word in profile.direction.no:
        return Decimal(1 if row.credit.is_negative else -1)
    raise BankFileInvalid(
        f"line {row.line}: the direction {word!r} is none of {', '.join(profile.direction.yes + profile.direction.no)}:"
        " add it to [direction] of a profile of your own"
    )


def _state(row: _Row, profile: Profile) -> EntryState:
    if profile.state is None:
        return EntryState.BOOKED
    word = row.cells["state"]
    if word in profile.state.yes:
        return EntryState.BOOKED
    if word in profile.state.no:
        return EntryState.PENDING
    raise BankFileInvalid(
        f"line {row.line}: the state {word!r} is none of {', '.join(profile.state.yes + profile.state.no)}:"
        " add it to [state] of a profile of your own"
    )


def _day(cell: str, line: int, profile: Profile) -> date:
    try:
        return datetime.strptime(cell, profile.dates).date()  # noqa: DTZ007 – a day
    except ValueError as error:
        raise BankFileInvalid(f"line {line}: {cell!r} is no day of the form {profile.dates}") from error


def read_by_headings(content: bytes) -> list[Statement]:
    """Return the statements of a CSV file, by the one profile that has its headings.

    Raises:
        BankFileInvalid: none or several profiles fit, or as `read`.
    """
    return read(content, find_profile(content))
