"""The way of a spend through the files: `python -m tests.benchmarks.walk`.

Prints each call of a function of the project, in order, that one `POST …/spends` of a known key makes when it comes alone: in the
event loop, and in the committer's thread. Then how many calls there are, in how many files; how often the next call is in another
file than the one before (crossings), and how many of those come back to a file that was left (returns). The same again without
the files that only count and log. Of several spends it takes the one with the fewest calls, because what a process does every
quarter of a second is no part of a spend.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.benchmarks.server import ROOT, BenchmarkServer
from tests.benchmarks.where import OURS, asking

SPENDS = 8
COUNT_AND_LOG = (
    "ledger/rest/kit/front/request_log.py",
    "ledger/rest/kit/front/request_metrics.py",
    "ledger/services/operation_counts.py",
    "ledger_project/logs.py",
)
ROOMS = tuple(f"{ROOT}/{room}/" for room in ("ledger", "billing", "ledger_project"))


class Call(NamedTuple):
    """One call of a function of the project."""

    thread: str
    file: str
    function: str


class Walk:
    """What is called between `begin` and `end`, in all threads."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._is_on = False
        self._frames: set[FrameType] = set()
        """Known ones: a coroutine or generator that goes on is the same call."""

    def watch(self) -> None:
        """Watch this thread, and those that start from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def begin(self) -> None:
        """Record calls from now on."""
        self.calls.clear()
        self._frames.clear()
        self._is_on = True

    def end(self) -> None:
        """Record no more."""
        self._is_on = False

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call of a function of the project."""
        code = frame.f_code
        # A comprehension is part of the function that it is written in.
        if not (self._is_on and event == "call" and code.co_filename.startswith(ROOMS)) or code.co_name.startswith("<"):
            return
        if frame not in self._frames:
            self._frames.add(frame)
            file = str(Path(code.co_filename).relative_to(ROOT))
            self.calls.append(Call(threading.current_thread().name, file, code.co_qualname))


def summary(calls: Sequence[Call]) -> str:
    """Return how many calls there are, in how many files, with how many crossings and returns."""
    visited = [file for file, _ in groupby(call.file for call in calls)]
    crossings, files = len(visited) - 1, len(set(visited))
    return f"{len(calls)} calls, {files} files, {crossings} crossings, {crossings - files + 1} returns"


def main() -> None:
    """Print the calls and their numbers."""
    walk = Walk()
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-walk")
    try:
        server.grant_to_all("where-", 1)
        walk.watch()
        loop = asyncio.new_event_loop()
        from ledger_project.serving.application import application

        spend = asking(loop, "POST", OURS, status=201)
        spend(0)  # looks the key up, and starts the threads
        found = []
        for number in range(1_000, (1 + SPENDS) * 1_000, 1_000):
            walk.begin()
            spend(number)
            walk.end()
            found.append(list(walk.calls))
        calls = min(found, key=len)
        loop.run_until_complete(application.close())
        loop.close()
    finally:
        sys.setprofile(None)
        server.close()
    for call in calls:
        sys.stdout.write(f"{call.thread:20} {call.file:42} {call.function}\n")
    sys.stdout.write(f"{summary(calls)}\n")
    others = [call for call in calls if call.file not in COUNT_AND_LOG]
    sys.stdout.write(f"without those that only count and log: {summary(others)}\n")


if __name__ == "__main__":
    main()
