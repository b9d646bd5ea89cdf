"""How the sentences about a price write money, numbers and the counted thing. Pure."""

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
