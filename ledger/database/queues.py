"""Work for a thread: what arrives while one group is being executed is executed together, next.

An event loop must not wait for the database, and a thread for each request costs more than the request. So the loop puts what it
wants done into a queue. A thread takes what has queued, as a group, and tells the loop when the group is done. Each queue has its
own threads, and each thread its own connection to the database.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any

from django.db import connections

from ledger.errors import OutcomeUnknown, ServerBusy

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.5
"""How long a request waits to be executed, whatever it waits for."""
LIMIT = 2048
"""How many requests wait in one queue at most: read and checked, they have some kilobytes each."""

Notify = Callable[[Sequence["Pending"]], None]


class Pending:
    """A request in a queue, and later its outcome."""

    __slots__ = ("asked", "caller", "context", "deadline", "notify", "outcome")

    def __init__(self, asked: Any, notify: Notify, caller: Any = None) -> None:
        self.asked = asked
        self.notify = notify
        self.caller = caller
        self.deadline = time.monotonic() + PATIENCE_SECONDS
        self.context: Context = copy_context()
        """Of the caller: what is logged and traced while a group is executed belongs to the first request of it."""
        self.outcome: Any = None

    def result(self) -> Any:
        """The outcome; raised where it is an error."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Queue:
    """Requests of one kind, and the threads that execute them in groups."""

    def __init__(
        self,
        name: str,
        execute: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        most: Callable[[], int] = lambda: 1,
        threads: Callable[[], int] = lambda: 1,
        limit: int = LIMIT,
    ) -> None:
        """Describe it; threads start with the first request.

        Args:
            name: of its threads.
            execute: gives an outcome for each request, an error too; or raises, and has done nothing.
            most: how many requests one group has.
            threads: how many groups are executed at the same time.
            limit: how many requests wait at most.
        """
        self._name = name
        self._execute = execute
        self._most = most
        self._threads = threads
        self._limit = limit
        self._running: list[threading.Thread] = []
        self._guard = threading.Condition()
        self._queue: deque[Pending] = deque()
        self._idle = 0
        self._is_closing = False

    def submit(self, asked: Any, notify: Notify, caller: Any = None) -> Pending:
        """Take a request in; waits for nothing.

        Args:
            notify: called in another thread with all requests of a group that have this same `notify`, when their outcomes are
                known.
            caller: what `notify` finds there as the request's `caller`.

        Raises:
            ServerBusy: too many wait already, or the process is stopping.
        """
        pending = Pending(asked, notify, caller)
        with self._guard:
            if self._is_closing:
                raise ServerBusy
            self._place(pending)
        return pending

    def _place(self, pending: Pending) -> None:
        if len(self._queue) >= self._limit:
            raise ServerBusy
        self._queue.append(pending)
        if self._idle:
            self._guard.notify()
        elif len(self._running) < self._threads():
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._running)}", daemon=True)
            self._running.append(thread)
            thread.start()

    def expire(self) -> None:
        """Tell those who have waited too long that nothing was done."""
        now = time.monotonic()
        with self._guard:
            late = [pending for waiting in self._waiting() for pending in _late(waiting, now)]
        for pending in late:
            pending.outcome = self._lateness(pending.asked)
        tell(late)

    def _waiting(self) -> Iterable[deque[Pending]]:
        return (self._queue,)

    def _lateness(self, asked: Any) -> Exception:
        return ServerBusy()

    def close(self) -> None:
        """Execute what was taken in, take nothing more in, and end the threads; can be used again afterwards."""
        with self._guard:
            self._is_closing = True
            self._guard.notify_all()
        for thread in self._running:
            thread.join()
        self._running.clear()
        self._is_closing = False

    # In the threads ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while group := self._take():
            try:
                self._settle(group, self._outcomes(group))
            except BaseException:
                # A bug, or a thread that was told to end: whether the group was committed is not known. The next one is served.
                log.critical("The thread %s failed; it goes on.", threading.current_thread().name, exc_info=True)
                for pending in group:
                    pending.outcome = OutcomeUnknown()
                tell(group)
        connections.close_all()

    def _take(self) -> list[Pending]:
        with self._guard:
            while not self._queue:
                if self._is_closing:
                    return []
                self._idle += 1
                self._guard.wait()
                self._idle -= 1
            return [self._queue.popleft() for _ in range(max(1, min(self._most(), len(self._queue))))]

    def _outcomes(self, group: Sequence[Pending]) -> Sequence[Any]:
        """What came of each. Where the group failed, each is executed by itself: what is wrong is the matter of one of them."""
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
        try:
            return group[0].context.run(self._execute, [pending.asked for pending in group])
        except OutcomeUnknown as error:
            return [OutcomeUnknown(**error.facts) for _ in group]
        except Exception as error:
            if len(group) == 1:
                return [error]
            now = time.monotonic()
            return [self._lateness(each.asked) if each.deadline < now else self._outcomes([each])[0] for each in group]

    def _settle(self, group: Sequence[Pending], outcomes: Sequence[Any]) -> None:
        for pending, outcome in zip(group, outcomes, strict=True):
            pending.outcome = outcome
        tell(group)


def threads(name: str, count: int, *, limit: int) -> Queue:
    """A queue of work for so many threads: each request is a function without arguments, its outcome what that returns."""
    return Queue(name, lambda works: [work() for work in works], threads=lambda: count, limit=limit)


def tell(group: Sequence[Pending]) -> None:
    """Notify whoever waits for these, once for all that it waits for."""
    by_notify: dict[Notify, list[Pending]] = {}
    for pending in group:
        by_notify.setdefault(pending.notify, []).append(pending)
    for notify, told in by_notify.items():
        notify(told)


def _late(waiting: deque[Pending], now: float) -> list[Pending]:
    late = []
    while waiting and waiting[0].deadline < now:
        late.append(waiting.popleft())
    return late
