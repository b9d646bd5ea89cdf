"""Reports the sessions that hold an advisory lock or wait for one, with the lock's readable name if it can be found.

The server knows only the number of a lock, and a hash cannot be reversed. So the report collects likely names, computes their
numbers, and shows a name if its number is locked. A name can be missing, but it is never wrong, unless two names have one number.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.apps import apps
from django.db import connections

from ledger.database.batch_slots import slot_names
from ledger.database.cluster import ask_all_nodes, sql_of
from ledger.database.lock_names import HOLDER, INVOICE_GENERATION
from ledger.database.locks import lock_number

NAME_IN_A_COMMENT: Final = re.compile(r"/\* ([A-Za-z0-9_.:@+/-]{1,160}) \*/", re.ASCII)
LITERAL: Final = re.compile(r"'((?:[^']|''){1,255})'")
NAMES_FOR_LITERALS: Final = (HOLDER, INVOICE_GENERATION)
"""An id in a running query may be the id of one of these locks."""

# The server does not record when it granted a lock. The start of the transaction is the earliest possible time.
CURRENT_LOCKS: Final = """
SELECT lock.classid::bigint << 32 | lock.objid::bigint AS number,
       lock.objsubid = 2 AS two_part,
       lock.mode = 'ShareLock' AS shared,
       lock.granted,
       lock.pid,
       coalesce(session.application_name, '') AS application,
       coalesce(session.client_addr::text, '') AS client,
       coalesce(session.usename, '') AS role,
       coalesce(session.state, '') AS state,
       session.xact_start AS transaction_started_at,
       lock.waitstart AS waiting_since,
       extract(epoch FROM clock_timestamp() - coalesce(lock.waitstart, session.xact_start))::float8 AS seconds,
       CASE WHEN lock.granted THEN '{}' ELSE pg_blocking_pids(lock.pid) END AS blocked_by,
       coalesce(session.query, '') AS query
  FROM pg_locks AS lock
  LEFT JOIN pg_stat_activity AS session USING (pid)
 WHERE lock.locktype = 'advisory'
   AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY 2, 1, lock.granted DESC, coalesce(lock.waitstart, session.xact_start), lock.pid
