"""A cluster is restored from base backups and archived logs, to a point of all nodes: docs/how-to/operations/backup.md."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.benchmarks.server import ROOT
from tests.deployment.servers import folder, run
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.cluster import Cluster, StartedCluster
from tests.settings import CITUS

DATABASE = "ledger"
WRITER = """
import itertools, sys
from ledger import services
holders = [f"holder-{number}" for number in range(12)]
for holder in holders:
    services.grant(holder_id=holder, amount=10**6, idempotency_key="g")
for number in itertools.count():
    to = holders[(number * 5 + 1) % 12]
    services.transfer(holder_id=holders[number % 12], to=to, amount=1, idempotency_key=f"{sys.argv[1]}-{number}")
"""
COUNT = "SELECT count(*) FROM ledger_entry"


class Archived(StartedCluster):
    """A cluster whose nodes archive their logs."""

    def __init__(self, place: Path, built: Path) -> None:
        super().__init__(place / "nodes", built)
        self.backups = place / "backups"
        for number, node in enumerate(self.nodes):
            wal = self.wal_of(number)
            wal.mkdir(parents=True)
            os.chown(wal, node.account.uid, node.account.gid)
            os.chown(wal.parent, node.account.uid, node.account.gid)
            node.settings |= {"archive_mode": "on", "archive_command": f"test ! -f {wal}/%f && cp %p {wal}/%f"}

    def wal_of(self, number: int) -> Path:
        """Where the node's log is archived."""
        return self.backups / f"node{number}" / "wal"

    def base_of(self, number: int) -> Path:
        """Where the node's base backup is."""
        return self.backups / f"node{number}" / "base"

    def back_up(self) -> None:
        """Make a base backup of each node."""
        for number, node in enumerate(self.nodes):
            made = f"--pgdata={self.base_of(number)}", f"--dbname={node.superuser_url}", "--checkpoint=fast", "--wal-method=none"
            run(node.binaries / "pg_basebackup", *made, account=node.account)

    def restore(self, number: int, point: str) -> None:
        """Give the node the data of its restore point; it is stopped before and afterwards."""
        node = self.nodes[number]
        data = node.cluster.resolve()
        shutil.rmtree(data)
        shutil.copytree(self.base_of(number), data)
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"restore_command = 'cp {self.wal_of(number)}/%f %p'\n")
            settings.write(f"recovery_target_name = '{point}'\nrecovery_target_action = 'promote'\n")
        (data / "recovery.signal").touch()
        for each in (data, *data.rglob("*")):
            os.chown(each, node.account.uid, node.account.gid)
        node.settings |= {"archive_mode": "off"}

    def url(self, role: str) -> str:
        """The URL of the database at the coordinator."""
        return self.coordinator.url(role, DATABASE)


def superuser_value(cluster: Cluster, query: str) -> object:
    """One value, read at the coordinator."""
    with cluster.coordinator.connect(DATABASE) as superuser:
        [(value,)] = superuser.execute(query).fetchall()
    return value


def manage(cluster: Archived, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the application."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment(cluster), capture_output=True, text=True, check=False
    )


def environment(cluster: Archived) -> dict[str, str]:
    """Of the application's processes."""
    return {
        **os.environ,
        "DATABASE_URL": cluster.url(APPLICATION),
        "LEDGER_OWNER_DATABASE_URL": cluster.url(OWNER),
        "SECRET_KEY": "only-for-tests",
        "LEDGER_DISTRIBUTED": "true",
        "LEDGER_SHARDS": "6",
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
    }


@contextmanager
def writers(cluster: Archived) -> Iterator[None]:
    """For the block, three processes transfer between holders of all nodes."""
    code = f"import django; django.setup()\n{WRITER}"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], cwd=ROOT, env=environment(cluster)) for number in range(3)
    ]
    try:
        yield
        assert [each.poll() for each in started] == [None] * 3
    finally:
        for each in started:
            each.kill()
            each.wait()


@pytest.fixture
def archived(own_cluster: StartedCluster) -> Iterator[Archived]:
    """A cluster of this test's own."""
    with folder() as place:
        cluster = Archived(place, Path(CITUS))
        try:
            cluster.start()
            cluster.make_database(DATABASE)
            yield cluster
        finally:
            cluster.stop()


@pytest.mark.slow
def test_a_cluster_is_restored_to_one_point_of_all_nodes(archived: Archived) -> None:
    assert manage(archived, "prepare_database").returncode == 0

    def entries() -> int:
        return int(str(superuser_value(archived, COUNT)))

    def has_written(many: int) -> None:
        before = entries()
        wait_until(lambda: entries() >= before + many, "entries were written", timeout_s=120)

    with writers(archived):
        has_written(100)
        archived.back_up()
        has_written(100)
        for point in ("early", "late"):
            superuser_value(archived, f"SELECT citus_create_restore_point('{point}')")
            has_written(100)
    lost = entries()
    # A server that is stopped archives the rest of its log.
    archived.stop()

    for number in range(3):
        archived.restore(number, "late")
    archived.start()
    assert 300 <= entries() < lost
    superuser_value(archived, "SELECT recover_prepared_transactions()")
    assert manage(archived, "prepare_database").returncode == 0
    audited = manage(archived, "audit_ledger", "--no-progress")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    examined = manage(archived, "doctor").stdout
    assert not re.search("^FAILED", examined, re.MULTILINE), examined
    archived.stop()

    # The control: a node that is restored to another point.
    archived.restore(2, "early")
    archived.start()
    audited = manage(archived, "audit_ledger", "--no-progress")
    assert (audited.returncode, "transfers" in audited.stdout) == (1, True), audited.stdout + audited.stderr
