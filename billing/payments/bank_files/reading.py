"""Reads the entries of a bank's file, MT940 or CSV. Pure: from bytes to entries, or to faults with their lines.

Note [The name of an entry]
    Banks give entries no reliable id: `NONREF` is frequent, and two equal transfers on one day are two entries. So an entry is
    named by its account, day, content and number among equal entries of the day in its file. A file that overlaps another one
    gives its entries the same names, as long as it has whole days.
"""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from billing.rating.money import MINOR_DIGITS, minor_digits

FIELDS: Final = ("date", "amount", "currency", "text", "payer", "id")
REQUIRED: Final = ("date", "amount", "text")
ENCODINGS: Final = ("utf-8-sig", "cp1252")
MAX_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class BankEntry:
    """One entry of an account.

    Args:
        name: names it for good; see Note [The name of an entry].
        amount_minor: in minor units; below 0 if money left the account, or a receipt was taken back.
        text: what the payer wrote, with the payer's name.
    """

    name: str
    day: date
    amount_minor: int
    currency: str
    text: str


class BankFileInvalid(Exception):
    """The file, or one of its lines, cannot be read. Nothing of it was booked."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a bank writes its CSV files.

    Args:
        columns: the heading of each of FIELDS that the file has.
        delimiter: empty: `;` if the heading has one, otherwise a comma.
        decimal: what stands before the cents.
        dates: as `datetime.strptime` has it.
        currency: of all entries, if the file has no column of it.
    """

    columns: Mapping[str, str]
    delimiter: str = ""
    decimal: str = "."
    dates: str = "%Y-%m-%d"
    currency: str = ""


def read_mt940(content: bytes) -> list[BankEntry]:
    """Return the entries of an MT940 file.

    Raises:
        BankFileInvalid: it is not MT940, or an amount or day is wrong.
    Source: SWIFT, MT940 customer statement message.
    """
    import mt940  # optional: the extra `payments`

    text = _decoded(content)
    if ":61:" not in text and ":60" not in text:
        raise BankFileInvalid("the file is not MT940: it has no balance and no entry")
    entries = []
    # Each statement is read alone, so that each entry has its account.
    for part in re.split(r"(?m)^(?=:20:)", text):
        if re.search("(?m)^:61:", part) is None:
            continue
        try:
            statement = mt940.parse(part)
            account = str(statement.data.get("account_identification") or "")
            entries += [_mt940_entry(row.data, account) for row in statement]
        except BankFileInvalid:
            raise
        except Exception as error:  # the package raises what its parsers raise
            raise BankFileInvalid(f"the file is not MT940: {type(error).__name__}") from error
        if len(re.findall("(?m)^:61:", part)) != len(statement):
            raise BankFileInvalid("the file has entries that cannot be read")
    return _named(entries)


def _mt940_entry(data: Mapping[str, Any], account: str) -> tuple[str, date, Decimal, str, str]:
    amount = data["amount"]
    # RC takes a receipt back, RD a payment; the sign of the package is that of C and D.
    sign = {"C": 1, "D": -1, "RC": -1, "RD": 1, "EC": 1, "ED": -1}[data["status"]]
    names = ("purpose", "additional_purpose", "end_to_end_reference", "applicant_name", "transaction_details", "extra_details")
    parts = [str(data[name]) for name in names if data.get(name)]
    day = date(data["date"].year, data["date"].month, data["date"].day)
    return account, day, sign * abs(amount.amount), amount.currency, " ".join(" ".join(parts).split())


def read_csv(content: bytes, form: CsvForm) -> list[BankEntry]:
    """Return the entries of a CSV file.

    Raises:
        BankFileInvalid: a column is missing, or a line has a wrong day, amount or currency.
    """
    if missing := [name for name in REQUIRED if name not in form.columns]:
        raise BankFileInvalid(f"name the column of {', '.join(missing)}")
    text = _decoded(content)
    heading = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=form.delimiter or (";" if ";" in heading else ","))
    if unknown := [heading for heading in form.columns.values() if heading not in (rows.fieldnames or ())]:
        raise BankFileInvalid(f"the file has no column {', '.join(map(repr, unknown))}")
    try:
        return _named([_csv_entry(row, form, rows.line_num) for row in rows])
    except csv.Error as error:
        raise BankFileInvalid(f"line {rows.line_num}: {error}") from error


def _csv_entry(row: Mapping[str, str | None], form: CsvForm, line: int) -> tuple[str, date, Decimal, str, str]:
    def cell(name: str) -> str:
        return (row.get(form.columns.get(name, "")) or "").strip()

    try:
        day = datetime.strptime(cell("date"), form.dates).date()  # noqa: DTZ007 – a day
    except ValueError as error:
        raise BankFileInvalid(f"line {line}: {cell('date')!r} is no day of the form {form.dates}") from error
    written = cell("amount").replace(" ", "").replace("," if form.decimal == "." else ".", "")
    try:
        amount = Decimal(written.replace(form.decimal, ".").removeprefix("+"))
    except InvalidOperation as error:
        raise BankFileInvalid(f"line {line}: {cell('amount')!r} is no amount") from error
    text = " ".join(f"{cell('text')} {cell('payer')}".split())
    return cell("id"), day, amount, cell("currency").upper() or form.currency.upper(), text


def _decoded(content: bytes) -> str:
    for encoding in ENCODINGS:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        return text
    raise BankFileInvalid("the file is no text")


def _named(rows: Iterable[tuple[str, date, Decimal, str, str]]) -> list[BankEntry]:
    """Return the rows as entries; see Note [The name of an entry]."""
    seen = Counter[str]()
    entries = []
    for account, day, amount, currency, text in rows:
        form = "\n".join((account, day.isoformat(), f"{amount.normalize():f}" if amount.is_finite() else "", currency, text))
        seen[form] += 1
        digest = hashlib.sha256(f"{form}\n{seen[form]}".encode()).hexdigest()[:32]
        entries.append(BankEntry(f"{day:%Y%m%d}-{digest}", day, _minor(amount, currency), currency, text))
    return entries


def _minor(amount: Decimal, currency: str) -> int:
    if currency not in MINOR_DIGITS:
        raise BankFileInvalid(f"{currency or 'nothing'!r} is no currency that billing knows")
    if not amount.is_finite() or amount.adjusted() > MAX_DIGITS:
        raise BankFileInvalid(f"{amount} is no amount")
    minor = amount.scaleb(minor_digits(currency))
    if minor != minor.to_integral_value():
        raise BankFileInvalid(f"{amount} has more decimals than {currency}")
    return int(minor)
