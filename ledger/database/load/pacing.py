"""How long work in a thread gives way to quick work in other threads of the process, such as a batch to spends.

A batch of 1,000 operations computes for some 150 ms, in the process and its server process together. A group of spends beside it
needs a processor and the interpreter some ten times, and waits for them each time. So such work takes rests, and asks the server
for pieces that take no longer than a spend (docs/adr/0046).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

WORK_SECONDS = 0.001
"""How long work continues before it looks whether there is other work."""
REST_SECONDS = 0.003
"""How long it rests where there is. Longer rests help the others hardly more."""
RESTS_SECONDS = 0.5
"""How long all rests of one piece of work take together at most: a batch holds locks, for which others may wait."""

Item = TypeVar("Item")


class _Rests:
    """The rests of one piece of work."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._left_s = RESTS_SECONDS
        self._began_at = time.monotonic()

    @property
    def are_taken(self) -> bool:
        """True once there was other work, until no rests are left."""
        return 0 < self._left_s < RESTS_SECONDS

    def take_if_due(self) -> None:
        """Rest if the work has continued long enough and other work is there."""
        if time.monotonic() - self._began_at < WORK_SECONDS:
            return
        if self._left_s > 0 and self._is_wanted():
            time.sleep(REST_SECONDS)
            self._left_s -= REST_SECONDS
        self._began_at = time.monotonic()


_rests: ContextVar[_Rests | None] = ContextVar("rests", default=None)


@contextmanager
def giving_way(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """For the block, loops over `paced` items and `in_pieces` rest while there is other work. Elsewhere nobody rests.

    Args:
        is_wanted: returns whether there is; called in this thread, about once in a millisecond.
    """
    token = _rests.set(_Rests(is_wanted))
    try:
        yield
    finally:
        _rests.reset(token)


def paced(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; inside a block of `giving_way`, rest between two of them when a rest is due."""
    rests = _rests.get()
    for item in items:
        if rests is not None:
            rests.take_if_due()
        yield item


def in_pieces(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield all items at once; or, inside a block of `giving_way` that has rested, in pieces with rests between them.

    Args:
        items: an empty sequence has no piece.
        size: how many items a piece has at most: as many as the server works on for about a millisecond.
    """
    rests = _rests.get()
    start = 0
    while start < len(items):
        if rests is not None:
            rests.take_if_due()
        end = start + size if rests is not None and rests.are_taken else len(items)
        yield items[start:end]
        start = end
