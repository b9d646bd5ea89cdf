"""Signals that ask a command to end: the command finishes its current work, and its exit code names the signal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""A command ended by a signal exits with this plus the signal's number: 130 for SIGINT, 143 for SIGTERM."""


@contextmanager
def collect_end_signals() -> Iterator[list[int]]:
    """Yield a list that collects SIGINT and SIGTERM while the block runs; the signals do not interrupt the block."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
