"""The web server: its program, its limits, and how a process becomes that program.

    python -m ledger_project.serving.web
    python -m ledger_project.serving.web granian ledger_project.asgi:application --interface asgi ...

Without arguments it is two servers, one for calls and one for pages, which has a lower priority. LEDGER_HOST, PORT,
LEDGER_WEB_WORKERS, LEDGER_PAGES_PORT and LEDGER_PAGES_WORKERS configure them. The process loads the applications before it forks
the servers and they their workers, so none of them need: that saves a second of CPU for each, and they share its memory
(docs/explanation/performance.md). It prepares and starts nothing else; `manage.py serve` does that.
"""

import atexit
import fcntl
import gc
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from ledger_project.processes import end_with
from ledger_project.serving import pages_server

BASE_DIR = Path(__file__).resolve().parents[2]

CALLS, PAGES = "ledger_project.asgi:calls", "ledger_project.asgi:application"
WORKERS, PAGES_WORKERS = 2, 1
CONNECTIONS_TO_DATABASE = 30
"""The most that a process opens: committer, keys, their use, balances in the loop and in a thread, 8 waiters, 17 threads,
/metrics (ADR 0020, 0037)."""
BACKLOG = 1024
CONNECTIONS = 8192
"""Open connections per process, slow and idle ones included: each costs some memory and no thread."""
HTTP1_BUFFER_BYTES = 64 * 1024
HEADER_TIMEOUT_MS = 10_000
SHUTDOWN_TIMEOUT_S = 5
COLLECT_EVERY = 10_000
"""The number of new objects after which the garbage collector of a worker looks for cycles among them."""
GRANIAN_LOG_CONFIG = Path(__file__).with_name("granian_log.json")
"""Sends the server's own log lines to the root logger; see `ledger_project.logs`."""

