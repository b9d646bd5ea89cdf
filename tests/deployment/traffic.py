"""Clients that go on while servers are restarted one after the other, as behind a load balancer."""

import itertools
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Calls behind a load balancer of several servers: it sends no call to one that is being restarted.

    Args:
        send_call: sends the call of this number to the server of this URL; returns what failed, or nothing.
    """

    urls: list[str]
    send_call: Callable[[str, int], str]
    failures: list[str] = field(default_factory=list)
    count: int = 0
    """The calls that were answered."""
    slowest_s: float = 0.0
    _in_flight: Counter[str] = field(default_factory=Counter)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def send(self) -> None:
        """Send one call to a server that takes calls."""
        with self._guard:
            number = next(self._numbers)
            url = self.urls[number % len(self.urls)]
            self._in_flight[url] += 1
        begun = time.monotonic()
        try:
            failure = self.send_call(url, number)
        except (urllib.error.URLError, OSError) as error:
            failure = repr(error)
        with self._guard:
            self._in_flight[url] -= 1
            self.count += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            if failure:
                self.failures.append(failure)

    def take_out(self, url: str) -> None:
        """Send no further call to the server, and return when it has answered those that it has."""
        with self._guard:
            self.urls = [each for each in self.urls if each != url]
        wait_until(lambda: self._in_flight[url] == 0)

    def put_in(self, url: str) -> None:
        """Send calls to this server too."""
        with self._guard:
            self.urls = [*self.urls, url]

    def go_on(self, calls: int) -> None:
        """Return when this many further calls were answered."""
        until = self.count + calls
        wait_until(lambda: self.count >= until)


def wait_until(is_so: Callable[[], bool], timeout_s: float = 120) -> None:
    """Return when it is so, or fail after the time."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def running(work: Callable[[], None], count: int) -> Iterator[None]:
    """For the block, threads do the work again and again."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
