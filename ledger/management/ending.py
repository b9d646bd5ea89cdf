"""The signals that ask a command to end: it finishes what it is at, and its exit code says which came."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""A command that ended on a signal exits with this plus the signal's number: 130 for SIGINT, 143 for SIGTERM."""


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Give the list into which SIGINT and SIGTERM are put while the block runs, instead of ending it at once."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
