"""Bounds how many large batches run at the same time, so that their locks never fill the server's lock table.

A batch of 1,000 transfers holds 2,000 locks, and the server has one table for the locks of all sessions. When that table is full,
the next request for a lock fails, even the request of a spend or of a migration. So a large batch first takes slots, one for each
SLOT_LOCKS of its locks; all slots together cover half of the table. A slot is an advisory lock too: the processes of all machines
share the slots, and a process that dies frees its slots.
"""

from typing import Final

from django.db import connection

from ledger.database.lock_names import BATCH_SLOT
from ledger.database.locks import lock_number
from ledger.errors import HolderBusy

SLOT_LOCKS: Final = 100
"""How many locks on holders one slot covers."""
MOST_SLOTS: Final = 250
"""Half of a table of 50,000 locks; a larger table admits no more."""

SERVER_SLOTS: Final = f"""
    current_setting('max_locks_per_transaction')::int
    * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)
    / 2 / {SLOT_LOCKS}
"""
"""The server's table holds max_locks_per_transaction locks per session; batches may use half of them."""

# The slice cuts the list before a lock is tried, and LIMIT stops the query once enough slots are taken. A batch that needs more
# slots than the server has takes all slots and runs alone.
TAKE: Final = f"""
SELECT count(*) >= LEAST(%s, {SERVER_SLOTS})
FROM (
    SELECT
    FROM unnest((%s::bigint[])[1:{SERVER_SLOTS}]) AS slot (number)
    WHERE pg_try_advisory_xact_lock(number)
    LIMIT %s
) AS taken
"""


def take_slots(locks: int) -> None:
    """Take the slots that a batch needs, until the transaction ends; or raise: its rollback frees what was taken.

    Args:
        locks: how many locks the batch will take. A batch of up to SLOT_LOCKS locks needs no slot.

    Raises:
        HolderBusy: other batches have too many slots; nothing was written, and the transaction must end.
    """
    wanted = min((locks - 1) // SLOT_LOCKS, MOST_SLOTS)
    if not wanted:
        return
    with connection.cursor() as cursor:
        cursor.execute(TAKE, [wanted, slot_numbers(), wanted])
        (has_enough,) = cursor.fetchone() or (False,)
    if not has_enough:
        raise HolderBusy(key=BATCH_SLOT("any"))


def slot_names() -> list[str]:
    """Return the names of all slots that a server can have."""
    return [BATCH_SLOT(str(slot)) for slot in range(1, MOST_SLOTS + 1)]


def slot_numbers() -> list[int]:
    """Return the numbers that the server locks for the slots."""
    return [lock_number(name) for name in slot_names()]
