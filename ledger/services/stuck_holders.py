"""Holders that stay busy, and when those who wait for them are to come back.

A holder whose lock another session keeps fails all requests that wait for it. Clients that come back after a fixed time cost the
process as much after a minute as at first. So the longer the holder has been busy, the later they are asked to come back: after
at most twice that time.
"""

import random
import time

SOON_SECONDS = 4
"""A holder that has been busy for less is nothing unusual: its clients come back soon."""
LATEST_SECONDS = 30
FORGET_SECONDS = 2 * LATEST_SECONDS
"""A holder for which nobody has waited in vain for so long is no longer counted as busy."""


class StuckHolders:
    """The holders for which requests of this process have waited in vain since they were free.

    One thread at a time changes it; any may ask.
    """

    def __init__(self) -> None:
        self._busy: dict[str, tuple[float, float]] = {}
        """By holder: since when it has been busy, and when a wait for it failed last."""

    def was_busy(self, holder_id: str, since: float) -> None:
        """Note that a wait for the holder has failed that began at this time of `time.monotonic`."""
        now = time.monotonic()
        self._busy = {each: times for each, times in self._busy.items() if now - times[1] < FORGET_SECONDS}
        self._busy[holder_id] = (self._busy.get(holder_id, (since, since))[0], now)

    def was_free(self, holder_id: str) -> None:
        """Note that the holder's lock was got."""
        self._busy.pop(holder_id, None)

    def is_stuck(self, holder_id: str) -> bool:
        """Return whether a wait for the holder has failed since it was free."""
        return holder_id in self._busy

    def retry_after_seconds(self, holder_id: str) -> int | None:
        """Return in how many seconds to come back, 1 to 30, at random; None if the holder has not been busy for long."""
        times = self._busy.get(holder_id)
        if times is None:
            return None
        busy_seconds = times[1] - times[0]
        return random.randint(1, min(LATEST_SECONDS, int(2 * busy_seconds))) if busy_seconds >= SOON_SECONDS else None
