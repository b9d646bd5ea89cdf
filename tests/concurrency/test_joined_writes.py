"""Writes inside a transaction of the caller: with it they are committed or rolled back, and their locks are held to its end."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ledger import journal, reads, services
from ledger.database import locks, transactions
from ledger.database.locks import holder_key, lock_number, sqlstate
from ledger.database.statements import fetch_value
from ledger.errors import HolderBusy, InsufficientCredits, LocksOutOfOrder, SequenceTaken, UnsafeDatabase
from ledger.rules.entries import Entry
from ledger.rules.requests import SpendRequest
from ledger.services import execute
from tests import nodes
from tests.concurrency.race_harness import no_lock
from tests.conftest import wait_until_waiting
from tests.nodes import Session, lock_holder, neighbours

Connect = Callable[..., psycopg.Connection[Any]]
NewHolder = Callable[[], str]
RunThreads = Callable[..., list[Any]]

pytestmark = pytest.mark.usefixtures("committed_db")


class Failed(Exception):
    """What goes wrong in the caller's own code."""


@pytest.fixture
def other(raw_connection: Connect) -> Session:
    """A second session, in autocommit: it sees what is committed."""
    return raw_connection(autocommit=True)


@pytest.fixture
def order(raw_connection: Connect) -> Iterator[Callable[[], None]]:
    """Inserts a row into the caller's own table, whose name is `order.table`."""
    owner, table = raw_connection(autocommit=True), f"shop_order_{uuid.uuid4().hex[:12]}"
    owner.execute(f"CREATE TABLE {table} (number int)")

    def insert() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (1)")

    insert.table = table  # type: ignore[attr-defined]
    yield insert
    connection.close()
    owner.execute(f"DROP TABLE {table}")


@pytest.fixture
def ada(new_holder: NewHolder) -> str:
    """A holder with 100 credits."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="g")
    return holder


def orders(session: Session, order: Any) -> int:
    """How many orders the session sees."""
    return len(session.execute(f"SELECT FROM {order.table}").fetchall())


def keys(session: Session, holder: str) -> list[str]:
    """The keys of the holder's entries that the session sees, without the grant that made it."""
    found = session.execute(
        "SELECT idempotency_key FROM ledger_entry WHERE holder_id = %s AND idempotency_key <> 'g' ORDER BY sequence", [holder]
    )
    return [key for (key,) in found]


def is_free(session: Session, holder: str) -> bool:
    """Whether the session, in autocommit, gets the holder's lock; it frees the lock at once."""
    [(is_locked,)] = session.execute("SELECT ledger_lock(%s, %s, false)", [lock_number(holder_key(holder)), holder])
    return bool(is_locked)


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction of the caller, or a savepoint of it, that is rolled back."""
    with suppress(Failed), transaction.atomic():
        yield
        raise Failed


@contextmanager
def thread() -> Iterator[Callable[[Callable[[], Any]], "Future[Any]"]]:
    """Gives a function that runs work in a thread, so in another session."""

    def closing(work: Callable[[], Any]) -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(closing, work)


def elsewhere(work: Callable[[], Any]) -> Any:
    """Run the work in another session, so not in the caller's transaction."""
    with thread() as submit:
        return submit(work).result(30)


# Both or neither -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "control: in a transaction of its own"])
def test_an_order_and_its_spend_are_both_there_or_neither(other, order, ada, is_joined):
    def spend(key: str) -> None:
        services.spend(holder_id=ada, amount=10, idempotency_key=key)

    with rolled_back():
        order()
        spend("first") if is_joined else elsewhere(lambda: spend("first"))
        assert orders(other, order) == 0
        assert keys(other, ada) == ([] if is_joined else ["first"])
    assert (orders(other, order), keys(other, ada)) == (0, [] if is_joined else ["first"])
    if is_joined:
        with transaction.atomic():
            order()
            spend("first")
            assert (orders(other, order), keys(other, ada)) == (0, [])
        assert (orders(other, order), keys(other, ada)) == (1, ["first"])


TOMORROW = timezone.now() + timedelta(days=1)


