"""How the sentences about a price write money, numbers and the counted thing. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from billing.rating.money import minor_digits
from ledger.typesetting.languages import ENGLISH


def amount(value: Decimal, currency: str) -> str:
    """Return money in major units, with the decimals of its currency or as many as the amount has."""
    exact = value.normalize()
    has = max(-int(exact.as_tuple().exponent), 0)
    return f"{ENGLISH.number(exact, decimals=max(has, minor_digits(currency)))} {currency}"


def number(value: Decimal) -> str:
    """Return a quantity or rate in words."""
    return ENGLISH.number(value)


MAX_VALUE_CHARACTERS = 60
"""The characters of a group's value that a title shows."""


def group_words(group: Mapping[str, str | None], without: str = "without {name}") -> str:
    """Return the values of a group as the title of a line has them: "region eu, without model".

    Args:
        without: the words for a property that the events of the group do not have.
    """
    shown = {_printable_text(name): None if text is None else _printable_text(text) for name, text in group.items()}
    return ", ".join(without.format(name=name) if text is None else f"{name} {text}" for name, text in shown.items())


def _printable_text(text: str) -> str:
    """Return a text as a page and an e-invoice can print it: in one line, at most `MAX_VALUE_CHARACTERS`; empty: in quotes."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return (plain if len(plain) <= MAX_VALUE_CHARACTERS else f"{plain[: MAX_VALUE_CHARACTERS - 1]}…") or '""'


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of the sentence about a price.

    Args:
        period: "month".
        unit, units: the counted thing: "unit of calls", "calls".
    """

    currency: str
    period: str
    unit: str
    units: str

    def amount(self, value: Decimal) -> str:
        """Return money in the currency."""
        return amount(value, self.currency)
