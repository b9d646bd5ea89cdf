"""Rooms in which the ledger's own code races with itself: with its lock or with a broken one, with its constraints or without.

A room is a schema that stands before `public` in the search path of the sessions that enter it. In it stands a `ledger_open`
that locks otherwise, or tables without constraints, or neither. The services run unchanged, and the product has no switch.

Two contenders meet in `race`: the first is stopped after its INSERT and before its COMMIT; the second starts, and is seen to wait
in pg_locks or to come to its end; then the first goes on. So every outcome is certain and none is luck.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import psycopg
from django.db import DatabaseError, connection, connections

from ledger.database.locks import sqlstate
from ledger.errors import LedgerError
from ledger.journal import Recorded
from ledger.rules import Request
from ledger.services import answering

Session = psycopg.Connection[Any]
Work = Callable[[], Any]

UNIQUE_VIOLATION = "23505"

TAKE_LOCK = "    PERFORM pg_advisory_xact_lock(lock_number);\n"
TRY_LOCKS = "pg_try_advisory_xact_lock(number)"
FROM_ONE_ROW = "FROM (VALUES (1)) AS always_one_row"

NO_LOCK = "no lock"
BROKEN = {
    NO_LOCK: {"ledger_open": [(TAKE_LOCK, "")], "ledger_open_many": [(TRY_LOCKS, "true")]},
    "lock and read in one statement": {
        "ledger_open": [
            (TAKE_LOCK, ""),
            (FROM_ONE_ROW, "FROM (SELECT pg_advisory_xact_lock(lock_number)) AS always_one_row"),
        ]
    },
    "stable function": {"ledger_open": [(" LANGUAGE plpgsql\n", " LANGUAGE plpgsql STABLE\n")]},
}
"""What is replaced in which function to break it."""

SOUND = """
SELECT bool_and(sequence = nth AND balance = total AND digest = computed)
FROM (
    SELECT
        e.sequence,
        e.balance,
        e.digest,
        ledger_entry_digest(COALESCE(lag(e.digest) OVER numbered, decode(repeat('00', 32), 'hex')), e) AS computed,
        row_number() OVER numbered AS nth,
        sum(e.amount) OVER numbered AS total
    FROM public.ledger_entry e
    WHERE e.holder_id = %s
    WINDOW numbered AS (PARTITION BY e.credit_type ORDER BY e.sequence)
) AS walk
"""


@dataclass
class Room:
    """A schema of the test's own, before `public`."""

    name: str
    owner: Session
    observer: Session
    unique_violations: list[str] = field(default_factory=list)
    is_grouped: bool = True
    """Requests are executed as the committer and its waiters do, each as a group of one in its own thread; else by themselves."""

    def break_lock(self, how: str) -> None:
        """Put functions here that are the product's own but for the lock."""
        for function, replaced in BROKEN[how].items():
            row = self.owner.execute(f"SELECT pg_get_functiondef('public.{function}'::regproc)").fetchone()
            assert row is not None
            definition = row[0].replace("FUNCTION public.", f"FUNCTION {self.name}.")
            for part, instead in replaced:
                assert definition.count(part) == 1, f"{function} is written in another way: {part!r} is not in it once"
                definition = definition.replace(part, instead)
            self.owner.execute(definition)

    def drop_constraints(self) -> None:
        """Put the ledger's tables here, empty and without keys, checks and triggers."""
        self.owner.execute(f"CREATE TABLE {self.name}.ledger_entry (LIKE public.ledger_entry)")

    def enter(self) -> None:
        """Have this thread's connection work here."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {self.name}, public")

    @contextmanager
    def watched(self, after_insert: Work | None = None) -> Iterator[None]:
        """Count unique violations of this thread's statements; call `after_insert` once, after the first INSERT of an entry."""
        remaining = [after_insert] if after_insert else []

        def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            try:
                result = execute(sql, params, many, context)
            except DatabaseError as error:
                if sqlstate(error) == UNIQUE_VIOLATION:
                    self.unique_violations.append(sql)
                raise
            if sql.startswith("INSERT INTO ledger_entry") and remaining:
                remaining.pop()()
            return result

        with connection.execute_wrapper(watch):
            yield

    def race(self, first: Work, second: Work) -> tuple[Any, Any]:
        """Let both meet, as if each were in a process of its own; see above.

        Returns: what each gave back, or the exception that it raised.
        """
        has_inserted, may_commit = threading.Event(), threading.Event()
        pids: Future[int] = Future()

        def pause() -> None:
            has_inserted.set()
            assert may_commit.wait(30)

        def one(work: Work, after_insert: Work | None, begin: Work) -> Any:
            try:
                self.enter()
                begin()
                with self.watched(after_insert):
                    return work()
            except Exception as error:
                return error
            finally:
                connections.close_all()

        with self.executing(), ThreadPoolExecutor(2) as pool:
            try:
                leading = pool.submit(one, first, pause, lambda: None)
                assert has_inserted.wait(30)
                following = pool.submit(one, second, None, lambda: pids.set_result(backend_pid()))
                pid = pids.result(30)
                while not following.done() and not is_waiting(self.observer, pid):
                    pass
            finally:
                may_commit.set()
            return leading.result(30), following.result(30)

    @contextmanager
    def executing(self) -> Iterator[None]:
        """For the block, requests are executed as this room says."""
        if not self.is_grouped:
            yield
            return
        # Where locks are broken on purpose, contenders wait for each other's rows, and the test says for how long.
        patient = mock.patch.object(answering, "COMMITTER_LOCK_TIMEOUT_MS", 30_000)
        with patient, mock.patch.object(answering.WAYS, "alone", _as_a_group):
            yield

    # What came of it

    def entries(self, holder_id: str) -> list[tuple[int, str, int, int]]:
        """(sequence, kind, amount, balance) of the holder's entries, refusals left out."""
        columns = "sequence, kind, amount, balance"
        return self._rows(
            f"SELECT {columns} FROM ledger_entry WHERE holder_id = %s AND kind <> 'refusal' ORDER BY 1, 2", holder_id
        )

    def sum_of_amounts(self, holder_id: str) -> int:
        """What the holder has, whatever the entries say about the balance."""
        return int(self._rows("SELECT sum(amount) FROM ledger_entry WHERE holder_id = %s", holder_id)[0][0])

    def refusals(self, holder_id: str) -> list[tuple[str, str]]:
        """(idempotency key, code) of the holder's refusals."""
        return self._rows(
            "SELECT idempotency_key, refusal ->> 'code' FROM ledger_entry WHERE holder_id = %s AND kind = 'refusal' ORDER BY 1",
            holder_id,
        )

    def is_sound(self, holder_id: str) -> bool:
        """Whether numbers are without gaps, each balance follows, and digests chain and are those of the entries."""
        return bool(self._rows(SOUND, holder_id)[0][0])

    def _rows(self, sql: str, holder_id: str) -> list[Any]:
        return self.observer.execute(sql, [holder_id]).fetchall()


def _as_a_group(request: Request) -> Recorded:
    (outcome,) = answering.WAYS.together([request])
    if outcome is None:
        (outcome,) = answering.WAYS.after_waiting(request.holder_id, lambda: [request], seconds=30)
    if isinstance(outcome, LedgerError):
        raise outcome
    assert outcome is not None
    return outcome


def backend_pid() -> int:
    """The server process behind this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def is_waiting(observer: Session, pid: int) -> bool:
    """Whether the backend waits for a lock now."""
    row = observer.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
    return bool(row and row[0])


def waiting_for_advisory_lock(observer: Session, number: int) -> int:
    """How many sessions wait for the advisory lock of that number now."""
    row = observer.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND classid::bigint << 32 | objid::bigint = %s AND objsubid = 1",
        [number],
    ).fetchone()
    assert row is not None
    return int(row[0])
