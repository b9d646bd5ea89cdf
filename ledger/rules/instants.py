"""Times as whole microseconds since 1970-01-01 UTC: exact, comparable, and cheap to store in a lot."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


def to_us(instant: datetime) -> int:
    """Return the microseconds since the epoch of an aware datetime; exact, negative before 1970."""
    return (instant - EPOCH) // MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Return the aware UTC datetime of `instant_us`."""
    return EPOCH + timedelta(microseconds=instant_us)


def to_text(instant_us: int) -> str:
    """Return RFC 3339 in UTC with six digits of the second: all texts have one length and sort like their times."""
    second, us = divmod(instant_us, SECOND_US)
    return f"{_second_text(second)}.{us:06}Z"


def us_of(text: str | None) -> int | None:
    """Return the instant of a stored text."""
    return None if text is None else to_us(datetime.fromisoformat(text))


@lru_cache(maxsize=1024)
def _second_text(second: int) -> str:
    # The times of one request fall within a second or two, so few texts are needed.
    return from_us(second * SECOND_US).isoformat()[:19]
