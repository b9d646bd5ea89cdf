"""Fields of a request: declared once, read strictly, and shown by the OpenAPI document.

A field converts nothing by guess: 1.0, "1" and true are not integers. Limits are those of the rules.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from ledger.api.kit.reading.parsing import pointer_part
from ledger.api.kit.request_errors import FieldError
from ledger.rules import requests
from ledger.rules.requests import MAX_AMOUNT, MAX_SEQUENCE

HOLDER_PATTERN = requests.HOLDER_ID.pattern
CREDIT_TYPE_PATTERN = requests.CREDIT_TYPE.pattern
RATE_PATTERN = requests.RATE_CODE.pattern
EARLIEST_YEAR, LATEST_YEAR = 2000, 2200
"""The years, in UTC, in which the times of a request must lie."""

JSON_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


class InvalidValue(Exception):
    """A value is not what its field takes; becomes a `FieldError` with the field's pointer. Never leaves the kit."""

    def __init__(self, code: str, detail: str, at: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.at = at


class StrictField(serializers.Field):
    """A field whose `clean` returns the value as the services take it, or raises `InvalidValue`."""

    def clean(self, value: Any) -> Any:
        """Return the value as the services take it, or raise `InvalidValue`."""
        raise NotImplementedError

    def openapi(self) -> dict[str, Any]:
        """Return the JSON schema of what `clean` takes."""
        raise NotImplementedError

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        """Return the clean value; or add to `field_errors` and return None."""
        if value is None:
            if not self.allow_null:
                field_errors.append(FieldError(pointer, "null", "This may not be null."))
            return None
        try:
            return self.clean(value)
        except InvalidValue as invalid:
            field_errors.append(FieldError(pointer + invalid.at, invalid.code, invalid.detail))
            return None

    def to_internal_value(self, data: Any) -> Any:
        """Return the clean value, for a DRF serializer that is run in DRF's way."""
        try:
            return self.clean(data)
        except InvalidValue as invalid:
            raise serializers.ValidationError(invalid.detail, code=invalid.code) from invalid

    def to_representation(self, value: Any) -> Any:
        """Return the value as it is."""
        return value


class WholeNumberField(StrictField):
    """A JSON integer within bounds; 1.0, "1" and true are refused."""

    def __init__(self, *, min_value: int, max_value: int, **options: Any) -> None:
        self.min_value = min_value
        self.max_value = max_value
        super().__init__(**options)

    def clean(self, value: Any) -> int:
        if type(value) is not int:
            raise InvalidValue("not-an-integer", f"This must be a JSON integer, not {json_name(value)}.")
        if value < self.min_value:
            raise InvalidValue("too-small", f"This must be at least {self.min_value}.")
        if value > self.max_value:
            raise InvalidValue("too-large", f"This must be at most {self.max_value}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": self.min_value, "maximum": self.max_value}


class AmountField(WholeNumberField):
    """How many credits, in the smallest unit: 1 .. 2^53 - 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_AMOUNT, **options)


class SequenceField(WholeNumberField):
    """The number of an entry. A number that no entry can have is accepted: that entry does not exist."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_SEQUENCE, **options)

    def clean(self, value: Any) -> int:
        if type(value) is int and value > self.max_value:
            return self.max_value + 1
        return super().clean(value)


class TruthField(StrictField):
    """A JSON true or false."""

    def clean(self, value: Any) -> bool:
        if type(value) is not bool:
            raise InvalidValue("not-a-boolean", f"This must be true or false, not {json_name(value)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "boolean"}


class TextField(StrictField):
    """A JSON string of bounded length, kept as it is; with `pattern`, one that matches it whole."""

    def __init__(self, *, max_length: int, min_length: int = 0, pattern: str = "", **options: Any) -> None:
        self.max_length = max_length
        self.min_length = min_length
        self.pattern = pattern
        self._matches: Callable[[str], Any] | None = re.compile(pattern).fullmatch if pattern else None
        super().__init__(**options)

    def clean(self, value: Any) -> str:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        if len(value) > self.max_length:
            raise InvalidValue("too-long", f"This must be at most {self.max_length} characters.")
        if len(value) < self.min_length:
            raise InvalidValue("too-short", f"This must be at least {self.min_length} characters.")
        if self._matches is not None and self._matches(value) is None:
            raise InvalidValue("pattern", f"This must match ^{self.pattern}$.")
        return value

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "maxLength": self.max_length}
        if self.min_length:
            schema["minLength"] = self.min_length
        if self.pattern:
            schema["pattern"] = f"^{self.pattern}$"
        return schema


class HolderField(TextField):
    """Who owns credits: 1-64 of letters, digits and `. _ : @ -`, beginning with a letter or digit."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=64, min_length=1, pattern=HOLDER_PATTERN, **options)


class RateField(TextField):
    """The name of a rate: 1-64 of small letters, digits and `. _ : -`, beginning with a letter or digit."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=64, min_length=1, pattern=RATE_PATTERN, **options)


class IdempotencyKeyField(TextField):
    """An idempotency key in a body: 1-255 printable ASCII characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=255, min_length=1, pattern=requests.IDEMPOTENCY_KEY.pattern, **options)


class CreditTypeField(TextField):
    """What is counted: 1-32 of small letters, digits and `_`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=32, min_length=1, pattern=CREDIT_TYPE_PATTERN, **options)


