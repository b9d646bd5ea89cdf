"""The files in which processes count, in prometheus_client's format, but written by a system call instead of a memory map.

The package maps its files into memory. If the disk has no block left for a page of such a file, a write to the page ends the
process by SIGBUS; on a full disk, this ended every web process again and again. Here a process counts in its memory and writes
the file at request: on a full disk that is an error, which the process logs once, and it continues to count. ADR 0037.
"""

import logging
import os
from contextlib import suppress
from typing import Any, ClassVar

from prometheus_client import mmap_dict, values

log = logging.getLogger(__name__)

HEAD_BYTES = 8
"""The head of the file: how much of it is used, and padding."""


class CountFile(mmap_dict.MmapedDict):
    """Counts in memory, in the form of the package's files; `write_down` copies them into the file."""

    open_files: ClassVar[list["CountFile"]] = []
    are_written: ClassVar[bool] = True
    """Whether the counts of this process reached their files at the last writing."""

    def __init__(self, filename: str) -> None:
        """Count for this file and continue its counts, because the process may have the number of one that has ended."""
        self._fname = filename
        self._positions: dict[str, int] = {}
        # The package's own class has a map here.
        self._m: Any = bytearray(HEAD_BYTES)
        self._used = self._capacity = HEAD_BYTES
        self._written = b""
        with suppress(FileNotFoundError):
            for key, value, timestamp, _ in self.read_all_values_from_file(filename):
                self.write_value(key, value, timestamp)
        self.open_files.append(self)

    def _init_value(self, key: str) -> None:
        # The package would extend the file, and map it again.
        needed = self._used + len(key.encode()) + 64
        if needed > self._capacity:
            self._capacity = 2 * needed
            self._m.extend(bytes(self._capacity - len(self._m)))
        super()._init_value(key)

    def write_down(self) -> None:
        """Write the current counts into the file, the head last: a reader finds either the new values or fewer.

        Raises:
            OSError: they cannot be written now; the file has the earlier values, or some of the new.
        """
        counted = bytes(self._m[HEAD_BYTES : self._used])
        if counted == self._written:
            return
        # A new file gets its name only when it is complete: on a full disk it stays empty, and an empty file cannot be read.
        is_new = not os.path.exists(self._fname)  # noqa: PTH110 - four times a second
        name = f"{self._fname}.new" if is_new else self._fname
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _write_all(descriptor, counted, HEAD_BYTES)
            _write_all(descriptor, (HEAD_BYTES + len(counted)).to_bytes(4, "little") + bytes(4), 0)
        finally:
            os.close(descriptor)
        if is_new:
            os.rename(name, self._fname)  # noqa: PTH104
        self._written = counted

    def close(self) -> None:
        """Stop counting for this file; a child of the process calls it for the files of its parent."""
        with suppress(ValueError):
            self.open_files.remove(self)


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written


def write_down_all() -> None:
    """Write the counts of this process into its files; on a full disk, log that once and continue."""
    try:
        for each in list(CountFile.open_files):
            each.write_down()
    except OSError as error:
        if CountFile.are_written:
            log.error("The counts of this process cannot be written, so /metrics shows older ones; they are kept: %s", error)
        CountFile.are_written = False
        return
    if not CountFile.are_written:
        log.warning("The counts of this process are written again.")
    CountFile.are_written = True


def use_count_files() -> None:
    """Let the package count in these files if it counts in files; call it before the first metric is made."""
    package: Any = values
    package.MmapedDict = CountFile
