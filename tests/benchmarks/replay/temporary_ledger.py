"""A temporary ledger: `manage.py serve` on a free port, with a data directory that is removed afterwards."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from django.conf import settings

from ledger_project.serving import timetable_worker, web
from ledger_project.serving.bootstrap import use_database
from ledger_project.serving.postgres import credentials

START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60


class DoesNotStart(Exception):
    """The ledger ended, or did not respond in time; the message ends with what it said."""


@dataclass(frozen=True)
class Ledger:
    """Where it is, and a key with all scopes."""

    url: str
    api_key: str


@contextmanager
def temporary_ledger() -> Iterator[Ledger]:
    """For the block, a ledger serves and this process is connected to its database; afterwards nothing of it is left.

    With DATABASE_URL set it serves on that database, where what was written stays.

    Raises:
        DoesNotStart: see there; nothing is left of it.
    """
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    try:
        # PostgreSQL under another account, as root has it run, must be able to pass. What is secret inside is private by itself.
        folder.chmod(0o755)
        ledger = Ledger(f"http://127.0.0.1:{_free_port()}", secrets.token_urlsafe(32))
        with _serving(ledger, folder):
            if not os.environ.get("DATABASE_URL"):
                use_database(credentials.credentials_of(folder).application_url).close()
            yield ledger
    finally:
        shutil.rmtree(folder)


@contextmanager
def _serving(ledger: Ledger, folder: Path) -> Iterator[None]:
    environment = os.environ | {
        "LEDGER_DATA_DIR": str(folder),
        "PORT": ledger.url.rsplit(":", 1)[1],
        "LEDGER_BOOTSTRAP_API_KEY": ledger.api_key,
        # A worker would bill subscriptions whose usage is not in yet.
        timetable_worker.WORKERS: "0",
    }
    log = folder / "serve.log"
    with log.open("wb") as output:
        # A separate process group: Ctrl-C reaches only this process, which then stops the ledger in order.
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"], cwd=settings.BASE_DIR, env=environment, process_group=0,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=partial(web.end_with, os.getpid()),
        )  # fmt: skip
    try:
        _wait_until_ready(ledger, process, log)
        yield
    finally:
        _stop(process)


def _wait_until_ready(ledger: Ledger, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{ledger.url}/readyz", timeout=5):
            return
        time.sleep(0.1)
    raise DoesNotStart(f"The ledger did not start:\n{log.read_text(errors='replace')}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop it as Ctrl-C does; an impatient second signal to us must not leave it running."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Its web server and database end with it, or are taken over by the next `serve` of the folder.
            process.kill()
            process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