def use_cases(holder: str, friend: str) -> dict[str, Callable[[], Any]]:
    """Every use-case that writes to a holder, for one with a grant 1, a spend 2 and a hold 3."""
    return {
        "grant": lambda: services.grant(holder_id=holder, amount=1, idempotency_key="k"),
        "spend": lambda: services.spend(holder_id=holder, amount=1, idempotency_key="k"),
        "refund": lambda: services.refund(holder_id=holder, spend=2, idempotency_key="k"),
        "revoke": lambda: services.revoke(holder_id=holder, grant=1, idempotency_key="k"),
        "set_overdraft": lambda: services.set_overdraft(holder_id=holder, limit=1, idempotency_key="k"),
        "hold": lambda: services.hold(holder_id=holder, amount=1, idempotency_key="k"),
        "capture": lambda: services.capture(holder_id=holder, hold=3, idempotency_key="k"),
        "release": lambda: services.release(holder_id=holder, hold=3, idempotency_key="k"),
        "extend": lambda: services.extend(holder_id=holder, hold=3, expires_at=TOMORROW, idempotency_key="k"),
        "transfer": lambda: services.transfer(holder_id=holder, to=friend, amount=1, idempotency_key="k"),
        "set_incoming_transfers": lambda: services.set_incoming_transfers(holder_id=holder, accepted=False, idempotency_key="k"),
        "batch": lambda: services.batch(
            [SpendRequest(holder_id=holder, amount=1, idempotency_key="k")], mode="atomic", idempotency_key=f"batch {holder}"
        ),
    }


@pytest.mark.parametrize("name", use_cases("", ""))
def test_each_use_case_joins(other, ada, new_holder, name):
    services.spend(holder_id=ada, amount=5, idempotency_key="s")
    services.hold(holder_id=ada, amount=5, idempotency_key="h")
    use_case = use_cases(ada, new_holder())[name]
    with rolled_back():
        use_case()
        assert not is_free(other, ada)
    assert keys(other, ada) == ["s", "h"]
    with transaction.atomic():
        use_case()
        assert keys(other, ada) == ["s", "h"]
    assert keys(other, ada) == ["s", "h", "k"]
    use_case()
    assert keys(other, ada) == ["s", "h", "k"], "the second call is a replay"


def test_a_hold_its_capture_and_the_booking_of_what_is_due_share_the_callers_transaction(other, ada):
    def charge() -> None:
        held = services.hold(holder_id=ada, amount=30, idempotency_key="h")
        services.capture(holder_id=ada, hold=held.sequence, amount=20, idempotency_key="c")
        assert services.book_expirations(holder_id=ada) == []

    with rolled_back():
        charge()
    assert (keys(other, ada), reads.balance(ada).balance) == ([], 100)
    with transaction.atomic():
        charge()
        assert keys(other, ada) == []
    assert (keys(other, ada), reads.balance(ada).balance) == (["h", "c"], 80)


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "control: in a transaction of its own"])
def test_reads_see_what_the_callers_transaction_has_written_and_other_sessions_do_not(ada, is_joined):
    def seen() -> tuple[int, int, int]:
        found = reads.balance(ada)
        return found.balance, len(reads.entries(ada)), len(reads.page_of_holds(found))

    def hold() -> None:
        services.hold(holder_id=ada, amount=30, idempotency_key="h")

    with rolled_back():
        hold() if is_joined else elsewhere(hold)
        assert seen() == (70, 2, 1)
        assert elsewhere(seen) == ((100, 1, 0) if is_joined else (70, 2, 1))
    assert seen() == ((100, 1, 0) if is_joined else (70, 2, 1))


def test_a_rate_and_a_spend_by_it_share_the_callers_transaction(ada):
    code = f"rate-{uuid.uuid4().hex[:12]}"

    def publish_and_spend() -> int:
        services.publish_rate(code=code, price=7, per=1)
        return services.spend(holder_id=ada, rate=code, quantity=2, idempotency_key="s").amount

    with rolled_back():
        assert publish_and_spend() == -14
    assert services.current_rate(code) is None
    with transaction.atomic():
        publish_and_spend()
    assert (services.current_rate(code).version, reads.balance(ada).balance) == (1, 86)


def test_a_dry_run_inside_a_transaction_writes_nothing_and_frees_its_lock(other, order, ada):
    with transaction.atomic():
        order()
        assert services.spend(holder_id=ada, amount=10, idempotency_key="s", dry_run=True).amount == -10
        assert is_free(other, ada)
    assert (orders(other, order), keys(other, ada)) == (1, [])


