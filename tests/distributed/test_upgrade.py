"""A database of an earlier release is upgraded and distributed at once: nothing is lost, and no digest changes.

There is no cluster of an earlier release: 0.2.0 and 0.2.1 did not start on one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.benchmarks.server import ROOT
from tests.distributed.cluster import Cluster
from tests.schema.upgrades.test_upgrade import EARLIER, digests_of, stored_sql

pytestmark = pytest.mark.slow

DATABASE = "test_upgraded"


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Cluster]:
    """An empty database on all nodes."""
    cluster.make_database(DATABASE)
    yield cluster
    cluster.drop_database(DATABASE)


def run_command(cluster: Cluster, *command: str, codes: tuple[int, ...] = (0,)) -> str:
    """What a command of the application prints; it ends with one of these codes."""
    environment = {
        **os.environ,
        "DATABASE_URL": cluster.coordinator.url(APPLICATION, DATABASE),
        "LEDGER_OWNER_DATABASE_URL": cluster.coordinator.url(OWNER, DATABASE),
        "SECRET_KEY": "only-for-tests",
        "LEDGER_DISTRIBUTED": "true",
        "LEDGER_SHARDS": "6",
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
    }
    words = [sys.executable, "manage.py", *command]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", EARLIER)
def test_a_database_of_an_earlier_release_is_upgraded_and_distributed(database: Cluster, release: str) -> None:
    with database.coordinator.connect(DATABASE, OWNER) as owner:
        owner.execute(stored_sql(release))
        owner.execute("SET search_path = public")
        before = digests_of(owner)
    said = run_command(database, "prepare_database")
    assert "Applying ledger.0002" in said
    assert "ledger_entry: distributed" in said
    run_command(database, "audit_ledger", "--no-progress")
    run_command(database, "generate_invoices", "--check")
    assert re.findall("^FAILED.*", run_command(database, "doctor", codes=(0, 1)), re.MULTILINE) == []
    with database.coordinator.connect(DATABASE, OWNER) as owner:
        assert before.items() <= digests_of(owner).items()
