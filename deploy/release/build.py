"""Builds a release: `python -m deploy.release.build`, or `make release`. Nothing is published.

The same commit gives the same bytes, in any folder and at any time, with the same tools: those that the requirements and
package-lock.json pin, and the same Python and node.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from deploy.release.archives import files_below, write_archive
from deploy.release.components import bill_of_materials, pins_of
from deploy.release.convincing import require_result
from deploy.release.notes import is_dated, notes_of
from deploy.release.sources import CHART, NPM_PACKAGE, PYTHON_PACKAGES, Sources, UnfitSources, copy_sources, seconds_of_commit

ROOT: Final = Path(__file__).resolve().parents[2]
TARGET: Final = ROOT / "dist" / "release"
IMAGES: Final = {"app": "credit-ledger", "pgbouncer": "credit-ledger-pgbouncer", "proxy": "credit-ledger-proxy"}
"""The stages of the Dockerfile that are run, and the names of their images."""
FOR_COMPOSE: Final = ("Dockerfile", ".dockerignore", "docker-compose.yml", ".env.example", "README.md", "CHANGELOG.md")
SUMS: Final = "SHA256SUMS"


def build_python_packages(sources: Sources, target: Path) -> None:
    """Build the wheel and the sources of the ledger with billing, and of the Python client."""
    for package in PYTHON_PACKAGES:
        uv = Path(sys.executable).parent / "uv"
        _run(uv, "build", "--quiet", "--offline", "--out-dir", target, sources.folder / package, seconds=sources.seconds)
    # uv leaves it, so that git ignores the folder.
    (target / ".gitignore").unlink(missing_ok=True)


def build_npm_package(sources: Sources, target: Path) -> None:
    """Build the client of npm: modules of ES and CommonJS, with their types. Needs the installed `node_modules`.

    Raises:
        UnfitSources: node_modules is not installed, or publint finds a mistake in the package.
    """
    installed = ROOT / NPM_PACKAGE / "node_modules"
    if not installed.is_dir():
        raise UnfitSources(f"{installed} is not installed: make release installs it")
    folder = sources.folder / NPM_PACKAGE
    (folder / "node_modules").symlink_to(installed.resolve())
    _run("npm", "pack", "--silent", "--pack-destination", target, folder=folder, seconds=sources.seconds)
    (packed,) = target.glob("credit-ledger-client-*.tgz")
    _run("node_modules/.bin/publint", "--strict", packed, folder=folder, seconds=sources.seconds)


def build_chart(sources: Sources, target: Path) -> None:
    """Pack the Helm chart, as `helm package` names it."""
    folder = sources.folder / CHART
    files = files_below(folder, (path for path in folder.rglob("*") if path.is_file()))
    name = f"{folder.name}-{sources.version}.tgz"
    write_archive(target / name, files, top=folder.name, seconds=sources.seconds)


def build_image_context(sources: Sources, target: Path) -> None:
    """Pack what `docker compose up --build` needs, and nothing else: the files that .dockerignore lets pass, and Compose's."""
    paths = [sources.folder / name for name in FOR_COMPOSE]
    for line in sources.read(".dockerignore").splitlines():
        if line.startswith("!"):
            named = sources.folder / line.removeprefix("!")
            paths += [named] if named.is_file() else [path for path in named.rglob("*") if path.is_file()]
    top = f"credit-ledger-{sources.version}-image"
    write_archive(target / f"{top}.tar.gz", files_below(sources.folder, paths), top=top, seconds=sources.seconds)


def write_bill_of_materials(sources: Sources, target: Path) -> None:
    """Write the CycloneDX document of the packages in the image."""
    project = sources.project()
    text = bill_of_materials(
        pins_of(sources.folder),
        name=project["name"], version=sources.version, licence=project["license"], seconds=sources.seconds,
    )  # fmt: skip
    (target / f"credit-ledger-{sources.version}.cdx.json").write_text(text)


