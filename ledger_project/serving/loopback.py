"""`localhost` is 127.0.0.1 and [::1]: the web server listens on the first; this module passes connections to the second on to it.

A web server takes one address. Only the address of all networks includes both, and a trial must not be reachable from them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread

IPV4, IPV6 = "127.0.0.1", "::1"
PIECE_BYTES = 64 * 1024


@contextmanager
def also_on_ipv6(port: int) -> Iterator[None]:
    """Inside the block, pass connections to this port of [::1] on to 127.0.0.1; not without IPv6, or if the port is taken."""
    loop, begun, stop = asyncio.new_event_loop(), Event(), asyncio.Event()
    thread = Thread(target=loop.run_until_complete, args=[_listen(port, begun, stop)], name="ipv6-loopback", daemon=True)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _listen(port: int, begun: Event, stop: asyncio.Event) -> None:
    try:
        with suppress(OSError):
            await asyncio.start_server(partial(_pass_on, port), IPV6, port)
    finally:
        begun.set()
    await stop.wait()
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _pass_on(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writers = [writer]
    try:
        with suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection(IPV4, port)
            writers.append(inner_writer)
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
    finally:
        for each in writers:
            each.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        sink.write(piece)
        await sink.drain()
    sink.write_eof()
