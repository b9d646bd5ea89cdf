"""`manage.py doctor`, /metrics and commands at a cluster of which a node is away, or not as it should be."""

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from ledger.cluster import nodes
from ledger_project.monitoring import gauges, node_checks
from ledger_project.monitoring.examination import examine
from ledger_project.monitoring.findings import CheckResult, CheckState
from tests.distributed.cluster import Cluster, StartedCluster, StartedNode

ADDRESS = "{0.host}:{0.port}"
FAILED_JOB = """
    INSERT INTO pg_dist_background_job (state, job_type, description) VALUES ('failed', 'rebalance', 'Rebalance') RETURNING job_id
"""


def findings(*names: str) -> list[CheckResult]:
    """What doctor finds by checks of these names."""
    return [each for each in examine() if each.check in names]


def samples(name: str) -> dict[str, float]:
    """The numbers of a metric by node."""
    families = {family.name: family for family in gauges.DatabaseGauges().collect()}
    return {sample.labels.get("node", ""): sample.value for sample in families[name].samples}


@pytest.fixture
def dead(own_cluster: StartedCluster, as_application) -> Iterator[StartedNode]:
    """A worker that is stopped for the test."""
    worker = own_cluster.workers[-1]
    worker.stop()
    try:
        yield worker
    finally:
        worker.start()
        connections.close_all()


def test_each_node_has_a_finding(cluster: Cluster, as_application) -> None:
    found = findings("Cluster", "Node", "Moves")
    assert [each.state for each in found] == [CheckState.OK] * (len(cluster.nodes) + 2)
    assert [each.text.split()[0] for each in found[1:-1]] == [ADDRESS.format(node) for node in cluster.nodes]


def test_a_dead_worker_fails_its_check_and_no_other(cluster: Cluster, dead: StartedNode) -> None:
    found = list(examine())
    failed = [each for each in found if each.state is CheckState.FAILED]
    assert [(each.check, each.text.split(" does not answer")[0]) for each in failed] == [("Node", ADDRESS.format(dead))]
    assert sum(each.check == "Node" and each.state is CheckState.OK for each in found) == len(cluster.nodes) - 1
    assert "Connections" in {each.check for each in found if each.state is CheckState.OK}


def test_metrics_of_a_cluster_with_a_dead_worker_name_it_and_lack_little(cluster: Cluster, dead: StartedNode) -> None:
    assert samples("ledger_database_up") == {"": 1}
    assert samples("ledger_node_up") == {ADDRESS.format(node): float(node is not dead) for node in cluster.nodes}
    assert samples("ledger_server_max_connections")[""] > 0
    assert samples("ledger_usage_partitions_ahead")[""] >= -1


@pytest.mark.parametrize("command", [["audit_ledger", "--no-progress"], ["update_totals"], ["expire_credits"]])
def test_commands_end_with_a_sentence_while_a_worker_is_away(dead: StartedNode, command: list[str]) -> None:
    with pytest.raises((CommandError, SystemExit)) as ended:
        call_command(*command, stdout=StringIO(), stderr=StringIO())
    assert getattr(ended.value, "returncode", None) or getattr(ended.value, "code", None)


def test_a_node_that_only_this_machine_does_not_reach_is_a_warning(
    cluster: Cluster, as_application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*arguments: object) -> None:
        raise node_checks.psycopg.OperationalError("no route")

    monkeypatch.setattr(node_checks, "_ask_node", unreachable)
    found = findings("Node")
    assert [each.state for each in found] == [CheckState.OK] + [CheckState.WARNING] * len(cluster.workers)
    assert all("answers the coordinator but not this machine: no route" in each.text for each in found[1:])


def test_a_server_that_is_not_the_listed_one_is_found(as_application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LISTED", nodes.LISTED.replace("groupid, isactive", "groupid + 7, isactive"))
    found = findings("Node")
    assert {(each.state, each.text.partition(" is ")[2][:14]) for each in found} == {(CheckState.FAILED, "another server")}


def test_an_inactive_node_is_found(as_application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LISTED", nodes.LISTED.replace(" isactive,", " false,"))
    assert {(each.state, "not active" in each.text) for each in findings("Node")} == {(CheckState.FAILED, True)}


def test_an_old_prepared_transaction_is_found(cluster: Cluster, as_application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "PREPARED_LATE_SECONDS", 0.0)
    worker = cluster.workers[0]
    with worker.connect(connection.settings_dict["NAME"]) as session:
        session.execute("BEGIN; CREATE TABLE left_behind (); PREPARE TRANSACTION 'left behind'")
        try:
            bad = [each for each in findings("Node") if each.state is CheckState.FAILED]
            assert samples("ledger_node_oldest_prepared_seconds")[ADDRESS.format(worker)] > 0
        finally:
            session.execute("ROLLBACK PREPARED 'left behind'")
    assert [each.text.partition(" has a prepared")[0] for each in bad] == [ADDRESS.format(worker)]


def test_a_slow_recovery_and_a_wrong_clock_are_found(as_application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "RECOVERY_SECONDS", 1.0)
    assert {each.state for each in findings("Node")} == {CheckState.WARNING}
    slow = node_checks.STATE.replace("clock_timestamp(),", "clock_timestamp() - interval '90 s',", 1)
    monkeypatch.setattr(node_checks, "STATE", slow)
    assert {(each.state, each.text.startswith("The clock of ")) for each in findings("Node")} == {(CheckState.FAILED, True)}


def test_a_failed_move_is_found(cluster: Cluster, as_application) -> None:
    assert [each.state for each in findings("Moves")] == [CheckState.OK]
    with cluster.coordinator.connect(connection.settings_dict["NAME"]) as superuser:
        [(job,)] = superuser.execute(FAILED_JOB).fetchall()
        try:
            (found,) = findings("Moves")
        finally:
            superuser.execute("DELETE FROM pg_dist_background_job WHERE job_id = %s", [job])
    assert (found.state, found.text) == (CheckState.WARNING, "The last Rebalance is failed: no message")
