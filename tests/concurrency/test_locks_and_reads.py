"""Lock in one statement, read in the next, at READ COMMITTED: every other order overspends.

One credit, two who want it. The first holds the lock and has written, but not committed; the second comes by one of the ways.
It is seen to wait before the first commits, so every outcome here is certain and none is luck.

Source: DESIGN, "Lock, then read, then write".
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction

from ledger.database.locks import advisory_lock, lock_number
from tests.conftest import wait_until_waiting

pytestmark = pytest.mark.one_node("how one server takes snapshots, on a separate table")

Session = psycopg.Connection[Any]
Connect = Callable[..., Session]


@dataclass
class OneCredit:
    """A table with one holder who has one credit, the holder's lock, and the SQL to read the balance."""

    table: str
    name: str
    make_connection: Connect
    sessions: list[Session] = field(default_factory=list)

    def connect(self, **options: Any) -> Session:
        self.sessions.append(self.make_connection(**options))
        return self.sessions[-1]

    @property
    def lock(self) -> str:
        return f"pg_advisory_xact_lock({lock_number(self.name)})"

    @property
    def balance_sql(self) -> str:
        return f"(SELECT sum(amount)::int FROM {self.table})"

    def spend(self, session: Session) -> None:
        session.execute(f"INSERT INTO {self.table} SELECT max(sequence) + 1, -1 FROM {self.table}")

    def balance(self) -> int:
        row = self.connect(autocommit=True).execute(f"SELECT {self.balance_sql}").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def one_credit(committed_db: None, raw_connection: Connect) -> Iterator[OneCredit]:
    """A table with one credit, and a lock for it."""
    made = OneCredit(f"purse_{uuid.uuid4().hex[:12]}", f"ledger/{uuid.uuid4().hex}", raw_connection)
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE TABLE {made.table} (sequence int NOT NULL, amount int NOT NULL)")
    owner.execute(f"INSERT INTO {made.table} VALUES (1, 1)")
    yield made
    # Else DROP would wait for who has it open.
    for session in made.sessions:
        session.close()
    owner.execute(f"DROP TABLE {made.table} CASCADE")


def spend_twice(one_credit: OneCredit, second: Session, way: Callable[[Session], int]) -> int:
    """The first takes the lock and spends; the second waits in its `way`; the first commits; the second spends what it saw.

    Returns: the balance that is left; 0 is right, -1 is overspent.
    """
    first = one_credit.connect()
    observer = one_credit.connect(autocommit=True)
    with ThreadPoolExecutor(1) as elsewhere:
        first.execute(f"SELECT {one_credit.lock}")
        assert first.execute(f"SELECT {one_credit.balance_sql}").fetchone() == (1,)
        one_credit.spend(first)
        seen = elsewhere.submit(way, second)
        wait_until_waiting(observer, second.info.backend_pid)
        first.commit()
        if seen.result(60) >= 1:
            one_credit.spend(second)
        second.commit()
    return one_credit.balance()


def one_value(session: Session, sql: str) -> int:
    """The first row's last value."""
    row = session.execute(sql).fetchone()
    assert row is not None
    return int(row[-1])


def test_lock_in_one_statement_and_read_in_the_next_is_right(one_credit: OneCredit) -> None:
    def way(session: Session) -> int:
        session.execute(f"SELECT {one_credit.lock}")
        return one_value(session, f"SELECT {one_credit.balance_sql}")

    assert spend_twice(one_credit, one_credit.connect(), way) == 0


def test_the_ledgers_own_lock_functions_are_right(one_credit: OneCredit) -> None:
    wrapper = connection.copy()
    wrapper.ensure_connection()
    wrapper.inc_thread_sharing()
    one_credit.sessions.append(wrapper.connection)

    def way(session: Session) -> int:
        connections["default"] = wrapper
        with transaction.atomic(), advisory_lock(one_credit.name) as lock, connection.cursor() as cursor:
            lock.ensure_held(one_credit.name)
            cursor.execute(f"SELECT {one_credit.balance_sql}")
            (balance,) = cursor.fetchone()
            return int(balance)

    assert spend_twice(one_credit, wrapper.connection, way) == 0


