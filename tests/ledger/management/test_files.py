"""A file of a command is there whole or not at all, and nobody else on the machine reads what it says about people."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management.base import CommandError

from ledger.management.files import whole_file


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """As on a machine where new files are for everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "over one that everybody reads"])
def test_only_its_owner_reads_a_file_also_while_it_is_written(tmp_path: Path, is_there: bool) -> None:
    target = tmp_path / "CUST-7.zip"
    if is_there:
        target.write_text("everybody's")
    with whole_file(target) as part:
        part.write_text("Ada Lovelace")
        assert part.stat().st_mode & 0o777 == 0o600
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("Ada Lovelace", 0o600)


def test_what_a_killed_run_left_or_a_link_is_not_written_into(tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "CUST-7.zip", tmp_path / "elsewhere"
    elsewhere.write_text("somebody else's")
    (tmp_path / "CUST-7.zip.part").symlink_to(elsewhere)
    with whole_file(target) as part:
        part.write_text("Ada Lovelace")
    assert (target.read_text(), elsewhere.read_text()) == ("Ada Lovelace", "somebody else's")


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"), whole_file(tmp_path / "none" / "CUST-7.zip"):
        pytest.fail("the block does not run")
    with pytest.raises(CommandError, match="No space left"), whole_file(tmp_path / "CUST-7.zip"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []
