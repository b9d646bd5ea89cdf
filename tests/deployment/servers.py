"""Servers of PostgreSQL beside the one that all tests share: of another version, with other settings, in another folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest

from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.binaries import run
from ledger_project.serving.postgres.credentials import free_port, keep
from ledger_project.serving.postgres.server import Server

ROOT = Path(__file__).resolve().parents[2]
KEY = "bootstrap-key-0123456789abcdef0123456789"
"""The API key that `prepare_database` makes, called by `manage`."""


class SystemServer(Server):
    """A server that runs the programs of another PostgreSQL, such as Debian's."""

    locale: ClassVar[tuple[str, ...]] = ("--locale=C.UTF-8",)
    """PostgreSQL 15 and 16 have no locales of their own."""
    programs: Path

    @cached_property
    def binaries(self) -> Path:
        """The programs that it was given."""
        return self.programs


WITH_PIP = 18
"""The PostgreSQL that comes with pip, which all tests use that name no other."""


def programs_of(major: int) -> Path:
    """The programs of this PostgreSQL: the folder that a variable such as POSTGRESQL_16 names, or Debian's; it may not exist."""
    return Path(os.environ.get(f"POSTGRESQL_{major}") or f"/usr/lib/postgresql/{major}/bin")


def started_version(major: int, **options: str) -> AbstractContextManager[Server]:
    """As `started`, a server of this version; the test is skipped where its programs are missing."""
    if major == WITH_PIP:
        return started(**options)
    programs = programs_of(major)
    if not programs.exists():
        pytest.skip(f"no PostgreSQL {major} in {programs}: apt install postgresql-{major}, or POSTGRESQL_{major} names a folder")
    return started(SystemServer, programs, **options)


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


@dataclass(frozen=True)
class PgBouncer:
    """A program of PgBouncer, and its version."""

    program: Path
    version: tuple[int, ...]

    @property
    def keeps_prepared_statements(self) -> bool:
        """Whether it can."""
        return self.version >= (1, 21)


def find_pgbouncer(*, prepared: bool = False) -> PgBouncer | None:
    """The PgBouncer that PGBOUNCER names, or that of the machine.

    Args:
        prepared: only one that can keep prepared statements; otherwise rather one that cannot.
    """
    found = []
    for name in filter(None, (os.environ.get("PGBOUNCER"), shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"))):
        said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        found.append(PgBouncer(Path(name), tuple(int(part) for part in said.split()[1].split(".")[:2])))
    fitting = [each for each in found if each.keeps_prepared_statements is prepared]
    return next(iter(fitting or ([] if prepared else found)), None)


@contextmanager
def started_pgbouncer(port: str, dbname: str, user: str, password: str, *, prepared: bool = False) -> Iterator[int]:
    """For the block, PgBouncer runs before a server on this machine, started as its image starts it; gives its port.

    Args:
        prepared: it keeps prepared statements; otherwise it does not, whatever its version. The test is skipped where no such
            PgBouncer is.
    """
    pgbouncer = find_pgbouncer(prepared=prepared)
    if pgbouncer is None:
        pytest.skip(f"there is no pgbouncer{' of 1.21 or later: PGBOUNCER names one' if prepared else ''}")
    account = SystemAccount.choose()
    with folder() as data_dir:
        os.chown(data_dir, account.uid, account.gid)
        own = free_port()
        environment = {
            "PATH": f"{pgbouncer.program.parent}:{os.environ['PATH']}",
            "PGBOUNCER_DIR": str(data_dir / "run"), "PGBOUNCER_PORT": str(own), "PGBOUNCER_ADDRESS": "127.0.0.1",
            "DB_HOST": "127.0.0.1", "DB_PORT": port, "DB_NAME": dbname, "DB_USER": user, "DB_PASSWORD": password,
        }  # fmt: skip
        if pgbouncer.keeps_prepared_statements:
            environment["PGBOUNCER_MAX_PREPARED_STATEMENTS"] = "200" if prepared else "0"
        log = data_dir / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [ROOT / "deploy/pgbouncer/start"],
                cwd="/",
                env=environment,
                stdout=output,
                stderr=output,
                **account.process_options,
            )
        try:
            url = psycopg.conninfo.make_conninfo(host="127.0.0.1", port=own, dbname=dbname, user=user, password=password)
            _wait_for_pgbouncer(url, process, log)
            yield own
        finally:
            process.terminate()
            process.wait(30)


def _wait_for_pgbouncer(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return as soon as PgBouncer answers; fail with its log when it ends first."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(psycopg.OperationalError), psycopg.connect(url) as client:
            client.execute("SELECT 1")
            return
        time.sleep(0.05)
    raise AssertionError(f"PgBouncer does not answer: {log.read_text()}")


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """For the block, a copy of the server runs that follows it and takes no writes; `promote` makes it take them."""
    with folder() as data_dir:
        standby = Server(data_dir, **primary.settings)
        own = {"port": free_port(), "socket_dir": str(data_dir / "socket")}
        keep(data_dir, replace(primary.credentials, **own))
        backup = (
            f"--pgdata={data_dir}/postgres",
            f"--dbname={primary.superuser_url}",
            "--write-recovery-conf",
            "--checkpoint=fast",
        )
        os.chown(data_dir, primary.account.uid, primary.account.gid)
        run(primary.binaries / "pg_basebackup", *backup, account=primary.account)
        try:
            # As `start` does, but for the roles, which it cannot make.
            standby._have_it_accept_connections()
            yield standby
        finally:
            standby.stop()


def promote(standby: Server) -> None:
    """Have a standby take writes."""
    standby._pg_ctl("promote", "--wait")


def manage(server: Server, *arguments: str, codes: tuple[int, ...] = (0,), **environment: str) -> str:
    """What a command prints that uses this server; it must end with one of the codes. `environment` overrides the server's."""
    given = environment_of(server, **{"LEDGER_BOOTSTRAP_API_KEY": KEY} | environment)
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


def run_program(server: Server, program: str, *arguments: str, given: str = "", **environment: str) -> str:
    """What a program of PostgreSQL prints that is run as the server's superuser: `given` is its input."""
    done = subprocess.run(
        [server.binaries / program, *arguments],
        input=given, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def call(url: str, path: str, key: str = "", body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the response to a read, or with a body to a write, by the key that `manage` has made."""
    request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None)
    request.add_header("Authorization", f"Bearer {KEY}")
    request.add_header("Idempotency-Key", key)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


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
