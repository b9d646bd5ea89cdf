"""Finds an instant before which no entry can appear any more, on one server or on all nodes of a cluster.

Note [Who may still write an earlier entry]
    A writer reads the clock while it holds an advisory lock, and keeps that lock until it ends. So a transaction that has read a
    time before `until` has ended, or is one of those that hold an advisory lock afterwards. A transaction that writes without a
    lock holds a RowExclusiveLock on the table from its INSERT on. A lock is released when COMMIT is visible, not before. A clock
    that is set back is an exception.
"""

import time
from datetime import datetime
from typing import Any, Final

from django.db import connection

from ledger.database.cluster import sql_of

LOOK_EVERY_SECONDS: Final = 0.02
# A session that holds a lock without a transaction (backend/0) has not read the clock in one.
WRITERS: Final = """
    SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE pid IS DISTINCT FROM pg_backend_pid() AND granted AND virtualtransaction NOT LIKE '%%/0'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (locktype = 'advisory' OR relation = 'ledger_entry'::regclass AND mode = 'RowExclusiveLock')
"""

CLOCK: Final = "SELECT clock_timestamp()"


def find_horizon(patience_seconds: float) -> datetime | None:
    """Return an instant before which no entry can appear any more; None if a transaction that may write one did not end in time.

    Args:
        patience_seconds: how long to wait for such transactions.
    """
    deadline = time.monotonic() + patience_seconds
    with connection.cursor() as cursor:
        cursor.execute(sql_of("clock", CLOCK))
        (until,) = cursor.fetchone()
        writers = _writers(cursor)
        while writers:
            if time.monotonic() >= deadline:
                return None
            time.sleep(LOOK_EVERY_SECONDS)
            writers &= _writers(cursor)
    return until


def _writers(cursor: Any) -> set[str]:
    cursor.execute(sql_of("writers", WRITERS), [])
    return {name for (name,) in cursor.fetchall()}
