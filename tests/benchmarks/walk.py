"""The way of a spend through the files: `python -m tests.benchmarks.walk`.

Prints each call of a function of the project, in order, that one `POST …/spends` of a known key makes when it comes alone: in the
event loop, and in the committer's thread. Then how many calls there are, in how many files; how often the next call is in another
file than the one before (crossings), and how many of those come back to a file that was left (returns).
"""

import asyncio
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.benchmarks.server import ROOT, BenchmarkServer
from tests.benchmarks.where import OURS, asking

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

    @property
    def files(self) -> list[str]:
        """In the order of the calls, each as often as the walk comes to it."""
        files = [call.file for call in self.calls]
        return [file for place, file in enumerate(files) if place == 0 or file != files[place - 1]]


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
        for number in (0, 1_000):  # the first one looks the key up, and starts the threads
            walk.begin()
            spend(number)
            walk.end()
        calls, files = list(walk.calls), walk.files
        loop.run_until_complete(application.close())
        loop.close()
    finally:
        sys.setprofile(None)
        server.close()
    for call in calls:
        sys.stdout.write(f"{call.thread:20} {call.file:42} {call.function}\n")
    crossings = len(files) - 1
    distinct = len(set(files))
    sys.stdout.write(f"{len(calls)} calls, {distinct} files, {crossings} crossings, {crossings - distinct + 1} returns\n")


if __name__ == "__main__":
    main()
