"""Prepared statements are sent past the cursors; what can go wrong with that is told as a cursor would."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, NotSupportedError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger import journal, services
from ledger.database.locks import holder_key, lock_number, sqlstate
from ledger.database.transactions import TRIES, in_transaction
from ledger.errors import HolderBusy

NewHolder = Callable[[], str]


def prepared() -> set[str]:
    """The names of what this connection keeps prepared."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_prepared_statements")
        return {name.rpartition("_")[0] for (name,) in cursor.fetchall()}


def test_a_spend_keeps_two_statements_prepared(committed_db: None, new_holder: NewHolder) -> None:
    services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    assert prepared() == {"ledger_open", "ledger_append"}


def test_none_are_prepared_where_the_pooler_cannot_keep_them(committed_db: None, new_holder: NewHolder, settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"PREPARE_STATEMENTS": False}
    holder = new_holder()
    connection.close()

    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    spent = services.spend(holder_id=holder, amount=3, idempotency_key="s", reason="it's \\ Ünïcode")

    assert (spent.balance, spent.sequence) == (7, 2)
    assert prepared() == set()


def test_who_watches_the_cursors_sees_them_too(committed_db: None, new_holder: NewHolder) -> None:
    with CaptureQueriesContext(connection) as queries:
        services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    sent = [query["sql"] for query in queries]
    assert journal.OPEN.sql in sent
    assert journal.APPEND_ONE.sql in sent


def test_statements_that_are_gone_are_prepared_again(committed_db: None, new_holder: NewHolder) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    with transaction.atomic():
        journal.OPEN.execute([b"1", holder.encode(), b"credits", None])
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")

    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        journal.OPEN.execute([b"1", holder.encode(), b"credits", None])

    assert isinstance(refused.value.__cause__, psycopg.errors.InvalidSqlStatementName)
    with transaction.atomic():
        row = journal.OPEN.execute([b"1", holder.encode(), b"credits", b"g"])
    assert row is not None
    assert row[2:5] == [1, 10, 0]
    assert row[-1] is True


def test_a_spend_does_not_notice_that_statements_are_gone(committed_db: None, new_holder: NewHolder) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")

    assert services.spend(holder_id=holder, amount=3, idempotency_key="s").balance == 7
    assert prepared() == {"ledger_open", "ledger_append"}


def test_a_statement_that_the_server_does_not_support_is_not_told_as_a_collision(
    committed_db: None, new_holder: NewHolder
) -> None:
    tries = []

    def once() -> None:
        tries.append(1)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE feature_not_supported; END $$")

    with pytest.raises(NotSupportedError) as refused:
        in_transaction(once, holder_id=new_holder())

    # It may have been a prepared statement whose result a migration changed: that is worth another try.
    assert (sqlstate(refused.value), len(tries)) == ("0A000", TRIES)


def test_a_lock_that_does_not_come_is_told_as_by_a_cursor(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    holder, other = new_holder(), raw_connection()
    other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(holder))])
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")

    with pytest.raises(HolderBusy):
        services.grant(holder_id=holder, amount=10, idempotency_key="g")

    other.rollback()
    assert services.grant(holder_id=holder, amount=10, idempotency_key="g").replayed is False


def test_a_server_that_is_gone_is_told_as_by_a_cursor(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection.ensure_connection()
    raw_connection(autocommit=True).execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])

    with pytest.raises(OperationalError), transaction.atomic():
        journal.OPEN.execute([b"1", new_holder().encode(), b"credits", None])


def test_a_connection_that_the_server_ended_is_noticed_without_a_query(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection.ensure_connection()
    assert connection.health_check_enabled
    connection.health_check_done = False
    before = connection.connection
    raw_connection(autocommit=True).execute("SELECT pg_terminate_backend(%s, 5000)", [before.info.backend_pid])

    entry = services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    assert entry.sequence == 1
    assert connection.connection is not before


def test_a_connection_that_is_alive_is_not_asked(committed_db: None) -> None:
    connection.ensure_connection()
    connection.health_check_done = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "is_usable", lambda: pytest.fail("asked"))
        connection.close_if_health_check_failed()

    assert connection.health_check_done
