"""The declaration of a call, and its steps, written once for both ways in.

A call is a Django view: Django calls it in a thread, which takes all steps. The front, which is faster, takes the same steps in
its event loop and its threads. It is a view of DRF in what it declares, so that drf-spectacular documents it; but
there is one parser, one renderer, one kind of key.
The order in which a request can fail is fixed: path 404, method 405, Accept 406, key 401, scope 403, holder outside the key's
confines 404, limits 429, query of a call that takes none 400, Idempotency-Key 400, media type 415, size 413, body 400; then
what the services say.
"""

import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.views import APIView

from ledger.database.queues import Queue
from ledger.errors import Invalid, ServerBusy
from ledger.records import Shape, renamed
from ledger.rest.kit.authentication import LOOKUPS, Key, api_key_of, known_key
from ledger.rest.kit.limits import admitted
from ledger.rest.kit.parsing import BODY_LIMIT_BYTES, read, read_body
from ledger.rest.kit.problems import problem_response
from ledger.rest.kit.queries import refuse_query
from ledger.rest.kit.rendering import AnyResponse, Response, for_django
from ledger.rest.kit.request_errors import (
    BodyTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    NotWithLabels,
    ScopeMissing,
)
from ledger.rest.kit.requests import ensure_host, ensure_sound, read_whole
from ledger.telemetry.request_origins import request_id

Handler = TypeVar("Handler", bound=Callable[..., Any])


WAITING_THREADS = 4
"""How many threads of a process wait for news at the same time, where Django calls the views."""
LOOK_EVERY_SECONDS = 0.1
"""How often a call that waits looks at its marker."""


class QueuedRequest(NamedTuple):
    """A request for the database, returned by a handler of `in_loop`: queue, request, and what makes the response."""

    queue: Queue
    request: Any
    respond: Callable[[Any], "Response | Step"]
    """Makes the response of the outcome, or the next step."""


InThread = Callable[[], AnyResponse]
"""Work that waits, returned by a handler of `in_loop`: the front calls it in a thread."""


class Reading(NamedTuple):
    """What a read of a call that waits found."""

    response: "Response | Step"
    """Or the next step."""
    is_enough: bool
    """True: the call ends with this response."""
    is_unsettled: bool = False
    """True: what it waits for may come without a change of the marker."""


class Awaited(NamedTuple):
    """A read that waits until it finds something, returned by a handler of `in_loop`. Nothing waits in the database."""

    read: Callable[[], Reading]
    seconds: float
    """After this time the call ends with the response of the last read; 0: it reads once."""
    marker: Callable[[], str]
    """Reads cheaply what changes when a read may find more; all calls that wait for the same marker share it."""
    otherwise: "Step | None" = None
    """The next step if the process has no room for the read or for another call that waits; None: `ServerBusy`."""


Step = QueuedRequest | Awaited


class Way(Protocol):
    """Where the steps of a call are executed."""

    async def take_in(self, request: Any, limit_bytes: int) -> bytes:
        """Return the body of a request, or raise what is wrong with it."""

    async def outcome(self, queue: Queue, request: Any) -> Any:
        """Execute what the queue executes; return its outcome, or raise it."""

    async def execute(self, call: "Endpoint", work: InThread) -> AnyResponse:
        """Execute work that waits."""

    async def wait_for(self, call: "Endpoint", awaited: Awaited) -> "Response | Step":
        """Read until there is enough or the time is over, and return the last response; or raise `ServerBusy`."""


class CallersThread:
    """Django's own way: the thread that called the view executes all steps, and shares no transaction."""

    async def take_in(self, request: Any, limit_bytes: int) -> bytes:
        """See `Way`."""
        return read_whole(request, limit_bytes)

    async def outcome(self, queue: Queue, request: Any) -> Any:
        """See `Way`."""
        return queue.execute_here(request)

    async def execute(self, call: "Endpoint", work: InThread) -> AnyResponse:
        """See `Way`."""
        return work()

    async def wait_for(self, call: "Endpoint", awaited: Awaited) -> "Response | Step":
        """See `Way`. The thread sleeps; at most WAITING_THREADS do so at the same time."""
        if not awaited.seconds:
            return awaited.read().response
        if not _waiting_threads.acquire(blocking=False):
            raise ServerBusy(retry_after_seconds=1)
        try:
            return _read_until_enough(awaited)
        finally:
            _waiting_threads.release()


