"""Limits of one API key in one process: requests a second, and requests at the same time.

The key's own limits, or else the settings KEY_REQUESTS_PER_SECOND and KEY_CONCURRENT_REQUESTS; 0 is no limit. They protect a
process from a runaway client; a limit over all processes belongs to the proxy in front. By default one key takes half of the room
that a process has for requests that wait, however many it sends.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf

from ledger import conf
from ledger.rest.kit.authentication import Key
from ledger.rest.kit.request_errors import TooManyRequests

_KEYS_LIMIT = 4096
_UNLIMITED = nullcontext()


@dataclass(slots=True)
class _Use:
    tokens: float
    """What is in the bucket; more than it can hold until a request is counted by its rate."""
    counted_at: float
    running: int = 0


_uses: dict[str, _Use] = {}
"""By the name of the key."""
_lock = threading.Lock()


def admitted(key: Key) -> AbstractContextManager[None]:
    """Run the block as one of the key's requests, or raise `TooManyRequests` and run nothing."""
    per_second = key.requests_per_second or conf.KEY_REQUESTS_PER_SECOND.value
    at_once = key.concurrent_requests or conf.KEY_CONCURRENT_REQUESTS.value
    return _count_request(key, per_second, at_once) if per_second or at_once else _UNLIMITED


@contextmanager
def _count_request(key: Key, per_second: float, at_once: int) -> Iterator[None]:
    use = _enter(key, per_second, at_once)
    try:
        yield
    finally:
        with _lock:
            use.running -= 1


def _enter(key: Key, per_second: float, at_once: int) -> _Use:
    """Count a request. The bucket holds one second's worth of requests, and at least one."""
    now = time.monotonic()
    with _lock:
        use = _use_of(key, now)
        if at_once and use.running >= at_once:
            raise TooManyRequests(retry_after_seconds=1)
        if per_second:
            use.tokens = min(max(per_second, 1.0), use.tokens + (now - use.counted_at) * per_second)
            use.counted_at = now
            if use.tokens < 1.0:
                raise TooManyRequests(retry_after_seconds=int((1.0 - use.tokens) / per_second) + 1)
            use.tokens -= 1.0
        use.running += 1
        return use


def _use_of(key: Key, now: float) -> _Use:
    use = _uses.get(key.name)
    if use is None:
        if len(_uses) >= _KEYS_LIMIT:
            for name in [name for name, other in _uses.items() if not other.running]:
                del _uses[name]
        use = _uses[key.name] = _Use(tokens=inf, counted_at=now)
    return use
