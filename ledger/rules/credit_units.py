"""How amounts of a credit type are written for people: 12,345 of `usd_cents` is 123.45 USD. The ledger counts whole numbers."""

from decimal import Decimal
from typing import NamedTuple

MAX_SCALE = 12
MINUS = "−"


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

    def signed(self, amount: int) -> str:
        """As `number`, with a plus where it is above 0."""
        return f"+{self.number(amount)}" if amount > 0 else self.number(amount)

    def amount(self, amount: int) -> str:
        """As `number`, with the unit behind."""
        return f"{self.number(amount)} {self.unit}"


def plain_unit(credit_type: str) -> CreditUnit:
    """How a credit type is shown that nobody has named: whole numbers of itself."""
    words = credit_type.replace("_", " ")
    return CreditUnit(credit_type, words.capitalize(), words)
