"""Limits how often one address may log in at one process, so that somebody who guesses passwords takes little CPU from it.

The login page takes as much CPU as ten spends, and the hash of a password as much as some hundred, on purpose. Other pages have
no limit. A limit over all processes belongs to the proxy in front, as in deploy/nginx.
"""

import asyncio
import time
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from ledger.rest.kit.request_errors import TooManyRequests

REQUESTS_PER_SECOND = 0.2
"""How often an address may request the login page or log in, in the long run: a guess in ten seconds."""
REQUESTS_AT_ONCE = 20
"""How many of these requests an address may make before that, such as several operators of one office in the morning."""
REFUSAL_PAUSE_S = 1.0
"""How long a refusal waits, without a thread: a client that repeats at once waits longer."""
REFUSALS_PAUSED = 1024
"""How many refusals wait at the same time; further ones are sent at once, which costs less than keeping them."""
ADDRESSES_LIMIT = 4096
IPV6_PREFIX = 64
"""One customer of a provider has this many IPv6 addresses: they count as one."""


class LoginLimit:
    """The limit of one process. All of it runs in the event loop."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        """When each address will have all its requests again; the addresses with the latest requests are last."""
        self._paused = 0

    async def admit(self, address: str) -> None:
        """Count a request of this address, or raise `TooManyRequests` after a pause."""
        name, now = _network(address), time.monotonic()
        free_at = max(now, self._free_at.pop(name, now)) + 1 / REQUESTS_PER_SECOND
        late_s = free_at - now - REQUESTS_AT_ONCE / REQUESTS_PER_SECOND
        if late_s > 0:
            self._free_at[name] = free_at - 1 / REQUESTS_PER_SECOND
            await self._pause()
            raise TooManyRequests(retry_after_seconds=ceil(late_s))
        self._free_at[name] = free_at
        if len(self._free_at) > ADDRESSES_LIMIT:
            del self._free_at[next(iter(self._free_at))]

    async def _pause(self) -> None:
        if self._paused < REFUSALS_PAUSED:
            self._paused += 1
            try:
                await asyncio.sleep(REFUSAL_PAUSE_S)
            finally:
                self._paused -= 1


@lru_cache(ADDRESSES_LIMIT)
def _network(address: str) -> str:
    """The name under which an address is counted."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    is_ipv6 = isinstance(known, IPv6Address) and known.ipv4_mapped is None
    return str(ip_network((known, IPV6_PREFIX), strict=False)) if is_ipv6 else address
