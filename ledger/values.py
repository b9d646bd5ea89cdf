"""Types of values in requests and errors: which JSON each takes, which Python, and how the OpenAPI document describes it.

A request declares its fields with them: `amount: Annotated[int, Amount("How many.")]`; see `ledger.records`. So does an error its
facts; see `ledger.errors`. Nothing is converted by guess: 1.0, "1" and true are not integers. Knows no HTTP and no Django.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple, NotRequired, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo, available_timezones

MAX_AMOUNT = 2**53 - 1
"""The largest amount of one operation: the largest integer that every JSON implementation carries exactly."""
MAX_SEQUENCE = 2**63 - 1
MAX_COMPONENTS = 20
"""How many components a rate may have."""
MAX_METADATA_BYTES = 8192
METADATA_TOO_LARGE: Final = f"This must be at most {MAX_METADATA_BYTES} bytes as JSON."
MAX_METADATA_KEYS = 50
MAX_METADATA_KEY_CHARACTERS = 64
MAX_REASON_CHARACTERS = 500
MAX_REFERENCE_CHARACTERS = 200
MAX_ACTOR_CHARACTERS = 200
MIN_KEY_CHARACTERS = 20
"""Of an API key that somebody chooses."""
MAX_LABEL_CHARACTERS = 200
"""Of the value of a label: as long as the subject of a budget."""
EARLIEST_YEAR, LATEST_YEAR = 2000, 2200
"""The years, in UTC, in which the times of a request must lie."""

HOLDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
RATE_CODE = re.compile(r"[a-z0-9][a-z0-9._:-]{0,63}")
RATE_CODE_RULE = "1 to 64 characters of a-z 0-9 . _ : -, beginning with a letter or digit"
BUDGET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
COMPONENT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
COMPONENT_NAME_RULE = "1 to 40 characters of a-z 0-9 . _ -, beginning with a letter or digit"
PURPOSE_LABEL = re.compile(r"[^\x00-\x1f\x7f\"\\\[\]{}]{1,64}")
PURPOSE_LABEL_TEXT: Final = "This must be 1 to 64 characters, without quotes, backslashes, brackets and control characters."
MAX_PURPOSES: Final = 10
"""How many rates, and values of a label, a lot can be limited to: they stand in the state on each entry."""
CREDIT_TYPE = re.compile(r"[a-z0-9_]{1,32}")
CREDIT_TYPE_RULE = "1 to 32 characters of a-z 0-9 _"
IDEMPOTENCY_KEY = re.compile(r"[ -~]{1,255}")
NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Files of a zone database that are no zones: the zone of the machine, a template, and the lack of a zone."""
ABBREVIATED_ZONES: Final = {"CET": "Europe/Brussels", "EET": "Europe/Athens", "MET": "Europe/Brussels", "WET": "Europe/Lisbon"}
"""Zones of the IANA database whose names are abbreviations to PostgreSQL, without summer time, and the city's zone of each.

Source: the file `backward` of the IANA database.
"""
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates, which PostgreSQL's text cannot store."""

LOT_STATES: Final = ("spendable", "not_yet_effective", "expired")
"""The states of a lot. An expired lot is listed until its expiry is booked."""
HOLD_STATES: Final = ("open", "expired")
"""The states of a hold. An expired hold is listed until its release is booked, but withholds nothing."""

JSON_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


class FieldError(NamedTuple):
    """One thing that is wrong with a request.

    `pointer` is a JSON pointer into the body ("" is the body itself); for a query parameter or a header it is "/" and its name.
    """

    pointer: str
    code: str
    detail: str


