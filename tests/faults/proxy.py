"""A TCP proxy before PostgreSQL that breaks connections, above all around COMMIT.

It follows the protocol far enough to see messages of the client, so that it knows which of them is COMMIT and which idempotency
keys the transaction has stored. Source: https://www.postgresql.org/docs/18/protocol-message-formats.html
"""

import asyncio
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import Final

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

LENGTH: Final = Struct("!I")
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
QUERY, PARSE, BIND, COPY_DATA = b"Q", b"P", b"B", b"d"
PANIC: Final = b"SPANIC\0VPANIC\0C53100\0Mno space is left\0\0"


class Fault(StrEnum):
    """A way to break a connection; the value says when, in the report."""

    BEFORE = "before COMMIT is forwarded"
    MIDDLE = "in the middle of COMMIT"
    AT_ONCE = "after COMMIT, at once"
    AFTER = "after the server's response to COMMIT"
    HALF_RESPONSE = "in the middle of the response to COMMIT"
    GARBAGE_RESPONSE = "random bytes as the response to COMMIT"
    PANIC_RESPONSE = "the server's last words after COMMIT"
    GARBAGE_QUERY = "random bytes to the server"
    GARBAGE_ANSWER = "random bytes to the client"
    BLIND = "at a random instant"
    REFUSED = "no new connection"


AT_COMMIT: Final = (
    Fault.BEFORE,
    Fault.MIDDLE,
    Fault.AT_ONCE,
    Fault.AFTER,
    Fault.HALF_RESPONSE,
    Fault.GARBAGE_RESPONSE,
    Fault.PANIC_RESPONSE,
)
NOT_STORED: Final = {Fault.BEFORE, Fault.MIDDLE}
"""After these, the transaction cannot have taken effect."""
STORED: Final = {Fault.AFTER, Fault.HALF_RESPONSE, Fault.GARBAGE_RESPONSE, Fault.PANIC_RESPONSE}
"""After these, it has."""


@dataclass(frozen=True)
class Cut:
    """A connection that was broken, and the keys that its transaction had stored by then."""

    fault: Fault
    keys: frozenset[str]


@dataclass(frozen=True)
class Rates:
    """How often something breaks.

    Args:
        commit: the share of COMMITs that meet a fault, each kind in turn.
        garbage: the share of other messages that are replaced by random bytes.
        blind: the share of connections that are cut within 3 s.
        refusal: the share of cuts after which no new connection is accepted for `refusal_s`.
    """

    commit: float = 0.12
    garbage: float = 0.002
    blind: float = 0.3
    refusal: float = 0.15
    refusal_s: float = 0.1


class FaultProxy:
    """Forwards connections to PostgreSQL in a thread, and breaks them while `is_breaking` is True."""

    def __init__(self, connect: Connect, *, key: re.Pattern[bytes], seed: int, rates: Rates | None = None) -> None:
        """Describe it; `start` opens the port.

        Args:
            connect: opens a connection to the server; see `connecting_to`.
            key: matches the idempotency keys of the requests.
        """
        self.port = 0
        self.is_breaking = False
        self.cuts: list[Cut] = []
        self.commits = 0
        """How many COMMITs arrived here while `is_breaking`."""
        self._connect = connect
        self._key = key
        self._random = random.Random(seed)
        self._rates = rates or Rates()
        self._turn = 0
        self._refuses_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def start(self) -> "FaultProxy":
        """Accept connections on a free port of the loopback."""
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result(30)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def close(self) -> None:
        """Cut all connections and end the thread."""

        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def counts(self) -> Counter[Fault]:
        """How many connections each fault has broken."""
        return Counter(cut.fault for cut in self.cuts)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_breaking and time.monotonic() < self._refuses_until:
            self.cuts.append(Cut(Fault.REFUSED, frozenset()))
            writer.transport.abort()
            return
        server: Streams | None = None
        # A task that asyncio made for a connection must not end as cancelled.
        with suppress(asyncio.CancelledError, OSError):
            server = await self._connect()
            await _Session(self, (reader, writer), server).run()
        for each in (writer, server[1]) if server else (writer,):
            each.transport.abort()

    # What happens next ---------------------------------------------------------------------------------

    def _at_commit(self) -> Fault | None:
        if not self.is_breaking:
            return None
        self.commits += 1
        if self._random.random() >= self._rates.commit:
            return None
        self._turn += 1
        return AT_COMMIT[self._turn % len(AT_COMMIT)]

    def _at_message(self) -> Fault | None:
        if not self.is_breaking or self._random.random() >= self._rates.garbage:
            return None
        return self._random.choice((Fault.GARBAGE_QUERY, Fault.GARBAGE_ANSWER))

    def _blind_after_s(self) -> float | None:
        return self._random.uniform(0.0, 3.0) if self._random.random() < self._rates.blind else None

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.randint(1, 200))

    def _part_of(self, message: bytes) -> bytes:
        return message[: self._random.randint(1, len(message) - 1)]

    def _note(self, fault: Fault, keys: frozenset[str]) -> None:
        self.cuts.append(Cut(fault, keys))
        if self._random.random() < self._rates.refusal:
            self._refuses_until = time.monotonic() + self._rates.refusal_s


