"""Types of values in billing's requests: references, currencies, money and units."""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final

from billing.rating.limits import MAX_MONEY, MAX_QUANTITY
from billing.rating.periods import MAX_INTERVAL_COUNT, IntervalUnit
from billing.rating.vat import VatIdWrong, checked_vat_id
from ledger.records import Record
from ledger.values import Choice, Currency, Holder, Integer, InvalidValue, Number, Text

__all__ = [
    "CREDIT",
    "EMAIL",
    "MANUAL",
    "Currency",
    "ElectronicAddress",
    "Email",
    "Money",
    "NewInterval",
    "OneLine",
    "PaymentId",
    "Provider",
    "Ref",
    "Units",
    "Used",
    "VatId",
]  # fmt: skip

Ref = Holder
"""The reference of a customer, plan, subscription or coupon; it has the form of a holder's id."""


Units = partial(Number, or_integer=True, least=0, most=MAX_QUANTITY)
"""Units, 0 to 10^18, as a decimal string or an integer."""

Used = partial(Number, or_integer=True, least=-MAX_QUANTITY, most=MAX_QUANTITY)
"""The value of a usage event, within plus and minus 10^18, as a decimal string or an integer."""

MANUAL: Final = "manual"
"""The provider of money that somebody booked by hand."""

CREDIT: Final = "credit"
"""The provider of payments that credit of the customer made; no money came in."""

EMAIL: Final = r"(?:[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+)?"
MAX_EMAIL_CHARACTERS: Final = 254

Email = partial(Text, most=MAX_EMAIL_CHARACTERS, pattern=EMAIL, rule="an e-mail address")
"""An e-mail address in ASCII; empty for none."""

Provider = partial(Text, most=32, least=1, pattern="[a-z0-9_]+", rule="1 to 32 characters of a-z 0-9 _")
"""Who took money."""

PaymentId = partial(Text, most=200, least=1)
"""A provider's id of a payment, refund or dispute."""


@dataclass(frozen=True, kw_only=True)
class NewInterval(Record):
    """How long a period is."""

    unit: Annotated[str, Choice(IntervalUnit, "What is counted.")]
    count: Annotated[int, Integer("How many.", least=1, most=MAX_INTERVAL_COUNT)] = 1


ElectronicAddress = partial(
    Text, most=105, pattern=r"(?:(?:EM|[0-9]{4}):[!-~]{1,100})?", rule="the code of a scheme, a colon and an address"
)
"""An address for e-invoices with the code of its scheme in the EAS list, such as 0204:991-01234-56; empty for none."""


class OneLine(Text):
    """One line of printable characters; empty is the same as leaving it out."""

    def read(self, value: Any) -> str:
        line = super().read(value)
        if not line.isprintable():
            raise InvalidValue("forbidden-character", "This must be one line of printable characters.")
        if line and not line.strip():
            raise InvalidValue("blank", "This must not be blank.")
        return line


class Money(Number):
    """Money in major units, 0 to 10^12, as a decimal string."""

    def __init__(self, text: str = "", *, least: Decimal | int = 0, most: Decimal | int = MAX_MONEY, **options: Any) -> None:
        super().__init__(text, least=least, most=most, **options)


class Country(OneLine):
    """A country, by the two letters of ISO 3166."""

    def __init__(self, text: str = "ISO 3166.", **options: Any) -> None:
        super().__init__(text, most=2, pattern="[A-Z]{2}", rule="two capital letters (ISO 3166)", **options)


class VatId(OneLine):
    """A VAT id. One of the EU must be right in form and check digits; others are kept as they are."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=32, **options)

    def read(self, value: Any) -> str:
        vat_id = super().read(value)
        try:
            return checked_vat_id(vat_id)
        except VatIdWrong as wrong:
            raise InvalidValue(wrong.rule, wrong.detail) from None