def test_a_write_costs_three_short_statements_more_where_it_joins(ada):
    with CaptureQueriesContext(connection) as alone:
        services.spend(holder_id=ada, amount=1, idempotency_key="alone")
    with transaction.atomic(), CaptureQueriesContext(connection) as joined:
        services.spend(holder_id=ada, amount=1, idempotency_key="joined")
    sent = [query["sql"] for query in alone if query["sql"] not in ("BEGIN", "COMMIT")]
    assert len(sent) == 2
    assert [query["sql"].split()[0] for query in joined] == ["SELECT", "SAVEPOINT", "SELECT", "INSERT", "RELEASE"]


# Refusals --------------------------------------------------------------------------------------------


def spend_too_much(holder: str) -> Entry:
    return services.spend(holder_id=holder, amount=1_000, idempotency_key="s")


def test_a_refusal_that_is_caught_is_on_record_once_the_caller_commits(other, order, ada):
    with transaction.atomic():
        order()
        with pytest.raises(InsufficientCredits):
            spend_too_much(ada)
        with pytest.raises(InsufficientCredits) as again:
            spend_too_much(ada)
        assert again.value.replayed
        assert keys(other, ada) == []
    assert (orders(other, order), keys(other, ada)) == (1, ["s"])
    services.grant(holder_id=ada, amount=1_000, idempotency_key="more")
    with pytest.raises(InsufficientCredits) as later:
        spend_too_much(ada)
    assert later.value.replayed


def test_a_refusal_that_is_let_through_leaves_nothing_and_its_key_is_decided_again(other, order, ada):
    @transaction.atomic
    def buy() -> None:
        order()
        spend_too_much(ada)

    with pytest.raises(InsufficientCredits):
        buy()
    assert (orders(other, order), keys(other, ada)) == (0, [])
    services.grant(holder_id=ada, amount=1_000, idempotency_key="more")
    assert not spend_too_much(ada).replayed


def test_control_a_refusal_raised_inside_the_savepoint_rolls_back_its_own_entry(other, ada, monkeypatch):
    def raises_inside(once: Callable[[], Any], **about: Any) -> None:
        with transaction.atomic():
            execute.unwrap(once())

    with transaction.atomic(), monkeypatch.context() as patched:
        patched.setattr(execute, "in_transaction", raises_inside)
        with pytest.raises(InsufficientCredits):
            spend_too_much(ada)
    assert keys(other, ada) == [], "the caller has caught and committed, and nothing is on record"


def test_a_batch_keeps_its_refusals_only_if_the_caller_commits(other, ada, new_holder):
    key, bob = f"batch {ada}", new_holder()

    def pay() -> services.BatchResult:
        requests = [SpendRequest(holder_id=each, amount=10, idempotency_key="s") for each in (ada, bob)]
        return services.batch(requests, mode="each", idempotency_key=key)

    with rolled_back():
        assert [outcome.entry is None for outcome in pay().outcomes] == [False, True]
    assert (keys(other, ada), keys(other, bob)) == ([], [])
    with transaction.atomic():
        assert not pay().replayed
    assert (keys(other, ada), keys(other, bob)) == (["s"], ["s"])
    assert pay().replayed


def test_what_is_counted_and_logged_is_committed(ada, monkeypatch, caplog):
    counted: list[Any] = []
    monkeypatch.setattr(execute, "count_operations", counted.extend)
    with caplog.at_level("INFO", "ledger.refusals"):
        for key in ("rolled back", "committed"):
            with suppress(Failed), transaction.atomic():
                with suppress(InsufficientCredits):
                    services.spend(holder_id=ada, amount=1_000, idempotency_key=key)
                assert (counted, caplog.messages) == ([], [])
                if key == "rolled back":
                    raise Failed
    assert [request.idempotency_key for request, _ in counted] == ["committed"]
    assert caplog.messages == ["spend refused"]


# Locks -----------------------------------------------------------------------------------------------


