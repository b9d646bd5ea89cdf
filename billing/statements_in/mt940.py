"""Reads MT940 and MT942 files, with what banks add to them and leave out. Pure.

Source: SWIFT, MT940 customer statement message; DFÜ-Abkommen of the Deutsche Kreditwirtschaft, annex 3, for the fields of `:86:`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from billing.statements_in.statements import (
    BankFileInvalid,
    EntryState,
    Statement,
    StatementEntry,
    decode,
    ensure_not_too_many,
)

ENCODINGS: Final = ("utf-8-sig", "cp1252")
TAG: Final = re.compile(r"^:(\d\d[A-Z]?|NS):(.*)$")
TRAILER: Final = re.compile(r"^(-\}.*|-[\x03\s]*|\{\d:.*)$")
BALANCE: Final = re.compile(r"(?P<mark>[CD])(?P<day>\d{6})(?P<currency>[A-Z]{3})(?P<amount>[\d,]+)")
ENTRY: Final = re.compile(
    r"(?P<value>\d{6})(?P<booked>\d{4})?(?P<mark>RC|RD|EC|ED|C|D)(?P<funds>[A-Z])?(?P<amount>\d+(?:,\d*)?)"
    r"(?P<kind>.{4})?(?P<customer>.*?)(?://(?P<bank>.*))?$"
)
NO_REFERENCE: Final = frozenset({"", "NONREF", "NOREF", "KREF+", "EREF+", "PREF"})
SIGNS: Final = {"C": 1, "D": -1, "RC": -1, "RD": 1, "EC": 1, "ED": -1}
"""RC takes a receipt back, RD a payment."""
PURPOSE_FIELDS: Final = frozenset(f"{number:02}" for number in (*range(20, 30), *range(60, 64)))
NAME_FIELDS: Final = frozenset({"32", "33"})
KEYWORDS: Final = ("EREF", "KREF", "MREF", "CRED", "DEBT", "SVWZ", "ABWA", "ABWE", "IBAN", "BIC", "COAM", "OAMT", "PURP")


@dataclass(slots=True)
class _Field:
    tag: str
    line: int
    lines: list[str] = field(default_factory=list)


def read(content: bytes) -> list[Statement]:
    """Return the statements of an MT940 or MT942 file.

    Raises:
        BankFileInvalid: it is not one, or an entry, amount or day of it is wrong, with its line.
    """
    text = decode(content, ENCODINGS)
    ensure_not_too_many(text.count("\n:61:"))
    fields = list(_fields(text))
    if not any(each.tag in {"61", "60F", "60M", "62F", "62M"} for each in fields):
        raise BankFileInvalid("the file is not MT940: it has no balance and no entry")
    return [_statement(message) for message in _messages(fields)]


def _fields(text: str) -> Iterator[_Field]:
    """Give the fields, each with its continuation lines; what stands outside of messages is left out."""
    current: _Field | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if tag := TAG.match(line.lstrip("\x01\x02 ")):
            if current:
                yield current
            current = _Field(tag[1], number, [tag[2]])
        elif TRAILER.match(line):
            if current:
                yield current
            current = None
        elif current:
            current.lines.append(line)
    if current:
        yield current


def _messages(fields: Sequence[_Field]) -> Iterator[list[_Field]]:
    message: list[_Field] = []
    for each in fields:
        if each.tag == "20" and message:
            yield message
            message = []
        message.append(each)
    if message:
        yield message


def _statement(message: Sequence[_Field]) -> Statement:
    account = next((each.lines[0].strip() for each in message if each.tag in {"25", "25P"}), "")
    opening = next((_balance(each) for each in message if each.tag in {"60F", "60M"}), None)
    closings = [(each, _balance(each)) for each in message if each.tag in {"62F", "62M"}]
    currency = opening[1] if opening else closings[-1][1][1] if closings else _currency_of_floor(message)
    entries = []
    for index, each in enumerate(message):
        if each.tag == "61":
            details = _details(message, index + 1)
            entries.append(_entry(each, details, currency))
    return Statement(
        account=account,
        currency=currency,
        opening=opening[0] if opening else None,
        closing=closings[-1][1][0] if closings else None,
        closing_line=closings[-1][0].line if closings else 0,
        entries=tuple(entries),
    )


def _currency_of_floor(message: Sequence[_Field]) -> str:
    """Return the currency of an MT942, which has no balances but an amount from which it lists entries."""
    floor = next((each.lines[0] for each in message if each.tag in {"34F", "90C", "90D"}), "")
    currency = re.search(r"[A-Z]{3}", floor)
    return currency[0] if currency else ""


def _balance(balance: _Field) -> tuple[Decimal, str]:
    parts = BALANCE.match(balance.lines[0].strip())
    if not parts:
        raise BankFileInvalid(f"line {balance.line}: {balance.lines[0]!r} is no balance")
    return _amount(parts["amount"], balance.line) * (1 if parts["mark"] == "C" else -1), parts["currency"]


def _amount(written: str, line: int) -> Decimal:
    whole, _, decimals = written.partition(",")
    if not whole.isdigit() or (decimals and not decimals.isdigit()) or len(written) > 18:
        raise BankFileInvalid(f"line {line}: {written!r} is no amount")
    return Decimal(f"{whole}.{decimals or 0}")


def _details(message: Sequence[_Field], start: int) -> _Field | None:
    """Return the field that describes the entry before `start`."""
    for index in range(start, len(message)):
        each = message[index]
        if each.tag in {"86", "NS"}:
            return each
        if each.tag != "65":
            return None
    return None


def _entry(entry: _Field, details: _Field | None, currency: str) -> StatementEntry:
    parts = ENTRY.match(entry.lines[0].strip())
    if not parts:
        raise BankFileInvalid(
            f"line {entry.line}: {entry.lines[0][:60]!r} is no entry of MT940: download the file again, or in another form"
        )
    value_on = _day(parts["value"], entry.line)
    customer, supplement = parts["customer"].strip(), " ".join(entry.lines[1:]).strip()
    structure = _read_structured(details) if details and details.tag == "86" else None
    if structure is None:
        text, party, end_to_end = (_join_details(details) if details else ""), "", ""
    else:
        text, party, end_to_end = structure
    own = [part for part in (customer, supplement) if part.upper() not in NO_REFERENCE and part not in text]
    bank = (parts["bank"] or "").strip()
    return StatementEntry(
        line=entry.line,
        booked_on=_booked_on(parts["booked"], value_on, entry.line),
        value_on=value_on,
        amount=SIGNS[parts["mark"]] * _amount(parts["amount"], entry.line),
        currency=currency,
        text=" ".join([text, *own]).strip(),
        party=party,
        bank_reference="" if bank.upper() in NO_REFERENCE else bank,
        end_to_end_reference=end_to_end,
        state=EntryState.BOOKED,
    )


def _join_details(details: _Field) -> str:
    return " ".join(" ".join(line.strip() for line in details.lines).split())


def _read_structured(details: _Field) -> tuple[str, str, str] | None:
    """Return purpose, party and end-to-end reference of the structured forms of `:86:`; None for plain text."""
    # Lines end after 65 characters, in the middle of a word; a field goes on without a space.
    whole = "".join(line.rstrip("\r\n") for line in details.lines)
    if form := re.match(r"\d{3}(?=([?<>~])\d\d)", whole):
        separator = re.escape(form[1])
        fields = re.findall(rf"{separator}(\d\d)(.*?)(?={separator}\d\d|$)", whole)
        purpose = "".join(value for number, value in fields if number in PURPOSE_FIELDS)
        party = "".join(value for number, value in fields if number in NAME_FIELDS)
        return _keywords(purpose, party)
    if "/REMI/" in whole or whole.startswith(("/TRTP/", "/EREF/", "/TRCD/")):
        parts = re.split(r"/(TRTP|TRCD|EREF|MARF|CSID|IBAN|BIC|NAME|REMI|BENM|ORDP|ISDT|CNTP|RTRN)/", whole)
        by_name = dict(zip(parts[1::2], parts[2::2], strict=False))
        reference = by_name.get("EREF", "").strip()
        return by_name.get("REMI", "").strip(), by_name.get("NAME", "").strip(), "" if reference == "NOTPROVIDED" else reference
    return None


def _keywords(purpose: str, party: str) -> tuple[str, str, str]:
    """Return purpose, party and end-to-end reference of a German purpose, whose parts begin with `EREF+`, `SVWZ+` and others."""
    parts = re.split(rf"({'|'.join(KEYWORDS)})\+", purpose)
    by_name: dict[str, str] = dict(zip(parts[1::2], parts[2::2], strict=False))
    text = " ".join(part for part in (parts[0], by_name.get("SVWZ", "")) if part.strip())
    reference = by_name.get("EREF", "").strip()
    return text.strip(), party.strip(), "" if reference.upper() in {"NOTPROVIDED", *NO_REFERENCE} else reference


def _day(written: str, line: int) -> date:
    try:
        return date(2000 + int(written[:2]), int(written[2:4]), int(written[4:6]))
    except ValueError as error:
        raise BankFileInvalid(f"line {line}: {written!r} is no day") from error


def _booked_on(written: str | None, value_on: date, line: int) -> date:
    """Return the booking day, which has no year: the one nearest to the value day."""
    if not written:
        return value_on
    candidates = []
    for year in (value_on.year - 1, value_on.year, value_on.year + 1):
        try:
            candidates.append(date(year, int(written[:2]), int(written[2:])))
        except ValueError:
            continue
    if not candidates:
        raise BankFileInvalid(f"line {line}: {written!r} is no day")
    nearest = min(candidates, key=lambda day: abs(day - value_on))
    return nearest if abs(nearest - value_on) < timedelta(days=366) else value_on
