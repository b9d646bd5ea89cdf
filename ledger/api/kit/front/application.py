"""The ASGI application: one event loop receives every request and writes every response. It never waits for the database.

The loop receives the body, within a limit and a deadline, checks the API key, and parses. What a call asks of the ledger goes
into a queue (`queues.py`): requests that arrive together are executed together. Everything else runs in one of a bounded
number of threads: calls that read, calls that write, and Django's pages with all their middleware each have their own. So a
client that sends slowly, reads slowly or waits for a busy holder costs memory, and no thread.

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
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import Resolver404, get_resolver

from ledger.api.kit.authentication import LOOKUPS, Key, known_key, secret_of
from ledger.api.kit.endpoint import Endpoint, QueuedRequest
from ledger.api.kit.front.interpreter import short_turns
from ledger.api.kit.front.limits import admitted
from ledger.api.kit.front.page_budget import PageBudget, measured_work
from ledger.api.kit.front.request_log import client_address, log_request
from ledger.api.kit.front.request_metrics import count_request, route_label
from ledger.api.kit.front.request_traces import respond_in_span
from ledger.api.kit.reading.parsing import BODY_LIMIT_BYTES
from ledger.api.kit.reading.requests import Request
from ledger.api.kit.request_errors import BodyTimeout, BodyTooLarge, FieldError, MalformedRequest, NotFound
from ledger.api.kit.writing import problems
from ledger.api.kit.writing.rendering import AnyResponse, Response
from ledger.database.load.pacing import giving_way
from ledger.database.load.queues import PATIENCE_SECONDS, Pending, Queue, threads
from ledger.errors import ServerBusy
from ledger.telemetry import tracing
from ledger.telemetry.metrics import write_counts
from ledger.values import HOLDER_ID

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Result = TypeVar("Result")
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROBES = ("/healthz", "/readyz", "/metrics")
API_PATHS = ("/v1/", *PROBES, "/problems/")

PAGE_BODY_LIMIT_BYTES = 1024 * 1024
"""The longest form that a page takes; the longest of the admin is a price table of some kilobytes."""
BODIES_LIMIT_BYTES = 128 * 1024 * 1024
"""How many bytes of unfinished bodies a process keeps at most."""
BODY_SECONDS = 20.0
"""How long a body may take to arrive."""

READ_THREADS, WRITE_THREADS, PAGE_THREADS = 4, 8, 4
STRANGER_THREADS = 1
"""Threads for the pages of those who are not logged in."""
QUICK_READS_AT_ONCE = 16
"""How many quick reads one thread executes before it notifies the loop: each notification costs as much as a read."""
WAITING_FOR_A_THREAD = 256
"""How many requests wait for one of those threads at most."""
THREADS_PER_HOLDER = 4
"""How many threads one holder's calls take at the same time: the other threads serve holders that are not busy."""
WAITING_PER_HOLDER = 256
"""How many calls wait for one of their holder's threads at most."""

QUICK_CALL_SECONDS = 0.004
"""For how long a quick call that has come counts as work: it and those that come with it are read before they queue."""

WOKEN_AT_ONCE = 32
"""How many callers respond before the loop takes in new requests: 256 may have waited in vain for one holder."""

LOOK_EVERY_SECONDS = 0.25
OF_A_HOLDER = "/v1/holders/"
ANY_HOLDER = "any"
"""Stands for each holder in a path that is resolved: no route has a word in this place."""
RESOLVED_LIMIT = 16_384
"""How many resolved paths a process caches, some hundred bytes each: resolving takes as long as parsing a body."""


