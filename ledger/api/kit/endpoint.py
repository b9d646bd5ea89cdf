"""What every call of the API goes through before and after its own code.

A DRF view in what it declares, so that drf-spectacular documents it; with a leaner way through: one parser, one renderer, one
kind of key, nothing instantiated per request but the view.
The order in which a request can fail is fixed: path 404, method 405, Accept 406, key 401, scope 403, holder outside the key's
confines 404, limits 429, Idempotency-Key 400, media type 415, size 413, body 400; then what the services say.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from ledger.api.kit.authentication import Key, ensure_scope, ensure_sees, key_of
from ledger.api.kit.inputs import StrictSerializer, read
from ledger.api.kit.limits import admitted
from ledger.api.kit.parsing import BODY_LIMIT_BYTES, read_body
from ledger.api.kit.rendering import ensure_acceptable
from ledger.api.kit.request_errors import MethodNotAllowed


def exception_handler() -> Callable[[Exception, Mapping[str, Any]], Any]:
    """Return what makes answers of exceptions: `ledger_project.problems`, which nothing here may import, by the setting."""
    handler: Any = api_settings.EXCEPTION_HANDLER
    return handler


class Endpoint(APIView):
    """A call of the API. Subclasses define `get`, `post` … (request, **path) and say in `scopes` which scope each method needs.

    With `is_public`, no key is asked for.
    """

    is_public: ClassVar[bool] = False
    scopes: ClassVar[Mapping[str, str]] = {}
    served: ClassVar[str] = "application/json"
    body_limit_bytes: ClassVar[int] = BODY_LIMIT_BYTES
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]

    key: Key

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Return the answer to a request, a problem too; raises nothing."""
        try:
            return self._answer(request, kwargs)
        except Exception as error:
            context = {"view": self, "request": request, "args": args, "kwargs": kwargs}
            return exception_handler()(error, context)

    def _answer(self, request: HttpRequest, path: dict[str, Any]) -> HttpResponseBase:
        handler = self._handler(request)
        ensure_acceptable(request.META.get("HTTP_ACCEPT"), self.served)
        if self.is_public:
            answer = handler(request, **path)
        else:
            with admitted(self._admissible_key(request, path)):
                answer = handler(request, **path)
        if request.method == "HEAD" and isinstance(answer, HttpResponse):
            answer.headers["Content-Length"] = str(len(answer.content))
            answer.content = b""
        return answer

    def _admissible_key(self, request: HttpRequest, path: dict[str, Any]) -> Key:
        self.key = key = key_of(request)
        ensure_scope(key, self.scopes["get" if request.method == "HEAD" else (request.method or "").lower()])
        holder_id = path.get("holder")
        if holder_id is not None:
            ensure_sees(key, holder_id)
        return key

    def _handler(self, request: HttpRequest) -> Callable[..., HttpResponseBase]:
        method = (request.method or "").lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            raise MethodNotAllowed(method=request.method, allowed=self.allowed)
        return handler

    @property
    def allowed(self) -> list[str]:
        """The methods that exist here, as the Allow header names them."""
        return [method.upper() for method in self.http_method_names if hasattr(self, method)]

    def body(self, request: HttpRequest, serializer_class: type[StrictSerializer]) -> dict[str, Any]:
        """Return the clean fields of the request's body, or raise; see `read_body` and `read`."""
        return read(serializer_class, read_body(request, limit_bytes=self.body_limit_bytes))
