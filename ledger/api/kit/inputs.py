"""What a request may carry: fields and bodies, declared once, read strictly, and shown by the OpenAPI document.

A body is declared as a `StrictSerializer` of `StrictField`s. The declarations are DRF's, so that drf-spectacular documents them;
the reading is not: `read` walks a plan that is made once per class, converts nothing by guess, refuses unknown fields, and
collects everything that is wrong instead of stopping at the first.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl

from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.fields import empty

from ledger.api.kit.parsing import is_storable, pointer_part
from ledger.api.kit.request_errors import Flaw, InvalidRequest, MalformedRequest

MAX_AMOUNT = 2**53 - 1
"""The largest integer that every JSON reader holds exactly. Source: RFC 7493, 2.2."""
MAX_SEQUENCE = 2**63 - 1
EARLIEST_YEAR, LATEST_YEAR = 2000, 2200
"""Times that a request may name lie in these years, in UTC."""
HOLDER_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}"
CREDIT_TYPE_PATTERN = r"[a-z0-9_]{1,32}"
RATE_PATTERN = r"[a-z0-9][a-z0-9._:-]{0,63}"
METADATA_LIMIT_BYTES = 8 * 1024
METADATA_KEY_LIMIT = 64
METADATA_KEYS_LIMIT = 50

JSON_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


class Unfit(Exception):
    """A value is not what its field takes; becomes a `Flaw` with the field's pointer. Never leaves this module."""

    def __init__(self, code: str, detail: str, at: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.at = at


# Fields ----------------------------------------------------------------------------------------------


class StrictField(serializers.Field):
    """A field whose `clean` returns the value as the services take it, or raises `Unfit`."""

    def clean(self, value: Any) -> Any:
        """Return the value as the services take it, or raise `Unfit`."""
        raise NotImplementedError

    def openapi(self) -> dict[str, Any]:
        """Return the JSON schema of what `clean` takes."""
        raise NotImplementedError

    def take(self, value: Any, pointer: str, flaws: list[Flaw]) -> Any:
        """Return the clean value; or add to `flaws` and return None."""
        if value is None:
            if not self.allow_null:
                flaws.append(Flaw(pointer, "null", "This may not be null."))
            return None
        try:
            return self.clean(value)
        except Unfit as unfit:
            flaws.append(Flaw(pointer + unfit.at, unfit.code, unfit.detail))
            return None

    def to_internal_value(self, data: Any) -> Any:
        """Return the clean value, for a DRF serializer that is run in DRF's way."""
        try:
            return self.clean(data)
        except Unfit as unfit:
            raise serializers.ValidationError(unfit.detail, code=unfit.code) from unfit

    def to_representation(self, value: Any) -> Any:
        """Return the value as it is."""
        return value


class WholeNumberField(StrictField):
    """A JSON integer within bounds; 1.0, "1" and true are none."""

    def __init__(self, *, min_value: int, max_value: int, **options: Any) -> None:
        self.min_value = min_value
        self.max_value = max_value
        super().__init__(**options)

    def clean(self, value: Any) -> int:
        if type(value) is not int:
            raise Unfit("not-an-integer", f"This must be a JSON integer, not {_json_name(value)}.")
        if value < self.min_value:
            raise Unfit("too-small", f"This must be at least {self.min_value}.")
        if value > self.max_value:
            raise Unfit("too-large", f"This must be at most {self.max_value}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": self.min_value, "maximum": self.max_value}


class AmountField(WholeNumberField):
    """How many credits, in the smallest unit: 1 .. 2^53 - 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_AMOUNT, **options)


class SequenceField(WholeNumberField):
    """The number of an entry. Numbers that no entry can have pass: they name an entry that does not exist."""

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
            raise Unfit("not-a-boolean", f"This must be true or false, not {_json_name(value)}.")
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
            raise Unfit("not-a-string", f"This must be a string, not {_json_name(value)}.")
        if len(value) > self.max_length:
            raise Unfit("too-long", f"This must be at most {self.max_length} characters.")
        if len(value) < self.min_length:
            raise Unfit("too-short", f"This must be at least {self.min_length} characters.")
        if self._matches is not None and self._matches(value) is None:
            raise Unfit("pattern", f"This must match ^{self.pattern}$.")
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
        super().__init__(max_length=255, min_length=1, pattern=r"[ -~]{1,255}", **options)


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
            raise Unfit("not-a-string", f"This must be a string, not {_json_name(value)}.")
        if value not in self.choices:
            raise Unfit("not-a-choice", f"This must be one of {', '.join(self.choices)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


class NameField(StrictField):
    """One string and no other: what tells one kind of object from the others."""

    def __init__(self, *, name: str, **options: Any) -> None:
        self.only = name
        super().__init__(**options)

    def clean(self, value: Any) -> str:
        if value != self.only:
            raise Unfit("not-a-choice", f"This must be {self.only}.")
        return self.only

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "const": self.only}


class TimeField(StrictField):
    """A moment in the years 2000 to 2200: RFC 3339 with an offset, to the microsecond; comes out in UTC."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.(?P<fraction>\d+))?(?P<offset>[Zz]|[+-]\d\d:\d\d)?", re.ASCII)

    def clean(self, value: Any) -> datetime:
        if type(value) is not str:
            raise Unfit("not-a-string", f"This must be a string, not {_json_name(value)}.")
        form = self._FORM.fullmatch(value) if len(value) <= 40 else None
        if form is None:
            raise Unfit("not-a-time", "This must be an RFC 3339 time such as 2026-01-31T09:30:00Z; in a URL, + is written %2B.")
        if form["offset"] is None:
            raise Unfit("no-offset", "This must end in Z or an offset such as +02:00.")
        if len((form["fraction"] or "").rstrip("0")) > 6:
            raise Unfit("too-precise", "This must not be more precise than a microsecond.")
        return self._in_utc(value.upper())

    @staticmethod
    def _in_utc(text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise Unfit("not-a-time", "This time does not exist in the calendar.") from error
        if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            raise Unfit("out-of-range", f"This must be in the years {EARLIEST_YEAR} to {LATEST_YEAR}, in UTC.")
        return moment

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "maxLength": 40}


