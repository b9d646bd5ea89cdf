"""Reads the amounts of a bank's file as one number form. Pure.

Note [One number form in a file]
    `1,234` is 1234 in one country and 1.234 in another. A grouping sign stands before exactly three digits and never behind the
    decimal sign, so most amounts say which form they have. One that does not is read in the form of the others; if none of the
    file says it, the file is refused until somebody says which sign stands before the decimals.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from billing.statements_in.statements import BankFileInvalid

DECIMAL_SIGNS: Final = (".", ",")
GROUPING_SIGNS: Final = ".,' "
MINUS_SIGNS: Final = "-\N{MINUS SIGN}\N{EN DASH}"
SPACES: Final = re.compile(r"[\s\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}]+")
CURRENCY: Final = re.compile(r"^(?:[A-Z]{3}|[€$£¥])(?=[^A-Z]|$)|(?<=[^A-Z])(?:[A-Z]{3}|[€$£¥])$")
MAX_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class WrittenAmount:
    """An amount as it stands in a file: its sign, its digits with their signs, and its line."""

    is_negative: bool
    digits: str
    line: int

    @property
    def decimal_sign(self) -> str:
        """Return the decimal sign if the amount alone says which it is; empty if it has none, or may have either."""
        signs = [sign for sign in self.digits if not sign.isdigit()]
        if not signs:
            return ""
        last = signs[-1]
        if last not in DECIMAL_SIGNS:
            return ""
        is_repeated = signs.count(last) > 1
        if is_repeated:
            return DECIMAL_SIGNS[1 - DECIMAL_SIGNS.index(last)]
        ends_in_three = len(self.digits) - self.digits.rindex(last) - 1 == 3
        starts_short = 1 <= self.digits.index(last) <= 3 and not self.digits.startswith("0")
        return "" if ends_in_three and len(signs) == 1 and starts_short else last


def read_written(cell: str, line: int) -> WrittenAmount:
    """Return the parts of an amount such as `1.190,00`, `45,00 €`, `1'045.00`, `45,00-` or `(45.00)`.

    Raises:
        BankFileInvalid: the cell is no amount.
    """
    text = SPACES.sub(" ", cell).strip().replace("’", "'")
    text = CURRENCY.sub("", text).strip()
    is_bracketed = text.startswith("(") and text.endswith(")")
    text = text[1:-1].strip() if is_bracketed else text
    sign = re.match(rf"^([{MINUS_SIGNS}+]?)\s*(.*?)\s*([{MINUS_SIGNS}+]?)$", text)
    assert sign is not None
    has_minus = (sign[1] or sign[3] or "+") in MINUS_SIGNS
    text = CURRENCY.sub("", sign[2]).strip() if not (sign[1] and sign[3]) else ""
    if not re.fullmatch(r"\d+(?:[.,' ]\d+)*[.,]?", text, re.ASCII) or sum(map(str.isdigit, text)) > MAX_DIGITS:
        raise BankFileInvalid(f"line {line}: {cell.strip()[:40]!r} is no amount")
    return WrittenAmount(has_minus or is_bracketed, text, line)


def find_decimal_sign(amounts: Iterable[WrittenAmount], declared: str = "") -> str:
    """Return the decimal sign of all amounts of a file; see Note [One number form in a file].

    Args:
        declared: the sign that a profile or an option names; empty: as the amounts say.
    Raises:
        BankFileInvalid: the amounts have several forms, another one than declared, or none that is certain.
    """
    sign, source = declared, ""
    uncertain: WrittenAmount | None = None
    for amount in amounts:
        own = amount.decimal_sign
        if own and sign and own != sign:
            other = f"line {source} has another form" if source else f"the file is said to have {sign!r} before the decimals"
            raise BankFileInvalid(
                f"line {amount.line}: {amount.digits!r} has {own!r} before the decimals, but {other} (--decimal)"
            )
        if own and not sign:
            sign, source = own, str(amount.line)
        if not own and any(each in DECIMAL_SIGNS for each in amount.digits):
            uncertain = uncertain or amount
    if uncertain and not sign:
        raise BankFileInvalid(
            f"line {uncertain.line}: {uncertain.digits!r} may be a thousand times more or less:"
            " say with --decimal which sign stands before the decimals"
        )
    return sign or "."


def read_amount(amount: WrittenAmount, decimal_sign: str) -> Decimal:
    """Return the amount, below 0 if it has a minus or stands in brackets.

    Raises:
        BankFileInvalid: its grouping signs do not stand before three digits each, or behind the decimal sign.
    """
    whole, _, decimals = amount.digits.partition(decimal_sign)
    groups = re.split(r"[.,' ]", whole)
    is_grouped = len(groups) == 1 or (1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:]))
    is_one_sign = len({sign for sign in whole if not sign.isdigit()}) <= 1
    if not (is_grouped and is_one_sign and (decimals == "" or decimals.isdigit())):
        raise BankFileInvalid(
            f"line {amount.line}: {amount.digits!r} is no amount with {decimal_sign!r} before the decimals (--decimal)"
        )
    value = Decimal(f"{''.join(groups)}.{decimals or 0}")
    return -value if amount.is_negative else value
