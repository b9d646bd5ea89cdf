"""Starts what `manage.py serve` runs, keeps it running, and stops it.

PostgreSQL comes up while Django is loaded, each a second of its own: `manage.py` begins it, the command goes on with it; one
that is called otherwise begins it itself. Then the web server and the embedded PostgreSQL are started again whenever they
end. While PostgreSQL cannot run, as on a full disk, the web server answers 503; PostgreSQL is tried until it runs.
Knows no Django.
"""

import fcntl
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from ledger_project import embedded_postgres, web_server
from ledger_project.embedded_postgres import EmbeddedPostgresError, Server

HOST = "127.0.0.1"
SERVES = "LEDGER_SERVES_DATA_DIR"
"""In the environment of our web processes: says whose they are, should they outlive us."""


class Stop(BaseException):
    """SIGINT, SIGTERM or SIGHUP came."""


class StartRefused(Exception):
    """It cannot be started like this; the message says what to do."""


class Signals:
    """Turns the first SIGINT, SIGTERM or SIGHUP into `Stop`; an impatient second Ctrl-C must not leave anything running."""

    def __init__(self) -> None:
        """Listen from now on."""
        self.came = False
        self.is_held_back = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._receive)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """For the block, nothing is interrupted, such as a server that is just being stopped; then `Stop` if one came."""
        self.is_held_back, came_before = True, self.came
        yield
        self.is_held_back = False
        if self.came and not came_before:
            raise Stop

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_first, self.came = not self.came, True
        if is_first and not self.is_held_back:
            raise Stop


class EarlyStart:
    """One `serve` of a data directory, from its first moment: signals, the lock, the database."""

    def __init__(self, data_dir: Path, port: int) -> None:
        """Listen to signals, and nothing else yet."""
        self.data_dir = data_dir
        self.port = port
        self.signals = Signals()
        self._refusal: StartRefused | embedded_postgres.EmbeddedPostgresError | None = None
        self._coming: Future[embedded_postgres.Server] | None = None
        self._server: embedded_postgres.Server | None = None
        self._aside = ThreadPoolExecutor(1)
        self._stack = ExitStack()

    def begin(self) -> None:
        """Have the database come up by itself, unless DATABASE_URL names another; see `ensure_begun`."""
        try:
            self._stack.enter_context(_only_one_of_us(self.data_dir))
            _end_stale_web_processes(self.data_dir)
            _ensure_free(self.port)
            if not os.environ.get("DATABASE_URL"):
                self._begin_database()
        except (StartRefused, embedded_postgres.EmbeddedPostgresError) as refusal:
            self._refusal = refusal

    def _begin_database(self) -> None:
        server = embedded_postgres.Server(self.data_dir)
        # Made now, because whoever loads the settings meanwhile reads them, and would wait for the start.
        server.credentials  # noqa: B018 - makes server.json
        embedded_postgres.secret_key(self.data_dir)
        self._server = server
        self._coming = self._aside.submit(server.start)

    def ensure_begun(self) -> None:
        """Pass, or raise what was in the way; nothing was started then.

        Raises:
            StartRefused: another `serve` is here, or the port is taken.
            EmbeddedPostgresError: the data directory is somebody else's.
        """
        if self._refusal:
            raise self._refusal

    def database(self) -> embedded_postgres.Server | None:
        """Wait for the embedded server; None where another is used.

        Raises:
            EmbeddedPostgresError: it could not be started.
        """
        return None if self._coming is None else self._coming.result()

    def end(self) -> None:
        """Stop what was begun, once it is through beginning; safe to call twice."""
        server, self._server = self._server, None
        with self.signals.held_back(), self._stack:
            # Whether it came up or failed: what it left is stopped.
            self._aside.shutdown()
            if server is not None:
                server.stop()


_begun: dict[Path, EarlyStart] = {}
"""By data directory: what `manage.py` has begun."""


@contextmanager
def begun(data_dir: Path, port: int) -> Iterator[EarlyStart]:
    """For the block, what was begun for this data directory, or is begun now; then it is stopped."""
    earlier = _begun.get(data_dir)
    mine = earlier or EarlyStart(data_dir, port)
    try:
        if earlier is None:
            mine.begin()
            _begun[data_dir] = mine
        yield mine
    finally:
        _begun.pop(data_dir, None)
        mine.end()


