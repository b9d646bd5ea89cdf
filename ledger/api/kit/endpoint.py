"""What a call of the API declares, and what it goes through before its own code.

A DRF view in what it declares, so that drf-spectacular documents it. The front runs it, and not in DRF's way: there is one
parser, one renderer, one kind of key.
The order in which a request can fail is fixed: path 404, method 405, Accept 406, key 401, scope 403, holder outside the key's
confines 404, limits 429, query of a call that takes none 400, Idempotency-Key 400, media type 415, size 413, body 400; then
what the services say.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from django.http import HttpRequest
from rest_framework.views import APIView

from ledger.api.kit.authentication import Key
from ledger.api.kit.reading.parsing import BODY_LIMIT_BYTES, read, read_body
from ledger.api.kit.reading.queries import refuse_query
from ledger.api.kit.reading.requests import Request
from ledger.api.kit.request_errors import MethodNotAllowed, NotAcceptable, NotFound, ScopeMissing
from ledger.api.kit.writing.rendering import AnyResponse, Response
from ledger.database.load.queues import Queue
from ledger.records import Shape

Handler = TypeVar("Handler", bound=Callable[..., Any])


class QueuedRequest(NamedTuple):
    """A request for the database, returned by a handler in the event loop: queue, request, and what makes the response."""

    queue: Queue
    asked: Any
    respond: Callable[[Any], Response]


InThread = Callable[[], AnyResponse]
"""Work that waits, returned by a handler in the event loop: the front calls it in a thread."""


def requires(scope: str, *, takes_query: bool = False) -> Callable[[Handler], Handler]:
    """Declare which scope a handler needs, and whether it reads query parameters; `schema.operation` does it.

    Args:
        scope: "" for none.
        takes_query: True: the handler reads the query, and refuses what it does not know; False: there must be none.
    """

    def declare(handler: Handler) -> Handler:
        handler.scope = scope  # type: ignore[attr-defined]
        handler.takes_query = takes_query  # type: ignore[attr-defined]
        return handler

    return declare


def scope_of(view: Any, method: str) -> str:
    """Return the scope that a view, or its class, declares for a method in small letters."""
    scope: str = getattr(view, method).scope
    return scope


class Endpoint(APIView):
    """A call of the API. Subclasses define `get`, `post` … (request, **path), each with the scope that it `requires`.

    With `is_public`, no key is asked for. Handlers run in a thread and return a response. Those of the methods in `in_loop` run
    in the event loop, wait for nothing, and may return `QueuedRequest` or `InThread`.

    With `is_probe`, query parameters are ignored; every other call refuses those that it does not declare.

    With `takes_nothing`, a write may come without a body.

    With `reads_quickly`, a read takes a prepared statement or a few: such reads share one thread, which executes those that have
    arrived one after the other, and wakes the loop once for all of them.
    """

    is_public: ClassVar[bool] = False
    is_probe: ClassVar[bool] = False
    takes_nothing: ClassVar[bool] = False
    in_loop: ClassVar[frozenset[str]] = frozenset()
    reads_quickly: ClassVar[bool] = False
    served: ClassVar[str] = "application/json"
    body_limit_bytes: ClassVar[int] = BODY_LIMIT_BYTES
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]

    key: Key
    request_id: str
    method: str
    """The method whose scope counts, in small letters: HEAD is a GET."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        handlers = {name: getattr(cls, name) for name in cls.http_method_names if hasattr(cls, name)}
        undeclared = [name for name, handler in handlers.items() if not cls.is_public and not hasattr(handler, "scope")]
        if undeclared:
            raise TypeError(f"{cls.__name__} does not declare which scope {', '.join(undeclared)} needs.")

    def begin(self, request: Request, path: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the handler of the request's method, or raise `MethodNotAllowed` or `NotAcceptable`."""
        self.setup(request, **path)
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
        """Let the key make this call, or raise `ScopeMissing` or `NotFound`."""
        self.key = key
        scope: str = getattr(self, self.method).scope
        if scope not in key.scopes and not key.may(scope):
            raise ScopeMissing(scope=scope)
        if key.holder_id is not None and "holder" in path and not key.sees(path["holder"]):
            raise NotFound  # as for a path that does not exist

    def ensure_query(self, request: HttpRequest) -> None:
        """Return if the call reads query parameters or gets none; else raise for each of them."""
        if not self.is_probe and not getattr(getattr(self, self.method), "takes_query", False):
            refuse_query(request)

    @property
    def allowed(self) -> list[str]:
        """The methods that exist here, as the Allow header names them."""
        return [method.upper() for method in self.http_method_names if hasattr(self, method)]

    def body(self, request: HttpRequest, shape: Shape[Any]) -> dict[str, Any]:
        """Return the fields of the request's body, or raise; see `read_body` and `read`."""
        return read(shape, read_body(request))


def ensure_acceptable(accept: str | None, served: str = "application/json") -> None:
    """Return if a client with this Accept header takes what is served, or raise `NotAcceptable`. Source: RFC 9110, 12.5.1."""
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
