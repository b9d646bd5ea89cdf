"""Group commit: requests that arrive during a transaction share the next one.

A transaction costs the server more than its entry: BEGIN, COMMIT, and a sync of the log, for which the spends of one holder would
wait one after the other under the lock. So the calls of a web process queue, and one thread, the committer, executes all queued
requests in one transaction. ADR 0014 has the numbers.

Nothing else changes: each request is decided under its holder's lock, from an account that was read after the lock was taken, and
its client gets the result after COMMIT. The committer waits for no lock, or only a moment (Note [Holders of several processes]):
requests whose holder another process has locked go to a waiter, one for each such holder, which then executes all that have come
in for the holder.

If another session keeps the lock of a holder, all requests that wait for it fail. If their clients came back after a fixed time,
they would cost the process as much after a minute as at first. So the longer the holder has been busy, the later they may come
back: after at most twice that time.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ledger.database.locks import holder_key
from ledger.database.queues import LIMIT, Pending, Queue, notify_callers, take_late, threads
from ledger.errors import HolderBusy, LedgerError, OutcomeUnknown, ServerBusy
from ledger.journal import Result
from ledger.rules.requests import Request
from ledger.telemetry import tracing
from ledger.telemetry.metrics import LOCK_WAIT_SECONDS

SOON_SECONDS = 4
"""A holder that has been busy for less is nothing unusual: its clients may come back soon."""
LATEST_SECONDS = 30
FORGET_SECONDS = 2 * LATEST_SECONDS
"""A holder for which no wait has failed for so long is no longer counted as busy."""


class StuckHolders:
    """The holders for which requests of this process have waited in vain since they were free.

    One thread at a time changes it; any thread may read it.
    """

    def __init__(self) -> None:
        self._busy: dict[str, tuple[float, float]] = {}
        """By holder: the start of its busy time, and the last failed wait for it."""

    def was_busy(self, holder_id: str, since: float) -> None:
        """Record that a wait for the holder has failed that began at this time of `time.monotonic`."""
        now = time.monotonic()
        self._busy = {each: times for each, times in self._busy.items() if now - times[1] < FORGET_SECONDS}
        self._busy[holder_id] = (self._busy.get(holder_id, (since, since))[0], now)

    def was_free(self, holder_id: str) -> None:
        """Record that a wait got the holder's lock."""
        self._busy.pop(holder_id, None)

    def is_stuck(self, holder_id: str) -> bool:
        """Return whether a wait for the holder has failed since it was free."""
        return holder_id in self._busy

    def retry_after_seconds(self, holder_id: str) -> int | None:
        """Return after how many seconds to come back, 1 to 30, at random; None if the holder has not been busy for long."""
        times = self._busy.get(holder_id)
        if times is None:
            return None
        busy_seconds = times[1] - times[0]
        return random.randint(1, min(LATEST_SECONDS, int(2 * busy_seconds))) if busy_seconds >= SOON_SECONDS else None


# Note [Holders of several processes]
#     All processes execute requests of a holder that has many. Each keeps the lock for some milliseconds, so that the next group
#     of another process often finds it locked. To try the lock in vain, and to hand the group to a waiter, which opens another
#     transaction, costs much more than to wait. So if a waiter had the lock soon, then for SHARED_SECONDS the committer waits for
#     it itself, if it has requests of no other holder, and no longer than SHARED_WAIT_SECONDS: requests of others that arrive
#     then are late by that at most. If the lock was not free by then, a waiter gets the requests.


class SharedHolders:
    """The holders whose lock was soon free when this process last waited for it: other processes execute requests of them too."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """By holder: until which time of `time.monotonic` it counts as shared. Never changed but replaced: threads share it."""

    def was_free_after(self, holder_id: str, seconds: float) -> None:
        """Record how long a waiter waited for the holder's lock."""
        now = time.monotonic()
        others = {each: until for each, until in self._until.items() if until > now and each != holder_id}
        self._until = others | ({holder_id: now + SHARED_SECONDS} if seconds < SHARED_WAIT_SECONDS else {})

    def was_not_free(self, holder_id: str) -> None:
        """Record that a short wait for the holder's lock was in vain."""
        self._until = {each: until for each, until in self._until.items() if each != holder_id}

    def has_all(self, requests: Sequence[Request]) -> bool:
        """Return whether all requests are of one holder, and other processes execute requests of it too."""
        holder_id = requests[0].holder_id
        return self._until.get(holder_id, 0.0) > time.monotonic() and all(each.holder_id == holder_id for each in requests)


