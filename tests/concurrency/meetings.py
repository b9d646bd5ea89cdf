"""Two threads meet at a function, so that the outcome of their race does not depend on timing."""

import threading
import time
from typing import Any

import psycopg
import pytest

from tests import nodes
from tests.conftest import _conninfo

HANGS_S = 60
"""No test waits so long unless it hangs; then it fails."""
LOCKED = pytest.mark.parametrize("is_locked", [True, False], ids=["with the lock", "control: without the lock"])


class Meeting:
    """A place where two threads meet once. What is called there later, such as by a second try, goes on at once.

    Args:
        is_locked: a lock keeps one of them away: who comes waits until somebody waits for its session instead.
    """

    def __init__(self, *, is_locked: bool = False) -> None:
        self._is_locked = is_locked
        self._changed = threading.Condition()
        self._has_come = self._is_over = False

    def come(self) -> None:
        """Return when both threads are there, or, with the lock, one waits for the other elsewhere; else fail."""
        with self._changed:
            if self._has_come:
                self.end()
                return
            self._has_come = True
        if self._is_locked:
            self._wait_until_waited_for()
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_over, HANGS_S), "the other thread never came"

    def end(self) -> None:
        """Let who waits go on."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _wait_until_waited_for(self) -> None:
        """Wait for the other thread to come here or to wait for a lock of this thread's session, and end the meeting."""
        session = nodes.session_id()
        with psycopg.connect(_conninfo("owner"), autocommit=True) as observer:
            deadline = time.monotonic() + HANGS_S
            while not (self._is_over or nodes.is_waited_for(observer, session)):
                assert time.monotonic() < deadline, "the other thread neither came nor waited"
        self.end()


def meet(monkeypatch: pytest.MonkeyPatch, *places: tuple[Any, str], is_locked: bool, has_read: bool = False) -> Meeting:
    """Stop two threads at these functions until both are there, or, with the lock, one waits for the other elsewhere.

    Args:
        has_read: the functions read what the race is about: stop after them instead of before.
    """
    meeting = Meeting(is_locked=is_locked)

    for module, name in places:
        real = getattr(module, name)

        def together(*arguments: Any, real: Any = real, **named: Any) -> Any:
            if has_read:
                found = real(*arguments, **named)
                meeting.come()
                return found
            meeting.come()
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, together)
    return meeting
