"""Reads that an event loop sends itself: one prepared statement for all that have arrived, on a connection of the loop.

A thread that reads must be woken for each group of reads, get the interpreter from the loop, and wake the loop again. Here the
loop writes the statement to the connection's socket and continues; the result comes to it as a request does.

Every other case goes to the threads of the queue, which have all rules about it: there is no connection yet, or it was lost; the
server returned an error; a request needs a second statement. So a read may be sent twice.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import pq

from ledger import conf
from ledger.database.locks import QUERY_CANCELED, sqlstate
from ledger.database.queues import Notify, Pending, Queue, take_late
from ledger.database.schema_versions import ensure_schema
from ledger.database.statements import BINARY, Statement

log = logging.getLogger(__name__)

READ_AT_ONCE: Final = 32
"""How many requests one statement reads at most: the loop does nothing else while it decodes them. Their parameters fit into the
buffer of any socket, so that sending them never waits."""
GATHER_SECONDS: Final = 0.001
"""How long after the end of a group the next one waits at most for its expected size. See `queues`, Note [Gathering a group]."""
OPEN_AGAIN_SECONDS: Final = 1.0
"""How long after the loss of a connection the next one is opened."""

IN_A_THREAD: Final = object()
"""The outcome of a request that needs more than the statement: a thread executes it."""


class ReadQueue(Queue):
    """A queue whose requests are reads by one statement, so that a `LoopReader` can execute them."""

    def __init__(
        self,
        name: str,
        execute: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        statement: Callable[[], Statement],
        parameters: Callable[[Sequence[Any]], Sequence[bytes | None]],
        outcomes: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        **options: Any,
    ) -> None:
        """As `Queue`.

        Args:
            statement: the statement that this deployment needs.
            parameters: returns its parameters for a group of requests.
            outcomes: returns the outcome of each request of a group, from the rows of the statement; or IN_A_THREAD.
        """
        super().__init__(name, execute, **options)
        self.statement = statement
        self.parameters = parameters
        self.outcomes = outcomes

    def ensure_room(self, waiting: int) -> None:
        """Return, or raise `ServerBusy` if this number of requests is all that may wait."""
        if waiting >= self._limit:
            raise self.server_busy()


class _Session(NamedTuple):
    """The connection of a loop, with its prepared statement."""

    database: BaseDatabaseWrapper
    statement: Statement
    name: bytes
    """Of the statement in the server."""

    @property
    def pgconn(self) -> Any:
        """The connection of libpq."""
        return self.database.connection.pgconn

    @property
    def is_too_old(self) -> bool:
        """True if Django would open another, by CONN_MAX_AGE."""
        close_at = self.database.close_at
        return close_at is not None and close_at <= time.monotonic()


class LoopReader:
    """What one event loop reads for one queue. All of it belongs to the loop's thread."""

    def __init__(self, queue: ReadQueue, notify: Notify, wake: Callable[[Sequence[Pending]], None]) -> None:
        """Open nothing yet: the connection is opened with the first request.

        Args:
            notify: as for `Queue.submit`, of requests that a thread executes.
            wake: notifies the callers of a group in the loop's thread.
        """
        self._queue = queue
        self._notify = notify
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._session: _Session | None = None
        self._socket = -1
        self._opening: asyncio.Task[None] | None = None
        self._opens_at = 0.0
        self._waiting: deque[Pending] = deque()
        self._sent: list[Pending] = []
        """The requests that the server reads now."""
        self._results: list[pq.abc.PGresult] = []
        self._timer: asyncio.Handle | None = None
        """Sends the next group."""
        self._enough = 1
        """How many requests are sent before the timer has ended."""

    @property
    def is_at_work(self) -> bool:
        """True while requests are read or wait. May be asked in any thread."""
        return bool(self._sent or self._waiting)

    def submit(self, request: Any, caller: Any) -> Pending:
        """As `Queue.submit`; without a connection, the queue's threads execute it."""
        if self._session is None:
            self._open()
            return self._queue.submit(request, self._notify, caller)
        self._queue.ensure_room(len(self._waiting))
        pending = Pending(request, self._notify, caller)
        self._waiting.append(pending)
        if not self._sent:
            if self._timer is None:
                self._enough = READ_AT_ONCE
                # All requests of this turn of the loop are read together.
                self._timer = self._loop.call_soon(self._send)
            elif len(self._waiting) == self._enough:
                self._timer.cancel()
                self._send()
        return pending

    def expire(self) -> None:
        """Fail each request that has waited too long, and close a connection that is too old or has another statement."""
        late = take_late(self._waiting, time.monotonic())
        for pending in late:
            pending.outcome = self._queue.server_busy()
        self._wake(late)
        session = self._session
        if session is None or self._sent:
            return
        if session.is_too_old or session.statement is not self._queue.statement():
            self._close_session()

    async def close(self) -> None:
        """Close the connection; threads execute what was not read."""
        if self._opening is not None:
            await self._opening
        self._close_session()

    # The connection ----------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._opening is None and conf.PREPARE_STATEMENTS.value and time.monotonic() >= self._opens_at:
            self._opening = self._loop.create_task(self._take_session())

    async def _take_session(self) -> None:
        try:
            session = await self._loop.run_in_executor(None, _open_session, self._queue.statement())
        except Exception as error:
            # The threads, which execute the requests, report it.
            log.debug("No connection for reads in the event loop: %s", error)
            self._opens_at = time.monotonic() + OPEN_AGAIN_SECONDS
        else:
            self._session, self._socket = session, session.pgconn.socket
            self._loop.add_reader(self._socket, self._receive)
        finally:
            self._opening = None

    def _close_session(self) -> None:
        """Close the connection, if there is one; what is read or waits goes to the threads."""
        session, self._session = self._session, None
        if session is None:
            return
        # A connection that is broken has no socket any more.
        self._loop.remove_reader(self._socket)
        session.database.connection.close()
        self._opens_at = time.monotonic() + OPEN_AGAIN_SECONDS
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unread = [*self._sent, *self._waiting]
        self._sent, self._results = [], []
        self._waiting.clear()
        self._hand_over(unread)

    def _hand_over(self, group: Sequence[Pending]) -> None:
        """Let the queue's threads execute requests."""
        self._wake(self._queue.take_over(group))

    # A group -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._timer = None
        session = self._session
        if session is None or not self._waiting:
            return
        self._sent = [self._waiting.popleft() for _ in range(min(READ_AT_ONCE, len(self._waiting)))]
        try:
            parameters = self._queue.parameters([pending.request for pending in self._sent])
            session.pgconn.send_query_prepared(session.name, parameters, result_format=BINARY)
        except psycopg.Error:
            self._close_session()

    def _receive(self) -> None:
        """Take in what the server has sent: a result, or the end of the connection."""
        session = self._session
        if session is None:
            return
        pgconn = session.pgconn
        try:
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    break
                self._results.append(result)
            else:
                return
        except psycopg.Error:
            self._close_session()
            return
        if self._sent:
            self._settle(session)

    def _settle(self, session: _Session) -> None:
        """Give the callers their outcomes, and prepare the next group."""
        group, self._sent = self._sent, []
        results, self._results = self._results, []
        try:
            [result] = results
            with session.database.wrap_database_errors:
                rows = session.statement.rows_of(result)
            outcomes = self._queue.outcomes([pending.request for pending in group], rows)
        except Exception as error:
            if len(group) == 1 and sqlstate(error) == QUERY_CANCELED:  # it would take as long again
                group[0].outcome = error
                self._expect(1)
                self._wake(group)
                return
            # Threads execute each alone, so that only the faulty one fails; the connection may have lost its statement.
            self._close_session()
            self._hand_over(group)
            return
        for pending, outcome in zip(group, outcomes, strict=True):
            pending.outcome = outcome
        self._expect(len(group))
        unread = [pending for pending in group if pending.outcome is IN_A_THREAD]
        if unread:
            group = [pending for pending in group if pending.outcome is not IN_A_THREAD]
            self._hand_over(unread)
        self._wake(group)

    def _expect(self, size: int) -> None:
        """Send the next group when it is as large as this one with what has come since, or GATHER_SECONDS from now."""
        expected = min(READ_AT_ONCE, size + len(self._waiting))
        if expected == 1:
            return
        self._enough = expected
        if len(self._waiting) >= expected:
            self._send()
        else:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._send)


def _open_session(statement: Statement) -> _Session:
    """Return a new connection of Django's with the statement prepared. Runs in a thread."""
    database = connections.create_connection(DEFAULT_DB_ALIAS)
    database.connect()
    try:
        ensure_schema(database)
        return _Session(database, statement, statement.prepare(database.connection))
    except BaseException:
        database.close()
        raise