class ChoiceField(StrictField):
    """One of a few strings."""

    def __init__(self, *, choices: Sequence[str], **options: Any) -> None:
        self.choices = tuple(choices)
        super().__init__(**options)

    def clean(self, value: Any) -> str:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        if value not in self.choices:
            raise InvalidValue("not-a-choice", f"This must be one of {', '.join(self.choices)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        # drf-spectacular makes a choice of null out of the None.
        return {"type": "string", "enum": [*self.choices, None] if self.allow_null else list(self.choices)}


class NameField(StrictField):
    """One fixed string, which distinguishes one kind of object from the others."""

    def __init__(self, *, name: str, **options: Any) -> None:
        self.only = name
        super().__init__(**options)

    def clean(self, value: Any) -> str:
        if value != self.only:
            raise InvalidValue("not-a-choice", f"This must be {self.only}.")
        return self.only

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "const": self.only}


class TimeField(StrictField):
    """A time in the years 2000 to 2200: RFC 3339 with an offset, to the microsecond; comes out in UTC."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.(?P<fraction>\d+))?(?P<offset>[Zz]|[+-]\d\d:\d\d)?", re.ASCII)

    def clean(self, value: Any) -> datetime:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        form = self._FORM.fullmatch(value) if len(value) <= 40 else None
        if form is None:
            raise InvalidValue(
                "not-a-time", "This must be an RFC 3339 time such as 2026-01-31T09:30:00Z; in a URL, + is written %2B."
            )
        if form["offset"] is None:
            raise InvalidValue("no-offset", "This must end in Z or an offset such as +02:00.")
        if len((form["fraction"] or "").rstrip("0")) > 6:
            raise InvalidValue("too-precise", "This must not be more precise than a microsecond.")
        return self._in_utc(value.upper())

    @staticmethod
    def _in_utc(text: str) -> datetime:
        try:
            found = datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise InvalidValue("not-a-time", "This time does not exist in the calendar.") from error
        if not EARLIEST_YEAR <= found.year <= LATEST_YEAR:
            raise InvalidValue("out-of-range", f"This must be in the years {EARLIEST_YEAR} to {LATEST_YEAR}, in UTC.")
        return found

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "maxLength": 40}


class DayField(StrictField):
    """A calendar day: YYYY-MM-DD."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

    def clean(self, value: Any) -> date:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        try:
            if self._FORM.fullmatch(value) is None:
                raise ValueError(value)
            return date.fromisoformat(value)
        except ValueError as error:
            raise InvalidValue("not-a-day", "This must be a day such as 2026-01-31.") from error

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


