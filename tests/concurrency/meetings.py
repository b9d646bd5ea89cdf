"""Two threads meet at a function, so that the outcome of their race does not depend on timing."""

import threading
from contextlib import suppress
from typing import Any

import pytest

COMES_WITHIN_S = {True: 1, False: 60}
"""How long a thread waits for the other at a meeting. With the lock the other cannot come; no result depends on it."""
LOCKED = pytest.mark.parametrize("is_locked", [True, False], ids=["with the lock", "control: without the lock"])


def meet(monkeypatch: pytest.MonkeyPatch, *places: tuple[Any, str], is_locked: bool, has_read: bool = False) -> None:
    """Stop two threads at these functions until both are there, or, with the lock, one waits for the other elsewhere.

    Args:
        has_read: the functions read what the race is about: stop after them instead of before.
    """
    barrier = threading.Barrier(2)

    def wait() -> None:
        with suppress(threading.BrokenBarrierError):
            barrier.wait(COMES_WITHIN_S[is_locked])

    for module, name in places:
        real = getattr(module, name)

        def together(*arguments: Any, real: Any = real, **named: Any) -> Any:
            if has_read:
                found = real(*arguments, **named)
                wait()
                return found
            wait()
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, together)
