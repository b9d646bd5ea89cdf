"""Bounds how many large batches run at the same time, so that their locks never fill the server's lock table.

A batch of 1,000 transfers holds 2,000 locks, and the server has one table for the locks of all sessions. When that table is full,
the next request for a lock fails, even the request of a spend or of a migration. So a large batch first takes slots, one for each
SLOT_LOCKS of its locks; all slots together cover half of the table. A slot is an advisory lock too: the processes of all machines
share the slots, and a process that dies frees its slots.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ledger.database.lock_names import BATCH_SLOT
from ledger.database.locks import numbering
from ledger.database.statements import Statement, array, boolean, parameter
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
TAKE: Final = Statement(
    "take_slots",
    f"""
SELECT count(*) >= LEAST(%(slots)s::bigint, {SERVER_SLOTS})
FROM (
    SELECT
    FROM unnest((%(numbers)s::bigint[])[1:{SERVER_SLOTS}]) AS slot (number)
    WHERE pg_try_advisory_xact_lock(number)
    LIMIT %(slots)s::bigint
) AS taken
""",
    [boolean],
)


def take_slots(locks: int) -> None:
    """Take the slots that a batch needs, until the transaction ends; or raise: its rollback frees what was taken.

    Args:
        locks: how many locks the batch will take. A batch of up to SLOT_LOCKS locks needs no slot.

    Raises:
        HolderBusy: other batches have too many slots; nothing was written, and the transaction must end.
    """
    slots = min((locks - 1) // SLOT_LOCKS, MOST_SLOTS)
    if not slots:
        return
    (has_enough,) = TAKE.execute({"slots": parameter(slots), "numbers": slot_numbers()})
    if not has_enough:
        raise HolderBusy(key=BATCH_SLOT("any"))


def slot_names() -> list[str]:
    """Return the names of all slots that a server can have."""
    return [BATCH_SLOT(str(slot)) for slot in range(1, MOST_SLOTS + 1)]


def slot_numbers() -> bytes:
    """Return the numbers that the server locks for the slots, as a parameter of TAKE."""
    return _slot_numbers(numbering(), BATCH_SLOT.spelling())


@lru_cache(1)
def _slot_numbers(number_of: Callable[[str], int], spelled: Callable[..., str]) -> bytes:
    return array([str(number_of(spelled(str(slot)))) for slot in range(1, MOST_SLOTS + 1)])
