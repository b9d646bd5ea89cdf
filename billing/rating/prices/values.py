"""Types of values in prices. Their errors use the words of prices, and null is the same as absent. Pure."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Annotated, Any, Final

from billing.rating.aggregation import MAX_GROUP_KEYS, Filters
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, SMALLEST_PACKAGE
from billing.rating.money import round_half_up
from billing.rating.names import MAX_NAME_CHARACTERS, Names
from billing.rating.periods import Interval
from billing.rating.values import NewInterval
from ledger.records import Field, Record, Shape, shape_of
from ledger.values import (
    COMPONENT_NAME,
    COMPONENT_NAME_RULE,
    CREDIT_TYPE,
    CREDIT_TYPE_RULE,
    RATE_CODE,
    RATE_CODE_RULE,
    Boolean,
    Choice,
    FieldError,
    InvalidValue,
    Number,
    Text,
    Value,
    pointer_part,
    too_few,
    too_many,
)

DECIMAL_PLACES = 12
MAX_BUCKETS = 50
MAX_FILTERS = 20
MAX_FILTER_VALUES = 100
MAX_FILTER_CHARACTERS = 200
MAX_FREE_EVENTS = 2**53 - 1
MAX_PROPERTY_CHARACTERS = 64
KEY = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}"
KEY_RULE = "1 to 64 characters of A-Z a-z 0-9 . _ : -, beginning with a letter or digit"


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
    return Worded(choice, "choice", f"must be one of {', '.join(f'`{each}`' for each in choice.choices)}")


def name(pattern: str, rule: str, text: str = "", *, most: int = 64) -> Worded:
    """A name that must match a pattern; the rule says it in words, as in "must be RULE"."""
    return Worded(Text(text, most=most, least=1, pattern=pattern), "format", f"must be {rule}")


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


class Charged(PriceNumber):
    """Money or percent that a price charges: a percentage off lowers it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, most=MAX_MONEY)


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


Factor = partial(
    PriceNumber, most=MAX_QUANTITY, or_integer=True, rules=((lambda number: number > 0, "not-positive", "must be above 0"),)
)


