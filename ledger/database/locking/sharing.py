"""Workers that divide a list: each works on items that no other worker has locked, and retries the locked ones at the end."""

import time
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

from ledger.errors import LockBusy

Item = TypeVar("Item")

LOOK_EVERY_S: Final = 0.2


class Turn(Enum):
    """The results of a worker's act with a meaning; any other result means that the item is done."""

    BUSY = "busy"
    """Another worker has the item, as with `LockBusy`: retry it later."""
    END = "end"
    """The worker must end, with this item left."""


def share(
    items: Iterable[Item],
    act: Callable[[Item], Any],
    *,
    retries: int = 3,
    wait_s: float = 0.2,
    stop: Callable[[], bool] = lambda: False,
    waiting: Callable[[Collection[Item]], None] = lambda busy: None,
) -> list[Item]:
    """Act on each item that no other worker has, then retry the others; return those that stayed busy to the end.

        @locked(on(MAILING, "{name}"), wait=False)
        def send(lock: Lock, name: str) -> None: ...      # returns at once where there is nothing left to send

        left = share(names, send)

    Any number of workers, on any number of machines, may call it with the same list. Another worker may have done an item before
    its turn here, so the act checks under its lock what is left to do.

    Args:
        items: in the order in which they are tried.
        act: runs in a separate transaction; raises `LockBusy` or returns `Turn.BUSY` if another worker has the item. Any other
            exception ends the worker.
        retries, wait_s: how often to retry, and the seconds to wait before.
        stop: called before each item and during waits; True ends the worker.
        waiting: called with the items to retry, each time they may have changed.
    """
    busy: dict[Item, None] = {}
    for tries_left in range(retries, -1, -1):
        for item in list(busy) or items:
            found = Turn.END if stop() else _try(act, item)
            if found is Turn.END:
                return list(busy)
            is_known = item in busy
            if found is Turn.BUSY:
                busy[item] = None
            else:
                busy.pop(item, None)
            if is_known or item in busy:
                waiting(busy)
        if not (busy and tries_left):
            break
        _pause(wait_s, stop)
    return list(busy)


def _try(act: Callable[[Item], Any], item: Item) -> Any:
    try:
        return act(item)
    except LockBusy:
        return Turn.BUSY


def _pause(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, or stop waiting if the worker must end."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0 and not stop():
        time.sleep(min(left_s, LOOK_EVERY_S))
