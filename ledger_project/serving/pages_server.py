"""The server for pages, for the processes of both servers: whether it listens yet, and its lower priority."""

import os
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

NICENESS = 10
ADDRESS, IS_FOR_PAGES = "LEDGER_PAGES_LISTEN_ON", "LEDGER_IS_FOR_PAGES"
"""In the environment of both servers: the host and port of the one for pages; and in the environment of that one."""
LONGEST_WAIT_S = 10.0


def serves_pages() -> bool:
    """Return whether this process responds with pages: not if another server does, to which calls alone come here."""
    return ADDRESS not in os.environ or IS_FOR_PAGES in os.environ


@cache
def wait_until_listening() -> None:
    """Return once the server for pages listens, at once if it is elsewhere: at a start, calls may be served a moment earlier."""
    if ADDRESS not in os.environ:
        return
    host, port = os.environ[ADDRESS].split()
    until = monotonic() + LONGEST_WAIT_S
    while not _is_listening(host, int(port)) and monotonic() < until:
        sleep(0.02)


def _is_listening(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def step_back_when_started() -> None:
    """In a worker for pages, lower the priority of the process once it listens: a low priority would make the start slow."""
    if IS_FOR_PAGES in os.environ:
        Thread(target=_step_back, daemon=True).start()


def _step_back() -> None:
    """Lower the priority of all threads of this process; those that they start later have it too."""
    wait_until_listening()
    threads = [int(task.name) for task in Path("/proc/self/task").iterdir()] if sys.platform == "linux" else [0]
    for thread in threads:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
