"""A connection lost before COMMIT is a failure; a connection lost during COMMIT leaves the outcome unknown."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, Error, OperationalError, connection, transaction

from ledger import reads, services
from ledger.database.locks import sqlstate
from ledger.database.transactions import TRIES, after_commit, in_transaction, outermost, own_or_joined, was_rolled_back
from ledger.errors import OutcomeUnknown, SequenceTaken

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


# As above, but the trigger raises this SQLSTATE.
RAISE_DURING_COMMIT = """
CREATE TEMPORARY TABLE last_thing (done int);
CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '{state}'; END $$;
CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON last_thing DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.fail();
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


# What COMMIT says ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("severity", "state", "rolled_back"),
    [
        ("ERROR", "23505", True),
        ("ERROR", "40001", True),
        ("ERROR", "53100", True),
        ("ERROR", "57014", True),
        ("PANIC", "53100", False),
        ("FATAL", "25P03", False),
        ("FATAL", "57P01", False),
        ("ERROR", "57P02", False),
        ("ERROR", "08006", False),
        ("ERROR", "08P01", False),
        ("ERROR", "XX000", False),
        (None, "23505", False),
        (None, None, False),
    ],
)
def test_only_an_error_that_leaves_the_session_open_says_that_a_commit_was_rolled_back(severity, state, rolled_back):
    error = OperationalError("in the language of the server")
    error.__cause__ = psycopg_error = Error()
    psycopg_error.sqlstate, psycopg_error.diag = state, SimpleNamespace(severity_nonlocalized=severity)
    assert was_rolled_back(error) is rolled_back


def test_an_error_that_is_not_the_servers_says_nothing_of_a_commit():
    assert not was_rolled_back(OperationalError("the connection is closed"))
    assert not was_rolled_back(UnicodeDecodeError("utf-8", b"?", 0, 1, "in the middle of a message"))


def test_a_commit_that_the_server_rolls_back_raises_the_servers_error(work_that_ends_the_session, tries):
    with pytest.raises(DatabaseError) as refused:
        in_transaction(work_that_ends_the_session(RAISE_DURING_COMMIT.format(state="23514")), holder_id="ada")
    assert (sqlstate(refused.value), len(tries)) == ("23514", 1)


def test_an_internal_error_during_commit_leaves_the_outcome_unknown_and_is_not_tried_again(work_that_ends_the_session, tries):
    """A cluster says so of a node that has not confirmed its part. Before COMMIT, the same error is tried again."""
    with pytest.raises(OutcomeUnknown):
        in_transaction(work_that_ends_the_session(RAISE_DURING_COMMIT.format(state="XX000")), holder_id="ada")
    assert len(tries) == 1


def fail(why: str) -> None:
    raise LookupError(why)


@pytest.mark.parametrize("act", [fail, partial(fail)], ids=["a function", "a partial, which has no __qualname__"])
@pytest.mark.parametrize("is_joined", [False, True], ids=["its own transaction", "a caller's"])
def test_an_error_after_commit_is_logged_and_what_was_committed_is_no_error(committed_db, caplog, act, is_joined):
    acted: list[str] = []
    with transaction.atomic() if is_joined else nullcontext(), own_or_joined(holder_id="ada"):
        after_commit(act, "a bug")
        after_commit(acted.append, "the next one")
        assert acted == []
    assert acted == ["the next one"]
    [record] = [record for record in caplog.records if record.name == "ledger.database.transactions"]
    assert record.exc_info[0] is LookupError


@pytest.mark.parametrize("is_robust", [False, True])
def test_control_djangos_on_commit_makes_an_unknown_outcome_of_it(committed_db, caplog, is_robust):
    """With `robust=True` too: what Django logs of a function is a name that a partial does not have."""
    with pytest.raises(OutcomeUnknown) as unknown, outermost(holder_id="ada"):
        transaction.on_commit(partial(fail, "a bug"), robust=is_robust)  # noqa: TID251
    assert unknown.value.facts == {"holder_id": "ada"}
    assert isinstance(unknown.value.__cause__, AttributeError if is_robust else LookupError)


