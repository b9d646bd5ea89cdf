"""Who holds and who waits for which advisory lock, with readable names where they can be known. Changes nothing.

The server knows numbers only, and a number cannot be turned back. So likely names are gathered and numbered, and one whose
number is among those locked is its name: a guess can be missing, but not be wrong (short of a collision of the scheme).
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
"""What an id in a running query may be locked as."""

# The server does not keep when a lock was granted; the start of its transaction is the earliest it can have been.
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

# By the index of first entries, however many entries each holder has.
HOLDERS: Final = "SELECT DISTINCT holder_id FROM ledger_entry WHERE sequence = 1 ORDER BY holder_id LIMIT %s"


HIDDEN: Final = "<insufficient privilege>"
"""What the server shows as the query of another role's session to a role that may not read it."""
HIDDEN_HINT: Final = "PostgreSQL hides the sessions of other roles; run as a superuser: GRANT pg_read_all_stats TO {role};"


@dataclass(frozen=True, kw_only=True)
class HeldOrAwaited:
    """One session and one advisory lock, at the instant of the report.

    `seconds` is how long it has been waiting, or, when granted, how long its transaction has been open: no longer than that
    has the lock been held. `two_part` marks a lock of another application, on a pair of 32-bit numbers.
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


def current_locks(*, names: Iterable[str] = (), using: str = "default") -> list[HeldOrAwaited]:
    """Every advisory lock held or awaited in this database: by number, holders before those who wait, the longest first.

    Args:
        names: what the numbers may stand for, besides what the sessions' own queries tell.
    """
    with connections[using].cursor() as cursor:
        # Inside a transaction the server would show the sessions as they were when they were first looked at.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(CURRENT_LOCKS)
        rows = [_from_row(row) for row in cursor.fetchall()]
    known = _numbered(names) | _numbered(_names_in_queries(row.query for row in rows)) if rows else {}
    return [replace(row, name=None if row.two_part else known.get(row.number)) for row in rows]


def hint_about_hidden(locks: Iterable[HeldOrAwaited], *, using: str = "default") -> str:
    """What to do so that every session is told, or nothing where every one is."""
    if any(lock.query == HIDDEN for lock in locks):
        return HIDDEN_HINT.format(role=connections[using].settings_dict["USER"])
    return ""


def known_names(*, limit: int, using: str = "default") -> Iterable[str]:
    """The names that may be locked: at most `limit` holders from the tables, the slots of batches, and what other apps tell.

    An app has locks of its own named here by giving its AppConfig a method `lock_names(limit: int) -> Iterable[str]`.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(HOLDERS, [limit])
        yield from (HOLDER(holder_id) for (holder_id,) in cursor.fetchall())
    yield from slot_names()
    for app in apps.get_app_configs():
        if hasattr(app, "lock_names"):
            yield from app.lock_names(limit)


def _from_row(row: tuple[Any, ...]) -> HeldOrAwaited:
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
    return HeldOrAwaited(
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
