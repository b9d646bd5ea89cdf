"""A mutant in the file of a copy of the project."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from tests.mutation.mutants import Change


@contextmanager
def on_disk(root: Path, change: Change) -> Iterator[None]:
    """Have the mutant in the file, with a time of its own, so that no compiled module is taken for that of the other text."""
    path = root / change.place.path
    before, times = path.read_bytes(), path.stat()
    path.write_text(change.mutate(), encoding="utf-8")
    os.utime(path, (times.st_atime, times.st_mtime + 10 + crc32(repr(change.place).encode()) % 1_000_000))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, (times.st_atime, times.st_mtime))