def test_the_lock_is_held_to_the_end_of_the_callers_transaction(other, ada):
    with thread() as submit:
        sessions: Future[int] = Future()

        def spend_too() -> int:
            sessions.set_result(nodes.session_id())
            return services.spend(holder_id=ada, amount=1, idempotency_key="other").balance

        with transaction.atomic():
            services.spend(holder_id=ada, amount=10, idempotency_key="s")
            waiting = submit(spend_too)
            wait_until_waiting(other, sessions.result(30))
            assert keys(other, ada) == []
        waiting.result(30)
    assert keys(other, ada) == ["s", "other"]


def test_control_the_lock_of_a_transaction_of_its_own_is_free_before_the_caller_ends(other, ada):
    with transaction.atomic():
        elsewhere(lambda: services.spend(holder_id=ada, amount=10, idempotency_key="s"))
        assert is_free(other, ada)


@pytest.mark.parametrize("is_trusted", [False, True], ids=["each write takes its lock", "control: an earlier lock is trusted"])
def test_a_savepoint_that_was_rolled_back_leaves_nothing_and_the_next_write_sees_that(other, ada, is_trusted):
    """The lock goes with the savepoint, so another session can write before the next write; the control then collides with it."""
    with transaction.atomic():
        with rolled_back():
            services.spend(holder_id=ada, amount=100, idempotency_key="rolled back")
            assert not is_free(other, ada)
        assert is_free(other, ada)
        if not is_trusted:
            assert services.spend(holder_id=ada, amount=60, idempotency_key="s").balance == 40
            assert not is_free(other, ada)
        else:
            request = SpendRequest(holder_id=ada, amount=60, idempotency_key="s")
            with no_lock(holder_key(ada)) as lock, journal.open([request], held=lock) as accounts:
                elsewhere(lambda: services.spend(holder_id=ada, amount=60, idempotency_key="other"))
                with pytest.raises(DatabaseError) as collided, transaction.atomic():
                    execute.execute(accounts, [request])
            assert sqlstate(collided.value) in transactions.COLLIDED
    assert keys(other, ada) == (["other"] if is_trusted else ["s"])


@pytest.mark.parametrize("has_savepoint", [True, False], ids=["in a savepoint", "control: without a savepoint"])
def test_a_busy_holder_is_an_error_after_which_the_caller_can_go_on(other, order, ada, new_holder, raw_connection, has_savepoint):
    bob = new_holder()
    lock_holder(raw_connection(), bob)
    with rolled_back() if not has_savepoint else transaction.atomic():
        order()
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'")
        if not has_savepoint:
            request = SpendRequest(holder_id=bob, amount=1, idempotency_key="s")
            with pytest.raises(HolderBusy), journal.open([request]):
                pass
            with pytest.raises(DatabaseError) as aborted:
                order()
            assert sqlstate(aborted.value) == "25P02"
            connection.set_rollback(True)
            return
        with pytest.raises(HolderBusy) as busy:
            services.spend(holder_id=bob, amount=1, idempotency_key="s")
        assert busy.value.facts == {"key": holder_key(bob), "what_to_do": "repeat the transaction"}
        services.spend(holder_id=ada, amount=1, idempotency_key="s")
        order()
        assert fetch_value(str, "SELECT current_setting('lock_timeout')") == "50ms"
    assert (orders(other, order), keys(other, bob)) == (2, [])


def test_a_wait_is_bounded_where_the_caller_has_no_lock_timeout_which_stays_as_it_was(raw_connection, new_holder, monkeypatch):
    ada, bob = in_order(new_holder)
    lock_holder(raw_connection(), bob)
    monkeypatch.setattr(transactions, "LOCK_TIMEOUT_MS", 50)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = 0")
        services.spend(holder_id=ada, amount=1, idempotency_key="s")
        assert fetch_value(str, "SELECT current_setting('lock_timeout')") == "0"
        with pytest.raises(HolderBusy):
            services.spend(holder_id=bob, amount=1, idempotency_key="s")
        assert fetch_value(str, "SELECT current_setting('lock_timeout')") == "0"


def test_a_wait_that_leaves_little_of_the_deadline_does_not_shorten_the_callers_later_waits(ada, monkeypatch):
    monkeypatch.setattr(transactions, "waits_bounded", lambda: locks.waits_bounded(1.0))
    setting = "SELECT current_setting('lock_timeout')"
    before, within = fetch_value(str, setting), []

    def looking(once: Callable[[], Any], **about: Any) -> Any:
        return transactions.in_transaction(lambda: (once(), within.append(fetch_value(str, setting)))[0], **about)

    monkeypatch.setattr(execute, "in_transaction", looking)
    with transaction.atomic():
        services.spend(holder_id=ada, amount=1, idempotency_key="s")
        assert fetch_value(str, setting) == before
    assert before not in within