class DayField(StrictField):
    """A calendar day: YYYY-MM-DD."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

    def clean(self, value: Any) -> date:
        if type(value) is not str:
            raise Unfit("not-a-string", f"This must be a string, not {_json_name(value)}.")
        try:
            if self._FORM.fullmatch(value) is None:
                raise ValueError(value)
            return date.fromisoformat(value)
        except ValueError as error:
            raise Unfit("not-a-day", "This must be a day such as 2026-01-31.") from error

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
            raise Unfit("not-a-decimal", f'This must be a string such as "12.50", not {_json_name(value)}.')
        if len(value) > self.max_digits + 2 or self._matches(value) is None:
            whole = self.max_digits - self.decimal_places
            raise Unfit(
                "not-a-decimal",
                f'This must be plain digits such as "12.50", at most {whole} before and {self.decimal_places} behind the point.',
            )
        number = Decimal(value)
        if self.min_value is not None and number < self.min_value:
            raise Unfit("too-small", f"This must be at least {self.min_value}.")
        if self.max_value is not None and number > self.max_value:
            raise Unfit("too-large", f"This must be at most {self.max_value}.")
        return number

    def openapi(self) -> dict[str, Any]:
        text: dict[str, Any] = {"type": "string", "format": "decimal", "pattern": f"^{self.pattern}$"}
        return {"oneOf": [text, {"type": "integer"}]} if self.or_integer else text


class MetadataField(StrictField):
    """A JSON object for the caller's own use: at most 50 keys of at most 64 characters, 8 KiB in all.

    Integers in it must be exact in every reader (within 2^53); so must the whole part of other numbers.
    """

    def clean(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Unfit("not-an-object", f"This must be an object, not {_json_name(value)}.")
        if len(value) > METADATA_KEYS_LIMIT:
            raise Unfit("too-many-keys", f"This must have at most {METADATA_KEYS_LIMIT} keys.")
        if value and _json_length_bytes(value) > METADATA_LIMIT_BYTES:
            raise Unfit("too-large", f"This must be at most {METADATA_LIMIT_BYTES} bytes as JSON.")
        return {key: self._kept(key, item, "") for key, item in value.items()}

    def _kept(self, key: str, value: Any, at: str) -> Any:
        at += pointer_part(key)
        if len(key) > METADATA_KEY_LIMIT:
            raise Unfit("too-long", f"A key must be at most {METADATA_KEY_LIMIT} characters.", at)
        return self._kept_value(value, at)

    def _kept_value(self, value: Any, at: str) -> Any:
        if type(value) is dict:
            return {key: self._kept(key, item, at) for key, item in value.items()}
        if type(value) is list:
            return [self._kept_value(item, f"{at}/{number}") for number, item in enumerate(value)]
        if type(value) in (int, float) and not (math.isfinite(value) and abs(value) <= MAX_AMOUNT):
            raise Unfit("too-large", f"A number must be within plus and minus {MAX_AMOUNT}.", at)
        return value

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "additionalProperties": {},
            "maxProperties": METADATA_KEYS_LIMIT,
            "propertyNames": {"maxLength": METADATA_KEY_LIMIT},
        }


class MapField(StrictField):
    """An object whose keys are free and whose values are all of one kind."""

    def __init__(
        self, *, child: "StrictField | StrictSerializer", max_keys: int = 50, key_length: int = 64, **options: Any
    ) -> None:
        self.child = child
        self.max_keys = max_keys
        self.key_length = key_length
        super().__init__(**options)

    def take(self, value: Any, pointer: str, flaws: list[Flaw]) -> Any:
        if type(value) is not dict:
            return super().take(value, pointer, flaws)
        if len(value) > self.max_keys:
            flaws.append(Flaw(pointer, "too-many-keys", f"This must have at most {self.max_keys} keys."))
            return None
        detail = f"A key must be 1 to {self.key_length} characters."
        misfits = [key for key in value if not 1 <= len(key) <= self.key_length]
        flaws.extend(Flaw(pointer + pointer_part(key), "too-long", detail) for key in misfits)
        return {key: self.child.take(item, pointer + pointer_part(key), flaws) for key, item in value.items()}

    def clean(self, value: Any) -> Any:
        if type(value) is not dict:
            raise Unfit("not-an-object", f"This must be an object, not {_json_name(value)}.")
        return _alone(self, value)

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "maxProperties": self.max_keys,
            "propertyNames": {"minLength": 1, "maxLength": self.key_length},
        }


class AnyOfField(StrictField):
    """A list of objects of several kinds, told apart by one of their members; each is read by its own shape, later.

    Args:
        by: the name of the member that names the kind.
        shapes: by that name.
    """

    def __init__(
        self, *, by: str, shapes: "Mapping[str, type[StrictSerializer]]", max_items: int, min_items: int = 0, **options: Any
    ) -> None:
        self.by = by
        self.shapes = shapes
        self.max_items = max_items
        self.min_items = min_items
        super().__init__(**options)

    def clean(self, value: Any) -> list[Any]:
        if type(value) is not list:
            raise Unfit("not-a-list", f"This must be a list, not {_json_name(value)}.")
        if len(value) > self.max_items:
            raise Unfit("too-many-items", f"This must have at most {self.max_items} items.")
        if len(value) < self.min_items:
            raise Unfit("too-few-items", f"This must have at least {self.min_items} items.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "array", "minItems": self.min_items, "maxItems": self.max_items}


class ListOfField(StrictField):
    """A list whose items are all of one kind."""

    def __init__(self, *, child: "StrictField | StrictSerializer", max_items: int, min_items: int = 0, **options: Any) -> None:
        self.child = child
        self.max_items = max_items
        self.min_items = min_items
        super().__init__(**options)

    def take(self, value: Any, pointer: str, flaws: list[Flaw]) -> Any:
        if type(value) is not list:
            return super().take(value, pointer, flaws)
        if len(value) > self.max_items:
            flaws.append(Flaw(pointer, "too-many-items", f"This must have at most {self.max_items} items."))
            return None
        if len(value) < self.min_items:
            flaws.append(Flaw(pointer, "too-few-items", f"This must have at least {self.min_items} items."))
        return [self.child.take(item, f"{pointer}/{number}", flaws) for number, item in enumerate(value)]

    def clean(self, value: Any) -> Any:
        if type(value) is not list:
            raise Unfit("not-a-list", f"This must be a list, not {_json_name(value)}.")
        return _alone(self, value)

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "maxItems": self.max_items}
        if self.min_items:
            schema["minItems"] = self.min_items
        return schema


def _alone(field: MapField | ListOfField, value: Any) -> Any:
    """Return what `take` makes of a value outside of `read`, or raise `Unfit` with the first flaw."""
    flaws: list[Flaw] = []
    taken = field.take(value, "", flaws)
    if flaws:
        raise Unfit(flaws[0].code, flaws[0].detail, flaws[0].pointer)
    return taken


# Bodies and queries ----------------------------------------------------------------------------------


class _Step(NamedTuple):
    """How one field of a body is read: looked up once, not per request."""

    name: str
    take: Callable[[Any, str, list[Flaw]], Any]
    required: bool
    default: Any


class StrictSerializer(serializers.Serializer):
    """An object with exactly the declared fields. Not required, no default: left out of the result, like an optional null."""

    either: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields of which exactly one must be given, whole; such as `amount`, or `rate` and `quantity`."""

    _steps: ClassVar[tuple[_Step, ...] | None] = None
    _names: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def _plan(cls) -> tuple[_Step, ...]:
        if "_steps" not in cls.__dict__ or cls._steps is None:
            fields: Mapping[str, Any] = cls().fields
            cls._names = frozenset(fields)
            cls._steps = tuple(_Step(name, field.take, field.required, field.default) for name, field in fields.items())
        return cls._steps

    def take(self, value: Any, pointer: str, flaws: list[Flaw]) -> dict[str, Any] | None:
        """Return the clean fields of the object `value`; or add to `flaws`. As a field: null only with allow_null."""
        if type(value) is dict:
            return self.take_fields(value, pointer, flaws)
        if value is None and not self.allow_null:
            flaws.append(Flaw(pointer, "null", "This may not be null."))
        elif value is not None:
            flaws.append(Flaw(pointer, "not-an-object", f"This must be an object, not {_json_name(value)}."))
        return None

    @classmethod
    def take_fields(cls, value: dict[str, Any], pointer: str, flaws: list[Flaw]) -> dict[str, Any]:
        """Return the clean fields of an object; what is wrong with it is added to `flaws`, under `pointer`."""
        steps, taken, known = cls._plan(), {}, 0
        for name, take, required, default in steps:
            if name in value:
                known += 1
                clean = take(value[name], f"{pointer}/{name}", flaws)
                if clean is not None:
                    taken[name] = clean
            elif required:
                flaws.append(Flaw(f"{pointer}/{name}", "required", "This is required."))
            elif default is not empty:
                taken[name] = default() if callable(default) else default
        if known < len(value):
            flaws.extend(_unknown(value, cls._names, pointer))
        if cls.either:
            flaws.extend(_neither(value, cls.either, pointer))
        return taken


