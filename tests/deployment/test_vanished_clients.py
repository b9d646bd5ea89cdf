"""A client whose machine vanishes, without a word, frees its lock in under 30 s.

PostgreSQL and its clients run in a separate network, whose only link is taken down: no packet arrives any more, and nobody is
told. Who looks on is connected by the Unix socket; so is PgBouncer, which only its clients reach by the network.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from ledger_project.serving.postgres.server import Server

IN_A_NETWORK_OF_ITS_OWN = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

WATCHED = """
def vanish_and_watch(server):
    '''Take the network down; print when the locks 1 (idle) and 3 (running) were free, and whether 2 (the control) was held.'''
    observer = psycopg.connect(server.superuser_url, autocommit=True)
    while not observer.execute("SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(300)'").fetchone():
        time.sleep(0.05)

    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    vanished_at = time.monotonic()
    freed = {}
    while len(freed) < 2 and time.monotonic() - vanished_at < 45:
        held = {row[0] for row in observer.execute("SELECT objid::int FROM pg_locks WHERE locktype = 'advisory'")}
        for number in {1, 3} - held - freed.keys():
            freed[number] = time.monotonic() - vanished_at
        time.sleep(0.1)
    print(json.dumps({"idle": freed.get(1), "running": freed.get(3), "control_holds": 2 in held}), flush=True)
"""

PREPARED = """
import json, os, shutil, subprocess, sys, threading, time
from pathlib import Path
import psycopg
from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.server import Server

server = Server(sys.argv[1]).start()
os.environ |= {"DATABASE_URL": server.owner_url, "DJANGO_SETTINGS_MODULE": "ledger_project.settings", "SECRET_KEY": "x"}
import django
django.setup()
from django.conf import settings
from django.db import connection
from ledger_project.serving.bootstrap import set_settings
set_settings(connection)
connection.close()
"""

VANISH = """
kept = server.credentials
over_tcp = {
    "host": "127.0.0.1", "port": kept.port, "user": "ledger_app", "password": kept.application_password, "dbname": "ledger",
}
unprotected = "-c tcp_keepalives_idle=7200 -c tcp_user_timeout=0 -c client_connection_check_interval=0"
idle = psycopg.connect(**over_tcp)
idle.execute("SELECT pg_advisory_xact_lock(1)")
control = psycopg.connect(**over_tcp, options=unprotected)
control.execute("SELECT pg_advisory_xact_lock(2)")
running = psycopg.connect(**over_tcp)
running.execute("SET statement_timeout = 0")
running.execute("SELECT pg_advisory_xact_lock(3)")
threading.Thread(target=running.execute, args=["SELECT pg_sleep(300)"], daemon=True).start()

vanish_and_watch(server)
server.stop()
os._exit(0)
"""

VANISH_FROM_PGBOUNCER = """
kept, account, bouncers = server.credentials, SystemAccount.choose(), []


def through_pgbouncer(port, change=lambda script: script):
    folder = Path(sys.argv[1]) / f"pgbouncer-{port}"
    folder.mkdir()
    script = folder / "start"
    script.write_text(change((settings.BASE_DIR / "deploy/pgbouncer/start").read_text()))
    script.chmod(0o755)
    os.chown(folder, account.uid, account.gid)
    environment = {
        "PATH": os.environ["PATH"] + ":/usr/sbin", "PGBOUNCER_DIR": str(folder / "run"), "PGBOUNCER_PORT": str(port),
        "PGBOUNCER_ADDRESS": "127.0.0.1", "DB_HOST": kept.socket_dir, "DB_PORT": str(kept.port),
        "DB_USER": "ledger_app", "DB_PASSWORD": kept.application_password,
    }
    log = (folder / "log").open("wb")
    bouncers.append(subprocess.Popen([script], cwd="/", env=environment, stdout=log, stderr=log, **account.process_options))
    parameters = {
        "host": "127.0.0.1", "port": port, "user": "ledger_app", "password": kept.application_password, "dbname": "ledger",
    }
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(**parameters).close()
            return parameters
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                sys.exit((folder / "log").read_text())
            time.sleep(0.05)


configured = through_pgbouncer(6432)
unprotected = through_pgbouncer(
    6433, lambda script: script.replace("tcp_keepalive = 1", "tcp_keepalive = 0").replace("tcp_user_timeout = 20000", "")
)
idle = psycopg.connect(**configured)
idle.execute("SELECT pg_advisory_xact_lock(1)")
control = psycopg.connect(**unprotected)
control.execute("SELECT pg_advisory_xact_lock(2)")
running = psycopg.connect(**configured)
running.execute("SET LOCAL statement_timeout = 0")
running.execute("SELECT pg_advisory_xact_lock(3)")
threading.Thread(target=running.execute, args=["SELECT pg_sleep(300)"], daemon=True).start()

vanish_and_watch(server)
for bouncer in bouncers:
    bouncer.kill()
    bouncer.wait()
server.stop()
os._exit(0)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where PostgreSQL has its data; every account may pass."""
    made = Path(tempfile.mkdtemp(prefix="ledger-test-"))
    made.chmod(0o755)
    yield made
    Server(made).stop()
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.parametrize("script", [VANISH, VANISH_FROM_PGBOUNCER], ids=["from-postgresql", "from-pgbouncer"])
def test_a_lock_is_free_soon_after_its_holders_machine_vanished(folder: Path, script: str) -> None:
    """The control beside it: a session without the settings still has its lock then."""
    if script is VANISH_FROM_PGBOUNCER and shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("there is no pgbouncer")
    try:
        probe = subprocess.run(
            [*IN_A_NETWORK_OF_ITS_OWN, "ip", "link", "set", "lo", "down"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if probe.returncode:
        pytest.skip(f"no separate network can be made here: {probe.stderr.strip()}")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(settings.BASE_DIR), "LEDGER_DATA_DIR": str(folder)}
    done = subprocess.run(
        [*IN_A_NETWORK_OF_ITS_OWN, sys.executable, "-c", WATCHED + PREPARED + script, str(folder)],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["idle"] is not None, found
    assert found["running"] is not None, found
    assert 0 < found["idle"] < 30
    assert 0 < found["running"] < 30
    assert found["control_holds"] is True
