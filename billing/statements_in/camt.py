"""Reads camt.052, camt.053 and camt.054 of ISO 20022, in the versions 02 to 08 and later. Pure.

Source: ISO 20022, Bank-to-Customer Cash Management. The names of elements are the same in all versions, but some have moved one
level down (`Sts/Cd`, `Dbtr/Pty/Nm`).
"""

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from billing.statements_in.statements import (
    BankFileInvalid,
    EntryState,
    Statement,
    StatementEntry,
    ensure_not_too_large,
    ensure_not_too_many,
)

STATEMENTS: Final = ("Stmt", "Rpt", "Ntfctn")
OPENING: Final = ("OPBD", "PRCD")
CLOSING: Final = ("CLBD",)
NO_REFERENCE: Final = frozenset({"", "NOTPROVIDED", "NONREF"})
MAX_DIGITS: Final = 18
ENTRIES: Final = re.compile(rb"<(?:[\w.-]+:)?Ntry[\s>]")
"""Entries are counted before the tree is made, which takes ten times the memory of the file."""

Element = Any
"""An element of lxml, which has no types."""


def read(content: bytes) -> list[Statement]:
    """Return the statements of a camt file.

    Raises:
        BankFileInvalid: it is not one, or an entry of it lacks an amount, sign or day, with its line.
    """
    document = _parse(content)
    statements = [each for each in document.iter() if _name(each) in STATEMENTS]
    if not statements:
        raise BankFileInvalid("the file is no camt.052, camt.053 or camt.054: it has no statement, report or notification")
    return [_statement(each) for each in statements]


def _parse(content: bytes) -> Element:
    """Return the root, by a parser that loads nothing, expands no entities and refuses a document with a DTD."""
    from lxml import etree  # optional: the extra `payments`

    ensure_not_too_large(content)
    ensure_not_too_many(len(ENTRIES.findall(content)))
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        document = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BankFileInvalid(f"the file is no well-formed XML: {error}") from error
    if document.getroottree().docinfo.doctype:
        raise BankFileInvalid("the file has a DTD, which no bank sends: nothing of it was read")
    return document


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _children(element: Element, *path: str) -> Iterator[Element]:
    """Give the elements at the path, in whatever namespace."""
    if not path:
        yield element
        return
    for child in element:
        if _name(child) == path[0]:
            yield from _children(child, *path[1:])


def _text(element: Element, *paths: str) -> str:
    """Return the first text that one of the paths has; empty if none has any."""
    for path in paths:
        for child in _children(element, *path.split("/")):
            if text := " ".join("".join(child.itertext()).split()):
                return text
    return ""


def _reference(element: Element, *paths: str) -> str:
    reference = _text(element, *paths)
    return "" if reference.upper() in NO_REFERENCE else reference


def _statement(statement: Element) -> Statement:
    balances = {_text(each, "Tp/CdOrPrtry/Cd"): each for each in reversed(list(_children(statement, "Bal")))}
    opening = next((balances[code] for code in OPENING if code in balances), None)
    closing = next((balances[code] for code in CLOSING if code in balances), None)
    entries = [part for entry in _children(statement, "Ntry") for part in _entries(entry)]
    return Statement(
        account=_text(statement, "Acct/Id/IBAN", "Acct/Id/Othr/Id"),
        currency=_text(statement, "Acct/Ccy"),
        opening=None if opening is None else _signed_amount(opening, opening),
        closing=None if closing is None else _signed_amount(closing, closing),
        closing_line=0 if closing is None else closing.sourceline,
        entries=tuple(entries),
    )


def _entries(entry: Element) -> list[StatementEntry]:
    """Return an entry as one, or as its transactions if the bank has booked several in one sum and gives the amount of each."""
    transactions = list(_children(entry, "NtryDtls", "TxDtls"))
    total = _signed_amount(entry, entry)
    amounts = [_transaction_amount(each, entry) for each in transactions]
    if len(transactions) > 1 and None not in amounts and sum(filter(None, amounts)) == total:
        return [
            _entry(entry, [each], amount, number)
            for number, (each, amount) in enumerate(zip(transactions, amounts, strict=True), start=1)
        ]
    return [_entry(entry, transactions, total, 0)]


