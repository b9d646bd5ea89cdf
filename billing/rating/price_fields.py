"""Single values of a price as the REST contract writes them, strictly: every fault is named by field and rule."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from billing.rating.limits import MAX_MONEY, MAX_QUANTITY
from ledger.errors import FieldError

DECIMAL_PLACES = 12

_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)


def pointer_part(name: object) -> str:
    """Return a name as part of a JSON pointer. Source: RFC 6901."""
    return str(name).replace("~", "~0").replace("/", "~1")


class PriceInvalid(ValueError):
    """The input is not a price. `errors` has every fault found; nothing was made."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))


class FieldReader:
    """Reads single values and collects what is wrong with them."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        self.errors: list[FieldError] = []

    def fault(self, name: str, code: str, detail: str) -> None:
        self.errors.append(FieldError(f"{self.pointer}/{name}" if name else self.pointer, code, detail))

    def choice(self, data: Mapping[str, Any], name: str, kind: Any, default: Any = None) -> Any:
        value = data.get(name)
        if value is None:
            if default is None:
                self.fault(name, "required", f"{name} is required")
            return default
        try:
            return kind(value) if isinstance(value, str) else self._not_one_of(name, kind)
        except ValueError:
            return self._not_one_of(name, kind)

    def _not_one_of(self, name: str, kind: Any) -> None:
        self.fault(name, "choice", f"must be one of {', '.join(member.value for member in kind)}")

    def pattern(self, data: Mapping[str, Any], name: str, pattern: re.Pattern[str], default: str | None = None) -> str | None:
        value = data.get(name, default) if data.get(name) is not None else default
        if value is None:
            return None
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.fault(name, "format", f"must match {pattern.pattern}")
            return None
        return value

    def amount(self, data: Mapping[str, Any], name: str, at: str = "") -> Decimal | None:
        """Money or a rate: a decimal string, 0 to 10^12."""
        value = data.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(at + name, "type", 'must be a decimal string such as "12.50"')
            return None
        return self._decimal(value, at + name, MAX_MONEY)

    def quantity(self, data: Mapping[str, Any], name: str, at: str = "") -> Decimal | None:
        """A number of units: a JSON number or a decimal string, 0 to 10^18."""
        value = data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            self.fault(at + name, "type", "must be a number")
            return None
        if isinstance(value, int) and value.bit_length() > 128:
            self.fault(at + name, "too-large", f"must be at most {MAX_QUANTITY}")
            return None
        if isinstance(value, float):
            # The shortest text that reads back as this float is what the sender wrote.
            value = Decimal(repr(value))
        return self._decimal(format(value, "f") if isinstance(value, Decimal) else str(value), at + name, MAX_QUANTITY)

    def _decimal(self, text: str, name: str, most: Decimal) -> Decimal | None:
        if len(text) > 200 or not _DECIMAL.fullmatch(text):
            self.fault(name, "format", "must be a plain decimal number, without exponent, spaces or separators")
            return None
        number = Decimal(text)
        places = text.partition(".")[2]
        if len(places.rstrip("0")) > DECIMAL_PLACES:
            self.fault(name, "too-many-decimals", f"has more than {DECIMAL_PLACES} decimals")
        elif number > most:
            self.fault(name, "too-large", f"must be at most {most}")
        elif number < 0:
            self.fault(name, "negative", "must not be negative")
        else:
            # Without the sign of a "-0"; `abs` would round to the context's 28 digits.
            return number.copy_abs()
        return None
