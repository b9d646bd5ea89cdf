"""What is told of a transaction whose connection is lost: before COMMIT a failure, during COMMIT that nobody knows."""

from collections.abc import Callable

import pytest
from django.db import OperationalError, connection

from ledger import selectors, services
from ledger.database.transactions import in_transaction
from ledger.errors import OutcomeUnknown

END_OF_SESSION = "SELECT pg_terminate_backend(pg_backend_pid())"

# What a deferred trigger does, it does during COMMIT.
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
    return []


@pytest.fixture
def ending(committed_db: None, tries: list[int]) -> Callable[[str], Callable[[], None]]:
    """Makes a piece of work that has the server end this session."""

    def make(sql: str) -> Callable[[], None]:
        def work() -> None:
            tries.append(1)
            with connection.cursor() as cursor:
                cursor.execute(sql)

        return work

    yield make
    connection.close()


def test_a_commit_that_is_lost_is_told_as_unknown_and_not_tried_again(ending, tries):
    with pytest.raises(OutcomeUnknown) as refused:
        in_transaction(ending(END_DURING_COMMIT), holder_id="ada")
    assert (refused.value.facts, len(tries)) == ({"holder_id": "ada"}, 1)


def test_a_session_that_ends_before_commit_is_told_as_a_failure(ending, tries):
    """The control: nothing can have been written."""
    with pytest.raises(OperationalError):
        in_transaction(ending(END_OF_SESSION), holder_id="ada")
    assert len(tries) == 1


def test_a_request_whose_commit_is_lost_is_told_as_unknown(committed_db, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    services.spend(holder_id=holder, amount=1, idempotency_key="s")

    def then_end(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("INSERT INTO ledger_entry"):
            with connection.cursor() as cursor:
                cursor.execute(END_DURING_COMMIT)
        return result

    with connection.execute_wrapper(then_end), pytest.raises(OutcomeUnknown):
        services.refund(holder_id=holder, spend=2, idempotency_key="r")
    connection.close()
    assert selectors.balance(holder).sequence == 2