class WholeNumber(PriceNumber):
    """A whole number, 0 to `most`."""

    noun: str

    def __init__(self, text: str = "", *, largest: int) -> None:
        super().__init__(text, most=MAX_QUANTITY, or_integer=True)
        self.largest = largest

    def read(self, value: Any) -> Any:
        number = super().read(value)
        if number != number.to_integral_value() or number > self.largest:
            raise InvalidValue("format", f"must be a whole number of {self.noun}")
        return int(number)

    def openapi(self) -> dict[str, Any]:
        return {"oneOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"type": "integer", "minimum": 0, "maximum": self.largest}]}


class EventCount(WholeNumber):
    """A whole number of events."""

    noun = "events"

    def __init__(self, text: str = "") -> None:
        super().__init__(text, largest=MAX_FREE_EVENTS)


class DecimalCount(WholeNumber):
    """A number of decimals."""

    noun = f"decimals, 0 to {DECIMAL_PLACES}"

    def __init__(self, text: str = "") -> None:
        super().__init__(text, largest=DECIMAL_PLACES)


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


class GroupKeys(Value):
    """The properties by whose values usage is grouped: distinct names, 1 to `MAX_GROUP_KEYS`."""

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise InvalidValue("type", f"must be a list of 1..{MAX_GROUP_KEYS} properties' names")
        if not 1 <= len(value) <= MAX_GROUP_KEYS:
            raise InvalidValue(*(too_many(MAX_GROUP_KEYS) if value else too_few(1)))
        if not all(_is_text(name, 1, MAX_PROPERTY_CHARACTERS) for name in value):
            raise InvalidValue("format", f"each property's name has 1..{MAX_PROPERTY_CHARACTERS} characters")
        if len({*value}) < len(value):
            raise InvalidValue("duplicate", "names a property twice")
        return tuple(value)

    def openapi(self) -> dict[str, Any]:
        item = {"type": "string", "minLength": 1, "maxLength": MAX_PROPERTY_CHARACTERS}
        return {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_GROUP_KEYS, "uniqueItems": True}


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


class ObjectOfPrice(Value):
    """An object within a price; its record declares the members.

    Args:
        declared: the record.
        whose: as in "credits have no such field".
        needs: as in "credits need per_unit".
        detail: what the object must be.
    """

    def __init__(self, text: str, declared: type[Record], *, whose: str, needs: str, detail: str) -> None:
        super().__init__(text)
        self.shape: Shape[Any] = shape_of(declared)
        self.whose = whose
        self.needs = needs
        self.detail = detail

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if not isinstance(value, Mapping):
            field_errors.append(FieldError(pointer, "type", self.detail))
            return None
        unknown = unknown_fields(value, self.shape.names, pointer, self.whose)
        field_errors += unknown
        before, taken = len(field_errors), dict[str, Any]()
        for field in self.shape.fields:
            taken |= take_fields([field], value, pointer, field_errors)
            if field.required and value.get(field.name) is None:
                field_errors.append(FieldError(f"{pointer}/{field.name}", "required", f"{self.needs} `{field.name}`"))
            if len(field_errors) > before:
                return None
        return None if unknown or self._misfits(taken, pointer, field_errors) else self.shape.make(taken)

    def _misfits(self, taken: Mapping[str, Any], pointer: str, field_errors: list[FieldError]) -> bool:
        """Add what does not fit together to `field_errors`; return whether there is anything."""
        return False

    def openapi(self) -> Any:
        return self.shape


class IntervalOfPrice(ObjectOfPrice):
    """The interval of a price that is billed more often than its plan."""

    def __init__(self, text: str) -> None:
        detail = "must be an object with `unit`, and `count` unless it is 1"
        super().__init__(text, NewInterval, whose="an interval has", needs="an interval needs", detail=detail)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Interval | None:
        taken = super().take(value, pointer, field_errors)
        return None if taken is None else Interval(taken.unit, taken.count)


@dataclass(frozen=True, kw_only=True)
class CreditPrice(Record):
    """The customer's holder pays for units in credits first; the invoice charges the rest."""

    credit_type: Annotated[str, name(CREDIT_TYPE.pattern, CREDIT_TYPE_RULE, "Which credits.", most=32)] = "credits"
    per_unit: Annotated[Decimal, CreditsPerUnit("Credits per unit or package, above 0.")]
    also_spent: Annotated[
        bool | None,
        Worded(
            Boolean(
                "True: callers also spend credits of the plan's allowance, for something else than what events tell. Otherwise "
                "their spends tell this use, and events of a period whose allowance they have spent are refused."
            ),
            "type",
            "must be true or false",
        ),
    ] = None


class CreditsOfPrice(ObjectOfPrice):
    """The credits that pay for units of a price."""

    def __init__(self, text: str) -> None:
        detail = "must be an object with `per_unit`, and `credit_type` unless it is credits"
        super().__init__(text, CreditPrice, whose="credits have", needs="credits need", detail=detail)


class BilledBy(StrEnum):
    """What a usage price measures: reported events, or the ledger's entries."""

    EVENTS = "events"
    ENTRIES = "entries"


@dataclass(frozen=True, kw_only=True)
class RatedEntries(Record):
    """The entries of the customer's holder whose quantity a usage price bills: spends and captures by a rate."""

    credit_type: Annotated[str, name(CREDIT_TYPE.pattern, CREDIT_TYPE_RULE, "Which credits the rate costs.", most=32)] = "credits"
    rate: Annotated[str, name(RATE_CODE.pattern, RATE_CODE_RULE, "The rate of the spends, holds and captures.")]
    component: Annotated[
        str | None,
        name(
            COMPONENT_NAME.pattern,
            COMPONENT_NAME_RULE,
            "One component of the rate; by default, all its components together.",
            most=40,
        ),
    ] = None


class EntriesOfPrice(ObjectOfPrice):
    """The entries that a price bills."""

    def __init__(self, text: str) -> None:
        detail = "must be an object with `rate`, and optionally `component`, and `credit_type` unless it is credits"
        super().__init__(text, RatedEntries, whose="entries have", needs="entries need", detail=detail)


class Rounding(StrEnum):
    """How a converted quantity is rounded."""

    NONE = "none"
    UP = "up"
    DOWN = "down"
    HALF_UP = "half_up"


@dataclass(frozen=True, kw_only=True)
class Conversion(Record):
    """The measured quantity in another unit: divided or multiplied, then rounded once for the period."""

    divide_by: Annotated[Decimal | None, Factor("The units of the meter in one unit of the price.")] = None
    multiply_by: Annotated[Decimal | None, Factor("Or the units of the price in one unit of the meter.")] = None
    rounding: Annotated[Rounding, one_of(Rounding, "How the result is rounded.")] = Rounding.NONE
    decimals: Annotated[int, DecimalCount("The decimals to which it is rounded.")] = 0

    def of(self, quantity: Fraction) -> Fraction:
        """Return a quantity of the meter in units of the price."""
        factor = Fraction(self.multiply_by) if self.multiply_by is not None else 1 / Fraction(self.divide_by or 1)
        unit = Fraction(1, 10**self.decimals)
        units = quantity * factor / unit
        match self.rounding:
            case Rounding.NONE:
                return units * unit
            case Rounding.UP:
                return ceil(units) * unit
            case Rounding.DOWN:
                return floor(units) * unit
            case Rounding.HALF_UP:
                return round_half_up(units) * unit


FACTORS: Final = ("divide_by", "multiply_by")
"""The fields of a conversion of which it has one."""


class ConversionOfPrice(ObjectOfPrice):
    """The conversion of a usage price's quantity."""

    def __init__(self, text: str) -> None:
        detail = "must be an object with `divide_by` or `multiply_by`, and optionally `rounding` and `decimals`"
        super().__init__(text, Conversion, whose="a conversion has", needs="a conversion needs", detail=detail)

    def _misfits(self, taken: Mapping[str, Any], pointer: str, field_errors: list[FieldError]) -> bool:
        before = len(field_errors)
        if sum(name in taken for name in FACTORS) != 1:
            detail = f"a conversion has either {' or '.join(f'`{each}`' for each in FACTORS)}"
            field_errors.append(FieldError(f"{pointer}/divide_by", "one-of", detail))
        if taken.get("decimals") and taken.get("rounding", Rounding.NONE) == Rounding.NONE:
            field_errors.append(FieldError(f"{pointer}/decimals", "not-used", "a conversion without rounding has no decimals"))
        return len(field_errors) > before


BUCKET_AMOUNTS: Final = ("unit_amount", "rate")
"""The fields of a price, and of its buckets, of which a bucket has another amount."""


@dataclass(frozen=True, kw_only=True)
class Bucket(Record):
    """The events with some properties, at a price of their own. An event belongs to the first bucket that takes it."""

    key: Annotated[str, name(KEY, KEY_RULE, "The name of the bucket within the price.")]
    filters: Annotated[Filters, EventFilters("The properties that an event of the bucket has, at least one.")]
    unit_amount: Annotated[Decimal | None, Charged("Money per unit or package.")] = None
    rate: Annotated[Decimal | None, Charged("Percent.")] = None


class Buckets(Value):
    """The buckets of a usage price, with distinct keys; what no bucket takes costs the price's own amount.

    Args:
        column: the field of the price of which each bucket has another amount.
    """

    def __init__(self, column: str, text: str) -> None:
        super().__init__(text)
        self.column = column
        others = {name for name in BUCKET_AMOUNTS if name != column}
        self.shape = Shape(Bucket, name="UnitBucket" if column == "unit_amount" else "PercentageBucket", without=others)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> tuple[Bucket, ...] | None:
        if not isinstance(value, list | tuple):
            field_errors.append(FieldError(pointer, "type", f"must be a list of 1..{MAX_BUCKETS} buckets"))
            return None
        if not 1 <= len(value) <= MAX_BUCKETS:
            field_errors.append(FieldError(pointer, *(too_many(MAX_BUCKETS) if value else too_few(1))))
            return None
        before, buckets = len(field_errors), list[Bucket]()
        for index, item in enumerate(value):
            at = f"{pointer}/{index}"
            bucket = self._bucket(item, at, field_errors)
            if bucket is not None and bucket.key in {known.key for known in buckets}:
                field_errors.append(FieldError(f"{at}/key", "duplicate", f"another bucket has the key {bucket.key!r}"))
            buckets += [bucket] if bucket is not None else []
        return tuple(buckets) if len(field_errors) == before else None

    def _bucket(self, item: Any, at: str, field_errors: list[FieldError]) -> Bucket | None:
        if not isinstance(item, Mapping):
            field_errors.append(FieldError(at, "type", "must be an object"))
            return None
        before = len(field_errors)
        field_errors += unknown_fields(item, self.shape.names, at, "a bucket of this model has")
        for needed in ("key", "filters", self.column):
            if not item.get(needed):
                field_errors.append(FieldError(f"{at}/{needed}", "required", f"a bucket needs `{needed}`"))
        taken = take_fields(self.shape.fields, item, at, field_errors)
        return self.shape.make(taken) if len(field_errors) == before else None

    def openapi(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "maxItems": MAX_BUCKETS, "items": self.shape}
