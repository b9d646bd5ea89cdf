"""The types of commands' arguments: instants and months."""

import argparse
from datetime import UTC, date, datetime

from ledger.months import month_of
from ledger.values import EARLIEST_YEAR, LATEST_YEAR


def instant(text: str) -> datetime:
    """Read a time with an offset, or a day, which begins at 00:00 UTC; in the years 2000 to 2200, and returned in UTC."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            if len(text) != len("2026-01-31"):
                raise argparse.ArgumentTypeError(f"{text!r} needs Z or an offset, such as {text}Z")
            found = found.replace(tzinfo=UTC)
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        why = "is neither a day such as 2026-01-31 nor a time such as 2026-01-31T12:00Z"
        raise argparse.ArgumentTypeError(f"{text!r} {why}") from None
    if not EARLIEST_YEAR <= found.year <= LATEST_YEAR:
        raise argparse.ArgumentTypeError(f"{text!r} must be in the years {EARLIEST_YEAR} to {LATEST_YEAR}, in UTC")
    return found


def month(text: str) -> date:
    """Read a month such as 2026-01; return its first day."""
    found = month_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a month such as 2026-01")
    return found
