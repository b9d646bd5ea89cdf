"""`prepare_database` distributes a ledger, empty or with data, once; start checks refuse nodes with unsafe settings."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

from ledger import reads, services
from ledger.cluster.checks import verify_cluster
from ledger.cluster.distribution import distribute
from ledger.database.checks import verify_database
from ledger.database.cluster import REPLACED, NoCluster
from ledger.errors import UnsafeDatabase
from ledger_project.serving.bootstrap import provision
from tests.conftest import _switch_database
from tests.distributed.cluster import Cluster
from tests.distributed.test_nodes import at_node

WITH_DATA = "test_with_data"
NOT_FORCED = """
    SELECT create_distributed_function(
        'ledger_lock(bigint, text, boolean)'::regprocedure, 'holder', colocate_with => 'ledger_entry', force_delegation => false
    )
"""


def test_distributing_again_does_nothing(committed_db):
    assert distribute(connection) == []


@pytest.fixture
def another_database(cluster: Cluster, committed_db) -> Iterator[str]:
    """An empty database of the cluster, for one test."""
    before = connection.settings_dict["NAME"]
    cluster.make_database(WITH_DATA)
    _switch_database(WITH_DATA)
    yield WITH_DATA
    _switch_database(before)
    cluster.drop_database(WITH_DATA)


def test_a_ledger_with_data_is_distributed_with_it(another_database):
    call_command("migrate", interactive=False, verbosity=0)
    holders = [f"holder-{number}" for number in range(20)]
    for holder in holders:
        services.grant(holder_id=holder, amount=100, idempotency_key="g")
        services.spend(holder_id=holder, amount=30, idempotency_key="s")
    before = [reads.entry(holder, "credits", 2) for holder in holders]
    with pytest.raises(UnsafeDatabase, match="the ledger is not distributed"):
        verify_cluster(connection)

    told = distribute(connection)
    provision(connection)
    connection.close()

    assert "ledger_entry: distributed by holder_id in 16 shards" in told
    assert [reads.entry(holder, "credits", 2) for holder in holders] == before
    assert services.spend(holder_id=holders[0], amount=30, idempotency_key="s").replayed
    assert services.spend(holder_id=holders[0], amount=30, idempotency_key="s2").balance == 40
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_entry")
        assert cursor.fetchone() == (41,)


def test_without_workers_nothing_is_distributed(cluster, another_database):
    with cluster.coordinator.connect(WITH_DATA) as superuser:
        for worker in cluster.workers:
            superuser.execute("SELECT citus_remove_node(%s, %s)", [worker.host, worker.port])
    call_command("migrate", interactive=False, verbosity=0)
    with pytest.raises(NoCluster, match="no node may have shards"):
        distribute(connection)


def test_a_worker_distributes_nothing(cluster, committed_db):
    with at_node(cluster.workers[0]), pytest.raises(NoCluster, match="on a worker; prepare it by its coordinator"):
        distribute(connection)


def test_the_cluster_passes_the_start_checks(committed_db):
    verify_database(connection, needs_lock_timeout=True)


def test_a_distributed_ledger_is_refused_without_the_setting(committed_db):
    with pytest.raises(UnsafeDatabase, match="LEDGER_DISTRIBUTED is off"):
        REPLACED["checks.verify_cluster"](connection)


def test_a_lock_that_would_be_taken_on_the_connected_node_is_refused_until_the_database_is_prepared(cluster, committed_db):
    with cluster.coordinator.connect(connection.settings_dict["NAME"]) as superuser:
        superuser.execute(NOT_FORCED)
    with pytest.raises(UnsafeDatabase, match="ledger_lock is not delegated"):
        verify_cluster(connection)
    assert distribute(connection) == ["ledger_lock(bigint, text, boolean): runs where the holder is"]
    verify_cluster(connection)


@pytest.mark.parametrize(
    "setting",
    [
        "plan_cache_mode = force_generic_plan",
        "citus.enable_unsafe_triggers = off",
        "citus.propagate_set_commands = none",
        "synchronous_commit = off",
        "default_transaction_isolation = serializable",
    ],
)
def test_an_unsafe_setting_of_any_node_is_refused(cluster, committed_db, setting):
    name, _, value = setting.partition(" = ")
    database = connection.settings_dict["NAME"]
    for node in cluster.nodes:
        with node.connect(database) as superuser:
            superuser.execute("SET citus.enable_ddl_propagation = off")
            superuser.execute(f"ALTER DATABASE {database} SET {name} = {value}")
        with pytest.raises(UnsafeDatabase, match=f"{name} = {value} on {node.host}:{node.port}"):
            verify_cluster(connection)
        with node.connect(database) as superuser:
            superuser.execute("SET citus.enable_ddl_propagation = off")
            superuser.execute(f"ALTER DATABASE {database} RESET {name}")
        provision(connection)
    verify_cluster(connection)