def _neither(value: dict[str, Any], groups: tuple[tuple[str, ...], ...], pointer: str) -> list[Flaw]:
    begun = [group for group in groups if any(name in value for name in group)]
    if not begun:
        choice = ", or ".join(" and ".join(group) for group in groups)
        return [Flaw(f"{pointer}/{groups[0][0]}", "required", f"Give {choice}.")]
    if len(begun) > 1:
        return [Flaw(f"{pointer}/{begun[1][0]}", "not-both", f"Give either this or {begun[0][0]}, not both.")]
    return [Flaw(f"{pointer}/{name}", "required", "This is required.") for name in begun[0] if name not in value]


def _unknown(value: dict[str, Any], names: frozenset[str], pointer: str) -> list[Flaw]:
    detail = f"This field does not exist; the fields are {', '.join(sorted(names))}." if names else "This object takes no fields."
    return [Flaw(pointer + pointer_part(key), "unknown-field", detail) for key in value if key not in names]


def read(serializer_class: type[StrictSerializer], data: Any) -> dict[str, Any]:
    """Return the clean fields of a body, or raise `InvalidRequest` with everything that is wrong with it.

    Returns:
        Fields that were given or have a default. An optional field that was left out or null is not in it.
    """
    flaws: list[Flaw] = []
    if type(data) is not dict:
        raise InvalidRequest([Flaw("", "not-an-object", f"This must be an object, not {_json_name(data)}.")])
    taken = serializer_class.take_fields(data, "", flaws)
    if flaws:
        raise InvalidRequest(flaws)
    return taken


