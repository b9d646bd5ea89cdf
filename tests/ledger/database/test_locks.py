"""Advisory locks: which locks are taken, how long the proof `Lock` is valid, and which errors are raised."""

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

from ledger import journal
from ledger.database import locks
from ledger.database.locks import Lock, advisory_lock, holder_key, holder_lock, lock_number, try_advisory_lock
from ledger.errors import HolderBusy, LockBusy, LockNotHeld, NotInTransaction

Connect = Callable[..., psycopg.Connection[Any]]
APPLICATIONS = [Path(settings.BASE_DIR) / name for name in ("ledger", "billing", "ledger_project")]


@pytest.fixture
def other_session(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A second session in a separate transaction."""
    return raw_connection()


def can_take(session: psycopg.Connection[Any], name: str, *, shared: bool = False) -> bool:
    """Try the lock in the session, free it again, and return whether the session got it."""
    row = session.execute(f"SELECT pg_try_advisory_xact_lock{'_shared' if shared else ''}(%s)", [lock_number(name)]).fetchone()
    session.rollback()
    return row == (True,)


def take(session: psycopg.Connection[Any], name: str, *, shared: bool = False) -> None:
    """Take the lock in the session, until its transaction ends."""
    session.execute(f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(%s)", [lock_number(name)])


@pytest.fixture
def name(new_holder: Callable[[], str]) -> str:
    """The name of a lock that no other test takes."""
    return f"ledger/{new_holder()}"


# Taking ----------------------------------------------------------------------------------------------


def test_a_lock_excludes_other_sessions_until_the_transaction_ends(
    committed_db: None, other_session: psycopg.Connection[Any], name: str
) -> None:
    with transaction.atomic():
        with advisory_lock(name) as lock:
            lock.ensure_held(name)
            assert not can_take(other_session, name)
        assert not can_take(other_session, name), "the end of the block must free nothing: the row is not yet committed"

    assert can_take(other_session, name)


@pytest.mark.django_db
def test_a_lock_is_in_pg_locks_under_its_number(other_session: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic(), advisory_lock(name):
        row = other_session.execute(
            "SELECT mode, granted FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
            " AND classid::bigint << 32 | objid::bigint = %s",
            [lock_number(name)],
        ).fetchall()

    assert row == [("ExclusiveLock", True)]


@pytest.mark.parametrize(
    ("held_shared", "wanted_shared", "is_granted"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_only_two_shared_locks_can_be_held_at_the_same_time(
    committed_db: None,
    other_session: psycopg.Connection[Any],
    name: str,
    held_shared: bool,
    wanted_shared: bool,
    is_granted: bool,
) -> None:
    with transaction.atomic(), advisory_lock(name, shared=held_shared):
        assert can_take(other_session, name, shared=wanted_shared) is is_granted

    take(other_session, name, shared=held_shared)
    if is_granted:
        with transaction.atomic(), try_advisory_lock(name, shared=wanted_shared) as lock:
            lock.ensure_held(name, shared_is_enough=wanted_shared)
    else:
        with transaction.atomic(), pytest.raises(LockBusy), try_advisory_lock(name, shared=wanted_shared):
            pytest.fail("the body must not run")


@pytest.mark.django_db
def test_trying_a_busy_lock_fails_at_once_and_the_transaction_can_continue(
    other_session: psycopg.Connection[Any], name: str
) -> None:
    take(other_session, name)

    with transaction.atomic():
        with pytest.raises(LockBusy) as refused, try_advisory_lock(name):
            pytest.fail("the body must not run")
        assert refused.value.facts == {"key": name}
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)


@pytest.mark.django_db
def test_trying_several_locks_keeps_no_lock_if_one_is_busy(
    raw_connection: Connect, other_session: psycopg.Connection[Any], new_holder: Callable[[], str]
) -> None:
    first, last = sorted((f"ledger/{new_holder()}", f"ledger/{new_holder()}"), key=lock_number)
    take(other_session, last)

    with transaction.atomic():
        with pytest.raises(LockBusy) as refused, try_advisory_lock(last, first):
            pytest.fail("the body must not run")
        assert refused.value.facts == {"key": last}
        assert can_take(raw_connection(), first)

    other_session.rollback()
    with transaction.atomic(), try_advisory_lock(last, first) as lock:
        lock.ensure_held(first)
        lock.ensure_held(last)
        assert not can_take(other_session, first)


@pytest.mark.django_db
@pytest.mark.parametrize("holders", [("afF", "aAA"), ("aAA", "afF")])
def test_holders_whose_locks_share_a_number_are_locked_both_in_one_order(settings: Any, holders: tuple[str, str]) -> None:
    """On a cluster they may be on two nodes. The ids are from test_lock_keys."""
    settings.LEDGER = {**settings.LEDGER, "LOCK_KEY_SCHEME": "string-hash-32", "LOCK_NAMESPACE": ""}
    taken: list[str] = []

    def record(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "ledger_lock" in sql:
            taken.append(params[1])
        elif "ledger_open" in sql:
            taken.extend(re.findall(r"\w+", params[2].decode()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        with transaction.atomic(), holder_lock(*holders):
            pass
        with transaction.atomic(), journal.open(accounts=[(holder, "credits") for holder in holders]):
            pass

    assert lock_number("ledger/afF") == lock_number("ledger/aAA")
    assert taken == ["aAA", "afF", "aAA", "afF"]


@pytest.mark.django_db
@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock])
def test_several_locks_are_taken_once_each_in_the_order_of_their_numbers(take_lock: Any) -> None:
    names = ["ledger/c", "ledger/a", "ledger/b", "ledger/a"]

    with transaction.atomic(), CaptureQueriesContext(connection) as queries, take_lock(*names) as lock:
        assert lock.names == tuple(names)

    taken = [int(found) for query in queries for found in re.findall(r"xact_lock\( ?(-?\d+)\)", query["sql"])]
    assert taken == sorted(lock_number(f"ledger/{letter}") for letter in "abc")
    assert taken != [lock_number(f"ledger/{letter}") for letter in "abc"]


@pytest.mark.django_db
@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock])
def test_a_lock_costs_one_statement(take_lock: Any, name: str) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, take_lock(name) as lock:
        lock.ensure_held(name)

    assert len(queries) == 1


@pytest.mark.django_db
def test_a_session_may_take_a_lock_that_it_already_holds(name: str) -> None:
    with transaction.atomic(), advisory_lock(name) as outer:
        with try_advisory_lock(name) as inner:
            inner.ensure_held(name)
        outer.ensure_held(name)


@pytest.mark.django_db
def test_every_lock_of_a_holder_is_taken_by_one_function(other_session: psycopg.Connection[Any]) -> None:
    """So that distributing that function moves the lock to where the holder's rows are: without it, nothing is locked."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA elsewhere")
            cursor.execute(
                "CREATE FUNCTION elsewhere.ledger_lock(number bigint, holder text, wait boolean) RETURNS boolean"
                " LANGUAGE sql VOLATILE RETURN holder <> 'nobody'"
            )
            cursor.execute("SET LOCAL search_path = elsewhere, public")
            signature = "boolean, bigint[], text[], text[], text[], boolean"
            cursor.execute(f"ALTER FUNCTION ledger_open({signature}) SET search_path = elsewhere, public")
        with (
            holder_lock("42", "43"),
            journal.open(accounts=[("44", "credits")]),
            journal.open(accounts=[("45", "credits")], wait=False) as accounts,
        ):
            assert accounts.covers(("45", "credits"))
        for holder in ("42", "43", "44", "45"):
            assert can_take(other_session, holder_key(holder))
        transaction.set_rollback(True)


@pytest.mark.django_db
def test_holder_lock_takes_the_lock_ledger_slash_holder(other_session: psycopg.Connection[Any]) -> None:
    with transaction.atomic(), holder_lock("42", "43") as lock:
        assert lock.names == ("ledger/42", "ledger/43")
        asked = "SELECT ledger_lock(%s, '43', false)"
        assert other_session.execute(asked, [lock_number("ledger/43")]).fetchone() == (False,)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name", ["*/ SELECT 1; --", "/* x", "ledger/100%s", "ledger/%(x)s", "ledger/é", "ledger/\x00", "", "x" * 5000]
)
def test_any_name_can_be_locked_but_unsafe_names_are_left_out_of_the_statement(name: str) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, advisory_lock(name) as lock:
        lock.ensure_held(name)

    assert re.fullmatch(r"SELECT pg_advisory_xact_lock\( ?-?\d+\)", queries[0]["sql"])


@pytest.mark.django_db
def test_the_statement_names_the_lock_in_a_comment() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries, advisory_lock("ledger/42"):
        pass

    assert queries[0]["sql"] == "SELECT pg_advisory_xact_lock(9140064520469341359) /* ledger/42 */"


@pytest.mark.django_db
def test_a_lock_without_a_name_is_an_error() -> None:
    with transaction.atomic(), pytest.raises(ValueError, match="a lock needs a name"), advisory_lock():
        pytest.fail("the body must not run")


def test_locks_of_two_namespaces_do_not_exclude_each_other(
    committed_db: None, settings: Any, other_session: psycopg.Connection[Any], new_holder: Callable[[], str]
) -> None:
    holder_id = new_holder()
    take(other_session, holder_key(holder_id))
    with transaction.atomic(), pytest.raises(LockBusy), try_advisory_lock(holder_key(holder_id)):
        pytest.fail("the body must not run")

    settings.LEDGER = {**settings.LEDGER, "LOCK_NAMESPACE": "another-application"}

    with transaction.atomic(), try_advisory_lock(holder_key(holder_id)) as lock:
        lock.ensure_held(f"another-application/ledger/{holder_id}")


@pytest.mark.parametrize("take_lock", [advisory_lock, try_advisory_lock, locks.holding, holder_lock])
def test_a_lock_outside_a_transaction_is_refused_and_nothing_is_sent(committed_db: None, take_lock: Any) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(NotInTransaction), take_lock("ledger/42"):
        pytest.fail("the body must not run")

    assert len(queries) == 0


# The proof -------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_lock_is_no_proof_after_its_block(other_session: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic():
        with advisory_lock(name) as leaked:
            pass
        with pytest.raises(LockNotHeld) as refused:
            leaked.ensure_held(name)

    assert refused.value.facts == {"names": (name,), "why": "its block has ended"}


@pytest.mark.django_db
def test_a_lock_is_a_proof_inside_nested_blocks_and_after_a_failed_one(name: str) -> None:
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
def test_a_lock_of_a_rolled_back_savepoint_is_no_proof_because_the_server_has_freed_it(
    other_session: psycopg.Connection[Any], name: str
) -> None:
    with ExitStack() as left_open, transaction.atomic():
        with suppress(UndoneError), transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
            lock.ensure_held(name)
            assert not can_take(other_session, name)
            raise UndoneError

        with pytest.raises(LockNotHeld) as refused:
            lock.ensure_held(name)
        assert refused.value.facts["why"] == "the transaction or savepoint in which it was taken has ended"
        assert can_take(other_session, name), "the control: without the refusal, two sessions would write under one lock"


@pytest.mark.django_db
def test_a_new_savepoint_does_not_replace_the_rolled_back_one(name: str) -> None:
    with ExitStack() as left_open, transaction.atomic():
        with suppress(UndoneError), transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
            raise UndoneError
        with transaction.atomic(), pytest.raises(LockNotHeld):
            lock.ensure_held(name)


def test_a_lock_is_no_proof_after_its_transaction_nor_in_the_next_one(
    committed_db: None, other_session: psycopg.Connection[Any], name: str
) -> None:
    with ExitStack() as left_open:
        with transaction.atomic():
            lock = left_open.enter_context(advisory_lock(name))
        with pytest.raises(LockNotHeld):
            lock.ensure_held(name)
        with transaction.atomic(), pytest.raises(LockNotHeld):
            lock.ensure_held(name)
        assert can_take(other_session, name)


@pytest.mark.django_db
def test_a_lock_is_no_proof_in_another_thread(name: str) -> None:
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
def test_a_lock_is_no_proof_for_another_name(name: str) -> None:
    with transaction.atomic(), advisory_lock(name) as lock, pytest.raises(LockNotHeld) as refused:
        lock.ensure_held("ledger/another")

    assert refused.value.facts == {"names": (name,), "why": "it is on other names", "name": "ledger/another"}


@pytest.mark.django_db
def test_a_shared_lock_is_a_proof_only_where_shared_is_enough(name: str) -> None:
    with transaction.atomic(), advisory_lock(name, shared=True) as lock:
        lock.ensure_held(name, shared_is_enough=True)
        with pytest.raises(LockNotHeld, match="it is only shared"):
            lock.ensure_held(name)


@pytest.mark.django_db
def test_holding_takes_no_lock_and_its_proof_ends_with_its_block(other_session: psycopg.Connection[Any], name: str) -> None:
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries, locks.holding(name) as lock:
            lock.ensure_held(name)
        assert len(queries) == 0
        assert can_take(other_session, name)
        with pytest.raises(LockNotHeld):
            lock.ensure_held(name)


# Errors are told apart by SQLSTATE -------------------------------------------------------------------


class ServerError(Exception):
    """An error of the driver, with a translated message."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("Sperre konnte nicht erworben werden")
        self.sqlstate = sqlstate


def test_a_lock_timeout_is_recognised_by_its_sqlstate_in_any_language() -> None:
    with pytest.raises(HolderBusy) as busy, locks.waiting_for("ledger/42"):
        raise OperationalError("Zeitüberschreitung") from ServerError("55P03")

    assert busy.value.facts == {"key": "ledger/42"}


@pytest.mark.parametrize("sqlstate", ["40P01", "57014", "57P01"])
def test_deadlocks_cancellations_and_shutdowns_are_raised_unchanged(sqlstate: str) -> None:
    with pytest.raises(OperationalError, match="canceling statement due to lock timeout"), locks.waiting_for("ledger/42"):
        raise OperationalError("canceling statement due to lock timeout") from ServerError(sqlstate)


# Rules for the source code -----------------------------------------------------------------------------


def sources(*suffixes: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of the product with these suffixes, and their text."""
    for application in APPLICATIONS:
        for path in sorted(application.rglob("*")):
            if path.suffix in suffixes:
                yield path, path.read_text()


def test_no_session_level_lock_is_used_except_to_prepare_the_database() -> None:
    """Behind PgBouncer in transaction mode a session-level lock would stay on a connection that another client gets next.

    Preparing the database needs one: its migrations are many transactions on the owner's direct connection.
    """
    session_level = re.compile(r"pg_(try_)?advisory_(un)?lock(_shared|_all)?\b")

    assert session_level.search("SELECT pg_advisory_lock(1)")
    assert not session_level.search("SELECT pg_try_advisory_xact_lock_shared(1)")
    assert [path.name for path, text in sources(".py", ".sql") if session_level.search(text)] in ([], ["bootstrap.py"])


def uses_holding(text: str) -> bool:
    """Return whether the Python source uses `locks.holding`."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "holding")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "holding" for alias in node.names))
        for node in ast.walk(ast.parse(text))
    )


@pytest.mark.slow
@pytest.mark.check
def test_only_the_journal_uses_holding() -> None:
    assert uses_holding("from ledger.database.locks import holding")
    assert uses_holding("with locks.holding('ledger/42'): ...")
    assert {path.name for path, text in sources(".py") if uses_holding(text)} <= {"journal.py"}


def test_many_locks_are_taken_in_one_statement_in_the_order_of_their_numbers(
    committed_db: None, other_session: psycopg.Connection[Any], name: str
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
            other_session.execute("SELECT pg_try_advisory_xact_lock(%s)", [number]).fetchone() == (False,) for number in in_order
        ]
    assert taken == in_order
    assert all(busy)
