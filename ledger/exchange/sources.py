"""What a source of an import is: a function from the objects of another system's export to rows, and what a whole export has.

A source is pure: from the lines of the file and the command's terms to rows and, where the source says it, to the credits that
must be spendable in the end. What it cannot say here is left out by name, and the command imports nothing without a word for it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from ledger.exchange.files import Line
from ledger.values import MAX_SEQUENCE

Total = tuple[tuple[str, str], int]
"""An account, and its spendable credits."""


class SourceError(Exception):
    """An object of the source cannot become rows."""

    def __init__(self, line: int, why: str) -> None:
        """Name the line and the reason."""
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True)
class Terms:
    """How a source's credits are counted here.

    Args:
        credit_type: of all rows.
        decimals: how many decimals of the source's credits become units of the smallest kind: with 2, 12.5 becomes 1250.
    """

    credit_type: str
    decimals: int = 0

    def amount(self, line: int, given: Any) -> int:
        """Return the credits in the smallest unit.

        A number of JSON with a fraction is a double, of which 15 digits are exact: 0.30000000000000004 is 0.3.
        """
        try:
            exact = Decimal(f"{given:.15g}" if isinstance(given, float) else str(given)).scaleb(self.decimals)
            is_too_large = not exact.is_finite() or abs(exact) > MAX_SEQUENCE
        except ArithmeticError:
            raise SourceError(line, f"{given!r} is no number of credits") from None
        if is_too_large:
            raise SourceError(line, f"{given} credits are too many")
        if exact != exact.to_integral_value():
            needed = self.decimals - int(exact.normalize().as_tuple().exponent)
            why = f"{given} credits have more than {self.decimals} decimals, and are not rounded: --decimals {needed} counts them"
            raise SourceError(line, why)
        return int(exact)


@dataclass(frozen=True)
class LeftOut:
    """What the source does to credits later, and no row says. Args: why: after "line N: ", with what to do."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


@dataclass(frozen=True)
class SourceRows:
    """What a source has: rows, and totals to compare with before the first row is imported.

    Args:
        totals: the credits that must be spendable at the end, as the source says them.
        are_stated: the source says them apart from the rows; otherwise they are the sums of what is left of its grants.
        left_out: what the rows do not say of the credits' future.
    """

    rows: Iterable[Line]
    totals: tuple[Total, ...] = ()
    are_stated: bool = False
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class WholeExport:
    """What a whole export of a source has, and what becomes of it, in words; a file that shows itself to be a part is refused.

    Args:
        objects: which objects the file has.
        pages: how a page of several is recognised.
        totals: what states the credits that must be spendable.
        ended: what becomes of credits that ended.
        later: what becomes of credits that begin later.
        recurring: what becomes of credits that come again.
        currencies: which currencies one file may have.
        minor_units: in which unit amounts and costs stand.
    """

    objects: str
    pages: str
    totals: str
    ended: str
    later: str
    recurring: str
    currencies: str
    minor_units: str

    def described(self) -> list[tuple[str, str]]:
        """Return each part with its words, in their order."""
        return [(each.name.replace("_", " "), getattr(self, each.name)) for each in fields(self)]


Source = Callable[[Iterable[Line], Terms], SourceRows]

_WHOLE: Final = "whole_export"


def declare_whole_export(whole: WholeExport) -> Callable[[Source], Source]:
    """Declare what a whole export has that the decorated source reads."""

    def declare(source: Source) -> Source:
        setattr(source, _WHOLE, whole)
        return source

    return declare


def whole_export_of(source: Source) -> WholeExport | None:
    """Return what a whole export of the source has; None if it does not declare it."""
    declared: WholeExport | None = getattr(source, _WHOLE, None)
    return declared


# What sources share ----------------------------------------------------------------------------------


def read_time(text: str) -> datetime:
    """Return an instant of ISO 8601. Raises: ValueError, without an offset."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return at


@contextmanager
def object_of(line: Line) -> Iterator[dict[str, Any]]:
    """Give the block the object of a line. What it lacks, or has with another type, is an error of the line."""
    if line.value is None:
        raise SourceError(line.number, line.error)
    try:
        yield line.value
    except KeyError as error:
        raise SourceError(line.number, f"has no {error}") from error
    except (TypeError, AttributeError, ValueError, OverflowError, OSError) as error:
        raise SourceError(line.number, f"has a value of another type than its source: {error}") from error


def without_empty(**members: Any) -> dict[str, Any]:
    """Return the members that have a value."""
    return {name: value for name, value in members.items() if value not in (None, "", {})}


def own_rows(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return the rows of a file in the format of this project; `terms` fills in the credit type."""

    def filled() -> Iterator[Line]:
        for line in lines:
            yield line if line.value is None else Line(line.number, {"credit_type": terms.credit_type, **line.value})

    return SourceRows(filled())


# Which there are -------------------------------------------------------------------------------------


SOURCES: Final = {
    "rows": "ledger.exchange.sources.own_rows",
    "stripe": "ledger.exchange.stripe_exports.read_stripe",
    "lago": "ledger.exchange.lago_exports.read_lago",
    "openmeter": "ledger.exchange.openmeter_exports.read_openmeter",
}
"""How a file becomes rows: the dotted path of a function, by the name of its source. `settings.IMPORT_SOURCES` adds to them, or
replaces one: `{"acme": "shop.exports.read_wallets"}`."""


def declared_sources() -> dict[str, str]:
    """Return the dotted paths of all sources, by name."""
    return SOURCES | getattr(settings, "IMPORT_SOURCES", {})


def find_source(name: str) -> Source:
    """Return the function of a source that is declared. Raises: ImportError, if there is none at its path."""
    source: Source = import_string(declared_sources()[name])
    return source


def check_sources(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a source whose function cannot be imported or called (ledger.E008)."""
    return [
        Error(f"settings.IMPORT_SOURCES[{name!r}]: {path!r} is no function that can be imported.", id="ledger.E008")
        for name, path in declared_sources().items()
        if not _is_function(path)
    ]


def _is_function(path: Any) -> bool:
    try:
        return isinstance(path, str) and callable(import_string(path))
    except ImportError:
        return False