@contextmanager
def begun_from_environment() -> Iterator[None]:
    """As `begun`, before there are settings; Django is loaded in the block. A signal ends the block, and this process well."""
    with suppress(Stop), begun(embedded_postgres.data_dir_from_environment(), web_server.port_from_environment()):
        yield


# What is looked at first -----------------------------------------------------------------------------


@contextmanager
def _only_one_of_us(data_dir: Path) -> Iterator[None]:
    """Refuse a second `serve` on the same data directory. The lock ends with the process, however that ends."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "serve.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartRefused(f"Another `serve` uses {data_dir}. Stop it, or set LEDGER_DATA_DIR and PORT.") from None
        yield


def _ensure_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise StartRefused(f"Port {port} is not to be had ({error.strerror}). Choose another: make run PORT=8001") from None


def _end_stale_web_processes(data_dir: Path) -> None:
    """End web processes that outlived an earlier `serve` of this data directory; we hold its lock, so they are nobody's.

    They are known by the mark in their environment, never by number or name. See Note [Whose process is it].
    """
    mark = f"{SERVES}={data_dir.resolve()}".encode()
    deadline = monotonic() + web_server.SHUTDOWN_TIMEOUT_S
    while stale := _marked_processes(mark):
        for pid in stale:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if monotonic() < deadline else signal.SIGKILL)
        sleep(0.1)


def _marked_processes(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


# What runs, and is started again ---------------------------------------------------------------------

LOOK_EVERY_S = 0.5
LONGEST_PAUSE_S = 10.0
SETTLED_AFTER_S = 10.0
"""A web server that ran for this long had come up; one that ended sooner counts as a failed start."""
FAILED_STARTS_LIMIT = 5

log = logging.getLogger(__name__)


class WebServerDoesNotStay(Exception):
    """The web server ended shortly after each of several starts; starting it once more would not help."""


class WebServer:
    """The web server's main process and its workers, in one process group."""

    def __init__(self, command: list[str], *, environment: Mapping[str, str], folder: Path) -> None:
        """Start it.

        Args:
            command: what to run; environment: all of its environment variables; folder: where it works.
        """
        self._command = command
        self._environment = environment
        self._folder = folder
        self._failed_starts = 0
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

        Raises:
            WebServerDoesNotStay: the last `FAILED_STARTS_LIMIT` starts have failed; nothing runs.
        """
        has_come_up = monotonic() - self._started_at >= SETTLED_AFTER_S
        self._failed_starts = 0 if has_come_up else self._failed_starts + 1
        self.stop()
        if self._failed_starts >= FAILED_STARTS_LIMIT:
            raise WebServerDoesNotStay
        sleep(_pause_s(self._failed_starts - 1))
        self._start()

    def stop(self) -> None:
        """End it: the requests that it has taken in may finish, then whatever is left of the group is killed."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=web_server.SHUTDOWN_TIMEOUT_S + 2)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Database:
    """The embedded server, which is started again for as long as it takes."""

    def __init__(self, server: Server) -> None:
        """Look after a server that runs now."""
        self._server = server
        self._address = server.application_url
        self._failures = 0
        self._next_start_at = 0.0

    def ensure_running(self) -> bool:
        """Start it if it has ended and a start is due; never raises for what a disk without room does.

        Returns:
            True when it came up at another address than before, so that whoever is connected must look it up again.
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
            log.error("PostgreSQL does not start. Requests are answered 503; it is tried every %d s. %s", LONGEST_PAUSE_S, error)
        self._next_start_at = monotonic() + _pause_s(self._failures)
        self._failures += 1


def keep_running(web: WebServer, database: Database | None) -> None:
    """Start again what ends, for ever: a signal, or a web server that does not stay, ends this by an exception.

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


def _pause_s(failures_before: int) -> float:
    """How long to wait before the next try: nothing at first, then 1, 2, 4, … seconds."""
    return 0.0 if failures_before < 0 else min(2.0**failures_before, LONGEST_PAUSE_S)