class InvalidValue(Exception):
    """A value is not of its type; becomes a `FieldError` or an `Invalid` with the field's pointer."""

    def __init__(self, code: str, detail: str, at: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.at = at


class Value:
    """A type of values. `read` takes JSON and `check` what Python code passes: they return the value, or raise `InvalidValue`."""

    def __init__(self, text: str = "", *, null: bool = False, named: str = "") -> None:
        """Declare a value.

        Args:
            text: what it means, for the OpenAPI document.
            null: JSON may say null for it, which is the same as leaving it out.
            named: its name in JSON where that differs from the attribute's.
        """
        self.text = text
        self.null = null
        self.named = named

    def read(self, value: Any) -> Any:
        """Return the value as rules and services take it."""
        raise NotImplementedError

    def check(self, value: Any) -> Any:
        """Return the value, which Python code passes, as `read` would return it."""
        return self.read(value)

    def made(self, item: Any) -> Any:
        """Return what a record has of the value that `take` returned."""
        return item

    def openapi(self) -> dict[str, Any]:
        """Return the JSON schema of what `read` takes; a shape in it stands for a reference to its component."""
        raise NotImplementedError

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        """Return the value of a field; or add to `field_errors` and return None."""
        if value is None:
            if not self.null:
                field_errors.append(FieldError(pointer, "null", "This may not be null."))
            return None
        try:
            return self.read(value)
        except InvalidValue as invalid:
            field_errors.append(FieldError(pointer + invalid.at, invalid.code, invalid.detail))
            return None


class Annotation(NamedTuple):
    """The type of value of an annotated attribute, and whether it has no default."""

    value: Value
    required: bool


def annotations_of(owner: type) -> dict[str, Annotation]:
    """Return the attributes of a class, or of a TypedDict, that are annotated with a type of value."""
    known = _ANNOTATIONS.get(owner)
    if known is None:
        known = _ANNOTATIONS[owner] = _annotations_of(owner)
    return known


_ANNOTATIONS: dict[type, dict[str, Annotation]] = {}


def _annotations_of(owner: type) -> dict[str, Annotation]:
    hints = {
        name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint
        for name, hint in get_type_hints(owner, include_extras=True).items()
    }
    absent = getattr(owner, "__optional_keys__", ())
    annotations = {
        name: [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Value)] for name, hint in hints.items()
    }
    return {
        name: Annotation(items[0], name not in absent and not hasattr(owner, name))
        for name, items in annotations.items()
        if items
    }


def json_name(value: Any) -> str:
    """Return what a JSON value is, for people."""
    return "null" if value is None else JSON_NAMES.get(type(value), "this")


def pointer_part(key: str) -> str:
    """Return a key as part of a JSON pointer, with unprintable characters replaced. Source: RFC 6901."""
    printable = key.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    return "/" + printable[:200].replace("~", "~0").replace("/", "~1")


# Numbers ---------------------------------------------------------------------------------------------


class Integer(Value):
    """A JSON integer within bounds; 1.0, "1" and true are refused."""

    def __init__(self, text: str = "", *, least: int, most: int, **options: Any) -> None:
        super().__init__(text, **options)
        self.least = least
        self.most = most

    def read(self, value: Any) -> int:
        if type(value) is not int:
            raise InvalidValue("not-an-integer", f"This must be a JSON integer, not {json_name(value)}.")
        if value < self.least:
            raise InvalidValue("too-small", f"This must be at least {self.least}.")
        if value > self.most:
            raise InvalidValue("too-large", f"This must be at most {self.most}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": self.least, "maximum": self.most}


class Amount(Integer):
    """How many credits, in the smallest unit: 1 .. 2^53 - 1."""

    def __init__(self, text: str = "", *, least: int = 1, **options: Any) -> None:
        super().__init__(text, least=least, most=MAX_AMOUNT, **options)


class EntryNumber(Integer):
    """The sequence of an entry. A number that no entry can have is read as one too many: that entry does not exist."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, least=1, most=MAX_SEQUENCE, **options)

    def read(self, value: Any) -> int:
        return self.most + 1 if type(value) is int and value > self.most else super().read(value)

    def check(self, value: Any) -> int:
        return super().read(value)


class Count(Integer):
    """How many of what is no credits: 0 .. 2^63 - 1."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, least=0, most=MAX_SEQUENCE, **options)


