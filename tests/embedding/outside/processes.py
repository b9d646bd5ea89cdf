"""Processes of other programs, with nothing of this project in their environment, and the ledger that services call."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger_project.serving.postgres.server import Server
from ledger_project.serving.web import command
from tests.conftest import wait_for_answer
from tests.deployment.servers import KEY, ROOT, environment_of
from tests.embedding.installations import run
from tests.embedding.outside.releases import HERE, Files
from tests.ports import free_port


def call(url: str, key: str = "", body: Mapping[str, object] | None = None) -> tuple[int, dict[str, Any]]:
    """The status and the body of the response to a write, or without a body to a read."""
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else {}


@dataclass
class Program:
    """A program that serves on a port, or works without one."""

    words: list[str | Path]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    serves: bool = True
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Program":
        """Start it, and return when it answers."""
        environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
        environment |= {"PORT": str(self.port), **self.environment}
        with (self.folder / f"log-{self.port}").open("ab") as log:
            self.process = subprocess.Popen(
                [str(word).replace("{port}", str(self.port)) for word in self.words],
                cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if self.serves:
            try:
                wait_for_answer(f"{self.url}/healthz", self.process)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{(self.folder / f'log-{self.port}').read_text()}") from None
        return self

    def stop(self) -> None:
        """End it as its supervisor would, and return when it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


@contextmanager
def programs() -> Iterator[list[Program]]:
    """For the block, a list of programs, which are killed at its end."""
    started: list[Program] = []
    try:
        yield started
    finally:
        for program in started:
            if program.process is not None and program.process.poll() is None:
                os.killpg(program.process.pid, signal.SIGKILL)
                program.process.wait()


def ledger_web(code: Path, environment: Mapping[str, str]) -> Program:
    """A web server of the ledger with the code of a folder."""
    words = [each if each != str(ROOT) else str(code) for each in command(port=0, workers=1)]
    words[words.index("--port") + 1] = "{port}"
    return Program([*words], code, {**environment, "PYTHONPATH": str(code)})


def prepare_ledger(code: Path, server: Server) -> None:
    """Prepare the ledger's database on this server with the code of a folder."""
    given = environment_of(server, LEDGER_BOOTSTRAP_API_KEY=KEY)
    done = subprocess.run(
        [sys.executable, "manage.py", "prepare_database"], cwd=code, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def service(kind: str, folder: Path, *, files: Files, python: Path, ledger_url: str) -> Program:
    """A service that charges its customers by the ledger at this URL, with the client of these files.

    Args:
        kind: "fastapi", or "node".
        folder: where its files are copied.
    """
    shutil.copytree(HERE / f"{kind}_service", folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"LEDGER_URL": ledger_url, "LEDGER_API_KEY": KEY}
    if kind == "fastapi":
        words = [python, "-m", "uvicorn", "service:app", "--port", "{port}", "--log-level", "warning"]
        return Program(words, folder, environment)
    package = files.one("credit-ledger-client-*.tgz")
    run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", package, folder=folder)
    return Program(["node", "service.mjs"], folder, environment)
