"""Other people's projects: an environment with the wheel and only what it requires, and a fresh Django project in it."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "psycopg[binary]"
"""How the docs have psycopg installed: PostgreSQL's library comes with it."""


def run(*words: str | Path, folder: Path = Path("/"), succeeds: bool = True) -> str:
    """What a program prints, with nothing of this project in its environment."""
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
    return done.stdout + done.stderr


def build_wheel(folder: Path) -> Path:
    """Build the wheel, with uv's own backend: without a network."""
    run(Path(sys.executable).parent / "uv", "build", "--quiet", "--offline", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack_wheel(wheel: Path, folder: Path) -> Path:
    """Unpack the wheel, once for all environments: its modules are compiled only once, too."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def linked_environment(folder: Path, unpacked: Path, *extras: str, also: Sequence[str] = ()) -> Path:
    """Make an environment with the wheel and what it requires with these extras, as links to the packages of the tests' own.

    What is not required is missing there, as in an empty environment that pip filled. Returns its Python.

    Args:
        unpacked: the wheel, as `unpack_wheel` left it.
        also: what the project itself requires.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for part in unpacked.iterdir():
        (packages / part.name).symlink_to(part)
    (metadata,) = packages.glob("credit_ledger-*.dist-info")
    wanted = f"credit-ledger[{','.join(extras)}]" if extras else "credit-ledger"
    required = _required(Requirement(wanted), PathDistribution(metadata))
    for name in (DRIVER, *also):
        required |= _required(Requirement(name))
    for name, found in required.items():
        if name != "credit-ledger":
            _link(found, packages)
    return folder / "bin" / "python"


def _required(requirement: Requirement, found: Distribution | None = None) -> dict[str, Distribution]:
    """The distribution that is required and those that it requires, by name."""
    found = found or distribution(requirement.name)
    required = {requirement.name.lower(): found}
    for line in found.requires or ():
        other = Requirement(line)
        if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in (*requirement.extras, "")):
            required |= _required(other, found if other.name == requirement.name else None)
    return required


def _link(found: Distribution, packages: Path) -> None:
    top_level = {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}
    for name in top_level:
        link = packages / name
        if not link.exists():
            link.symlink_to(Path(str(found.locate_file(name))))


@dataclass(frozen=True)
class Project:
    """A project that `django-admin startproject` made, in an environment of its own."""

    python: Path
    folder: Path

    def on(self, python: Path) -> "Project":
        """The same project in another environment."""
        return replace(self, python=python)

    def manage(self, *words: str, succeeds: bool = True) -> str:
        """What `manage.py` prints."""
        return run(self.python, "manage.py", *words, folder=self.folder, succeeds=succeeds)

    def shell(self, code: str) -> str:
        """What code prints in `manage.py shell`."""
        return self.manage("shell", "--verbosity", "0", "--command", code).strip()

    def add(self, *lines: str, module: str = "settings") -> None:
        """Write lines at the end of its settings."""
        with (self.folder / "site_of_ours" / f"{module}.py").open("a") as file:
            file.write("\n" + "\n".join(lines) + "\n")

    def add_urls(self, *lines: str) -> None:
        """Write lines at the end of its URLs."""
        self.add(*lines, module="urls")


def start_project(python: Path, folder: Path, database: Mapping[str, object], apps: Sequence[str]) -> Project:
    """Make a project on this database, with these applications before Django's own."""
    folder.mkdir()
    run(python, "-m", "django", "startproject", "site_of_ours", folder)
    project = Project(python, folder)
    project.add(
        f"INSTALLED_APPS = {list(apps)!r} + INSTALLED_APPS",
        f"DATABASES = {{'default': {{'ENGINE': 'django.db.backends.postgresql', **{dict(database)!r}}}}}",
        "ALLOWED_HOSTS = ['testserver']",
    )
    return project
