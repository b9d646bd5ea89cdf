"""The outermost transaction of a use-case: it commits, is tried again, or raises that its outcome is unknown.

Every write goes through `outermost`: it alone knows whether COMMIT was sent. See docs/adr/0050.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connection, transaction

from ledger.database.cluster import return_to_coordinator
from ledger.database.locks import (
    LOCK_TIMEOUT_MS,
    Lock,
    advisory_lock,
    ensure_order,
    is_shortened,
    keep_to_deadline,
    remember_locked,
    sqlstate,
    try_advisory_lock,
    wait_no_longer_than,
    waits_bounded,
)
from ledger.database.schema_versions import ensure_schema
from ledger.database.statements import PREPARED_IS_GONE
from ledger.errors import HolderBusy, LedgerError, OutcomeUnknown, SequenceTaken, UnsafeDatabase
from ledger.telemetry.metrics import RETRIES

log = logging.getLogger(__name__)

TRIES = 3
UNIQUE_VIOLATION = "23505"
DOES_NOT_FOLLOW = "LG002"
DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
BROKEN_OFF = {DEADLOCK, SERIALIZATION_FAILURE}
COLLIDED = {UNIQUE_VIOLATION, DOES_NOT_FOLLOW} | BROKEN_OFF
MOVED = {"XX000", "42P01"}
"""An internal error, and no such table: on a cluster also that a shard is no longer where the statement was sent."""
ASTRAY = "LG003"
"""On a cluster: this session's node does not have the holder, or takes no call to its node. A new one at the coordinator does."""
WORTH_ANOTHER_TRY = COLLIDED | PREPARED_IS_GONE | MOVED | {ASTRAY}
IN_DOUBT = ("08", "57P", "XX")
"""The beginnings of the SQLSTATEs after which COMMIT may have taken effect: a lost connection, a session that was ended, and an
internal error, by which a cluster also says that a node did not confirm."""
REPEATABLE_SNAPSHOT = "the snapshot would be older than the lock, and balances are then overspent"
REPEAT = "repeat the transaction"

# About the caller's transaction. It reads no table, so that a refused transaction has read nothing by it.
CALLERS = f"""
SELECT
    current_setting('transaction_isolation'),
    current_setting('lock_timeout'),
    current_setting('lock_timeout')::interval BETWEEN '1ms' AND '{LOCK_TIMEOUT_MS}ms'
"""

Result = TypeVar("Result")


class _Outermost(transaction.Atomic):
    """The transaction of a use-case, at the right level and with bounded waits. What is called inside it is a part of it."""


@contextmanager
def outermost(**about: str) -> Iterator[None]:
    """Run the block in an outermost transaction and commit it, or raise: then nothing was written, unless it is OutcomeUnknown.

    Args:
        about: facts for OutcomeUnknown; only what the caller's own request names.

    Raises:
        RuntimeError: a transaction is open already.
        OperationalError: the connection was lost before COMMIT, whatever error the block made of that.
        OutcomeUnknown: COMMIT was sent, and the server did not say whether it took effect. A block that sets a rollback never
            raises it.
    """
    ensure_schema(connection)
    is_committing, driver = False, None
    try:
        with _Outermost(DEFAULT_DB_ALIAS, savepoint=True, durable=True):
            driver = connection.connection
            yield
            is_committing = not transaction.get_rollback()
    except Exception as error:
        # Django replaces a driver's connection that it cannot roll back.
        if not is_committing and not isinstance(error, Error | LedgerError) and driver not in (None, connection.connection):
            # Bytes that are not the server's protocol make the driver fail in ways that are not database errors.
            raise OperationalError("the connection was lost") from error
        if not is_committing or was_rolled_back(error):
            raise
        if not isinstance(error, Error):
            log.exception("COMMIT raised an error that is not the database's; its outcome is reported as unknown.")
        raise OutcomeUnknown(**about) from error


def own_or_joined(*names: str, **about: str) -> AbstractContextManager[None]:
    """As `outermost`; inside a transaction, a part of it that takes effect with it. Inside a caller's, errors say to repeat that.

    Args:
        names: of the locks that the block waits for.
        about: facts for OutcomeUnknown.

    Raises:
        LocksOutOfOrder, UnsafeDatabase, HolderBusy: of a transaction of the caller, as `in_transaction`.
        SequenceTaken: the server ended a deadlock by this transaction of the caller.
    """
    return _join_transaction(names, {}, BROKEN_OFF) if joins() else outermost(**about)


@contextmanager
def locked_transaction(*names: str, wait: bool = True, **about: str) -> Iterator[Lock]:
    """Run the block as `own_or_joined` does, under these locks; they are held until the outermost transaction ends.

    Args:
        wait: as `advisory_lock`; False: as `try_advisory_lock`, which needs no order.

    Raises: as `own_or_joined`, and as those two.
    """
    with own_or_joined(*(names if wait else ()), **about), (advisory_lock if wait else try_advisory_lock)(*names) as lock:
        remember_locked(names if wait else ())
        yield lock


