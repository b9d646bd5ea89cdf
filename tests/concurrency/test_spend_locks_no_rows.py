"""No table, and no row of a subscription, plan, customer, holder or key, is ever locked by what happens to credits.

Seen from both sides: which locks a spend holds while it is open, and that it waits for nobody who has locked those rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection

from ledger import services
from ledger.database.locks import holder_key, lock_number
from ledger.errors import InsufficientCredits
from ledger.keys import api_keys
from tests.billing.factories import CustomerFactory, SubscriptionFactory
from tests.nodes import session_id

NewHolder = Callable[[], str]
Connect = Callable[..., psycopg.Connection[Any]]
Steps = dict[str, Callable[[], Any]]

OF_ONE_SERVER = pytest.mark.one_node("lists the locks of one server's session; a cluster adds its own")

HELD = """
SELECT l.locktype, COALESCE(t.relname, c.relname, ''), l.mode, l.granted
FROM pg_locks l
LEFT JOIN pg_class c ON c.oid = l.relation
LEFT JOIN pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_class t ON t.oid = i.indrelid
WHERE l.pid = %s
"""

READS_AND_WRITES = {"AccessShareLock", "RowExclusiveLock"}
"""What every SELECT and INSERT takes on a table; neither keeps another reader or writer out, nor a row lock."""


def every_write(holder: str) -> Steps:
    """Return each writing use-case once, in an order in which they can follow each other."""

    def refused() -> None:
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id=holder, amount=1000, idempotency_key="too much")

    return {
        "grant": partial(services.grant, holder_id=holder, amount=70, idempotency_key="grant"),
        "spend": partial(services.spend, holder_id=holder, amount=7, idempotency_key="spend"),
        "replay": partial(services.spend, holder_id=holder, amount=7, idempotency_key="spend"),
        "refusal": refused,
        "refund": partial(services.refund, holder_id=holder, spend=2, idempotency_key="refund"),
        "revoke": partial(services.revoke, holder_id=holder, grant=1, idempotency_key="revoke"),
        "book expirations": partial(services.book_expirations, holder_id=holder),
    }


@contextmanager
def seen_before_each_commit(look: Callable[[str], None]) -> Iterator[None]:
    """Call `look` with each statement, after it was executed and while its transaction is open."""

    def after_each(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if connection.in_atomic_block:
            look(sql)
        return result

    with connection.execute_wrapper(after_each):
        yield


@OF_ONE_SERVER
def test_an_open_spend_holds_its_advisory_lock_and_only_the_locks_of_any_insert(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder
) -> None:
    observer, holder = raw_connection("superuser", autocommit=True), new_holder()
    pid = session_id()
    seen: dict[str, set[Any]] = {}

    def look(sql: str) -> None:
        seen[sql.split(maxsplit=1)[0]] = set(observer.execute(HELD, [pid]).fetchall())

    services.grant(holder_id=holder, amount=70, idempotency_key="grant")
    with seen_before_each_commit(look):
        services.spend(holder_id=holder, amount=7, idempotency_key="spend")

    advisory = ("advisory", "", "ExclusiveLock", True)
    assert list(seen) == ["SELECT", "INSERT"], "two statements besides BEGIN and COMMIT"
    after_insert = seen["INSERT"]
    assert advisory in after_insert
    assert {lock for lock in after_insert if lock[0] == "relation" and lock[1] == "ledger_entry"} == {
        ("relation", "ledger_entry", "AccessShareLock", True),
        ("relation", "ledger_entry", "RowExclusiveLock", True),
    }
    assert {table for kind, table, _, _ in after_insert if kind == "relation"} == {"ledger_entry"}
    assert {kind for kind, *_ in after_insert} == {"relation", "advisory", "virtualxid", "transactionid"}
    assert {(kind, table, mode) for kind, table, mode, _ in seen["SELECT"] if mode == "RowExclusiveLock"} == set()


@OF_ONE_SERVER
def test_every_write_holds_only_advisory_locks_and_the_locks_of_any_insert(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder
) -> None:
    observer, holder = raw_connection("superuser", autocommit=True), new_holder()
    pid = session_id()
    number = lock_number(holder_key(holder))
    statements: list[str] = []

    def look(sql: str) -> None:
        statements.append(sql)
        held = observer.execute(HELD, [pid]).fetchall()
        assert {mode for kind, _, mode, _ in held if kind == "relation"} <= READS_AND_WRITES
        assert {kind for kind, *_ in held} <= {"relation", "advisory", "virtualxid", "transactionid"}
        advisory = observer.execute(
            "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE pid = %s AND locktype = 'advisory'", [pid]
        )
        assert advisory.fetchall() == [(number,)]

    for step in every_write(holder).values():
        with seen_before_each_commit(look):
            step()

    assert sum(sql.lstrip().startswith("INSERT") for sql in statements) == 5
    # A row lock leaves its mark in xmax; every entry, refusals among them, still bears none.
    marks = observer.execute("SELECT DISTINCT xmax::text FROM ledger_entry WHERE holder_id = %s", [holder])
    assert marks.fetchall() == [("0",)]


# Others have locked the rows -------------------------------------------------------------------------


def tables_beside_the_ledger(observer: psycopg.Connection[Any]) -> list[str]:
    """Return the tables of the application without entries: billing's tables and the API keys."""
    rows = observer.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " AND (relname LIKE 'billing%' OR relname = 'ledger_api_key') ORDER BY relname"
    )
    return [name for (name,) in rows.fetchall()]


def test_no_write_waits_for_rows_that_another_session_has_locked(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder
) -> None:
    holder = new_holder()
    api_keys.create_api_key(name=f"of {holder}", scopes=["ledger:spend"], holder_id=holder)
    SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref)
    steps = every_write(holder)
    steps.pop("grant")()
    locking = raw_connection()
    locked = {table: locking.execute(f"SELECT FROM {table} FOR UPDATE").rowcount for table in tables_beside_the_ledger(locking)}
    assert all(
        locked[table] for table in ("billing_customer", "billing_plan", "billing_price", "billing_subscription", "ledger_api_key")
    )
    locking.execute("SELECT FROM ledger_entry WHERE holder_id = %s FOR UPDATE", [holder])
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")

    for step in steps.values():
        step()

    assert locking.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
    locking.rollback()


def test_control_with_a_foreign_key_an_insert_waits_for_the_locked_row(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder
) -> None:
    """A foreign key locks the referenced row FOR KEY SHARE; shown on two temporary tables."""
    owner, locking = raw_connection(autocommit=True), raw_connection()
    parent, child = (f"{name}_{new_holder().replace('-', '_')}" for name in ("parent", "child"))
    owner.execute(f"CREATE TABLE {parent} (id int PRIMARY KEY)")
    owner.execute(f"CREATE TABLE {child} (parent_id int REFERENCES {parent} DEFERRABLE INITIALLY DEFERRED)")
    try:
        owner.execute(f"INSERT INTO {parent} VALUES (1)")
        locking.execute(f"SELECT FROM {parent} FOR UPDATE")
        owner.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.execute(f"INSERT INTO {child} VALUES (1)")
    finally:
        locking.rollback()
        owner.execute("RESET lock_timeout")
        owner.execute(f"DROP TABLE {child}, {parent}")
