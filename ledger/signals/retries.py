"""When a signal that could not be delivered is sent again, and when the ledger stops trying. Pure."""

import random
from datetime import timedelta
from typing import Final

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

AFTER: Final = (
    timedelta(seconds=5), timedelta(seconds=30), 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR,
    12 * HOUR, 16 * HOUR, 24 * HOUR, 24 * HOUR,
)  # fmt: skip
"""How long after the first failure, the second … the next attempt is due: together 3.8 days."""
ATTEMPTS: Final = len(AFTER) + 1
"""After that number of attempts a signal is given up, if its receiver accepts others."""
SPREAD: Final = 0.1
"""By which part a wait is longer or shorter, so that receivers do not get everything at once."""
MOST_ASKED_FOR: Final = HOUR
"""The longest wait that a receiver can ask for by Retry-After."""


def wait(failures: int, asked_for: timedelta | None = None) -> timedelta:
    """Return how long to wait after that many failures in a row, 1 or more.

    Args:
        asked_for: what the receiver's Retry-After says.
    """
    planned = AFTER[min(failures, len(AFTER)) - 1]
    spread: timedelta = planned * random.uniform(1 - SPREAD, 1 + SPREAD)
    return max(spread, min(asked_for or timedelta(), MOST_ASKED_FOR))