ResultOrError = Result | LedgerError | None
"""The outcome of a request: its result, or an error that wrote nothing; None if its holder's lock was not free."""

GATHER_SECONDS = 0.003
"""How long the next group waits at most for the clients of the last group, if a group takes no longer than this."""
MOST_GATHER_SECONDS = 0.012
"""How long it waits at most if a group takes longer, as on a busy machine."""
WAITERS = 4
"""For how many busy holders threads wait at the same time; each takes a thread and a connection."""
PATIENT_WAITERS = 4
"""For how many of the holders that stay busy further threads wait at the same time, each with a connection."""
SHORT_WAIT_SECONDS = 0.1
"""How long a waiter waits before it leaves the holder to a patient one: longer than spends of other processes lock it."""
SHARED_WAIT_SECONDS = 0.02
"""How long the committer waits at most for the lock of a holder that other processes also execute requests of."""
SHARED_SECONDS = 1.0
"""How long a holder counts as one of those after a waiter had its lock soon."""
WAITING_PER_HOLDER = 256
"""How many requests wait for one busy holder at most; further requests get HolderBusy at once."""
COMMITTERS = 8
"""How many threads execute requests if group commit is off and each request has a separate transaction."""


class ExecuteAfterWaiting(Protocol):
    """Waits for the holder's lock, at most `seconds`, then executes in the same transaction all requests that have arrived."""

    def __call__(
        self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float
    ) -> Sequence[ResultOrError]: ...


class ExecuteShared(Protocol):
    """Waits for the lock of the requests' only holder, at most `seconds`, and executes them; returns None for all if not free."""

    def __call__(self, requests: Sequence[Request], *, seconds: float) -> Sequence[ResultOrError]: ...


