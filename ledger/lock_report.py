"""Reports which sessions hold an advisory lock or wait for one, with the lock's readable name where it can be found.

The server knows only the number of a lock, and a hash cannot be reversed. So the report collects likely names, computes their
numbers, and shows a name if its number is locked. A name can be missing, but it is never wrong, unless two names have one number.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.apps import apps
from django.db import connections

from ledger.database.batch_slots import slot_names
from ledger.database.lock_names import HOLDER, INVOICE_GENERATION
from ledger.database.locks import lock_number

NAME_IN_A_COMMENT: Final = re.compile(r"/\* ([A-Za-z0-9_.:@+/-]{1,160}) \*/", re.ASCII)
LITERAL: Final = re.compile(r"'((?:[^']|''){1,255})'")
NAMES_FOR_LITERALS: Final = (HOLDER, INVOICE_GENERATION)
"""An id in a running query may be the id of one of these locks."""

# The server does not record when it granted a lock. The start of the transaction is the earliest possible time.
CURRENT_LOCKS: Final = """
SELECT lock.classid::bigint << 32 | lock.objid::bigint,
       lock.objsubid = 2,
       lock.mode = 'ShareLock',
       lock.granted,
       lock.pid,
       coalesce(session.application_name, ''),
       coalesce(session.client_addr::text, ''),
       coalesce(session.usename, ''),
       coalesce(session.state, ''),
       session.xact_start,
       lock.waitstart,
       clock_timestamp() - coalesce(lock.waitstart, session.xact_start),
       CASE WHEN lock.granted THEN '{}' ELSE pg_blocking_pids(lock.pid) END,
       coalesce(session.query, '')
  FROM pg_locks AS lock
  LEFT JOIN pg_stat_activity AS session USING (pid)
 WHERE lock.locktype = 'advisory'
   AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY 2, 1, lock.granted DESC, coalesce(lock.waitstart, session.xact_start), lock.pid
"""

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


def current_locks(*, names: Iterable[str] = (), using: str = "default") -> list[SessionLock]:
    """Return every advisory lock that a session of this database holds or awaits, sorted by number.

    For one lock, the sessions that hold it come before those that wait, and the longest time comes first.

    Args:
        names: names to match with the numbers, in addition to those found in the sessions' queries.
    """
    with connections[using].cursor() as cursor:
        # Inside a transaction the server would otherwise repeat the statistics that it showed first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(CURRENT_LOCKS)
        rows = [_from_row(row) for row in cursor.fetchall()]
    known = _numbered(names) | _numbered(_names_in_queries(row.query for row in rows)) if rows else {}
    return [replace(row, name=None if row.two_part else known.get(row.number)) for row in rows]


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


def _from_row(row: tuple[Any, ...]) -> SessionLock:
    (
        number,
        two_part,
        shared,
        granted,
        pid,
        application,
        client,
        role,
        state,
        started_at,
        waiting_since,
        age,
        blocked_by,
        query,
    ) = row
    return SessionLock(
        number=number,
        two_part=two_part,
        name=None,
        shared=shared,
        granted=granted,
        pid=pid,
        application=application,
        client=client,
        role=role,
        state=state,
        transaction_started_at=started_at,
        waiting_since=waiting_since,
        seconds=age / timedelta(seconds=1) if age is not None else None,
        blocked_by=tuple(blocked_by),
        query=query,
    )


def _names_in_queries(queries: Iterable[str]) -> Iterable[str]:
    for query in set(queries):
        yield from NAME_IN_A_COMMENT.findall(query)
        for literal in LITERAL.findall(query):
            yield from (name(literal.replace("''", "'")) for name in NAMES_FOR_LITERALS)


def _numbered(names: Iterable[str]) -> dict[int, str]:
    return {lock_number(name): name for name in names}
