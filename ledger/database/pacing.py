"""Long work in a thread yields to quick work in other threads of the process, such as a batch to spends.

A batch of 1,000 operations computes for some 150 ms, in the process and its server process together. A group of spends beside it
needs a processor and the interpreter about ten times, and waits for them each time. So a batch pauses, and sends the server
statements that take no longer than a spend (docs/explanation/architecture.md).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

WORK_SECONDS = 0.001
"""How long work continues before it checks for other work."""
PAUSE_SECONDS = 0.003
"""How long it pauses if there is other work. Longer pauses hardly help the others more."""
PAUSES_SECONDS = 0.5
"""The limit of all pauses of one piece of work together: a batch holds locks, for which others may wait."""

Item = TypeVar("Item")


class _Pauses:
    """The pauses of one piece of work."""

    def __init__(self, has_other_work: Callable[[], bool]) -> None:
        self._has_other_work = has_other_work
        self._left_s = PAUSES_SECONDS
        self._began_at = time.monotonic()

    @property
    def are_taken(self) -> bool:
        """True once there was other work, until the limit of the pauses is reached."""
        return 0 < self._left_s < PAUSES_SECONDS

    def take_if_due(self) -> None:
        """Pause if the work has continued long enough and there is other work."""
        if time.monotonic() - self._began_at < WORK_SECONDS:
            return
        if self._left_s > 0 and self._has_other_work():
            time.sleep(PAUSE_SECONDS)
            self._left_s -= PAUSE_SECONDS
        self._began_at = time.monotonic()


_pauses: ContextVar[_Pauses | None] = ContextVar("pauses", default=None)


@contextmanager
def yielding_to_quick_work(has_other_work: Callable[[], bool]) -> Iterator[None]:
    """Within the block, loops over `with_pauses(…)` and `in_pieces(…)` pause while there is other work; elsewhere they never do.

    Args:
        has_other_work: returns whether there is other work; called in this thread, about once in a millisecond.
    """
    token = _pauses.set(_Pauses(has_other_work))
    try:
        yield
    finally:
        _pauses.reset(token)


def with_pauses(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; inside a block of `yielding_to_quick_work`, pause between two of them when a pause is due."""
    pauses = _pauses.get()
    for item in items:
        if pauses is not None:
            pauses.take_if_due()
        yield item


def in_pieces(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield all items at once; or, in a block of `yielding_to_quick_work` that has paused, in pieces with pauses between them.

    Args:
        items: an empty sequence has no piece.
        size: how many items a piece has at most: as many as the server works on for about a millisecond.
    """
    pauses = _pauses.get()
    start = 0
    while start < len(items):
        if pauses is not None:
            pauses.take_if_due()
        end = start + size if pauses is not None and pauses.are_taken else len(items)
        yield items[start:end]
        start = end
