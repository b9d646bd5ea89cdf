"""The sources of a release: the files that git has, copied, with what only a release needs written into the copy."""

import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.release.archives import EXECUTABLE
from deploy.release.links import with_absolute_links

PYTHON_PACKAGES = (".", "clients/python")
NPM_PACKAGE = "clients/typescript"
CHART = "deploy/helm/credit-ledger"


@dataclass(frozen=True)
class Sources:
    """A copy of the files of git that a release is built from.

    Args:
        seconds: the instant of the release, in seconds since 1970: that of the commit.
        address: where the sources are published, `[project.urls]` in pyproject.toml.
    """

    folder: Path
    version: str
    seconds: int
    address: str

    def project(self, package: str = ".") -> dict[str, Any]:
        """The table `[project]` of a package."""
        project: dict[str, Any] = tomllib.loads((self.folder / package / "pyproject.toml").read_text())["project"]
        return project

    def read(self, path: str) -> str:
        """Read a file."""
        return (self.folder / path).read_text()

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        (self.folder / path).write_text(text)


class UnfitSources(Exception):
    """The sources cannot be released; the message says why, and what to do."""


def copy_sources(root: Path, folder: Path, *, seconds: int, may_be_uncommitted: bool = False) -> Sources:
    """Copy the files of git, and write into the copy what a release needs: absolute links, and the version of the chart.

    Args:
        may_be_uncommitted: whether files that differ from the commit are copied as they are; without it they are refused.

    Raises:
        UnfitSources: files differ from the commit, or the packages have several versions or addresses.
    """
    changed = _git(root, "status", "--porcelain")
    if changed and not may_be_uncommitted:
        raise UnfitSources(f"A release is built from a commit, and these files differ from it; commit them first:\n{changed}")
    for name in _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        if name and (root / name).exists():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target)
            target.chmod(0o755 if (root / name).stat().st_mode & EXECUTABLE else 0o644)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    sources = Sources(folder, project["version"], seconds, project["urls"]["Source"])
    _require_one_version(sources)
    for package in (*PYTHON_PACKAGES, NPM_PACKAGE):
        page = f"{package}/README.md" if package != "." else "README.md"
        sources.write(page, with_absolute_links(sources.read(page), page, source=sources.address, version=sources.version))
    chart = f"{CHART}/Chart.yaml"
    sources.write(
        chart, re.sub(r"^(version|appVersion): .*$", rf'\1: "{sources.version}"', sources.read(chart), flags=re.MULTILINE)
    )
    return sources


def seconds_of_commit(root: Path) -> int:
    """The instant of the commit, in seconds since 1970."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def _require_one_version(sources: Sources) -> None:
    npm = json.loads(sources.read(f"{NPM_PACKAGE}/package.json"))
    images = re.findall(r"image: credit-ledger[a-z-]*:(\S+)", sources.read("docker-compose.yml"))
    found = {
        **{f"{package}/pyproject.toml": sources.project(package)["version"] for package in PYTHON_PACKAGES},
        f"{NPM_PACKAGE}/package.json": npm["version"],
        f"{NPM_PACKAGE}/package-lock.json": json.loads(sources.read(f"{NPM_PACKAGE}/package-lock.json"))["version"],
        "docker-compose.yml": ", ".join(sorted(set(images))),
    }
    different = {path: version for path, version in found.items() if version != sources.version}
    if different:
        raise UnfitSources(f"pyproject.toml has the version {sources.version}; these have another: {different}")
    addresses = {package: sources.project(package)["urls"] for package in PYTHON_PACKAGES}
    addresses[NPM_PACKAGE] = {"Homepage": npm["homepage"], "Issues": npm["bugs"]["url"]}
    repository = npm["repository"]["url"].removeprefix("git+").removesuffix(".git")
    for package, urls in addresses.items():
        for name, url in {**urls, **({"Source": repository} if package == NPM_PACKAGE else {})}.items():
            if sources.project()["urls"][name] != url:
                raise UnfitSources(f"{package} has another {name} than pyproject.toml: {url}")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout
