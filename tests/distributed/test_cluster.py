"""The tests use a running cluster if LEDGER_TEST_CITUS is the URL of its coordinator."""

from django.db import connection

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.distributed.cluster import Cluster, RunningCluster

NAME = "test_of_a_running_cluster"


def test_a_running_cluster_is_found_by_its_coordinator_and_gets_databases_of_its_own(cluster: Cluster, committed_db) -> None:
    coordinator = cluster.coordinator
    passwords = {role: coordinator.passwords[role] for role in (OWNER, APPLICATION)}
    running = RunningCluster(coordinator.url(coordinator.superuser, connection.settings_dict["NAME"]), passwords).start()
    assert [(node.host, node.port) for node in running.nodes] == [(node.host, node.port) for node in cluster.nodes]

    running.make_database(NAME)
    try:
        with coordinator.connect(NAME, OWNER) as owner:
            owner.execute("CREATE TABLE one (holder_id text)")
            owner.execute("SELECT create_distributed_table('one', 'holder_id')")
            owner.execute("INSERT INTO one VALUES ('ada'), ('bob')")
        with running.nodes[-1].connect(NAME, OWNER) as owner:
            assert owner.execute("SELECT count(*) FROM one").fetchone() == (2,)
    finally:
        running.drop_database(NAME)
