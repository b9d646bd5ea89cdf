"""The outermost transaction of a use-case: it commits, is tried again, or raises that its outcome is unknown."""

from collections.abc import Callable
from typing import TypeVar

from django.db import Error, connection, transaction

from ledger.database.locks import keep_to_deadline, sqlstate, waits_bounded
from ledger.database.statements import PREPARED_IS_GONE
from ledger.errors import OutcomeUnknown, SequenceTaken
from ledger.telemetry.metrics import RETRIES

TRIES = 3
UNIQUE_VIOLATION = "23505"
DOES_NOT_FOLLOW = "LG002"
DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
COLLIDED = {UNIQUE_VIOLATION, DOES_NOT_FOLLOW, DEADLOCK, SERIALIZATION_FAILURE}
MOVED = {"XX000", "42P01"}
"""An internal error, and no such table: on a cluster also that a shard is no longer where the statement was sent."""
ASTRAY = "LG003"
"""On a cluster: this session no longer takes calls to the holder's node. Another session does."""
WORTH_ANOTHER_TRY = COLLIDED | PREPARED_IS_GONE | MOVED | {ASTRAY}
SESSION_ENDED = {"57P01", "57P02", "57P03"}

Result = TypeVar("Result")


def in_transaction(once: Callable[[], Result], **about: str) -> Result:
    """Run `once` in an outermost transaction and commit; try up to three times if another writer collides.

    All waits for locks together, over all tries, take at most `locks.WAIT_SECONDS`.

    Args:
        once: runs inside the transaction; it runs again from the start on every try.
        about: facts for the errors: `holder_id`, or another name of what the transaction is about.

    Raises:
        SequenceTaken: three times a writer without the lock took the number, or the server ended a deadlock by this transaction.
        OutcomeUnknown: the connection was lost during COMMIT.
    """
    with waits_bounded():
        return _tried(once, about)


def _tried(once: Callable[[], Result], about: dict[str, str]) -> Result:
    for _ in range(TRIES):
        committing = False
        try:
            with transaction.atomic(durable=True):
                keep_to_deadline()
                result = once()
                committing = True
            return result
        except Error as error:
            if committing and is_connection_lost(error):
                raise OutcomeUnknown(**about) from error
            if sqlstate(error) not in WORTH_ANOTHER_TRY:
                raise
            RETRIES.labels(sqlstate(error)).inc()
            if sqlstate(error) == ASTRAY:
                connection.close()
            last_error = error
    if sqlstate(last_error) not in COLLIDED:
        # The server cannot prepare the statement, or does not support it, or has failed: no other writer is the cause.
        raise last_error
    raise SequenceTaken(**about) from last_error


def is_connection_lost(error: Error) -> bool:
    """Return whether the session is lost: the error has no SQLSTATE, or one that ends the session."""
    state = sqlstate(error)
    return state is None or state.startswith("08") or state in SESSION_ENDED
