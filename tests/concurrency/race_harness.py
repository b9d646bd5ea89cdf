"""The race harness: the services race with themselves, with a broken lock or a sound one, with constraints or without.

A race schema comes before `public` in the search path of the sessions that use it. It may contain a `ledger_open` with a broken
lock, or tables without constraints, or neither. The services run unchanged, and the product has no switch for tests.

Two requests meet in `race`. The first stops after its INSERT and before its COMMIT. The second starts, until it waits in pg_locks
or has ended. Then the first continues. So the outcome does not depend on timing.

On a cluster the two are on different nodes. A lock is broken where it is taken: on the holder's node.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from django.db import DatabaseError, connection, connections

from ledger.database.locks import Lock, sqlstate, waits_bounded
from ledger.rules.requests import Request
from ledger.services import execute
from ledger.services.group_commit import ResultOrError
from tests import nodes
from tests.concurrency.meetings import HANGS_S
from tests.nodes import Session

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

ON_A_CLUSTER = {
    NO_LOCK: [
        ("PERFORM pg_advisory_xact_lock(number);", ""),
        ("is_locked := pg_try_advisory_xact_lock(number);", ""),
    ]
}
"""The same of `ledger_open_at`. The other ways depend on how one server takes a snapshot for its own statement."""

PATH = "SET search_path TO 'public', 'pg_temp'"
COPY_OF_ENTRIES = "CREATE TABLE {0}.ledger_entry (LIKE public.ledger_entry)"
# What entries count is still counted, by a trigger that refuses nothing.
COUNT_IN_COPY = """
CREATE TABLE {0}.ledger_budget_counter (LIKE public.ledger_budget_counter);
CREATE FUNCTION {0}.count_entry() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = {0}, public AS $$
DECLARE
    counted json;