class Credits(Integer):
    """Credits of an account, in the smallest unit; below 0 for a debt."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, least=-MAX_SEQUENCE, most=MAX_SEQUENCE, **options)


class Number(Value):
    """An exact number, in JSON a string in plain notation such as "0.0015"; with `or_integer`, a JSON integer too.

    Args:
        max_digits: digits before and behind the point together.
        decimal_places: digits behind the point.
        least, most: bounds, inclusive; None for none but that of the digits.
    """

    def __init__(
        self,
        text: str = "",
        *,
        max_digits: int = 38,
        decimal_places: int = 12,
        least: Decimal | int | None = None,
        most: Decimal | int | None = None,
        or_integer: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(text, **options)
        self.max_digits = max_digits
        self.decimal_places = decimal_places
        self.least = least
        self.most = most
        self.or_integer = or_integer
        places = rf"(?:\.[0-9]{{1,{decimal_places}}})?" if decimal_places else ""
        self.pattern = rf"-?(?:0|[1-9][0-9]{{0,{max_digits - decimal_places - 1}}}){places}"
        self._matches = re.compile(self.pattern).fullmatch

    def read(self, value: Any) -> Decimal:
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
        return self._within_bounds(Decimal(value))

    def check(self, value: Any) -> Decimal:
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            raise InvalidValue("not-a-decimal", "This must be a finite decimal number.")
        return self._within_bounds(value)

    def _within_bounds(self, number: Decimal) -> Decimal:
        if self.least is not None and number < self.least:
            raise InvalidValue("too-small", f"This must be at least {self.least}.")
        if self.most is not None and number > self.most:
            raise InvalidValue("too-large", f"This must be at most {self.most}.")
        return number

    def openapi(self) -> dict[str, Any]:
        # A number of 0 or more has no minus. The reader knows it all the same, to say which rule it breaks.
        has_minus = self.least is None or self.least < 0
        text: dict[str, Any] = {
            "type": "string",
            "pattern": f"^{self.pattern if has_minus else self.pattern.removeprefix('-?')}$",
        }
        integer = {"type": "integer"} if self.least is None else {"type": "integer", "minimum": int(self.least)}
        # Beside an integer without the format: clients would take the string for a number type of theirs, and mix up the two.
        return {"oneOf": [text, integer]} if self.or_integer else {**text, "format": "decimal"}


class Boolean(Value):
    """A JSON true or false."""

    def read(self, value: Any) -> bool:
        if type(value) is not bool:
            raise InvalidValue("not-a-boolean", f"This must be true or false, not {json_name(value)}.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "boolean"}


# Texts -----------------------------------------------------------------------------------------------


class Text(Value):
    """A JSON string of bounded length, kept as it is; with `pattern`, one that matches it whole.

    Args:
        rule: what matches, for people: "1 to 3 letters".
    """

    def __init__(self, text: str = "", *, most: int, least: int = 0, pattern: str = "", rule: str = "", **options: Any) -> None:
        super().__init__(text, **options)
        self.rule = rule
        self.most = most
        self.least = least
        self.pattern = pattern
        self._matches: Callable[[str], Any] | None = re.compile(pattern).fullmatch if pattern else None

    def read(self, value: Any) -> str:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        if len(value) > self.most:
            raise InvalidValue("too-long", f"This must be at most {self.most} characters.")
        if len(value) < self.least:
            raise InvalidValue("too-short", f"This must be at least {self.least} characters.")
        if self._matches is not None and self._matches(value) is None:
            raise InvalidValue("pattern", f"This must match ^{self.pattern}$.")
        return value

    def check(self, value: Any) -> str:
        # The parser of JSON has refused them already.
        if isinstance(value, str) and UNSTORABLE.search(value):
            raise InvalidValue("forbidden-character", "NUL and unpaired surrogates are refused.")
        if self.rule and isinstance(value, str) and self._matches is not None and self._matches(value) is None:
            raise InvalidValue("pattern", f"This must be {self.rule}.")
        return self.read(str(value) if isinstance(value, str) else value)

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "maxLength": self.most}
        if self.least:
            schema["minLength"] = self.least
        if self.pattern:
            schema["pattern"] = f"^{self.pattern}$"
        return schema


class Holder(Text):
    """Who owns credits."""

    def __init__(self, text: str = "", **options: Any) -> None:
        rule = "1 to 64 characters of A-Z a-z 0-9 . _ : @ -, beginning with a letter or digit"
        super().__init__(text, most=64, least=1, pattern=HOLDER_ID.pattern, rule=rule, **options)


class RateCode(Text):
    """The name of a rate."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=64, least=1, pattern=RATE_CODE.pattern, rule=RATE_CODE_RULE, **options)


