"""The least that granian, Python and PostgreSQL take to store a row for each request and to say so once it is committed.

ASGI applications that granian serves as it serves the ledger. They check nothing: not the key, not the body, no balance. The row
is that of a spend, with its values already encoded, in a table without constraints, triggers and indexes; rows that arrive
together are one INSERT, which is a transaction of its own. `spends_in_loop` has no thread: the event loop sends the INSERT and
takes its result. `spends_in_thread` has the ledger's queue and its one committing thread.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import psycopg

from ledger.database.queues import Pending, Queue
from ledger.services.group_commit import GATHER_SECONDS, MOST_GATHER_SECONDS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST = 32
"""Rows of one INSERT, as the ledger by default."""
INSERT = """
INSERT INTO competitors.bare
    (holder_id, credit_type, sequence, kind, amount, balance, held, lots, drawn, idempotency_key, request_digest, recorded_at,
     actor, reason, reference, digest)
SELECT holder, 'credits', 4, 'spend', -120, 2999999999880, 0, $3, '[[1,120]]', key, $4, clock_timestamp(),
       'key:bench', 'chat completion', key, $4
FROM unnest($1::text[], $2::text[]) AS arrived (holder, key)
"""
LOTS = b"[[2,1000000000000,1700000000000000,null,50],[1,999999999880,1700000000000000],[3,1000000000000,1700000000000000]]"
DIGEST = rb"\x" + b"5e" * 32
BODY = b'{"holder_id":"bench-1","credit_type":"credits","sequence":4,' + b" " * 500 + b'"kind":"spend"}'
START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
END = {"type": "http.response.body", "body": BODY}


class Bare:
    """An application that answers each request as soon as it has arrived."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan of the process."""
        if scope["type"] == "lifespan":
            await receive()
            self.start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await receive()
        if scope["method"] == "POST":
            await self._store(scope)
        await send(START)
        await send(END)

    def start(self) -> None:
        """Begin in the running loop."""

    def stop(self) -> None:
        """End."""

    async def _store(self, scope: Message) -> None:
        pass


class Storing(Bare):
    """One that answers when the row of a request is committed."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self._pgconn = self._connection.pgconn
        _ensure_done(self._pgconn.prepare(b"bare", INSERT.encode()))
        self.session = self._connection.info.backend_pid

    def stop(self) -> None:
        self._connection.close()

    def _row(self, scope: Message) -> tuple[bytes, bytes]:
        """Return the holder and the key of a request."""
        return scope["path"].rsplit("/", 1)[1].encode(), dict(scope["headers"])[b"idempotency-key"]


class InLoop(Storing):
    """One whose event loop sends the rows."""

    def start(self) -> None:
        super().start()
        self._waiting: list[tuple[tuple[bytes, bytes], asyncio.Future[None]]] = []
        self._sent: list[asyncio.Future[None]] = []
        self._timer: asyncio.Handle | None = None
        self._enough = 1
        self._loop.add_reader(self._pgconn.socket, self._receive)

    def stop(self) -> None:
        self._loop.remove_reader(self._pgconn.socket)
        super().stop()

    async def _store(self, scope: Message) -> None:
        done = self._loop.create_future()
        self._waiting.append((self._row(scope), done))
        if not self._sent and len(self._waiting) >= self._enough:
            self._insert()
        await done

    def _insert(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._enough = 1
        group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        if group:
            self._sent = [done for _, done in group]
            self._pgconn.send_query_prepared(b"bare", _parameters([row for row, _ in group]))

    def _receive(self) -> None:
        self._pgconn.consume_input()
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                break
            _ensure_done(result)
        else:
            return
        sent, self._sent = self._sent, []
        for done in sent:
            done.set_result(None)
        # As the ledger does: the clients that are answered now soon ask again.
        self._enough = min(MOST, len(sent) + len(self._waiting))
        if len(self._waiting) >= self._enough:
            self._insert()
        elif sent:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._insert)


class InThread(Storing):
    """One whose rows a thread sends, which it wakes and which wakes it."""

    def start(self) -> None:
        super().start()
        self._queue = Queue(
            "bare-committer",
            self._insert,
            most=lambda: MOST,
            gather_seconds=GATHER_SECONDS,
            most_gather_seconds=MOST_GATHER_SECONDS,
        )

    def stop(self) -> None:
        self._queue.close()
        super().stop()

    async def _store(self, scope: Message) -> None:
        pending = self._queue.submit(self._row(scope), self._notify, self._loop.create_future())
        await pending.caller

    def _insert(self, rows: Sequence[tuple[bytes, bytes]]) -> Sequence[None]:
        _ensure_done(self._pgconn.exec_prepared(b"bare", _parameters(rows)))
        return [None] * len(rows)

    def _notify(self, group: Sequence[Pending]) -> None:
        self._loop.call_soon_threadsafe(self._answer, group)

    def _answer(self, group: Sequence[Pending]) -> None:
        for pending in group:
            pending.caller.set_result(None)


def _parameters(rows: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    holders, keys = zip(*rows, strict=True)
    return [b"{%s}" % b",".join(holders), b"{%s}" % b",".join(keys), LOTS, DIGEST]


def _ensure_done(result: psycopg.pq.abc.PGresult) -> None:
    if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
        raise RuntimeError(result.get_error_message())


nothing = Bare()
spends_in_loop = InLoop()
spends_in_thread = InThread()
