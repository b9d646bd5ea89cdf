"""A web process for the tests of clients, a proxy before it that loses answers, and the TypeScript client as a package."""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pytest_django.plugin import DjangoDbBlocker

from clients.typescript import generate
from ledger.keys import api_keys
from ledger.scopes import SCOPES
from tests.clients.losing_proxy import LosingProxy
from tests.conftest import database_url, on_committed_database, web_servers
from tests.faults.proxy import FaultProxy, Rates, connecting_to

SOURCES = Path(generate.__file__).parent
NO_REGISTRY = re.compile("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT")


@dataclass(frozen=True)
class RunningServer:
    """A web process, a key with all scopes, and what can break its connections to PostgreSQL."""

    url: str
    api_key: str
    faults: FaultProxy


@pytest.fixture(scope="module")
def running_server(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """One web process for a file of tests, on the database of the tests that commit."""
    with django_db_blocker.unblock(), on_committed_database():
        _, api_key = api_keys.create_api_key(name=f"clients-{secrets.token_hex(4)}", scopes=SCOPES)
        with fault_proxy() as faults, web_servers(tmp_path_factory.mktemp("web")) as start:
            dsn = database_url("application", host="127.0.0.1", port=faults.port)
            yield RunningServer(start(1, dsn=dsn)[0].url, api_key, faults)


@contextmanager
def fault_proxy() -> Iterator[FaultProxy]:
    """A proxy before PostgreSQL that breaks half of the COMMITs while `is_breaking`, and nothing else."""
    found = conninfo_to_dict(database_url("application"))
    rates = Rates(commit=0.5, garbage=0, blind=0, refusal=0)
    connect = connecting_to(str(found["host"]), int(str(found["port"])))
    proxy = FaultProxy(connect, key=re.compile(rb"never"), seed=7, rates=rates).start()
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def losing_proxy(running_server: RunningServer) -> Iterator[LosingProxy]:
    """A proxy before the web process."""
    proxy = LosingProxy(running_server.url)
    yield proxy
    proxy.end()


@dataclass(frozen=True)
class Package:
    """A copy of the package, installed and built."""

    folder: Path

    def run(self, *words: str, **variables: str) -> str:
        """What a program of the package prints; it must not fail."""
        environment = {**os.environ, "PATH": f"{self.folder}/node_modules/.bin:{os.environ['PATH']}", **variables}
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test(self, file: str, **variables: str) -> int:
        """How many tests of a file pass; none may fail or be left out."""
        output = self.run("node", "--test", "--test-reporter=tap", f"tests/{file}", **variables)
        counts = {name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", output, re.MULTILINE)}
        assert counts["tests"] == counts["pass"], output
        return counts["pass"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The package, where node and a registry of npm are."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    if int(version.strip("v\n").split(".")[0]) < 20:
        pytest.skip(f"the client needs node 20, and this is {version.strip()}")
    folder = tmp_path_factory.mktemp("typescript") / "package"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "__pycache__"))
    installed = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if installed.returncode and NO_REGISTRY.search(installed.stderr):
        pytest.skip("npm ci reaches no registry")
    assert installed.returncode == 0, installed.stderr
    package = Package(folder)
    package.run("tsc")
    return package