class BudgetName(Text):
    """The name of a budget in its account."""

    def __init__(self, text: str = "", **options: Any) -> None:
        rule = "1 to 40 characters of a-z 0-9 . _ -, beginning with a letter or digit"
        super().__init__(text, most=40, least=1, pattern=BUDGET_NAME.pattern, rule=rule, **options)


class RecurringName(BudgetName):
    """The name of a recurring grant in its account."""


class IdempotencyKey(Text):
    """The name of a request, which takes effect at most once."""

    def __init__(self, text: str = "", **options: Any) -> None:
        rule = "1 to 255 printable ASCII characters"
        super().__init__(text, most=255, least=1, pattern=IDEMPOTENCY_KEY.pattern, rule=rule, **options)


class CreditType(Text):
    """What is counted."""

    def __init__(self, text: str = "What is counted.", **options: Any) -> None:
        super().__init__(text, most=32, least=1, pattern=CREDIT_TYPE.pattern, rule=CREDIT_TYPE_RULE, **options)


# ISO 4217 active codes by number of decimals (list one, 2026). Left out: codes without a minor unit (metals, XXX, XTS) and
# units of account that invoices never use, among them the only two with four decimals (CLF, UYW).
_NO_DECIMALS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMR TND"
_TWO_DECIMALS = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP CVE
CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR
KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB
PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY
TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG
"""
MINOR_DIGITS: dict[str, int] = (
    dict.fromkeys(_NO_DECIMALS.split(), 0) | dict.fromkeys(_TWO_DECIMALS.split(), 2) | dict.fromkeys(_THREE_DECIMALS.split(), 3)
)
"""The decimals of each currency that can be stored: 0, 2 or 3."""


class Currency(Text):
    """An ISO 4217 code with 0, 2 or 3 decimals."""

    def __init__(self, text: str = "ISO 4217.", **options: Any) -> None:
        super().__init__(
            text, most=3, least=3, pattern="[A-Z]{3}", rule="a currency's three capital letters, such as EUR", **options
        )

    def read(self, value: Any) -> str:
        code = super().read(value)
        if code not in MINOR_DIGITS:
            raise InvalidValue("unknown-currency", "This must be an active ISO 4217 code such as EUR.")
        return code


class Choice(Value):
    """One of a few strings; of an enumeration, its member."""

    def __init__(self, choices: Iterable[str], text: str = "", **options: Any) -> None:
        super().__init__(text, **options)
        self._member: Callable[[str], str] = choices if isinstance(choices, type) else str
        self.choices = tuple(str(choice) for choice in choices)

    def read(self, value: Any) -> str:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        if value not in self.choices:
            raise InvalidValue("not-a-choice", f"This must be one of {', '.join(self.choices)}.")
        return self._member(value)

    def check(self, value: Any) -> str:
        return self.read(str(value) if isinstance(value, str) else value)

    def openapi(self) -> dict[str, Any]:
        # drf-spectacular makes a choice of null out of the None.
        return {"type": "string", "enum": [*self.choices, None] if self.null else list(self.choices)}


class Zone(Text):
    """A time zone of the IANA database, which Python and PostgreSQL read alike."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=64, least=1, **options)

    def read(self, value: Any) -> str:
        name = super().read(value)
        if name not in zones():
            raise InvalidValue("unknown-time-zone", "This must be a zone of the IANA database such as Europe/Berlin.")
        if name in ABBREVIATED_ZONES:
            detail = f"{name} is an abbreviation, without summer time in some places; use {ABBREVIATED_ZONES[name]}."
            raise InvalidValue("abbreviated-time-zone", detail)
        return ZoneInfo(name).key


@cache
def zones() -> frozenset[str]:
    """The names of the zones of the IANA database, as this machine has them."""
    return frozenset(available_timezones()) - NO_ZONES


class Constant(Value):
    """One fixed string, which distinguishes one kind of object from the others."""

    def __init__(self, only: str, text: str = "", **options: Any) -> None:
        super().__init__(text, **options)
        self.only = only

    def read(self, value: Any) -> str:
        if value != self.only:
            raise InvalidValue("not-a-choice", f"This must be {self.only}.")
        return self.only

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "const": self.only}


# Times -----------------------------------------------------------------------------------------------