# Several holders -------------------------------------------------------------------------------------


def number(holder: str) -> int:
    """The holder's place in the order of locks."""
    return lock_number(holder_key(holder))


def in_order(new_holder: NewHolder) -> list[str]:
    """Two new holders with 100 credits each, in the order of their locks."""
    holders = sorted(neighbours(new_holder), key=number)
    for holder in holders:
        services.grant(holder_id=holder, amount=100, idempotency_key="g")
    return holders


def spend_of_each(holders: list[str], between: Callable[[], Any] = lambda: None) -> None:
    first, second = holders
    services.spend(holder_id=first, amount=1, idempotency_key=f"s{uuid.uuid4().hex}")
    between()
    services.spend(holder_id=second, amount=1, idempotency_key=f"s{uuid.uuid4().hex}")


def test_two_holders_are_locked_in_the_order_of_their_numbers_or_an_error_names_it(other, new_holder):
    holders = in_order(new_holder)
    with transaction.atomic():
        spend_of_each(holders)
        spend_of_each(holders[::-1])  # both are locked by now
    with pytest.raises(LocksOutOfOrder) as out_of_order, transaction.atomic():
        spend_of_each(holders[::-1])
    assert out_of_order.value.facts["locks"] == [holder_key(holder) for holder in holders]
    assert [len(keys(other, holder)) for holder in holders] == [2, 2]
    with transaction.atomic():
        services.transfer(holder_id=holders[1], to=holders[0], amount=1, idempotency_key="t")
        spend_of_each(holders[::-1])
    assert [len(keys(other, holder)) for holder in holders] == [3, 4]


def test_a_transfer_to_a_holder_that_comes_before_is_out_of_order_too(other, new_holder):
    first, second = in_order(new_holder)
    with transaction.atomic():
        services.spend(holder_id=second, amount=1, idempotency_key="s")
        with pytest.raises(LocksOutOfOrder):
            services.transfer(holder_id=second, to=first, amount=1, idempotency_key="t")
        assert is_free(other, first)
    assert (keys(other, first), keys(other, second)) == ([], ["s"])


def test_the_order_counts_for_what_is_locked_now(new_holder):
    first, second = in_order(new_holder)
    with transaction.atomic():
        with rolled_back():
            services.spend(holder_id=second, amount=1, idempotency_key="rolled back")
        services.spend(holder_id=first, amount=1, idempotency_key="s")
    with transaction.atomic():
        with transaction.atomic():
            services.spend(holder_id=second, amount=1, idempotency_key="released")
        with pytest.raises(LocksOutOfOrder):
            services.spend(holder_id=first, amount=1, idempotency_key="t")
    with transaction.atomic():
        services.spend(holder_id=first, amount=1, idempotency_key="in the next transaction")


def test_transactions_of_a_test_case_count_as_transactions(new_holder):
    """What the first has locked says nothing of the second, although the server frees no lock before the test ends."""
    first, second = in_order(new_holder)
    test_case = transaction.atomic()
    test_case._from_testcase = True  # as Django's TestCase does
    with suppress(Failed), test_case:
        with transaction.atomic():
            services.spend(holder_id=second, amount=1, idempotency_key="s")
        with transaction.atomic(), services.holder_lock(first):
            services.spend(holder_id=first, amount=1, idempotency_key="s")
        with transaction.atomic():
            services.spend(holder_id=second, amount=1, idempotency_key="t")
            with pytest.raises(LocksOutOfOrder):
                services.spend(holder_id=first, amount=1, idempotency_key="t")
        raise Failed


def test_holders_that_are_locked_together_are_written_to_in_any_order(run_threads, new_holder):
    holders = in_order(new_holder)

    def work(index: int) -> None:
        with transaction.atomic(), services.holder_lock(*holders):
            spend_of_each(holders if index else holders[::-1])

    assert run_threads(work, 2) == [None, None]
    assert [reads.balance(holder).balance for holder in holders] == [98, 98]