class GroupCommit(Queue):
    """The queue of one process: committer and waiters."""

    def __init__(
        self,
        execute_group: Callable[[Sequence[Request]], Sequence[ResultOrError]],
        execute_after_waiting: ExecuteAfterWaiting,
        execute_alone: Callable[[Request], ResultOrError] | None = None,
        *,
        most: Callable[[], int],
        execute_shared: ExecuteShared | None = None,
    ) -> None:
        """Set up an empty queue; its threads start with the first request.

        Args:
            execute_group: executes the requests whose holders' locks are free, in one transaction.
            execute_after_waiting: see the protocol of this name.
            execute_alone: waits for the lock of a request's holder and executes it; for `execute_here`.
            most: how many requests share a transaction at most; below 2, several threads execute one request each.
            execute_shared: see the protocol of this name; None: the committer waits for no lock.
        """
        super().__init__(
            "ledger-committer",
            self._execute_group,
            most=most,
            threads=lambda: COMMITTERS if most() < 2 else 1,
            gather_seconds=GATHER_SECONDS,
            most_gather_seconds=MOST_GATHER_SECONDS,
            refuses_early=True,
        )
        self._execute_if_free = execute_group
        self._execute_shared = execute_shared
        self._execute_after_waiting = execute_after_waiting
        self._execute_alone = execute_alone
        self._by_holder: dict[str, deque[Pending]] = {}
        """Requests that wait for a busy holder, by holder; each of these holders has a waiter."""
        self._waiters = threads("ledger-waiter", WAITERS, limit=LIMIT)
        self._patient_waiters = threads("ledger-patient-waiter", PATIENT_WAITERS, limit=LIMIT)
        self._stuck = StuckHolders()
        self._shared = SharedHolders()

    def _executed_here(self, request: Any) -> Any:
        assert self._execute_alone is not None
        return self._execute_alone(request)

    def _place(self, pending: Pending) -> None:
        if pending.request.holder_id in self._by_holder:
            self._want(pending)
        else:
            super()._place(pending)

    def _want(self, pending: Pending) -> None:
        holder_id = pending.request.holder_id
        waiting = self._by_holder.get(holder_id)
        if waiting is None:
            # First, because it may raise ServerBusy: a holder without a waiter must not count as one that is waited for.
            self._have_waited_for(holder_id, is_patient=self._stuck.is_stuck(holder_id))
            self._by_holder[holder_id] = deque([pending])
        elif len(waiting) >= WAITING_PER_HOLDER:
            raise self._holder_busy(pending.request)
        else:
            waiting.append(pending)

    # Note [Two kinds of waiters]
    #     A holder that two processes spend from is locked for milliseconds, a stuck one for as long as anybody waits. With
    #     one kind of waiters, a few stuck holders take them all, and the requests of all other busy holders are late. So a waiter
    #     waits for a short time, and leaves a holder that stays busy to the patient waiters. A holder for which these have waited
    #     in vain is theirs until it was free.

    def _have_waited_for(self, holder_id: str, *, is_patient: bool) -> None:
        waiters = self._patient_waiters if is_patient else self._waiters
        waiters.submit(partial(self._wait_for, holder_id, is_patient=is_patient), lambda done: None)

    def _take_late(self, now: float) -> list[Pending]:
        late = super()._take_late(now)
        for waiting in self._by_holder.values():
            for pending in take_late(waiting, now):
                pending.outcome = self._holder_busy(pending.request)
                late.append(pending)
        return late

    def _holder_busy(self, request: Any) -> HolderBusy:
        """Return the error of a request whose holder's lock was tried and not free."""
        key = holder_key(request.holder_id)
        retry_after_seconds = self._stuck.retry_after_seconds(request.holder_id)
        return (
            HolderBusy(key=key) if retry_after_seconds is None else HolderBusy(key=key, retry_after_seconds=retry_after_seconds)
        )

    def _doubt(self, request: Any) -> Exception:
        return OutcomeUnknown(holder_id=request.holder_id)

    def close(self) -> None:
        super().close()
        self._waiters.close()
        self._patient_waiters.close()

    # In the threads ----------------------------------------------------------------------------------

    def _execute_group(self, requests: Sequence[Request]) -> Sequence[ResultOrError]:
        if self._execute_shared is None or not self._shared.has_all(requests):
            return self._execute_if_free(requests)
        outcomes = self._execute_shared(requests, seconds=SHARED_WAIT_SECONDS)
        if outcomes[0] is None:
            self._shared.was_not_free(requests[0].holder_id)
        return outcomes

    def _settle(self, group: Sequence[Pending], outcomes: Sequence[Any]) -> None:
        done = []
        with self._guard:
            for pending, outcome in zip(group, outcomes, strict=True):
                pending.outcome = outcome
                if outcome is None:
                    try:
                        self._want(pending)
                        continue
                    except (HolderBusy, ServerBusy) as busy:
                        pending.outcome = busy
                elif not isinstance(outcome, HolderBusy):
                    self._stuck.was_free(pending.request.holder_id)
                done.append(pending)
        notify_callers(done)

    def _wait_for(self, holder_id: str, *, is_patient: bool) -> None:
        """Wait for the holder's lock, then execute all its requests; if it stays busy, leave or fail them."""
        group: list[Pending] | None = None

        def taken() -> list[Pending]:
            """Take the holder's requests, once: those that come afterwards have another waiter, which executes them."""
            nonlocal group
            if group is None:
                self._shared.was_free_after(holder_id, time.monotonic() - began)
                with self._guard:
                    group = list(self._by_holder.pop(holder_id))
            return group

        with self._guard:
            first = next(iter(self._by_holder[holder_id]), None)
            if first is None:  # all have waited too long before their turn came
                del self._by_holder[holder_id]
                return
        began = time.monotonic()
        try:
            seconds = max(0.001, first.deadline - began)
            if not is_patient:
                seconds = min(seconds, SHORT_WAIT_SECONDS)
            outcomes = self._after_waiting(first, lambda: [pending.request for pending in taken()], seconds=seconds)
        except HolderBusy:
            if group is None and not is_patient and self._is_left_to_a_patient_waiter(holder_id):
                return
            with self._guard:
                self._stuck.was_busy(holder_id, since=began)
            outcomes = [self._holder_busy(pending.request) for pending in taken()]
        except OutcomeUnknown:
            outcomes = [self._doubt(pending.request) for pending in taken()]
        except Exception:
            outcomes = self._outcomes(taken()) if taken() else []
        except BaseException:
            self._settle(taken(), [self._doubt(pending.request) for pending in taken()])
            raise
        LOCK_WAIT_SECONDS.observe(time.monotonic() - began)
        self._settle(taken(), outcomes)

    def _is_left_to_a_patient_waiter(self, holder_id: str) -> bool:
        """Leave the holder's requests to one; return False if too many holders wait for them already."""
        try:
            self._have_waited_for(holder_id, is_patient=True)
        except ServerBusy:
            return False
        return True

    def _after_waiting(self, first: Pending, arrived: Callable[[], Sequence[Request]], *, seconds: float) -> Sequence[Any]:
        """Wait for the lock for at most this time, and execute in the context of the first request."""
        execute: Callable[..., Any] = self._execute_after_waiting
        if tracing.tracer is not None:
            execute = tracing.in_span("ledger-waiter", execute, [first.context])
        outcomes: Sequence[Any] = first.context.run(execute, first.request.holder_id, arrived, seconds=seconds)
        return outcomes
