"""The ASGI application: one event loop receives every request and writes every response. It never waits for the database.

The loop receives the body, within a limit and a deadline, checks the API key, and parses. The ledger's work for a call goes into
a queue (`queues.py`): requests that arrive together are executed together. Everything else runs in a bounded number of threads,
separate ones for calls that read, calls that write, logins, and Django's other pages with all their middleware. So a client that
sends slowly, reads slowly or waits for a busy holder costs memory, but no thread.

API calls pass by Django's middleware: they have no session, no cookie, no form and no page. Every API path ends in a response of
ours: no exception leaves it, and no HTML.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import Resolver404, get_resolver

from ledger.database.loop_reads import LoopReader, ReadQueue
from ledger.database.pacing import yielding_to_quick_work
from ledger.database.queues import PATIENCE_SECONDS, Pending, Queue, threads
from ledger.errors import ServerBusy
from ledger.rest.kit import problems
from ledger.rest.kit.endpoint import Awaited, Endpoint, InThread, Reading, Step
from ledger.rest.kit.front.interpreter import short_switch_interval
from ledger.rest.kit.front.logins import LoginLimit
from ledger.rest.kit.front.news import News, Waiter
from ledger.rest.kit.front.request_log import hold_lines, log_request, release_lines
from ledger.rest.kit.front.request_metrics import count_request, route_label
from ledger.rest.kit.front.request_traces import respond_in_span
from ledger.rest.kit.parsing import BODY_LIMIT_BYTES
from ledger.rest.kit.rendering import AnyResponse, Response
from ledger.rest.kit.request_errors import BodyTimeout, BodyTooLarge, MalformedRequest, NotFound
from ledger.rest.kit.requests import NOT_WHOLE, TOO_SHORT, FastRequest, announced_bytes, ensure_host, ensure_sound
from ledger.telemetry import tracing
from ledger.telemetry.metrics import write_counts
from ledger.telemetry.request_origins import client_address
from ledger.values import HOLDER_ID

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Result = TypeVar("Result")
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROBES = ("/healthz", "/readyz", "/metrics")
API_PATHS = ("/v1/", *PROBES, "/problems/")
API_ROOT = "/v1"

PAGE_BODY_LIMIT_BYTES = 1024 * 1024
"""The longest form that a page takes; the longest of the admin is a price table of some kilobytes."""
BODIES_LIMIT_BYTES = 128 * 1024 * 1024
"""How many bytes of unfinished bodies a process keeps at most."""
BODY_SECONDS = 20.0
"""How long a body may take to arrive."""

READ_THREADS, WRITE_THREADS, PAGE_THREADS = 4, 8, 4
LOGIN_THREADS = 1
"""Logins are made one at a time, because a password takes a third of a second of CPU. Other pages do not wait for them."""
QUICK_READS_AT_ONCE = 16
"""How many quick reads one thread executes before it notifies the loop: each notification costs as much as a read."""
WAITING_FOR_A_THREAD = 256
"""How many requests wait for one of those threads at most."""
THREADS_PER_HOLDER = 4
"""How many threads one holder's calls take at the same time: the other threads serve holders that are not busy."""
WAITING_PER_HOLDER = 256
"""How many calls wait for one of their holder's threads at most."""

QUICK_CALL_SECONDS = 0.004
"""How long a quick call that has arrived counts as work: it and those that come with it are read before they queue."""

WOKEN_AT_ONCE = 32
"""How many callers respond before the loop accepts new requests: 256 may have waited in vain for one holder."""

LOOK_EVERY_SECONDS = 0.25
OF_A_HOLDER = "/v1/holders/"
ANY_HOLDER = "any"
"""Stands for each holder in a path to resolve: no route has a word in this place."""
RESOLVED_LIMIT = 16_384
"""How many resolved paths a process caches, some hundred bytes each: resolving takes as long as parsing a body."""


