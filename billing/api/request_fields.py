"""The fields of billing's requests: references, currencies, zones, prices, money and units."""

from typing import Any
from zoneinfo import ZoneInfo

from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, zones
from billing.rating.money import MINOR_DIGITS
from billing.rating.price_fields import PriceInvalid
from billing.rating.price_input import parse_price
from ledger.api.kit.reading.fields import HOLDER_PATTERN, DecimalStringField, InvalidValue, StrictField, TextField
from ledger.api.kit.request_errors import FieldError

REF_PATTERN = HOLDER_PATTERN


class RefField(TextField):
    """The reference of a customer, plan, subscription or coupon: 1-64 letters, digits and `. _ : @ -`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=64, min_length=1, pattern=REF_PATTERN, **options)


class CurrencyField(TextField):
    """An ISO 4217 code with 0, 2 or 3 decimals."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=3, min_length=3, pattern="[A-Z]{3}", **options)

    def clean(self, value: Any) -> str:
        """As `StrictField` says."""
        code = super().clean(value)
        if code not in MINOR_DIGITS:
            raise InvalidValue("unknown-currency", "This must be an active ISO 4217 code such as EUR.")
        return code


class ZoneField(TextField):
    """A time zone of the IANA database."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=64, min_length=1, **options)

    def clean(self, value: Any) -> str:
        """As `StrictField` says."""
        name = super().clean(value)
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


class PriceField(StrictField):
    """A price, as `billing.rating.price_input` reads it; every fault is named by its own pointer."""

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        """As `StrictField` says; returns the price as it was given, since plans store that."""
        try:
            parse_price(value, pointer=pointer)
        except PriceInvalid as invalid:
            field_errors.extend(FieldError(*error) for error in invalid.errors)
            return None
        return value

    def clean(self, value: Any) -> Any:
        """As `StrictField` says."""
        field_errors: list[FieldError] = []
        taken = self.take(value, "", field_errors)
        if field_errors:
            raise InvalidValue(field_errors[0].code, field_errors[0].detail, field_errors[0].pointer)
        return taken

    def openapi(self) -> dict[str, Any]:
        """As `StrictField` says."""
        return {
            "type": "object",
            "description": "See docs/BILLING.md. Only what the model uses may be given.",
            "required": ["key", "kind", "model"],
            "properties": {"credits": CREDITS_OF_A_PRICE},
            "additionalProperties": True,
        }


def money(**options: Any) -> DecimalStringField:
    """Money in major units, 0 to 10^12, as a decimal string."""
    return DecimalStringField(min_value=0, max_value=MAX_MONEY, **options)


def units(**options: Any) -> DecimalStringField:
    """Units, 0 to 10^18, as a decimal string or an integer."""
    return DecimalStringField(or_integer=True, min_value=0, max_value=MAX_QUANTITY, **options)


def used(**options: Any) -> DecimalStringField:
    """What a usage event counts, within plus and minus 10^18, as a decimal string or an integer."""
    return DecimalStringField(or_integer=True, min_value=-MAX_QUANTITY, max_value=MAX_QUANTITY, **options)


class RawEventField(StrictField):
    """An event that is validated separately, so that a bad event does not spoil the others."""

    def clean(self, value: Any) -> Any:
        """As `StrictField` says."""
        return value

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        """As `StrictField` says."""
        return value

    def openapi(self) -> dict[str, Any]:
        """As `StrictField` says."""
        return {
            "type": "object",
            "required": ["idempotency_key", "subscription", "meter", "value", "occurred_at"],
            "properties": {
                "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
                "subscription": {"type": "string", "maxLength": 64},
                "meter": {"type": "string", "maxLength": 64},
                "value": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "occurred_at": {"type": "string", "format": "date-time"},
                "properties": {"type": "object"},
            },
        }
