"""A request as it came in over ASGI: its head at once, its body when the front has received it."""

import random
import re
import time
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from ledger.api.kit.reading.parsing import is_storable
from ledger.api.kit.request_errors import FieldError, MalformedRequest
from ledger.errors import LedgerError

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
"""Headers that mean one thing: two of them are refused, not joined."""

_SAFE_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,64}")
_NUL_IN_PATH = FieldError("", "forbidden-character", "NUL is refused in a path.")


class Request(ASGIRequest):
    """Django's request, made in a third of the time; it has no body until `receive_body`."""

    def __init__(self, scope: MutableMapping[str, Any]) -> None:
        """Take the head over. What is wrong with it is said by `ensure_sound`, so that the response can name the request."""
        self.scope = scope
        self._post_parse_error = False
        self._read_started = False
        self.resolver_match = None
        self.path = scope["path"]
        self.script_name = scope.get("root_path") or ""
        self.path_info = self.path.removeprefix(self.script_name)
        self.method = scope["method"].upper()
        self.given_twice = ""
        self.route = ""
        """The pattern that its path follows, once that is known."""
        self.body_error: LedgerError | None = None
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
        self.request_id = ("HTTP_X_REQUEST_ID" in self.META and _sent_id(self.META)) or new_request_id()

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

    def ensure_sound(self) -> None:
        """Return, or raise `MalformedRequest` for what is wrong with any request: NUL in its path, a header twice."""
        if "\0" in self.path or not (self.path.isascii() or is_storable(self.path)):
            raise MalformedRequest(_NUL_IN_PATH)
        if self.given_twice:
            raise MalformedRequest(
                FieldError(f"/{self.given_twice}", "duplicate-header", "The request contains this header twice.")
            )

    def ensure_host(self) -> None:
        """Return if the request names a host that is served here, or raise `DisallowedHost`."""
        if not _is_served(self.META.get("HTTP_HOST", ""), tuple(settings.ALLOWED_HOSTS)):
            self.get_host()

    def receive_body(self, body: bytes) -> None:
        """Have this body."""
        self._body = body
        self._stream = BytesIO(body)

    def for_django(self) -> "Request":
        """The same request with what only forms and pages need."""
        self._set_content_type_params(self.META)  # type: ignore[attr-defined]
        return self


# The name of a request in responses and logs ---------------------------------------------------------


def request_id(request: HttpRequest) -> str:
    """Return the id of a request, which may be one that Django made; it is the same at each call."""
    known: str | None = getattr(request, "request_id", None)
    if known is None:
        known = _sent_id(request.META) or new_request_id()
        request.request_id = known  # type: ignore[attr-defined]
    return known


def _sent_id(meta: Mapping[str, Any]) -> str:
    """The caller's X-Request-Id where that is 1 to 64 safe characters, else empty."""
    sent: str = meta.get("HTTP_X_REQUEST_ID", "")
    return sent if sent and _SAFE_ID.fullmatch(sent) else ""


def new_request_id() -> str:
    """Return a UUID that begins with the time, so that ids sort roughly as requests came. Source: RFC 9562, 5.7.

    The random part makes it unique, not secret: `os.urandom` releases the interpreter's lock, and the event loop would wait to
    get it back from the committer.
    """
    milliseconds = time.time_ns() // 1_000_000
    part_a, part_b, part_c = random.getrandbits(12), random.getrandbits(14), random.getrandbits(48)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7{part_a:03x}-{0x8000 | part_b:04x}-{part_c:012x}"


# Heads -----------------------------------------------------------------------------------------------


@lru_cache(512)
def _is_served(host: str, allowed: tuple[str, ...]) -> bool:
    """True for a Host header that names a host which is served here; for another one, `get_host` says what is wrong with it."""
    name, _ = split_domain_port(host)
    return bool(name) and validate_host(name, allowed)


@lru_cache(512)
def _meta_name(name: bytes) -> str | None:
    """How Django calls a header; None for one with an underscore, which could pass for another one."""
    if b"_" in name:
        return None
    known = name.decode("latin-1").upper().replace("-", "_")
    return known if known in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{known}"
