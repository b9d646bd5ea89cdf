"""Transaction-level advisory locks on readable names. Know nothing of ledgers.

    with transaction.atomic(durable=True), advisory_lock(lock_names.HOLDER("42")) as lock:
        ...   # what reads and writes under the lock takes `lock`: the argument is the proof that it is held

The server frees a lock when the transaction ends, or the savepoint in which it was taken is rolled back, or its client dies;
leaving the `with` block frees nothing, it only ends the proof. Session-level locks are never used: behind PgBouncer in
transaction mode they would stay with a connection that belongs to somebody else by then.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger.database import lock_keys, lock_names
from ledger.errors import HolderBusy, LockBusy, LockNotHeld, NotInTransaction

LOCK_NOT_AVAILABLE: Final = "55P03"
QUERY_CANCELED: Final = "57014"
LOCK_TIMEOUT_MS: Final = 2_000
"""What databases are prepared with; see `prepare_database`."""
WAIT_SECONDS: Final = 2.5
"""How long a use-case waits for locks in all."""
HARMLESS_IN_A_COMMENT: Final = re.compile(r"[A-Za-z0-9_.:@+/-]{1,160}", re.ASCII)

WAIT = "SELECT pg_advisory_xact_lock(%s)"
WAIT_SHARED = "SELECT pg_advisory_xact_lock_shared(%s)"
# unnest gives the numbers in the order of the array, and the locks are taken row by row.
WAIT_MANY = "SELECT pg_advisory_xact_lock(number) FROM unnest(%s::bigint[]) AS number"
WAIT_MANY_SHARED = "SELECT pg_advisory_xact_lock_shared(number) FROM unnest(%s::bigint[]) AS number"
ONE_BY_ONE = 8
"""Up to so many locks are taken one statement each, which names what is waited for; more of them in one round trip."""
TRY = "SELECT pg_try_advisory_xact_lock(%s)"
# Never longer than it is: a database may have been given less than LOCK_TIMEOUT_MS.
SHORTEN = """
SELECT set_config('lock_timeout', %s, true)
WHERE current_setting('lock_timeout')::interval = '0' OR current_setting('lock_timeout')::interval > %s::interval
"""
BOUND_STATEMENT = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
TRY_SHARED = "SELECT pg_try_advisory_xact_lock_shared(%s)"


_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class Lock:
    """Proof that advisory locks are held in the transaction that is open on this thread's connection."""

    __slots__ = ("_atomic_blocks", "_ended", "_name_set", "_raw_connection", "_savepoints", "names", "shared", "using")

    def __init__(self, names: tuple[str, ...], connection: BaseDatabaseWrapper, *, shared: bool = False) -> None:
        self.names = names
        self._name_set = frozenset(names)
        self.shared = shared
        self.using = connection.alias
        self._ended = False
        self._raw_connection = connection.connection
        self._savepoints = tuple(connection.savepoint_ids)
        self._atomic_blocks = tuple(connection.atomic_blocks)

    def __repr__(self) -> str:
        return f"<{'shared ' if self.shared else ''}Lock {', '.join(self.names)}{' (ended)' if self._ended else ''}>"

    def ensure_held(self, *names: str, shared_is_enough: bool = False) -> None:
        """Pass, or raise LockNotHeld; asks the server nothing.

        A savepoint made by hand with transaction.savepoint() and rolled back is not noticed here; use nested atomic().

        Args:
            names: readable ones that must be among those locked; none for whichever.
            shared_is_enough: a shared lock, which others may hold at the same time, will do.

        Raises:
            LockNotHeld: the block of the lock has ended, or the transaction or savepoint in which it was taken has, or
                this is another thread, or the lock is on other names, or only shared.
        """
        connection = connections[self.using]
        if self._ended:
            raise LockNotHeld(names=self.names, why="its block has ended")
        if connection.connection is not self._raw_connection or self._raw_connection is None:
            raise LockNotHeld(names=self.names, why="it was taken on another connection or thread")
        if (
            not connection.in_atomic_block
            or tuple(connection.savepoint_ids[: len(self._savepoints)]) != self._savepoints
            or tuple(connection.atomic_blocks[: len(self._atomic_blocks)]) != self._atomic_blocks
        ):
            raise LockNotHeld(names=self.names, why="the transaction or savepoint in which it was taken has ended")
        for name in names:
            if name not in self._name_set:
                raise LockNotHeld(names=self.names, why="it is on other names", name=name)
        if self.shared and not shared_is_enough:
            raise LockNotHeld(names=self.names, why="it is only shared")

    def _end(self) -> None:
        self._ended = True


@contextmanager
def advisory_lock(*names: str, shared: bool = False, using: str = "default") -> Iterator[Lock]:
    """Hold the locks until the transaction ends; wait for each, in the order of the numbers, as long as lock_timeout says.

    Whoever holds a lock shared and then asks for it exclusively can deadlock with another who does the same.

    Args:
        names: readable, at least one; a name may be taken again by who holds it.
        shared: beside others who hold it shared.

    Raises:
        NotInTransaction: no atomic() is open on this connection; nothing was sent.
        HolderBusy: lock_timeout passed; the transaction is aborted, nothing it wrote remains.
    """
    connection = _in_transaction(using)
    sql = WAIT_SHARED if shared else WAIT
    in_order = _in_order(names)
    if len(in_order) > ONE_BY_ONE:
        with waiting_for_many(f"{len(in_order)} locks", using), connection.cursor() as cursor:
            cursor.execute(WAIT_MANY_SHARED if shared else WAIT_MANY, ([number for number, _ in in_order],))
    else:
        for number, name in in_order:
            with waiting_for(name), connection.cursor() as cursor:
                cursor.execute(sql + _comment(name), (number,))
            keep_to_deadline(using)
    with holding(*names, shared=shared, using=using) as lock:
        yield lock


