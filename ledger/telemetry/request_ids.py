"""The id of a request, by which responses, logs, entries and the staff log name it."""

import random
import re
import time
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

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
