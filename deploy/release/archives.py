"""Archives that have the same bytes whenever and wherever they are made of the same files."""

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

EXECUTABLE = 0o100
"""The bit that says whether the owner of a file may run it: the only one that git keeps."""


def files_below(folder: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Name these files by their place below a folder, which must have them."""
    return {path.relative_to(folder).as_posix(): path for path in paths}


def write_archive(target: Path, files: Mapping[str, Path], *, top: str, seconds: int) -> None:
    """Write a tar.gz: its files in the order of their names, without owners, each of the same instant.

    Args:
        files: by their names in the archive, below the folder `top`.
        seconds: the instant, in seconds since 1970.
    """
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            content = files[name].read_bytes()
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mtime = len(content), seconds
            member.mode = 0o755 if files[name].stat().st_mode & EXECUTABLE else 0o644
            archive.addfile(member, io.BytesIO(content))