def read_query(serializer_class: type[StrictSerializer], request: HttpRequest) -> dict[str, Any]:
    """Return the clean query parameters of a request, or raise with everything that is wrong with them.

    Raises:
        MalformedRequest: the query is not UTF-8, holds NUL, or gives a parameter twice.
        InvalidRequest: a parameter is unknown or out of bounds.
    """
    return read(serializer_class, query_parameters(request))


def query_parameters(request: HttpRequest) -> dict[str, str]:
    """Return the query parameters, each given once, or raise `MalformedRequest`."""
    query = request.META.get("QUERY_STRING", "")
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as error:  # UnicodeDecodeError is one
        raise MalformedRequest(
            Flaw("", "malformed-query", "The query is not valid UTF-8, or it has too many parameters.")
        ) from error
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if not (is_storable(name) and is_storable(value)):
            raise MalformedRequest(Flaw(pointer_part(name), "forbidden-character", "NUL and unpaired surrogates are refused."))
        if name in parameters:
            raise MalformedRequest(Flaw(pointer_part(name), "duplicate-key", "The query contains this parameter twice."))
        parameters[name] = value
    return parameters


class QueryNumberField(WholeNumberField):
    """A whole number in a query: decimal digits."""

    _DIGITS = re.compile(r"-?[0-9]{1,20}")

    def clean(self, value: Any) -> int:
        if self._DIGITS.fullmatch(value) is None:
            raise Unfit("not-an-integer", "This must be a whole number in digits.")
        return super().clean(int(value))


class QueryTruthField(TruthField):
    """`true` or `false` in a query."""

    def clean(self, value: Any) -> bool:
        if value not in ("true", "false"):
            raise Unfit("not-a-boolean", "This must be true or false.")
        return bool(value == "true")


class ListQuery(StrictSerializer):
    """What every list takes; filters are added by subclasses."""

    limit = QueryNumberField(min_value=1, max_value=200, default=50, help_text="How many results at most.")
    cursor = TextField(
        min_length=1, max_length=1000, required=False, help_text="Opaque; from `next` or `previous` of an earlier answer."
    )


def _json_name(value: Any) -> str:
    return "null" if value is None else JSON_NAMES.get(type(value), "this")


def _json_length_bytes(value: Any) -> int:
    """Return how long the value is as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))
