"""A worker that was taken out of the cluster writes nothing, though it does not know: shards move without it hearing of that."""

import re
from itertools import pairwise

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from ledger import reads, services
from ledger.cluster.distribution import distribute
from ledger.cluster.nodes import Node as Place
from ledger.database.checks import verify_database
from ledger.database.locks import sqlstate
from ledger.errors import UnsafeDatabase
from ledger.rest.calls.health import forget_checks, readiness
from ledger_project.serving.bootstrap import provision
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.cluster import Cluster, Node, StartedNode
from tests.distributed.test_another_node import third
from tests.distributed.test_group_commit import Process
from tests.distributed.test_nodes import at_node
from tests.distributed.test_prepare import another_database

__all__ = ["another_database", "third"]

HOLDERS = [f"holder-{number}" for number in range(12)]
PLACES = """
    SELECT shardid FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)
    WHERE logicalrelid = 'ledger_entry'::regclass AND nodeport = %s
"""


REFUSES = re.compile("RAISE EXCEPTION '[^']*' USING ERRCODE = 'LG003'")
CLIENTS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = %s AND backend_type = 'client backend' AND application_name NOT LIKE 'citus%%'
"""


@pytest.fixture
def few_shards(settings) -> None:
    """So few that moving all of them takes seconds."""
    settings.LEDGER = {**settings.LEDGER, "SHARDS": 6}


@pytest.fixture
def leaving(cluster: Cluster, another_database: str, few_shards: None, third: StartedNode) -> Node:
    """One of three workers, whose holders have 100 credits each."""
    third.make_database(another_database)
    with cluster.coordinator.connect(another_database) as superuser:
        superuser.execute("SELECT citus_add_node(%s, %s)", [third.host, third.port])
    call_command("migrate", interactive=False, verbosity=0)
    distribute(connection)
    provision(connection)
    connection.close()
    for holder in HOLDERS:
        services.grant(holder_id=holder, amount=100, idempotency_key="g")
    return cluster.workers[0]


def take_out(superuser: psycopg.Connection, node: Node) -> None:
    """Take the node out as the documentation says."""
    superuser.execute("SELECT citus_drain_node(%s, %s, 'block_writes')", [node.host, node.port])
    superuser.execute("SELECT citus_remove_node(%s, %s)", [node.host, node.port])


def move_all(superuser: psycopg.Connection, source: Node, target: Node) -> None:
    """Move every shard of the entries that the source has to the target."""
    for (shard,) in superuser.execute(PLACES, [source.port]).fetchall():
        move = "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')"
        superuser.execute(move, [shard, source.host, source.port, target.host, target.port])


def transfer_by_all(key: str) -> list[str]:
    """Transfer 10 credits from each holder to the next; return what each transfer ended with."""
    told = []
    for holder, to in pairwise(HOLDERS):
        try:
            told.append(services.transfer(holder_id=holder, to=to, amount=10, idempotency_key=key).kind)
        except DatabaseError as error:
            told.append(str(sqlstate(error)))
    return told


def test_a_session_at_a_removed_worker_writes_nothing(cluster, another_database, leaving, third):
    with cluster.coordinator.connect(another_database) as superuser, at_node(leaving):
        assert reads.balance(HOLDERS[0]).balance == 100
        take_out(superuser, leaving)
        move_all(superuser, cluster.workers[1], third)
        told = transfer_by_all("t")
        with pytest.raises(UnsafeDatabase, match="leads to a worker of the cluster, or to a server that was one"):
            verify_database(connection)
        forget_checks()
        assert readiness()["database"].startswith(
            "refused: DATABASE_URL leads to a worker of the cluster, or to a server that was"
        )
    assert set(told) == {"LG003"}
    assert [reads.balance(holder).sequence for holder in HOLDERS] == [1] * len(HOLDERS)
    assert sum(reads.balance(holder).balance for holder in HOLDERS) == 100 * len(HOLDERS)


def test_control_without_the_look_at_the_catalog_credits_are_lost(cluster, another_database, leaving, third):
    for node in (cluster.workers[1], third):
        with node.connect(another_database) as superuser:
            superuser.execute("SET citus.enable_ddl_propagation = off")
            for function in ("ledger_shard_here", "ledger_open_at", "ledger_entry_follows"):
                [(definition,)] = superuser.execute("SELECT pg_get_functiondef(%s::regproc)", [function]).fetchall()
                changed, count = REFUSES.subn("NULL", definition)
                assert count == 1
                superuser.execute(changed)
    with cluster.coordinator.connect(another_database) as superuser, at_node(leaving):
        assert reads.balance(HOLDERS[0]).balance == 100
        take_out(superuser, leaving)
        move_all(superuser, cluster.workers[1], third)
        told = transfer_by_all("t")
    assert "transfer_out" in told
    assert sum(reads.balance(holder).balance for holder in HOLDERS) != 100 * len(HOLDERS)


def test_a_process_goes_on_when_the_node_of_its_sessions_is_removed(cluster, another_database, leaving, third):
    """Its calls are executed by the coordinator, until it has read where the holders are now."""
    process = Process()
    process.nodes.refresh()
    process.grant(HOLDERS)
    assert leaving.port in {port for port, _ in process.groups}
    with cluster.coordinator.connect(another_database) as superuser:
        take_out(superuser, leaving)
        move_all(superuser, cluster.workers[1], third)
        before = len(process.groups)
        process.grant(HOLDERS)
        assert {port for port, _ in process.groups[before:]} <= {cluster.coordinator.port, third.port}
        for _ in range(3):
            process.grant(HOLDERS)
        assert process.groups[-1][0] == third.port
        assert process.nodes.listed == {Place(third.host, third.port)}
    with leaving.connect("postgres") as superuser:
        wait_until(lambda: superuser.execute(CLIENTS, [another_database]).fetchone() == (0,), "the sessions there ended")
    process.queue.close()
    assert [reads.balance(holder).balance for holder in HOLDERS] == [105] * len(HOLDERS)
