"""The decorator `locked`: its locks are named by the function's arguments, or by members of an argument."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from ledger.database.lock_names import HOLDER, INVOICE_GENERATION, RATE
from ledger.database.locking import LockTemplate, locked, on
from ledger.database.locks import Lock, lock_number
from ledger.database.statements import fetch_value
from ledger.errors import LockBusy

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def other_session(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A second session in a separate transaction."""
    return raw_connection()


def can_take(session: psycopg.Connection[Any], name: str) -> bool:
    """Try the lock in the session, free it again, and return whether the session got it."""
    row = session.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(name)]).fetchone()
    session.rollback()
    return row == (True,)


def take(session: psycopg.Connection[Any], name: str) -> None:
    """Take the lock in the session, until its transaction ends."""
    session.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(name)])


@pytest.fixture
def count_rows(committed_db: None) -> Iterator[Callable[[], int]]:
    """Makes a table for `write`, and returns a function that counts its rows."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE scratch_of_locks (note text)")

    def rows() -> int:
        return fetch_value(int, "SELECT count(*) FROM scratch_of_locks")

    yield rows
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE scratch_of_locks")


def write() -> None:
    """Add a row to the table of `count_rows`."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO scratch_of_locks VALUES ('written')")


class UndoneError(Exception):
    """Rolls a block back."""


class BusyError(LockBusy):
    """The error for a busy lock that the tests declare."""


def test_a_function_runs_in_a_transaction_under_the_locks_that_its_arguments_name(
    committed_db: None, other_session: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), on(HOLDER, "{holder_id}"))
    def generate(lock: Lock, ref: str, *, holder_id: str = "42") -> list[bool]:
        """Make an invoice."""
        assert connection.in_atomic_block
        names = f"invoice_gen/{ref}", f"ledger/{holder_id}"
        lock.ensure_held(*names)
        return [can_take(other_session, name) for name in names]

    assert generate("SUB-1") == [False, False]
    assert generate(ref="SUB-2", holder_id="43") == [False, False]
    assert can_take(other_session, "invoice_gen/SUB-1")
    assert (generate.__name__, generate.__doc__) == ("generate", "Make an invoice.")


def test_a_template_may_name_an_argument_or_a_member_of_an_argument(
    committed_db: None, other_session: psycopg.Connection[Any]
) -> None:
    @locked(on(HOLDER, "{holder}"), on(HOLDER, "{body[to]}"), on(RATE, "{body[credit_type]}", "v{body[version]}"))
    def transfer(lock: Lock, holder: str, body: dict[str, Any]) -> tuple[str, ...]:
        assert not any(can_take(other_session, name) for name in lock.names)
        return lock.names

    names = transfer("42", {"to": "43", "credit_type": "sms", "version": 2, "reason": None})

    assert names == ("ledger/42", "ledger/43", "ledger_rate/sms/v2")


@pytest.mark.parametrize("body", [{}, {"to": None}, {"to": ["43"]}, {"to": True}, {"to": 1.5}])
def test_a_member_that_is_no_text_and_no_integer_takes_no_lock_and_runs_nothing(committed_db: None, body: dict[str, Any]) -> None:
    @locked(on(HOLDER, "{body[to]}"))
    def transfer(lock: Lock, *, body: dict[str, Any]) -> None:
        pytest.fail("the body must not run")

    with pytest.raises((KeyError, TypeError)):
        transfer(body=body)


def test_without_waiting_a_busy_lock_fails_at_once_and_nothing_is_written(
    count_rows: Callable[[], int], other_session: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=BusyError)
    def generate(lock: Lock, ref: str) -> None:
        write()

    take(other_session, "invoice_gen/SUB-1")
    with pytest.raises(BusyError) as refused:
        generate("SUB-1")
    assert refused.value.facts == {"key": "invoice_gen/SUB-1", "subscription": "SUB-1"}
    assert count_rows() == 0

    generate("SUB-2")
    assert count_rows() == 1


def test_a_busy_lock_inside_the_function_is_raised_unchanged(committed_db: None) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=BusyError)
    def generate(lock: Lock, ref: str) -> None:
        raise LockBusy(key="suspension/SUB-1")

    with pytest.raises(LockBusy) as refused:
        generate("SUB-1")
    assert type(refused.value) is LockBusy


def test_a_function_that_fails_writes_nothing_and_frees_its_lock(
    count_rows: Callable[[], int], other_session: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"))
    def generate(lock: Lock, ref: str) -> None:
        write()
        raise UndoneError

    with pytest.raises(UndoneError):
        generate("SUB-1")
    assert count_rows() == 0
    assert can_take(other_session, "invoice_gen/SUB-1")


def test_inside_a_callers_transaction_the_lock_is_kept_until_that_transaction_ends(
    count_rows: Callable[[], int], other_session: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"))
    def generate(lock: Lock, ref: str, *, fails: bool) -> None:
        write()
        if fails:
            raise UndoneError

    with transaction.atomic():
        generate("SUB-1", fails=False)
        with pytest.raises(UndoneError):
            generate("SUB-2", fails=True)
        assert [can_take(other_session, f"invoice_gen/SUB-{number}") for number in (1, 2)] == [False, True]
    assert can_take(other_session, "invoice_gen/SUB-1")
    assert count_rows() == 1


@pytest.mark.parametrize(
    "template", ["{reference}", "{}", "{ref.x}", "{lock}", "{ref[x][y]}", "{ref!r}", "{ref:>9}", "{reference[to]}"]
)
def test_a_template_that_names_no_argument_is_refused_at_definition(template: str) -> None:
    with pytest.raises(ValueError, match="is not among the arguments"):

        @locked(on(INVOICE_GENERATION, template))
        def generate(lock: Lock, ref: str) -> None:
            """This function is never defined."""


def test_what_would_run_after_its_lock_is_free_is_refused_at_definition() -> None:
    async def wait(lock: Lock, ref: str) -> None:
        """Never defined."""

    def give(lock: Lock, ref: str) -> Iterator[None]:
        yield

    async def give_later(lock: Lock, ref: str) -> AsyncIterator[None]:
        yield

    for function in (wait, give, give_later):
        with pytest.raises(ValueError, match="would run after its lock is free"):
            locked(on(INVOICE_GENERATION, "{ref}"))(function)


def test_a_uuid_names_a_lock_by_its_text(committed_db: None) -> None:
    @locked(on(HOLDER, "team-{team}"))
    def names(lock: Lock, team: UUID) -> tuple[str, ...]:
        return lock.names

    assert names(UUID(int=7)) == ("ledger/team-00000000-0000-0000-0000-000000000007",)


def test_every_field_of_a_name_needs_a_template() -> None:
    with pytest.raises(ValueError, match="takes 2 templates, not 1"):
        on(RATE, "{code}")
    with pytest.raises(ValueError, match="a lock needs a name"):
        locked()
    assert on(RATE, "{credit_type}", "{code}") == LockTemplate(RATE, ("{credit_type}", "{code}"))
