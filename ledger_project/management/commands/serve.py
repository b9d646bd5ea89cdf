"""`manage.py serve`, behind `make run`: PostgreSQL if none is given, a prepared database, and the web server, as one thing.

It ends as one thing too. Ctrl-C reaches only this process: the web server has a process group and PostgreSQL a session of its
own, so that each is stopped in order, the web server first. If this process is killed, the kernel tells the web server to
stop, and the next `serve` takes over a database that still runs.
"""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections
from django.db.utils import OperationalError, ProgrammingError

from ledger.checks import verify_database
from ledger.errors import Invalid, UnsafeDatabase
from ledger_project import embedded_postgres, web_server
from ledger_project.first_start import OPERATOR, Secrets, furnish
from ledger_project.preparation import NotTheOwner, connected_as_owner, prepare_database, use_database
from ledger_project.start_guard import web_processes_held_back

HOST = "127.0.0.1"
SERVES = "LEDGER_SERVES_DATA_DIR"
"""In the environment of our web processes: says whose they are, should they outlive us."""


class Stop(BaseException):
    """SIGINT, SIGTERM or SIGHUP came."""


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
        """For the block, nothing is interrupted, such as a server that is just being started; then `Stop` if one came."""
        self.is_held_back, came_before = True, self.came
        yield
        self.is_held_back = False
        if self.came and not came_before:
            raise Stop

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_first, self.came = not self.came, True
        if is_first and not self.is_held_back:
            raise Stop


class Command(BaseCommand):
    """Start everything, serve until a signal comes, stop everything."""

    help = "Start PostgreSQL when DATABASE_URL is not set, prepare the database, and serve on 127.0.0.1:$PORT (8000)."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP."""
        self.signals = Signals()
        port = int(os.environ.get("PORT") or 8000)
        with suppress(Stop), _only_one_of_us(settings.DATA_DIR):
            _end_stale_web_processes(settings.DATA_DIR)
            _ensure_free(port)
            # The web processes load the application while the database is prepared and furnished: a second on another core.
            # They look at it, and answer, only afterwards.
            with (
                self._database() as server,
                web_processes_held_back(settings.DATA_DIR / "preparing.lock") as gate,
                _web_process(port, self.signals) as web,
            ):
                with gate:
                    self._prepare()
                    made = self._furnish()
                    verify_database(connection, needs_lock_timeout=True)
                    connections.close_all()
                    self._announce(made, port)
                self._watch(web, server)
        self.stdout.write("Stopped.")

    # The database

    @contextmanager
    def _database(self) -> Iterator[embedded_postgres.Server | None]:
        """For the block, the embedded server runs, unless DATABASE_URL names another."""
        if os.environ.get("DATABASE_URL"):
            yield None
            return
        server = embedded_postgres.Server(settings.DATA_DIR)
        try:
            with self.signals.held_back():
                server.start()
            # The port may have changed since the settings were read.
            os.environ["DATABASE_URL"] = server.application_url
            settings.OWNER_DATABASE_URL = server.owner_url
            use_database(server.application_url)
            yield server
        except embedded_postgres.EmbeddedPostgresError as error:
            raise CommandError(str(error)) from error
        finally:
            with self.signals.held_back():
                server.stop()

    def _prepare(self) -> None:
        try:
            with connected_as_owner() as owner:
                prepare_database(owner, verbosity=0)
        except NotTheOwner as error:
            # Right where the owner has prepared it already. Where not, the next step says what is missing.
            self.stderr.write(f"Not prepared, because this is not the owner's role ({error}); see LEDGER_OWNER_DATABASE_URL.")
        except OperationalError as error:
            raise CommandError(f"The database cannot be reached: {error}") from error
        except UnsafeDatabase as error:
            raise CommandError(f"Refused to serve on this database: {error}") from error

    def _furnish(self) -> Secrets:
        try:
            return furnish()
        except Invalid as error:
            raise CommandError(f"LEDGER_BOOTSTRAP_API_KEY {error.facts['detail']}") from error
        except ProgrammingError as error:
            raise CommandError(
                f"This database was not prepared: run `manage.py prepare_database` as its owner. {error}"
            ) from error

    # What the operator sees

    def _announce(self, made: Secrets, port: int) -> None:
        address = f"http://{HOST}:{port}"
        lines = [f"REST      {address}/v1/", f"Docs      {address}/docs", f"Admin     {address}/admin/"]
        if made.admin_password:
            lines.append(f"Login     {OPERATOR} / {made.admin_password}    (shown once)")
        if made.api_key:
            lines.append(f"API key   {made.api_key}    (shown once)")
        self.stdout.write("\n".join(lines))
        self.stdout.flush()

    def _watch(self, web: "subprocess.Popen[bytes]", server: embedded_postgres.Server | None) -> None:
        """Wait until the web server ends, which is an error; start PostgreSQL again should it have died."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                raise CommandError(f"The web server ended by itself, with {web.wait(timeout=1)}.")
            if server and not server.is_running():
                self.stderr.write("PostgreSQL died; starting it again.")
                server.start()


@contextmanager
def _only_one_of_us(data_dir: Path) -> Iterator[None]:
    """Refuse a second `serve` on the same data directory. The lock ends with the process, however that ends."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "serve.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"Another `serve` uses {data_dir}. Stop it, or set LEDGER_DATA_DIR and PORT.") from None
        yield


def _ensure_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"Port {port} is not to be had ({error.strerror}). Choose another: make run PORT=8001") from None


# The web server --------------------------------------------------------------------------------------


@contextmanager
def _web_process(port: int, signals: Signals) -> Iterator["subprocess.Popen[bytes]"]:
    """For the block, the web server runs in a process group of its own, which is gone afterwards."""
    os.environ |= {"LEDGER_HOST": HOST, "PORT": str(port), SERVES: str(settings.DATA_DIR.resolve())}
    try:
        command = web_server.command_from_environment()
    except ValueError as error:
        raise CommandError(str(error)) from error
    web = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=web_server.end_with_parent)  # noqa: PLW1509
    try:
        yield web
    finally:
        with signals.held_back():
            web.terminate()
            with suppress(subprocess.TimeoutExpired):
                web.wait(timeout=web_server.SHUTDOWN_TIMEOUT_S + 2)
            with suppress(ProcessLookupError):
                os.killpg(web.pid, signal.SIGKILL)
            web.wait()


def _end_stale_web_processes(data_dir: Path) -> None:
    """End web processes that outlived an earlier `serve` of this data directory; we hold its lock, so they are nobody's.

    They are known by the mark in their environment, never by number or name. See Note [Whose process is it].
    """
    mark = f"{SERVES}={data_dir.resolve()}".encode()
    deadline = time.monotonic() + web_server.SHUTDOWN_TIMEOUT_S
    while stale := _marked_processes(mark):
        for pid in stale:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.1)


def _marked_processes(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