def test_a_volatile_function_that_locks_and_then_reads_is_right(one_credit: OneCredit) -> None:
    """Each statement in a VOLATILE function has its own snapshot."""
    read_function(one_credit, "VOLATILE")

    assert (
        spend_twice(one_credit, one_credit.connect(), lambda session: one_value(session, f"SELECT {one_credit.table}_read()"))
        == 0
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT {lock}, {balance}",
        "WITH locked AS MATERIALIZED (SELECT {lock}) SELECT {balance} FROM locked",
        "SELECT balance FROM (SELECT {lock}) AS locked, LATERAL (SELECT sum(amount) AS balance FROM {table}) AS read",
    ],
    ids=["one select", "with", "lateral"],
)
def test_control_lock_and_read_in_one_statement_overspends(one_credit: OneCredit, sql: str) -> None:
    """The statement's snapshot is older than its wait."""
    statement = sql.format(lock=one_credit.lock, balance=one_credit.balance_sql, table=one_credit.table)

    assert spend_twice(one_credit, one_credit.connect(), lambda session: one_value(session, statement)) == -1


def test_control_a_stable_function_overspends(one_credit: OneCredit) -> None:
    """A STABLE function reads by the snapshot of the statement that calls it."""
    read_function(one_credit, "STABLE")

    assert (
        spend_twice(one_credit, one_credit.connect(), lambda session: one_value(session, f"SELECT {one_credit.table}_read()"))
        == -1
    )


def test_control_repeatable_read_overspends(one_credit: OneCredit) -> None:
    """The transaction's snapshot is taken by the statement that waits for the lock."""
    session = one_credit.connect()
    session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    def way(session: Session) -> int:
        session.execute(f"SELECT {one_credit.lock}")
        return one_value(session, f"SELECT {one_credit.balance_sql}")

    assert spend_twice(one_credit, session, way) == -1


def test_control_autocommit_overspends(one_credit: OneCredit) -> None:
    """The lock ends with its own statement, so the second session does not wait."""
    sessions = [one_credit.connect(autocommit=True) for _ in range(2)]
    for session in sessions:
        session.execute(f"SELECT {one_credit.lock}")
    for session in [each for each in sessions if one_value(each, f"SELECT {one_credit.balance_sql}") >= 1]:
        one_credit.spend(session)

    assert one_credit.balance() == -1


def test_control_a_lock_from_a_rolled_back_savepoint_overspends(one_credit: OneCredit) -> None:
    """Both sessions have taken the lock and neither holds it any more. The ledger raises LockNotHeld in this case."""
    sessions = [one_credit.connect() for _ in range(2)]
    for session in sessions:
        session.execute("SAVEPOINT inner_block")
        session.execute(f"SELECT {one_credit.lock}")
        session.execute("ROLLBACK TO SAVEPOINT inner_block")
    for session in [each for each in sessions if one_value(each, f"SELECT {one_credit.balance_sql}") >= 1]:
        one_credit.spend(session)
    for session in sessions:
        session.commit()

    assert one_credit.balance() == -1


def test_without_a_lock_the_unique_sequence_still_prevents_overspending(one_credit: OneCredit) -> None:
    """The lock keeps writers from colliding; the constraint makes a wrong balance impossible."""
    one_credit.connect(autocommit=True).execute(f"ALTER TABLE {one_credit.table} ADD UNIQUE (sequence)")
    first, second = one_credit.connect(), one_credit.connect()
    observer = one_credit.connect(autocommit=True)
    assert [one_value(session, f"SELECT {one_credit.balance_sql}") for session in (first, second)] == [1, 1]

    one_credit.spend(first)
    with ThreadPoolExecutor(1) as elsewhere:
        spending = elsewhere.submit(one_credit.spend, second)
        wait_until_waiting(observer, second.info.backend_pid)
        first.commit()
        with pytest.raises(psycopg.errors.UniqueViolation):
            spending.result(60)
    second.rollback()

    assert one_credit.balance() == 0


def read_function(one_credit: OneCredit, volatility: str) -> None:
    """Create a function of this volatility that takes the lock and then reads the balance."""
    one_credit.connect(autocommit=True).execute(
        f"""CREATE FUNCTION {one_credit.table}_read() RETURNS int LANGUAGE plpgsql {volatility} AS $$
            BEGIN
                PERFORM {one_credit.lock};
                RETURN {one_credit.balance_sql};
            END $$"""
    )