class Time(Value):
    """A time in the years 2000 to 2200: RFC 3339 with an offset, to the microsecond; is read in UTC."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.(?P<fraction>\d+))?(?P<offset>[Zz]|[+-]\d\d:\d\d)?", re.ASCII)

    def read(self, value: Any) -> datetime:
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
        try:
            found = datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise InvalidValue("not-a-time", "This time does not exist in the calendar.") from error
        if not EARLIEST_YEAR <= found.year <= LATEST_YEAR:
            raise InvalidValue("out-of-range", f"This must be in the years {EARLIEST_YEAR} to {LATEST_YEAR}, in UTC.")
        return found

    def check(self, value: Any) -> datetime:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise InvalidValue("no-offset", "This must be a time with an offset.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "maxLength": 40}


class Day(Value):
    """A calendar day: YYYY-MM-DD."""

    _FORM = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

    def read(self, value: Any) -> date:
        if type(value) is not str:
            raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.")
        try:
            if self._FORM.fullmatch(value) is None:
                raise ValueError(value)
            return date.fromisoformat(value)
        except ValueError as error:
            raise InvalidValue("not-a-day", "This must be a day such as 2026-01-31.") from error

    def check(self, value: Any) -> date:
        if type(value) is not date:
            raise InvalidValue("not-a-day", "This must be a date.")
        return value

    def openapi(self) -> dict[str, Any]:
        return {"type": "string", "format": "date"}


# Objects and lists -----------------------------------------------------------------------------------


def encode_json(value: Any) -> str:
    """Return the form in which JSON is stored and digested: keys sorted, no spaces, only necessary escapes."""
    return "null" if value is None else _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


class Metadata(Value):
    """A JSON object for the caller: at most 50 keys of at most 64 characters, 8 KiB in all.

    Integers in it must be exact in every reader (within 2^53); so must the whole part of other numbers.
    """

    def read(self, value: Any) -> dict[str, Any]:
        self._ensure_object(value)
        if value and _json_length_bytes(value) > MAX_METADATA_BYTES:
            raise InvalidValue("too-large", METADATA_TOO_LARGE)
        return {key: self._keep_member(key, item, "") for key, item in value.items()}

    def check(self, value: Any) -> dict[str, Any]:
        self._ensure_object(value)
        try:
            text = encode_json(value)
        except (TypeError, ValueError) as error:
            raise InvalidValue("not-json", "This must be plain JSON.") from error
        if UNSTORABLE.search(text) or "\\u0000" in text:
            raise InvalidValue("forbidden-character", "NUL and unpaired surrogates are refused.")
        if any(len(key) > MAX_METADATA_KEY_CHARACTERS for key in value):
            raise InvalidValue("too-long", f"A key must be at most {MAX_METADATA_KEY_CHARACTERS} characters.")
        if len(text.encode()) > MAX_METADATA_BYTES:
            raise InvalidValue("too-large", METADATA_TOO_LARGE)
        return dict(value)

    @staticmethod
    def _ensure_object(value: Any) -> None:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        if len(value) > MAX_METADATA_KEYS:
            raise InvalidValue("too-many-keys", f"This must have at most {MAX_METADATA_KEYS} keys.")

    def _keep_member(self, key: str, value: Any, at: str) -> Any:
        at += pointer_part(key)
        if len(key) > MAX_METADATA_KEY_CHARACTERS:
            raise InvalidValue("too-long", f"A key must be at most {MAX_METADATA_KEY_CHARACTERS} characters.", at)
        return self._kept_value(value, at)

    def _kept_value(self, value: Any, at: str) -> Any:
        if type(value) is dict:
            return {key: self._keep_member(key, item, at) for key, item in value.items()}
        if type(value) is list:
            return [self._kept_value(item, f"{at}/{number}") for number, item in enumerate(value)]
        if type(value) in (int, float) and not (math.isfinite(value) and abs(value) <= MAX_AMOUNT):
            raise InvalidValue("too-large", f"A number must be within plus and minus {MAX_AMOUNT}.", at)
        return value

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "additionalProperties": {},
            "maxProperties": MAX_METADATA_KEYS,
            "propertyNames": {"maxLength": MAX_METADATA_KEY_CHARACTERS},
        }


def _json_length_bytes(value: Any) -> int:
    """Return how long the value is as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


