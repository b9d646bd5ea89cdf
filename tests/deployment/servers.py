"""Servers of PostgreSQL beside the one that all tests share: of another version, with other settings, in another folder."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ledger_project.serving.postgres import Server

ROOT = Path(__file__).resolve().parents[2]


class SystemServer(Server):
    """A server that runs the programs of another PostgreSQL, such as Debian's."""

    locale: ClassVar[tuple[str, ...]] = ("--locale=C.UTF-8",)
    """PostgreSQL 15 and 16 have no locales of their own."""
    programs: Path

    @cached_property
    def binaries(self) -> Path:
        """The programs that it was given."""
        return self.programs


def programs_of(major: int) -> Path:
    """Where Debian keeps the programs of this PostgreSQL; the folder may not exist."""
    return Path(f"/usr/lib/postgresql/{major}/bin")


@contextmanager
def started(server_type: type[Server] = Server, programs: Path | None = None, **options: str) -> Iterator[Server]:
    """For the block, a new server runs in a folder of its own."""
    with folder() as data_dir:
        server = server_type(data_dir, **({"shared_buffers": "32MB"} | options))
        if programs is not None:
            assert isinstance(server, SystemServer)
            server.programs = programs
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """For the block, a folder that the server's account can reach; pytest's own cannot be, under root."""
    made = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def environment_of(server: Server, **more: str) -> dict[str, str]:
    """The environment of a program of ours that uses this server, as production sets it."""
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "SECRET_KEY": "only-for-tests",
        "LEDGER_DATA_DIR": str(server.data_dir),
        "DATABASE_URL": server.application_url,
        "LEDGER_OWNER_DATABASE_URL": server.owner_url,
        **more,
    }
