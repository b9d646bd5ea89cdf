"""The worker of `manage.py serve`: a process that runs the timetable at a low priority, and that ends with its parent."""

import logging
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from ledger_project.processes import end_with
from ledger_project.serving.web import BASE_DIR, SERVED_BY

NICENESS = 10
"""Web processes and the database have priority."""
STOP_TIMEOUT_S = 10.0
LONGEST_PAUSE_S = 60.0

WORKERS = "LEDGER_TIMETABLE_WORKERS"

log = logging.getLogger(__name__)


def is_wanted() -> bool:
    """Return False if LEDGER_TIMETABLE_WORKERS is 0: the timetable is run elsewhere, by `manage.py work`, or not at all.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    given = os.environ.get(WORKERS) or "1"
    if given not in ("0", "1"):
        raise ValueError(f"{WORKERS} is {given!r}: use 1, or 0 for none. More of them run as `manage.py work`.")
    return given == "1"


class TimetableWorker:
    """`manage.py work` in a separate process group, started again whenever it has ended."""

    def __init__(self, *, environment: Mapping[str, str], folder: Path) -> None:
        """Start it.

        Args:
            environment: all of its environment variables; folder: its working directory.
        """
        self._environment = environment
        self._folder = folder
        self._ends = 0
        self._next_start_at = 0.0
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "ledger_project.serving.timetable_worker"]
        return subprocess.Popen(command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, process_group=0)

    def ensure_running(self) -> None:
        """Start it again if it has ended, as without a database, and a start is due; the pauses grow."""
        if self._process.poll() is None:
            return
        if not self._next_start_at:
            self._ends += 1
            self._next_start_at = monotonic() + min(2.0**self._ends, LONGEST_PAUSE_S)
            log.error("The worker has ended with %d; starting it again.", self._process.returncode)
        elif monotonic() >= self._next_start_at:
            self._next_start_at = 0.0
            self._process = self._start()

    def stop(self) -> None:
        """End it: it first finishes its present subscription or account, within a limited time."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main() -> None:
    """Run the timetable until SIGTERM, or until the process that started this one has ended."""
    end_with(int(os.environ[SERVED_BY]))
    os.nice(NICENESS)
    sys.argv = [str(BASE_DIR / "manage.py"), "work"]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