def _entry(entry: Element, transactions: list[Element], amount: Decimal | None, number: int) -> StatementEntry:
    value_on = _day(entry, "ValDt/Dt", "ValDt/DtTm")
    booked_on = _day(entry, "BookgDt/Dt", "BookgDt/DtTm") or value_on
    if booked_on is None:
        raise BankFileInvalid(f"line {entry.sourceline}: the entry has no booking day and no value day")
    assert amount is not None
    state = _text(entry, "Sts/Cd", "Sts/Prtry", "Sts")
    if state not in {"BOOK", "PDNG", "INFO", "FUTR", ""}:
        raise BankFileInvalid(f"line {entry.sourceline}: the state {state!r} of the entry is not known")
    return StatementEntry(
        line=entry.sourceline,
        booked_on=booked_on,
        value_on=value_on or booked_on,
        amount=amount,
        currency=_currency(entry, transactions if number else []),
        text=_purpose(entry, transactions),
        party=_party(transactions, came_in=amount > 0),
        bank_reference=_bank_reference(entry, transactions, number),
        end_to_end_reference=next((reference for each in transactions if (reference := _reference(each, "Refs/EndToEndId"))), ""),
        state=EntryState.BOOKED if state in {"BOOK", ""} else EntryState.PENDING,
    )


def _bank_reference(entry: Element, transactions: list[Element], number: int) -> str:
    """Return the bank's id of the entry, or of its transaction; parts of one entry without an own id are numbered."""
    own = next((reference for each in transactions if (reference := _reference(each, "Refs/AcctSvcrRef"))), "")
    whole = _reference(entry, "AcctSvcrRef")
    if not number:
        return whole or own
    return own if own and own != whole else f"{whole}/{number}" if whole else ""


def _purpose(entry: Element, transactions: list[Element]) -> str:
    parts = []
    for each in transactions:
        parts += [" ".join("".join(child.itertext()).split()) for child in _children(each, "RmtInf", "Ustrd")]
        parts += [_text(child, "CdtrRefInf/Ref") for child in _children(each, "RmtInf", "Strd")]
        parts += [_text(child, "RfrdDocInf/Nb") for child in _children(each, "RmtInf", "Strd")]
        parts.append(_text(each, "AddtlTxInf"))
    parts.append(_text(entry, "AddtlNtryInf"))
    return " ".join(dict.fromkeys(part for part in parts if part))


def _party(transactions: list[Element], *, came_in: bool) -> str:
    role = "Dbtr" if came_in else "Cdtr"
    for each in transactions:
        name = _text(each, f"RltdPties/{role}/Nm", f"RltdPties/{role}/Pty/Nm")
        account = _text(each, f"RltdPties/{role}Acct/Id/IBAN", f"RltdPties/{role}Acct/Id/Othr/Id")
        if name or account:
            return f"{name} {account}".strip()
    return ""


def _currency(entry: Element, transactions: list[Element]) -> str:
    for element in (*transactions, entry):
        for path in (("Amt",), ("AmtDtls", "TxAmt", "Amt")):
            for amount in _children(element, *path):
                return str(amount.get("Ccy") or "")
    return ""


def _transaction_amount(transaction: Element, entry: Element) -> Decimal | None:
    amount = next((child for path in (("Amt",), ("AmtDtls", "TxAmt", "Amt")) for child in _children(transaction, *path)), None)
    if amount is None or amount.get("Ccy") != _currency(entry, []):
        return None
    return _sign(transaction, entry) * _decimal(amount)


def _signed_amount(element: Element, entry: Element) -> Decimal:
    amount = next(_children(element, "Amt"), None)
    if amount is None:
        raise BankFileInvalid(f"line {element.sourceline}: there is no amount")
    return _sign(element, entry) * _decimal(amount)


def _sign(element: Element, entry: Element) -> int:
    """Return 1 for what came in, and -1 for what went out.

    A reversed entry (`RvslInd`) has the indicator of its own direction already: a receipt that was taken back is a debit.
    """
    indicator = _text(element, "CdtDbtInd") or _text(entry, "CdtDbtInd")
    if indicator not in {"CRDT", "DBIT"}:
        raise BankFileInvalid(f"line {element.sourceline}: the indicator {indicator!r} is neither CRDT nor DBIT")
    return 1 if indicator == "CRDT" else -1


def _decimal(amount: Element) -> Decimal:
    written = (amount.text or "").strip()
    try:
        value = Decimal(written)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0 or value.adjusted() > MAX_DIGITS:
        raise BankFileInvalid(f"line {amount.sourceline}: {written[:40]!r} is no amount")
    return value


def _day(entry: Element, *paths: str) -> date | None:
    written = _text(entry, *paths)
    if not written:
        return None
    try:
        return date.fromisoformat(written[:10])
    except ValueError as error:
        raise BankFileInvalid(f"line {entry.sourceline}: {written[:40]!r} is no day") from error
