"""The flag that a worker checks before each subscription: whether the run ends, and whether its limit is reached."""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class StopFlag(Protocol):
    """The flag that a worker checks before each subscription."""

    def stopped(self) -> bool:
        """Return whether the worker must begin no further subscription."""

    def reserve(self) -> bool:
        """Reserve one subscription of the limit; False if the limit is reached."""

    def give_back(self) -> None:
        """Cancel a reservation: the subscription was not billed."""


class LocalStopFlag:
    """The flag of a run in one process.

    Args:
        stop: called each time; True if the run must end.
    """

    def __init__(self, limit: int | None, stop: Callable[[], bool]) -> None:
        self._left = limit
        self._stop = stop
        self._is_set = False

    def stopped(self) -> bool:
        """See `StopFlag`."""
        self._is_set = self._is_set or self._stop()
        return self._is_set

    def reserve(self) -> bool:
        """See `StopFlag`."""
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def give_back(self) -> None:
        """See `StopFlag`."""
        if self._left is not None:
            self._left += 1


class SharedStopFlag:
    """The flag of several processes. Any of them may be killed at any moment, so it uses only locks that the kernel releases."""

    def __init__(self, context: Any, limit: int | None) -> None:
        self._stop = context.RawValue("b", 0)
        self._left = None if limit is None else context.RawValue("q", limit)
        self._turn = None if limit is None else tempfile.TemporaryFile()  # noqa: SIM115  as long as the run

    def stopped(self) -> bool:
        """See `StopFlag`."""
        return bool(self._stop.value)

    def reserve(self) -> bool:
        """See `StopFlag`."""
        if self._left is None:
            return True
        with self._my_turn():
            if self._left.value <= 0:
                return False
            self._left.value -= 1
            return True

    def give_back(self) -> None:
        """See `StopFlag`."""
        if self._left is not None:
            with self._my_turn():
                self._left.value += 1

    def set(self) -> None:
        """Make every worker end after its current subscription."""
        self._stop.value = 1

    def close(self) -> None:
        """Close the file whose record lock protects the limit."""
        if self._turn is not None:
            self._turn.close()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        # A record lock belongs to the process and ends with it; a semaphore would stay taken.
        assert self._turn is not None
        fcntl.lockf(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)