def joins() -> bool:
    """Return whether a write now joins a transaction of the caller. One that a TestCase has opened around its test is not meant.

    For Django's own `durable` the transactions of a TestCase do not count either.
    """
    return connection.in_atomic_block and not connection.atomic_blocks[-1]._from_testcase  # type: ignore[attr-defined]


def after_commit(act: Callable[..., object], /, *arguments: object, using: str = DEFAULT_DB_ALIAS) -> None:
    """Call `act` once the open transaction has committed: its outermost one, so that of the caller if it joins one; else now.

    After a rollback, nothing is called. An error of `act` is logged and goes no further: what was written is stored, so the
    caller gets its result. All work after COMMIT goes through here (ruff refuses Django's `on_commit`, which raises such an error
    out of COMMIT; for a `functools.partial` it does so even with `robust=True`).
    """

    def act_and_log() -> None:
        try:
            act(*arguments)
        except Exception:
            log.exception("Work after COMMIT failed; what was committed is stored.")

    if joins():
        transaction.on_commit(act_and_log, using=using)  # noqa: TID251 - nothing comes out of it
    else:
        act_and_log()


def was_rolled_back(error: Exception) -> bool:
    """Return whether the error, which COMMIT has raised, says that the transaction was rolled back.

    The server says so by an error that leaves the session open. One that ends it (FATAL, PANIC) may follow a COMMIT that took
    effect: a full disk, for example, can end the server after it has written the COMMIT.
    """
    state = sqlstate(error)
    if state is None or state.startswith(IN_DOUBT):
        return False
    report = getattr(error.__cause__, "diag", None)
    return report is not None and report.severity_nonlocalized == "ERROR"


def in_transaction(once: Callable[[], Result], *, locks: Iterable[str] = (), **about: str) -> Result:
    """Run `once` in an outermost transaction and commit it; try up to three times if another writer collides.

    Inside a transaction of the caller it joins that transaction: `once` runs only once, in a savepoint that is kept if `once`
    returns, and its locks are held until the caller's transaction ends. See docs/adr/0061.

    All waits for locks together, over all tries, take at most `locks.WAIT_SECONDS`.

    Args:
        once: runs inside the transaction; it runs again from the start on every try.
        locks: the names of those that `once` takes.
        about: facts for the errors, such as `holder_id`; only what the caller's own request names.

    Raises:
        SequenceTaken: three times a writer without the lock took the number, or the server ended a deadlock by this transaction.
        OutcomeUnknown: as for `outermost`. It is never tried again here: a second try that failed would say less.
        HolderBusy: by `once`. In a transaction of the caller it says, as SequenceTaken does, to repeat that transaction.
        LocksOutOfOrder: the caller's transaction has taken a lock that comes after one of `locks`; nothing was sent.
        UnsafeDatabase: the caller's transaction is not READ COMMITTED; nothing was read or written.
    """
    with waits_bounded():
        if not joins():
            return _try_once(once, about)
        with _join_transaction(locks, about, COLLIDED):
            return once()


@contextmanager
def _join_transaction(names: Iterable[str], about: dict[str, str], repeated: Collection[str]) -> Iterator[None]:
    """Run the block in a savepoint of the open transaction; after an error in `repeated`, the caller has to repeat that."""
    names = tuple(names)
    ensure_schema(connection)
    ensure_order(names)
    if any(isinstance(block, _Outermost) for block in connection.atomic_blocks):
        with transaction.atomic():
            yield
            remember_locked(names)
        return
    with connection.cursor() as cursor:
        cursor.execute(CALLERS)
        isolation, lock_timeout, is_bounded = cursor.fetchone()
    if isolation != "read committed":
        raise UnsafeDatabase(what=f"transaction_isolation = {isolation}", why=REPEATABLE_SNAPSHOT)
    try:
        # A savepoint, so that an error in it leaves the caller's transaction as it was before.
        with transaction.atomic():
            if not is_bounded:
                wait_no_longer_than(LOCK_TIMEOUT_MS)
            yield
            if not transaction.get_rollback():
                remember_locked(names)
                if is_shortened() or not is_bounded:
                    _set_lock_timeout(lock_timeout)
    except HolderBusy as busy:
        raise HolderBusy(**{**busy.facts, "what_to_do": REPEAT}) from busy
    except Error as error:
        if sqlstate(error) not in repeated:
            raise
        raise SequenceTaken(**about, what_to_do=REPEAT) from error


def _set_lock_timeout(value: str) -> None:
    """Give the caller's next statements the time again that they had; the rollback of a savepoint does so by itself."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = %s", [value])


def _try_once(once: Callable[[], Result], about: dict[str, str]) -> Result:
    for _ in range(TRIES):
        try:
            with outermost(**about):
                keep_to_deadline()
                return once()
        except Error as error:
            if sqlstate(error) not in WORTH_ANOTHER_TRY:
                raise
            RETRIES.labels(sqlstate(error)).inc()
            if sqlstate(error) == ASTRAY:
                return_to_coordinator()
            last_error = error
    if sqlstate(last_error) not in COLLIDED:
        # The server cannot prepare the statement, or does not support it, or has failed: no other writer is the cause.
        raise last_error
    raise SequenceTaken(**about) from last_error
