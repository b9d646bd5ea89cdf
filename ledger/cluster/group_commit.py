"""Group commit on a cluster: each node's requests have their own queue, whose transactions touch that node only.

A transaction of holders on several nodes costs a call to each node, and two phases at COMMIT. So a request goes
into the queue of its holder's node. The queue's threads are connected to that node, and no request waits for another node. If a
node refuses a request because it no longer has the holder, the threads execute it at the coordinator.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from ledger.cluster.nodes import Node, Nodes
from ledger.database.queues import Notify, Pending, threads
from ledger.errors import ServerBusy
from ledger.rules.requests import Request
from ledger.services.group_commit import ExecuteAfterWaiting, ExecuteShared, GroupCommit, ResultOrError

CONNECTIONS_TO_NODE: Final = 9
"""The most connections that a process opens to a worker, besides Citus's own: committer and 8 waiters."""


def connections_to_a_node() -> int:
    """Replaces `ledger_project.monitoring.server_checks._connections_to_a_node`."""
    return CONNECTIONS_TO_NODE


class GroupCommitByNode(GroupCommit):
    """The queues of one process: one for each node, and this one for requests that come before the nodes are known."""

    def __init__(
        self,
        execute_group: Callable[[Sequence[Request]], Sequence[ResultOrError]],
        execute_after_waiting: ExecuteAfterWaiting,
        execute_alone: Callable[[Request], ResultOrError] | None = None,
        *,
        most: Callable[[], int],
        execute_shared: ExecuteShared | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        """Set up empty queues; their threads start with their first requests. Arguments are those of `GroupCommit`."""
        self._nodes = nodes or Nodes()
        self._ways = execute_group, execute_after_waiting
        super().__init__(execute_group, execute_after_waiting, execute_alone, most=most, execute_shared=execute_shared)
        self._of_nodes: dict[Node, GroupCommit] = {}
        self._changing = threading.Lock()
        self._reading = threads("ledger-places", 1, limit=1)
        """The thread that reads the places of the shards: the event loop must not wait, and other threads are at workers."""

    def submit(self, request: Any, notify: Notify, caller: Any = None) -> Pending:
        if self._nodes.is_due():
            with suppress(ServerBusy):
                self._reading.submit(self._refresh, lambda done: None)
        node = self._nodes.node_of(request.holder_id)
        if node is None:
            return super().submit(request, notify, caller)
        return self._queue_of(node).submit(request, notify, caller)

    @property
    def is_at_work(self) -> bool:
        return super().is_at_work or any(queue.is_at_work for queue in tuple(self._of_nodes.values()))

    def expire(self) -> None:
        super().expire()
        for queue in tuple(self._of_nodes.values()):
            queue.expire()

    def close(self) -> None:
        self._reading.close()
        super().close()
        for queue in tuple(self._of_nodes.values()):
            queue.close()

    def _queue_of(self, node: Node) -> GroupCommit:
        with self._changing:
            if node not in self._of_nodes:
                shared = None if self._execute_shared is None else self._at(node, self._execute_shared)
                ways = (self._at(node, way) for way in self._ways)
                self._of_nodes[node] = GroupCommit(*ways, most=self._most, execute_shared=shared)
            return self._of_nodes[node]

    def _at(self, node: Node, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, executed by a thread that is connected to the node."""

        def at_node(*arguments: Any, **options: Any) -> Any:
            self._nodes.connect_to(node)
            return execute(*arguments, **options)

        return at_node

    def _refresh(self) -> None:
        """Read where the shards are, and end the threads and sessions of nodes that have no shards any more."""
        self._nodes.refresh()
        with self._changing:
            left = [self._of_nodes.pop(node) for node in self._of_nodes.keys() - self._nodes.listed]
        for queue in left:
            queue.close()
