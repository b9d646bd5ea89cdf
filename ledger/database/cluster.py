"""The hooks of a cluster: functions of one server that `ledger.cluster` replaces on a cluster."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from django.db import connections
from django.utils.module_loading import import_string

from ledger import conf

P = ParamSpec("P")
R = TypeVar("R")

REPLACED: Final[dict[str, Callable[..., Any]]] = {}
"""Each function that a cluster replaces, in its form for one server, by the path of its replacement in `ledger.cluster`."""


def on_cluster(path: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """With LEDGER_DISTRIBUTED, call the function of that path in `ledger.cluster` instead; without it, change nothing."""

    def choose(function: Callable[P, R]) -> Callable[P, R]:
        REPLACED[path] = function
        if not conf.DISTRIBUTED.value:
            return function

        @wraps(function)
        def instead(*arguments: P.args, **named: P.kwargs) -> R:
            result: R = import_string(f"ledger.cluster.{path}")(*arguments, **named)
            return result

        return instead

    return choose


class NoCluster(Exception):
    """LEDGER_DISTRIBUTED is set, and the database is not the coordinator of a Citus cluster with workers."""

    def __init__(self, why: str) -> None:
        """Name the reason."""
        super().__init__(f"LEDGER_DISTRIBUTED is set, but {why}")


@on_cluster("queries.sql_of")
def sql_of(name: str, sql: str) -> str:
    """Return the SQL of this name: `sql` if one server has all entries."""
    return sql


@on_cluster("nodes.ask_all_nodes")
def ask_all_nodes(command: str, using: str = "default") -> dict[int, tuple[str, Any]]:
    """Run a query of one JSON value on every node; return the node's name and the value by the node's number.

    On a cluster a node that does not answer is missing, with a warning in the log. A single server is node 0, without a name.
    """
    with connections[using].cursor() as cursor:
        # Inside a transaction the server would repeat the statistics that it returned first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(command)
        [(reply,)] = cursor.fetchall()
        return {0: ("", reply)}


@on_cluster("nodes.return_to_coordinator")
def return_to_coordinator() -> None:
    """End this thread's session with a node that does not have the holder; the next session is at the coordinator."""
