"""Locks that are declared on a function: named by its arguments, and by members of a body that it is handed."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from ledger.database.lock_decorators import Locked, locked, on
from ledger.database.lock_names import HOLDER, INVOICE_GENERATION, RATE
from ledger.database.locks import Lock, lock_number
from ledger.errors import LockBusy

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def somebody_else(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A second session, in a transaction of its own."""
    return raw_connection()


def can_take(session: psycopg.Connection[Any], name: str) -> bool:
    """Whether the session would get the lock now; what it gets it gives back."""
    row = session.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock_number(name)]).fetchone()
    session.rollback()
    return row == (True,)


def take(session: psycopg.Connection[Any], name: str) -> None:
    session.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(name)])


@pytest.fixture
def scratch(committed_db: None) -> Iterator[Callable[[], int]]:
    """A table to write into; gives the number of its rows."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE scratch_of_locks (note text)")

    def rows() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM scratch_of_locks")
            return int(cursor.fetchone()[0])

    yield rows
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE scratch_of_locks")


def write() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO scratch_of_locks VALUES ('written')")


class UndoneError(Exception):
    """Rolls a block back."""


class BusyError(LockBusy):
    """What a caller is told."""


def test_a_function_runs_in_a_transaction_under_the_locks_that_its_arguments_name(
    committed_db: None, somebody_else: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), on(HOLDER, "{holder_id}"))
    def generate(lock: Lock, ref: str, *, holder_id: str = "42") -> list[bool]:
        """Make an invoice."""
        assert connection.in_atomic_block
        names = f"invoice_gen/{ref}", f"ledger/{holder_id}"
        lock.ensure_held(*names)
        return [can_take(somebody_else, name) for name in names]

    assert generate("SUB-1") == [False, False]
    assert generate(ref="SUB-2", holder_id="43") == [False, False]
    assert can_take(somebody_else, "invoice_gen/SUB-1")
    assert (generate.__name__, generate.__doc__) == ("generate", "Make an invoice.")


def test_a_template_may_name_a_member_of_a_body_beside_an_argument_from_the_path(
    committed_db: None, somebody_else: psycopg.Connection[Any]
) -> None:
    @locked(on(HOLDER, "{holder}"), on(HOLDER, "{body[to]}"), on(RATE, "{body[credit_type]}", "v{body[version]}"))
    def transfer(lock: Lock, holder: str, body: dict[str, Any]) -> tuple[str, ...]:
        assert not any(can_take(somebody_else, name) for name in lock.names)
        return lock.names

    names = transfer("42", {"to": "43", "credit_type": "sms", "version": 2, "reason": None})

    assert names == ("ledger/42", "ledger/43", "ledger_rate/sms/v2")


@pytest.mark.parametrize("body", [{}, {"to": None}, {"to": ["43"]}, {"to": True}, {"to": 1.5}])
def test_a_body_without_a_text_to_name_the_lock_by_takes_no_lock_and_does_nothing(
    committed_db: None, body: dict[str, Any]
) -> None:
    @locked(on(HOLDER, "{body[to]}"))
    def transfer(lock: Lock, *, body: dict[str, Any]) -> None:
        pytest.fail("the body must not run")

    with pytest.raises((KeyError, TypeError)):
        transfer(body=body)


def test_a_function_that_waits_not_fails_at_once_says_which_lock_and_writes_nothing(
    scratch: Callable[[], int], somebody_else: psycopg.Connection[Any]
) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=BusyError)
    def generate(lock: Lock, ref: str) -> None:
        write()

    take(somebody_else, "invoice_gen/SUB-1")
    with pytest.raises(BusyError) as refused:
        generate("SUB-1")
    assert refused.value.facts == {"key": "invoice_gen/SUB-1", "subscription": "SUB-1"}
    assert scratch() == 0

    generate("SUB-2")
    assert scratch() == 1


def test_what_is_busy_inside_the_function_is_not_taken_for_its_own_lock(committed_db: None) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=BusyError)
    def generate(lock: Lock, ref: str) -> None:
        raise LockBusy(key="suspension/SUB-1")

    with pytest.raises(LockBusy) as refused:
        generate("SUB-1")
    assert type(refused.value) is LockBusy


def test_a_function_that_fails_leaves_nothing(scratch: Callable[[], int], somebody_else: psycopg.Connection[Any]) -> None:
    @locked(on(INVOICE_GENERATION, "{ref}"))
    def generate(lock: Lock, ref: str) -> None:
        write()
        raise UndoneError

    with pytest.raises(UndoneError):
        generate("SUB-1")
    assert scratch() == 0
    assert can_take(somebody_else, "invoice_gen/SUB-1")


def test_inside_a_callers_transaction_the_lock_is_kept_until_that_ends(
    scratch: Callable[[], int], somebody_else: psycopg.Connection[Any]
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
        assert [can_take(somebody_else, f"invoice_gen/SUB-{number}") for number in (1, 2)] == [False, True]
    assert can_take(somebody_else, "invoice_gen/SUB-1")
    assert scratch() == 1


@pytest.mark.parametrize(
    "template", ["{reference}", "{}", "{ref.x}", "{lock}", "{ref[x][y]}", "{ref!r}", "{ref:>9}", "{reference[to]}"]
)
def test_a_template_that_names_no_argument_is_refused_where_it_is_written(template: str) -> None:
    with pytest.raises(ValueError, match="is not among the arguments"):

        @locked(on(INVOICE_GENERATION, template))
        def generate(lock: Lock, ref: str) -> None:
            """Never made."""


def test_every_field_of_a_name_needs_its_template() -> None:
    with pytest.raises(ValueError, match="takes 2 templates, not 1"):
        on(RATE, "{code}")
    with pytest.raises(ValueError, match="a lock needs a name"):
        locked()
    assert on(RATE, "{credit_type}", "{code}") == Locked(RATE, ("{credit_type}", "{code}"))
