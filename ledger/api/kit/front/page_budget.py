"""Limits what pages for visitors who are not logged in cost: CPU seconds per address, one page at a time.

To render the login page takes as long as ten spends, and to hash a password as long as some hundred, on purpose. The price of a
page is the CPU that it took, so no list of expensive paths has to be kept. An address that has used its budget up is asked to
come back, which the event loop does without a thread, and slowly: who asks again at once waits longer.

The budget belongs to a process. It is not asked for sessions that were seen to belong to an operator. A limit over all processes
belongs to the proxy in front, as in deploy/nginx.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from ledger.api.kit.request_errors import TooManyRequests
from ledger.database.load.queues import PATIENCE_SECONDS

PER_ADDRESS_S_PER_S = 0.03
"""CPU seconds that an address gets each second: a guess in ten seconds, or two pages a second."""
ADDRESS_SAVINGS_S = 1.0
"""The most that an address can save: enough for the login page with its files, and for one or two wrong passwords."""
OVERALL_S_PER_S = 0.2
"""What all addresses get together. Beyond it, only addresses with more than half of their savings left are served."""
OVERALL_SAVINGS_S = 4.0
LARGEST_PRICE_S = 0.5
"""The first page of a process loads the templates; no address pays for that."""
WAITING_PER_ADDRESS = 16
"""Requests of an address that wait for their turn; a browser asks for some files at a time."""
REFUSAL_PAUSE_S = 1.0
REFUSALS_PAUSED = 1024
"""How many refusals wait at the same time; further ones are sent at once, which costs less than keeping them."""
ADDRESSES_LIMIT = 4096
SESSIONS_LIMIT = 4096
IPV6_PREFIX = 64
"""One customer of a provider has this many IPv6 addresses: they count as one."""

_work = threading.local()


@contextmanager
def measured_work() -> Iterator[Callable[[], float]]:
    """For the block, give a function that says how many CPU seconds this thread, or another one for it, has worked in it."""
    _work.of_others_s = 0.0
    begun = time.thread_time()
    yield lambda: time.thread_time() - begun + _work.of_others_s


def add_work(seconds: float) -> None:
    """Count CPU seconds that another thread has worked for this one."""
    _work.of_others_s = getattr(_work, "of_others_s", 0.0) + seconds


class Savings:
    """CPU seconds that grow with time up to a bound, and become negative where a page took more than was left."""

    def __init__(self, bound_s: float, per_second: float, now: float) -> None:
        """Begin with full savings."""
        self._bound_s = bound_s
        self._per_second = per_second
        self._left_s = bound_s
        self._counted_at = now

    def left_s(self, now: float) -> float:
        """Return the savings at that instant."""
        self._left_s = min(self._bound_s, self._left_s + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        return self._left_s

    def pay(self, price_s: float, now: float) -> None:
        """Subtract the price of a page."""
        self._left_s = self.left_s(now) - price_s

    def wait_s(self, wanted_s: float, now: float) -> int:
        """Whole seconds until so much is left, one at least."""
        return max(1, ceil((wanted_s - self.left_s(now)) / self._per_second))


class _Address:
    """The savings of one address, and its waiting requests."""

    def __init__(self, now: float) -> None:
        self.savings = Savings(ADDRESS_SAVINGS_S, PER_ADDRESS_S_PER_S, now)
        self.turn = asyncio.Lock()
        self.waiting = 0


class PageBudget:
    """The budget of one process. All of it runs in the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Describe it.

        Args:
            clock: seconds, never going back.
        """
        self._clock = clock
        self._overall = Savings(OVERALL_SAVINGS_S, OVERALL_S_PER_S, clock())
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._operators: OrderedDict[str, None] = OrderedDict()
        self._paused = 0

    # Who is asked for nothing ------------------------------------------------------------------------

    def is_operator(self, session: str | None) -> bool:
        """True for a session that was logged in at its last page."""
        return session in self._operators

    def learn(self, session: str | None, *, is_operator: bool) -> None:
        """Remember whether a session turned out to be an operator's."""
        if not session:
            return
        self._operators.pop(session, None)
        if is_operator:
            self._operators[session] = None
            if len(self._operators) > SESSIONS_LIMIT:
                self._operators.popitem(last=False)

    # Everybody else ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[Callable[[float], None]]:
        """Run the block as the only one of its address, and give it what takes the price; or refuse after a pause.

        Raises:
            TooManyRequests: the address, or all together, have used up what they had, or too many wait; nothing was done.
        """
        found = self._address(_network(address))
        if found.waiting >= WAITING_PER_ADDRESS or not await self._is_turn_of(found):
            await self._refuse(1)
        try:
            wait_s = self._wait_s(found)
            if not wait_s:
                yield lambda price_s: self._pay(found, price_s)
        finally:
            found.turn.release()
        if wait_s:
            await self._refuse(wait_s)

    async def _is_turn_of(self, address: _Address) -> bool:
        """Wait for the turn; return False if it does not come in time."""
        address.waiting += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await address.turn.acquire()
        except TimeoutError:
            return False
        finally:
            address.waiting -= 1

    def _wait_s(self, address: _Address) -> int:
        """How long the address has to wait; 0 where it may ask now."""
        now = self._clock()
        is_overall_spent = self._overall.left_s(now) <= 0
        wanted_s = ADDRESS_SAVINGS_S / 2 if is_overall_spent else 0.0
        return 0 if address.savings.left_s(now) > wanted_s else address.savings.wait_s(wanted_s, now)

    def _pay(self, address: _Address, price_s: float) -> None:
        now = self._clock()
        for savings in (address.savings, self._overall):
            savings.pay(min(price_s, LARGEST_PRICE_S), now)

    async def _refuse(self, wait_s: int) -> None:
        if self._paused < REFUSALS_PAUSED:
            self._paused += 1
            try:
                await asyncio.sleep(REFUSAL_PAUSE_S)
            finally:
                self._paused -= 1
        raise TooManyRequests(retry_after_seconds=wait_s)

    def _address(self, name: str) -> _Address:
        """What is known of an address; those that were not heard of for longest are forgotten, which gives them new savings."""
        found = self._addresses.get(name)
        if found is None:
            if len(self._addresses) >= ADDRESSES_LIMIT:
                self._addresses.popitem(last=False)
            found = self._addresses[name] = _Address(self._clock())
        self._addresses.move_to_end(name)
        return found


@lru_cache(ADDRESSES_LIMIT)
def _network(address: str) -> str:
    """The name under which an address is counted."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if isinstance(known, IPv6Address) and known.ipv4_mapped is None:
        return str(ip_network((int(known), IPV6_PREFIX), strict=False))
    return address
