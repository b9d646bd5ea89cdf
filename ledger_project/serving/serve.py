"""`manage.py serve`, behind `make run`: PostgreSQL unless one is given, a prepared database, web server and worker.

Everything starts in one straight line. The web server comes first: it takes long to load, on another core, and its workers
answer only once the database is prepared. This process loads Django after PostgreSQL has started.

They also end together. Ctrl-C reaches only this process, because the web server has a separate process group and PostgreSQL a
separate session; so this process stops them in order, the worker and the web server first. If this process is killed, the kernel
tells these two to stop, and the next `serve` takes over a database that still runs.
"""

import errno
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ledger_project.serving import supervisor, timetable_worker
from ledger_project.serving.loopback import also_on_ipv6
from ledger_project.serving.postgres import credentials
from ledger_project.serving.postgres.credentials import free_port
from ledger_project.serving.postgres.errors import EmbeddedPostgresError
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.steps import step
from ledger_project.serving.supervisor import Signals, Stop, WebServer
from ledger_project.serving.web import (
    BASE_DIR,
    PROGRAM,
    SERVED_BY,
    SHUTDOWN_TIMEOUT_S,
    held_back_until_prepared,
    ports_from_environment,
)

if TYPE_CHECKING:
    from ledger_project.serving.bootstrap import Secrets

HOST = "127.0.0.1"
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
SERVES = "LEDGER_SERVES_DATA_DIR"
"""The variable in the environment of our web processes that names the owner, in case they outlive us."""


class StartRefused(Exception):
    """`serve` cannot start like this; the message says what to do."""


def main() -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return the exit code: 0, or 1 if it cannot start like this."""
    try:
        serve(credentials.data_dir_from_environment())
    except (StartRefused, EmbeddedPostgresError) as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        sys.stderr.write(
            f"serve cannot use the data folder {credentials.data_dir_from_environment()}: {error}. "
            "Make room or give it the right to write, or set LEDGER_DATA_DIR to another folder.\n"
        )
        return 1
    except supervisor.WebServerDoesNotStay:
        sys.stderr.write("The web server does not stay up; see its output above.\n")
        return 1
    sys.stdout.write("Stopped.\n")
    return 0


def serve(data_dir: Path) -> None:
    """Start everything, keep it running until a signal comes, stop everything.

    Raises:
        StartRefused: another `serve` runs, another program uses the port, or the database may not be used like this.
        EmbeddedPostgresError: PostgreSQL cannot be started.
        WebServerDoesNotStay: see `supervisor.keep_running`.
    """
    if refusal := refusal_of_bootstrap_key():
        raise StartRefused(refusal)
    has_timetable = _has_timetable()
    signals = Signals()
    server = None if os.environ.get("DATABASE_URL") else Server(data_dir)
    with suppress(Stop), _only_one_of_us(data_dir):
        _end_stale_web_processes(data_dir)
        port, pages_port = _free_ports()
        with (
            _stopped_at_the_end(server, signals),
            held_back_until_prepared(data_dir / "preparing.lock") as gate,
            _web_server(data_dir, port, pages_port, signals) as web,
            also_on_ipv6(port),
            also_on_ipv6(pages_port),
        ):
            with gate:
                if server is not None:
                    with step("Starting PostgreSQL", "PostgreSQL has started"), signals.held_back():
                        server.start()
                with step("Preparing the database", "The database is ready"):
                    made = _prepare(server)
                _announce(made, port, pages_port)
            with _worker(data_dir, signals) if has_timetable else nullcontext() as worker:
                supervisor.keep_running(web, None if server is None else supervisor.Database(server), worker)


def _prepare(server: Server | None) -> "Secrets":
    """Load Django and prepare the database."""
    import django

    django.setup()
    from ledger_project.serving import bootstrap

    try:
        return bootstrap.prepare(server)
    except bootstrap.NotPrepared as error:
        raise StartRefused(str(error)) from error


def _announce(made: "Secrets", port: int, pages_port: int) -> None:
    pages = f"http://{HOST}:{pages_port}"
    lines = [f"REST      http://{HOST}:{port}/v1/", f"Docs      {pages}/docs", f"Admin     {pages}/admin/"]
    if made.admin_password:
        lines.append(f"Login     {made.operator} / {made.admin_password}    (shown once)")
    else:
        lines.append(f"Login     lost the password? {sys.executable} manage.py changepassword {made.operator}")
    if made.api_key:
        lines.append(f"API key   {made.api_key}    (shown once)")
    elif made.takes_keys and not os.environ.get("LEDGER_BOOTSTRAP_API_KEY"):
        lines.append("API key   lost the key? Make another one in the admin: API keys, Add")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


# Before anything starts ------------------------------------------------------------------------------


def refusal_of_bootstrap_key() -> str:
    """Return why LEDGER_BOOTSTRAP_API_KEY cannot be a key, or an empty text if it can, or is not set."""
    given = os.environ.get("LEDGER_BOOTSTRAP_API_KEY", "")
    if not given:
        return ""
    from ledger.values import MIN_KEY_CHARACTERS

    if len(given) >= MIN_KEY_CHARACTERS:
        return ""
    return f"LEDGER_BOOTSTRAP_API_KEY has {len(given)} characters: a key needs at least {MIN_KEY_CHARACTERS}."


def _has_timetable() -> bool:
    """Return whether to start a worker of the timetable."""
    try:
        return timetable_worker.is_wanted()
    except ValueError as error:
        raise StartRefused(str(error)) from None


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


def _free_ports() -> tuple[int, int]:
    """Return the ports of calls and of pages; raise an exception if another program uses one that the environment names.

    If it names none for pages, that is the next one, or any other free port.
    """
    try:
        port, pages_port = ports_from_environment()
    except ValueError as error:
        raise StartRefused(str(error)) from None
    _ensure_free(port, "PORT")
    if port != pages_port:
        try:
            _ensure_free(pages_port, "LEDGER_PAGES_PORT")
        except StartRefused:
            if os.environ.get("LEDGER_PAGES_PORT"):
                raise
            pages_port = free_port()
    return port, pages_port


def _ensure_free(port: int, variable: str) -> None:
    """Raise an exception if another program uses the port that this variable of the environment names."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise StartRefused(
                f"Port {port} is not available ({error.strerror}). Choose another: make run {variable}=8010"
            ) from None
        except OverflowError:
            raise StartRefused(f"{variable} is {port}: use 1 to 65535.") from None


