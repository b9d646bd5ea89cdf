"""Transaction-level advisory locks on readable names. This module knows nothing of ledgers.

    with transaction.atomic(durable=True), advisory_lock(lock_names.HOLDER("42")) as lock:
        ...   # functions that read and write under the lock take `lock`: the argument is the proof that the lock is held

The server frees a lock when the transaction ends, when the savepoint in which it was taken is rolled back, or when the client
dies. Leaving the `with` block frees nothing; it only ends the proof. Session-level locks are never used: behind PgBouncer in
transaction mode they would stay on a server connection that the pooler then gives to another client.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger import conf
from ledger.database import lock_keys, lock_names
from ledger.database.cluster import on_cluster
from ledger.errors import HolderBusy, LockBusy, LockNotHeld, LocksOutOfOrder, NotInTransaction

LOCK_NOT_AVAILABLE: Final = "55P03"
QUERY_CANCELED: Final = "57014"
LOCK_TIMEOUT_MS: Final = 2_000
"""The `lock_timeout` that `manage.py prepare_database` sets on the database."""
WAIT_SECONDS: Final = 2.5
"""How long a use-case waits for all its locks together."""
HARMLESS_IN_A_COMMENT: Final = re.compile(r"[A-Za-z0-9_.:@+/-]{1,160}", re.ASCII)

WAIT = "SELECT pg_advisory_xact_lock(%s)"
# As `ledger_open` locks a holder: if the tables are distributed, the lock is taken where the rows of the holder are.
WAIT_FOR_HOLDER = "SELECT ledger_lock(%s, %s, true)"
WAIT_SHARED = "SELECT pg_advisory_xact_lock_shared(%s)"
# unnest gives the numbers in the order of the array, and the locks are taken row by row.
WAIT_MANY = "SELECT pg_advisory_xact_lock(number) FROM unnest(%s::bigint[]) AS number"
WAIT_MANY_SHARED = "SELECT pg_advisory_xact_lock_shared(number) FROM unnest(%s::bigint[]) AS number"
ONE_BY_ONE = 8
"""Up to this many locks are taken by one statement each, whose comment names the lock; more are taken in one round trip."""
TRY = "SELECT pg_try_advisory_xact_lock(%s)"
# Only ever shortens lock_timeout: an administrator may have set less than LOCK_TIMEOUT_MS on the database. By SET LOCAL, not by
# set_config(): a cluster passes only the former on to the nodes of the transaction, where the waits are.
SHORTEN = """
DO $$
BEGIN
    IF current_setting('lock_timeout')::interval = '0' OR current_setting('lock_timeout')::interval > '{milliseconds}ms' THEN
        SET LOCAL lock_timeout = {milliseconds};
    END IF;
END $$
"""
BOUND_STATEMENT = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
TRY_SHARED = "SELECT pg_try_advisory_xact_lock_shared(%s)"
IN_ORDER: Final = "make the calls in this order; of several holders, lock all before the first: holder_lock(*holder_ids)"


_previewing: ContextVar[bool] = ContextVar("previewing", default=False)
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class Lock:
    """The proof that advisory locks are held in the transaction that is open on this thread's connection."""

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
        """Return, or raise LockNotHeld; sends nothing to the server.

        Use nested atomic() for savepoints: this check does not notice the rollback of a savepoint that was made by hand with
        transaction.savepoint().

        Args:
            names: readable names that must be among the locked names; without names, every lock passes.
            shared_is_enough: True also accepts a shared lock, which other sessions may hold at the same time.

        Raises:
            LockNotHeld: the lock's block, or the transaction or savepoint in which it was taken, has ended; or this is another
                thread; or the lock is on other names, or only shared.
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
    """Take the locks in the order of their numbers and hold them until the transaction ends; wait up to lock_timeout for each.

    Two sessions that hold the same lock shared and then both ask for it exclusively deadlock.

    Args:
        names: readable, at least one. A session may take a lock that it already holds.
        shared: True takes shared locks, which several sessions can hold at the same time.

    Raises:
        NotInTransaction: no atomic() is open on this connection; nothing was sent.
        HolderBusy: lock_timeout passed; the transaction is aborted, and nothing it wrote remains.
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
    """Take the locks and hold them until the transaction ends, or raise LockBusy at once and hold no lock.

    Args: as for `advisory_lock`.

    Raises:
        NotInTransaction: no atomic() is open on this connection; nothing was sent.
        LockBusy: another session holds one of the locks; the transaction can continue.
    """
    connection = _in_transaction(using)
    sql = TRY_SHARED if shared else TRY
    in_order = _in_order(names)
    # If one lock is busy, rolling back the savepoint frees the locks taken before it. A single lock needs no savepoint.
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
    """Yield the proof of locks that the caller has just taken in this transaction; takes no lock.

    Only `ledger.journal` may use it: there a server function takes the lock. Nothing checks that the locks are really held.
    """
    lock = Lock(names, _in_transaction(using), shared=shared)
    try:
        yield lock
    finally:
        lock._end()


