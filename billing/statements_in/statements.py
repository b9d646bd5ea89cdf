"""A bank statement as every reader gives it: its account, its balances and its entries. Pure.

A statement is checked by the bank's own sums before anything of it is booked: opening balance plus entries is the closing
balance, and the balance beside an entry follows from the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Final

from billing.rating.money import MINOR_DIGITS, minor_digits

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest file that is read."""
MAX_ENTRIES: Final = 200_000
"""The most entries of one file."""
FIRST_YEAR: Final = 2000
LAST_YEAR: Final = 2200
INCOMPLETE: Final = "entries are missing or misread"
MAX_TEXT: Final = 2_000
"""How many characters of an entry's text are kept: more than any bank sends."""


class BankFileInvalid(Exception):
    """The file cannot be read, or its sums do not agree. Nothing of it was booked."""


class EntryState(StrEnum):
    """Whether the bank has booked an entry."""

    BOOKED = "booked"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementEntry:
    """One entry of an account.

    Args:
        line: where it stands in the file, from 1.
        booked_on: the day on which the bank booked it.
        value_on: the day from which the bank counts the money.
        amount: above 0 if money came in; below 0 if it went out, or if the bank took a receipt back.
        text: what the payer wrote.
        party: who paid, or was paid; the name, the account or both.
        bank_reference: the bank's own id of this entry; empty if it gives none.
        end_to_end_reference: the id that the payer gave; empty if there is none.
        balance: the account's balance after the entry, if the file has it.
    """

    line: int
    booked_on: date
    value_on: date
    amount: Decimal
    currency: str
    text: str
    party: str = ""
    bank_reference: str = ""
    end_to_end_reference: str = ""
    state: EntryState = EntryState.BOOKED
    balance: Decimal | None = None

    @property
    def amount_minor(self) -> int:
        """Return the amount in minor units of its currency."""
        return int(self.amount.scaleb(minor_digits(self.currency)))

    @property
    def words(self) -> str:
        """Return all that a number of an invoice may stand in."""
        parts = dict.fromkeys(part for part in (self.text, self.end_to_end_reference, self.party) if part)
        return " ".join(" ".join(parts).split())[:MAX_TEXT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Entries of one account, with the balances before and after them where the file has them."""

    account: str
    currency: str = ""
    opening: Decimal | None = None
    closing: Decimal | None = None
    closing_line: int = 0
    entries: tuple[StatementEntry, ...] = ()


def check_statements(statements: Sequence[Statement]) -> None:
    """Return if all statements agree with the bank's own sums.

    Raises:
        BankFileInvalid: an amount is not one of its currency, or a sum or balance differs, and where.
    """
    ensure_not_too_many(sum(len(statement.entries) for statement in statements))
    for statement in statements:
        for entry in statement.entries:
            _check_day(entry)
            _check_amount(entry)
        _check_closing(statement)
        _check_running_balance(statement)


def ensure_not_too_large(content: bytes) -> None:
    """Return if a file is not too large to be read. Raises: BankFileInvalid."""
    if len(content) > MAX_BYTES:
        raise BankFileInvalid(f"the file has more than {MAX_BYTES // 1024 // 1024} MiB: divide it by days")


def ensure_not_too_many(entries: int) -> None:
    """Return if a file may have that number of entries. A reader says it before it makes them. Raises: BankFileInvalid."""
    if entries > MAX_ENTRIES:
        raise BankFileInvalid(f"the file has more than {MAX_ENTRIES:,} entries: divide it by days")


def _check_day(entry: StatementEntry) -> None:
    for day in (entry.booked_on, entry.value_on):
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise BankFileInvalid(f"line {entry.line}: the day {day} is not in the years {FIRST_YEAR} to {LAST_YEAR}")


def _check_amount(entry: StatementEntry) -> None:
    if entry.currency not in MINOR_DIGITS:
        if entry.currency:
            raise BankFileInvalid(f"line {entry.line}: {entry.currency[:10]!r} is no currency that billing knows")
        raise BankFileInvalid(f"line {entry.line}: the file does not say the currency of the entry: say it with --currency")
    minor = entry.amount.scaleb(minor_digits(entry.currency))
    if minor != minor.to_integral_value():
        raise BankFileInvalid(f"line {entry.line}: {entry.amount} has more decimals than {entry.currency}")


def _check_closing(statement: Statement) -> None:
    if statement.opening is None or statement.closing is None:
        return
    entries_sum = sum((entry.amount for entry in statement.entries if entry.state is EntryState.BOOKED), Decimal())
    expected = statement.opening + entries_sum
    if expected != statement.closing:
        account = statement.account or "(unnamed)"
        raise BankFileInvalid(
            f"line {statement.closing_line}: the closing balance of account {account} is {statement.closing}, but the opening"
            f" balance {statement.opening} and the entries {entries_sum} make {expected}: {INCOMPLETE}; download the file again"
        )


def _check_running_balance(statement: Statement) -> None:
    """Check the balance beside each entry, where files list the oldest entry first or the newest."""
    entries = [entry for entry in statement.entries if entry.state is EntryState.BOOKED]
    oldest_first = _find_break(entries)
    newest_first = _find_break(entries[::-1])
    if oldest_first is None or newest_first is None:
        return
    is_newest_first = entries[0].booked_on > entries[-1].booked_on
    wrong, expected = newest_first if is_newest_first else oldest_first
    raise BankFileInvalid(
        f"line {wrong.line}: the balance is {wrong.balance}, but {expected} follows from the entries: {INCOMPLETE};"
        " download the file again, or read it without the column of the balance"
    )


def _find_break(entries: Sequence[StatementEntry]) -> tuple[StatementEntry, Decimal] | None:
    """Return the first entry whose balance does not follow, with the one that does; None if all follow."""
    known: Decimal | None = None
    for entry in entries:
        expected = None if known is None else known + entry.amount
        if expected is not None and entry.balance is not None and entry.balance != expected:
            return entry, expected
        known = entry.balance if entry.balance is not None else expected
    return None


def decode(content: bytes, encodings: Sequence[str]) -> str:
    """Return the file as text, by the first encoding that it has.

    Raises:
        BankFileInvalid: it is too large, or no text.
    """
    ensure_not_too_large(content)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ("utf-16",)
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        return text
    raise BankFileInvalid(f"the file is no text in {' or '.join(encodings)}")
