"""The outermost transaction of a use-case: committed, tried again, or known to be unknown."""

from collections.abc import Callable
from typing import TypeVar

from django.db import Error, transaction

from ledger.database.locks import keep_to_deadline, sqlstate, waits_bounded
from ledger.database.statements import PREPARED_IS_GONE
from ledger.errors import OutcomeUnknown, SequenceTaken

TRIES = 3
UNIQUE_VIOLATION = "23505"
DOES_NOT_FOLLOW = "LG002"
DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
COLLIDED = {UNIQUE_VIOLATION, DOES_NOT_FOLLOW, DEADLOCK, SERIALIZATION_FAILURE}
WORTH_ANOTHER_TRY = COLLIDED | PREPARED_IS_GONE
SESSION_ENDED = {"57P01", "57P02", "57P03"}

Result = TypeVar("Result")


def in_transaction(once: Callable[[], Result], **about: str) -> Result:
    """Run `once` in an outermost transaction of its own and commit; up to three times when others wrote in between.

    All its waits for locks together take at most `locks.WAIT_SECONDS`, however many locks it meets and however often it is tried.

    Args:
        about: whose transaction it is, for the facts of what is raised: `holder_id`, or another name.

    Raises:
        SequenceTaken: three times somebody without the lock took the number, or the server chose this transaction as a victim.
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
            last_error = error
    if sqlstate(last_error) not in COLLIDED:
        # A statement that the server cannot prepare, or does not support, is nobody's collision.
        raise last_error
    raise SequenceTaken(**about) from last_error


def is_connection_lost(error: Error) -> bool:
    """Whether the session is gone: no SQLSTATE came back, or one that ends the session."""
    state = sqlstate(error)
    return state is None or state.startswith("08") or state in SESSION_ENDED
