"""The Idempotency-Key header of a write. The services decide what a key does."""

import secrets

from django.http import HttpRequest

from ledger.rest.kit.request_errors import IdempotencyKeyInvalid, IdempotencyKeyMissing
from ledger.values import IDEMPOTENCY_KEY


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


DRY_RUN_PREFIX = "dry-run/"


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