def write_notes(sources: Sources, target: Path) -> None:
    """Write the entry of the changelog."""
    notes = notes_of(sources.read("CHANGELOG.md"), version=sources.version, source=sources.address)
    (target / f"CHANGELOG-{sources.version}.md").write_text(notes)


Builder = Callable[[Sources, Path], None]
QUICK: Final[tuple[Builder, ...]] = (build_chart, build_image_context, write_bill_of_materials, write_notes)
BUILDERS: Final[tuple[Builder, ...]] = (*QUICK, build_python_packages, build_npm_package)


def build_release(
    target: Path, *, builders: Iterable[Builder] = BUILDERS, root: Path = ROOT, may_be_uncommitted: bool = False
) -> Sources:
    """Build the files of a release into an empty folder, and the sums of their digests, for `sha256sum --check`.

    Args:
        target: emptied before; after a failure it has what was built until then, without sums.
        may_be_uncommitted: as in `copy_sources`; then no result of `make convince` is asked for either.

    Raises:
        UnfitSources: the sources cannot be released, or the changelog has the day of their release and no result of
            `make convince` is kept for it.
        subprocess.CalledProcessError: a program failed; it has said why.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or seconds_of_commit(root))
    with tempfile.TemporaryDirectory(prefix="credit-ledger-release-") as folder:
        sources = copy_sources(root, Path(folder), seconds=seconds, may_be_uncommitted=may_be_uncommitted)
        if not may_be_uncommitted and is_dated(sources.read("CHANGELOG.md"), sources.version):
            require_result(sources)
        for build in builders:
            build(sources, target.resolve())
    (target / SUMS).write_text(sums_of(target))
    return sources


def sums_of(folder: Path) -> str:
    """The SHA-256 of each file, in the order of their names, as `sha256sum` prints it."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def build_images(context: Path, target: Path, version: str) -> str:
    """Build the images and save them, where an engine of Docker runs. Returns a sentence that says what was done.

    Their bytes are not the same twice: Debian's packages in them are those of the day.

    Args:
        context: the archive that `build_image_context` wrote.
        target: the folder that gets a file for each image.
    """
    if not _has_engine():
        return (
            f"No engine of Docker runs here, so no image was built. Where one runs: unpack {context.name}, docker compose build"
        )
    with tempfile.TemporaryDirectory(prefix="credit-ledger-image-") as folder:
        _run("tar", "--extract", "--file", context.resolve(), "--strip-components", "1", folder=Path(folder))
        for stage, name in IMAGES.items():
            _run("docker", "build", "--quiet", "--target", stage, "--tag", f"{name}:{version}", ".", folder=Path(folder))
            _run("docker", "save", "--output", (target / f"{name}-{version}.docker.tar").resolve(), f"{name}:{version}")
    return f"Built the images {', '.join(f'{name}:{version}' for name in IMAGES.values())}"


def _has_engine() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60).returncode == 0


def _run(*words: str | Path, folder: Path | None = None, seconds: int | None = None) -> None:
    environment: Mapping[str, str] = {
        **os.environ, "LC_ALL": "C.UTF-8", **({} if seconds is None else {"SOURCE_DATE_EPOCH": str(seconds)}),
    }  # fmt: skip
    # npm keeps the rights of files, which follow from the umask.
    subprocess.run(words, cwd=folder, env=environment, check=True, umask=0o022)


def main() -> int:
    """Build a release, print its files, and return 0; or say why there is none, and return 1."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release.build", description=main.__doc__)
    parser.add_argument(
        "--target", type=Path, default=TARGET, help="the folder that gets the files; it is emptied (dist/release)"
    )
    options = parser.parse_args()
    try:
        sources = build_release(options.target)
    except UnfitSources as error:
        print(error, file=sys.stderr)
        return 1
    print((options.target / SUMS).read_text(), end="")
    context = options.target / f"credit-ledger-{sources.version}-image.tar.gz"
    print(build_images(context, options.target, sources.version))
    if not is_dated((ROOT / "CHANGELOG.md").read_text(), sources.version):
        print(f"This is a trial: CHANGELOG.md has no day for {sources.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