class MapOf(Value):
    """An object whose keys are free and whose values are all of one type."""

    def __init__(self, child: Value, text: str = "", *, max_keys: int, key_length: int = 64, **options: Any) -> None:
        super().__init__(text, **options)
        self.child = child
        self.max_keys = max_keys
        self.key_length = key_length

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if value is None:
            return super().take(value, pointer, field_errors)
        if type(value) is not dict:
            field_errors.append(FieldError(pointer, "not-an-object", f"This must be an object, not {json_name(value)}."))
            return None
        if len(value) > self.max_keys:
            field_errors.append(FieldError(pointer, "too-many-keys", f"This must have at most {self.max_keys} keys."))
            return None
        detail = f"A key must be 1 to {self.key_length} characters."
        taken: dict[str, Any] = {}
        for key, item in value.items():
            at = pointer + pointer_part(key)
            if 1 <= len(key) <= self.key_length:
                taken[key] = self.child.take(item, at, field_errors)
            else:
                # One fault for one member: its value is not judged under a key that nobody can have.
                field_errors.append(FieldError(at, "too-long", detail))
        return taken

    def check(self, value: Any) -> Any:
        return {key: _checked_at(self.child, item, pointer_part(key)) for key, item in value.items()}

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "maxProperties": self.max_keys,
            "propertyNames": {"minLength": 1, "maxLength": self.key_length},
            "additionalProperties": self.child.openapi(),
        }


