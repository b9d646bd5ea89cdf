"""Expressions that compute the quantity of a usage event from its properties: `round(properties.tokens * 1.5, 2)`. Pure.

    expression = term {("+" | "-") term}
    term       = factor {("*" | "/") factor}
    factor     = "-" factor | number | property | function "(" expression {"," expression} ")" | "(" expression ")"
    property   = "properties." name | "properties[" quoted name "]"
    function   = "round" | "ceil" | "floor" | "min" | "max"

Arithmetic is exact: numbers and properties are rational. Only `round`, `ceil`, `floor` and the end round; a half goes away from
zero. The limits below bound what an expression can cost.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any, Final, NamedTuple, NoReturn

from billing.rating.aggregation import NUMBER_PATTERN, property_text
from billing.rating.limits import MAX_QUANTITY
from billing.rating.money import round_half_up, to_decimal

MAX_CHARACTERS: Final = 500
MAX_DEPTH: Final = 20
MAX_ARGUMENTS: Final = 20
MAX_DIGITS: Final = 30
"""The digits of a number, in the expression or in a property; a property is below 10^31 and, unless 0, at least 10^-30."""
MAX_DECIMALS: Final = 12
"""The decimals of a quantity: the result is rounded to them, once."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[0-9]+(?:\.[0-9]+)?)
        | properties\s*(?:\.\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*) | \[\s*"(?P<quoted>[^"\\\x00-\x1f]{1,64})"\s*\])
        | (?P<function>[A-Za-z_][A-Za-z0-9_]*)
        | (?P<sign>[-+*/(),])
    )""",
    re.VERBOSE | re.ASCII,
)
_NUMBER: Final = re.compile(NUMBER_PATTERN, re.ASCII)
_DECIMALS: Final = frozenset(map(str, range(MAX_DECIMALS + 1)))


class ExpressionWrong(ValueError):
    """The text is no expression; `rule` and `detail` say why, with the character at which it goes wrong."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(detail)
        self.rule, self.detail = rule, detail


class NotComputable(ValueError):
    """The properties give no quantity: `pointer` is the property or the value, `rule` and `detail` say why."""

    def __init__(self, pointer: str, rule: str, detail: str) -> None:
        super().__init__(f"{pointer}: {detail}")
        self.pointer, self.rule, self.detail = pointer, rule, detail


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


Numbers = Mapping[str, Fraction]
Node = Callable[[Numbers], Fraction]


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression.

    Args:
        properties: the names of the properties that it needs, in the order of their first use.
    """

    properties: tuple[str, ...]
    compute: Node

    def quantity_of(self, properties: Mapping[str, Any]) -> Decimal:
        """Return the quantity of an event with these properties.

        Raises:
            NotComputable: a property is missing or is no number, something is divided by zero, or the quantity is too large.
        """
        numbers = {name: _number_in(properties, name) for name in self.properties}
        try:
            exact = self.compute(numbers)
        except ZeroDivisionError:
            raise NotComputable("/properties", "division-by-zero", "the expression of the meter divides by zero") from None
        rounded = _round_number(exact, MAX_DECIMALS)
        if abs(rounded) > MAX_QUANTITY:
            raise NotComputable("/properties", "too-large", f"the quantity is beyond plus or minus {MAX_QUANTITY}")
        return to_decimal(rounded)


def _number_in(properties: Mapping[str, Any], name: str) -> Fraction:
    pointer = f"/properties/{name.replace('~', '~0').replace('/', '~1')}"
    if name not in properties:
        raise NotComputable(pointer, "required", "the expression of the meter needs this property")
    value = properties[name]
    if type(value) is int and abs(value) < 10**MAX_DIGITS:
        return Fraction(value)
    text = None if isinstance(value, bool) else property_text(value)
    if text is None or not _NUMBER.fullmatch(text):
        raise NotComputable(pointer, "not-a-number", "the expression of the meter needs a number")
    number = Decimal(text)
    if len(number.as_tuple().digits) > MAX_DIGITS or (number and abs(number.adjusted()) > MAX_DIGITS):
        raise NotComputable(pointer, "too-many-digits", f"a number has at most {MAX_DIGITS} digits")
    return Fraction(number)


def _round_number(number: Fraction, decimals: int) -> Fraction:
    return Fraction(round_half_up(number * 10**decimals), 10**decimals)


@lru_cache(maxsize=1_000)
def parse_expression(text: str) -> Expression:
    """Return the expression of a text.

    Raises:
        ExpressionWrong: it is too long or too deep, or does not follow the grammar.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionWrong("too-long", f"has at most {MAX_CHARACTERS} characters")
    parser = _Parser(list(_tokens(text)), len(text))
    compute = parser.sum(0)
    if parser.next is not None:
        parser.refuse()
    return Expression(tuple(dict.fromkeys(parser.properties)), compute)


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise ExpressionWrong("syntax", f"cannot be read at character {at + 1}: {text[at : at + 20]!r}")
        kind = {"name": "property", "quoted": "property"}.get(match.lastgroup, match.lastgroup)
        yield _Token(kind, match[match.lastgroup], match.start(match.lastgroup))
        at = match.end()


