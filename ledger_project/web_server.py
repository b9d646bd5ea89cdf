"""The ASGI servers that the application runs on: which program, with which limits.

`python -m ledger_project.web_server` becomes that server: LEDGER_HOST, PORT, LEDGER_WEB_SERVER and LEDGER_WEB_WORKERS
say how. Nothing is prepared or started besides; `manage.py serve` does that.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

WORKERS = 2
BACKLOG = 1024
CONNECTIONS = 8192
"""Open connections per process, slow and idle ones included: each costs some memory and no thread."""
HTTP1_BUFFER_BYTES = 64 * 1024
HEADER_TIMEOUT_MS = 10_000
SHUTDOWN_TIMEOUT_S = 5
GRANIAN_LOG_CONFIG = Path(__file__).with_name("granian_log.json")
"""Has what the server itself says written like everything else, see `ledger_project.logs`."""

PR_SET_PDEATHSIG = 1

PRELOADED = [sys.executable, "-m", "ledger_project.preloaded"]
APPLICATION = "ledger_project.asgi:application"


def command(*, port: int, host: str = "127.0.0.1", server: str = "granian", workers: int = WORKERS) -> list[str]:
    """The command line that serves `ledger_project.asgi`.

    Args:
        port: TCP port to listen on; host: the address.
        server: `granian`, or `gunicorn` as the alternative.
        workers: processes.

    Raises:
        ValueError: `server` is another name.
    """
    if server == "granian":
        return [
            *PRELOADED, "granian", APPLICATION, "--interface", "asgi",
            "--host", host, "--port", str(port), "--workers", str(workers), "--loop", "asyncio",
            "--backlog", str(BACKLOG), "--backpressure", str(CONNECTIONS), "--http", "1", "--no-ws",
            "--http1-buffer-size", str(HTTP1_BUFFER_BYTES), "--http1-header-read-timeout", str(HEADER_TIMEOUT_MS),
            "--respawn-failed-workers", "--workers-kill-timeout", str(SHUTDOWN_TIMEOUT_S), "--working-dir", str(BASE_DIR),
            "--log-level", "error", "--log-config", str(GRANIAN_LOG_CONFIG),
        ]  # fmt: skip
    if server == "gunicorn":
        return [
            *PRELOADED, "gunicorn", APPLICATION, "--worker-class", "asgi", "--asgi-lifespan", "on",
            "--bind", f"{host}:{port}", "--workers", str(workers), "--worker-connections", str(CONNECTIONS),
            "--backlog", str(BACKLOG), "--graceful-timeout", str(SHUTDOWN_TIMEOUT_S), "--chdir", str(BASE_DIR),
            "--log-level", "warning",
        ]  # fmt: skip
    raise ValueError(f"LEDGER_WEB_SERVER is {server!r}: granian or gunicorn")


def port_from_environment() -> int:
    """The port that the environment asks for.

    Raises:
        ValueError: PORT is no number.
    """
    return int(os.environ.get("PORT") or 8000)


def command_from_environment() -> list[str]:
    """The command line that the environment asks for.

    Raises:
        ValueError: a number is none, or the server's name is unknown.
    """
    return command(
        host=os.environ.get("LEDGER_HOST") or "127.0.0.1",
        port=port_from_environment(),
        server=os.environ.get("LEDGER_WEB_SERVER") or "granian",
        workers=int(os.environ.get("LEDGER_WEB_WORKERS") or WORKERS),
    )


def end_with_parent() -> None:
    """In a child, ask the kernel for SIGTERM when the parent ends, even by SIGKILL. Linux only; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    arguments = command_from_environment()
    os.chdir(BASE_DIR)
    os.execv(arguments[0], arguments)  # noqa: S606 - to become it is the point
