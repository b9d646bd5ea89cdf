"""The built files of a release, of today or an earlier one, and environments that have nothing else of this project."""

import io
import lzma
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from deploy.release import build
from deploy.release.sources import Sources
from tests.schema.upgrades.store import RELEASES

HERE = Path(__file__).parent
UV = Path(sys.executable).parent / "uv"
LEFT_OUT = ("PYTHON", "VIRTUAL_ENV", "CREDIT_", "DATABASE_", "LEDGER_")
AN_INSTANT = 10**9
"""When the packages of an earlier release say that they were built, in seconds since 1970."""
EARLIER = sorted(path.name.removesuffix(".tar.xz") for path in RELEASES.glob("*.tar.xz"))


@dataclass(frozen=True)
class Files:
    """The built files of a release."""

    folder: Path

    def one(self, pattern: str) -> Path:
        """The file of this name."""
        (file,) = self.folder.glob(pattern)
        return file

    @property
    def has_npm_package(self) -> bool:
        """Whether npm could build its package here."""
        return any(self.folder.glob("credit-ledger-client-*.tgz"))

    def unpack_image_archive(self, folder: Path) -> Path:
        """Unpack the archive for the image, from which a ledger can serve; return its folder."""
        with tarfile.open(self.one("*-image.tar.gz")) as archive:
            archive.extractall(folder, filter="data")
        (code,) = folder.iterdir()
        return code


def builders_here() -> list[build.Builder]:
    """What builds the packages on this machine: that of npm only where `npm ci` has run."""
    has_npm = (build.ROOT / "clients/typescript/node_modules/publint").is_dir()
    return [build.build_python_packages, *([build.build_npm_package] if has_npm else [])]


def build_files(folder: Path) -> Files:
    """Build today's packages and the archive for the image."""
    build.build_release(folder, builders=[build.build_image_context, *builders_here()], may_be_uncommitted=True)
    return Files(folder)


def unpack_earlier(release: str, folder: Path) -> Path:
    """Unpack the stored code of an earlier release, which can serve as it is."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((RELEASES / f"{release}.tar.xz").read_bytes()))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def build_earlier_files(release: str, folder: Path) -> Files:
    """Build the packages of an earlier release from its stored code."""
    code, target = unpack_earlier(release, folder / "code"), folder / "files"
    target.mkdir()
    for build_packages in builders_here():
        build_packages(Sources(code, release, AN_INSTANT, address=""), target)
    return Files(target)


def make_environment(files: Files, folder: Path) -> Path:
    """Make an environment with the wheels and with what they say they require; return its Python."""
    venv = folder / "venv"
    install = (UV, "pip", "install", "--quiet", "--python", venv / "bin/python")
    # What says where packages are stays.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    for words in (
        (UV, "venv", "--quiet", "--python", sys.executable, venv),
        (*install, "--require-hashes", "-r", HERE / "requirements.txt"),
        (*install, "--no-deps", files.one("credit_ledger-*.whl"), files.one("credit_ledger_client-*.whl")),
        (UV, "pip", "check", "--quiet", "--python", venv / "bin/python"),
    ):
        subprocess.run(words, env=environment, check=True)
    return venv / "bin/python"
