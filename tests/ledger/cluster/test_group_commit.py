"""Which requests share a transaction on a cluster: those of one node, and no node's wait for another's. Without a database."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from ledger.cluster.group_commit import GroupCommitByNode
from ledger.cluster.nodes import Node, Nodes
from ledger.database.queues import Pending
from ledger.errors import ServerBusy
from ledger.journal import Result
from ledger.rules.requests import Request, SpendRequest
from ledger.services.group_commit import ResultOrError

TIMEOUT_S = 30


class NodesByFirstLetter(Nodes):
    """Nodes named by the first letter of their holders; notes which thread connects to which."""

    def __init__(self) -> None:
        super().__init__()
        self.are_known = True
        self.gone: set[str] = set()
        self.due = False
        self.refreshed = threading.Event()
        self.connected: dict[int, Node] = {}

    def node_of(self, holder_id: str) -> Node | None:
        return Node(holder_id[0], 5432) if self.are_known else None

    @property
    def listed(self) -> frozenset[Node]:
        return frozenset(Node(letter, 5432) for letter in "abc" if letter not in self.gone)

    def is_due(self) -> bool:
        was_due, self.due = self.due, False
        return was_due

    def refresh(self) -> None:
        assert threading.current_thread().name == "ledger-places-0"
        self.refreshed.set()

    def connect_to(self, node: Node) -> None:
        self.connected[threading.get_ident()] = node


class Scene:
    """Queues whose groups are noted, each with the node of its thread; a node's groups stop on demand."""

    def __init__(self) -> None:
        self.nodes = NodesByFirstLetter()
        self.groups: list[tuple[str | None, list[str]]] = []
        self.busy: set[str] = set()
        self.stopped: dict[str, threading.Event] = {}
        self.go_on = threading.Event()
        self.queue = GroupCommitByNode(self._together, self._after_waiting, most=lambda: 4, nodes=self.nodes)

    def _here(self) -> str | None:
        node = self.nodes.connected.get(threading.get_ident())
        return node.host if node else None

    def _note(self, holders: list[str]) -> None:
        here = self._here()
        self.groups.append((here, holders))
        if here in self.stopped:
            self.stopped[here].set()
            assert self.go_on.wait(TIMEOUT_S)

    def _together(self, requests: Sequence[Request]) -> Sequence[ResultOrError]:
        self._note([request.holder_id for request in requests])
        return [None if request.holder_id in self.busy else Result() for request in requests]

    def _after_waiting(
        self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float
    ) -> Sequence[ResultOrError]:
        requests = arrived()
        self._note([request.holder_id for request in requests])
        return [Result() for _ in requests]

    def submit(self, holder: str) -> "Future[Any]":
        """Submit a request of the holder."""
        future: Future[Any] = Future()
        self.queue.submit(SpendRequest(holder_id=holder, amount=1, idempotency_key="k"), _notify, future)
        return future


def _notify(group: Sequence[Pending]) -> None:
    for pending in group:
        try:
            pending.caller.set_result(pending.result())
        except BaseException as error:
            pending.caller.set_exception(error)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Queues of one process, closed with the test."""
    scene = Scene()
    yield scene
    scene.go_on.set()
    scene.queue.close()


def test_requests_share_a_transaction_only_with_those_of_their_node(scene: Scene) -> None:
    scene.stopped = {"a": threading.Event(), "b": threading.Event()}
    first = [scene.submit("a1"), scene.submit("b1")]
    for event in scene.stopped.values():
        assert event.wait(TIMEOUT_S)
    others = [scene.submit(holder) for holder in ("a2", "b2", "a3", "b3", "a1")]
    scene.go_on.set()
    for future in (*first, *others):
        future.result(TIMEOUT_S)
    assert sorted(scene.groups, key=str) == [("a", ["a1"]), ("a", ["a2", "a3", "a1"]), ("b", ["b1"]), ("b", ["b2", "b3"])]


def test_no_node_waits_for_another(scene: Scene) -> None:
    scene.stopped = {"a": threading.Event()}
    stuck = scene.submit("a1")
    assert scene.stopped["a"].wait(TIMEOUT_S)
    waiting = scene.submit("a2")
    for number in range(20):
        scene.submit(f"b{number}").result(TIMEOUT_S)
        scene.submit(f"c{number}").result(TIMEOUT_S)
    assert not stuck.done()
    assert not waiting.done()


def test_the_queues_are_at_work_while_that_of_any_node_is(scene: Scene) -> None:
    assert not scene.queue.is_at_work
    scene.stopped = {"b": threading.Event()}
    request = scene.submit("b1")
    assert scene.stopped["b"].wait(TIMEOUT_S)
    assert scene.queue.is_at_work
    scene.go_on.set()
    request.result(TIMEOUT_S)
    scene.queue.close()
    assert not scene.queue.is_at_work


def test_a_busy_holder_is_waited_for_at_its_node(scene: Scene) -> None:
    scene.busy = {"b1"}
    scene.submit("b1").result(TIMEOUT_S)
    assert scene.groups == [("b", ["b1"]), ("b", ["b1"])]


def test_requests_share_transactions_before_the_nodes_are_known_too(scene: Scene) -> None:
    scene.nodes.are_known = False
    scene.submit("a1").result(TIMEOUT_S)
    scene.nodes.are_known = True
    scene.submit("a1").result(TIMEOUT_S)
    assert scene.groups == [(None, ["a1"]), ("a", ["a1"])]


def test_a_thread_beside_the_queues_reads_the_places_when_that_is_due(scene: Scene) -> None:
    scene.submit("a1").result(TIMEOUT_S)
    assert not scene.nodes.refreshed.is_set()
    scene.nodes.due = True
    scene.submit("a1").result(TIMEOUT_S)
    assert scene.nodes.refreshed.wait(TIMEOUT_S)


def test_the_threads_of_a_node_that_has_no_shards_any_more_end(scene: Scene) -> None:
    def threads() -> set[int]:
        return {each.ident or 0 for each in threading.enumerate()} & set(scene.nodes.connected)

    scene.submit("a1").result(TIMEOUT_S)
    scene.submit("b1").result(TIMEOUT_S)
    assert len(threads()) == 2
    scene.nodes.gone, scene.nodes.due = {"a"}, True
    scene.submit("b2").result(TIMEOUT_S)
    scene.queue._reading.close()
    assert [scene.nodes.connected[thread] for thread in threads()] == [Node("b", 5432)]


def test_what_waited_too_long_at_any_node_fails(scene: Scene) -> None:
    scene.stopped = {"a": threading.Event()}
    scene.submit("a1")
    assert scene.stopped["a"].wait(TIMEOUT_S)
    late = scene.queue.submit(SpendRequest(holder_id="a2", amount=1, idempotency_key="k"), _notify, waiting := Future())
    late.deadline = 0.0
    scene.queue.expire()
    with pytest.raises(ServerBusy):
        waiting.result(TIMEOUT_S)
    assert len(scene.groups) == 1
