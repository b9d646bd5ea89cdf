"""Passwords are hashed one at a time in each process, at low priority.

One hash takes a third of a second of CPU, because it is meant to be slow. So a single thread of the process does it, with
lower priority than the others. `ledger.api.kit.front.page_budget` bounds how often strangers may try.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import thread_time
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from ledger.api.kit.front.page_budget import add_work

NICENESS = 10
"""How much the priority is lowered: beside busy threads, the hashing thread gets a tenth of a processor."""
LOWEST = 19


def _lower_priority() -> None:
    """Lower the priority of this thread; do nothing if the system has no priorities of threads."""
    if sys.platform == "linux":
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(LOWEST, usual + NICENESS))


_hashing = ThreadPoolExecutor(1, thread_name_prefix="password-hashing", initializer=_lower_priority)


class LowPriorityHasher(PBKDF2PasswordHasher):
    """Django's own hasher, run in the one hashing thread, with the same results. PASSWORD_HASHERS."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Return the hash, after the hashes of earlier calls."""
        hashed, seconds = _hashing.submit(_timed, super().encode, password, salt, iterations).result()
        add_work(seconds)
        return hashed


def _timed(work: Callable[..., str], *arguments: Any) -> tuple[str, float]:
    """Return the result of the work, and the CPU seconds that this thread took."""
    begun = thread_time()
    return work(*arguments), thread_time() - begun
