"""What a call of the API declares, and what it goes through before its own code.

A DRF view in what it declares, so that drf-spectacular documents it. The front runs it, and not in DRF's way: there is one
parser, one renderer, one kind of key.
The order in which a request can fail is fixed: path 404, method 405, Accept 406, key 401, scope 403, holder outside the key's
confines 404, limits 429, Idempotency-Key 400, media type 415, size 413, body 400; then what the services say.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from ledger.api.kit.authentication import Key, ensure_scope, ensure_sees
from ledger.api.kit.inputs import StrictSerializer, read
from ledger.api.kit.parsing import BODY_LIMIT_BYTES, read_body
from ledger.api.kit.rendering import ensure_acceptable
from ledger.api.kit.request_errors import MethodNotAllowed
from ledger.database.queues import Queue


def exception_handler() -> Callable[[Exception, Mapping[str, Any]], Any]:
    """Return what makes answers of exceptions: `ledger_project.problems`, which nothing here may import, by the setting."""
    handler: Any = api_settings.EXCEPTION_HANDLER
    return handler


class Queued(NamedTuple):
    """What a handler that runs in the loop returns for the database to be asked: by which queue, what, and the response to it."""

    queue: Queue
    asked: Any
    respond: Callable[[Any], HttpResponse]


InThread = Callable[[], HttpResponseBase]
"""What a handler that runs in the loop returns for work that waits: the front calls it in a thread."""


class Endpoint(APIView):
    """A call of the API. Subclasses define `get`, `post` … (request, **path) and say in `scopes` which scope each method needs.

    With `is_public`, no key is asked for. Handlers run in a thread and return a response. Those of the methods in `in_loop` run
    in the event loop, wait for nothing, and may return `Queued` or `InThread`.
    """

    is_public: ClassVar[bool] = False
    in_loop: ClassVar[frozenset[str]] = frozenset()
    scopes: ClassVar[Mapping[str, str]] = {}
    served: ClassVar[str] = "application/json"
    body_limit_bytes: ClassVar[int] = BODY_LIMIT_BYTES
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]

    key: Key

    def begin(self, request: HttpRequest, path: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the handler of the request's method, or raise `MethodNotAllowed` or `NotAcceptable`."""
        self.setup(request, **path)
        method = (request.method or "").lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            raise MethodNotAllowed(method=request.method, allowed=self.allowed)
        ensure_acceptable(request.META.get("HTTP_ACCEPT"), self.served)
        return handler

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        """Let the key make this call, or raise `ScopeMissing` or `NotFound`."""
        self.key = key
        ensure_scope(key, self.scopes[self.method])
        holder_id = path.get("holder")
        if holder_id is not None:
            ensure_sees(key, holder_id)

    @property
    def method(self) -> str:
        """The method whose scope counts, in small letters: HEAD is a GET."""
        method = (self.request.method or "").lower()
        return "get" if method == "head" else method

    @property
    def allowed(self) -> list[str]:
        """The methods that exist here, as the Allow header names them."""
        return [method.upper() for method in self.http_method_names if hasattr(self, method)]

    def body(self, request: HttpRequest, serializer_class: type[StrictSerializer]) -> dict[str, Any]:
        """Return the clean fields of the request's body, or raise; see `read_body` and `read`."""
        return read(serializer_class, read_body(request))
