"""Checks that the nodes of a Citus cluster have the settings on which the ledger relies. See docs/adr/0043."""

from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.cluster.nodes import ask_all_nodes
from ledger.database.checks import CAN_BE_LOST, DURABLE, IS_A_CLUSTER, LEDGER_HAS_SHARDS, is_so
from ledger.errors import UnsafeDatabase

DELEGATED: Final = ("ledger_lock", "ledger_open_at")
"""The functions that take a holder's lock: they run where the holder's rows are."""

BOUND: Final = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
"""The settings that bound how long a session of this role waits or works; 0 is no bound."""
NEEDED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "plan_cache_mode": (("auto", "force_custom_plan"), "a session would take a holder's lock on its own node"),
    "citus.enable_unsafe_triggers": (("on",), "no entry could be checked against the one before it"),
    "citus.propagate_set_commands": (("local",), "a wait on another node would not end with the request's time"),
    "citus.distributed_deadlock_detection_factor": (("-1",), "the node would end waits of clients of workers as deadlocks"),
    **{name: (safe, CAN_BE_LOST) for name, safe in DURABLE.items()},
    "default_transaction_isolation": (("read committed",), "the snapshot would be older than the lock"),
}  # fmt: skip
"""Each setting with its safe values on every node, and the effect of other values."""

IS_COORDINATOR = "SELECT citus_is_coordinator()"
NOT_DELEGATED = """
    SELECT required
      FROM unnest(%s::text[]) AS required
     WHERE NOT EXISTS (
         SELECT
           FROM pg_catalog.pg_dist_object o
           JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid
          WHERE p.proname = required AND o.force_delegation
     )
"""


def verify_cluster(connection: BaseDatabaseWrapper) -> None:
    """Return if the ledger is distributed and every node that answers has safe settings; or raise.

    Args:
        connection: to the coordinator, after `manage.py prepare_database`.

    Raises:
        UnsafeDatabase: the ledger is not distributed, or a node has a setting that is not safe.
    """
    with connection.cursor() as cursor:
        if not (is_so(cursor, IS_A_CLUSTER) and is_so(cursor, LEDGER_HAS_SHARDS)):
            raise UnsafeDatabase(what="the ledger is not distributed", why="run `manage.py prepare_database`")
        cursor.execute(NOT_DELEGATED, [list(DELEGATED)])
        for (function,) in cursor.fetchall():
            raise UnsafeDatabase(what=f"{function} is not delegated", why="sessions of two nodes would not exclude each other")
    shown = ", ".join(f"'{name}', current_setting('{name}', true)" for name in (*NEEDED, *BOUND))
    for node, settings_of_node in ask_all_nodes(f"SELECT json_build_object({shown})", connection.alias).values():
        _verify_settings(node, settings_of_node)


def verify_coordinator(connection: BaseDatabaseWrapper) -> None:
    """Return, or raise UnsafeDatabase if the connection leads to a worker of a cluster, or to a server that was one.

    Such a server does not know that it was removed, and that shards have moved since.
    """
    with connection.cursor() as cursor:
        if is_so(cursor, IS_A_CLUSTER) and not is_so(cursor, IS_COORDINATOR):
            raise UnsafeDatabase(
                what="DATABASE_URL leads to a worker of the cluster, or to a server that was one",
                why="only the coordinator has billing, and knows where every holder is",
            )


def _verify_settings(node: str, found: dict[str, str | None]) -> None:
    for name, (safe, otherwise) in NEEDED.items():
        if found[name] not in safe:
            raise UnsafeDatabase(what=f"{name} = {found[name]} on {node}", why=otherwise)
    for name in BOUND:
        if found[name] == "0":
            raise UnsafeDatabase(what=f"{name} = 0 on {node}", why="run `manage.py prepare_database`, also after adding a node")
