"""Prepared statements are sent without cursors, and their errors are the errors that a cursor would raise."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, NotSupportedError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger import journal, services
from ledger.database.locks import sqlstate
from ledger.database.statements import array
from ledger.database.transactions import TRIES, in_transaction
from ledger.errors import HolderBusy
from tests.nodes import lock_holder

NewHolder = Callable[[], str]


def prepared_statements() -> set[str]:
    """Return the names of the statements that are prepared on this connection, without their numbers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_prepared_statements")
        return {name.rpartition("_")[0] for (name,) in cursor.fetchall()}


def opening(holder: str, key: str | None = None) -> list[bytes | None]:
    """The parameters of the statement that opens an account."""
    return [b"t", array(["1"]), array([holder]), array(["credits"]), array([key]), b"f"]


def test_a_spend_keeps_two_statements_prepared(committed_db: None, new_holder: NewHolder) -> None:
    services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    assert prepared_statements() == {"ledger_open", "ledger_append"}


def test_no_statement_is_prepared_if_the_setting_forbids_it(committed_db: None, new_holder: NewHolder, settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"PREPARE_STATEMENTS": False}
    holder = new_holder()
    connection.close()

    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    spent = services.spend(holder_id=holder, amount=3, idempotency_key="s", reason="it's \\ Ünïcode")

    assert (spent.balance, spent.sequence) == (7, 2)
    assert prepared_statements() == set()


def test_the_capture_of_queries_sees_prepared_statements_too(committed_db: None, new_holder: NewHolder) -> None:
    with CaptureQueriesContext(connection) as queries:
        services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    sent = [query["sql"] for query in queries]
    assert journal.OPEN.sql in sent
    assert journal.APPEND_ONE.sql in sent


def test_a_lost_statement_fails_once_and_is_then_prepared_again(committed_db: None, new_holder: NewHolder) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    with transaction.atomic():
        journal.OPEN.execute(opening(holder))
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")

    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        journal.OPEN.execute(opening(holder))

    assert isinstance(refused.value.__cause__, psycopg.errors.InvalidSqlStatementName)
    with transaction.atomic():
        row = journal.OPEN.execute(opening(holder, "g"))
    assert row is not None
    assert row[3:6] == [1, 10, 0]
    assert row[-1] is True


def test_a_spend_succeeds_although_its_prepared_statements_are_lost(committed_db: None, new_holder: NewHolder) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")

    assert services.spend(holder_id=holder, amount=3, idempotency_key="s").balance == 7
    assert prepared_statements() == {"ledger_open", "ledger_append"}


def test_an_unsupported_statement_is_not_reported_as_a_collision(committed_db: None, new_holder: NewHolder) -> None:
    tries = []

    def once() -> None:
        tries.append(1)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE feature_not_supported; END $$")

    with pytest.raises(NotSupportedError) as refused:
        in_transaction(once, holder_id=new_holder())

    # It is tried again: a prepared statement whose result a migration has changed fails with the same SQLSTATE.
    assert (sqlstate(refused.value), len(tries)) == ("0A000", TRIES)


def test_a_lock_timeout_in_a_prepared_statement_raises_holder_busy(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    holder, other = new_holder(), raw_connection()
    lock_holder(other, holder)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")

    with pytest.raises(HolderBusy):
        services.grant(holder_id=holder, amount=10, idempotency_key="g")

    other.rollback()
    assert services.grant(holder_id=holder, amount=10, idempotency_key="g").replayed is False


def end_session(other: psycopg.Connection, session: psycopg.Connection) -> None:
    """Have the server end the session, and wait until it has."""
    # With these types, because Citus has a function of the same name for the number of a session of any node.
    other.execute("SELECT pg_terminate_backend(%s::int, 5000::bigint)", [session.info.backend_pid])


def test_a_session_that_the_server_ended_raises_operational_error(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection.ensure_connection()
    end_session(raw_connection(autocommit=True), connection.connection)

    with pytest.raises(OperationalError), transaction.atomic():
        journal.OPEN.execute(opening(new_holder()))


def test_a_connection_that_the_server_ended_is_replaced_before_the_request(
    committed_db: None, new_holder: NewHolder, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection.ensure_connection()
    assert connection.health_check_enabled
    connection.health_check_done = False
    before = connection.connection
    end_session(raw_connection(autocommit=True), before)

    entry = services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")

    assert entry.sequence == 1
    assert connection.connection is not before


def test_the_health_check_of_an_open_connection_sends_no_query(committed_db: None) -> None:
    connection.ensure_connection()
    connection.health_check_done = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "is_usable", lambda: pytest.fail("asked"))
        connection.close_if_health_check_failed()

    assert connection.health_check_done