class Front:
    """The application of one process."""

    def __init__(self, pages: Callable[[FastRequest], HttpResponse | StreamingHttpResponse], *, login_path: str = "") -> None:
        """Store the applications.

        Args:
            pages: makes the responses outside of the API, in a thread.
            login_path: of the page that hashes passwords.
        """
        self._pages = pages
        self._login_path = login_path
        self._quick_reads = threads("ledger-quick-reads", 1, limit=WAITING_FOR_A_THREAD, most=QUICK_READS_AT_ONCE, is_quick=True)
        self._reads = threads("ledger-reads", READ_THREADS, limit=WAITING_FOR_A_THREAD)
        self._writes = threads("ledger-writes", WRITE_THREADS, limit=WAITING_FOR_A_THREAD)
        self._page_threads = threads("ledger-pages", PAGE_THREADS, limit=WAITING_FOR_A_THREAD)
        self._login_limit = LoginLimit()
        self._login_threads = threads("ledger-logins", LOGIN_THREADS, limit=WAITING_FOR_A_THREAD)
        self._news: dict[Callable[[], str], News] = {}
        self._threads_of: dict[str, _ThreadsOfHolder] = {}
        self._queues: set[Queue] = set()
        self._readers: dict[Queue, LoopReader] = {}
        self._reads_in_loop = False
        """True under a server that tells when it stops: then the connections of the loop are closed."""
        self._quick_call_came_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Task[None] | None = None
        self._together: list[asyncio.Future[None]] | None = None
        """The responses that are sent at the end of this turn of the loop; None where each is sent at once."""
        self._receiving_bytes = 0
        self._receiving: dict[asyncio.Task[Any], float] = {}
        """The requests whose body is being received, with their deadlines; the earliest first."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server: a request, or the lifespan of the process."""
        if scope["type"] == "http":
            await self._serve(FastRequest(scope, receive), send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close"})

    # The life of the process -------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._start()
                self._reads_in_loop = True
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._look = self._loop.create_task(self._look_after_queues())

    async def close(self) -> None:
        """Finish all received requests, and accept no more."""
        if self._look is not None:
            self._look.cancel()
        for news in self._news.values():
            news.close()
        self._news.clear()
        write_counts()
        self._reads_in_loop = False
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()
        await asyncio.gather(*(asyncio.to_thread(queue.close) for queue in self._queues))
        self._queues.clear()
        await asyncio.to_thread(tracing.flush)
        self._loop = self._look = None

    async def _look_after_queues(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            write_counts()
            for queue in self._queues:
                queue.expire()
            for reader in self._readers.values():
                reader.expire()
            self._end_late_bodies()

    # A request ---------------------------------------------------------------------------------------

    async def _serve(self, request: FastRequest, send: Send) -> None:
        started_at = perf_counter()
        if self._loop is None:  # a server without lifespan events
            self._start()
        if tracing.tracer is not None and request.path_info not in PROBES:
            response = await respond_in_span(request, partial(self._respond, request))
        else:
            response = await self._respond(request)
        log_request(request, response, started_at=started_at)
        count_request(request, response, started_at=started_at)
        if self._together is not None:
            await self._join(self._together)
        await self._send(request, response, send)

    async def _respond(self, request: FastRequest) -> AnyResponse:
        path = request.path_info
        request.is_call = path.startswith(API_PATHS) or path == API_ROOT
        try:
            ensure_sound(request)
            response = await (self._call(request) if request.is_call else self._page(request))
        except Resolver404:
            response = problems.problem_response(NotFound(), request)
        except Exception as error:
            response = problems.problem_response(error, request)
        return response

    async def _page(self, request: FastRequest) -> AnyResponse:
        request.raw_body = await self.take_in(request, PAGE_BODY_LIMIT_BYTES)
        work = partial(self._pages, request.for_django())
        if request.path_info != self._login_path:
            return await self.outcome(self._page_threads, work)
        await self._login_limit.admit(client_address(request))
        return await self.outcome(self._login_threads, work)

    async def _call(self, request: FastRequest) -> AnyResponse:
        # A host name that leads here but is not ours, as by DNS rebinding, gets nothing. Probes use a process's address.
        if request.path_info not in PROBES:
            ensure_host(request)
        function, path, request.route = _resolve_path(request.path_info)
        view_class: Any = getattr(function, "cls", None)
        if not (isinstance(view_class, type) and issubclass(view_class, Endpoint)):
            request.raw_body = await self.take_in(request, BODY_LIMIT_BYTES)
            return await self.outcome(self._writes, partial(function, request.for_django(), **path))
        view = view_class(**getattr(function, "initkwargs", {}))
        view.setup(request, **path)
        if view.in_loop:
            self._quick_call_came_at = perf_counter()
        return await view.walk(request, path, self)

    # The way of a call: see `endpoint.Way` --------------------------------------------------------------

    async def outcome(self, queue: Queue, request: Any) -> Any:
        """Return the outcome of a request that another thread executes, or raise it."""
        self._queues.add(queue)
        done = asyncio.get_running_loop().create_future()
        if self._reads_in_loop and isinstance(queue, ReadQueue) and tracing.tracer is None:
            reader = self._readers.get(queue)
            if reader is None:
                reader = self._readers[queue] = LoopReader(queue, self._notify, self._wake)
            pending = reader.submit(request, done)
        else:
            pending = queue.submit(request, self._notify, done)
        await done
        return pending.result()

    async def execute(self, call: Endpoint, work: InThread) -> AnyResponse:
        """Execute work in a thread of its kind."""
        if call.method == "get" and call.reads_quickly:
            # In the context of this request, not in that of the first request of the group.
            return await self.outcome(self._quick_reads, partial(copy_context().run, work))
        if call.method == "get":
            return await self.outcome(self._reads, partial(_with_short_switch_interval, work))
        async with self._a_thread_of(call.kwargs.get("holder")):
            return await self.outcome(self._writes, partial(self._yielding, work))

    async def wait_for(self, call: Endpoint, awaited: Awaited) -> Response | Step:
        """See `Way`. A call whose client has hung up ends."""
        if not awaited.seconds:
            return (await self._read(awaited)).response
        news = self._news.get(awaited.marker)
        if news is None:
            news = self._news[awaited.marker] = News(partial(self.outcome, self._quick_reads, awaited.marker))
        request: Any = call.request
        loop = asyncio.get_running_loop()
        deadline = loop.time() + awaited.seconds
        async with news.waiter() as waiter, _watch_client(request.receive, waiter.wake) as gone:
            reading = await self._read_for(waiter, awaited)
            while not reading.is_enough and loop.time() < deadline:
                await waiter.sleep(deadline - loop.time())
                if news.is_closing or gone.done():
                    break
                reading = await self._read_for(waiter, awaited)
            return reading.response

    async def _read_for(self, waiter: Waiter, awaited: Awaited) -> Reading:
        """Read once for a call that waits; a change during the read wakes it again."""
        waiter.ready()
        reading = await self._read(awaited)
        waiter.is_unsettled = reading.is_unsettled
        return reading

    async def _read(self, awaited: Awaited) -> Reading:
        reading: Reading = await self.outcome(self._reads, partial(copy_context().run, _with_short_switch_interval, awaited.read))
        return reading

    @asynccontextmanager
    async def _a_thread_of(self, holder_id: str | None) -> AsyncIterator[None]:
        """Count the block as one of the holder's threads; if they are all taken, wait for one in order of arrival.

        Raises:
            ServerBusy: no thread became free in PATIENCE_SECONDS, or too many calls wait; nothing was executed.
        """
        if holder_id is None:
            yield
            return
        threads_of = self._threads_of.setdefault(holder_id, _ThreadsOfHolder())
        try:
            async with threads_of.one():
                yield
        finally:
            if not threads_of.calls:
                self._threads_of.pop(holder_id, None)

    def _yielding(self, work: Callable[[], Result]) -> Result:
        """Execute a call that may be long and that yields to quick calls. Runs in a thread."""
        with short_switch_interval(), yielding_to_quick_work(self._has_quick_work):
            return work()

    def _has_quick_work(self) -> bool:
        if perf_counter() - self._quick_call_came_at < QUICK_CALL_SECONDS:
            return True
        if any(reader.is_at_work for reader in tuple(self._readers.values())):
            return True
        return any(queue.is_quick and queue.is_at_work for queue in tuple(self._queues))

    def _notify(self, group: Sequence[Pending]) -> None:
        """Wake all waiting callers in one step of the loop. Called in the thread that has executed the requests."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, group)

    # Note [Sent together]
    #     The server has another thread that writes responses. If a group's responses are sent one by one, between the making of
    #     the next, that thread writes each, sleeps, and is woken again, and so does the client's. So the callers of a group first
    #     make all their responses, and then send them: the thread finds several when it wakes. Their lines of the log are written
    #     before, by one system call: each call frees the interpreter, and the loop would have to get it back from the committer.

    def _wake(self, group: Sequence[Pending]) -> None:
        """Wake callers, which respond in this turn of the loop; beyond `WOKEN_AT_ONCE`, the others in later turns."""
        loop = asyncio.get_running_loop()
        for pending in group[:WOKEN_AT_ONCE]:
            if not pending.caller.done():
                pending.caller.set_result(None)
        if len(group) > 1 and self._together is None:
            self._together = []
            hold_lines()
            loop.call_soon(self._send_together)
        if len(group) > WOKEN_AT_ONCE:
            loop.call_soon(self._wake, group[WOKEN_AT_ONCE:])

    async def _join(self, together: list[asyncio.Future[None]]) -> None:
        """Wait until the responses of this turn of the loop are made."""
        sent = asyncio.get_running_loop().create_future()
        together.append(sent)
        await sent

    def _send_together(self) -> None:
        together, self._together = self._together, None
        try:
            release_lines()
        finally:
            for sent in together or ():
                if not sent.done():
                    sent.set_result(None)

    # Bodies ------------------------------------------------------------------------------------------

    async def take_in(self, request: FastRequest, limit_bytes: int) -> bytes:
        """See `Way`."""
        announced, is_http2 = announced_bytes(request, limit_bytes), request.scope["http_version"] == "2"
        if announced == 0 or (announced is None and "HTTP_TRANSFER_ENCODING" not in request.META and not is_http2):
            return b""
        body = await self._receive_chunks(request, limit_bytes, announced)
        if len(body) < (announced or 0):
            raise MalformedRequest(TOO_SHORT)
        return body

    async def _receive_chunks(self, request: FastRequest, limit_bytes: int, announced: int | None) -> bytes:
        chunks: list[bytes] = []
        size = 0
        task: Any = asyncio.current_task()
        self._receiving[task] = perf_counter() + BODY_SECONDS
        try:
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    # The client has hung up, or its chunks are not well-formed: then it waits for a response.
                    raise MalformedRequest(NOT_WHOLE)
                chunk = message.get("body", b"")
                size += len(chunk)
                self._receiving_bytes += len(chunk)
                if size > limit_bytes:
                    raise BodyTooLarge(limit_bytes=limit_bytes)
                if self._receiving_bytes > BODIES_LIMIT_BYTES:
                    raise ServerBusy
                chunks.append(chunk)
                # A server ends each body with a further, empty message: it would wake the loop again.
                if size == announced or not message.get("more_body", False):
                    return b"".join(chunks)
        except asyncio.CancelledError:
            if task in self._receiving:
                raise
            task.uncancel()
            raise BodyTimeout(seconds=int(BODY_SECONDS)) from None
        finally:
            self._receiving.pop(task, None)
            self._receiving_bytes -= size

    def _end_late_bodies(self) -> None:
        """Raise `BodyTimeout` if a body has not arrived in time. A timer for each body would cost as much as parsing it."""
        now = perf_counter()
        for task in [task for task, deadline in self._receiving.items() if deadline < now]:
            del self._receiving[task]
            task.cancel()

    # Responses ---------------------------------------------------------------------------------------

    async def _send(self, request: FastRequest, response: AnyResponse, send: Send) -> None:
        await send({"type": "http.response.start", "status": response.status_code, "headers": _headers(request, response)})
        is_head = request.method == "HEAD"
        if isinstance(response, StreamingHttpResponse):
            try:
                if not is_head:
                    await self._send_pieces(iter(response), request.receive, send)
                await send({"type": "http.response.body", "body": b""})
            finally:
                await self.outcome(self._page_threads, response.close)
        else:
            await send({"type": "http.response.body", "body": b"" if is_head else response.content})

    async def _send_pieces(self, pieces: Iterator[bytes], receive: Receive, send: Send) -> None:
        """Send a file piece by piece: a slow client holds no thread, and nothing more is read after a client has hung up."""
        next_piece = partial(next, pieces, None)
        async with _watch_client(receive) as gone:
            while not gone.done() and (piece := await self.outcome(self._page_threads, next_piece)) is not None:
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})


class _ThreadsOfHolder:
    """The calls of one holder that run in threads or wait for one."""

    def __init__(self) -> None:
        self.calls = 0
        self._free = asyncio.Semaphore(THREADS_PER_HOLDER)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """While the block runs, take a thread; see `Front._a_thread_of`."""
        if self.calls >= THREADS_PER_HOLDER + WAITING_PER_HOLDER:
            raise ServerBusy
        self.calls += 1
        try:
            await self._take()
            try:
                yield
            finally:
                self._free.release()
        finally:
            self.calls -= 1

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise ServerBusy from None


def _resolve_path(path: str) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
    """Return the result of `_resolved_whole`. A holder is split off first: there are more holders than cached paths."""
    holder, slash, rest = path.removeprefix(OF_A_HOLDER).partition("/")
    if not (slash and path.startswith(OF_A_HOLDER) and HOLDER_ID.fullmatch(holder)):
        return _resolved_whole(path)
    function, taken, route = _resolved_whole(f"{OF_A_HOLDER}{ANY_HOLDER}/{rest}")
    return function, {**taken, "holder": holder}, route


@lru_cache(RESOLVED_LIMIT)
def _resolved_whole(path: str) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
    """Return the function of a path, the parameters in the path, and its route; `Resolver404` is not cached."""
    resolver_match = get_resolver().resolve(path)
    return resolver_match.func, resolver_match.kwargs, route_label(resolver_match.route)


def _with_short_switch_interval(work: Callable[[], Result]) -> Result:
    """Execute work that may take long, such as reading 1,000 entries. Runs in a thread."""
    with short_switch_interval():
        return work()


@asynccontextmanager
async def _watch_client(receive: Receive, notify: Callable[[], None] = lambda: None) -> AsyncIterator[asyncio.Task[None]]:
    """Yield a task that is done, and has notified, once the client has hung up."""
    gone = asyncio.create_task(_until_gone(receive))
    gone.add_done_callback(lambda _: notify())
    try:
        yield gone
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


@lru_cache(1024)
def _header(name: str, value: str) -> tuple[bytes, bytes]:
    """Return a header in ASGI's form. Most responses have the same few."""
    return name.lower().encode("latin-1"), value.encode("latin-1")


def _headers(request: FastRequest, response: AnyResponse) -> list[tuple[bytes, bytes]]:
    """Return the response's headers, with the request's id; an API response also has `nosniff`, HSTS and its length."""
    headers = [_header(name, value) for name, value in response.headers.items()]
    if not isinstance(response, Response):
        headers += [(b"set-cookie", cookie.output(header="").strip().encode()) for cookie in response.cookies.values()]
    headers.append((b"x-request-id", request.request_id.encode()))
    if request.is_call:
        headers.append((b"x-content-type-options", b"nosniff"))
        # As Django's middleware does for pages.
        if settings.SECURE_HSTS_SECONDS and request.is_secure() and not response.headers.get("Strict-Transport-Security"):
            headers.append(_header("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))
        is_whole = not isinstance(response, StreamingHttpResponse) and response.status_code != 304
        if is_whole and "Content-Length" not in response.headers:
            headers.append((b"content-length", b"%d" % len(response.content)))
    return headers