def _read_until_enough(awaited: Awaited) -> "Response | Step":
    deadline = time.monotonic() + awaited.seconds
    marker = awaited.marker()
    reading = awaited.read()
    while not reading.is_enough and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(LOOK_EVERY_SECONDS, left))
        before, marker = marker, awaited.marker()
        if reading.is_unsettled or marker != before:
            reading = awaited.read()
    return reading.response


_CALLERS_THREAD = CallersThread()
_waiting_threads = threading.BoundedSemaphore(WAITING_THREADS)


def requires(scope: str, *, takes_query: bool = False, with_labels: bool = False) -> Callable[[Handler], Handler]:
    """Declare which scope a handler needs, and whether it reads query parameters; `schema.operation` does it.

    Args:
        scope: "" for none: a call that every key may make, or a public one.
        takes_query: True: the handler reads the query, and refuses what it does not know; False: there must be none.
        with_labels: a key that is bound to labels can make the call: what it writes carries them, or it shows only what does or
            what concerns the account as a whole.
    """

    def declare(handler: Handler) -> Handler:
        handler.scope = scope  # type: ignore[attr-defined]
        handler.takes_query = takes_query  # type: ignore[attr-defined]
        handler.with_labels = with_labels  # type: ignore[attr-defined]
        return handler

    return declare


