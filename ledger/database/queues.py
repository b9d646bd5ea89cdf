"""Queues between an event loop and threads: requests that arrive while one group is executed form the next group.

An event loop must not wait for the database, and a thread for each request costs more than the request. So the loop puts requests
into a queue. A thread takes all queued requests as one group, executes them, and notifies the loop. Each queue has its own
threads, and each thread its own connection to the database.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from math import ceil
from typing import Any

from django.db import connections

from ledger.errors import OutcomeUnknown, ServerBusy
from ledger.telemetry import tracing

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.5
"""How long a request waits at most before a thread executes it."""
LIMIT = 2048
"""How many requests wait in one queue at most; each takes some kilobytes."""

LATEST_RETURN_SECONDS = 30
"""The longest `Retry-After` of a refused request."""
LAST_GROUP_WEIGHT = 0.2
"""The weight of the last group in the estimated time of a group; the earlier groups have the rest."""
MOST_TIMES_SLOWER = 4
"""A slower group counts as this many times as long as those before it."""

Notify = Callable[[Sequence["Pending"]], None]


class Pending:
    """A request in a queue, and later its outcome."""

    __slots__ = ("caller", "context", "deadline", "notify", "outcome", "request")

    def __init__(self, request: Any, notify: Notify, caller: Any = None) -> None:
        self.request = request
        self.notify = notify
        self.caller = caller
        self.deadline = time.monotonic() + PATIENCE_SECONDS
        self.context: Context = copy_context()
        """The caller's context. Logs and traces of a group's execution carry the context of its first request."""
        self.outcome: Any = None

    def result(self) -> Any:
        """Return the outcome, or raise it if it is an error."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Pace:
    """The speed of a queue: how long a request waits in it, and when a refused request may come back.

    Counted in groups, whose requests share most of the time: the time of a single request says little about each of many.

    Refused requests get places behind the queue, one after the other, as if they stood in it: they come back at the speed of the
        queue, and not all at once.
    """

    def __init__(self) -> None:
        self._group_seconds = 0.0
        """The time of a group, estimated from the last groups; 0 before the first."""
        self._placed_until = 0.0
        """The time of `time.monotonic` at which the last refused request has its place."""

    def learn(self, seconds: float) -> None:
        """Record how long a group took. A single slow group, such as during a stall of a disk, does not decide."""
        if not self._group_seconds:
            self._group_seconds = seconds
        bounded = min(seconds, MOST_TIMES_SLOWER * self._group_seconds)
        self._group_seconds += LAST_GROUP_WEIGHT * (bounded - self._group_seconds)

    def wait_seconds(self, groups: float) -> float:
        """Return how long a request waits behind this number of groups."""
        return groups * self._group_seconds

    def retry_after_seconds(self, groups: float, *, of_one: float) -> int:
        """Return in how many seconds the next refused request may come back, 1 to LATEST_RETURN_SECONDS.

        Args:
            groups: how many groups are queued. of_one: the part of a group that one request is.
        """
        now = time.monotonic()
        place = max(self._placed_until, now + self.wait_seconds(groups)) + self.wait_seconds(of_one)
        self._placed_until = min(place, now + LATEST_RETURN_SECONDS)
        return max(1, ceil(self._placed_until - now))


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
        gather_seconds: float = 0.0,
        most_gather_seconds: float = 0.0,
        is_quick: bool = True,
        refuses_early: bool = False,
    ) -> None:
        """Set up an empty queue; its threads start with the first request.

        Args:
            name: the names of the threads begin with it.
            execute: returns an outcome for each request, which may be an error; or raises and has done nothing.
            most: how many requests form one group at most.
            threads: how many groups are executed at the same time.
            limit: how many requests wait at most.
            gather_seconds: how long after the end of a group the next group waits at most for its expected size.
            most_gather_seconds: if a group takes longer than `gather_seconds`, the next one waits as long as a group takes, but
                no longer than this.
            is_quick: a group takes milliseconds. Long work in other threads yields to it (`pacing`).
            refuses_early: requests take about the same time each. A request that would wait longer than PATIENCE_SECONDS is
                refused when it comes, not after its wait.
        """
        self.is_quick = is_quick
        self._refuses_early = refuses_early
        self._pace = Pace()
        self._name = name
        self._execute = execute
        self._most = most
        self._threads = threads
        self._limit = limit
        self._running: list[threading.Thread] = []
        self._guard = threading.Condition()
        self._queue: deque[Pending] = deque()
        self._gather_seconds = gather_seconds
        self._most_gather_seconds = most_gather_seconds
        self._idle = 0
        self._expected = 1
        """How many requests the next group is expected to have, until `_gathers_until`."""
        self._gathers_until = 0.0
        self._enough = 1
        """How many queued requests are enough for an idle thread to begin."""
        self._is_closing = False

    def submit(self, request: Any, notify: Notify, caller: Any = None) -> Pending:
        """Queue a request and return at once.

        Args:
            notify: called in another thread once the outcomes are known, with all requests of the group that have this `notify`.
            caller: the `caller` of the request, for `notify`.

        Raises:
            ServerBusy: the queue is full or too slow, or the process is stopping.
        """
        pending = Pending(request, notify, caller)
        with self._guard:
            if self._is_closing:
                raise ServerBusy
            self._place(pending)
        return pending

    def _place(self, pending: Pending) -> None:
        queued = len(self._queue)
        is_too_slow = queued and self._refuses_early and self._pace.wait_seconds(self._groups(queued)) > PATIENCE_SECONDS
        if is_too_slow or queued >= self._limit:
            raise self._server_busy()
        self._queue.append(pending)
        if self._idle:
            if len(self._queue) >= self._enough:
                self._guard.notify()
        elif len(self._running) < self._threads():
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._running)}", daemon=True)
            self._running.append(thread)
            thread.start()

    def take_over(self, group: Sequence[Pending]) -> list[Pending]:
        """Queue requests that were submitted elsewhere; return those that have no place here, with their errors as outcomes."""
        refused = []
        with self._guard:
            for pending in group:
                try:
                    self._place(pending)
                except ServerBusy as error:
                    pending.outcome = error
                    refused.append(pending)
        return refused

    def server_busy(self) -> ServerBusy:
        """Return the error of a request that is not executed because the process has too many."""
        with self._guard:
            return self._server_busy()

    def execute_here(self, request: Any) -> Any:
        """Execute a request in the caller's thread, with no other; return its outcome, or raise it if it is an error."""
        outcome = self._executed_here(request)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _executed_here(self, request: Any) -> Any:
        return self._execute([request])[0]

    @property
    def is_at_work(self) -> bool:
        """True while requests are executed or queued; those that wait for a busy holder do not count. Takes no lock."""
        return bool(self._queue) or self._idle < len(self._running)

    def expire(self) -> None:
        """Fail each request that has waited longer than PATIENCE_SECONDS; it was not executed."""
        with self._guard:
            late = self._take_late(time.monotonic())
        notify_callers(late)

    def _take_late(self, now: float) -> list[Pending]:
        """Remove everything that has waited too long, with its error as the outcome. Called under the guard."""
        late = take_late(self._queue, now)
        for pending in late:
            pending.outcome = self._server_busy()
        return late

    def _server_busy(self) -> ServerBusy:
        """Return the error of a request that was not executed because the process has too many. Called under the guard."""
        return ServerBusy(
            retry_after_seconds=self._pace.retry_after_seconds(self._groups(len(self._queue)), of_one=self._groups(1))
        )

    def _groups(self, requests: int) -> float:
        """Return the number of groups, one after the other, that execute this number of requests."""
        return requests / max(1, self._most()) / max(1, self._threads())

    def _doubt(self, request: Any) -> Exception:
        """Return the error of a request whose COMMIT was sent without an answer, with the facts of only this request."""
        return OutcomeUnknown()

    def close(self) -> None:
        """Execute all queued requests, refuse new ones, and end the threads; the queue can be used again afterwards."""
        with self._guard:
            self._is_closing = True
            self._guard.notify_all()
        for thread in self._running:
            thread.join()
        self._running.clear()
        self._is_closing = False

    # In the threads ----------------------------------------------------------------------------------

    # Note [Gathering a group]
    #     Clients that wait for a result send the next request when they have it. A thread that takes what has queued as soon as a
    #     group is done finds half of them, or one; the others come a moment later and wait for the next transaction. So the next
    #     group is expected to be as large as the last one and what queued during it, and is waited for, but not longer
    #     than `gather_seconds` after the last one. On a busy machine a group takes longer, and its clients take longer to come
    #     back: then the next group is waited for as long as a group takes, up to `most_gather_seconds`. So a wait in vain costs
    #     no more than being late for a group does. A client that comes alone is never waited for: its group was 1, and 1 is
    #     expected.

    def _run(self) -> None:
        while group := self._take():
            began = time.monotonic()
            try:
                outcomes = self._outcomes(group)
                self._expect(group, seconds=time.monotonic() - began)
                self._settle(group, outcomes)
            except BaseException:
                # A bug, or the interpreter ends this thread: it is unknown whether the group was committed. The thread continues.
                log.critical("The thread %s failed; it continues.", threading.current_thread().name, exc_info=True)
                for pending in group:
                    pending.outcome = self._doubt(pending.request)
                notify_callers(group)
        connections.close_all()

    def _expect(self, group: Sequence[Pending], *, seconds: float) -> None:
        """Estimate the size of the next group, before the callers of this one are notified. See the note.

        Args:
            seconds: how long this group took.
        """
        with self._guard:
            self._pace.learn(seconds)
            self._expected = len(group) + len(self._queue)
            as_a_group = min(self._pace.wait_seconds(1), self._most_gather_seconds)
            self._gathers_until = time.monotonic() + max(self._gather_seconds, as_a_group)

    def _take(self) -> list[Pending]:
        """Wait for the next group and return it; an empty list when the queue is closed."""
        with self._guard:
            expected = min(self._most(), self._expected)
            while True:
                left = self._gathers_until - time.monotonic() if expected > 1 else 0
                self._enough = expected if left > 0 else 1
                if len(self._queue) >= self._enough or self._is_closing:
                    break
                self._idle += 1
                self._guard.wait(left if left > 0 else None)
                self._idle -= 1
            return [self._queue.popleft() for _ in range(min(max(1, self._most()), len(self._queue)))]

    def _outcomes(self, group: Sequence[Pending]) -> Sequence[Any]:
        """Return the outcome of each request. If the group fails, execute each alone, so that only the faulty one fails.

        A group whose COMMIT was sent is not executed again: its requests stay unknown, whatever a second try would return.
        """
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
        try:
            execute = self._execute
            if tracing.tracer is not None:
                execute = tracing.in_span(self._name, execute, [pending.context for pending in group])
            return group[0].context.run(execute, [pending.request for pending in group])
        except OutcomeUnknown:
            return [self._doubt(pending.request) for pending in group]
        except Exception as error:
            if len(group) == 1:
                return [error]
            return [self._alone(pending) for pending in group]

    def _alone(self, pending: Pending) -> Any:
        """Execute a request alone after its group has failed, unless it has waited too long; return its outcome."""
        if pending.deadline < time.monotonic():
            with self._guard:
                return self._server_busy()
        return self._outcomes([pending])[0]

    def _settle(self, group: Sequence[Pending], outcomes: Sequence[Any]) -> None:
        for pending, outcome in zip(group, outcomes, strict=True):
            pending.outcome = outcome
        notify_callers(group)


def threads(name: str, count: int, *, limit: int, most: int = 1, is_quick: bool = False) -> Queue:
    """Return a queue for this many threads. A request is a function without arguments; its outcome is what it returns or raises.

    Args:
        most: how many requests a thread executes, one after the other, before it notifies their callers.
        is_quick: see `Queue`.
    """
    return Queue(
        name,
        lambda works: [_outcome(work) for work in works],
        threads=lambda: count,
        limit=limit,
        most=lambda: most,
        is_quick=is_quick,
    )


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


def notify_callers(group: Sequence[Pending]) -> None:
    """Call each request's `notify`, once with all requests that share it."""
    by_notify: dict[Notify, list[Pending]] = {}
    for pending in group:
        by_notify.setdefault(pending.notify, []).append(pending)
    for notify, done in by_notify.items():
        notify(done)


def take_late(waiting: deque[Pending], now: float) -> list[Pending]:
    """Remove from the front of the queue, in order of arrival, everything that has waited too long."""
    late = []
    while waiting and waiting[0].deadline < now:
        late.append(waiting.popleft())
    return late
