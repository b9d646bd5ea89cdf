"""Distributes the ledger over the nodes of a Citus cluster: entries by holder, and copies of what all nodes read.

Billing, the admin and its sessions stay with the coordinator. docs/how-to/operations/cluster.md, and adr/0043.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger import applications, conf
from ledger.database.checks import is_so
from ledger.database.cluster import NoCluster

FUNCTIONS_FILES: Final = sorted(Path(__file__).parent.glob("distributed*.sql"))
"""distributed.sql, and then those of later migrations by their numbers, with the functions that they change."""
ENTRIES: Final = "ledger_entry"
BESIDE_ENTRIES: Final = ("ledger_recurring_grant", "ledger_budget_counter", "ledger_usage")
"""The tables whose rows are on the node of the entries of their holders."""
BY: Final = "holder_id"
ON_ALL_NODES: Final = ("ledger_batch", "ledger_credit_type", "ledger_rate", "django_migrations")
"""The tables of the core that a process on any node reads; each node has a copy, also of those that applications name."""
SETTINGS: Final = {
    # With a generic plan a function is never delegated: the session would take its lock on its own node.
    "plan_cache_mode": "auto",
    "citus.enable_unsafe_triggers": "on",
    # SET LOCAL lock_timeout reaches the workers of the transaction.
    "citus.propagate_set_commands": "local",
}
"""The functions and settings that the database of a cluster has instead of, or beside, those of one server."""
DELEGATED: Final = {
    "ledger_lock(bigint, text, boolean)": "holder",
    "ledger_open_at(text, bigint, boolean, text, text, text, boolean)": "home",
}
"""Each with the parameter that determines its node: that of the holder's rows."""

# In transactions and in the order of names, so that each run does the same.
FUNCTIONS = """
    SELECT p.oid::regprocedure::text
      FROM pg_proc p
     WHERE p.pronamespace = current_schema()::regnamespace
       AND (p.proname LIKE 'ledger\\_%%' OR p.proname = 'refuse_change')
       AND NOT EXISTS (SELECT FROM pg_dist_object o WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)
     ORDER BY 1
"""
NOT_DELEGATED = """
    SELECT NOT EXISTS (
        SELECT
          FROM pg_catalog.pg_dist_object
         WHERE classid = 'pg_proc'::regclass AND objid = %s::regprocedure AND force_delegation
    )
"""
# Existing entries are copied before the shards have what the trigger needs; the trigger checked them at their insertion.
DISTRIBUTE_ENTRIES: Final = (
    f"ALTER TABLE {ENTRIES} DISABLE TRIGGER follows",
    f"ALTER TABLE {ENTRIES} DISABLE TRIGGER counted",
    f"ALTER TABLE {ENTRIES} DISABLE TRIGGER summed",
    f"SELECT create_distributed_table('{ENTRIES}', '{BY}')",
    f"ALTER TABLE {ENTRIES} ENABLE ALWAYS TRIGGER follows",
    f"ALTER TABLE {ENTRIES} ENABLE TRIGGER counted",
    f"ALTER TABLE {ENTRIES} ENABLE TRIGGER summed",
)
HAS_SHARDS: Final = "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass)"


def prepare(
    connection: BaseDatabaseWrapper, set_settings: Callable[[BaseDatabaseWrapper], None], report: Callable[[str], None]
) -> bool:
    """Replaces `ledger_project.serving.bootstrap._distribute`."""
    # Sessions that copy to the workers must not have the timeouts of a database that was on one server before.
    set_settings(connection)
    for done in distribute(connection):
        report(done)
    # The functions that differ on a cluster are replaced each time.
    return True


def placed(base: dict[str, str], timeouts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Put the timeouts on the application's role: on the database they would also end moves of shards."""
    return base | SETTINGS, timeouts


def distribute(connection: BaseDatabaseWrapper) -> list[str]:
    """Distribute tables and functions, and return what was done; empty if everything was done already.

    Args:
        connection: the owner's, to the coordinator, after the migrations; outside a transaction.

    Raises:
        NoCluster: the extension or the workers are missing; nothing was done.
    """
    with connection.cursor() as cursor:
        _ensure_cluster(cursor)
        return list(_distribute_tables(cursor))


def _ensure_cluster(cursor: Any) -> None:
    if not is_so(cursor, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"):
        raise NoCluster("the database has no extension citus: a superuser makes it on each node, by CREATE EXTENSION citus")
    if not is_so(cursor, "SELECT EXISTS (SELECT FROM pg_dist_node WHERE isactive AND shouldhaveshards)"):
        raise NoCluster("no node may have shards: a superuser adds workers, by SELECT citus_add_node('host', 5432)")
    if not is_so(cursor, "SELECT citus_is_coordinator()"):
        raise NoCluster("the database is on a worker; prepare it by its coordinator")


def _distribute_tables(cursor: Any) -> Iterator[str]:
    cursor.execute("SET citus.enable_unsafe_triggers = on")
    cursor.execute("SET citus.shard_count = %s", [conf.SHARDS.value])
    for table in (*ON_ALL_NODES, *applications.tables_on_all_nodes()):
        if not _is_distributed(cursor, table):
            cursor.execute("SELECT create_reference_table(%s)", [table])
            yield f"{table}: copied to all nodes, and kept the same there"
    for file in FUNCTIONS_FILES:
        cursor.execute(file.read_text(encoding="utf-8"))
    if not _is_distributed(cursor, ENTRIES):
        with transaction.atomic(using=cursor.db.alias):
            for statement in DISTRIBUTE_ENTRIES:
                cursor.execute(statement)
        yield f"{ENTRIES}: distributed by {BY} in {conf.SHARDS.value} shards"
    for table in BESIDE_ENTRIES:
        if not _is_distributed(cursor, table):
            cursor.execute(f"SELECT create_distributed_table('{table}', '{BY}', colocate_with => '{ENTRIES}')")
            yield f"{table}: distributed by {BY} beside the entries"
    cursor.execute(FUNCTIONS)
    for (function,) in cursor.fetchall():
        cursor.execute("SELECT create_distributed_function(%s::regprocedure)", [function])
        yield f"{function}: on all nodes"
    for function, by in DELEGATED.items():
        if is_so(cursor, NOT_DELEGATED, [function]):
            options = "colocate_with => %s, force_delegation => true"
            cursor.execute(f"SELECT create_distributed_function(%s::regprocedure, %s, {options})", [function, by, ENTRIES])
            yield f"{function}: runs where the holder is"


def _is_distributed(cursor: Any, table: str) -> bool:
    return is_so(cursor, HAS_SHARDS, [table])
