"""The race harness: the services race with themselves, with a broken lock or a sound one, with constraints or without.

A race schema comes before `public` in the search path of the sessions that use it. It may contain a `ledger_open` with a broken
lock, or tables without constraints, or neither. The services run unchanged, and the product has no switch for tests.

Two requests meet in `race`. The first stops after its INSERT and before its COMMIT. The second starts, until it waits in pg_locks
or has ended. Then the first continues. So the outcome does not depend on timing.
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
from ledger.rules import Request
from ledger.services import execute
from ledger.services.group_commit import ResultOrError

Session = psycopg.Connection[Any]
Work = Callable[[], Any]

UNIQUE_VIOLATION = "23505"

LOCK = "is_locked := ledger_lock(number, holder, wait);"
LOOK_FOR_KEY = "PERFORM\n        FROM ledger_entry e\n"

NO_LOCK = "no lock"
BROKEN = {
    NO_LOCK: [(LOCK, "is_locked := true;")],
    "lock and read in one statement": [
        (LOCK, "is_locked := true;"),
        (LOOK_FOR_KEY, LOOK_FOR_KEY.replace("FROM", "FROM (SELECT ledger_lock(number, holder, wait)) AS locked,")),
    ],
    "stable function": [(" LANGUAGE plpgsql\n", " LANGUAGE plpgsql STABLE\n")],
}
"""Ways to break the lock: the texts of `ledger_open` to replace, and their replacements."""

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
) AS chain
"""


@dataclass
class RaceSchema:
    """A schema that comes before `public` for the sessions that use it, and is dropped after the test."""

    name: str
    owner: Session
    observer: Session
    unique_violations: list[str] = field(default_factory=list)
    is_grouped: bool = True
    """True: each request is executed by group commit, as a group of one. False: each request has its own transaction."""

    def break_lock(self, how: str) -> None:
        """Create a `ledger_open` in this schema that equals the product's, except for its lock."""
        row = self.owner.execute("SELECT pg_get_functiondef('public.ledger_open'::regproc)").fetchone()
        assert row is not None
        definition = row[0].replace("FUNCTION public.", f"FUNCTION {self.name}.")
        for part, instead in BROKEN[how]:
            assert definition.count(part) == 1, f"ledger_open is written in another way: {part!r} is not in it once"
            definition = definition.replace(part, instead)
        self.owner.execute(definition)

    def drop_constraints(self) -> None:
        """Create an empty ledger_entry in this schema, without keys, checks and triggers."""
        self.owner.execute(f"CREATE TABLE {self.name}.ledger_entry (LIKE public.ledger_entry)")

    def use(self) -> None:
        """Let this thread's connection use this schema."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {self.name}, public")

    @contextmanager
    def count_violations(self, after_insert: Work | None = None) -> Iterator[None]:
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
        """Run both at the same time, as the module's docstring says, each in a thread with a separate connection.

        Returns: for each its return value, or the exception that it raised.
        """
        has_inserted, may_commit = threading.Event(), threading.Event()
        pids: Future[int] = Future()

        def pause() -> None:
            has_inserted.set()
            assert may_commit.wait(30)

        def one(work: Work, after_insert: Work | None, begin: Work) -> Any:
            try:
                self.use()
                begin()
                with self.count_violations(after_insert):
                    return work()
            except Exception as error:
                return error
            finally:
                connections.close_all()

        with self.execution(), ThreadPoolExecutor(2) as pool:
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
    def execution(self) -> Iterator[None]:
        """Within the block, execute requests as `is_grouped` says."""
        if not self.is_grouped:
            yield
            return
        # With a broken lock the requests wait for each other's rows; the test decides how long.
        patient = mock.patch.object(execute, "GROUP_LOCK_TIMEOUT_MS", 30_000)
        with patient, mock.patch.object(execute, "execute_alone", _as_a_group):
            yield

    # The outcome

    def entries(self, holder_id: str) -> list[tuple[int, str, int, int]]:
        """Return (sequence, kind, amount, balance) of the holder's entries, without refusals."""
        columns = "sequence, kind, amount, balance"
        return self._rows(
            f"SELECT {columns} FROM ledger_entry WHERE holder_id = %s AND kind <> 'refusal' ORDER BY 1, 2", holder_id
        )

    def sum_of_amounts(self, holder_id: str) -> int:
        """Return the sum of the holder's amounts, which may differ from the stored balance."""
        return int(self._rows("SELECT sum(amount) FROM ledger_entry WHERE holder_id = %s", holder_id)[0][0])

    def refusals(self, holder_id: str) -> list[tuple[str, str]]:
        """Return (idempotency key, code) of the holder's refusals."""
        return self._rows(
            "SELECT idempotency_key, refusal ->> 'code' FROM ledger_entry WHERE holder_id = %s AND kind = 'refusal' ORDER BY 1",
            holder_id,
        )

    def is_sound(self, holder_id: str) -> bool:
        """Return whether the numbers have no gaps, each balance follows, and the digests form a chain."""
        return bool(self._rows(SOUND, holder_id)[0][0])

    def _rows(self, sql: str, holder_id: str) -> list[Any]:
        return self.observer.execute(sql, [holder_id]).fetchall()


def _as_a_group(request: Request) -> ResultOrError:
    (outcome,) = execute.execute_group([request])
    if outcome is None:
        (outcome,) = execute.execute_after_waiting(request.holder_id, lambda: [request], seconds=30)
    return outcome


def backend_pid() -> int:
    """Return the id of the server process of this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def is_waiting(observer: Session, pid: int) -> bool:
    """Return whether the server process waits for a lock now."""
    row = observer.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
    return bool(row and row[0])


def waiting_for_advisory_lock(observer: Session, number: int) -> int:
    """Return how many sessions wait for the advisory lock of this number now."""
    row = observer.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND classid::bigint << 32 | objid::bigint = %s AND objsubid = 1",
        [number],
    ).fetchone()
    assert row is not None
    return int(row[0])