"""

# On a cluster a session of Citus holds the lock, on the holder's node. `client_at` names its client's session: the number of the
# node to which the client is connected, and the pid there, as one number.
SESSIONS_OF_CLIENTS: Final = "(SELECT NULL::integer AS process_id, NULL::bigint AS global_pid)"
OF_A_NODE: Final = f"""
SELECT json_build_object(
    'locks', (
        SELECT coalesce(json_agg(lock), '[]')
          FROM (
              SELECT found.*, backend.global_pid AS client_at
                FROM ({CURRENT_LOCKS}) AS found
                LEFT JOIN {sql_of("sessions of clients", SESSIONS_OF_CLIENTS)} AS backend ON backend.process_id = found.pid
          ) AS lock
    ),
    'sessions', (
        SELECT coalesce(json_object_agg(pid, json_build_object(
            'application', application_name, 'client', coalesce(client_addr::text, ''), 'role', coalesce(usename, ''),
            'state', coalesce(state, ''), 'query', query
        )), '{{}}')
          FROM pg_stat_activity
         WHERE datname = current_database() AND xact_start IS NOT NULL AND application_name NOT LIKE 'citus\\_%'
    )
)
"""
PIDS_PER_NODE: Final = 10_000_000_000
"""How Citus makes one number of a node's and a session's."""

# Reads the index of first entries: the cost does not depend on how many entries a holder has.
HOLDERS: Final = "SELECT DISTINCT holder_id FROM ledger_entry WHERE sequence = 1 ORDER BY holder_id LIMIT %s"


HIDDEN: Final = "<insufficient privilege>"
"""The text that the server shows instead of a query that this role may not read."""
HIDDEN_HINT: Final = "PostgreSQL hides the sessions of other roles; run as a superuser: GRANT pg_read_all_stats TO {role};"


@dataclass(frozen=True, kw_only=True)
class SessionLock:
    """One session that holds an advisory lock or waits for it, at the time of the report.

    `seconds` is how long the session has waited. If the lock is granted, it is the age of the session's transaction: the lock has
    been held no longer than that. `two_part` marks a lock on a pair of 32-bit numbers, which only other applications take.

    On a cluster `node` has the lock; `pid` and `blocked_by` are sessions there. If the client is connected to another node,
    `client_node` and `client_pid` are its session, and application, client, role, state and query are those of that session.
    """

    number: int
    two_part: bool
    name: str | None
    shared: bool
    granted: bool
    pid: int
    application: str
    client: str
    role: str
    state: str
    transaction_started_at: datetime | None
    waiting_since: datetime | None
    seconds: float | None
    blocked_by: tuple[int, ...]
    query: str
    node: str = ""
    client_node: str = ""
    client_pid: int | None = None


def current_locks(*, names: Iterable[str] = (), using: str = "default") -> list[SessionLock]:
    """Return every advisory lock that a session of this database holds or awaits, on all nodes of a cluster, sorted by number.

    For one lock, the sessions that hold it come before those that wait, and the longest time comes first.

    Args:
        names: names to match with the numbers, in addition to those found in the sessions' queries.
    """
    rows = _of_all_nodes(using)
    queries = [row["query"] for row in rows] + [row.pop("query_on_node", "") for row in rows]
    known = _number_names(names) | _number_names(_names_in_queries(queries)) if rows else {}
    return [SessionLock(name=None if row["two_part"] else known.get(row["number"]), **row) for row in rows]


def _of_all_nodes(using: str) -> list[dict[str, Any]]:
    nodes = ask_all_nodes(OF_A_NODE, using)
    rows = [_on_node(row, number, nodes) for number, (_, found) in nodes.items() for row in found["locks"]]
    return sorted(rows, key=lambda row: (row["two_part"], row["number"], row["node"], not row["granted"], -(row["seconds"] or 0)))


def _on_node(row: dict[str, Any], number: int, nodes: dict[int, tuple[str, Any]]) -> dict[str, Any]:
    """A lock of the node with that number: its values as a server gives them, and its client, which may be of another node."""
    client_at = divmod(row.pop("client_at") or 0, PIDS_PER_NODE)
    own = {name: row[name] and datetime.fromisoformat(row[name]) for name in ("transaction_started_at", "waiting_since")}
    own |= {"node": nodes[number][0], "blocked_by": tuple(row["blocked_by"])}
    client_node, found = nodes.get(client_at[0], ("", {"sessions": {}}))
    session = found["sessions"].get(str(client_at[1]))
    if session is None or client_at == (number, row["pid"]):
        return row | own
    return row | own | session | {"query_on_node": row["query"], "client_node": client_node, "client_pid": client_at[1]}


def hint_about_hidden(locks: Iterable[SessionLock], *, using: str = "default") -> str:
    """Return how to make hidden sessions visible, or an empty text if no session is hidden."""
    if any(lock.query == HIDDEN for lock in locks):
        return HIDDEN_HINT.format(role=connections[using].settings_dict["USER"])
    return ""


def known_names(*, limit: int, using: str = "default") -> Iterable[str]:
    """Yield names that may be locked: at most `limit` holders from the ledger, the slots of batches, and names from other apps.

    An app adds the names of its locks by a method of its AppConfig: `lock_names(limit: int) -> Iterable[str]`.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(HOLDERS, [limit])
        yield from (HOLDER(holder_id) for (holder_id,) in cursor.fetchall())
    yield from slot_names()
    for app in apps.get_app_configs():
        if hasattr(app, "lock_names"):
            yield from app.lock_names(limit)


def _names_in_queries(queries: Iterable[str]) -> Iterable[str]:
    for query in set(queries):
        yield from NAME_IN_A_COMMENT.findall(query)
        for literal in LITERAL.findall(query):
            yield from (name(literal.replace("''", "'")) for name in NAMES_FOR_LITERALS)


def _number_names(names: Iterable[str]) -> dict[int, str]:
    return {lock_number(name): name for name in names}
