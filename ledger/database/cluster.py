"""Whether the nodes of a Citus cluster are set up so that the ledger can rely on them. See docs/adr/0043."""

import json
import logging
from typing import Any, Final

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.errors import UnsafeDatabase

logger = logging.getLogger(__name__)

DELEGATED: Final = ("ledger_lock", "ledger_open_at")
"""The functions that take a holder's lock: they run where the holder's rows are."""

CAN_BE_LOST: Final = "a crash could lose a spend that a client has seen succeed"
DURABLE: Final[dict[str, tuple[str, ...]]] = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
}
"""The settings of a server that keep what is committed, with the values that do."""
BOUND: Final = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
"""The settings that bound how long a session of this role waits or works; 0 is no bound."""
NEEDED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "plan_cache_mode": (("auto", "force_custom_plan"), "a holder's lock would be taken where one is connected"),
    "citus.enable_unsafe_triggers": (("on",), "no entry could be checked against the one before it"),
    "citus.propagate_set_commands": (("local",), "a wait on another node would not end with the request's time"),
    "citus.distributed_deadlock_detection_factor": (("-1",), "waits of clients of workers are taken for deadlocks and ended"),
    **{name: (safe, CAN_BE_LOST) for name, safe in DURABLE.items()},
    "default_transaction_isolation": (("read committed",), "the snapshot would be older than the lock"),
}  # fmt: skip
"""Each setting with the values that are safe on every node, and what happens with others."""

IS_A_CLUSTER = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
IS_DISTRIBUTED = "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('ledger_entry'))"
IS_COORDINATOR = "SELECT citus_is_coordinator()"
NOT_DELEGATED = """
    SELECT wanted
      FROM unnest(%s::text[]) AS wanted
     WHERE NOT EXISTS (
         SELECT
           FROM pg_catalog.pg_dist_object o
           JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid
          WHERE p.proname = wanted AND o.force_delegation
     )
"""
ON_EACH_NODE = """
    SELECT n.nodeid, n.nodename || ':' || n.nodeport, r.success, r.result
      FROM run_command_on_all_nodes(%s) r
      JOIN pg_dist_node n USING (nodeid)
"""


def verify_cluster(connection: BaseDatabaseWrapper, *, is_wanted: bool) -> None:
    """Return if the ledger is distributed as the settings say, and every node that answers is set up for it; or raise.

    Args:
        connection: to the coordinator, after `manage.py prepare_database`.
        is_wanted: settings.LEDGER["DISTRIBUTED"].

    Raises:
        UnsafeDatabase: the settings and the database disagree, or a node has a setting that is not safe.
    """
    with connection.cursor() as cursor:
        is_distributed = _is(cursor, IS_A_CLUSTER) and _is(cursor, IS_DISTRIBUTED)
        if is_distributed and not is_wanted:
            raise UnsafeDatabase(what="LEDGER_DISTRIBUTED is off", why="the ledger of this database is distributed over nodes")
        if not is_wanted:
            return
        if not is_distributed:
            raise UnsafeDatabase(what="the ledger is not distributed", why="run `manage.py prepare_database`")
        cursor.execute(NOT_DELEGATED, [list(DELEGATED)])
        for (function,) in cursor.fetchall():
            raise UnsafeDatabase(what=f"{function} is not delegated", why="sessions of two nodes would not exclude each other")
    shown = ", ".join(f"'{name}', current_setting('{name}', true)" for name in (*NEEDED, *BOUND))
    for node, found in ask_all_nodes(f"SELECT json_build_object({shown})", connection.alias).values():
        _verify_settings(node, found)


def verify_coordinator(connection: BaseDatabaseWrapper) -> None:
    """Return, or raise UnsafeDatabase if the connection leads to a worker of a cluster, also to one that was taken out.

    Such a worker does not know that it was taken out, and that shards have moved since.
    """
    with connection.cursor() as cursor:
        if _is(cursor, IS_A_CLUSTER) and not _is(cursor, IS_COORDINATOR):
            raise UnsafeDatabase(
                what="DATABASE_URL leads to a worker of the cluster, or to a server that was one",
                why="only the coordinator has billing, and knows where every holder is",
            )


def ask_all_nodes(command: str, using: str = "default") -> dict[int, tuple[str, Any]]:
    """Run a query of one JSON value on every node; return the node's name and the value by the node's number.

    A node that does not answer is missing, with a warning in the log. Without a cluster the one server is asked, as node 0.
    """
    with connections[using].cursor() as cursor:
        if not settings.LEDGER["DISTRIBUTED"]:
            cursor.execute(command)
            [(reply,)] = cursor.fetchall()
            return {0: ("", reply)}
        cursor.execute(ON_EACH_NODE, [command])
        replies = cursor.fetchall()
    for _, node, has_replied, reply in replies:
        if not has_replied:
            logger.warning("The node %s does not answer: %s", node, reply)
    return {number: (node, json.loads(reply)) for number, node, has_replied, reply in replies if has_replied}


def _is(cursor: Any, question: str) -> bool:
    cursor.execute(question)
    (found,) = cursor.fetchone()
    return bool(found)


def _verify_settings(node: str, found: dict[str, str | None]) -> None:
    for name, (safe, otherwise) in NEEDED.items():
        if found[name] not in safe:
            raise UnsafeDatabase(what=f"{name} = {found[name]} on {node}", why=otherwise)
    for name in BOUND:
        if found[name] == "0":
            raise UnsafeDatabase(what=f"{name} = 0 on {node}", why="run `manage.py prepare_database`, also after adding a node")
