"""API keys, their scopes, and the one holder that a key may be confined to."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.utils.module_loading import import_string

from ledger.authentication import registered
from ledger.database.queues import Queue
from ledger.rest.kit.request_errors import InvalidRequest, LabelBound, Unauthenticated
from ledger.scopes import includes_scope
from ledger.values import FieldError, InvalidValue, Metadata

LEDGER_READ = "ledger:read"
LEDGER_SPEND = "ledger:spend"
LEDGER_REFUND = "ledger:refund"
LEDGER_HOLD = "ledger:hold"
LEDGER_TRANSFER = "ledger:transfer"
LEDGER_GRANT = "ledger:grant"
LEDGER_OBSERVE = "ledger:observe"
LEDGER_ADMIN = "ledger:admin"
BILLING_READ = "billing:read"
BILLING_WRITE = "billing:write"
KEYS_ADMIN = "keys:admin"
SIGNALS_READ = "signals:read"
SIGNALS_WRITE = "signals:write"
PAGES_WRITE = "pages:write"

METADATA = Metadata()

CACHED_FOR_SECONDS = 2.0
"""How long a process caches a key: a revoked or expired key stops working everywhere within this time."""
_CACHED_KEYS_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Key:
    """The part of an API key that decides what a request may do."""

    digest: bytes
    """`digest_of` its secret: a call that hands on a narrower key finds its own by it. Limits count by `name`."""
    name: str
    scopes: frozenset[str]
    holder_id: str | None
    expires_at: datetime | None = None
    requests_per_second: int | None = None
    """The key's own limit; None for that of the settings."""
    concurrent_requests: int | None = None
    id: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that all that it writes carries, and to which what it sees is limited; empty for none."""
    actor: str = field(init=False)
    """The actor that an entry of this key records."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "actor", f"key:{self.name}")

    def may(self, scope: str) -> bool:
        """True if the key has the scope, or one that includes it."""
        return includes_scope(self.scopes, scope)

    @property
    def sees_all_of_holder(self) -> bool:
        """True if the key may see all entries of the holders that it sees."""
        return not self.labels and self.may(LEDGER_READ)

    def with_labels(self, metadata: Mapping[str, Any], pointer: str = "") -> dict[str, Any]:
        """Return the metadata of a write with the labels of the key.

        Args:
            pointer: where the request is, in a batch.

        Raises:
            LabelBound: it names another value of a label.
            InvalidRequest: it has no room for the labels.
        """
        for name, value in self.labels.items():
            if name in metadata and metadata[name] != value:
                raise LabelBound(label=name, value=value)
        try:
            return METADATA.check({**metadata, **self.labels})
        except InvalidValue as error:
            raise InvalidRequest([FieldError(f"{pointer}/metadata", error.code, error.detail)]) from error

    def sees(self, holder_id: str) -> bool:
        """True if the key may see the holder."""
        return self.holder_id is None or self.holder_id == holder_id


def secret_of(request: HttpRequest) -> str:
    """Return the text of the key that a request carries, or raise `Unauthenticated`."""
    kind, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    secret = secret.strip(" ")
    if kind.lower() != "bearer" or not 1 <= len(secret) <= 255 or not secret.isascii():
        raise Unauthenticated
    return str(secret)


def api_key_of(request: HttpRequest) -> str:
    """As `secret_of`; a text that no key can have is an `Unauthenticated` that may say why."""
    secret = secret_of(request)
    if (ways := registered()) is not None and ways.check_secret:
        _function(ways.check_secret)(secret)
    return secret


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret: what `Key.digest` is."""
    return hashlib.sha256(secret.encode("ascii")).digest()


@cache
def _function(path: str) -> Callable[[str], Any]:
    function: Callable[[str], Any] = import_string(path)
    return function


# Looking keys up -------------------------------------------------------------------------------------

_cache: dict[bytes, tuple[float, Key]] = {}
_cache_lock = threading.Lock()


def forget_keys() -> None:
    """Clear the cache, so that this process looks up every key again."""
    with _cache_lock:
        _cache.clear()


def known_key(secret: str) -> Key | None:
    """Return the cached key of that text, or None."""
    cached = _cache.get(digest_of(secret))
    return cached[1] if cached is not None and time.monotonic() < cached[0] else None


def _look_up(secrets: Sequence[str]) -> list[Key | Unauthenticated]:
    found = {secret: _looked_up(secret) for secret in set(secrets)}
    return [found[secret] or Unauthenticated() for secret in secrets]


def _looked_up(secret: str) -> Key | None:
    ways = registered()
    key: Key | None = None if ways is None else _function(ways.find_key)(secret)
    if key is None:  # not remembered: a client that guesses keys must not fill the memory
        return None
    with _cache_lock:
        if len(_cache) >= _CACHED_KEYS_LIMIT:
            _cache.clear()
        _cache[digest_of(secret)] = (time.monotonic() + CACHED_FOR_SECONDS, key)
    return key


LOOKUPS = Queue("ledger-keys", _look_up, most=lambda: 32)
"""The queue of keys to look up; each outcome is a `Key` or `Unauthenticated`."""