class Front:
    """The application of one process."""

    def __init__(
        self,
        pages: Callable[[Request], HttpResponse | StreamingHttpResponse],
        *,
        is_static_file: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Describe it.

        Args:
            pages: makes the responses that are not the API's, in a thread.
            is_static_file: returns whether a path leads to a file that is the same for everybody. Nobody pays for these.
        """
        self._pages = pages
        self._is_static_file = is_static_file
        self._quick_reads = threads("ledger-quick-reads", 1, limit=WAITING_FOR_A_THREAD, most=QUICK_READS_AT_ONCE, is_quick=True)
        self._reads = threads("ledger-reads", READ_THREADS, limit=WAITING_FOR_A_THREAD)
        self._writes = threads("ledger-writes", WRITE_THREADS, limit=WAITING_FOR_A_THREAD)
        self._page_threads = threads("ledger-pages", PAGE_THREADS, limit=WAITING_FOR_A_THREAD)
        self._stranger_threads = threads("ledger-strangers", STRANGER_THREADS, limit=WAITING_FOR_A_THREAD)
        self._budget = PageBudget()
        self._threads_of: dict[str, _ThreadsOfHolder] = {}
        self._queues: set[Queue] = set()
        self._quick_call_came_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Task[None] | None = None
        self._receiving_bytes = 0
        self._receiving: dict[asyncio.Task[Any], float] = {}
        """The requests whose body is being received, with their deadlines; the earliest first."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server: a request, or the lifespan of the process."""
        if scope["type"] == "http":
            await self._serve(Request(scope), receive, send)
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
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._look = self._loop.create_task(self._look_after_queues())

    async def close(self) -> None:
        """Finish all requests that were received, and accept no more."""
        if self._look is not None:
            self._look.cancel()
        write_counts()
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
            self._end_late_bodies()

    # A request ---------------------------------------------------------------------------------------

    async def _serve(self, request: Request, receive: Receive, send: Send) -> None:
        started_at = perf_counter()
        if self._loop is None:  # a server that does not tell of its life
            self._start()
        if tracing.tracer is not None and request.path_info not in PROBES:
            response = await respond_in_span(request, partial(self._respond, request, receive))
        else:
            response = await self._respond(request, receive)
        log_request(request, response, started_at=started_at)
        count_request(request, response, started_at=started_at)
        await self._send(request, response, receive, send)

    async def _respond(self, request: Request, receive: Receive) -> AnyResponse:
        is_call = request.path_info.startswith(API_PATHS)
        try:
            request.ensure_sound()
            response = await (self._call(request, receive) if is_call else self._page(request, receive))
        except Resolver404:
            response = problems.problem_response(NotFound(), request)
        except Exception as error:
            response = problems.problem_response(error, request)
        return response

    async def _page(self, request: Request, receive: Receive) -> AnyResponse:
        await self._receive_body(request, receive, PAGE_BODY_LIMIT_BYTES)
        if request.body_error:
            raise request.body_error
        work = partial(self._priced_page, request.for_django())
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if self._is_static_file(request.path_info):
            # The response says nothing of who asked: a middleware before those of the session makes it.
            return (await self._queued(self._page_threads, work)).response
        if self._budget.is_operator(session):
            page = await self._queued(self._page_threads, work)
        else:
            async with self._budget.turn(client_address(request)) as pay:
                page = await self._queued(self._stranger_threads, work)
                if not page.is_operators:
                    pay(page.price_s)
        if page.is_operators is not None:
            self._budget.learn(session, is_operator=page.is_operators)
        return page.response

    def _priced_page(self, request: Request) -> "_Page":
        """Make a page; return it with its cost and whether an operator is logged in. Runs in a thread."""
        with short_turns(), measured_work() as work_s:
            response = self._pages(request)
            return _Page(response, work_s(), _is_logged_in(request))

    async def _call(self, request: Request, receive: Receive) -> AnyResponse:
        # A name that leads here but is not ours, as by DNS rebinding, gets nothing. Probes use a process's address.
        if request.path_info not in PROBES:
            request.ensure_host()
        function, path, request.route = _resolved(request.path_info)
        view_class: Any = getattr(function, "cls", None)
        if not (isinstance(view_class, type) and issubclass(view_class, Endpoint)):
            await self._receive_body(request, receive, BODY_LIMIT_BYTES)
            return await self._queued(self._writes, partial(function, request.for_django(), **path))
        view = view_class(**getattr(function, "initkwargs", {}))
        handler = partial(view.begin(request, path), request, **path)
        if view.is_public:
            return await self._result(view, handler, request, receive)
        secret = secret_of(request)
        key: Key = known_key(secret) or await self._queued(LOOKUPS, secret)
        view.admit(key, path)
        with admitted(key):
            return await self._result(view, handler, request, receive)

    async def _result(self, view: Endpoint, handler: Callable[[], Any], request: Request, receive: Receive) -> AnyResponse:
        view.ensure_query(request)
        is_for_loop = view.method in view.in_loop
        if is_for_loop:
            self._quick_call_came_at = perf_counter()
        if request.method not in ("GET", "HEAD"):
            await self._receive_body(request, receive, view.body_limit_bytes)
        result = handler() if is_for_loop else handler
        if isinstance(result, QueuedRequest):
            request.receive_body(b"")  # what waits, waits without its body
            return result.respond(await self._queued(result.queue, result.asked))
        if not callable(result):
            return result
        if view.method == "get" and view.reads_quickly:
            # In the context of this request, not in that of the first request of the group.
            return await self._queued(self._quick_reads, partial(copy_context().run, result))
        if view.method == "get":
            return await self._queued(self._reads, partial(_in_short_turns, result))
        async with self._a_thread_of(view.kwargs.get("holder")):
            return await self._queued(self._writes, partial(self._giving_way, result))

    @asynccontextmanager
    async def _a_thread_of(self, holder_id: str | None) -> AsyncIterator[None]:
        """Count the block as one of the holder's threads; where they are all taken, wait for one in order of arrival.

        Raises:
            ServerBusy: none became free in PATIENCE_SECONDS, or too many calls wait; nothing was executed.
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

    def _giving_way(self, work: Callable[[], Result]) -> Result:
        """Execute a call that may be long and that gives way to quick ones. Runs in a thread."""
        with short_turns(), giving_way(self._has_quick_work):
            return work()

    def _has_quick_work(self) -> bool:
        if perf_counter() - self._quick_call_came_at < QUICK_CALL_SECONDS:
            return True
        return any(queue.is_quick and queue.is_at_work for queue in tuple(self._queues))

    # Queues ------------------------------------------------------------------------------------------

    async def _queued(self, queue: Queue, asked: Any) -> Any:
        """Return the outcome of a request that another thread executes, or raise it."""
        self._queues.add(queue)
        done = asyncio.get_running_loop().create_future()
        pending = queue.submit(asked, self._notify, done)
        await done
        return pending.result()

    def _notify(self, group: Sequence[Pending]) -> None:
        """Wake all waiting callers in one step of the loop. Called in the thread that has executed the requests."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_wake, group)

    # Bodies ------------------------------------------------------------------------------------------

    async def _receive_body(self, request: Request, receive: Receive, limit_bytes: int) -> None:
        """Receive the body, or set its fault as the request's `body_error`: other faults are reported first."""
        announced = request.META.get("CONTENT_LENGTH", "")
        if announced and not (announced.isascii() and announced.isdigit()):
            request.body_error = MalformedRequest(FieldError("", "content-length", "The Content-Length is not a number."))
        elif len(announced) > 12 or (announced and int(announced) > limit_bytes):
            request.body_error = BodyTooLarge(limit_bytes=limit_bytes)
        elif announced not in ("", "0") or "HTTP_TRANSFER_ENCODING" in request.META or request.scope["http_version"] == "2":
            await self._receive_chunks(request, receive, limit_bytes)
        else:
            request.receive_body(b"")

    async def _receive_chunks(self, request: Request, receive: Receive, limit_bytes: int) -> None:
        chunks: list[bytes] = []
        size = 0
        task: Any = asyncio.current_task()
        self._receiving[task] = perf_counter() + BODY_SECONDS
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    # The client has hung up, or its chunks are not well-formed: then it waits for a response.
                    request.body_error = MalformedRequest(FieldError("", "truncated", "The body is not whole."))
                    return
                chunk = message.get("body", b"")
                size += len(chunk)
                self._receiving_bytes += len(chunk)
                if size > limit_bytes:
                    request.body_error = BodyTooLarge(limit_bytes=limit_bytes)
                    return
                if self._receiving_bytes > BODIES_LIMIT_BYTES:
                    raise ServerBusy
                chunks.append(chunk)
                if not message.get("more_body", False):
                    break
        except asyncio.CancelledError:
            if task in self._receiving:
                raise
            task.uncancel()
            raise BodyTimeout(seconds=int(BODY_SECONDS)) from None
        finally:
            self._receiving.pop(task, None)
            self._receiving_bytes -= size
        if size < int(request.META.get("CONTENT_LENGTH") or 0):
            request.body_error = MalformedRequest(FieldError("", "truncated", "The body is shorter than its Content-Length."))
        request.receive_body(b"".join(chunks))

    def _end_late_bodies(self) -> None:
        """Raise `BodyTimeout` where a body has not arrived in time. A timer for each body would cost as much as parsing it."""
        now = perf_counter()
        for task in [task for task, deadline in self._receiving.items() if deadline < now]:
            del self._receiving[task]
            task.cancel()

    # Responses ---------------------------------------------------------------------------------------

    async def _send(self, request: Request, response: AnyResponse, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": response.status_code, "headers": _headers(request, response)})
        is_head = request.method == "HEAD"
        if isinstance(response, StreamingHttpResponse):
            try:
                if not is_head:
                    await self._send_pieces(iter(response), receive, send)
                await send({"type": "http.response.body", "body": b""})
            finally:
                await self._queued(self._page_threads, response.close)
        else:
            await send({"type": "http.response.body", "body": b"" if is_head else response.content})

    async def _send_pieces(self, pieces: Iterator[bytes], receive: Receive, send: Send) -> None:
        """Send a file piece by piece: a client that reads slowly holds no thread, and after one that hung up nothing is read."""
        next_piece = partial(_in_short_turns, partial(next, pieces, None))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            while not gone.done() and (piece := await self._queued(self._page_threads, next_piece)) is not None:
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            gone.cancel()


class _ThreadsOfHolder:
    """The calls of one holder that run in threads or wait for one."""

    def __init__(self) -> None:
        self.calls = 0
        self._free = asyncio.Semaphore(THREADS_PER_HOLDER)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """For the block, take a thread; see `Front._a_thread_of`."""
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


class _Page(NamedTuple):
    response: HttpResponse | StreamingHttpResponse
    price_s: float
    is_operators: bool | None


def _is_logged_in(request: Request) -> bool | None:
    """Whether an operator has made the request; None where a middleware has responded before it was looked at."""
    user = getattr(request, "user", None)
    return None if user is None else bool(user.is_authenticated)


def _resolved(path: str) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
    """Return what `_resolved_whole` does. A holder is split off first: there are more holders than cached paths."""
    holder, slash, rest = path.removeprefix(OF_A_HOLDER).partition("/")
    if not (slash and path.startswith(OF_A_HOLDER) and HOLDER_ID.fullmatch(holder)):
        return _resolved_whole(path)
    function, taken, route = _resolved_whole(f"{OF_A_HOLDER}{ANY_HOLDER}/{rest}")
    return function, {**taken, "holder": holder}, route


@lru_cache(RESOLVED_LIMIT)
def _resolved_whole(path: str) -> tuple[Callable[..., Any], Mapping[str, Any], str]:
    """The function that a path leads to, the parts of the path that it takes, and its route; `Resolver404` is not kept."""
    found = get_resolver().resolve(path)
    return found.func, found.kwargs, route_label(found.route)


def _in_short_turns(work: Callable[[], Result]) -> Result:
    """Execute what may take long, such as a batch of 1,000 operations or a piece of a file. Runs in a thread."""
    with short_turns():
        return work()


async def _until_gone(receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _wake(group: Sequence[Pending]) -> None:
    """Wake callers, which respond in this turn of the loop; beyond `WOKEN_AT_ONCE`, the others in later turns."""
    for pending in group[:WOKEN_AT_ONCE]:
        if not pending.caller.done():
            pending.caller.set_result(None)
    if len(group) > WOKEN_AT_ONCE:
        asyncio.get_running_loop().call_soon(_wake, group[WOKEN_AT_ONCE:])


@lru_cache(1024)
def _header(name: str, value: str) -> tuple[bytes, bytes]:
    """A header as ASGI wants it. Most responses have the same few."""
    return name.lower().encode("latin-1"), value.encode("latin-1")


def _headers(request: Request, response: AnyResponse) -> list[tuple[bytes, bytes]]:
    """The response's headers, with the request's id; an API response also has `nosniff`, HSTS and its length."""
    headers = [_header(name, value) for name, value in response.headers.items()]
    if not isinstance(response, Response):
        headers += [(b"set-cookie", cookie.output(header="").strip().encode()) for cookie in response.cookies.values()]
    headers.append((b"x-request-id", request.request_id.encode()))
    if request.path_info.startswith(API_PATHS):
        headers.append((b"x-content-type-options", b"nosniff"))
        # As Django's middleware tells browsers of pages.
        if settings.SECURE_HSTS_SECONDS and request.is_secure() and not response.headers.get("Strict-Transport-Security"):
            headers.append(_header("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))
        is_whole = not isinstance(response, StreamingHttpResponse) and response.status_code != 304
        if is_whole and "Content-Length" not in response.headers:
            headers.append((b"content-length", b"%d" % len(response.content)))
    return headers