class AppliesTo(Value):
    """What credits can pay for: `rates`, and `labels` with one label and its values. Each list is sorted, without repetitions."""

    def read(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        unknown = next((name for name in value if name not in ("rates", "labels")), None)
        if unknown is not None:
            raise InvalidValue("unknown-field", "This field does not exist; give rates or labels.", pointer_part(unknown))
        read: dict[str, Any] = {}
        if "rates" in value:
            read["rates"] = self._list(value["rates"], RATE_CODE, "/rates")
        if "labels" in value:
            read["labels"] = self._labels(value["labels"])
        if not read:
            raise InvalidValue("too-few", "Give rates, labels, or both; or null for credits that can pay for everything.")
        return read

    def check(self, value: Any) -> dict[str, Any]:
        return self.read(value)

    def _labels(self, labels: Any) -> dict[str, list[str]]:
        if type(labels) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(labels)}.", "/labels")
        if len(labels) != 1:
            raise InvalidValue("too-many" if labels else "too-few", "Give one label, with its values.", "/labels")
        [(label, values)] = labels.items()
        if not PURPOSE_LABEL.fullmatch(label):
            raise InvalidValue("pattern", PURPOSE_LABEL_TEXT, "/labels" + pointer_part(label))
        return {label: self._list(values, PURPOSE_LABEL, "/labels" + pointer_part(label))}

    @staticmethod
    def _list(values: Any, pattern: re.Pattern[str], at: str) -> list[str]:
        if type(values) is not list:
            raise InvalidValue("not-a-list", f"This must be a list, not {json_name(values)}.", at)
        if not 1 <= len(values) <= MAX_PURPOSES:
            raise InvalidValue("too-many" if values else "too-few", f"This must have 1 to {MAX_PURPOSES} elements.", at)
        for place, value in enumerate(values):
            if type(value) is not str:
                raise InvalidValue("not-a-string", f"This must be a string, not {json_name(value)}.", f"{at}/{place}")
            if not pattern.fullmatch(value):
                text = PURPOSE_LABEL_TEXT if pattern is PURPOSE_LABEL else f"This must match {pattern.pattern}."
                raise InvalidValue("pattern", text, f"{at}/{place}")
        return sorted(set(values))

    def openapi(self) -> dict[str, Any]:
        def names(pattern: re.Pattern[str]) -> dict[str, Any]:
            item = {"type": "string", "pattern": f"^{pattern.pattern}$"}
            return {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_PURPOSES}

        return {
            "type": "object",
            "properties": {
                "rates": names(RATE_CODE),
                "labels": {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{PURPOSE_LABEL.pattern}$"},
                    "additionalProperties": names(PURPOSE_LABEL),
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            },
            "additionalProperties": False,
        }


class Quantity(Number):
    """How much of something was used: 0 .. 2^53 - 1, with at most 12 decimals; a JSON integer or a decimal string."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, max_digits=28, decimal_places=12, least=0, most=MAX_AMOUNT, or_integer=True, **options)

    def check(self, value: Any) -> Decimal:
        number = super().check(value)
        if number.as_tuple().exponent < -self.decimal_places and number != round(number, self.decimal_places):  # type: ignore[operator]
            raise InvalidValue("not-a-decimal", f"This must have at most {self.decimal_places} decimals.")
        return number


class ByComponent(MapOf):
    """An object with one value of a type for each component of a rate, by name."""

    def __init__(self, child: Value, text: str = "", **options: Any) -> None:
        super().__init__(child, text, max_keys=MAX_COMPONENTS, key_length=40, **options)

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if type(value) is dict:
            if not value:
                field_errors.append(FieldError(pointer, "too-few", "This must name at least one component."))
                return None
            wrong = [key for key in value if COMPONENT_NAME.fullmatch(key) is None]
            if wrong:
                field_errors.extend(FieldError(pointer + pointer_part(key), "pattern", self._RULE) for key in wrong)
                return None
        return super().take(value, pointer, field_errors)

    def made(self, item: Any) -> Any:
        return {key: self.child.made(each) for key, each in item.items()}

    def check(self, value: Any) -> Any:
        if type(value) is not dict:
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        if not 1 <= len(value) <= self.max_keys:
            raise InvalidValue(*(too_many(self.max_keys) if value else too_few(1)))
        for key in value:
            if not isinstance(key, str) or COMPONENT_NAME.fullmatch(key) is None:
                raise InvalidValue("pattern", self._RULE, pointer_part(str(key)))
        return super().check(value)

    def openapi(self) -> dict[str, Any]:
        return {**super().openapi(), "propertyNames": {"pattern": f"^{COMPONENT_NAME.pattern}$"}}

    _RULE: Final = f"A name must be {COMPONENT_NAME_RULE}."


def too_many(most: int) -> tuple[str, str]:
    """Return code and detail for a list with too many items."""
    return "too-many", f"This must have at most {most} items."


def too_few(least: int) -> tuple[str, str]:
    """Return code and detail for a list with too few items."""
    return "too-few", f"This must have at least {least} item{'' if least == 1 else 's'}."


class ListOf(Value):
    """A list whose items are all of one type."""

    def __init__(self, child: Value, text: str = "", *, most: int, least: int = 0, **options: Any) -> None:
        super().__init__(text, **options)
        self.child = child
        self.most = most
        self.least = least

    def take(self, value: Any, pointer: str, field_errors: list[FieldError]) -> Any:
        if value is None:
            return super().take(value, pointer, field_errors)
        if type(value) is not list:
            field_errors.append(FieldError(pointer, "not-a-list", f"This must be a list, not {json_name(value)}."))
            return None
        if len(value) > self.most:
            field_errors.append(FieldError(pointer, *too_many(self.most)))
            return None
        if len(value) < self.least:
            field_errors.append(FieldError(pointer, *too_few(self.least)))
        return [self.child.take(item, f"{pointer}/{number}", field_errors) for number, item in enumerate(value)]

    def made(self, item: Any) -> Any:
        return [self.child.made(each) for each in item]

    def read(self, value: Any) -> Any:
        return [self.child.read(item) for item in value]

    def check(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise InvalidValue("not-a-list", f"This must be a list, not {type(value).__name__}.")
        return [_checked_at(self.child, item, f"/{number}") for number, item in enumerate(value)]

    def openapi(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "maxItems": self.most}
        if self.least:
            schema["minItems"] = self.least
        return {**schema, "items": self.child.openapi()}


def _checked_at(child: Value, item: Any, at: str) -> Any:
    try:
        return child.check(item)
    except InvalidValue as invalid:
        raise InvalidValue(invalid.code, invalid.detail, at + invalid.at) from invalid


class Members(Value):
    """An object whose members a TypedDict declares. The OpenAPI document has it as a component of the TypedDict's name."""

    def __init__(self, declared: type, text: str = "", **options: Any) -> None:
        super().__init__(text, **options)
        self.declared = declared

    def openapi(self) -> Any:
        return self


class AnyObject(Value):
    """An object that the OpenAPI document does not describe further."""

    def openapi(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {}}