def _end_stale_web_processes(data_dir: Path) -> None:
    """End web processes that outlived an earlier `serve` of this data directory; we hold its lock, so no other `serve` owns them.

    A mark in their environment identifies them, never their number or name. See Note [Whose process is it].
    """
    mark = f"{SERVES}={data_dir.resolve()}".encode()
    deadline = monotonic() + SHUTDOWN_TIMEOUT_S
    while stale := _marked_processes(mark):
        for pid in stale:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if monotonic() < deadline else signal.SIGKILL)
        sleep(0.1)


def _marked_processes(mark: bytes) -> list[int]:
    marked_processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                marked_processes.append(int(entry.name))
    return marked_processes


# Servers that start, and stop at the end -------------------------------------------------------------


@contextmanager
def _stopped_at_the_end(server: Server | None, signals: Signals) -> Iterator[None]:
    """Stop the embedded server after the block, whether it came up or failed."""
    if server is not None:
        # Makes them now, because a web process that reads the settings would wait for them until the server exists.
        server.credentials  # noqa: B018 - makes server.json
        credentials.secret_key(server.data_dir)
    try:
        yield
    finally:
        if server is not None:
            with signals.held_back():
                server.stop()


@contextmanager
def _web_server(data_dir: Path, port: int, pages_port: int, signals: Signals) -> Iterator[WebServer]:
    """For the block, the web server runs in a separate process group, which ends with the block."""
    os.environ.setdefault("LEDGER_METRICS_TOKEN", credentials.metrics_token(data_dir))
    os.environ.setdefault("LEDGER_METRICS_DIR", str(data_dir / "metrics"))
    # It works in the project's folder, whatever folder we were called from.
    os.environ |= {"LEDGER_HOST": HOST, "PORT": str(port), "LEDGER_PAGES_PORT": str(pages_port), "LEDGER_DATA_DIR": str(data_dir)}
    web = WebServer(PROGRAM, environment=os.environ | _marks(data_dir), folder=BASE_DIR)
    try:
        yield web
    finally:
        with signals.held_back():
            web.stop()


@contextmanager
def _worker(data_dir: Path, signals: Signals) -> Iterator[timetable_worker.TimetableWorker]:
    """For the block, a process runs the tasks of the timetable; it logs what fails, unless the environment sets a level."""
    environment = {"LEDGER_LOG_LEVEL": "WARNING"} | os.environ | _marks(data_dir)
    worker = timetable_worker.TimetableWorker(environment=environment, folder=BASE_DIR)
    try:
        yield worker
    finally:
        with signals.held_back():
            worker.stop()


def _marks(data_dir: Path) -> dict[str, str]:
    """Return the variables about us in the environment of our processes."""
    return {SERVES: str(data_dir.resolve()), SERVED_BY: str(os.getpid())}
