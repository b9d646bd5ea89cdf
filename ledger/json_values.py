"""Values as JSON shows them: times as text, objects in the order of their keys, large integers as text too."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from ledger.values import MAX_AMOUNT

EXACT_INTEGERS: Final = "exact_integers"
"""The member of an object in a response with, as strings, those of its integers that not every reader of JSON takes exactly."""


def time_text(at: datetime) -> str:
    """Return a time as RFC 3339 in UTC, always with six digits of the second: texts of one length sort as their times do."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def in_key_order(value: Any) -> Any:
    """Return JSON with the keys of every object sorted.

    jsonb returns keys in its own order; sorted, a replayed response equals the first one byte for byte.
    """
    if isinstance(value, dict):
        return {key: in_key_order(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [in_key_order(item) for item in value]
    return value


def with_exact_integers(value: Any, *, written: Callable[[int], Any] = int) -> Any:
    """Return JSON; each object in it with integers beyond plus and minus MAX_AMOUNT has their digits in EXACT_INTEGERS, by name.

    Args:
        written: makes what the encoder writes for such an integer itself.
    """
    if isinstance(value, dict):
        shown = {name: with_exact_integers(member, written=written) for name, member in value.items()}
        large = {name: str(member) for name, member in value.items() if type(member) is int and abs(member) > MAX_AMOUNT}
        return {**shown, EXACT_INTEGERS: large} if large else shown
    if isinstance(value, list | tuple):
        return [with_exact_integers(item, written=written) for item in value]
    return written(value) if type(value) is int and abs(value) > MAX_AMOUNT else value