@contextmanager
def waiting_for(name: str) -> Iterator[None]:
    """Raise HolderBusy instead of the database's error when lock_timeout ends a statement that waits for this lock."""
    try:
        yield
    except OperationalError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise HolderBusy(key=name) from error
        raise


# Note [One deadline for all waits]
#     lock_timeout bounds each wait by itself. A request may wait for three locks, or for a lock and for an uncommitted row of
#     another session, and would wait that long for each. So a use-case has WAIT_SECONDS for all its waits together. After each
#     wait the remaining time is computed, and lock_timeout is shortened only if less remains: a request that never waited sends
#     no further statement.


@on_cluster("queries.wait_seconds")
def wait_seconds(accounts: int) -> float:
    """Return how long a use-case may wait that opens this many accounts by one statement."""
    return WAIT_SECONDS


@contextmanager
def waits_bounded(seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Bound all waits for locks on this thread, within the block, to this time together. An outer bound stays in force.

    See Note [One deadline for all waits].
    """
    token = _deadline.set(time.monotonic() + seconds) if _deadline.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _deadline.reset(token)


def keep_to_deadline(using: str = "default") -> None:
    """Shorten lock_timeout for the rest of this transaction to the remaining time of `waits_bounded`, if that is shorter."""
    left_ms = _left_ms()
    if left_ms is not None and left_ms < LOCK_TIMEOUT_MS:
        wait_no_longer_than(left_ms, using)


def wait_no_longer_than(milliseconds: int, using: str = DEFAULT_DB_ALIAS) -> None:
    """Shorten lock_timeout for the rest of this transaction, if it is longer or off."""
    with connections[using].cursor() as cursor:
        cursor.execute(SHORTEN.format(milliseconds=milliseconds))


def is_shortened() -> bool:
    """Return whether so little of `waits_bounded` remains that `keep_to_deadline` may have shortened lock_timeout."""
    left_ms = _left_ms()
    return left_ms is not None and left_ms < LOCK_TIMEOUT_MS


@contextmanager
def waiting_for_many(name: str, using: str = "default") -> Iterator[None]:
    """As `waiting_for`, for one statement that takes many locks: lock_timeout bounds each wait, this bounds their sum."""
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


@contextmanager
def previewing() -> Iterator[None]:
    """Take no holder's lock within the block; `holder_lock` yields its proof all the same. Only for `ledger.previews`."""
    token = _previewing.set(True)
    try:
        yield
    finally:
        _previewing.reset(token)


@contextmanager
def holder_lock(holder_id: str, *more_holder_ids: str, using: str = "default") -> Iterator[Lock]:
    """Hold the locks of these holders until the transaction ends; wait for each, in the order of the numbers.

    In a preview no lock is taken, because nothing that is decided there is stored.

    Raises: as `advisory_lock`; LocksOutOfOrder: the transaction has a lock that comes after one of these; nothing was sent.
    """
    connection = _in_transaction(using)
    holders = {holder_key(each): each for each in (holder_id, *more_holder_ids)}
    if _previewing.get():
        with holding(*holders, using=using) as lock:
            yield lock
        return
    ensure_order(holders, using)
    # Locks of two holders may share a number. Both are taken: where the tables are distributed, they can be on two nodes.
    for number, name in sorted((lock_number(name), name) for name in holders):
        with waiting_for(name), connection.cursor() as cursor:
            cursor.execute(WAIT_FOR_HOLDER + _comment(name), (number, holders[name]))
        keep_to_deadline(using)
    remember_locked(holders, using)
    with holding(*holders, using=using) as lock:
        yield lock


# Note [Which locks a transaction has taken]
#     A caller's transaction may make several writes, one call after the other. Two such transactions deadlock if they take the
#     locks in two orders. So each call looks for what the transaction has locked before. The server would have to search its
#     whole table of locks for that, so it is remembered here: among the functions that Django runs on COMMIT. Of these, Django
#     forgets those of a savepoint that is rolled back, and keeps those of a released one, just as the server does with locks.
#     Only an error depends on it. No call takes a lock for held because it is remembered.


@dataclass(frozen=True, slots=True)
class _Locked:
    """The locks that a transaction has taken so far, and the last place among them in the order of locks."""

    names: frozenset[str]
    last: tuple[int, int, str]

    def __call__(self) -> None:
        """Do nothing on COMMIT."""


def remember_locked(names: Iterable[str], using: str = DEFAULT_DB_ALIAS) -> None:
    """Remember, until this transaction or savepoint is rolled back, that it has these locks."""
    taken, before = frozenset(names), _locked(using)
    if taken:
        last = max(map(_place, taken))
        known = before or _Locked(taken, last)
        transaction.on_commit(_Locked(taken | known.names, max(last, known.last)), using=using)  # noqa: TID251 - a mark, which does nothing


def ensure_order(names: Iterable[str], using: str = DEFAULT_DB_ALIAS) -> None:
    """Return, or raise LocksOutOfOrder if this transaction has a lock that comes after one of these; sends nothing."""
    before = _locked(using)
    added = frozenset(names) - (before.names if before else frozenset())
    if before and added and min(map(_place, added)) < before.last:
        raise LocksOutOfOrder(locks=sorted(added | before.names, key=_place), what_to_do=IN_ORDER)


def _locked(using: str) -> _Locked | None:
    connection = connections[using]
    # A TestCase runs its test in a transaction. In it a savepoint stands for the test's own transaction.
    depth = next((depth for depth, block in enumerate(connection.atomic_blocks) if not block._from_testcase), None)  # type: ignore[attr-defined]
    if depth is None:
        return None
    outermost = {connection.savepoint_ids[depth - 1]} if depth else set()
    latest_first = ((outermost <= savepoints, function) for savepoints, function, *_ in reversed(connection.run_on_commit))
    return next((function for is_inside, function in latest_first if is_inside and isinstance(function, _Locked)), None)


def _place(name: str) -> tuple[int, int, str]:
    return lock_names.rank_of(name), lock_number(name), name


def holder_key(holder_id: str) -> str:
    """Return the name of the lock under which everything about a holder's credits is decided."""
    return lock_names.HOLDER(holder_id)


def lock_number(name: str) -> int:
    """Return the number that the server locks for the name, by the scheme in settings.LEDGER.

    Raises:
        ImproperlyConfigured: the settings name an unknown scheme, or a namespace that the scheme does not take.
    """
    return numbering()(name)


def numbering() -> lock_keys.Numbering:
    """Return the function `lock_number`, for many names under the same settings. Raises: as `lock_number`."""
    scheme = conf.LOCK_KEY_SCHEME.value
    try:
        return lock_keys.numbering(scheme, conf.LOCK_NAMESPACE.value if scheme == lock_keys.NAMESPACED else None)
    except ValueError as error:
        raise ImproperlyConfigured(f"settings.LEDGER: {error}") from error


def _in_transaction(using: str) -> BaseDatabaseWrapper:
    connection = connections[using]
    if not connection.in_atomic_block:
        raise NotInTransaction(using=using)
    return connection


def _in_order(names: Sequence[str]) -> list[tuple[int, str]]:
    """Return one name per number, sorted by number. By name, two names with one number could be taken in two orders."""
    if not names:
        raise ValueError("a lock needs a name")
    number_of = numbering()
    return sorted({number_of(name): name for name in names}.items())


def _comment(name: str) -> str:
    """Return a SQL comment with the name, so that pg_stat_activity shows which lock a session waits for (`manage.py locks`)."""
    return f" /* {name} */" if HARMLESS_IN_A_COMMENT.fullmatch(name) else ""


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of a database error, raised by Django or by the driver. Its message is no help: it is translated."""
    return getattr(error.__cause__, "sqlstate", None) or getattr(error, "sqlstate", None)
