"""The Idempotency-Key header: which key a write goes by. What a key does is decided by the services."""

import re
import secrets

from django.http import HttpRequest

from ledger.api.kit.request_errors import IdempotencyKeyInvalid, IdempotencyKeyMissing

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


PREVIEW = "dry-run/"


def preview_key(request: HttpRequest) -> str:
    """Return the key of a dry run, which needs none: one that nobody has used, where none is sent.

    Raises: as `idempotency_key`, when one is sent.
    """
    if "HTTP_IDEMPOTENCY_KEY" in request.META:
        return idempotency_key(request)
    return PREVIEW + secrets.token_hex(16)


def shown_key(key: str | None) -> str | None:
    """Return the key of an entry as a dry run shows it: none for one that was made here."""
    return None if key is not None and key.startswith(PREVIEW) else key
