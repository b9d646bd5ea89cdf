"""A database of an earlier release is upgraded with traffic running: nothing fails, nothing is lost, no digest changes."""

import io
import lzma
import signal
import subprocess
import sys
import tarfile
import urllib.error
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ledger.rules.kinds import KINDS
from ledger.version import VERSION
from ledger_project.serving.postgres.credentials import free_port
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.web import command
from tests.deployment.servers import KEY, ROOT, WITH_PIP, call, environment_of, folder, manage, started, started_version
from tests.deployment.traffic import Traffic, running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.one_node("runs servers of its own")]

RELEASES = Path(__file__).with_name("releases")
EARLIER = sorted(path.name.removesuffix(".sql.xz") for path in RELEASES.glob("*.sql.xz"))
ONLY_FROM_17 = b"SET transaction_timeout = 0;"
TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname ~ '^(ledger|billing)_' AND relname !~ '_[0-9]{6,}$'
    ORDER BY relname
"""
KEYS = """
    SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
    WHERE c.relname = ANY (%s) AND EXISTS (
        SELECT FROM pg_attribute d WHERE d.attrelid = c.oid AND d.attname = 'digest' AND NOT d.attisdropped)
    GROUP BY c.relname
"""
WAITS = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)
    FROM pg_locks WHERE NOT granted AND locktype = 'relation'
"""
ENTRIES = 100_000
LONGEST_WAIT_SECONDS = 2.0


def stored_sql(release: str) -> bytes:
    """The SQL that makes the stored database of a release."""
    return lzma.decompress((RELEASES / f"{release}.sql.xz").read_bytes()).replace(ONLY_FROM_17, b"")


def load(release: str, server: Server) -> None:
    """Load the stored database of a release into a new server."""
    with psycopg.connect(server.owner_url, autocommit=True) as owner:
        owner.execute(stored_sql(release))


def tables_of(owner: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in owner.execute(TABLES)]


