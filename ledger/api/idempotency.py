"""The Idempotency-Key header: which key a write goes by. What a key does is decided by the services."""

import re

from django.http import HttpRequest

from ledger.api.rejections import IdempotencyKeyInvalid, IdempotencyKeyMissing

_KEY = re.compile(r"[\x20-\x7e]{1,255}")


def idempotency_key(request: HttpRequest) -> str:
    """Return the key of a write: 1 to 255 printable ASCII characters, as sent, without outer spaces.

    Raises:
        IdempotencyKeyMissing: there is none, or an empty one.
        IdempotencyKeyInvalid: it is longer, or has other characters.
    """
    key = request.META.get("HTTP_IDEMPOTENCY_KEY", "").strip(" \t")
    if not key:
        raise IdempotencyKeyMissing
    if _KEY.fullmatch(key) is None:
        raise IdempotencyKeyInvalid
    return key