SERVED_BY = "LEDGER_SERVED_BY"
"""In the environment: the number of the process that started this one and with which it ends."""
COUNTS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""In the environment: where the package prometheus_client has each process count."""
PREPARED_WHEN_FREE = "LEDGER_PREPARED_WHEN_FREE"
"""In the environment of web processes that start before their database is prepared: the file that is locked until then."""
PROGRAM = [sys.executable, "-m", "ledger_project.serving.web"]
SERVER = "ledger_project.serving.granian_server"


def command(*, port: int, host: str = "127.0.0.1", workers: int = WORKERS, application: str = PAGES) -> list[str]:
    """Return the command line by which granian serves an application of `ledger_project.asgi`.

    Args:
        port: TCP port to listen on; host: the address.
        workers: processes; application: CALLS, or PAGES, which can do everything.
    """
    return [
        *PROGRAM, SERVER, application, "--interface", "asgi",
        "--host", host, "--port", str(port), "--workers", str(workers), "--loop", "uvloop",
        "--backlog", str(BACKLOG), "--backpressure", str(CONNECTIONS), "--http", "1", "--no-ws",
        "--http1-buffer-size", str(HTTP1_BUFFER_BYTES), "--http1-header-read-timeout", str(HEADER_TIMEOUT_MS),
        "--respawn-failed-workers", "--workers-kill-timeout", str(SHUTDOWN_TIMEOUT_S), "--working-dir", str(BASE_DIR),
        "--log-level", "error", "--log-config", str(GRANIAN_LOG_CONFIG),
    ]  # fmt: skip


def ports_from_environment() -> tuple[int, int]:
    """Return the ports of the environment, for calls and for pages; one port where no process is for calls alone.

    Raises:
        ValueError: a variable is not a number.
    """
    port = _number("PORT", 8000)
    return port, _number("LEDGER_PAGES_PORT", port + 1) if workers_from_environment()[0] else port


def workers_from_environment() -> tuple[int, int]:
    """Return the numbers of processes of the environment, for calls and for pages.

    Raises:
        ValueError: a variable is not a number, or both are 0.
    """
    workers = _number("LEDGER_WEB_WORKERS", WORKERS), _number("LEDGER_PAGES_WORKERS", PAGES_WORKERS)
    if min(workers) < 0 or not any(workers):
        raise ValueError("LEDGER_WEB_WORKERS and LEDGER_PAGES_WORKERS leave no process that serves.")
    return workers


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable} is not a number: {text!r}.") from None


def commands_from_environment() -> list[list[str]]:
    """Return the command lines of the servers for calls and for pages; of one, if the environment gives the other no process.

    Raises:
        ValueError: a number is invalid.
    """
    host = os.environ.get("LEDGER_HOST") or "127.0.0.1"
    servers = zip((CALLS, PAGES), ports_from_environment(), workers_from_environment(), strict=True)
    return [command(host=host, port=port, workers=workers, application=name) for name, port, workers in servers if workers]


@contextmanager
def held_back_until_prepared(file: Path) -> Iterator[IO[str]]:
    """For the block, new web processes wait. Closing what it yields, or the end of this process, lets them go."""
    with file.open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        os.environ[PREPARED_WHEN_FREE] = str(file)
        yield gate


def main() -> None:
    """Load the applications, then become the named module, with the arguments behind it, or the servers of the environment."""
    parent = os.environ.get(SERVED_BY)
    if parent:
        end_with(int(parent))
    commands = [sys.argv[1:]]
    if not sys.argv[1:]:
        os.environ["LEDGER_PAGES_PORT"] = str(ports_from_environment()[1])
        commands = [each[len(PROGRAM) :] for each in commands_from_environment()]
        os.chdir(BASE_DIR)
    share_counts()
    # Workers that are not forked share nothing.
    if multiprocessing.get_start_method() == "fork":
        load_application()
    if len(commands) == 1:
        become(commands[0])
    else:
        serve_together(*commands)


def become(arguments: list[str]) -> None:
    """Run a module with its arguments as the program of this process."""
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def serve_together(calls: list[str], pages: list[str]) -> None:
    """Run both servers in child processes until one ends or a signal comes; then end both, and exit as the first did."""
    address = " ".join(pages[pages.index(option) + 1] for option in ("--host", "--port"))
    os.environ[pages_server.ADDRESS] = address
    children = [_fork_program(calls, {}), _fork_program(pages, {pages_server.IS_FOR_PAGES: "yes"})]

    def end_children(*received: int | FrameType | None) -> None:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_children)
    first, status = os.wait()
    children.remove(first)
    end_children()
    for child in children:
        os.waitpid(child, 0)
    sys.exit(abs(os.waitstatus_to_exitcode(status)))


def _fork_program(arguments: list[str], environment: dict[str, str]) -> int:
    """Return the number of a child process that becomes this program, with more environment, and ends with this process."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        end_with(parent)
        os.environ |= environment
        become(arguments)
        sys.exit()
    return child


def share_counts() -> None:
    """Give the processes one folder, empty at first, to count in (`ledger.telemetry.metrics`).

    Where the folder cannot be made, as on a full disk, each process counts for itself: counting keeps nobody from serving.
    """
    given = os.environ.get("LEDGER_METRICS_DIR")
    try:
        folder = Path(given) if given else Path(tempfile.mkdtemp(prefix="ledger-metrics-"))
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob("*.db"):
            left_over.unlink()
    except OSError as error:
        sys.stderr.write(f"/metrics shows one process's counts at a time, because LEDGER_METRICS_DIR cannot be used: {error}.\n")
        return
    if not given:
        atexit.register(_remove, folder, os.getpid())
    os.environ[COUNTS_FOLDER] = str(folder)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def load_application() -> None:
    """Import all modules that a worker needs; open no connection and start no thread, because a fork would not copy them."""
    import ledger_project.serving.application  # noqa: F401 - only where it is shared

    # Objects that exist now stay: the collector need not examine them, nor write to the shared pages. A request frees its objects
    # when it ends; at a threshold of 700, as Python has it, those under way would be examined again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


if __name__ == "__main__":
    main()