def digests_of(owner: psycopg.Connection[Any]) -> dict[tuple[str, str], bytes]:
    """The digest of each row that has one, by its table and key; the register's are those of all other rows."""
    digests = {}
    for table, key in owner.execute(KEYS, [tables_of(owner)]).fetchall():
        text = sql.SQL(" || '/' || ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in key)
        query = sql.SQL("SELECT {}, digest FROM {} WHERE digest IS NOT NULL").format(text, sql.Identifier(table))
        digests |= {(table, row): digest for row, digest in owner.execute(query)}
    return digests


def assert_nothing_was_lost(server: Server, before: dict[tuple[str, str], bytes], *of_audit: str) -> None:
    """The audit, the check of what was billed, and doctor find nothing, and every row of before has its digest."""
    manage(server, "audit_ledger", *of_audit)
    manage(server, "generate_invoices", "--check")
    # Warnings are about a machine for tests: no timetable, no two-step login.
    said = manage(server, "doctor", codes=(0, 1))
    for line in (
        "Migrations   All migrations are applied.",
        "Schema       This version made it, and it is as prepare_database left it.",
    ):
        assert f"OK       {line}" in said
    with psycopg.connect(server.owner_url, autocommit=True) as owner:
        after = digests_of(owner)
    assert before.items() <= after.items()


# `make check` upgrades the database of the earliest release, by the steps of all later ones.
@pytest.mark.parametrize(
    ("release", "version"),
    [
        pytest.param(release, version, marks=[pytest.mark.check] if (release, version) == (EARLIER[0], WITH_PIP) else [])
        for release in EARLIER
        for version in (WITH_PIP, 17, 16, 15)
    ],
)
def test_a_database_of_an_earlier_release_is_upgraded(release: str, version: int) -> None:
    with started_version(version) as server, psycopg.connect(server.owner_url, autocommit=True) as owner:
        load(release, server)
        assert [name for name in tables_of(owner) if owner.execute(f"SELECT FROM {name} LIMIT 1").fetchone() is None] == []
        assert {kind for (kind,) in owner.execute("SELECT DISTINCT kind FROM ledger_entry")} == KINDS.keys()
        before = digests_of(owner)
        assert {table for table, _ in before} > {"ledger_entry", "ledger_register", "billing_invoice", "billing_transition"}
        refused = manage(server, "doctor", codes=(2,), DATABASE_URL=server.owner_url)
        assert f"of release {VERSION}: run `manage.py" in " ".join(refused.split())
        manage(server, "prepare_database")
        assert_nothing_was_lost(server, before)


# With traffic running --------------------------------------------------------------------------------


def send_call(url: str, number: int) -> str:
    """Spend, mostly, or read; return the answer if it is no success."""
    holder = f"/v1/holders/grown-{number % 50}"
    if number % 5 == 0:
        status, answer = call(url, f"{holder}/balance")
    else:
        status, answer = call(url, f"{holder}/spends", f"during-{number}", {"amount": 1})
    return "" if status in (200, 201) else f"{status} {answer}"


def is_ready(url: str) -> bool:
    try:
        return call(url, "/readyz")[0] == 200
    except (urllib.error.URLError, OSError):
        return False


class Web:
    """A web server with the code of a folder, in a process group of its own."""

    def __init__(self, server: Server, port: int, code: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        environment = environment_of(server, PYTHONPATH=str(code))
        arguments = [each if each != str(ROOT) else str(code) for each in command(port=port, workers=1)]
        self.process = subprocess.Popen(arguments, cwd=code, env=environment, start_new_session=True)
        wait_until(lambda: is_ready(self.url) or self.process.poll() is not None)
        assert self.process.poll() is None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.mark.parametrize("release", EARLIER)
def test_an_upgrade_under_load_fails_no_call_and_waits_for_no_table_longer_than_2_s(release: str, tmp_path: Path) -> None:
    with started() as server, folder() as code, psycopg.connect(server.owner_url, autocommit=True) as owner:
        load(release, server)
        archive = lzma.decompress((RELEASES / f"{release}.tar.xz").read_bytes())
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(code, filter="data")
        # The audit of 0.2.0 reads the accounts of a large ledger in another order than it needs, and counts entries twice.
        accounts = Path("ledger/audit/sql/accounts.sql")
        (code / accounts).write_text((ROOT / accounts).read_text())
        run_earlier(server, code, "manage.py", "prepare_database")
        run_earlier(server, code, str(Path(__file__).with_name("grow.py")), str(ENTRIES))
        assert owner.execute("SELECT count(*) >= %s FROM ledger_entry", [ENTRIES]).fetchone() == (True,)
        before, anchor = digests_of(owner), str(tmp_path / "anchor")
        run_earlier(server, code, "manage.py", "audit_ledger", "--anchor-write", anchor)
        web = [Web(server, free_port(), code) for _ in range(2)]
        traffic = Traffic([each.url for each in web], send_call)
        waits: list[float] = []
        with psycopg.connect(server.superuser_url, autocommit=True) as observer, running(traffic.send, 4):

            def watch() -> None:
                waits.extend(float(seconds) for (seconds,) in observer.execute(WAITS))

            with running(watch, 1):
                traffic.go_on(200)
                manage(server, "prepare_database")
                traffic.go_on(200)
                for number in range(2):
                    traffic.take_out(web[number].url)
                    web[number].stop()
                    web[number] = Web(server, free_port(), ROOT)
                    traffic.put_in(web[number].url)
                    traffic.go_on(200)
        for each in web:
            each.stop()
        assert traffic.failures == []
        assert max(waits) < LONGEST_WAIT_SECONDS
        assert_nothing_was_lost(server, before, "--anchor-check", anchor)
        print(f"{traffic.count} calls, the slowest {traffic.slowest_s:.2f} s; waited for a table {max(waits):.2f} s")


def run_earlier(server: Server, code: Path, *arguments: str) -> None:
    environment = environment_of(server, LEDGER_BOOTSTRAP_API_KEY=KEY)
    done = subprocess.run([sys.executable, *arguments], cwd=code, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