class Endpoint(APIView):
    """A call of the API. Subclasses define `get`, `post` … (request, **path), each with the scope that it `requires`.

    With `is_public`, no key is needed. Handlers return a response. Those of the methods in `in_loop` wait for nothing, so that
    the front calls them in its event loop, and may return `QueuedRequest`, `Awaited` or `InThread`.

    With `is_probe`, query parameters are ignored; every other call refuses those that it does not declare.

    With `takes_nothing`, a write may come without a body.

    `location` is the address of what a write makes, with members of the response's body in braces.

    With `reads_quickly`, a read executes a prepared statement or a few. Such reads share one thread, which executes those that
    have arrived one after the other and wakes the loop once for all of them.
    """

    is_public: ClassVar[bool] = False
    is_probe: ClassVar[bool] = False
    takes_nothing: ClassVar[bool] = False
    in_loop: ClassVar[frozenset[str]] = frozenset()
    reads_quickly: ClassVar[bool] = False
    served: ClassVar[str] = "application/json"
    body_limit_bytes: ClassVar[int] = BODY_LIMIT_BYTES
    location: ClassVar[str] = ""
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    # For drf-spectacular.
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]

    key: Key
    request_id: str
    method: str
    """The method whose scope counts, in lower case: HEAD is a GET."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        handlers = {name: getattr(cls, name) for name in cls.http_method_names if hasattr(cls, name)}
        undeclared = [name for name, handler in handlers.items() if not cls.is_public and not hasattr(handler, "scope")]
        if undeclared:
            raise TypeError(f"{cls.__name__} does not declare which scope {', '.join(undeclared)} needs.")
        if any(getattr(each, "names_in_json", ()) for each in handlers.values()):
            # Not asked in each `walk`: a spend has few calls.
            cls.walk = cls._walk_with_names_in_json  # type: ignore[method-assign]

    # Django's way in ---------------------------------------------------------------------------------

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Return the view, which manages its own transactions even if the project has ATOMIC_REQUESTS."""
        return transaction.non_atomic_requests(super().as_view(**initkwargs))

    def dispatch(self, request: HttpRequest, *args: Any, **path: Any) -> HttpResponse | StreamingHttpResponse:
        """Respond to a request that Django has routed here; every error is a problem."""
        request_id(request)
        try:
            ensure_sound(request)
            ensure_host(request)
            response = _finish_steps(self.walk(request, path, _CALLERS_THREAD))
        except Exception as error:
            response = problem_response(error, request)
        return for_django(response, request)

    # The steps ---------------------------------------------------------------------------------------

    async def walk(self, request: Any, path: Mapping[str, Any], way: Way) -> AnyResponse:
        """Take a request through all steps and return the response, or raise the error that ended it.

        Args:
            path: the parameters of the path.
        """
        handler = partial(self.begin(request), request, **path)
        if not self.is_public:
            secret = api_key_of(request)
            key = known_key(secret) or await way.outcome(LOOKUPS, secret)
            request.key_name = key.name
            self.admit(key, path)
        with nullcontext() if self.is_public else admitted(self.key):
            self.ensure_query(request)
            if self.method != "get":
                try:
                    request.raw_body = await way.take_in(request, self.body_limit_bytes)
                except (MalformedRequest, BodyTooLarge) as error:
                    request.raw_body = error  # other faults are reported first
            result = handler() if self.method in self.in_loop else handler
            while isinstance(result, Step):
                request.raw_body = b""  # what waits, waits without its body
                if isinstance(result, QueuedRequest):
                    result = result.respond(await way.outcome(result.queue, result.request))
                else:
                    result = await self._await_step(result, way)
            return await way.execute(self, result) if callable(result) else result

    async def _await_step(self, awaited: Awaited, way: Way) -> "Response | Step":
        try:
            return await way.wait_for(self, awaited)
        except ServerBusy:
            if awaited.otherwise is None:
                raise
            return awaited.otherwise

    async def _walk_with_names_in_json(self, request: Any, path: Mapping[str, Any], way: Way) -> AnyResponse:
        """As `walk`; an error of a rule, which names the attribute, names the field as it is called in JSON."""
        try:
            return await Endpoint.walk(self, request, path, way)
        except Invalid as error:
            names: Mapping[str, str] = getattr(getattr(self, self.method), "names_in_json", {})
            raise Invalid(**{**error.facts, "pointer": renamed(error.facts["pointer"], names)}) from error

    def begin(self, request: Any) -> Callable[..., Any]:
        """Return the handler of the request's method, or raise `MethodNotAllowed` or `NotAcceptable`."""
        self.request_id = request.request_id
        method = (request.method or "").lower()
        self.method = "get" if method == "head" else method
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            raise MethodNotAllowed(method=request.method, allowed=self.allowed)
        accept = request.META.get("HTTP_ACCEPT", "*/*")
        if accept != "*/*":
            ensure_acceptable(accept, self.served)
        return handler

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        """Let the key make this call, or raise `ScopeMissing`, `NotWithLabels` or `NotFound`."""
        self.key = key
        handler = getattr(self, self.method)
        scope: str = handler.scope
        if scope and scope not in key.scopes and not key.may(scope):
            raise ScopeMissing(scope=scope)
        if key.labels and scope and not handler.with_labels:
            raise NotWithLabels
        if key.holder_id is not None and "holder" in path and not key.sees(path["holder"]):
            raise NotFound  # as for a path that does not exist

    def ensure_query(self, request: HttpRequest) -> None:
        """Return if the call declares query parameters or gets none; otherwise raise for each of them."""
        if not self.is_probe and not getattr(getattr(self, self.method), "takes_query", False):
            refuse_query(request)

    @property
    def allowed(self) -> list[str]:
        """The methods of this path, for the Allow header."""
        return [method.upper() for method in self.http_method_names if hasattr(self, method)]

    def body(self, request: HttpRequest, shape: Shape[Any]) -> dict[str, Any]:
        """Return the fields of the request's body, or raise; see `read_body` and `read`."""
        return read(shape, read_body(request))


def _finish_steps(steps: Coroutine[Any, Any, AnyResponse]) -> AnyResponse:
    """Return the result of a coroutine that never waits for an event loop."""
    try:
        steps.send(None)
    except StopIteration as done:
        response: AnyResponse = done.value
        return response
    raise RuntimeError("A step of a call waits for an event loop.")


class UnknownPath(Endpoint):
    """Any other path below the calls: 404 as a problem, for every method."""

    is_public = True
    schema = None

    def begin(self, request: Any) -> Callable[..., Any]:
        """Raise `NotFound`."""
        raise NotFound


unknown_path = UnknownPath.as_view()
"""The view for the end of a project's URL patterns: `re_path("^v1/", unknown_path)`."""


def ensure_acceptable(accept: str | None, served: str = "application/json") -> None:
    """Return if a client with this Accept header accepts the served type, or raise `NotAcceptable`. Source: RFC 9110, 12.5.1."""
    if not accept or accept in ("*/*", served):
        return
    ranges = {served: 2, served.partition("/")[0] + "/*": 1, "*/*": 0}
    best, quality = -1, 0.0
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        precision = ranges.get(name, -1)
        if precision > best:
            best, quality = precision, _quality(parameters)
    if quality <= 0:
        raise NotAcceptable(served=served)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
