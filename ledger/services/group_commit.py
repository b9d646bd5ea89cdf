"""Group commit: requests that arrive while a transaction is under way share the next one.

A transaction costs the server more than the entry in it: BEGIN, COMMIT, and a sync of the log, for which the spends of one holder
would wait one after the other under the lock. So the calls of a web process queue, and one thread, the committer, executes what
has queued in one transaction. ADR 0014 has the numbers.

Nothing else changes: each request is decided under its holder's lock, read after it was taken, and answered when it is committed.
The committer waits for nobody's lock: requests whose holder another process has locked are handed to a waiter, one for each such
holder, which then executes all that have come in for the holder.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ledger.database.locks import holder_key
from ledger.database.queues import LIMIT, Pending, Queue, tell, threads
from ledger.errors import HolderBusy, LedgerError
from ledger.journal import Recorded
from ledger.rules import Request

Outcome = Recorded | LedgerError | None
"""What came of a request: what is on record, an error that left nothing; None where its holder's lock was not to be had."""

WAITERS = 8
"""How many busy holders are waited for at the same time; each takes a thread and a connection."""
WAITING_PER_HOLDER = 256
"""How many requests wait for one busy holder at most; those beyond are told at once that it is busy."""
COMMITTERS = 8
"""How many threads execute requests where each has a transaction of its own."""


class Ways(Protocol):
    """How requests are executed, each way in one transaction. See `answering`."""

    def together(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        """Execute those whose holders' locks are free."""

    def after_waiting(self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float) -> Sequence[Outcome]:
        """Wait so long for the holder's lock, then execute all that have arrived."""


class GroupCommit(Queue):
    """The queue of one process: committer and waiters."""

    def __init__(self, ways: Ways, *, most: Callable[[], int]) -> None:
        """Describe it.

        Args:
            most: how many requests share a transaction; below 2, several threads execute one each.
        """
        super().__init__("ledger-committer", ways.together, most=most, threads=lambda: COMMITTERS if most() < 2 else 1)
        self._ways = ways
        self._wanted: dict[str, deque[Pending]] = {}
        """Who waits for a holder whose lock somebody else had: a waiter has been sent for each of these holders."""
        self._waiters = threads("ledger-waiter", WAITERS, limit=LIMIT)

    def _place(self, pending: Pending) -> None:
        if pending.asked.holder_id in self._wanted:
            self._want(pending)
        else:
            super()._place(pending)

    def _want(self, pending: Pending) -> None:
        holder_id = pending.asked.holder_id
        wanted = self._wanted.get(holder_id)
        if wanted is None:
            self._wanted[holder_id] = deque([pending])
            self._waiters.submit(partial(self._wait_for, holder_id), lambda done: None)
        elif len(wanted) >= WAITING_PER_HOLDER:
            raise self._lateness(pending.asked)
        else:
            wanted.append(pending)

    def _waiting(self) -> Iterable[deque[Pending]]:
        return (self._queue, *self._wanted.values())

    def _lateness(self, asked: Any) -> Exception:
        return HolderBusy(key=holder_key(asked.holder_id))

    def close(self) -> None:
        super().close()
        self._waiters.close()

    # In the threads ----------------------------------------------------------------------------------

    def _settle(self, group: Sequence[Pending], outcomes: Sequence[Any]) -> None:
        done = []
        with self._guard:
            for pending, outcome in zip(group, outcomes, strict=True):
                pending.outcome = outcome
                if outcome is None:
                    try:
                        self._want(pending)
                        continue
                    except HolderBusy as busy:
                        pending.outcome = busy
                done.append(pending)
        tell(done)

    def _wait_for(self, holder_id: str) -> None:
        """Wait for the holder's lock, then execute all that have come in for the holder; tell them that it is busy otherwise."""
        group: list[Pending] = []

        def arrived() -> list[Request]:
            with self._guard:
                group.extend(self._wanted.pop(holder_id, ()))
            return [pending.asked for pending in group]

        with self._guard:
            first = next(iter(self._wanted[holder_id]), None)
            if first is None:  # all have waited too long before their turn came
                del self._wanted[holder_id]
                return
        try:
            seconds = max(0.001, first.deadline - time.monotonic())
            outcomes: Sequence[Any] = first.context.run(self._ways.after_waiting, holder_id, arrived, seconds=seconds)
        except HolderBusy:
            outcomes = [self._lateness(asked) for asked in arrived()]
        except Exception:
            arrived()
            outcomes = self._outcomes(group)
        self._settle(group, outcomes)
