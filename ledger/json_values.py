"""Values as JSON shows them: times as text, objects in the order of their keys."""

from datetime import UTC, datetime
from typing import Any


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