class _Cut(Exception):
    """Ends a session: both of its connections are cut."""


class _Session:
    """One connection of the application and one of the server."""

    def __init__(self, proxy: FaultProxy, application: Streams, server: Streams) -> None:
        self._proxy = proxy
        self._reader, self._writer = application
        self._server_reader, self._server_writer = server
        self._keys: set[str] = set()
        self._held_back: asyncio.Future[bytes] | None = None
        """Set while the next bytes of the server must not reach the application."""

    async def run(self) -> None:
        """Forward both ways until one side ends or a fault cuts both."""
        await self._begin()
        ways = [asyncio.ensure_future(way) for way in (self._to_server(), self._to_client(), self._cut_blindly())]
        try:
            with suppress(_Cut, OSError, asyncio.IncompleteReadError):
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in done:
                    way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _begin(self) -> None:
        """Forward the first message, which has no type; encryption is declined."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                length = await self._reader.readexactly(4)
                body = await self._reader.readexactly(LENGTH.unpack(length)[0] - 4)
                if LENGTH.unpack(body[:4])[0] not in (SSL_REQUEST, GSS_REQUEST):
                    break
                self._writer.write(b"N")
            self._server_writer.write(length + body)

    async def _to_client(self) -> None:
        while data := await self._server_reader.read(65_536):
            if self._held_back is not None:
                self._held_back.set_result(data)
                await asyncio.Event().wait()  # the session is about to be cut
            self._writer.write(data)
            await self._writer.drain()

    async def _to_server(self) -> None:
        while True:
            head = await self._reader.readexactly(5)
            message = head + await self._reader.readexactly(LENGTH.unpack(head[1:])[0] - 4)
            if _is_commit(message):
                await self._commit(message, self._proxy._at_commit())
                self._keys.clear()
                continue
            self._remember_keys(message)
            await self._other(message, self._proxy._at_message())

    async def _cut_blindly(self) -> None:
        seconds = self._proxy._blind_after_s()
        if seconds is None:
            await asyncio.Event().wait()
        await asyncio.sleep(seconds or 0.0)
        while not self._proxy.is_breaking:
            await asyncio.sleep(0.2)
        self._cut(Fault.BLIND)

    def _cut(self, fault: Fault) -> None:
        self._proxy._note(fault, frozenset(self._keys))
        raise _Cut

    # Messages ------------------------------------------------------------------------------------------

    def _remember_keys(self, message: bytes) -> None:
        """Remember the keys that the transaction stores; those that it only looks for may belong to others' transactions."""
        kind = message[:1]
        stores = (kind in (QUERY, PARSE) and b"INSERT" in message) or kind == COPY_DATA
        if stores or (kind == BIND and b"\0ledger_append" in message[:64]):
            self._keys.update(found.decode() for found in self._proxy._key.findall(message))
        elif message[5:13] == b"ROLLBACK":
            self._keys.clear()

    async def _other(self, message: bytes, fault: Fault | None) -> None:
        if fault is Fault.GARBAGE_QUERY:
            await self._send(self._server_writer, self._proxy._bytes())
            self._cut(fault)
        if fault is Fault.GARBAGE_ANSWER:
            await self._send(self._writer, self._proxy._bytes())
            self._cut(fault)
        await self._send(self._server_writer, message)

    async def _commit(self, message: bytes, fault: Fault | None) -> None:
        if fault is None:
            await self._send(self._server_writer, message)
            return
        if fault is Fault.BEFORE:
            self._cut(fault)
        if fault is Fault.MIDDLE:
            await self._send(self._server_writer, self._proxy._part_of(message))
            self._cut(fault)
        if fault is Fault.AT_ONCE:
            await self._send(self._server_writer, message)
            self._cut(fault)
        self._held_back = asyncio.get_running_loop().create_future()
        await self._send(self._server_writer, message)
        response = await self._held_back
        instead = {
            Fault.AFTER: b"",
            Fault.HALF_RESPONSE: self._proxy._part_of(response),
            Fault.GARBAGE_RESPONSE: self._proxy._bytes(),
            Fault.PANIC_RESPONSE: b"E" + LENGTH.pack(len(PANIC) + 4) + PANIC,
        }[fault]
        await self._send(self._writer, instead)
        self._cut(fault)

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()


def _is_commit(message: bytes) -> bool:
    return message[:1] == QUERY and message[5:].rstrip(b"\0; ").upper() == b"COMMIT"


def connecting_to(host: str, port: int) -> Connect:
    """Return what opens a connection to a server, at a host or in a socket's folder."""

    async def connect() -> Streams:
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    return connect
