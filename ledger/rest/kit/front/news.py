"""Calls that wait for something new: one task looks at the marker for all of them, and no call keeps a thread while it waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ledger.errors import ServerBusy
from ledger.rest.kit.endpoint import LOOK_EVERY_SECONDS

WAITING_LIMIT = 256
"""How many calls of a process wait for news at most."""
READS_PER_SECOND = 100
"""How many reads a second the calls that wait make together at most: the more there are, the rarer each is woken."""


class Waiter:
    """One call that waits."""

    def __init__(self) -> None:
        self.is_unsettled = True
        """True: wake it at the next look, whatever that finds."""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let the call read again."""
        self._woken.set()

    async def sleep(self, seconds: float) -> None:
        """Wait until the call is woken, or for this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def ready(self) -> None:
        """Forget that it was woken: what it is about to read is newer."""
        self._woken.clear()


class News:
    """The calls of one process that wait for the same marker."""

    def __init__(self, look: Callable[[], Awaitable[str]]) -> None:
        """Describe it; nothing is looked at while no call waits.

        Args:
            look: reads the marker.
        """
        self._look = look
        self._waiters: set[Waiter] = set()
        self._watch: asyncio.Task[None] | None = None
        self.is_closing = False

    @asynccontextmanager
    async def waiter(self) -> AsyncIterator[Waiter]:
        """Yield a waiter, which is woken at each change; or raise `ServerBusy`."""
        if len(self._waiters) >= WAITING_LIMIT:
            raise ServerBusy(retry_after_seconds=1)
        waiter = Waiter()
        self._waiters.add(waiter)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look_on())
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)

    def close(self) -> None:
        """Let all waiting calls end with what they have."""
        self.is_closing = True
        if self._watch is not None:
            self._watch.cancel()
        for waiter in self._waiters:
            waiter.wake()

    async def _look_on(self) -> None:
        before = ""
        while self._waiters:
            try:
                marker = await self._look()
            except Exception:
                marker = ""  # the calls meet the error by themselves
            for waiter in self._waiters:
                if waiter.is_unsettled or marker != before or not marker:
                    waiter.wake()
            before = marker
            await asyncio.sleep(max(LOOK_EVERY_SECONDS, len(self._waiters) / READS_PER_SECOND))