def test_control_two_orders_deadlock_which_is_an_error_that_says_to_repeat_the_transaction(run_threads, new_holder, monkeypatch):
    monkeypatch.setattr(transactions, "ensure_order", lambda names: None)
    holders = in_order(new_holder)
    both_have_one = threading.Barrier(2)

    def work(index: int) -> None:
        with transaction.atomic():
            spend_of_each(holders if index else holders[::-1], lambda: both_have_one.wait(30))

    (error,) = [outcome for outcome in run_threads(work, 2) if outcome is not None]
    assert isinstance(error, SequenceTaken)
    assert (sqlstate(error.__cause__), error.facts["what_to_do"]) == ("40P01", "repeat the transaction")
    assert error.facts["holder_id"] in holders
    assert [reads.balance(holder).balance for holder in holders] == [99, 99], "one has written to both, the other to none"


@pytest.mark.parametrize(
    "goes_on", [False, True], ids=["the caller repeats the transaction", "control: the caller repeats the write"]
)
def test_a_deadlock_by_a_lock_of_the_callers_own_says_to_repeat_the_transaction(other, order, ada, raw_connection, goes_on):
    """The caller has a row and waits for the holder, whom another session has locked, and which waits for the row.

    The other session waits first, and long before it looks for a deadlock: so the caller is the one who is ended. The control
    writes again with the row still locked: the same deadlock again.
    """
    update = f"UPDATE {order.table} SET number = number + 1 WHERE number >= 100"
    other.execute(f"INSERT INTO {order.table} VALUES (100)")
    foreign, has_row, foreign_waits = raw_connection("superuser"), threading.Event(), threading.Event()
    foreign.execute("SET LOCAL lock_timeout = 0")
    foreign.execute("SET LOCAL deadlock_timeout = '5min'")
    foreign_session = nodes.session_id(foreign)
    lock_holder(foreign, ada)

    @transaction.atomic
    def buy() -> None:
        order()
        with connection.cursor() as cursor:
            cursor.execute(update)
        has_row.set()
        assert foreign_waits.wait(30)
        if goes_on:
            with pytest.raises(SequenceTaken):
                services.spend(holder_id=ada, amount=10, idempotency_key="s")
        services.spend(holder_id=ada, amount=10, idempotency_key="s")

    with thread() as submit, ThreadPoolExecutor(1) as pool:
        buying = submit(buy)
        assert has_row.wait(30)
        updating = pool.submit(foreign.execute, update)
        wait_until_waiting(other, foreign_session)
        foreign_waits.set()
        ended = [error for error in (buying.exception(30), updating.exception(30)) if error is not None]
    if goes_on:
        foreign.rollback()
        assert [sqlstate(error.__cause__ or error) for error in ended] == ["40P01"]
        return
    (deadlock,) = ended
    assert isinstance(deadlock, SequenceTaken)
    assert (sqlstate(deadlock.__cause__), deadlock.facts["what_to_do"]) == ("40P01", "repeat the transaction")
    assert (orders(other, order), keys(other, ada)) == (1, []), "only the row that was there before"
    foreign.rollback()
    buy()
    assert (orders(other, order), keys(other, ada)) == (2, ["s"])


# Isolation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_with_an_older_snapshot_is_refused_by_name(other, order, ada, level):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        order()
        with pytest.raises(UnsafeDatabase) as unsafe, CaptureQueriesContext(connection) as sent:
            services.spend(holder_id=ada, amount=10, idempotency_key="s")
        assert unsafe.value.facts["what"] == f"transaction_isolation = {level.lower()}"
        assert [query["sql"] for query in sent] == [transactions.CALLERS], "no table was read, and no lock taken"
        assert is_free(other, ada)
    assert (orders(other, order), keys(other, ada)) == (1, [])


def test_control_an_older_snapshot_decides_from_an_old_balance(other, ada, monkeypatch):
    """Only the entry's number, which is unique, then keeps the account from being overspent."""
    monkeypatch.setattr(transactions, "CALLERS", "SELECT 'read committed', '2s', true")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert reads.balance(ada).balance == 100
        elsewhere(lambda: services.spend(holder_id=ada, amount=100, idempotency_key="other"))
        with pytest.raises(SequenceTaken):
            services.spend(holder_id=ada, amount=100, idempotency_key="s")
    assert keys(other, ada) == ["other"]
