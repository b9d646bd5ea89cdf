"""What the counts of all processes were at past instants, to say how fast they grow. Knows no credits, no HTTP and no database.

A count only grows. So a process that shows rates reads all counts once a minute, keeps an hour of them, and subtracts.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from ledger.telemetry.metrics import all_processes

EVERY: Final = timedelta(minutes=1)
KEPT: Final = timedelta(hours=1)
METRICS: Final = frozenset({"ledger_http_request_duration_seconds", "ledger_http_problems", "ledger_http_key_calls"})
"""The metrics whose counts are kept."""

log = logging.getLogger(__name__)

Count = tuple[str, frozenset[tuple[str, str]]]
"""The name of a sample, and its labels with their values."""
Counts = Mapping[Count, float]


class CountReading(NamedTuple):
    """The counts at an instant."""

    at: datetime
    counts: Counts


class Growth(NamedTuple):
    """By how much counts have grown from one instant to another; counts that stayed are left out."""

    since: datetime
    until: datetime
    counts: Counts

    @property
    def seconds(self) -> float:
        """How long it took; above 0."""
        return max((self.until - self.since).total_seconds(), 0.001)


def read_counts() -> Counts:
    """Return the present counts of all processes that count together."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for metric in all_processes().collect()
        if metric.name in METRICS
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


class CountHistory:
    """The counts of the last hour, minute by minute."""

    def __init__(self, *, started_at: datetime, read: Callable[[], Counts] = read_counts) -> None:
        """Begin with counts of 0.

        Args:
            started_at: when the processes began to count.
        """
        self._read = read
        self._first = CountReading(started_at, {})
        self._readings: deque[CountReading] = deque()
        self._guard = threading.Lock()
        self._is_kept = False

    def keep(self) -> None:
        """Read the counts once a minute from now on, in a thread that ends with the process."""
        if not self._is_kept:
            self._is_kept = True
            threading.Thread(target=self._keep, name="ledger-count-history", daemon=True).start()

    def _keep(self) -> None:
        never = threading.Event()
        while not never.wait(EVERY.total_seconds()):
            try:
                self.note(datetime.now(UTC))
            except Exception:
                log.warning("The counts of this minute cannot be read, so the page of requests lacks them.", exc_info=True)

    def note(self, at: datetime) -> CountReading:
        """Read the counts, and keep them unless those kept last are less than EVERY old; forget what is older than KEPT."""
        reading = CountReading(at, self._read())
        with self._guard:
            if not self._readings or at - self._readings[-1].at >= EVERY:
                self._readings.append(reading)
                while len(self._readings) > 1 and self._readings[1].at <= at - KEPT:
                    self._readings.popleft()
        return reading

    def growth(self, at: datetime, within: timedelta | None) -> Growth:
        """Return the growth from the last reading that is at least `within` old to the present counts.

        Args:
            at: the present time.
            within: None, or longer than anything was read: since the processes began to count.
        """
        now = self.note(at)
        fitting = [each for each in self._list_readings() if within is not None and each.at <= at - within]
        return _growth(fitting[-1] if fitting else self._first, now)

    def steps(self, at: datetime, within: timedelta) -> Sequence[Growth]:
        """Return the growth from each reading to the next, of those that are not older than `within`, the oldest first."""
        readings = self._list_readings()
        return [_growth(before, after) for before, after in pairwise(readings) if after.at > at - within and after.at > before.at]

    def _list_readings(self) -> list[CountReading]:
        with self._guard:
            return [self._first, *self._readings]


def _growth(before: CountReading, after: CountReading) -> Growth:
    grown = {count: value - before.counts.get(count, 0) for count, value in after.counts.items()}
    return Growth(before.at, after.at, {count: more for count, more in grown.items() if more > 0})


HISTORY: Final = CountHistory(started_at=datetime.now(UTC))
"""Of this process and those with which it counts. They load this module when they start."""
