"""Who is asking, and for what: API keys, their scopes, and the one holder that a key may be confined to."""

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from ledger import services
from ledger.api.kit.request_errors import NotFound, ScopeMissing, Unauthenticated
from ledger.database.queues import Queue

LEDGER_READ = "ledger:read"
LEDGER_SPEND = "ledger:spend"
LEDGER_GRANT = "ledger:grant"
LEDGER_ADMIN = "ledger:admin"
BILLING_READ = "billing:read"
BILLING_WRITE = "billing:write"

CACHED_FOR_SECONDS = 2.0
"""How long a process goes by what it knows of a key: a revoked key stops working everywhere within this time."""
_CACHED_KEYS_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Key:
    """What a request may do: the part of an API key that the delivery needs."""

    digest: bytes
    name: str
    scopes: frozenset[str]
    holder_id: str | None

    @property
    def actor(self) -> str:
        """Who is written down as the author of an entry."""
        return f"key:{self.name}"

    def may(self, scope: str) -> bool:
        """True if the key carries the scope; `ledger:admin` stands for every `ledger:` scope."""
        return scope in self.scopes or (LEDGER_ADMIN in self.scopes and scope.startswith("ledger:"))

    def sees(self, holder_id: str) -> bool:
        """True if the holder is within the key's confines."""
        return self.holder_id is None or self.holder_id == holder_id


def secret_of(request: HttpRequest) -> str:
    """Return the text of the key that a request carries, or raise `Unauthenticated`."""
    kind, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    secret = secret.strip(" ")
    if kind.lower() != "bearer" or not 1 <= len(secret) <= 255 or not secret.isascii():
        raise Unauthenticated
    return str(secret)


def ensure_scope(key: Key, scope: str) -> None:
    """Return if the key carries the scope, or raise `ScopeMissing`."""
    if not key.may(scope):
        raise ScopeMissing(scope=scope)


def ensure_sees(key: Key, holder_id: str) -> None:
    """Return if the holder is within the key's confines, or raise `NotFound`, as for a path that does not exist."""
    if not key.sees(holder_id):
        raise NotFound


# Looking keys up -------------------------------------------------------------------------------------

_cache: dict[bytes, tuple[float, Key]] = {}
_cache_lock = threading.Lock()


def forget_keys() -> None:
    """Make this process look every key up again."""
    with _cache_lock:
        _cache.clear()


def known_key(secret: str) -> Key | None:
    """Return the key of that text, if this process has looked it up a moment ago."""
    cached = _cache.get(_digest(secret))
    return cached[1] if cached is not None and time.monotonic() < cached[0] else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _look_up(secrets: Sequence[str]) -> list[Key | Unauthenticated]:
    found = {secret: _looked_up(secret) for secret in set(secrets)}
    return [found[secret] or Unauthenticated() for secret in secrets]


def _looked_up(secret: str) -> Key | None:
    found = services.find_api_key(secret)
    if found is None:  # not remembered: whoever guesses keys must not fill the memory
        return None
    key = Key(digest=_digest(secret), name=found.name, scopes=frozenset(found.scopes), holder_id=found.holder_id or None)
    with _cache_lock:
        if len(_cache) >= _CACHED_KEYS_LIMIT:
            _cache.clear()
        _cache[key.digest] = (time.monotonic() + CACHED_FOR_SECONDS, key)
    return key


LOOKUPS = Queue("ledger-keys", _look_up, most=lambda: 32)
"""Where texts of keys wait to be looked up; its outcomes are a `Key` or `Unauthenticated`."""
