"""Error class -> HTTP status: the register. Each app registers its own errors in `AppConfig.ready`; see its `api/problems.py`."""

from collections.abc import Mapping
from typing import NamedTuple

from ledger import errors

NOT_EXECUTED = "not_executed"
UNKNOWN = "unknown"


class Kind(NamedTuple):
    """The status, outcome and detail of an error class.

    The facts fill `detail`; `{rows:row|rows}` is the fact with its noun, "1 row" or "2 rows".
    """

    status: int
    detail: str
    outcome: str = NOT_EXECUTED
    retry_after_seconds: int | range | None = None
    """For Retry-After; of a range, one at random, so that many who got the error do not come back together."""


_kinds: dict[type[errors.LedgerError], Kind] = {}


def register(kinds: Mapping[type[errors.LedgerError], Kind]) -> None:
    """Register the kinds of these classes and of their subclasses for which no kind is registered.

    Raises:
        ValueError: one of them is registered otherwise; nothing is registered then.
    """
    contradicted = [error.__name__ for error, kind in kinds.items() if _kinds.get(error, kind) != kind]
    if contradicted:
        raise ValueError(f"registered with another status: {', '.join(contradicted)}")
    _kinds.update(kinds)


def is_registered(error_class: type[errors.LedgerError]) -> bool:
    """Whether the class itself, and not only a base of it, has a status."""
    return error_class in _kinds


def kind_of(error_class: type[errors.LedgerError]) -> Kind:
    """Return the kind of an error class: its own, or that of its nearest base."""
    return next(_kinds[base] for base in error_class.__mro__ if base in _kinds)
