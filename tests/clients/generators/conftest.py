"""The OpenAPI document as a file, and folders in which generators and compilers run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger_project.api.documents import openapi_document

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
NO_REGISTRY = re.compile(
    "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT|"
    "Failed to fetch|dns error|no such host|dial tcp"
)


@dataclass(frozen=True)
class Workshop:
    """A folder with a program that uses a generated client, and where the programs are that make and run it."""

    folder: Path
    path: str

    def run(self, *words: str | Path, **variables: str) -> str:
        """What a program prints; it must not fail."""
        done = self._run(*words, **variables)
        assert done.returncode == 0, (done.stdout + done.stderr)[-8_000:]
        return done.stdout

    def install(self, *words: str | Path, **variables: str) -> None:
        """Run what fetches packages; skip the test where no registry can be reached."""
        done = self._run(*words, **variables)
        if done.returncode and NO_REGISTRY.search(done.stderr):
            pytest.skip(f"{words[0]} reaches no registry")
        assert done.returncode == 0, done.stderr[-8_000:]

    def _run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        environment |= {"PATH": f"{self.path}:{os.environ['PATH']}", **variables}
        return subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False)


def ensure_installed(*programs: str) -> None:
    """Skip the test where a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="session")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OpenAPI document as a file."""
    file = tmp_path_factory.mktemp("document") / "openapi.json"
    file.write_bytes(openapi_document())
    return file


@pytest.fixture(scope="module")
def python_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the generators of Python clients."""
    workshop = Workshop(tmp_path_factory.mktemp("python"), str(Path(sys.executable).parent))
    workshop.run("uv", "venv", "--quiet", "--python", sys.executable, "venv")
    requirements = HERE / "requirements.txt"
    workshop.install("uv", "pip", "sync", "--quiet", "--require-hashes", "--python", "venv/bin/python", requirements)
    return workshop.folder / "venv/bin"


@pytest.fixture(scope="module")
def node_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of installed packages of npm."""
    ensure_installed("node", "npm")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PROGRAMS / name, folder)
    Workshop(folder, "").install("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
    return folder / "node_modules"


@pytest.fixture
def python_workshop(tmp_path: Path, python_tools: Path) -> Callable[[str], Workshop]:
    """Makes a folder with a program in Python."""

    def make(program: str) -> Workshop:
        shutil.copytree(PROGRAMS / program, tmp_path, dirs_exist_ok=True)
        return Workshop(tmp_path, str(python_tools))

    return make


@pytest.fixture
def node_workshop(tmp_path: Path, node_tools: Path) -> Callable[[str], Workshop]:
    """Makes a folder with a program in TypeScript."""

    def make(program: str) -> Workshop:
        shutil.copytree(PROGRAMS / program, tmp_path, dirs_exist_ok=True)
        for name in ("package.json", "tsconfig.json"):
            shutil.copy(PROGRAMS / name, tmp_path)
        (tmp_path / "node_modules").symlink_to(node_tools)
        return Workshop(tmp_path, str(node_tools / ".bin"))

    return make