BEGIN
    FOR counted IN SELECT json_array_elements(NEW.counts) LOOP
        UPDATE ledger_budget_counter SET used = used + (counted ->> 3)::bigint
        WHERE holder_id = NEW.holder_id AND setting = (counted ->> 0)::bigint AND start_us = (counted ->> 2)::bigint
            AND subject = counted ->> 1;
        IF NOT FOUND THEN
            INSERT INTO ledger_budget_counter (holder_id, credit_type, setting, subject, start_us, used, sequence)
            VALUES (
                NEW.holder_id, NEW.credit_type, (counted ->> 0)::bigint, counted ->> 1, (counted ->> 2)::bigint,
                (counted ->> 3)::bigint, NEW.sequence
            );
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER count_entry AFTER INSERT ON {0}.ledger_entry FOR EACH ROW EXECUTE FUNCTION {0}.count_entry();
GRANT SELECT ON {0}.ledger_budget_counter TO PUBLIC;
GRANT USAGE ON SCHEMA {0} TO PUBLIC;
"""
DISTRIBUTE_COPY = "SELECT create_distributed_table('{0}.ledger_entry', 'holder_id', colocate_with => 'public.ledger_entry')"
DELEGATE = """
SELECT create_distributed_function(
    '{0}.ledger_open_at(text, bigint, boolean, text, text, text, boolean)', 'home', 'public.ledger_entry', true
)
"""

SOUND = """
SELECT bool_and(sequence = nth AND balance = total AND digest = computed)
FROM (
    SELECT
        e.sequence,
        e.balance,
        e.digest,
        ledger_entry_digest(
            COALESCE(lag(e.digest) OVER numbered, decode(repeat('00', 32), 'hex')), ROW(e.*)::public.ledger_entry
        ) AS computed,
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
        """Create a function in this schema that equals the product's, except for its lock."""
        if nodes.cluster:
            self._take_lock_in_this_schema(ON_A_CLUSTER[how])
        else:
            self.owner.execute(self._changed("ledger_open", BROKEN[how]))

    def drop_constraints(self) -> None:
        """Create an empty ledger_entry in this schema, without keys, checks and triggers."""
        self.owner.execute(COPY_OF_ENTRIES.format(self.name))
        if nodes.cluster:
            self.owner.execute(DISTRIBUTE_COPY.format(self.name))
            if not self._has_function("ledger_open_at"):
                self._take_lock_in_this_schema([])
            return
        self.owner.execute(COUNT_IN_COPY.format(self.name))
        self.owner.execute(self._changed("ledger_budget_counters", []))
        if not self._has_function("ledger_open"):
            self.owner.execute(self._changed("ledger_open", []))

    def _take_lock_in_this_schema(self, changes: list[tuple[str, str]]) -> None:
        self.owner.execute(self._changed("ledger_open_at", changes))
        self.owner.execute(DELEGATE.format(self.name))

    def _changed(self, function: str, changes: list[tuple[str, str]]) -> str:
        """Return the statement that creates the product's function in this schema, with these changes."""
        row = self.owner.execute("SELECT pg_get_functiondef(%s::regproc)", [f"public.{function}"]).fetchone()
        assert row is not None
        definition = row[0].replace("FUNCTION public.", f"FUNCTION {self.name}.")
        # The product's function looks for tables in the product's schema only.
        for part, instead in [(PATH, PATH.replace("'public'", f"'{self.name}', 'public'")), *changes]:
            assert definition.count(part) == 1, f"{function} is written in another way: {part!r} is not in it once"
            definition = definition.replace(part, instead)
        return str(definition)

    def _has_function(self, name: str) -> bool:
        row = self.owner.execute("SELECT to_regproc(%s) IS NOT NULL", [f"{self.name}.{name}"]).fetchone()
        return row == (True,)

    def use(self) -> None:
        """Let this thread's connection use this schema, and wait for locks as long as no test lasts."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {self.name}, public; SET lock_timeout = '{HANGS_S}s'")

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
        """Run both at the same time, as the module's docstring says, each in a thread with a connection to the next node.

        Returns: for each its return value, or the exception that it raised.
        """
        has_inserted, may_commit = threading.Event(), threading.Event()
        sessions: Future[int] = Future()

        def pause() -> None:
            has_inserted.set()
            assert may_commit.wait(HANGS_S)

        def one(work: Work, after_insert: Work | None, begin: Work) -> Any:
            try:
                self.use()
                begin()
                # What ends a wait is the other, not the clock, however busy the machine is.
                with waits_bounded(HANGS_S), self.count_violations(after_insert):
                    return work()
            except Exception as error:
                return error
            finally:
                connections.close_all()

        with self.execution(), ThreadPoolExecutor(2) as pool:
            try:
                leading = pool.submit(one, first, pause, lambda: None)
                assert has_inserted.wait(HANGS_S)
                following = pool.submit(one, second, None, lambda: sessions.set_result(nodes.session_id()))
                session = sessions.result(HANGS_S)
                while not following.done() and not nodes.is_waiting(self.observer, session):
                    pass
            finally:
                may_commit.set()
            return leading.result(HANGS_S), following.result(HANGS_S)

    @contextmanager
    def execution(self) -> Iterator[None]:
        """Within the block, execute requests as `is_grouped` says."""
        if not self.is_grouped:
            yield
            return
        # With a broken lock the requests wait for each other's rows; the test decides how long.
        patient = mock.patch.object(execute, "GROUP_LOCK_TIMEOUT_MS", 1_000 * HANGS_S)
        with patient, mock.patch.object(execute, "execute_alone", _execute_as_group):
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


def _execute_as_group(request: Request) -> ResultOrError:
    """Execute the request as group commit does: at once, or after waiting for a lock that another holds.

    Who waited for one of two holders may find the other still locked: the locks of a transaction that ends are released one
    after the other. Then it waits again.
    """
    (outcome,) = execute.execute_group([request])
    while outcome is None:
        (outcome,) = execute.execute_after_waiting(request.holder_id, lambda: [request], seconds=30)
    return outcome


@contextmanager
def no_lock(*names: str, **options: Any) -> Iterator[Lock]:
    """Return the proof of a lock without taking the lock."""
    lock = Lock(names, connection)
    yield lock
    lock._end()
