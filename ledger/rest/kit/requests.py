"""A request: its head, the checks of the head with its Idempotency-Key, and its body within a limit.

Django makes the request of a view. The front makes `FastRequest`, which takes a third of the time.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, UnreadablePostError
from django.http.request import split_domain_port, validate_host

from ledger.rest.kit.parsing import is_storable
from ledger.rest.kit.request_errors import (
    BodyTooLarge,
    FieldError,
    IdempotencyKeyInvalid,
    IdempotencyKeyMissing,
    MalformedRequest,
)
from ledger.telemetry.request_origins import new_request_id, sent_id
from ledger.values import IDEMPOTENCY_KEY

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

DRY_RUN_PREFIX = "dry-run/"
NOT_WHOLE = FieldError("", "truncated", "The body is not whole.")
TOO_SHORT = FieldError("", "truncated", "The body is shorter than its Content-Length.")
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


# The Idempotency-Key of a write: the services decide what it does ------------------------------------


def idempotency_key(request: HttpRequest) -> str:
    """Return the key of a write: 1 to 255 printable ASCII characters, as sent, without outer spaces.

    Raises:
        IdempotencyKeyMissing: the header is missing or empty.
        IdempotencyKeyInvalid: it is longer, or has other characters.
    """
    key = request.META.get("HTTP_IDEMPOTENCY_KEY", "").strip(" \t")
    if not key:
        raise IdempotencyKeyMissing
    if IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise IdempotencyKeyInvalid
    return key


def dry_run_key(request: HttpRequest) -> str:
    """Return the key of a dry run, which needs no key: a new one if the request has none.

    Raises: as `idempotency_key`, when one is sent.
    """
    if "HTTP_IDEMPOTENCY_KEY" in request.META:
        return idempotency_key(request)
    return DRY_RUN_PREFIX + secrets.token_hex(16)


def shown_key(key: str | None) -> str | None:
    """Return the key of an entry as a dry run shows it: None for a key that `dry_run_key` made."""
    return None if key is not None and key.startswith(DRY_RUN_PREFIX) else key


# The body --------------------------------------------------------------------------------------------


def announced_bytes(request: HttpRequest, limit_bytes: int) -> int | None:
    """Return the length of the body by the request's head; None if the head does not have it.

    Raises:
        MalformedRequest: the Content-Length is not a number.
        BodyTooLarge: it exceeds the limit.
    """
    announced: str = request.META.get("CONTENT_LENGTH") or ""
    if not announced:
        return None
    if not (announced.isascii() and announced.isdigit()):
        raise MalformedRequest(FieldError("", "content-length", "The Content-Length is not a number."))
    if len(announced) > 12 or int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    return int(announced)


def read_whole(request: HttpRequest, limit_bytes: int) -> bytes:
    """Return the body of a request of Django's.

    Raises:
        MalformedRequest: the Content-Length is not a number, or less than it arrived.
        BodyTooLarge: it exceeds the limit.
    """
    announced = announced_bytes(request, limit_bytes)
    environ = getattr(request, "environ", {})
    # Django reads no body without a length, even if the server ends it.
    stream = environ["wsgi.input"] if announced is None and environ.get("wsgi.input_terminated") else request
    try:
        body: bytes = stream.read(limit_bytes + 1 if announced is None else announced)
    except UnreadablePostError:
        raise MalformedRequest(NOT_WHOLE) from None
    if len(body) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    if len(body) < (announced or 0):
        raise MalformedRequest(TOO_SHORT)
    return body


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
