"""Types of values in billing's requests: references, currencies, zones, money, units and prices."""

from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, zones
from billing.rating.money import MINOR_DIGITS
from billing.rating.price_input import PriceInvalid, parse_price
from ledger.errors import FieldError
from ledger.values import Holder, InvalidValue, Number, Text, Value

Ref = Holder
"""The reference of a customer, plan, subscription or coupon has the form of a holder's."""

Money = partial(Number, least=0, most=MAX_MONEY)
"""Money in major units, 0 to 10^12, as a decimal string."""

Units = partial(Number, or_integer=True, least=0, most=MAX_QUANTITY)
"""Units, 0 to 10^18, as a decimal string or an integer."""

Used = partial(Number, or_integer=True, least=-MAX_QUANTITY, most=MAX_QUANTITY)
"""What a usage event counts, within plus and minus 10^18, as a decimal string or an integer."""


class Currency(Text):
    """An ISO 4217 code with 0, 2 or 3 decimals."""

    def __init__(self, text: str = "ISO 4217.", **options: Any) -> None:
        super().__init__(text, most=3, least=3, pattern="[A-Z]{3}", **options)

    def read(self, value: Any) -> str:
        code = super().read(value)
        if code not in MINOR_DIGITS:
            raise InvalidValue("unknown-currency", "This must be an active ISO 4217 code such as EUR.")
        return code


class Zone(Text):
    """A time zone of the IANA database."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=64, least=1, **options)

    def read(self, value: Any) -> str:
        name = super().read(value)
        if name not in zones():
            raise InvalidValue("unknown-time-zone", "This must be a zone of the IANA database such as Europe/Berlin.")
        return ZoneInfo(name).key


CREDITS_OF_A_PRICE = {
    "type": "object",
    "description": "Of a usage price of model unit, graduated or package: units are paid in credits of the customer's holder"
    " first; what those do not cover is invoiced.",
    "required": ["per_unit"],
    "properties": {
        "credit_type": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$", "default": "credits"},
        "per_unit": {
            "type": "string",
            "description": "Credits per unit or package, above 0, as a decimal string.",
            "example": "2.5",
        },
    },
    "additionalProperties": False,
}


class PriceValue(Value):
    """A price, as `billing.rating.price_input` reads it; every fault is named by its own pointer."""

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        """Return the price as it was given, since plans store that."""
        try:
            parse_price(value, pointer=pointer)
        except PriceInvalid as invalid:
            field_errors.extend(invalid.errors)
            return None
        return value

    def check(self, value: Any) -> Any:
        return value

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "description": "See docs/BILLING.md. Only what the model uses may be given.",
            "required": ["key", "kind", "model"],
            "properties": {"credits": CREDITS_OF_A_PRICE},
            "additionalProperties": True,
        }
