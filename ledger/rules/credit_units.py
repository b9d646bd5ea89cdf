"""How amounts of a credit type are written for people: 12,345 of `usd_cents` is 123.45 USD. The ledger counts whole numbers."""

import re
from decimal import Decimal
from typing import NamedTuple

from ledger.values import MINOR_DIGITS

MAX_SCALE = 12
MINUS = "−"
_PLURAL = re.compile(r"(?:.* )?[a-z]{2,}[a-rtv-z]s", re.ASCII)
"""Units that end in a plain English plural, such as "credits" or "api calls"; not "USD", "sms", "status"."""
_NOT_BY_S = ("ches", "ies", "is", "ses", "shes", "xes", "zes")
"""Ends of words that do not become singular by leaving out the s."""


class CreditUnit(NamedTuple):
    """How one credit type is shown.

    `scale` is the number of decimals: the amount is divided by 10 to that power, exactly.
    """

    credit_type: str
    name: str
    unit: str
    scale: int = 0

    def number(self, amount: int) -> str:
        """The amount with its decimals and grouped thousands, such as "-1,234.50" with a real minus."""
        digits = str(abs(amount)).rjust(self.scale + 1, "0")
        whole, fraction = (digits[: -self.scale], digits[-self.scale :]) if self.scale else (digits, "")
        sign = MINUS if amount < 0 else ""
        return f"{sign}{int(whole):,}{'.' if fraction else ''}{fraction}"

    def decimal(self, amount: int) -> Decimal:
        """The amount with its decimals, exactly."""
        return Decimal(amount).scaleb(-self.scale)

    def typed(self, amount: int) -> str:
        """The amount as a person types it: with its decimals, without grouped thousands."""
        return f"{self.decimal(amount):f}"

    def signed(self, amount: int) -> str:
        """As `number`, with a plus where it is above 0."""
        return f"+{self.number(amount)}" if amount > 0 else self.number(amount)

    def amount(self, amount: int) -> str:
        """As `number`, with the unit behind."""
        return f"{self.number(amount)} {self.unit_of(amount)}"

    def signed_amount(self, amount: int) -> str:
        """As `signed`, with the unit behind."""
        return f"{self.signed(amount)} {self.unit_of(amount)}"

    def unit_of(self, amount: int) -> str:
        """The unit as it stands behind this amount: "credit" behind 1, "credits" behind 2, 0 and 1.00."""
        return self.singular if self.is_one(amount) else self.unit

    @property
    def singular(self) -> str:
        """The singular of the unit: "credit" for "credits"; the unit itself if it is not a regular English plural."""
        is_plural = _PLURAL.fullmatch(self.unit) and not self.unit.endswith(_NOT_BY_S)
        return self.unit.removesuffix("s") if is_plural else self.unit

    def is_one(self, amount: int) -> bool:
        """Whether the amount is read as "one": 1 without decimals."""
        return abs(amount) == 1 and not self.scale


def currency_unit(currency: str) -> CreditUnit:
    """Return how pages show minor units of a currency: 3300 of EUR is 33.00 EUR."""
    return CreditUnit("", currency, currency, MINOR_DIGITS.get(currency, 0))


def plain_unit(credit_type: str) -> CreditUnit:
    """How pages show a credit type without a name: whole numbers of the type itself."""
    words = credit_type.replace("_", " ")
    return CreditUnit(credit_type, words.capitalize(), words)
