"""Types of values in prices. Their errors use the words of prices, and null is the same as absent. Pure."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

from billing.rating.aggregation import Filters
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, SMALLEST_PACKAGE
from billing.rating.names import MAX_NAME_CHARACTERS, Names
from ledger.records import Field, Record, shape_of
from ledger.values import CREDIT_TYPE, Choice, FieldError, InvalidValue, Number, Text, Value, pointer_part

DECIMAL_PLACES = 12
MAX_FILTERS = 20
MAX_FILTER_VALUES = 100
MAX_FILTER_CHARACTERS = 200
MAX_FREE_EVENTS = 2**53 - 1
MAX_PROPERTY_CHARACTERS = 64


class Worded(Value):
    """Another type of values, with one code and one sentence for everything that it refuses."""

    def __init__(self, inner: Value, code: str, detail: str) -> None:
        super().__init__(inner.text)
        self.inner = inner
        self.code = code
        self.detail = detail

    def read(self, value: Any) -> Any:
        try:
            return self.inner.read(value)
        except InvalidValue:
            raise InvalidValue(self.code, self.detail) from None

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.inner.openapi()
        return schema


def one_of(choices: Iterable[str], text: str = "") -> Worded:
    """One of the members of an enumeration."""
    choice = Choice(choices, text)
    return Worded(choice, "choice", f"must be one of {', '.join(choice.choices)}")


def name(pattern: str, text: str = "", *, most: int = 64) -> Worded:
    """A name that must match a pattern."""
    return Worded(Text(text, most=most, least=1, pattern=pattern), "format", f"must match {pattern}")


def property_name(text: str = "") -> Worded:
    """The name of a property of usage events."""
    most = MAX_PROPERTY_CHARACTERS
    return Worded(
        Text(text, most=most, least=1, pattern=r"[^\x00]+"), "format", f"must be a property's name of 1..{most} characters"
    )


def human_name(text: str = "") -> Worded:
    """A name for people."""
    most = MAX_NAME_CHARACTERS
    return Worded(Text(text, most=most, least=1, pattern=r"[^\x00]+"), "format", f"must be a text of 1..{most} characters")


class PriceNames(Names):
    """See `Names`; as pairs, because a price can be a key."""

    def read(self, value: Any) -> Any:
        return tuple(super().read(value).items())


# Numbers ---------------------------------------------------------------------------------------------


Rule = tuple[Callable[[Decimal], bool], str, str]
"""A condition that a number must meet, with the code and sentence of its error."""


class PriceNumber(Number):
    """An exact number, 0 to `most`, as a decimal string; with `or_integer`, also as any JSON number.

    Forms show `least`; `rules` refuse smaller numbers.
    """

    least: Decimal
    most: Decimal
    _text = Worded(
        Text(most=200, pattern=r"-?[0-9]+(\.[0-9]+)?"),
        "format",
        "must be a plain decimal number, without exponent, spaces or separators",
    )

    def __init__(self, text: str = "", *, least: Decimal = Decimal(0), rules: Iterable[Rule] = (), **options: Any) -> None:
        super().__init__(text, decimal_places=DECIMAL_PLACES, least=least, **options)
        self._rules = rules

    def read(self, value: Any) -> Decimal:
        text = self._text.read(self._text_of(value))
        number = Decimal(text)
        if len(text.partition(".")[2].rstrip("0")) > DECIMAL_PLACES:
            raise InvalidValue("too-many-decimals", f"has more than {DECIMAL_PLACES} decimals")
        if number > self.most:
            raise InvalidValue("too-large", f"must be at most {self.most}")
        if number < 0:
            raise InvalidValue("negative", "must not be negative")
        for fits, code, detail in self._rules:
            if not fits(number):
                raise InvalidValue(code, detail)
        # Without the sign of a "-0"; `abs` would round to the context's 28 digits.
        return number.copy_abs()

    def _text_of(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if not self.or_integer:
            raise InvalidValue("type", 'must be a decimal string such as "12.50"')
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise InvalidValue("type", "must be a number")
        if isinstance(value, int) and value.bit_length() > 128:
            raise InvalidValue("too-large", f"must be at most {self.most}")
        # The shortest text that reads back as the same float is the text that the client sent.
        return f"{Decimal(repr(value) if isinstance(value, float) else value):f}"

    def openapi(self) -> dict[str, Any]:
        text: dict[str, Any] = {"type": "string", "maxLength": 200, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
        if not self.or_integer:
            return {**text, "format": "decimal"}
        return {"oneOf": [text, {"type": "number", "minimum": 0, "maximum": int(self.most)}]}


Money = partial(PriceNumber, most=MAX_MONEY)
"""Money in major units, or percent, 0 to 10^12, as a decimal string."""

Units = partial(PriceNumber, most=MAX_QUANTITY, or_integer=True)
"""Units, 0 to 10^18, as a decimal string or a number."""


PackageSize = partial(
    PriceNumber,
    least=SMALLEST_PACKAGE,
    most=MAX_QUANTITY,
    or_integer=True,
    rules=(
        (lambda size: size > 0, "not-positive", "a package has more than 0 units"),
        (lambda size: size >= SMALLEST_PACKAGE, "too-small", f"a package has at least {SMALLEST_PACKAGE} units"),
    ),
)
CreditsPerUnit = partial(
    PriceNumber, most=MAX_MONEY, rules=((lambda number: number > 0, "not-positive", "a unit takes more than 0 credits"),)
)


class EventCount(PriceNumber):
    """A whole number of events."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, most=MAX_QUANTITY, or_integer=True)

    def read(self, value: Any) -> Any:
        number = super().read(value)
        if number != number.to_integral_value() or number > MAX_FREE_EVENTS:
            raise InvalidValue("format", "must be a whole number of events")
        return int(number)

    def openapi(self) -> dict[str, Any]:
        return {
            "oneOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"type": "integer", "minimum": 0, "maximum": MAX_FREE_EVENTS}]
        }


