"""Makes, starts, finds and stops the server."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping

from ledger_project.serving.postgres import processes
from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.binaries import binaries_for, reachable_home, run
from ledger_project.serving.postgres.credentials import (
    APPLICATION,
    DATABASE,
    OWNER,
    SUPERUSER,
    Credentials,
    credentials_of,
    free_port,
    keep,
    locked,
)
from ledger_project.serving.postgres.errors import EmbeddedPostgresError

SOCKET_PATH_LIMIT_BYTES = 107
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
MEGABYTE = 1024 * 1024
ROOM_FOR_CLUSTER_BYTES = 150 * MEGABYTE
"""The size of a new ledger with the demo, and of some of its log."""
LOG_LIMIT_BYTES = 10 * 1024 * 1024

# Values for a small machine. Durability stays at PostgreSQL's defaults, stated here because the ledger depends on them.
SETTINGS: dict[str, str] = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    # A batch locks every holder in it: the table has room for this number times the connections, 51,200 locks in 14 MB.
    "max_locks_per_transaction": "256",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "checkpoint_completion_target": "0.9",
    "jit": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    # Log waits for a lock over a second (deadlock_timeout) and statements over half a second, without their parameters.
    "log_lock_waits": "on",
    "log_min_duration_statement": "500ms",
    "log_parameter_max_length": "0",
    "cluster_name": "ledger",
}


class Server:
    """One PostgreSQL server with the database `ledger` and its three roles, under one data directory."""

    locale: ClassVar[tuple[str, ...]] = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    """The options of `initdb` for texts that sort by their bytes, whatever the system's libraries say."""

    def __init__(self, data_dir: Path | str, **settings: str) -> None:
        """Describe the server of `data_dir`; nothing is made or started. `settings` override `SETTINGS`."""
        self.data_dir = Path(data_dir).absolute()
        self.cluster = self.data_dir / "postgres"
        self.settings = SETTINGS | settings

    # How to reach it

    @property
    def credentials(self) -> Credentials:
        """The content of `server.json`, made now if the file does not exist."""
        return credentials_of(self.data_dir)

    @property
    def superuser_url(self) -> str:
        return self.credentials.superuser_url

    @property
    def owner_url(self) -> str:
        return self.credentials.owner_url

    @property
    def application_url(self) -> str:
        return self.credentials.application_url

    # Start and stop

    def start(self) -> "Server":
        """Start the server with its roles and database, or raise an exception; safe to call twice and from two processes.

        Raises:
            EmbeddedPostgresError: it could not be started; the message ends with the server's own words.
        """
        self.credentials  # noqa: B018 - makes the data directory and server.json
        with locked(self.data_dir / "server.lock"):
            self._remove_unfinished_clusters()
            if not self.cluster.exists():
                self._refuse_to_replace_a_lost_cluster()
                self._initialise_cluster()
            if not self.credentials.has_cluster:
                keep(self.data_dir, replace(self.credentials, has_cluster=True))
            # A server that was found alive may be dying of a `kill -9` at this moment; then start it like a dead one.
            for is_last_try in (False, False, True):
                self._have_it_accept_connections()
                try:
                    self._ensure_roles()
                    break
                except EmbeddedPostgresError:
                    if is_last_try or self.is_running():
                        raise
        return self

    def stop(self) -> None:
        """Stop the server and its sessions; clear up after one that was killed; do nothing if it does not run."""
        if not self.cluster.exists():
            return
        with locked(self.data_dir / "server.lock"):
            if self.is_running():
                self._ask_to_stop()
            if (self.cluster / "postmaster.pid").exists():
                self._clear_after_unclean_end()
            socket_dir = Path(self.credentials.socket_dir)
            if socket_dir.parent != self.data_dir:
                with suppress(OSError):
                    socket_dir.rmdir()

    def is_running(self) -> bool:
        """Return whether the postmaster of this cluster is alive."""
        return self.postmaster_pid() is not None

    def postmaster_pid(self) -> int | None:
        """Return the process id of this cluster's living postmaster, or None. See Note [Whose process is it]."""
        return processes.postmaster_pid(self.cluster)

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.cluster.resolve() / "server.log"

    # Stopping

    def _ask_to_stop(self) -> None:
        """Stop the postmaster and its sessions; return also if a `kill -9` ends it in the meantime."""
        for mode in ("fast", "immediate"):
            try:
                self._pg_ctl("stop", f"--mode={mode}", "--wait", f"--timeout={STOP_TIMEOUT_S}")
                return
            except EmbeddedPostgresError as error:
                # pg_ctl waits for the end of postmaster.pid, which outlives a killed postmaster.
                if not self.is_running():
                    return
                refusal = error
        raise refusal

    # Starting, step by step

    def _have_it_accept_connections(self) -> None:
        """Launch the server unless it runs, and wait until it is no longer starting."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if not self.is_running():
                self._clear_after_unclean_end()
                self._choose_addresses()
                wait = ["--wait", f"--timeout={START_TIMEOUT_S}"]
                self._pg_ctl("start", *wait, "--log", str(self.log), "--options", self._options())
            if PGconn.ping(self.credentials.maintenance_url.encode()) == Ping.OK:
                return
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL runs, but accepts no connections\n{self._last_words()}")
            time.sleep(0.05)

    def _refuse_to_replace_a_lost_cluster(self) -> None:
        """Raise an exception unless a ledger may begin here: none was here before, and the disk has room for one."""
        if self.credentials.has_cluster or self.cluster.is_symlink():
            raise EmbeddedPostgresError(
                f"{self.cluster} is missing, and server.json beside it says that it had the ledger's data. Put it back "
                "(docs/how-to/operations/backup.md). To begin with an empty ledger instead, remove "
                f"{self.data_dir / 'server.json'} too."
            )
        free = shutil.disk_usage(self.data_dir).free
        if free < ROOM_FOR_CLUSTER_BYTES:
            raise EmbeddedPostgresError(
                f"{self.data_dir} has {free // MEGABYTE} MB free, and a new database needs "
                f"{ROOM_FOR_CLUSTER_BYTES // MEGABYTE}. "
                "Make room, or set LEDGER_DATA_DIR to a folder on another disk."
            )

    def _initialise_cluster(self) -> None:
        """Make the cluster under a temporary name and move it into its place when it is complete."""
        home = reachable_home(self.data_dir, self.account)
        unfinished = Path(tempfile.mkdtemp(dir=home, prefix="postgres.unfinished-"))
        os.chown(unfinished, self.account.uid, self.account.gid)
        # The password goes through a pipe that belongs to the server's account, which could not read a file of ours.
        reading, writing = os.pipe()
        os.fchown(reading, self.account.uid, self.account.gid)
        os.write(writing, self.credentials.superuser_password.encode())
        os.close(writing)
        try:
            self._run(
                "initdb", f"--pgdata={unfinished}", f"--username={SUPERUSER}", "--pwfile=/dev/stdin", "--auth=scram-sha-256",
                "--encoding=UTF8", *self.locale, "--data-checksums",
                stdin=reading,
            )  # fmt: skip
        finally:
            os.close(reading)
        if home == self.data_dir:
            unfinished.rename(self.cluster)
        else:
            self.cluster.symlink_to(unfinished.rename(unfinished.with_name(unfinished.name.replace("unfinished-", ""))))
        _sync_directory(self.data_dir)

    def _remove_unfinished_clusters(self) -> None:
        for unfinished in self.data_dir.glob("postgres*.unfinished-*"):
            shutil.rmtree(unfinished)

    def _clear_after_unclean_end(self) -> None:
        """Wait for children of a killed postmaster, then remove a `postmaster.pid` that names another program's process."""
        deadline = time.monotonic() + 10
        while orphans := processes.pids(self.cluster):
            if time.monotonic() > deadline:
                for pid in orphans:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                deadline += 10
            time.sleep(0.02)
        # PostgreSQL refuses to start while *any* process has the number in these files, even a zombie.
        if processes.has_proc():
            (self.cluster / "postmaster.pid").unlink(missing_ok=True)
            for left_over in (self.data_dir / "socket").glob(".s.PGSQL.*"):
                left_over.unlink()
        with suppress(FileNotFoundError):
            if self.log.lstat().st_size > LOG_LIMIT_BYTES:
                self.log.unlink()

    def _choose_addresses(self) -> None:
        """Keep the port and the socket directory, unless the port was taken or the path is too long or missing."""
        kept = self.credentials
        self._remove_old_socket_dir(Path(kept.socket_dir))
        port = kept.port if _is_free(kept.port) else free_port()
        chosen = replace(kept, port=port, socket_dir=str(self._socket_dir()))
        if chosen != kept:
            keep(self.data_dir, chosen)

    def _socket_dir(self) -> Path:
        """Return a directory that only the server's account may write to, with a path short enough for a socket."""
        folder = self.data_dir / "socket"
        longest = len(os.fsencode(folder / ".s.PGSQL.65535"))
        if longest <= SOCKET_PATH_LIMIT_BYTES and self.account.can_reach(self.data_dir):
            folder.mkdir(mode=0o700, exist_ok=True)
            os.chown(folder, self.account.uid, self.account.gid)
            return folder
        # A new one each time: a copied data directory must not share it with the original. And by mkdtemp, so that nobody can
        # have put something of this name there before us.
        made = Path(tempfile.mkdtemp(dir="/tmp", prefix="ledger-socket-"))
        os.chown(made, self.account.uid, self.account.gid)
        return made

    def _remove_old_socket_dir(self, kept: Path) -> None:
        """Remove the directory in /tmp that a killed server, or a failed start, of this cluster left; another cluster's stays."""
        for lock_file in kept.glob(".s.PGSQL.*.lock"):
            with suppress(OSError, IndexError):
                if kept.parent != self.data_dir and Path(lock_file.read_text().splitlines()[1]) == self.cluster.resolve():
                    shutil.rmtree(kept)
        if kept.parent != self.data_dir:
            with suppress(OSError):
                kept.rmdir()

    def _options(self) -> str:
        kept = self.credentials
        settings = self.settings | {
            "port": str(kept.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": kept.socket_dir,
        }
        return " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())

    def _ensure_roles(self) -> None:
        """Ensure the owner, the application role and the database; both roles know the passwords of `server.json`."""
        kept = self.credentials
        try:
            with psycopg.connect(self.credentials.maintenance_url, autocommit=True, connect_timeout=10) as connection:
                self._wait_until_recovered(connection)
                for role, attributes, password in (
                    (OWNER, "LOGIN CREATEDB", kept.owner_password),
                    (APPLICATION, "LOGIN", kept.application_password),
                ):
                    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
                        create = sql.SQL("CREATE ROLE {} {} PASSWORD {}")
                        connection.execute(create.format(sql.Identifier(role), sql.SQL(attributes), sql.Literal(password)))
                # `manage.py locks` and its page show what sessions of every role do.
                connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(sql.Identifier(APPLICATION)))
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(
                        sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(OWNER))
                    )
        except psycopg.OperationalError as error:
            raise EmbeddedPostgresError(f"PostgreSQL runs, but does not let us in: {error}\n{self._last_words()}") from error

    def _wait_until_recovered(self, connection: psycopg.Connection[Any]) -> None:
        """Wait until the server accepts writes: during the restore of an archived log, it accepts only reading connections."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL runs, but still restores its archived log\n{self._last_words()}")
            time.sleep(0.05)

    # Running the binaries

    @cached_property
    def account(self) -> SystemAccount:
        """Return the account of the existing cluster, else the account with which to make it."""
        if not self.cluster.exists():
            return SystemAccount.choose()
        owner = self.cluster.stat()
        if os.geteuid() not in (0, owner.st_uid):
            raise EmbeddedPostgresError(f"{self.cluster} belongs to another user; set LEDGER_DATA_DIR to a folder of your own")
        return SystemAccount(owner.st_uid, owner.st_gid)

    @cached_property
    def binaries(self) -> Path:
        """Return PostgreSQL's `bin` directory."""
        return binaries_for(self.account, self.data_dir)

    def _pg_ctl(self, action: str, *arguments: str) -> None:
        self._run("pg_ctl", action, f"--pgdata={self.cluster.resolve()}", *arguments)

    def _run(self, program: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> None:
        try:
            run(self.binaries / program, *arguments, account=self.account, stdin=stdin)
        except EmbeddedPostgresError as error:
            raise EmbeddedPostgresError(f"{error}\n{self._last_words()}") from error

    def _last_words(self) -> str:
        with suppress(OSError):
            return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-20:])
        return ""


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
