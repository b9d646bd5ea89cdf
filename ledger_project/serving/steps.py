"""The steps of a start, in a plain line each, with how long each took."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic


@contextmanager
def step(begins: str, ends: str) -> Iterator[None]:
    """Say on standard error what begins, and after the block how long it took; nothing more if the block raises.

    What programs read on standard output stays as it is.

    Args:
        begins: such as "Starting PostgreSQL".
        ends: such as "PostgreSQL has started".
    """
    began = monotonic()
    _say(f"{begins} …")
    yield
    _say(f"{ends} ({monotonic() - began:.1f} s)")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
