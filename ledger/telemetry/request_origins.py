"""Which request, and whose: its id, by which responses, logs, entries and the staff log name it, and its client's address."""

import random
import re
import time
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from ledger import conf

_SAFE_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,64}")


def request_id(request: HttpRequest) -> str:
    """Return the id of a request, even of one that Django made; it is the same at each call."""
    known: str | None = getattr(request, "request_id", None)
    if known is None:
        known = sent_id(request.META) or new_request_id()
        request.request_id = known  # type: ignore[attr-defined]
    return known


def sent_id(meta: Mapping[str, Any]) -> str:
    """Return the caller's X-Request-Id if it is 1 to 64 safe characters, otherwise an empty text."""
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


def client_address(request: HttpRequest) -> str:
    """Return the address of the client: the connection's, or the one that the outermost trusted proxy saw.

    It is the same in the log, in the staff log, and for the limit of logins.

    Behind n proxies (the setting TRUSTED_PROXIES) that is the n-th address of X-Forwarded-For from the right; the client itself
    may have written the addresses before it.
    """
    peer: str = request.META.get("REMOTE_ADDR", "")
    proxies = conf.TRUSTED_PROXIES.value
    if not proxies:
        return peer
    passed_on = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    return passed_on[-proxies] if len(passed_on) >= proxies and passed_on[-proxies] else peer
