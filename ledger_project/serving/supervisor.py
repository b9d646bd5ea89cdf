"""Keeps the processes of `manage.py serve` running: starts web server, worker and embedded PostgreSQL again whenever they end.

While PostgreSQL cannot run, as on a full disk, the web server responds with 503, and this module tries to start it.
Does not load Django.
"""

import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from ledger_project.serving.postgres.errors import EmbeddedPostgresError
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.timetable_worker import TimetableWorker
from ledger_project.serving.web import SHUTDOWN_TIMEOUT_S


class Stop(BaseException):
    """The process received SIGINT, SIGTERM or SIGHUP."""


class Signals:
    """Raises `Stop` at the first SIGINT, SIGTERM or SIGHUP; a second one does not interrupt the stop."""

    def __init__(self) -> None:
        """Listen from now on."""
        self.came = False
        self.is_held_back = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._receive)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """For the block, signals interrupt nothing, such as the stop of a server; raise `Stop` afterwards if one came."""
        self.is_held_back, came_before = True, self.came
        yield
        self.is_held_back = False
        if self.came and not came_before:
            raise Stop

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_first, self.came = not self.came, True
        if is_first and not self.is_held_back:
            raise Stop


# Web server and database -----------------------------------------------------------------------------

LOOK_EVERY_S = 0.5
LONGEST_PAUSE_S = 10.0
SETTLED_AFTER_S = 10.0
"""A web server that ended sooner than this after its start counts as a failed start."""
FAILED_STARTS_LIMIT = 5

log = logging.getLogger(__name__)


class WebServerDoesNotStay(Exception):
    """The web server ended shortly after each of its first starts; starting it once more would not help."""


class WebServer:
    """The web server's main process and its workers, in one process group."""

    def __init__(self, command: list[str], *, environment: Mapping[str, str], folder: Path) -> None:
        """Start it.

        Args:
            command: its program with arguments; environment: all of its environment variables; folder: its working directory.
        """
        self._command = command
        self._environment = environment
        self._folder = folder
        self._failed_starts = 0
        self._has_come_up = False
        self._start()

    def _start(self) -> None:
        self._started_at = monotonic()
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, process_group=0
        )

    @property
    def pid(self) -> int:
        """The main process."""
        return self._process.pid

    def ended(self, *, within_s: float) -> int | None:
        """Wait a while for the main process to end; return its exit code, negative for a signal, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=within_s)
        return None

    def restart(self) -> None:
        """End it, if it runs, and start it again."""
        self.stop()
        self._start()

    def restart_ended(self) -> None:
        """Start it again after it ended by itself, with a pause that grows with each start that failed.

        One that once ran is never given up: what ends it now, such as a machine that is short of memory, may pass.

        Raises:
            WebServerDoesNotStay: its first `FAILED_STARTS_LIMIT` starts have failed; nothing runs.
        """
        has_come_up = monotonic() - self._started_at >= SETTLED_AFTER_S
        self._has_come_up = self._has_come_up or has_come_up
        self._failed_starts = 0 if has_come_up else self._failed_starts + 1
        self.stop()
        if self._failed_starts >= FAILED_STARTS_LIMIT and not self._has_come_up:
            raise WebServerDoesNotStay
        sleep(_pause_s(self._failed_starts - 1))
        self._start()

    def stop(self) -> None:
        """End it: requests that it has received may finish, then the rest of the process group is killed."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=SHUTDOWN_TIMEOUT_S + 2)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Database:
    """The embedded server, started again whenever it has ended."""

    def __init__(self, server: Server) -> None:
        """Supervise a running server."""
        self._server = server
        self._address = server.application_url
        self._failures = 0
        self._next_start_at = 0.0

    def ensure_running(self) -> bool:
        """Start it if it has ended and a start is due; a failed start, as on a full disk, is logged and not raised.

        Returns:
            True if it started at another address than before, so that clients must look it up again.
        """
        if self._server.is_running() or monotonic() < self._next_start_at:
            return False
        if not self._failures:
            log.warning("PostgreSQL has ended; starting it again.")
        try:
            self._server.start()
        except (EmbeddedPostgresError, OSError) as error:
            self._put_off(error)
            return False
        if self._failures:
            log.warning("PostgreSQL runs again.")
        self._failures = 0
        before, self._address = self._address, self._server.application_url
        return before != self._address

    def _put_off(self, error: Exception) -> None:
        if not self._failures:
            log.error("PostgreSQL does not start. Requests get 503; it is tried every %d s. %s", LONGEST_PAUSE_S, error)
        self._next_start_at = monotonic() + _pause_s(self._failures)
        self._failures += 1


def keep_running(web: WebServer, database: Database | None, worker: TimetableWorker | None) -> None:
    """Restart ended processes, for ever: a signal, or a web server that has never come up, ends this by an exception.

    Raises:
        WebServerDoesNotStay: see `WebServer.restart_ended`.
    """
    while True:
        exit_code = web.ended(within_s=LOOK_EVERY_S)
        if exit_code is not None:
            log.error("The web server has ended with %d; starting it again.", exit_code)
            web.restart_ended()
        if database is not None and database.ensure_running():
            # Its workers know the old address.
            web.restart()
        if worker is not None:
            worker.ensure_running()


def _pause_s(failures_before: int) -> float:
    """Return the pause before the next try: 0 at first, then 1, 2, 4, … seconds."""
    return 0.0 if failures_before < 0 else min(2.0**failures_before, LONGEST_PAUSE_S)
