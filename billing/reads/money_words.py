"""An amount of money in words, as people who speak a language write it."""

from decimal import Decimal

from billing.rating.money import minor_digits
from ledger.typesetting.languages import Language


def money(amount_minor: int, currency: str, language: Language) -> str:
    """Return an amount as the customer reads it."""
    digits = minor_digits(currency)
    return f"{language.number(Decimal(amount_minor).scaleb(-digits), decimals=digits)} {currency}"
