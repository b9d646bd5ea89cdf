"""A TCP proxy that puts a distance before a web process, counts the requests that pass it, and can be cut."""

import asyncio
import threading
from contextlib import suppress
from typing import Final

MARK: Final = b" HTTP/1.1\r\n"
"""The end of the first line of each request."""


class DistantProxy:
    """Forwards bytes, each after half of the time of a round trip.

    Args:
        round_trip_s: what a request and its answer take longer.
    """

    def __init__(self, port: int, *, round_trip_s: float) -> None:
        self.port = 0
        self.requests = 0
        self.is_cut = False
        self._server_port = port
        self._half_s = round_trip_s / 2
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="distant-proxy", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result(30)
        self.port = self._server.sockets[0].getsockname()[1]
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Cut all connections with what is on its way, and let no other through."""

        async def cut() -> None:
            self.is_cut = True
            for writer in self._writers:
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(30)

    def mend(self) -> None:
        """Let connections through again."""
        self.is_cut = False

    def close(self) -> None:
        """Cut all connections and end the thread."""

        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.cut()
        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        mine = {writer}
        # A task that asyncio made for a connection must not end as cancelled.
        with suppress(asyncio.CancelledError, OSError):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            mine.add(server_writer)
            self._writers |= mine
            ways = [self._forward(reader, server_writer, counts=True), self._forward(server_reader, writer, counts=False)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._writers -= mine
        for each in mine:
            each.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        """Forward one way, with what was read and when it arrives in the order in which it came."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.ensure_future(self._deliver(under_way, writer))
        last = b""
        try:
            while data := await reader.read(65_536):
                if counts:
                    self.requests += (last + data).count(MARK)
                    last = data[-len(MARK) + 1 :]
                under_way.put_nowait((self._loop.time() + self._half_s, data))
            under_way.put_nowait((self._loop.time() + self._half_s, b""))
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, under_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        while True:
            at, data = await under_way.get()
            await asyncio.sleep(at - self._loop.time())
            if not data:
                return
            writer.write(data)
            await writer.drain()