class _Parser:
    """Reads tokens from left to right; each method reads one rule of the grammar."""

    def __init__(self, tokens: Sequence[_Token], end: int) -> None:
        self._tokens, self._end, self._at = tokens, end, 0
        self.properties: list[str] = []

    @property
    def next(self) -> _Token | None:
        """The token that comes; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def refuse(self, why: str = "") -> NoReturn:
        """Refuse the token that comes."""
        token = self.next
        place = f"at character {token.at + 1}: {token.text!r}" if token is not None else "at its end"
        raise ExpressionWrong("syntax", f"{why or 'cannot be read'} {place}")

    def _take(self, *signs: str) -> str | None:
        token = self.next
        if token is None or token.kind != "sign" or token.text not in signs:
            return None
        self._at += 1
        return token.text

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            self.refuse(f"needs {sign!r}")

    def sum(self, depth: int) -> Node:
        node = self._product(depth)
        while (sign := self._take("+", "-")) is not None:
            node = _both(sign, node, self._product(depth))
        return node

    def _product(self, depth: int) -> Node:
        node = self._factor(depth)
        while (sign := self._take("*", "/")) is not None:
            node = _both(sign, node, self._factor(depth))
        return node

    def _factor(self, depth: int) -> Node:
        if depth >= MAX_DEPTH:
            raise ExpressionWrong("too-deep", f"has at most {MAX_DEPTH} levels of parentheses, functions and signs")
        if self._take("-") is not None:
            node = self._factor(depth + 1)
            return lambda numbers: -node(numbers)
        if self._take("(") is not None:
            node = self.sum(depth + 1)
            self._expect(")")
            return node
        token = self.next
        if token is None or token.kind == "sign":
            self.refuse()
        self._at += 1
        match token.kind:
            case "number":
                return self._constant(token.text)
            case "property":
                self.properties.append(token.text)
                return lambda numbers: numbers[token.text]
            case _:
                return self._call(token, depth + 1)

    def _constant(self, text: str) -> Node:
        if len(text) > MAX_DIGITS:
            raise ExpressionWrong("too-many-digits", f"a number has at most {MAX_DIGITS} digits")
        number = Fraction(text)
        return lambda numbers: number

    def _call(self, token: _Token, depth: int) -> Node:
        if token.text not in FUNCTIONS:
            self._at -= 1
            self.refuse(f"has the functions {', '.join(FUNCTIONS)} and properties.name, not")
        self._expect("(")
        arguments = [self.sum(depth)]
        while self._take(",") is not None:
            arguments.append(self._decimals() if token.text == "round" and len(arguments) == 1 else self.sum(depth))
        self._expect(")")
        least, most, function = FUNCTIONS[token.text]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise ExpressionWrong("arguments", f"{token.text} has {wanted} arguments, not {len(arguments)}")
        return lambda numbers: function(*(argument(numbers) for argument in arguments))

    def _decimals(self) -> Node:
        """Read the second argument of `round`, a whole number, so that rounding is the same for every event."""
        token = self.next
        if token is None or token.text not in _DECIMALS:
            self.refuse(f"round needs 0 to {MAX_DECIMALS} decimals")
        self._at += 1
        decimals = Fraction(int(token.text))
        return lambda numbers: decimals


FUNCTIONS: Final[Mapping[str, tuple[int, int, Callable[..., Fraction]]]] = {
    "round": (1, 2, lambda number, decimals=Fraction(0): _round_number(number, int(decimals))),
    "ceil": (1, 1, lambda number: Fraction(ceil(number))),
    "floor": (1, 1, lambda number: Fraction(floor(number))),
    "min": (2, MAX_ARGUMENTS, min),
    "max": (2, MAX_ARGUMENTS, max),
}
"""The functions by their names, each with the least and most number of its arguments."""


def _both(sign: str, left: Node, right: Node) -> Node:
    match sign:
        case "+":
            return lambda numbers: left(numbers) + right(numbers)
        case "-":
            return lambda numbers: left(numbers) - right(numbers)
        case "*":
            return lambda numbers: left(numbers) * right(numbers)
        case _:
            return lambda numbers: left(numbers) / right(numbers)