class DecimalStringField(StrictField):
    """An exact number as a string in plain notation, such as "0.0015"; with `or_integer`, a JSON integer too.

    Args:
        max_digits: digits before and behind the point together.
        decimal_places: digits behind the point.
        min_value, max_value: bounds, inclusive; None for none but that of the digits.
    """

    def __init__(
        self,
        *,
        max_digits: int = 38,
        decimal_places: int = 12,
        min_value: Decimal | int | None = None,
        max_value: Decimal | int | None = None,
        or_integer: bool = False,
        **options: Any,
    ) -> None:
        self.max_digits = max_digits
        self.decimal_places = decimal_places
        self.min_value = min_value
        self.max_value = max_value
        self.or_integer = or_integer
        places = rf"(?:\.[0-9]{{1,{decimal_places}}})?" if decimal_places else ""
        self.pattern = rf"-?(?:0|[1-9][0-9]{{0,{max_digits - decimal_places - 1}}}){places}"
        self._matches = re.compile(self.pattern).fullmatch
        super().__init__(**options)

    def clean(self, value: Any) -> Decimal:
        if type(value) is int and self.or_integer:
            value = str(value)
        if type(value) is not str:
            raise InvalidValue("not-a-decimal", f'This must be a string such as "12.50", not {json_name(value)}.')
        if len(value) > self.max_digits + 2 or self._matches(value) is None:
            whole = self.max_digits - self.decimal_places
            raise InvalidValue(
                "not-a-decimal",
                f'This must be plain digits such as "12.50", at most {whole} before and {self.decimal_places} behind the point.',
            )
        number = Decimal(value)
        if self.min_value is not None and number < self.min_value:
            raise InvalidValue("too-small", f"This must be at least {self.min_value}.")
        if self.max_value is not None and number > self.max_value:
            raise InvalidValue("too-large", f"This must be at most {self.max_value}.")
        return number

    def openapi(self) -> dict[str, Any]:
        text: dict[str, Any] = {"type": "string", "pattern": f"^{self.pattern}$"}
        # Beside an integer without the format: clients would take the string for a number type of theirs, and mix up the two.
        return {"oneOf": [text, {"type": "integer"}]} if self.or_integer else {**text, "format": "decimal"}


class MetadataField(StrictField):
    """A JSON object for the caller: at most 50 keys of at most 64 characters, 8 KiB in all.

    Integers in it must be exact in every reader (within 2^53); so must the whole part of other numbers.
    """

    def clean(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        if len(value) > requests.MAX_METADATA_KEYS:
            raise InvalidValue("too-many-keys", f"This must have at most {requests.MAX_METADATA_KEYS} keys.")
        if value and _json_length_bytes(value) > requests.MAX_METADATA_BYTES:
            raise InvalidValue("too-large", f"This must be at most {requests.MAX_METADATA_BYTES} bytes as JSON.")
        return {key: self._kept(key, item, "") for key, item in value.items()}

    def _kept(self, key: str, value: Any, at: str) -> Any:
        at += pointer_part(key)
        if len(key) > requests.MAX_METADATA_KEY_CHARACTERS:
            raise InvalidValue("too-long", f"A key must be at most {requests.MAX_METADATA_KEY_CHARACTERS} characters.", at)
        return self._kept_value(value, at)

    def _kept_value(self, value: Any, at: str) -> Any:
        if type(value) is dict:
            return {key: self._kept(key, item, at) for key, item in value.items()}
        if type(value) is list:
            return [self._kept_value(item, f"{at}/{number}") for number, item in enumerate(value)]
        if type(value) in (int, float) and not (math.isfinite(value) and abs(value) <= MAX_AMOUNT):
            raise InvalidValue("too-large", f"A number must be within plus and minus {MAX_AMOUNT}.", at)
        return value

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "additionalProperties": {},
            "maxProperties": requests.MAX_METADATA_KEYS,
            "propertyNames": {"maxLength": requests.MAX_METADATA_KEY_CHARACTERS},
        }


def json_name(value: Any) -> str:
    """Return what a JSON value is, for people."""
    return "null" if value is None else JSON_NAMES.get(type(value), "this")


def _json_length_bytes(value: Any) -> int:
    """Return how long the value is as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))
