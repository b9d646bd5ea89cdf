"""Files beside the cluster: the server's address, its passwords, and Django's SECRET_KEY."""

import fcntl
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from ledger_project.serving.postgres.errors import EmbeddedPostgresError

DATABASE = "ledger"
SUPERUSER = "postgres"
OWNER = "ledger_owner"
APPLICATION = "ledger_app"


@dataclass(frozen=True)
class Credentials:
    """The server's address and passwords, stored in `server.json`, mode 0600."""

    port: int
    socket_dir: str
    superuser_password: str
    owner_password: str
    application_password: str
    has_cluster: bool = False
    """Whether the cluster was ever made. If it is missing afterwards, it was lost, and no new cluster is made in its place."""

    @property
    def superuser_url(self) -> str:
        """For tests and repairs."""
        return self.url(SUPERUSER, self.superuser_password)

    @property
    def owner_url(self) -> str:
        """The URL of the role that owns the database and its tables."""
        return self.url(OWNER, self.owner_password)

    @property
    def application_url(self) -> str:
        """The URL of the application's role."""
        return self.url(APPLICATION, self.application_password)

    @property
    def maintenance_url(self) -> str:
        """The superuser's URL of the database that every cluster has."""
        return self.url(SUPERUSER, self.superuser_password, "postgres")

    def url(self, role: str, password: str, database: str = DATABASE) -> str:
        """A URL that libpq, psycopg and `connection_urls.parse` understand, over the Unix socket."""
        return f"postgresql://{role}:{password}@{quote(self.socket_dir, safe='')}:{self.port}/{database}"


def data_dir_from_environment() -> Path:
    """Return the data directory of this installation, absolute: LEDGER_DATA_DIR, else `.data` beside `manage.py`."""
    return Path(os.environ.get("LEDGER_DATA_DIR", Path(__file__).resolve().parents[3] / ".data")).absolute()


def credentials_of(data_dir: Path | str) -> Credentials:
    """Return the content of `server.json` of this data directory; make the file if it does not exist. Does not start the server.

    Raises:
        EmbeddedPostgresError: the data directory belongs to another user.
    """
    path = Path(data_dir) / "server.json"
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / "server.lock"):
        if not path.exists():
            superuser, owner, application = (secrets.token_hex(24) for _ in range(3))
            keep(data_dir, Credentials(free_port(), str(path.parent / "socket"), superuser, owner, application))
    return _read(path)


def _read(path: Path) -> Credentials:
    try:
        return Credentials(**json.loads(path.read_text()))
    except PermissionError as error:
        raise EmbeddedPostgresError(
            f"{error.filename} belongs to another user; set LEDGER_DATA_DIR to a folder of your own"
        ) from error


def keep(data_dir: Path | str, credentials: Credentials) -> None:
    """Store the credentials as `server.json`."""
    _write_privately(Path(data_dir) / "server.json", json.dumps(asdict(credentials), indent=2))


def secret_key(data_dir: Path | str) -> str:
    """Return Django's SECRET_KEY of this data directory: random, made once, readable by its owner only."""
    return _kept_secret(Path(data_dir) / "secret_key")


def metrics_token(data_dir: Path | str) -> str:
    """Return the token for /metrics of this data directory: random, made once, readable by its owner only."""
    return _kept_secret(Path(data_dir) / "metrics_token")


def _kept_secret(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / "server.lock"):
        if not path.exists():
            _write_privately(path, secrets.token_urlsafe(50))
        return path.read_text()


def _write_privately(path: Path, text: str) -> None:
    """Write `text` to `path` with mode 0600, completely or not at all, and sync it to the disk."""
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
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on a file; it ends with the process, however that ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    """Return a TCP port of this machine that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
