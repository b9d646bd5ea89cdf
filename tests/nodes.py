"""Where sessions are, and what they wait for: on one PostgreSQL, and on all nodes of a cluster."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

from ledger.database.locks import holder_key, lock_number
from ledger.database.statements import fetch_value
from tests.distributed.cluster import RunningCluster, StartedCluster

Session = psycopg.Connection[Any]

PAUSE_S = 0.01
"""Between two looks at a server: what is waited for needs the processor more than who waits."""

cluster: StartedCluster | RunningCluster | None = None
"""The cluster that this run of the tests uses; None on one PostgreSQL."""


def session_id(session: Session | None = None) -> int:
    """Return the number of a session, Django's of this thread by default, that no other session of any node has."""
    function = "citus_backend_gpid" if cluster else "pg_backend_pid"
    if session is not None:
        [(number,)] = session.execute(f"SELECT {function}()")
        return int(number)
    return fetch_value(int, f"SELECT {function}()")


def pause() -> bool:
    """Wait a moment before the next look; False, as the answer of a look that has not seen it yet."""
    time.sleep(PAUSE_S)
    return False


def is_waiting(observer: Session, session: int) -> bool:
    """Return whether the session waits for a lock now, on whichever node."""
    query = (
        "SELECT EXISTS (SELECT FROM citus_lock_waits WHERE waiting_gpid = %s)"
        if cluster
        else "SELECT cardinality(pg_blocking_pids(%s)) > 0"
    )
    row = observer.execute(query, [session]).fetchone()
    return bool(row and row[0]) or pause()


def is_waited_for(observer: Session, session: int) -> bool:
    """Return whether another session waits for a lock of this one now, on whichever node."""
    query = (
        "SELECT EXISTS (SELECT FROM citus_lock_waits WHERE blocking_gpid = %s)"
        if cluster
        else "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid)))"
    )
    row = observer.execute(query, [session]).fetchone()
    return bool(row and row[0]) or pause()


def waiting_for_advisory_lock(observer: Session, number: int) -> int:
    """Return how many sessions wait for the advisory lock of this number now, on all nodes together."""
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        f" AND classid::bigint << 32 | objid::bigint = {number:d} AND objsubid = 1"
    )
    if cluster:
        waiting = f"SELECT sum(result::bigint) FROM run_command_on_all_nodes($${waiting}$$)"
    row = observer.execute(waiting).fetchone()
    assert row is not None
    return int(row[0]) or int(pause())


def lock_holder(session: Session, holder: str) -> None:
    """Take the holder's lock in the session's transaction, as the ledger does: on the holder's node."""
    session.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(holder)), holder])


def neighbours(new_holder: Callable[[], str]) -> tuple[str, str]:
    """Return two new holders whose rows are on one node, where a server itself finds a deadlock between their locks."""
    first = second = new_holder()
    while second == first or node_of(second) != node_of(first):
        second = new_holder()
    return first, second


def node_of(holder: str) -> tuple[str, int] | None:
    """Return the address of the node that has the holder's rows; None on one PostgreSQL."""
    if not cluster:
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nodename, nodeport FROM pg_dist_shard_placement"
            " WHERE shardid = get_shard_id_for_distribution_column('ledger_entry', %s::text)",
            [holder],
        )
        (found,) = cursor.fetchall()
        return found
