"""A shared transaction touches one node only; what is known of the nodes costs speed if it is wrong, and nothing else."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as all_of

import psycopg
import pytest
from django.db import connection, connections

from ledger import reads
from ledger.cluster.group_commit import GroupCommitByNode
from ledger.cluster.nodes import Node, Nodes
from ledger.database.locks import holder_key, lock_number
from ledger.database.queues import Pending
from ledger.database.statements import wait_at_most
from ledger.rules.requests import GrantRequest, Request
from ledger.services import execute
from ledger_project.serving.postgres.credentials import APPLICATION
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.cluster import Cluster
from tests.distributed.test_nodes import move_shard
from tests.nodes import node_of

TIMEOUT_S = 30


class Process:
    """The queues of one process, and the groups that they executed, each with the port of the node where it was executed."""

    def __init__(self, nodes: Nodes | None = None) -> None:
        self.nodes = nodes or Nodes()
        self.groups: list[tuple[int, list[str]]] = []
        self.queue = GroupCommitByNode(self._together, execute.execute_after_waiting, most=lambda: 32, nodes=self.nodes)

    def _together(self, requests: Sequence[Request]) -> Sequence[execute.ResultOrError]:
        outcomes = execute.execute_group(requests)
        self.groups.append((connection.connection.info.port, [request.holder_id for request in requests]))
        return outcomes

    def submit(self, holder: str) -> "Future[Pending]":
        """Submit a grant of 1 credit."""
        future: Future[Pending] = Future()
        request = GrantRequest(holder_id=holder, amount=1, idempotency_key=uuid.uuid4().hex)
        self.queue.submit(request, lambda group: [each.caller.set_result(each) for each in group] and None, future)
        return future

    def grant(self, holders: Sequence[str]) -> None:
        """Grant 1 credit to each holder, all at the same time."""
        futures = [self.submit(holder) for holder in holders]
        for future in futures:
            future.result(TIMEOUT_S).result().unwrap()


@pytest.fixture
def process(committed_db: None) -> Iterator[Process]:
    """One process that knows the nodes."""
    process = Process()
    process.nodes.refresh()
    yield process
    process.queue.close()


@pytest.fixture
def holders(committed_db: None, new_holder: Callable[[], str]) -> list[str]:
    """Enough holders for all nodes to have some."""
    return [new_holder() for _ in range(24)]


def port_of(holder: str) -> int:
    """The port of the node that has the holder."""
    place = node_of(holder)
    assert place is not None
    return place[1]


def prepared_transactions(cluster: Cluster) -> set[str]:
    """The transactions of two phases of all nodes that Citus has on record; it forgets them after a while."""
    found: set[str] = set()
    for node in cluster.nodes:
        with node.connect(connection.settings_dict["NAME"]) as session:
            found |= {gid for (gid,) in session.execute("SELECT gid FROM pg_dist_transaction").fetchall()}
    return found


def test_the_nodes_are_those_that_citus_knows(process: Process, holders: list[str]) -> None:
    assert {holder: process.nodes.node_of(holder) for holder in holders} == {
        holder: Node(*place) for holder in holders if (place := node_of(holder))
    }


def test_a_shared_transaction_is_at_its_holders_node_and_commits_in_one_phase(
    cluster: Cluster, process: Process, holders: list[str]
) -> None:
    before = prepared_transactions(cluster)
    process.grant(holders)
    process.grant(holders)
    assert {port for port, _ in process.groups} == {node.port for node in cluster.workers}
    assert max(len(group) for _, group in process.groups) > 1
    for port, group in process.groups:
        assert {port_of(holder) for holder in group} == {port}
    assert prepared_transactions(cluster) <= before


def test_a_transaction_of_holders_of_two_nodes_commits_in_two_phases(cluster: Cluster, holders: list[str]) -> None:
    """The control: what the queues avoid."""
    before = prepared_transactions(cluster)
    execute.execute_group([GrantRequest(holder_id=holder, amount=1, idempotency_key="g") for holder in holders])
    assert prepared_transactions(cluster) - before


def test_a_wrong_guess_is_executed_by_the_coordinator(cluster: Cluster, holders: list[str]) -> None:
    class Mistaken(Nodes):
        def node_of(self, holder_id: str) -> Node:
            right = port_of(holder_id)
            return next(Node(node.host, node.port) for node in cluster.workers if node.port != right)

    process = Process(Mistaken())
    process.grant(holders)
    process.grant(holders)
    process.queue.close()
    assert {port for port, _ in process.groups} == {cluster.coordinator.port}
    assert [reads.balance(holder).balance for holder in holders] == [2] * len(holders)


def test_a_moved_shard_is_found_at_once(cluster: Cluster, process: Process, holders: list[str]) -> None:
    """Its old node refuses, the coordinator executes, and the places are read again before that is due."""
    moved = holders[0]
    process.grant([moved])
    (before,) = {port for port, _ in process.groups}
    with cluster.coordinator.connect(connection.settings_dict["NAME"]) as superuser:
        move_shard(superuser, moved)
    process.grant([moved])
    assert process.groups[-1][0] == cluster.coordinator.port

    def is_at_its_node() -> bool:
        process.grant([moved])
        return process.groups[-1][0] == port_of(moved)

    wait_until(is_at_its_node, "the places were read again", timeout_s=5)
    assert before != port_of(moved)
    assert reads.balance(moved).balance == len(process.groups)


def test_a_node_whose_holder_is_busy_keeps_no_other_waiting(cluster: Cluster, process: Process, holders: list[str]) -> None:
    """Nor its other holders: the request waits beside the queue, at its node."""
    busy, *others = holders
    with psycopg.connect(cluster.coordinator.url(APPLICATION, connection.settings_dict["NAME"])) as session:
        session.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(busy)), busy])
        waiting = process.submit(busy)
        process.grant(others)
        assert not waiting.done()
        session.rollback()
        waiting.result(TIMEOUT_S).result().unwrap()
    assert reads.balance(busy).balance == 1


def test_every_grant_counts_of_a_process_that_knows_the_nodes_and_one_that_does_not(cluster: Cluster, holders: list[str]) -> None:
    """They grant to the same holders at the same time. That locks exclude, with controls: tests/concurrency, on all nodes."""

    class Unknown(Nodes):
        def node_of(self, holder_id: str) -> None:
            return None

    processes = [Process(), Process(Unknown())]
    processes[0].nodes.refresh()
    futures = [process.submit(holder) for _ in range(4) for holder in holders[:6] for process in processes]
    assert not all_of(futures, TIMEOUT_S).not_done
    for process in processes:
        process.queue.close()
    for future in futures:
        future.result().result().unwrap()
    assert [reads.balance(holder).balance for holder in holders[:6]] == [8] * 6
    assert {port for port, _ in processes[1].groups} == {cluster.coordinator.port}


def test_the_coordinator_executes_what_is_for_a_node_that_cannot_be_reached(holders: list[str]) -> None:
    class Elsewhere(Nodes):
        def node_of(self, holder_id: str) -> Node:
            return Node("127.0.0.1", 1)

    process = Process(Elsewhere())
    process.grant(holders)
    process.queue.close()
    assert {port for port, _ in process.groups} == {int(connection.settings_dict["PORT"])}
    assert [reads.balance(holder).balance for holder in holders] == [1] * len(holders)


@pytest.mark.parametrize(("begin", "warned"), [(lambda: wait_at_most(100), 0), (lambda: _begin_in_one_message(), 1)])
def test_the_bound_of_a_group_begins_no_second_transaction_on_other_nodes(
    committed_db: None, new_holder: Callable[[], str], begin: Callable[[], None], warned: int
) -> None:
    """Each warning is a line in the logs of two servers, for every group."""
    warnings: list[str] = []
    holder = new_holder()
    connections.close_all()
    connection.ensure_connection()
    connection.connection.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    begin()
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(holder)), holder])
    connection.connection.rollback()
    assert warnings == ["there is already a transaction in progress"] * warned


def _begin_in_one_message() -> None:
    connection.connection.pgconn.exec_(b"BEGIN; SET LOCAL lock_timeout = 100")
