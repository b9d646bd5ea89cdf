"""The processes of docker-compose.yml, run natively: PostgreSQL, PgBouncer in transaction mode, two web servers, a worker."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from billing.models import ScheduledTask
from ledger.keys import api_keys
from tests.conftest import WebProcess, database_url
from tests.deployment.servers import find_pgbouncer, started_pgbouncer

pytestmark = pytest.mark.skipif(find_pgbouncer() is None, reason="there is no pgbouncer: apt install pgbouncer")

ROOT = Path(settings.BASE_DIR)


@pytest.fixture
def pgbouncer(committed_db: None) -> Iterator[str]:
    """PgBouncer before the test database; gives the application's URL through it."""
    wanted = psycopg.conninfo.conninfo_to_dict(database_url("application"))
    with started_pgbouncer(**{name: str(wanted[name]) for name in ("port", "dbname", "user", "password")}) as port:
        yield database_url("application", host="127.0.0.1", port=port)


def post(web: WebProcess, path: str, body: dict[str, Any], key: str, idempotency_key: str) -> tuple[int, dict[str, Any]]:
    """Status and body of a write."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Idempotency-Key": idempotency_key}
    request = urllib.request.Request(web.url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.slow
def test_concurrent_spends_over_two_web_servers_behind_pgbouncer_never_overspend(
    pgbouncer: str, server_processes: Callable[..., list[WebProcess]], new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    _, key = api_keys.create_api_key(name=f"processes-{uuid.uuid4().hex}", scopes=["ledger:grant", "ledger:spend", "ledger:read"])
    webs = server_processes(2, dsn=pgbouncer, env={"DATABASE_BEHIND_PGBOUNCER": "true"})
    assert post(webs[0], f"/v1/holders/{holder}/grants", {"amount": 100}, key, "grant")[0] == 201

    def spend(index: int) -> int:
        # Every spend is sent twice, to both servers, as an impatient client does.
        answers = [post(web, f"/v1/holders/{holder}/spends", {"amount": 10}, key, f"spend-{index}") for web in webs]
        assert answers[0][0] == answers[1][0]
        return answers[0][0]

    with ThreadPoolExecutor(16) as pool:
        statuses = Counter(pool.map(spend, range(50)))
    assert statuses == {201: 10, 402: 40}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT kind, count(*), sum(amount) FROM ledger_entry WHERE holder_id = %s GROUP BY kind ORDER BY kind", [holder]
        )
        assert cursor.fetchall() == [("grant", 1, 100), ("refusal", 40, 0), ("spend", 10, -100)]


@pytest.mark.slow
@pytest.mark.check
def test_many_clients_share_few_connections_and_keep_the_timeouts(pgbouncer: str) -> None:
    clients = [psycopg.connect(pgbouncer, autocommit=True) for _ in range(100)]
    try:
        assert {client.execute("SHOW lock_timeout").fetchone() for client in clients} == {("2s",)}
        assert len({client.execute("SELECT pg_backend_pid()").fetchone() for client in clients}) <= 40
    finally:
        for client in clients:
            client.close()


@pytest.mark.slow
@pytest.mark.check
def test_the_worker_follows_its_timetable_and_stops_at_a_signal(pgbouncer: str, tmp_path: Path) -> None:
    # Another test may have done it today. A deleted row would be a finding of the audit.
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    environment = {
        "PATH": os.environ["PATH"],
        "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": pgbouncer,
        "DATABASE_BEHIND_PGBOUNCER": "true",
    }
    log = tmp_path / "log"
    command = [sys.executable, ROOT / "manage.py", "work", "expire_credits", "usage_partitions"]
    with log.open("wb") as output:
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output, process_group=0)
    try:
        # All of its first round, under the application's role and through the pooler.
        expected = [f"{task}: done exit_code=0" for task in ("expire_credits", "usage_partitions")]
        deadline = time.monotonic() + 120
        while not all(line in log.read_text() for line in expected) and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert worker.poll() is None, log.read_text()
        assert all(line in log.read_text() for line in expected), log.read_text()
        os.killpg(worker.pid, signal.SIGTERM)
        assert worker.wait(60) == 0, log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.slow
def test_doctor_tests_the_locks_through_the_pooler(pgbouncer: str) -> None:
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "DATABASE_URL": pgbouncer, "DATABASE_BEHIND_PGBOUNCER": "true"}
    command = [sys.executable, "manage.py", "doctor", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert (found["Locks"]["state"], found["Locks"]["text"]) == ("OK", "Two connections exclude each other, through PgBouncer.")
    assert found["Role"]["state"] == "OK"
    assert [each for each in found.values() if each["state"] == "FAILED" and each["check"] != "Test clocks"] == []
