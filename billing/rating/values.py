"""Types of values in billing's requests: references, currencies, money and units."""

from functools import partial
from typing import Any

from billing.rating.limits import MAX_MONEY, MAX_QUANTITY
from ledger.values import Currency, Holder, InvalidValue, Number, Text

__all__ = ["Currency", "Money", "OneLine", "Ref", "Units", "Used"]

Ref = Holder
"""The reference of a customer, plan, subscription or coupon; it has the form of a holder's id."""

Money = partial(Number, least=0, most=MAX_MONEY)
"""Money in major units, 0 to 10^12, as a decimal string."""

Units = partial(Number, or_integer=True, least=0, most=MAX_QUANTITY)
"""Units, 0 to 10^18, as a decimal string or an integer."""

Used = partial(Number, or_integer=True, least=-MAX_QUANTITY, most=MAX_QUANTITY)
"""The value of a usage event, within plus and minus 10^18, as a decimal string or an integer."""


class OneLine(Text):
    """One line of printable characters; empty is the same as leaving it out."""

    def read(self, value: Any) -> str:
        line = super().read(value)
        if not line.isprintable():
            raise InvalidValue("forbidden-character", "This must be one line of printable characters.")
        if line and not line.strip():
            raise InvalidValue("blank", "This must not be blank.")
        return line
