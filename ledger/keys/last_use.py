"""When an API key was last used, to five minutes: written beside the requests, never by one of them."""

import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from ledger.database.checks import refusal_of_writes
from ledger.database.queues import Queue
from ledger.keys.models import ApiKey

log = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=5)
"""How old the time on record is before a use replaces it: a row is written this often at most, however many calls a key makes."""
KEYS_AT_ONCE: Final = 32

# Who waited here would wait for a rotation, or for another process that records the same. There are two statements because on a
# cluster each node has a copy of the table, and one of the copies has to say for all which rows are free.
FREE: Final = """
SELECT id
FROM ledger_api_key
WHERE id = ANY (%s) AND (last_used_at IS NULL OR last_used_at <= now() - make_interval(secs => %s))
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
"""
RECORD: Final = "UPDATE ledger_api_key SET last_used_at = now() WHERE id = ANY (%s)"

_tries_again_at = 0.0
"""By `time.monotonic`: until then nothing is tried, since the server took no write."""


def note_use(key: ApiKey) -> None:
    """Have it recorded that the key is being used, and return at once. A failure to record it does not reach the request.

    Nothing is recorded while the time on record is not older than EVERY, nor for EVERY after a server that took no write (such as
    a standby), nor in a transaction of the caller, such as that of a TestCase, whose rows no other connection sees.
    """
    is_fresh = key.last_used_at is not None and key.last_used_at > timezone.now() - EVERY
    if is_fresh or connection.in_atomic_block or time.monotonic() < _tries_again_at:
        return
    try:
        USES.submit(key.pk, _ignore)
    except Exception:  # the queue is full, or the process ends
        log.debug("The use of a key is not recorded.", exc_info=True)


def _ignore(group: Sequence[Any]) -> None:
    """Nobody waits for what is recorded."""


def _record(keys: Sequence[int]) -> list[None]:
    """Record that these keys are used now. Runs in a separate thread, with a separate connection that it closes."""
    global _tries_again_at
    own = connection.copy()
    try:
        if refusal_of_writes(own):
            _tries_again_at = time.monotonic() + EVERY.total_seconds()
        else:
            own.set_autocommit(False)
            record_uses(own, keys)
            own.commit()
    except Error:
        _tries_again_at = time.monotonic() + EVERY.total_seconds()
        log.debug("The last use of API keys is not recorded for a while.", exc_info=True)
    finally:
        own.close()
    return [None] * len(keys)


def record_uses(connection: BaseDatabaseWrapper, keys: Sequence[int]) -> None:
    """Write when these keys were used, except where the time on record is fresh or another transaction has the row."""
    with connection.cursor() as cursor:
        cursor.execute(FREE, [list(keys), EVERY.total_seconds()])
        if free := [key for (key,) in cursor.fetchall()]:
            cursor.execute(RECORD, [free])


USES = Queue("ledger-key-uses", _record, most=lambda: KEYS_AT_ONCE, is_quick=False)
"""The queue of keys whose use is recorded."""
