"""The server under measurement: an embedded PostgreSQL with a prepared database, web processes, and facts about the machine."""

import json
import os
import platform
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import sql

from ledger_project.serving.postgres.credentials import APPLICATION, DATABASE, SUPERUSER
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.web import command
from tests.benchmarks.clients import Load, Outcome
from tests.benchmarks.measuring import children

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench-results"
KEY = "benchmark-key-of-no-secret-at-all"
COMPETITORS_SQL = ("tables.sql", "opening.sql", "server_function.sql")
SETTINGS_MODULE = "tests.benchmarks.competitors.settings"
HOLDERS = 10_000
LOT = 10**12
SPEND = '{"amount":120,"reason":"chat completion","reference":"req_{number}"}'


@dataclass(frozen=True)
class Web:
    """A running web server, started as in production."""

    port: int
    pid: int

    @property
    def workers(self) -> list[int]:
        """The processes that answer requests."""
        return [pid for pid in children(self.pid) if Path(f"/proc/{pid}/task").exists()]

    def load(self, path: str, **options: Any) -> Outcome:
        """Send load from a separate process, and return its outcome; raise if a response was not 2xx."""
        plan = Load(port=self.port, path=path, **{"key": KEY} | options)
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.clients"], cwd=ROOT,
            input=json.dumps(asdict(plan)), stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        outcome = Outcome(**json.loads(done.stdout))
        if set(outcome.statuses) - {"200", "201"}:
            raise RuntimeError(f"{path}: {outcome.statuses}\n{outcome.first_bad}")
        return outcome


class BenchmarkServer:
    """A running PostgreSQL with a prepared database. `close` drops the database and stops the server."""

    def __init__(self, data_dir: Path) -> None:
        """Start with an empty database; call before Django reads its settings."""
        self.postgres = Server(data_dir)
        self.postgres.start()
        self._drop_database()
        self.postgres.start()
        os.environ.update(
            LEDGER_DATA_DIR=str(data_dir),
            DATABASE_URL=self.postgres.application_url,
            LEDGER_OWNER_DATABASE_URL=self.postgres.owner_url,
            DJANGO_SETTINGS_MODULE=SETTINGS_MODULE,
            LEDGER_BOOTSTRAP_API_KEY=KEY,
        )
        import django

        django.setup()
        try:
            self._prepare()
        except BaseException:
            self.postgres.stop()
            raise

    def _drop_database(self) -> None:
        """Drop the database of an earlier run."""
        kept = self.postgres.credentials
        url = kept.url(SUPERUSER, kept.superuser_password, "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(DATABASE)))

    def _prepare(self) -> None:
        """Migrate, grant rights, and add what the competitors need."""
        from ledger_project.serving.bootstrap import connected_as_owner, ensure_bootstrap_key, migrate_and_grant_rights

        with connected_as_owner() as owner:
            migrate_and_grant_rights(owner, verbosity=0)
        with self.superuser() as connection:
            for script in COMPETITORS_SQL:
                connection.execute((Path(__file__).parent / "competitors" / script).read_text())
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA competitors TO {APPLICATION}")
        ensure_bootstrap_key()

    def close(self) -> None:
        """Drop the database and stop the server."""
        with suppress(psycopg.Error):
            self._drop_database()
        self.postgres.stop()

    @contextmanager
    def superuser(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a superuser's connection, in autocommit and without timeouts."""
        with psycopg.connect(self.postgres.superuser_url, autocommit=True) as connection:
            connection.execute("SET statement_timeout = 0")
            connection.execute("SET lock_timeout = 0")
            yield connection

    @contextmanager
    def web(self, **options: Any) -> Iterator[Web]:
        """Run a web server within the block, as in production but with the competitors' paths too."""
        port = _free_port()
        log = RESULTS / "web.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port=port, **options), cwd=ROOT, process_group=0,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
            try:
                _wait_for(port, process, log)
                yield Web(port, process.pid)
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=15)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                process.wait()

    def grant_to_all(self, prefix: str = "bench-", holders: int = HOLDERS) -> None:
        """Give every holder three lots, promotional and paid, that no benchmark uses up."""
        from ledger import services
        from ledger.rules.requests import GrantRequest

        terms: Sequence[dict[str, Any]] = ({"source": "promotional"}, {"priority": 50}, {})
        for first in range(0, holders, 300):
            requests = [
                GrantRequest(holder_id=f"{prefix}{number}", amount=LOT, idempotency_key=f"lot-{lot}", actor="key:bench", **each)
                for number in range(first, min(holders, first + 300))
                for lot, each in enumerate(terms)
            ]
            services.batch(requests, mode="each", idempotency_key=f"{prefix}{first}")

    def empty_ledger(self) -> None:
        """Delete all entries and batches, as only a superuser who disables the trigger can."""
        with self.superuser() as connection:
            for table in ("ledger_entry", "ledger_batch"):
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER append_only")
                connection.execute(f"TRUNCATE {table}")
                connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")

    def settle(self) -> None:
        """Vacuum and checkpoint now, so that the server does not during a measurement."""
        with self.superuser() as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")


def machine(server: BenchmarkServer) -> dict[str, Any]:
    """Return facts about the machine, for the published results."""
    with server.superuser() as connection:
        row = connection.execute("SELECT current_setting('server_version')").fetchone()
    return computer() | {
        "kernel": platform.release(),
        "postgresql": row[0] if row else "",
        "fdatasync_us": _fdatasync_us(server.postgres.data_dir),
        "commit": _commit(),
    }


def computer() -> dict[str, Any]:
    """Return the facts that need no server: the processor, the memory, Python, and how busy the machine is now."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _fdatasync_us(folder: Path) -> int:
    """Return how long fdatasync of 8 KiB takes, which COMMIT waits for: the median in microseconds."""
    path, times = folder / "fdatasync.probe", []
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(bytes(8192))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    path.unlink()
    return round(median(times) * 1e6)


def _commit() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the web server responds; fail with its log when it ends or takes too long."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the web server did not come up:\n{log.read_text()}")
