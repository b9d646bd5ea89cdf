"""Anchors for the tests of what watches over them."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from ledger.audit import anchors

__all__ = ["write_anchor"]


@pytest.fixture
def write_anchor() -> Callable[[Path, str], None]:
    """Writes an empty anchor of this time, whose file has this time too."""

    def write(path: Path, at: str) -> None:
        written_at = datetime.fromisoformat(at)
        anchors.write_anchor(path, written_at, iter(()))
        os.utime(path, (written_at.timestamp(), written_at.timestamp()))

    return write
