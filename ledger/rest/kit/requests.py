"""A request: its head, and the checks of the head.

Django makes the request of a view. The front makes `FastRequest`, which takes a third of the time.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from ledger.rest.kit.parsing import is_storable
from ledger.rest.kit.request_errors import FieldError, MalformedRequest
from ledger.telemetry.request_origins import new_request_id, sent_id

ONCE = frozenset(
    {
        "HTTP_AUTHORIZATION",
        "HTTP_HOST",
        "HTTP_IDEMPOTENCY_KEY",
        "HTTP_IF_MATCH",
        "HTTP_X_REQUEST_ID",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
    }
)
"""Headers with a single meaning: two of them are refused, not joined."""

_NUL_IN_PATH = FieldError("", "forbidden-character", "NUL is refused in a path.")


class FastRequest(ASGIRequest):
    """Django's request, made in a third of the time. The front has to receive its body."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
        """Take the head over. `ensure_sound` checks it later, so that the response to a bad head can name the request."""
        self.scope = scope
        self.receive = receive
        self._post_parse_error = False
        self._read_started = False
        self.resolver_match = None
        self.path = scope["path"]
        self.script_name = scope.get("root_path") or ""
        self.path_info = self.path.removeprefix(self.script_name)
        self.method = scope["method"].upper()
        self.given_twice = ""
        self.route = ""
        """The pattern of its path, once that is known."""
        self.key_name = ""
        """The name of its API key, once that is known to be valid."""
        self.is_call = False
        """Whether its path belongs to the API, once that is known."""
        self.raw_body = b""
        server = scope.get("server") or ("unknown", 0)
        self.META: dict[str, Any] = {
            "REQUEST_METHOD": self.method,
            "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
            "SCRIPT_NAME": self.script_name,
            "PATH_INFO": self.path_info,
            "SERVER_NAME": server[0],
            "SERVER_PORT": str(server[1]),
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
        }
        if client := scope.get("client"):
            self.META["REMOTE_ADDR"] = self.META["REMOTE_HOST"] = client[0]
            self.META["REMOTE_PORT"] = client[1]
        self._take_headers(scope["headers"])
        self.request_id = ("HTTP_X_REQUEST_ID" in self.META and sent_id(self.META)) or new_request_id()

    def _take_headers(self, headers: Any) -> None:
        meta = self.META
        for name, value in headers:
            key = _meta_name(name)
            if key is None:
                continue
            if key not in meta:
                meta[key] = value.decode("latin-1")
            elif key in ONCE:
                self.given_twice = name.decode("latin-1").title()
            else:
                meta[key] += ("; " if key == "HTTP_COOKIE" else ",") + value.decode("latin-1")

    def for_django(self) -> "FastRequest":
        """Return the same request with the data that only forms and pages need."""
        self._body = self.raw_body
        self._stream = BytesIO(self._body)
        self._set_content_type_params(self.META)  # type: ignore[attr-defined]
        return self


# What is wrong with any request ------------------------------------------------------------------------


def ensure_sound(request: HttpRequest) -> None:
    """Return, or raise `MalformedRequest` for faults of any request: NUL in its path, a header twice.

    If a WSGI server has joined two headers of one name by a comma, they count as the one that it made of them.
    """
    path = request.path
    if "\0" in path or not (path.isascii() or is_storable(path)):
        raise MalformedRequest(_NUL_IN_PATH)
    name = (
        request.given_twice
        if isinstance(request, FastRequest)
        else _given_twice(getattr(request, "scope", {}).get("headers", ()))
    )
    if name:
        raise MalformedRequest(FieldError(f"/{name}", "duplicate-header", "The request contains this header twice."))


def _given_twice(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the name of a header with a single meaning that is there twice; empty if there is no such header."""
    names = [name for name, _ in headers if _meta_name(name) in ONCE]
    return next((name.decode("latin-1").title() for name in names if names.count(name) > 1), "")


def ensure_host(request: HttpRequest) -> None:
    """Return if the request names a host that is served here, or raise `DisallowedHost`."""
    if not _is_served(request.META.get("HTTP_HOST", ""), tuple(settings.ALLOWED_HOSTS)):
        request.get_host()


# Heads -----------------------------------------------------------------------------------------------


@lru_cache(512)
def _is_served(host: str, allowed: tuple[str, ...]) -> bool:
    """Return whether a Host header names a host that is served here; for another host, `get_host` has the fault."""
    name, _ = split_domain_port(host)
    return bool(name) and validate_host(name, allowed)


@lru_cache(512)
def _meta_name(name: bytes) -> str | None:
    """Return Django's name of a header; None for a name with an underscore, which could pass for another header."""
    if b"_" in name:
        return None
    known = name.decode("latin-1").upper().replace("-", "_")
    return known if known in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{known}"
