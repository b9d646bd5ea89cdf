"""The nodes of a cluster: each check asks a node directly, so a node that is away does not hide the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.database.checks import verify_cluster
from ledger.database.cluster import on_cluster
from ledger.errors import UnsafeDatabase
from ledger_project.monitoring.findings import CheckResult, failed, ok, warning
from ledger_project.monitoring.server_checks import CLOCK_FAILED, CLOCK_WARNING, PREPARE

CONNECT_SECONDS: Final = 2
PREPARED_LATE_SECONDS: Final = 60.0
"""The oldest age of a prepared transaction. Citus ends one that a crash has left within `citus.recover_2pc_interval`."""
RECOVERY_SECONDS: Final = 5.0
"""The longest interval at which Citus should look for them: until then their holders are locked."""
FULL: Final = 0.9

STATE: Final = """
SELECT
    clock_timestamp(),
    (SELECT groupid FROM pg_dist_local_group),
    (
        SELECT coalesce(extract(epoch FROM clock_timestamp() - min(prepared)), 0)::float8
        FROM pg_prepared_xacts
        WHERE database = current_database()
    ),
    (SELECT setting::float8 / 1000 FROM pg_settings WHERE name = 'citus.recover_2pc_interval'),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
"""
LAST_MOVES: Final = """
SELECT job.description, job.state::text, (
    SELECT task.message
    FROM pg_dist_background_task task
    WHERE task.job_id = job.job_id AND task.message IS NOT NULL
    ORDER BY task.task_id DESC
    LIMIT 1
)
FROM pg_dist_background_job job
ORDER BY job.job_id DESC
LIMIT 1
"""


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """The state of a node; without an answer only its name, whether it is active, and why it does not answer."""

    name: str
    is_active: bool
    silence: str = ""
    is_the_listed: bool = True
    """Whether the server is the one that the coordinator lists at this address."""
    seconds_apart: float = 0.0
    oldest_prepared_seconds: float = 0.0
    recovery_seconds: float = RECOVERY_SECONDS
    connections: int = 0
    most_connections: int = 0


@on_cluster("nodes.listed_nodes")
def listed_nodes(connection: BaseDatabaseWrapper) -> list[tuple[Any, ...]] | None:
    """Return of each node host, port, group, whether it is active, and whether it is this node; None without a cluster."""
    return None


def node_states(connection: BaseDatabaseWrapper) -> Iterator[NodeState]:
    """Yield the state of each node that the coordinator lists, if there is a cluster; asks each directly, for some seconds."""
    for host, port, group, is_active, is_here in listed_nodes(connection) or ():
        known: dict[str, Any] = {"name": f"{host}:{port}", "is_active": is_active}
        before = datetime.now(UTC)
        try:
            state = _rows(connection, STATE)[0] if is_here else _ask_node(connection, host, port)
        except psycopg.Error as error:
            yield NodeState(**known, silence=" ".join(str(error).split()))
            continue
        now, own_group, prepared, recovery, used, most = state
        yield NodeState(
            **known,
            is_the_listed=own_group == group,
            seconds_apart=abs((now - (before + (datetime.now(UTC) - before) / 2)).total_seconds()),
            oldest_prepared_seconds=prepared,
            recovery_seconds=recovery,
            connections=used,
            most_connections=most,
        )


def _ask_node(connection: BaseDatabaseWrapper, host: str, port: int) -> Any:
    given = connection.get_connection_params()
    parameters = {name: given[name] for name in ("dbname", "user", "password") if name in given}
    with psycopg.connect(**parameters, host=host, port=port, connect_timeout=CONNECT_SECONDS, autocommit=True) as session:
        session.execute("SET statement_timeout = '2s'")
        return session.execute(STATE).fetchone()


# Findings --------------------------------------------------------------------------------------------


def nodes(connection: BaseDatabaseWrapper) -> Iterator[CheckResult]:
    """Yield a result for the coordinator with its settings, one for each node, and one for moves of shards.

    Without a cluster it yields nothing.
    """
    if listed_nodes(connection) is None:
        return
    try:
        verify_cluster(connection)
        yield ok("Cluster", "This is the coordinator, and all nodes that answer have the settings that the ledger needs.")
    except UnsafeDatabase as unsafe:
        yield failed("Cluster", f"{unsafe.facts['what']}: {unsafe.facts['why']}.", PREPARE)
    for state in node_states(connection):
        yield _node(state) if not state.silence else _silent(connection, state)
    yield _moves(connection)


def _silent(connection: BaseDatabaseWrapper, state: NodeState) -> CheckResult:
    """Return the result for a node that does not answer this machine: it is away, or only unreachable from here."""
    host, _, port = state.name.rpartition(":")
    with transaction.atomic(using=connection.alias):
        _rows(connection, "SELECT set_config('statement_timeout', '5s', true)")
        [(is_reached,)] = _rows(connection, "SELECT citus_check_connection_to_node(%s, %s)", [host, int(port)])
    if is_reached:
        text = f"{state.name} answers the coordinator but not this machine: {state.silence}"
        return warning(
            "Node", text, "Give this machine access to the node. Until then the coordinator executes its calls, which costs more."
        )
    advice = "Start the node, or promote its standby. Until then calls for its holders get 503."
    return failed("Node", f"{state.name} does not answer: {state.silence}", advice)


def _node(state: NodeState) -> CheckResult:
    if not state.is_active:
        advice = "Run SELECT citus_activate_node(host, port) at the coordinator, or remove it: docs/how-to/operations/cluster.md."
        return failed("Node", f"{state.name} is listed but not active: it does not get changes.", advice)
    if not state.is_the_listed:
        advice = "Correct the address in pg_dist_node with citus_update_node."
        return failed("Node", f"{state.name} is another server than the coordinator lists at this address.", advice)
    if state.seconds_apart > CLOCK_WARNING.total_seconds():
        text = f"The clock of {state.name} and this machine's are {state.seconds_apart:.3f} s apart."
        tell = failed if state.seconds_apart > CLOCK_FAILED.total_seconds() else warning
        return tell("Node", text, "Synchronise the clocks of all nodes with NTP. Entries have the time of their holder's node.")
    if state.oldest_prepared_seconds > PREPARED_LATE_SECONDS:
        text = f"{state.name} has a prepared transaction of {state.oldest_prepared_seconds:.0f} s ago; its holders are locked."
        return failed(
            "Node",
            text,
            "Citus ends the transaction when all nodes respond. If they do, see pg_prepared_xacts and the node's log.",
        )
    if state.recovery_seconds > RECOVERY_SECONDS:
        text = f"{state.name} looks for transactions that a crash has left only every {state.recovery_seconds:.0f} s."
        return warning(
            "Node",
            text,
            "Set citus.recover_2pc_interval = 5s and reload the node: until Citus ends such transactions, their holders "
            "are locked.",
        )
    text = f"{state.name} answers; {state.connections} of {state.most_connections} connections are in use."
    if state.connections >= state.most_connections * FULL:
        return warning("Node", text, "Start fewer web processes, or raise max_connections there.")
    return ok("Node", text)


def _moves(connection: BaseDatabaseWrapper) -> CheckResult:
    for description, state, message in _rows(connection, LAST_MOVES):
        if state in ("failing", "failed"):
            text = f"The last {description or 'move of shards'} is {state}: {' '.join((message or 'no message').split())}"
            return warning(
                "Moves", text, "See SELECT * FROM citus_rebalance_status(), correct the cause, and start the move again."
            )
    return ok("Moves", "No move of shards is failing.")


def _rows(connection: BaseDatabaseWrapper, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())