def test_after_a_rollback_nothing_is_called(committed_db):
    acted: list[str] = []
    with outermost():
        after_commit(acted.append, "never")
        transaction.set_rollback(True)
    assert acted == []


def test_the_bare_call_is_refused_by_the_linter():
    source = "from django.db import transaction\n\ntransaction.on_commit(print)\n"
    ruff = [sys.executable, "-m", "ruff", "check", "--stdin-filename", "billing/made_up.py", "-"]
    found = subprocess.run(ruff, input=source, text=True, capture_output=True, check=False)
    assert (found.returncode, "TID251" in found.stdout) == (1, True)


def test_a_block_that_fails_or_rolls_back_is_never_unknown(committed_db):
    """Nothing was sent that could have taken effect, although the connection is lost."""
    with outermost(holder_id="ada"):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.connection.close()
        transaction.set_rollback(True)
    with pytest.raises(LookupError), outermost(holder_id="ada"):
        raise LookupError("before COMMIT")


def test_an_error_that_the_driver_makes_of_a_lost_connection_is_reported_as_a_lost_connection(committed_db):
    """Of random bytes at the end of a COPY, for example, psycopg makes a ValueError."""

    def end_in_a_copy() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.connection.close()
        raise ValueError("too many values to unpack")

    with pytest.raises(OperationalError) as lost, outermost(holder_id="ada"):
        end_in_a_copy()
    assert isinstance(lost.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="a bug"), outermost(holder_id="ada"):
        raise ValueError("a bug")


def test_a_dry_run_whose_connection_is_lost_at_its_end_is_not_unknown(committed_db, new_holder, monkeypatch):
    """Nothing is committed, so that nothing can be lost with a COMMIT."""
    holder = new_holder()
    committed = []
    monkeypatch.setattr(connection, "_commit", lambda: committed.append(1))
    assert services.grant(holder_id=holder, amount=1, idempotency_key="g", dry_run=True).amount == 1
    assert committed == []


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_transaction_that_joins_anothers_leaves_the_commit_to_it(work_that_ends_the_session, is_joined):
    work = work_that_ends_the_session(END_DURING_COMMIT)
    if not is_joined:
        with pytest.raises(OutcomeUnknown) as unknown, own_or_joined(holder_id="ada"):
            work()
        assert unknown.value.facts == {"holder_id": "ada"}
        return
    with pytest.raises(OutcomeUnknown) as unknown, outermost(holder_id="bea"), own_or_joined(holder_id="ada"):
        work()
    assert unknown.value.facts == {"holder_id": "bea"}


# What is tried again ---------------------------------------------------------------------------------


def failing(state, failures, tries):
    """A function that raises this state so often, and then returns how often it was called."""

    def once() -> int:
        tries.append(1)
        if len(tries) <= failures:
            with connection.cursor() as cursor:
                cursor.execute(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$")
        return len(tries)

    return once


@pytest.mark.parametrize("state", ["23505", "LG002", "40P01", "40001"])
@pytest.mark.parametrize("failures", [2, 3])
def test_a_collision_is_tried_again_and_then_raised_as_a_taken_sequence(committed_db, tries, state, failures):
    once = failing(state, failures, tries)
    if failures < TRIES:
        assert in_transaction(once, holder_id="ada") == failures + 1
    else:
        with pytest.raises(SequenceTaken) as taken:
            in_transaction(once, holder_id="ada")
        assert (taken.value.facts, len(tries)) == ({"holder_id": "ada"}, 3)


@pytest.mark.parametrize("state", ["XX000", "42P01", "LG003"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_an_error_that_a_moved_shard_raises_is_tried_again_and_then_raised_as_it_is(committed_db, tries, state, failures):
    once = failing(state, failures, tries)
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
