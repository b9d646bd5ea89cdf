"""The name that a request goes by in responses and logs."""

import random
import re
import time

from django.http import HttpRequest

_SAFE = re.compile(r"[A-Za-z0-9._:@/+=-]{1,64}")


def request_id(request: HttpRequest) -> str:
    """Return the request's id: the caller's X-Request-Id where that is 1 to 64 safe characters, else a new one."""
    known: str | None = getattr(request, "request_id", None)
    if known is None:
        sent = request.META.get("HTTP_X_REQUEST_ID", "")
        known = sent if _SAFE.fullmatch(sent) else new_request_id()
        request.request_id = known  # type: ignore[attr-defined]
    return known


def new_request_id() -> str:
    """Return a UUID that begins with the time, so that ids sort roughly as requests came. Source: RFC 9562, 5.7.

    The random part makes it unique, not secret: `os.urandom` releases the interpreter's lock, and the event loop would wait to
    get it back from the committer.
    """
    milliseconds = time.time_ns() // 1_000_000
    random_part = random.getrandbits(80)
    number = (
        (milliseconds & (2**48 - 1)) << 80
        | 0x7 << 76
        | (random_part >> 68 & 0xFFF) << 64
        | 0b10 << 62
        | random_part & (2**62 - 1)
    )
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