# Objects ---------------------------------------------------------------------------------------------


class EventFilters(Value):
    """The properties that events must have, each with its allowed value or list of values."""

    def read(self, value: Any) -> Filters:
        if not isinstance(value, Mapping) or len(value) > MAX_FILTERS:
            detail = f"must be an object of at most {MAX_FILTERS} properties, each with its allowed values"
            raise InvalidValue("type", detail)
        allowed = {key: (one,) if isinstance(one, str) else one for key, one in value.items()}
        if not all(_is_text(key, 1, MAX_PROPERTY_CHARACTERS) and _is_filter(values) for key, values in allowed.items()):
            detail = f"each property has 1..{MAX_FILTER_VALUES} text values of at most {MAX_FILTER_CHARACTERS} characters"
            raise InvalidValue("format", detail)
        return tuple(sorted((key, tuple(values)) for key, values in allowed.items()))

    def openapi(self) -> dict[str, Any]:
        text = {"type": "string", "maxLength": MAX_FILTER_CHARACTERS}
        return {
            "type": "object",
            "maxProperties": MAX_FILTERS,
            "propertyNames": {"minLength": 1, "maxLength": MAX_PROPERTY_CHARACTERS},
            "additionalProperties": {
                "oneOf": [text, {"type": "array", "items": text, "minItems": 1, "maxItems": MAX_FILTER_VALUES}]
            },
        }


def _is_text(value: Any, least: int, most: int) -> bool:
    return isinstance(value, str) and least <= len(value) <= most and "\0" not in value


def _is_filter(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not 1 <= len(values) <= MAX_FILTER_VALUES:
        return False
    return all(_is_text(value, 0, MAX_FILTER_CHARACTERS) for value in values)


def unknown_fields(value: Mapping[str, Any], names: Container[str], pointer: str, whose: str) -> list[FieldError]:
    """Return an error for each member that is not one of `names`; `whose` as in "a price has"."""
    detail = f"{whose} no such field"
    return [FieldError(pointer + pointer_part(key), "unknown-field", detail) for key in value if key not in names]


def take_fields(
    fields: Iterable[Field], value: Mapping[str, Any], pointer: str, field_errors: list[FieldError]
) -> dict[str, Any]:
    """Return the fields of an object that are given and readable; add the faults of the others to `field_errors`."""
    given = [field for field in fields if value.get(field.name) is not None]
    taken = {field.name: field.value.take(value[field.name], f"{pointer}/{field.name}", field_errors) for field in given}
    return {name: item for name, item in taken.items() if item is not None}


@dataclass(frozen=True, kw_only=True)
class CreditPrice(Record):
    """The customer's holder pays for units in credits first; the invoice charges the rest."""

    credit_type: Annotated[str, name(CREDIT_TYPE.pattern, "Which credits.", most=32)] = "credits"
    per_unit: Annotated[Decimal, CreditsPerUnit("Credits per unit or package, above 0.")]


class CreditsOfPrice(Value):
    """The credits that pay for units of a price."""

    shape = shape_of(CreditPrice)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> CreditPrice | None:
        if not isinstance(value, Mapping):
            detail = "must be an object with per_unit, and credit_type unless it is credits"
            field_errors.append(FieldError(pointer, "type", detail))
            return None
        unknown = unknown_fields(value, self.shape.names, pointer, "credits have")
        field_errors += unknown
        before, taken = len(field_errors), dict[str, Any]()
        for field in self.shape.fields:
            taken |= take_fields([field], value, pointer, field_errors)
            if field.required and value.get(field.name) is None:
                field_errors.append(FieldError(f"{pointer}/{field.name}", "required", f"credits need {field.name}"))
            if len(field_errors) > before:
                return None
        return None if unknown else self.shape.make(taken)

    def openapi(self) -> Any:
        return self.shape
