"""Files that commands write: whole, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.core.management.base import CommandError

PRIVATE = 0o600


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the block another path to write; the file has its name when the block has ended. An error leaves neither.

    Only the user that runs the command may read it (mode 0600): what is exported names people and their money.

    Raises:
        CommandError: the file cannot be written, for example because the disk is full.
    """
    part = path.parent / f"{path.name}.part"
    try:
        # What a killed run has left, or a link that somebody put there, is not written into.
        part.unlink(missing_ok=True)
        part.touch(PRIVATE, exist_ok=False)
        yield part
        part.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
