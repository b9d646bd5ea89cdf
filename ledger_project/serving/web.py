"""The web server: which program the application runs on, with which limits, and how it becomes that program.

    python -m ledger_project.serving.web
    python -m ledger_project.serving.web granian ledger_project.asgi:application --interface asgi ...

Without arguments, LEDGER_HOST, PORT and LEDGER_WEB_WORKERS say how. The process loads the application before
it becomes the server, so the forked workers need not: that saves a second of CPU for each, and they share its memory, with two
workers a quarter of the total (docs/PERFORMANCE.md). It prepares and starts nothing else; `manage.py serve` does that.
"""

import atexit
import ctypes
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
from contextlib import contextmanager
from pathlib import Path
from typing import IO

BASE_DIR = Path(__file__).resolve().parents[2]

WORKERS = 2
CONNECTIONS_TO_DATABASE = 28
"""The most that a process opens: committer, keys, balances, 8 waiters, 17 threads, and one for /metrics (ADR 0020, 0037)."""
BACKLOG = 1024
CONNECTIONS = 8192
"""Open connections per process, slow and idle ones included: each costs some memory and no thread."""
HTTP1_BUFFER_BYTES = 64 * 1024
HEADER_TIMEOUT_MS = 10_000
SHUTDOWN_TIMEOUT_S = 5
COLLECT_EVERY = 10_000
"""After how many new objects the garbage collector of a worker looks for cycles among them."""
GRANIAN_LOG_CONFIG = Path(__file__).with_name("granian_log.json")
"""Sends the server's own log lines to the root logger; see `ledger_project.logs`."""

PR_SET_PDEATHSIG = 1

SERVED_BY = "LEDGER_SERVED_BY"
"""In the environment: the number of the process that started this one and with which it ends."""
COUNTS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""In the environment: where the package prometheus_client has each process count."""
PREPARED_WHEN_FREE = "LEDGER_PREPARED_WHEN_FREE"
"""In the environment of web processes that start before their database is prepared: the file that is locked until then."""
PROGRAM = [sys.executable, "-m", "ledger_project.serving.web"]
APPLICATION = "ledger_project.asgi:application"


def command(*, port: int, host: str = "127.0.0.1", workers: int = WORKERS) -> list[str]:
    """Return the command line by which granian serves `ledger_project.asgi`.

    Args:
        port: TCP port to listen on; host: the address.
        workers: processes.
    """
    return [
        *PROGRAM, "granian", APPLICATION, "--interface", "asgi",
        "--host", host, "--port", str(port), "--workers", str(workers), "--loop", "uvloop",
        "--backlog", str(BACKLOG), "--backpressure", str(CONNECTIONS), "--http", "1", "--no-ws",
        "--http1-buffer-size", str(HTTP1_BUFFER_BYTES), "--http1-header-read-timeout", str(HEADER_TIMEOUT_MS),
        "--respawn-failed-workers", "--workers-kill-timeout", str(SHUTDOWN_TIMEOUT_S), "--working-dir", str(BASE_DIR),
        "--log-level", "error", "--log-config", str(GRANIAN_LOG_CONFIG),
    ]  # fmt: skip


def port_from_environment() -> int:
    """The port of the environment.

    Raises:
        ValueError: PORT is not a number.
    """
    return int(os.environ.get("PORT") or 8000)


def workers_from_environment() -> int:
    """The number of processes of the environment.

    Raises:
        ValueError: LEDGER_WEB_WORKERS is not a number.
    """
    return int(os.environ.get("LEDGER_WEB_WORKERS") or WORKERS)


def command_from_environment() -> list[str]:
    """The command line for the environment.

    Raises:
        ValueError: a number is invalid.
    """
    return command(
        host=os.environ.get("LEDGER_HOST") or "127.0.0.1",
        port=port_from_environment(),
        workers=workers_from_environment(),
    )


@contextmanager
def held_back_until_prepared(file: Path) -> Iterator[IO[str]]:
    """For the block, web processes that are started wait. Closing what it yields, or the end of this process, lets them go."""
    with file.open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        os.environ[PREPARED_WHEN_FREE] = str(file)
        yield gate


def end_with_parent() -> None:
    """In a child, ask the kernel for SIGTERM when the parent ends, even by SIGKILL. Linux only; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> None:
    """Load the application, then become the named module, with the arguments behind it."""
    parent = os.environ.get(SERVED_BY)
    if parent:
        end_with_parent()
        if os.getppid() != int(parent):
            sys.exit("The process that started this one has ended.")
    if not sys.argv[1:]:
        sys.argv += command_from_environment()[len(PROGRAM) :]
        os.chdir(BASE_DIR)
    share_counts()
    # Workers that are not forked share nothing.
    if multiprocessing.get_start_method() == "fork":
        load_application()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def share_counts() -> None:
    """Give the processes one folder, empty at first, to count in (`ledger.telemetry.metrics`); without a token, none.

    Where the folder cannot be made, as on a full disk, each process counts for itself: counting keeps nobody from serving.
    """
    if not os.environ.get("LEDGER_METRICS_TOKEN"):
        return
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
