"""A connection lost before COMMIT is a failure; a connection lost during COMMIT leaves the outcome unknown."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, OperationalError, connection

from ledger import reads, services
from ledger.database.locks import sqlstate
from ledger.database.transactions import TRIES, in_transaction
from ledger.errors import OutcomeUnknown

END_OF_SESSION = "SELECT pg_terminate_backend(pg_backend_pid())"

# A deferred trigger runs during COMMIT.
END_DURING_COMMIT = """
CREATE TEMPORARY TABLE last_thing (done int);
CREATE FUNCTION pg_temp.end_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON last_thing DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.end_session();
INSERT INTO last_thing VALUES (1);
"""


@pytest.fixture
def tries() -> list[int]:
    """Collects one item for each try of the transaction."""
    return []


@pytest.fixture
def work_that_ends_the_session(committed_db: None, tries: list[int]) -> Callable[[str], Callable[[], None]]:
    """Makes a function that executes SQL by which the server ends this session."""

    def make(sql: str) -> Callable[[], None]:
        def work() -> None:
            tries.append(1)
            with connection.cursor() as cursor:
                cursor.execute(sql)

        return work

    yield make
    connection.close()


def test_a_connection_lost_during_commit_raises_outcome_unknown_after_one_try(work_that_ends_the_session, tries):
    with pytest.raises(OutcomeUnknown) as refused:
        in_transaction(work_that_ends_the_session(END_DURING_COMMIT), holder_id="ada")
    assert (refused.value.facts, len(tries)) == ({"holder_id": "ada"}, 1)


def test_control_a_connection_lost_before_commit_raises_the_database_error(work_that_ends_the_session, tries):
    """Nothing can have been written, so the outcome is known."""
    with pytest.raises(OperationalError):
        in_transaction(work_that_ends_the_session(END_OF_SESSION), holder_id="ada")
    assert len(tries) == 1


@pytest.mark.parametrize("state", ["XX000", "42P01", "LG003"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_an_error_that_a_moved_shard_raises_is_tried_again_and_then_raised_as_it_is(committed_db, tries, state, failures):
    def once() -> int:
        tries.append(1)
        if len(tries) <= failures:
            with connection.cursor() as cursor:
                cursor.execute(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$")
        return len(tries)

    if failures < TRIES:
        assert in_transaction(once, holder_id="ada") == failures + 1
    else:
        with pytest.raises(DatabaseError) as refused:
            in_transaction(once, holder_id="ada")
        assert (sqlstate(refused.value), len(tries)) == (state, TRIES)


def test_a_refund_whose_connection_is_lost_during_commit_raises_outcome_unknown(committed_db, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    services.spend(holder_id=holder, amount=1, idempotency_key="s")

    def end_session_during_commit(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("INSERT INTO ledger_entry"):
            with connection.cursor() as cursor:
                cursor.execute(END_DURING_COMMIT)
        return result

    with connection.execute_wrapper(end_session_during_commit), pytest.raises(OutcomeUnknown):
        services.refund(holder_id=holder, spend=2, idempotency_key="r")
    connection.close()
    assert reads.balance(holder).sequence == 2