@contextmanager
def try_advisory_lock(*names: str, shared: bool = False, using: str = "default") -> Iterator[Lock]:
    """Hold the locks until the transaction ends, or raise LockBusy at once and hold none of them.

    Args: as `advisory_lock`.

    Raises:
        NotInTransaction: no atomic() is open on this connection; nothing was sent.
        LockBusy: somebody else holds one; the transaction can go on.
    """
    connection = _in_transaction(using)
    sql = TRY_SHARED if shared else TRY
    in_order = _in_order(names)
    # What was got before one was refused is given back with a savepoint; a single lock needs none.
    with transaction.atomic(using=using) if len(in_order) > 1 else nullcontext():
        for number, name in in_order:
            with connection.cursor() as cursor:
                cursor.execute(sql + _comment(name), (number,))
                if cursor.fetchone() != (True,):
                    raise LockBusy(key=name)
    with holding(*names, shared=shared, using=using) as lock:
        yield lock


@contextmanager
def holding(*names: str, shared: bool = False, using: str = "default") -> Iterator[Lock]:
    """Vouch that the caller has just taken these locks in this transaction; takes none itself.

    For `ledger.journal` alone, which takes the lock and reads in one call of a server function: everybody else would vouch for
    what nobody knows.
    """
    lock = Lock(names, _in_transaction(using), shared=shared)
    try:
        yield lock
    finally:
        lock._end()


@contextmanager
def waiting_for(name: str) -> Iterator[None]:
    """Turn the end of lock_timeout, while a statement waits for this lock, into HolderBusy."""
    try:
        yield
    except OperationalError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise HolderBusy(key=name) from error
        raise


# Note [One deadline for all waits]
#     lock_timeout bounds each wait by itself: a request that meets three locks, or a lock and a row that somebody without it has
#     inserted and not committed, would wait that long for each. So a use-case has WAIT_SECONDS for all its waits. What is left is
#     looked at where a wait has ended, and the server is told only when it is less than lock_timeout: a request that waited for
#     nothing sends nothing more.


@contextmanager
def waits_bounded(seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """For the block, all waits for locks on this thread take at most so long together; an outer bound stays. See the note."""
    token = _deadline.set(time.monotonic() + seconds) if _deadline.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _deadline.reset(token)


def keep_to_deadline(using: str = "default") -> None:
    """Let later waits of this transaction take no longer than `waits_bounded` has left; sends nothing while that is plenty."""
    left_ms = _left_ms()
    if left_ms is not None and left_ms < LOCK_TIMEOUT_MS:
        with connections[using].cursor() as cursor:
            cursor.execute(SHORTEN, [f"{left_ms}ms"] * 2)


@contextmanager
def waiting_for_many(name: str, using: str = "default") -> Iterator[None]:
    """As `waiting_for`, for one statement that waits for many locks: lock_timeout bounds each wait, this all of them together."""
    left_ms = _left_ms()
    with waiting_for(name):
        if left_ms is None:
            yield
            return
        with connections[using].cursor() as cursor:
            cursor.execute(BOUND_STATEMENT, [f"{left_ms}ms"])
            (before, _) = cursor.fetchone()
            try:
                yield
            except OperationalError as error:
                if sqlstate(error) == QUERY_CANCELED:
                    raise HolderBusy(key=name) from error
                raise
            cursor.execute(BOUND_STATEMENT, [before])
    keep_to_deadline(using)


def _left_ms() -> int | None:
    deadline = _deadline.get()
    return None if deadline is None else max(1, int((deadline - time.monotonic()) * 1000))


def holder_lock(holder_id: str, *more_holder_ids: str, using: str = "default") -> AbstractContextManager[Lock]:
    """Hold the locks of these holders, as `advisory_lock` does."""
    return advisory_lock(*map(holder_key, (holder_id, *more_holder_ids)), using=using)


def holder_key(holder_id: str) -> str:
    """The name of the lock under which everything of a holder is decided."""
    return lock_names.HOLDER(holder_id)


def lock_number(name: str) -> int:
    """The number that the server locks for the name, by the scheme in settings.LEDGER.

    Raises:
        ImproperlyConfigured: the settings name no such scheme, or a namespace that it does not take.
    """
    return _numbering()(name)


def _numbering() -> lock_keys.Numbering:
    scheme = settings.LEDGER["LOCK_KEY_SCHEME"]
    try:
        return lock_keys.numbering(scheme, settings.LEDGER["LOCK_NAMESPACE"] if scheme == lock_keys.NAMESPACED else None)
    except ValueError as error:
        raise ImproperlyConfigured(f"settings.LEDGER: {error}") from error


def _in_transaction(using: str) -> BaseDatabaseWrapper:
    connection = connections[using]
    if not connection.in_atomic_block:
        raise NotInTransaction(using=using)
    return connection


def _in_order(names: Sequence[str]) -> list[tuple[int, str]]:
    """One name for each number, by number: by name, two names that share a number would be taken in two orders."""
    if not names:
        raise ValueError("a lock needs a name")
    numbering = _numbering()
    return sorted({numbering(name): name for name in names}.items())


def _comment(name: str) -> str:
    """The name beside the number, so that pg_stat_activity shows what is waited for (see `manage.py locks`)."""
    return f" /* {name} */" if HARMLESS_IN_A_COMMENT.fullmatch(name) else ""


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error, as Django wraps it or as the driver raises it; the text is in the server's language."""
    return getattr(error.__cause__, "sqlstate", None) or getattr(error, "sqlstate", None)
