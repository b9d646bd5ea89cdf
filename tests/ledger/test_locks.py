"""Locks as their callers see them: what is taken, how long the proof holds, and who is refused."""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger.database import locks
from ledger.database.locks import Lock, advisory_lock, holder_key, holder_lock, lock_number, try_advisory_lock
from ledger.errors import HolderBusy, LockBusy, LockNotHeld, NotInTransaction

Connect = Callable[..., psycopg.Connection[Any]]
PRODUCT = [Path(settings.BASE_DIR) / room for room in ("ledger", "billing", "ledger_project")]


@pytest.fixture
def somebody_else(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A second session, in a transaction of its own."""
    return raw_connection()


def can_take(session: psycopg.Connection[Any], name: str, *, shared: bool = False) -> bool:
    """Whether the session would get the lock now; what it gets it gives back."""
    row = session.execute(f"SELECT pg_try_advisory_xact_lock{'_shared' if shared else ''}(%s)", [lock_number(name)]).fetchone()
    session.rollback()
    return row == (True,)


def take(session: psycopg.Connection[Any], name: str, *, shared: bool = False) -> None:
    session.execute(f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(%s)", [lock_number(name)])


@pytest.fixture
def name(new_holder: Callable[[], str]) -> str:
    return f"ledger/{new_holder()}"


# Taking ----------------------------------------------------------------------------------------------


def test_excludes_everybody_else_until_the_transaction_ends(
    committed_db: None, somebody_else: psycopg.Connection[Any], name: str
) -> None:
    with transaction.atomic():
        with advisory_lock(name) as lock:
            lock.ensure_held(name)
            assert not can_take(somebody_else, name)
        assert not can_take(somebody_else, name), "the end of the block must free nothing: the row is not yet committed"

    assert can_take(somebody_else, name)


@pytest.mark.django_db
def test_is_seen_in_pg_locks_under_its_number(somebody_else: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic(), advisory_lock(name):
        row = somebody_else.execute(
            "SELECT mode, granted FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
            " AND classid::bigint << 32 | objid::bigint = %s",
            [lock_number(name)],
        ).fetchall()

    assert row == [("ExclusiveLock", True)]


@pytest.mark.parametrize(
    ("held", "asked", "given"), [(True, True, True), (True, False, False), (False, True, False), (False, False, False)]
)
def test_shared_locks_admit_shared_locks_only(
    committed_db: None, somebody_else: psycopg.Connection[Any], name: str, held: bool, asked: bool, given: bool
) -> None:
    with transaction.atomic(), advisory_lock(name, shared=held):
        assert can_take(somebody_else, name, shared=asked) is given
    take(somebody_else, name, shared=held)
    with transaction.atomic(), suppress(LockBusy) if not given else ExitStack(), try_advisory_lock(name, shared=asked) as lock:
        lock.ensure_held(name, shared_is_enough=asked)
        assert given


@pytest.mark.django_db
def test_a_busy_lock_is_refused_at_once_and_the_transaction_can_go_on(somebody_else: psycopg.Connection[Any], name: str) -> None:
    take(somebody_else, name)

    with transaction.atomic():
        with pytest.raises(LockBusy) as refused, try_advisory_lock(name):
            pytest.fail("the body must not run")
        assert refused.value.facts == {"key": name}
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)


@pytest.mark.django_db
def test_of_several_tried_none_is_kept_when_one_is_busy(
    raw_connection: Connect, somebody_else: psycopg.Connection[Any], new_holder: Callable[[], str]
) -> None:
    first, last = sorted((f"ledger/{new_holder()}", f"ledger/{new_holder()}"), key=lock_number)
    take(somebody_else, last)

    with transaction.atomic():
        with pytest.raises(LockBusy) as refused, try_advisory_lock(last, first):
            pytest.fail("the body must not run")
        assert refused.value.facts == {"key": last}
        assert can_take(raw_connection(), first)

    somebody_else.rollback()
    with transaction.atomic(), try_advisory_lock(last, first) as lock:
        lock.ensure_held(first)
        lock.ensure_held(last)
        assert not can_take(somebody_else, first)


@pytest.mark.django_db
@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock])
def test_several_are_taken_once_each_in_the_order_of_their_numbers(take_lock: Any) -> None:
    names = ["ledger/c", "ledger/a", "ledger/b", "ledger/a"]

    with transaction.atomic(), CaptureQueriesContext(connection) as queries, take_lock(*names) as lock:
        assert lock.names == tuple(names)

    taken = [int(found) for query in queries for found in re.findall(r"xact_lock\( ?(-?\d+)\)", query["sql"])]
    assert taken == sorted(lock_number(f"ledger/{letter}") for letter in "abc")
    assert taken != [lock_number(f"ledger/{letter}") for letter in "abc"]


@pytest.mark.django_db
@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock])
def test_costs_one_statement(take_lock: Any, name: str) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, take_lock(name) as lock:
        lock.ensure_held(name)

    assert len(queries) == 1


@pytest.mark.django_db
def test_may_be_taken_again_by_who_holds_it(name: str) -> None:
    with transaction.atomic(), advisory_lock(name) as outer:
        with try_advisory_lock(name) as inner:
            inner.ensure_held(name)
        outer.ensure_held(name)


@pytest.mark.django_db
def test_holder_lock_is_on_the_holders_key(somebody_else: psycopg.Connection[Any]) -> None:
    with transaction.atomic(), holder_lock("42", "43") as lock:
        assert lock.names == ("ledger/42", "ledger/43")
        assert not can_take(somebody_else, "ledger/43")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name", ["*/ SELECT 1; --", "/* x", "ledger/100%s", "ledger/%(x)s", "ledger/é", "ledger/\x00", "", "x" * 5000]
)
def test_takes_any_name_and_lets_none_into_the_statement_that_could_do_harm(name: str) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, advisory_lock(name) as lock:
        lock.ensure_held(name)

    assert re.fullmatch(r"SELECT pg_advisory_xact_lock\( ?-?\d+\)", queries[0]["sql"])


@pytest.mark.django_db
def test_names_itself_in_the_statement_for_who_looks_at_the_server() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, advisory_lock("ledger/42"):
        pass

    assert queries[0]["sql"] == "SELECT pg_advisory_xact_lock(9140064520469341359) /* ledger/42 */"


@pytest.mark.django_db
def test_no_name_is_an_error() -> None:
    with transaction.atomic(), pytest.raises(ValueError, match="a lock needs a name"), advisory_lock():
        pytest.fail("the body must not run")


def test_two_namespaces_do_not_exclude_each_other(
    committed_db: None, settings: Any, somebody_else: psycopg.Connection[Any], new_holder: Callable[[], str]
) -> None:
    holder_id = new_holder()
    take(somebody_else, holder_key(holder_id))
    with transaction.atomic(), pytest.raises(LockBusy), try_advisory_lock(holder_key(holder_id)):
        pytest.fail("the body must not run")

    settings.LEDGER = {**settings.LEDGER, "LOCK_NAMESPACE": "another-application"}

    with transaction.atomic(), try_advisory_lock(holder_key(holder_id)) as lock:
        lock.ensure_held(f"another-application/ledger/{holder_id}")


@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock, locks.holding, holder_lock])
def test_outside_a_transaction_nothing_is_sent(committed_db: None, take_lock: Any) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(NotInTransaction), take_lock("ledger/42"):
        pytest.fail("the body must not run")

    assert len(queries) == 0


# The proof -------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_lock_that_leaked_out_of_its_block_is_refused(somebody_else: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic():
        with advisory_lock(name) as leaked:
            pass
        with pytest.raises(LockNotHeld) as refused:
            leaked.ensure_held(name)

    assert refused.value.facts == {"names": (name,), "why": "its block has ended"}


@pytest.mark.django_db
def test_holds_inside_nested_blocks_whether_they_succeed_or_not(name: str) -> None:
    with transaction.atomic(), advisory_lock(name) as lock:
        with transaction.atomic():
            lock.ensure_held(name)
        with suppress(ZeroDivisionError), transaction.atomic():
            lock.ensure_held(name)
            raise ZeroDivisionError
        lock.ensure_held(name)


class UndoneError(Exception):
    """Rolls a block back."""


@pytest.mark.django_db
def test_a_lock_from_a_rolled_back_savepoint_is_refused_and_the_server_has_indeed_freed_it(
    somebody_else: psycopg.Connection[Any], name: str
) -> None:
    with ExitStack() as left_open, transaction.atomic():
        with suppress(UndoneError), transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
            lock.ensure_held(name)
            assert not can_take(somebody_else, name)
            raise UndoneError

        with pytest.raises(LockNotHeld) as refused:
            lock.ensure_held(name)
        assert refused.value.facts["why"] == "the transaction or savepoint in which it was taken has ended"
        assert can_take(somebody_else, name), "the control: without the refusal, two would now write under one lock"


@pytest.mark.django_db
def test_a_new_savepoint_does_not_stand_in_for_the_one_that_is_gone(name: str) -> None:
    with ExitStack() as left_open, transaction.atomic():
        with suppress(UndoneError), transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
            raise UndoneError
        with transaction.atomic(), pytest.raises(LockNotHeld):
            lock.ensure_held(name)


def test_a_lock_does_not_outlive_its_transaction(committed_db: None, somebody_else: psycopg.Connection[Any], name: str) -> None:
    with ExitStack() as left_open:
        with transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
        with pytest.raises(LockNotHeld):
            lock.ensure_held(name)
        with transaction.atomic(), pytest.raises(LockNotHeld):
            lock.ensure_held(name)
        assert can_take(somebody_else, name)


@pytest.mark.django_db
def test_another_thread_is_refused(name: str) -> None:
    seen: list[Any] = []

    def use(lock: Lock) -> None:
        try:
            lock.ensure_held(name)
        except LockNotHeld as refused:
            seen.append(refused.facts["why"])

    with transaction.atomic(), advisory_lock(name) as lock:
        thread = Thread(target=use, args=(lock,))
        thread.start()
        thread.join()

    assert seen == ["it was taken on another connection or thread"]


@pytest.mark.django_db
def test_is_no_proof_for_another_name(name: str) -> None:
    with transaction.atomic(), advisory_lock(name) as lock, pytest.raises(LockNotHeld) as refused:
        lock.ensure_held("ledger/another")

    assert refused.value.facts == {"names": (name,), "why": "it is on other names", "name": "ledger/another"}


@pytest.mark.django_db
def test_shared_is_not_enough_unless_said(name: str) -> None:
    with transaction.atomic(), advisory_lock(name, shared=True) as lock:
        lock.ensure_held(name, shared_is_enough=True)
        with pytest.raises(LockNotHeld, match="it is only shared"):
            lock.ensure_held(name)


@pytest.mark.django_db
def test_holding_takes_nothing_and_its_proof_ends_with_its_block(somebody_else: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries, locks.holding(name) as lock:
            lock.ensure_held(name)
        assert len(queries) == 0
        assert can_take(somebody_else, name)
        with pytest.raises(LockNotHeld):
            lock.ensure_held(name)


# Errors are told apart by SQLSTATE -------------------------------------------------------------------


class ServerError(Exception):
    """What the driver raises."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("Sperre konnte nicht erworben werden")
        self.sqlstate = sqlstate


def test_a_lock_timeout_is_known_by_its_state_in_any_language() -> None:
    with pytest.raises(HolderBusy) as busy, locks.waiting_for("ledger/42"):
        raise OperationalError("Zeitüberschreitung") from ServerError("55P03")

    assert busy.value.facts == {"key": "ledger/42"}


@pytest.mark.parametrize("sqlstate", ["40P01", "57014", "57P01"])
def test_deadlocks_cancellations_and_shutdowns_are_passed_on(sqlstate: str) -> None:
    with pytest.raises(OperationalError, match="canceling statement due to lock timeout"), locks.waiting_for("ledger/42"):
        raise OperationalError("canceling statement due to lock timeout") from ServerError(sqlstate)


# What the code must not say --------------------------------------------------------------------------


def sources(*suffixes: str) -> Iterator[tuple[Path, str]]:
    for room in PRODUCT:
        for path in sorted(room.rglob("*")):
            if path.suffix in suffixes:
                yield path, path.read_text()


def test_no_session_level_lock_is_used_on_any_connection_that_a_pooler_may_share() -> None:
    """Behind PgBouncer in transaction mode a session-level lock stays with a connection that somebody else gets next.

    Preparing the database is one command on the owner's connection, whose migrations are many transactions.
    """
    session_level = re.compile(r"pg_(try_)?advisory_(un)?lock(_shared|_all)?\b")

    assert session_level.search("SELECT pg_advisory_lock(1)")
    assert not session_level.search("SELECT pg_try_advisory_xact_lock_shared(1)")
    assert [path.name for path, text in sources(".py", ".sql") if session_level.search(text)] in ([], ["bootstrap.py"])


def uses_holding(text: str) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "holding")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "holding" for alias in node.names))
        for node in ast.walk(ast.parse(text))
    )


def test_only_the_journal_may_vouch_for_locks_that_it_took_itself() -> None:
    assert uses_holding("from ledger.database.locks import holding")
    assert uses_holding("with locks.holding('ledger/42'): ...")
    assert {path.name for path, text in sources(".py") if uses_holding(text)} <= {"journal.py"}


def test_many_locks_are_taken_in_one_statement_in_the_order_of_their_numbers(
    committed_db: None, somebody_else: psycopg.Connection[Any], name: str
) -> None:
    names = [f"{name}/{index}" for index in range(50)]
    in_order = sorted(lock_number(each) for each in names)
    taken: list[int] = []

    def record(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        taken.extend(params[0])
        return execute(sql, params, many, context)

    with transaction.atomic(), connection.execute_wrapper(record), advisory_lock(*names) as lock:
        lock.ensure_held(names[17])
        busy = [
            somebody_else.execute("SELECT pg_try_advisory_xact_lock(%s)", [number]).fetchone() == (False,) for number in in_order
        ]
    assert taken == in_order
    assert all(busy)
