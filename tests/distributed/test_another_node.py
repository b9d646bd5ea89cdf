"""A node that is added to a running cluster by the commands of docs/how-to/operations/cluster.md gets shards under load."""

import re
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections

from ledger import reads, services
from ledger.cluster.checks import verify_cluster
from ledger.cluster.distribution import distribute
from ledger_project.serving.bootstrap import provision, set_settings_of_role
from tests.benchmarks.server import ROOT
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.cluster import StartedCluster, StartedNode
from tests.distributed.test_prepare import another_database

__all__ = ["another_database"]

HOLDERS = [f"holder-{number}" for number in range(24)]
SHARDS_OF = "SELECT count(*) FROM pg_dist_shard_placement WHERE nodename = %s AND nodeport = %s AND shardid IN (SELECT shardid"
SHARDS_OF += " FROM pg_dist_shard WHERE logicalrelid = 'ledger_entry'::regclass)"


def documented() -> list[str]:
    """The statements of "Adding a node" in docs/how-to/operations/cluster.md, in their order."""
    text = (ROOT / "docs/how-to/operations/cluster.md").read_text()
    (paragraph,) = re.findall(r"^- \*\*Adding a node\*\*.*?(?=^- \*\*)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"`(SELECT [^`]+|manage\.py \w+)`", paragraph)


@pytest.fixture
def third(own_cluster: StartedCluster) -> Iterator[StartedNode]:
    """A server that no cluster has yet, with the roles and passwords of the others."""
    with tempfile.TemporaryDirectory(prefix="ledger-node-") as folder:
        Path(folder).chmod(0o755)
        node = StartedNode(Path(folder) / "data", own_cluster.coordinator.built)
        try:
            node.start_like(own_cluster.nodes[0])
            yield node
        finally:
            node.stop()


def test_an_added_node_takes_shards_while_holders_spend(own_cluster, another_database, third) -> None:
    call_command("migrate", interactive=False, verbosity=0)
    prepare()
    for holder in HOLDERS:
        services.grant(holder_id=holder, amount=10_000, idempotency_key="g")
    moved = threading.Event()

    def spend(worker: int) -> int:
        spends = 0
        while not moved.is_set():
            services.spend(holder_id=HOLDERS[(4 * spends + worker) % 24], amount=1, idempotency_key=f"{worker}-{spends}")
            spends += 1
        connections.close_all()
        return spends

    third.make_database(another_database)
    with own_cluster.coordinator.connect(another_database) as superuser, ThreadPoolExecutor(4) as pool:
        spending = [pool.submit(spend, worker) for worker in range(4)]
        try:
            for statement in documented():
                follow(superuser, statement, third)
        finally:
            moved.set()
        spends = sum(each.result() for each in spending)
        assert superuser.execute(SHARDS_OF, [third.host, third.port]).fetchone()[0] >= 4
    assert sum(reads.balance(holder).balance for holder in HOLDERS) == 24 * 10_000 - spends
    verify_cluster(connection)
    for holder in HOLDERS:
        assert services.spend(holder_id=holder, amount=1, idempotency_key="afterwards").amount == -1


def prepare() -> None:
    """Do what `prepare_database` does after the migrations."""
    distribute(connection)
    provision(connection)
    set_settings_of_role(connection)


def follow(superuser: psycopg.Connection, statement: str, node: StartedNode) -> None:
    """Do what the page says, with the node in the place of worker3."""
    if statement == "manage.py prepare_database":
        prepare()
    elif "rebalance_status" in statement:
        wait_until(lambda: is_balanced(superuser, statement), "the shards were moved", timeout_s=200)
    else:
        superuser.execute(statement.replace("'worker3', 5432", f"'{node.host}', {node.port}"))


def is_balanced(superuser: psycopg.Connection, statement: str) -> bool:
    """Whether the moves have ended; fails if one has failed."""
    with superuser.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        (job,) = cursor.execute(statement).fetchall()
    assert job["state"] not in ("failed", "failing", "cancelled"), job
    return bool(job["state"] == "finished")
